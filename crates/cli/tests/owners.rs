//! Workspaces whose owners, groups and modes are not simply those of the caller.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use support::{Bench, needs_root, stderr, stdout, user};

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Root in the project of an ordinary user, as with `sudo nexus run`.
fn root_in_a_users_workspace() -> Bench {
    let bench = Bench::new(None);
    bench.write("f", "old\n");
    for path in [bench.workspace.clone(), bench.workspace.join("f")] {
        chown(&path, Some(user()), Some(user())).unwrap();
    }
    bench
}

#[test]
fn root_gets_a_layer_in_a_workspace_of_another_user() {
    if !needs_root() {
        return;
    }
    for disk in [None, Some("--disk=20M")] {
        let bench = root_in_a_users_workspace();
        let script = "echo more >> f; echo n > new; mkdir d; echo x > d/x";
        let words = ["run", "--changes=commit"].into_iter().chain(disk).chain(["--shell", script]);
        let output = bench.run(words);
        assert_eq!(output.status.code(), Some(0), "{disk:?}: {}", stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("f")).unwrap(), "old\nmore\n");
        for name in ["", "f", "new", "d", "d/x"] {
            assert_eq!(owner(&bench.workspace.join(name)), (user(), user()), "{disk:?}: {name}");
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// A run may do as much as the owner of the workspace could do outside: the modes count.
#[test]
fn files_of_other_owners_obey_their_modes_in_a_layer_of_root() {
    if !needs_root() {
        return;
    }
    let bench = root_in_a_users_workspace();
    for (name, text, mode) in [("secret", "s\n", 0o600), ("read", "r\n", 0o644), ("all", "a\n", 0o666)] {
        let path = bench.write(name, text);
        set_mode(&path, mode);
    }
    for (folder, mode) in [("closed", 0o755), ("open", 0o777)] {
        bench.write(&format!("{folder}/f"), "f\n");
        set_mode(&bench.workspace.join(folder), mode);
    }
    let script =
        "cat secret && exit 1; (echo x >> read) 2>/dev/null && exit 2; (echo x > closed/n) 2>/dev/null && exit 3
        chown 1000 all 2>/dev/null && exit 4; chmod 777 all 2>/dev/null && exit 5
        set -e; echo b >> all; mv secret moved; rm read; mv closed renamed; echo o > open/n; rm open/f; mkdir open/d";
    let output = bench.run(["run", "--changes=commit", "--shell", script]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let at = |name: &str| bench.workspace.join(name);
    assert_eq!(fs::read_to_string(at("all")).unwrap(), "a\nb\n");
    assert_eq!(fs::read_to_string(at("moved")).unwrap(), "s\n");
    assert_eq!(fs::metadata(at("moved")).unwrap().mode() & 0o7777, 0o600);
    assert!(!at("read").exists() && !at("secret").exists() && !at("open/f").exists());
    for (name, uid) in [("all", 0), ("moved", 0), ("renamed", 0), ("renamed/f", 0), ("open", 0)] {
        assert_eq!(owner(&at(name)).0, uid, "{name}");
    }
    for name in ["open/n", "open/d"] {
        assert_eq!(owner(&at(name)), (user(), user()), "{name}");
    }
}

/// A group that the ordinary user is a member of, and one of another user.
const SHARED: u32 = 34567;
const FOREIGN: u32 = 45678;

/// Runs `nexus` as the bench's identity, the ordinary user also as a member of [`SHARED`].
fn run_as_member(bench: &Bench, words: &[&str]) -> std::process::Output {
    if bench.user.is_none() {
        return bench.run(words);
    }
    let mut command = bench.command_as_root("setpriv");
    command.args(["--reuid", &user().to_string(), "--regid", &user().to_string(), "--groups", &SHARED.to_string()]);
    command.arg(bench.program()).args(words).output().unwrap()
}

/// An access list in the form of linux/posix_acl_xattr.h that gives [`FOREIGN`] everything.
fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (4, 7, u32::MAX), (8, 7, FOREIGN), (16, 7, u32::MAX), (32, 5, u32::MAX)];
    let entry =
        |(tag, bits, id): (u16, u16, u32)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat();
    [vec![2, 0, 0, 0], entries.into_iter().flat_map(entry).collect()].concat()
}

fn list_of(path: &Path, kind: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = rustix::fs::getxattr(path, format!("system.posix_acl_{kind}"), &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

#[test]
fn new_files_take_group_and_access_list_of_the_workspace() {
    if !needs_root() {
        return;
    }
    for (user, disk) in [(None, None), (None, Some("--disk=20M")), (Some(user()), None)] {
        let bench = Bench::new(user);
        let flags = rustix::fs::XattrFlags::empty();
        let made_outside = bench.base.path().join("plain");
        fs::create_dir(&made_outside).unwrap();
        for path in [&bench.workspace, &made_outside] {
            rustix::fs::setxattr(path, "system.posix_acl_default", &access_list(), flags).unwrap();
            chown(path, user, Some(SHARED)).unwrap();
            set_mode(path, 0o2775);
        }
        fs::write(made_outside.join("new"), "x").unwrap();
        fs::create_dir(made_outside.join("d")).unwrap();
        let words = ["run", "--changes=commit"].into_iter().chain(disk).chain(["--shell", "echo x > new; mkdir d"]);
        let output = run_as_member(&bench, &words.collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{user:?} {disk:?}: {}", stderr(&output));
        for name in ["new", "d"] {
            let (inside, outside) = (bench.workspace.join(name), made_outside.join(name));
            assert_eq!(owner(&inside), (user.unwrap_or(0), SHARED), "{user:?} {disk:?}: {name}");
            let mode = |path: &Path| fs::metadata(path).unwrap().mode();
            assert_eq!(mode(&inside), mode(&outside), "{user:?} {disk:?}: {name}");
            for kind in ["access", "default"] {
                assert_eq!(list_of(&inside, kind), list_of(&outside, kind), "{user:?} {disk:?}: {name} {kind}");
            }
        }
    }
}

#[test]
fn a_group_that_no_layer_can_give_is_refused_by_number() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(Some(user()));
    for (gid, list, disk, wanted) in [
        (FOREIGN, false, None, Some("take the group 45678, and you are not a member")),
        (FOREIGN, false, Some("--disk=20M"), Some("the group 45678")),
        (SHARED, false, Some("--disk=20M"), Some("the group 34567")),
        (user(), true, Some("--disk=20M"), Some("names the id 45678")),
        (user(), true, None, None),
        (user(), false, Some("--disk=20M"), None),
    ] {
        chown(&bench.workspace, Some(user()), Some(gid)).unwrap();
        set_mode(&bench.workspace, 0o2775);
        let name = "system.posix_acl_default";
        if list {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&bench.workspace, name, &access_list(), flags).unwrap();
        } else {
            rustix::fs::removexattr(&bench.workspace, name).ok();
        }
        let words: Vec<&str> = ["run"].into_iter().chain(disk).chain(["--", "touch", "made"]).collect();
        let output = run_as_member(&bench, &words);
        let text = stderr(&output);
        if let Some(wanted) = wanted {
            assert_eq!(output.status.code(), Some(125), "{gid} {disk:?}: {text}");
            assert!(text.contains(wanted) && text.contains("--direct"), "{gid} {disk:?}: {text}");
            assert!(!bench.workspace.join("made").exists());
        } else {
            assert_eq!(output.status.code(), Some(0), "{gid} {disk:?}: {text}");
            assert_eq!(owner(&bench.workspace.join("made")), (user(), gid));
            fs::remove_file(bench.workspace.join("made")).unwrap();
        }
    }
}

/// The host id of a sandbox, which the map of its user namespace names.
fn host_id(bench: &Bench) -> u32 {
    let output = bench.run(["run", "--changes=discard", "--", "cat", "/proc/self/uid_map"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let map = stdout(&output);
    let words: Vec<_> = map.split_ascii_whitespace().collect();
    assert_eq!((words.len(), words[0], words[2]), (3, "1000", "1"), "{map}");
    words[1].parse().unwrap()
}

/// The kernel counts by this id what is in flight over sockets, and pages of pipes: sandboxes with one id share both.
#[test]
fn each_sandbox_of_root_has_a_host_id_of_its_own() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(None);
    let mut ids: Vec<_> = (0..6).map(|_| host_id(&bench)).collect();
    assert!(ids.iter().all(|id| (1_000_000_000..1_067_108_864).contains(id)), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    // One equal pair in 4 million runs of this test.
    assert_eq!(ids.len(), 6, "{ids:?}");
}

#[test]
fn the_sandboxes_of_a_user_have_the_users_host_id() {
    let bench = Bench::new(support::is_root().then(user));
    let user = if support::is_root() { user() } else { rustix::process::geteuid().as_raw() };
    assert_eq!([host_id(&bench), host_id(&bench)], [user; 2]);
}
