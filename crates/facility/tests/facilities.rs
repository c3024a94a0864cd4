//! Facilities of a territory on a real file system: creation, locks, hostile content, removal.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_facility::{Claim, Facilities, FacilityName, Kind, LockError, StoreError};
use nexus_model::ids::DirectiveId;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn name(text: &str) -> FacilityName {
    text.parse().unwrap()
}

fn opened(dir: &Path) -> Facilities {
    Facilities::open(&dir.join("facilities")).unwrap()
}

#[test]
fn a_facility_is_created_shown_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let all = opened(dir.path());
    let one = all.create(&name("one"), Kind::Empty, 7).unwrap();
    assert!(one.is_empty().unwrap() && one.tree().is_dir());
    all.create(&name("two"), Kind::read("repo", Some("https://example.test/x")).unwrap(), 8).unwrap();
    assert!(matches!(all.create(&name("one"), Kind::Empty, 9), Err(StoreError::Exists { .. })));
    std::fs::write(one.tree().join("file"), "kept").unwrap();
    assert!(!all.ensure(&name("one"), Kind::Empty, 10).unwrap().is_empty().unwrap());
    assert_eq!(opened(dir.path()).get(&name("one")).unwrap().metadata.created_ms, 7);
    assert_eq!(all.names().unwrap(), [name("one"), name("two")]);
    all.remove(&name("one")).unwrap();
    assert!(matches!(all.get(&name("one")), Err(StoreError::Missing { .. })));
    assert!(matches!(all.remove(&name("one")), Err(StoreError::Missing { .. })));
    assert_eq!(std::fs::read_dir(dir.path().join("facilities")).unwrap().count(), 1);
}

#[test]
fn a_directory_that_others_can_write_holds_no_facilities() {
    let dir = tempfile::tempdir().unwrap();
    opened(dir.path());
    std::fs::set_permissions(dir.path().join("facilities"), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Facilities::open(&dir.path().join("facilities")), Err(StoreError::OpenToOthers { .. })));
}

#[test]
fn a_link_in_the_place_of_a_facility_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let all = opened(dir.path());
    let one = all.create(&name("one"), Kind::Empty, 7).unwrap();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "x").unwrap();
    symlink(dir.path().join("facilities/one"), dir.path().join("facilities/linked")).unwrap();
    assert!(all.get(&name("linked")).is_err() && all.remove(&name("linked")).is_err());
    std::fs::remove_dir(one.tree()).unwrap();
    symlink(&outside, one.tree()).unwrap();
    assert!(all.get(&name("one")).is_err());
    assert!(outside.join("precious").exists());
}

#[test]
fn a_removal_leaves_what_links_of_the_tree_lead_to() {
    let dir = tempfile::tempdir().unwrap();
    let all = opened(dir.path());
    let one = all.create(&name("one"), Kind::Empty, 7).unwrap();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "x").unwrap();
    symlink(&outside, one.tree().join("link")).unwrap();
    // A tree deeper than a path may be long, and directories without rights.
    let mut at = one.tree().to_owned();
    for _ in 0..700 {
        at = at.join("d");
        std::fs::create_dir(&at).unwrap();
    }
    symlink(&outside, at.join("deep-link")).unwrap();
    std::fs::create_dir_all(one.tree().join("closed/inner")).unwrap();
    std::fs::set_permissions(one.tree().join("closed"), std::fs::Permissions::from_mode(0o000)).unwrap();
    all.remove(&name("one")).unwrap();
    assert_eq!(std::fs::read_to_string(outside.join("precious")).unwrap(), "x");
    assert_eq!(std::fs::read_dir(dir.path().join("facilities")).unwrap().count(), 0);
}

#[test]
fn what_a_cut_off_removal_left_is_swept_away() {
    let dir = tempfile::tempdir().unwrap();
    let all = opened(dir.path());
    all.create(&name("one"), Kind::Empty, 7).unwrap();
    for left in [".gone-x-1", ".made-y-2"] {
        std::fs::create_dir_all(dir.path().join("facilities").join(left).join("tree/deep")).unwrap();
    }
    all.sweep().unwrap();
    assert_eq!(all.names().unwrap(), [name("one")]);
    assert_eq!(std::fs::read_dir(dir.path().join("facilities")).unwrap().count(), 1);
}

#[test]
fn one_directive_at_a_time_and_no_stale_claim_has_a_facility() {
    let dir = tempfile::tempdir().unwrap();
    let one = opened(dir.path()).create(&name("one"), Kind::Empty, 7).unwrap();
    let (first, second) = (DirectiveId::new(), DirectiveId::new());
    let held = one.lock(Claim { directive: first, fence: 3 }).unwrap();
    assert!(held.before.is_none());
    match one.lock(Claim { directive: second, fence: 9 }) {
        Err(LockError::Busy { holder: Some(holder) }) => assert_eq!((holder.directive, holder.fence), (first, 3)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(opened(dir.path()).remove(&name("one")), Err(StoreError::Lock(LockError::Busy { .. }))));
    held.release(false).unwrap();
    for fence in [2, 3] {
        assert!(matches!(one.lock(Claim { directive: first, fence }), Err(LockError::Stale { .. })), "{fence}");
    }
    let again = one.lock(Claim { directive: first, fence: 4 }).unwrap();
    assert!(again.before.unwrap().released);
    drop(again);
    // A holder that died left no word, which the next one reads. Fences of two directives do not compare.
    let next = one.lock(Claim { directive: second, fence: 1 }).unwrap();
    let before = next.before.unwrap();
    assert_eq!((before.claim.directive, before.claim.fence, before.released), (first, 4, false));
}

#[test]
fn a_directive_that_ended_in_a_facility_never_has_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let one = opened(dir.path()).create(&name("one"), Kind::Empty, 7).unwrap();
    let (first, second) = (DirectiveId::new(), DirectiveId::new());
    let taken = |directive, fence| one.lock(Claim { directive, fence });
    // A claim that was lost comes back with a larger fence.
    taken(first, 1).unwrap().release(false).unwrap();
    taken(first, 2).unwrap().release(true).unwrap();
    taken(second, 1).unwrap().release(true).unwrap();
    // A control plane that was restored from a backup raises all fences by its epoch.
    for directive in [first, second] {
        match taken(directive, 1 << 40) {
            Err(error @ LockError::Ended { .. }) => assert_eq!(error.code(), "directive_ended"),
            other => panic!("{other:?}"),
        }
    }
    taken(DirectiveId::new(), 1).unwrap();
}

#[test]
fn a_directive_whose_commit_was_finished_after_its_daemon_died_never_has_the_facility_again() {
    let dir = tempfile::tempdir().unwrap();
    let all = opened(dir.path());
    let (one, other) =
        (all.create(&name("one"), Kind::Empty, 7).unwrap(), all.create(&name("other"), Kind::Empty, 7).unwrap());
    let (dead, released) = (DirectiveId::new(), DirectiveId::new());
    // The one died with its process, the other let go and may run again.
    drop(one.lock(Claim { directive: dead, fence: 1 }).unwrap());
    other.lock(Claim { directive: released, fence: 1 }).unwrap().release(false).unwrap();
    for directive in [dead, released, DirectiveId::new(), dead] {
        all.end_of_the_dead(directive).unwrap();
    }
    let again = one.lock(Claim { directive: dead, fence: 1 << 40 });
    assert!(matches!(again, Err(LockError::Ended { directive }) if directive == dead), "{again:?}");
    other.lock(Claim { directive: released, fence: 2 }).unwrap();
    one.lock(Claim { directive: DirectiveId::new(), fence: 1 }).unwrap();
}

#[test]
fn the_lock_of_a_killed_holder_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let one = opened(dir.path()).create(&name("one"), Kind::Empty, 7).unwrap();
    let lock = dir.path().join("facilities/one/lock");
    std::fs::write(&lock, "").unwrap();
    let mut holder = Command::new("flock");
    holder.arg("--no-fork").arg(&lock).args(["sh", "-c", "echo; exec sleep 60"]);
    let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut line).unwrap();
    let claim = Claim { directive: DirectiveId::new(), fence: 1 };
    assert!(matches!(one.lock(claim), Err(LockError::Busy { holder: None })));
    holder.kill().unwrap();
    holder.wait().unwrap();
    one.lock(claim).unwrap();
}

#[test]
fn a_damaged_lock_gives_the_facility_to_no_directive() {
    let dir = tempfile::tempdir().unwrap();
    let one = opened(dir.path()).create(&name("one"), Kind::Empty, 7).unwrap();
    let claim = Claim { directive: DirectiveId::new(), fence: 1 };
    let lock = dir.path().join("facilities/one/lock");
    for damaged in ["{", "[]", "\0\0\0"] {
        std::fs::write(&lock, damaged).unwrap();
        assert!(matches!(one.lock(claim), Err(LockError::Io(_))), "{damaged:?}");
    }
    std::fs::remove_file(&lock).unwrap();
    let fifo = Command::new("mkfifo").arg(&lock).status().unwrap();
    assert!(fifo.success() && matches!(one.lock(claim), Err(LockError::Io(_))));
}

#[test]
fn threads_that_ask_for_a_missing_facility_get_the_same_one() {
    let dir = tempfile::tempdir().unwrap();
    let all = opened(dir.path());
    for round in 0..20 {
        let wanted = name(&format!("f{round}"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| all.ensure(&wanted, Kind::Empty, round).unwrap());
            }
        });
    }
    assert_eq!(all.names().unwrap().len(), 20);
    assert_eq!(std::fs::read_dir(dir.path().join("facilities")).unwrap().count(), 20, "nothing is left behind");
}
