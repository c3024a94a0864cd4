//! A commit that is killed at any moment leaves the old version, or the new one after a recovery.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, give, reopen, snapshot};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::{CommitError, Faults, Layer, LayerMode, Phase, Recovered, Rules, Workspace, recover};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
#[ignore = "the child of the other tests"]
fn child_commits_until_it_is_killed() {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let workspace = Workspace::open(&scene.join("ws")).unwrap();
    let mut layer = reopen(&scene.join("layers"));
    layer.set_faults(Faults::from_env());
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    assert_eq!(result.conflicts, []);
    assert!(result.parked.iter().all(|change| change.protected.is_some()), "{result:?}");
}

#[test]
#[ignore = "the child of the other tests"]
fn child_recovers_until_it_is_killed() {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let workspace = Workspace::open(&scene.join("ws")).unwrap();
    recover_with(&scene.join("layers"), "run", &workspace, &Faults::from_env()).unwrap();
}

fn base() -> Vec<Op> {
    let mut ops = Vec::new();
    for dir in ["a", "a/deep", "a/deep/er", "b", "gone", "gone/sub", "old", "perm"] {
        ops.push(Op::Mkdir(b(dir)));
    }
    for file in
        ["a/f", "a/deep/g", "a/deep/er/h", "b/f", "gone/x", "gone/sub/y", "old/z", "old/keep", "plain", "link1", "swap"]
    {
        ops.push(Op::Write(b(file), format!("old {file}")));
    }
    ops.push(Op::Link(b("link1"), b("link2")));
    ops.push(Op::Link(b("link1"), b("link3")));
    ops.push(Op::Write(b("twin1"), "old".into()));
    ops.push(Op::Link(b("twin1"), b("twin2")));
    for dir in ["over", "under", "flat", "flat/way", "flat/way/in", "both", "both/names"] {
        ops.push(Op::Mkdir(b(dir)));
    }
    for file in ["over/o", "under/u", "flat/way/in/i", "named", "placed", "twice", "both/b"] {
        ops.push(Op::Write(b(file), format!("old {file}")));
    }
    ops.push(Op::Link(b("named"), b("b/name")));
    ops.push(Op::Link(b("twice"), b("both/names/twice")));
    ops
}

/// Swapped and nested renames, chains, opaque directories, hard links, type changes, a protected name.
fn run() -> Vec<Op> {
    let rename = |x: &str, y: &str| Op::Rename(b(x), b(y));
    vec![
        rename("a", "t"),
        rename("b", "a"),
        rename("t", "b"),
        rename("b/deep/er", "er"),
        Op::RemoveTree(b("gone")),
        Op::RemoveTree(b("old")),
        Op::Mkdir(b("old")),
        Op::Write(b("old/z"), "new z".into()),
        Op::Mkdir(b("fresh")),
        Op::Mkdir(b("fresh/in")),
        Op::Write(b("fresh/in/one"), "1".into()),
        Op::Link(b("fresh/in/one"), b("fresh/two")),
        Op::Append(b("link1"), " more".into()),
        Op::Remove(b("link1")),
        Op::Link(b("link2"), b("fresh/link4")),
        Op::Append(b("twin1"), " more".into()),
        Op::Remove(b("twin1")),
        Op::Remove(b("swap")),
        Op::Mkdir(b("swap")),
        Op::Write(b("swap/inside"), "s".into()),
        Op::Chmod(b("perm"), 0o500),
        Op::Append(b("plain"), " more".into()),
        // Each of these displaces something by what was taken or held before.
        Op::RemoveTree(b("over")),
        rename("under", "over"),
        Op::Write(b("over/new"), "new".into()),
        rename("named", "placed"),
        rename("flat/way/in", "in"),
        Op::RemoveTree(b("flat")),
        Op::RemoveTree(b("both")),
        rename("twice", "both"),
        Op::Mkdir(b(".vscode")),
        Op::Write(b(".vscode/tasks.json"), "evil".into()),
    ]
}

/// A parked layer, as it is before the commit, and what the workspace is to be.
fn scene() -> Scene {
    let scene = Scene::one_of_many(LayerMode::Root, &base());
    let layer = scene.layer(&run());
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    std::fs::remove_dir_all(scene.path("plain/.vscode")).unwrap();
    scene
}

#[test]
fn a_commit_killed_at_any_action_leaves_the_old_or_the_new_version() {
    let mut decided_at = None;
    for kill_at in 1_u32..400 {
        let scene = scene();
        let (old, new) = (scene.found(), scene.wanted());
        assert_ne!(old, new);
        let order = scene.dir.path().to_str().unwrap().to_owned();
        let at = kill_at.to_string();
        let survived = scene.child("child_commits_until_it_is_killed", &order, &[("NEXUS_LAYER_ABORT_AT", &at)], false);
        if let Err(output) = &survived {
            assert!(output.contains("(9)") || output.contains("signal: 9"), "{output}");
        }
        // The recovery is killed too, each time at another place.
        let second = (kill_at % 23 + 1).to_string();
        scene.child("child_recovers_until_it_is_killed", &order, &[("NEXUS_LAYER_ABORT_AT", &second)], false).ok();
        let had_journal = ["journal", "journal.done"].iter().any(|name| scene.path("layers/run").join(name).exists());
        let recovered = recover(&scene.path("layers"), "run", &scene.workspace()).unwrap();
        match &recovered {
            Recovered::RolledForward(done) if had_journal => assert_eq!(done.conflicts, [], "at {kill_at}"),
            Recovered::Parked if !had_journal => {}
            other => panic!("at {kill_at}: {other:?}"),
        }
        let found = scene.found();
        if decided_at.is_none() && found == new {
            decided_at = Some(kill_at);
        }
        let wanted = if decided_at.is_some() { &new } else { &old };
        assert_eq!(&found, wanted, "killed at {kill_at}");
        // Whatever happened, what is parked can still be accepted.
        let layer = Layer::open(&scene.path("layers"), "run").unwrap();
        let result = layer.commit(&scene.workspace(), &Rules { accept_protected: true, ..Rules::default() }).unwrap();
        assert_eq!(result.conflicts, [], "killed at {kill_at}");
        assert_eq!(std::fs::read(scene.ws().join(".vscode/tasks.json")).unwrap(), b"evil");
        assert!(!scene.path("layers/run").exists());
        if survived.is_ok() {
            assert!(decided_at.is_some_and(|at| at > 3 && at < kill_at), "{decided_at:?} of {kill_at}");
            assert!(kill_at > 40, "only {kill_at} places to be killed at");
            return;
        }
    }
    panic!("the commit never came to its end");
}

/// A power cut may lose the notes about a removal, but not those about the directories, which are synced before it begins.
#[test]
fn a_removal_whose_notes_are_lost_comes_to_its_end() {
    let base: Vec<Op> = ["gone", "gone/sub", "gone/sub/sub"]
        .map(|name| Op::Mkdir(b(name)))
        .into_iter()
        .chain(["gone/x", "gone/sub/y", "gone/sub/sub/z"].map(|name| Op::Write(b(name), "old".into())))
        .collect();
    let (mut lost, mut between) = (0, 0);
    for kill_at in 1_u32..200 {
        let scene = Scene::one_of_many(LayerMode::Root, &base);
        let layer = scene.layer(&[Op::RemoveTree(b("gone"))]);
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        let order = scene.dir.path().to_str().unwrap().to_owned();
        let at = kill_at.to_string();
        if scene.child("child_commits_until_it_is_killed", &order, &[("NEXUS_LAYER_ABORT_AT", &at)], false).is_ok() {
            assert!(lost > 8, "the notes were lost {lost} times");
            assert!(between > 2, "killed {between} times while an entry was leaving");
            return;
        }
        let run = scene.path("layers/run");
        let leaves = Command::new("find").arg(scene.dir.path()).args(["-name", ".nexus-leaving-*"]).output().unwrap();
        if !leaves.stdout.is_empty() {
            // Its new name looks like a change by another process, so it stays.
            between += 1;
            continue;
        }
        if let Ok(notes) = fs::read_to_string(run.join("removing")) {
            let synced: String = notes.split_inclusive('\n').take(2).collect();
            assert_eq!(synced.matches("\"kind\":\"directory\"").count(), 2, "{notes}");
            fs::write(run.join("removing"), synced).unwrap();
            lost += 1;
        }
        if run.join("leaving").exists() {
            fs::write(run.join("leaving"), "").unwrap();
        }
        match recover(&scene.path("layers"), "run", &scene.workspace()).unwrap() {
            Recovered::RolledForward(done) => assert_eq!(done.conflicts, [], "killed at {kill_at}"),
            Recovered::Parked | Recovered::Nothing => continue,
            other => panic!("killed at {kill_at}: {other:?}"),
        }
        assert!(!scene.ws().join("gone").exists(), "killed at {kill_at}");
    }
    panic!("the commit never came to its end");
}

/// Directories that a program of the host moves into the one that is being removed, with files from before the run.
#[test]
fn what_is_moved_into_a_removed_directory_is_never_lost() {
    let base: Vec<Op> = ["gone", "gone/sub", "gone/sub/sub"]
        .map(|name| Op::Mkdir(b(name)))
        .into_iter()
        .chain(["gone/x", "gone/sub/y", "gone/sub/sub/z"].map(|name| Op::Write(b(name), "old".into())))
        .collect();
    let mut in_the_way = 0;
    for kill_at in 1_u32..200 {
        let scene = Scene::one_of_many(LayerMode::Root, &base);
        let beside = scene.path("beside");
        fs::create_dir_all(beside.join("deep")).unwrap();
        for name in ["mine", "more", "deep/est"] {
            fs::write(beside.join(name), name).unwrap();
        }
        let layer = scene.layer(&[Op::RemoveTree(b("gone"))]);
        let held = ["gone", "gone/sub"].map(|name| fs::File::open(scene.ws().join(name)).unwrap());
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        let order = scene.dir.path().to_str().unwrap().to_owned();
        let at = kill_at.to_string();
        if scene.child("child_commits_until_it_is_killed", &order, &[("NEXUS_LAYER_ABORT_AT", &at)], false).is_ok() {
            assert!(in_the_way > 8, "{in_the_way}");
            return;
        }
        // The program has the directory open, wherever the commit moved that.
        let place = &held[kill_at as usize % 2];
        let moved = rustix::fs::renameat(rustix::fs::CWD, &beside, place, "came").is_ok();
        if moved {
            let came =
                rustix::fs::openat(place, "came", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
            // So both of its times are late, as those of a directory that the removal emptied are.
            rustix::fs::unlinkat(&came, "more", rustix::fs::AtFlags::empty()).unwrap();
        }
        recover(&scene.path("layers"), "run", &scene.workspace()).unwrap();
        let found = Command::new("find").arg(scene.dir.path()).args(["-name", "mine", "-o", "-name", "est"]).output();
        let found = String::from_utf8(found.unwrap().stdout).unwrap();
        assert_eq!(found.lines().count(), 2, "killed at {kill_at}: {found}");
        in_the_way += u32::from(moved);
    }
    panic!("the commit never came to its end");
}

/// The removal of one name of a file gives the others a late stamp, so that the stamps do not tell a name that another process moves into
/// the directory from the ones that were there.
#[test]
fn the_last_name_of_a_file_that_is_moved_into_a_removed_directory_is_never_lost() {
    let base = [
        Op::Mkdir(b("gone")),
        Op::Mkdir(b("gone/sub")),
        Op::Write(b("gone/x"), "old".into()),
        Op::Write(b("mine"), "precious".into()),
        Op::Link(b("mine"), b("copy")),
        Op::Link(b("mine"), b("gone/lh")),
        Op::Link(b("mine"), b("gone/sub/lh")),
        Op::Write(b("gone/sub/out"), "out".into()),
    ];
    // A step that takes something out of the directory changes its times, too.
    let takes_out = [Op::Rename(b("gone/sub/out"), b("out")), Op::RemoveTree(b("gone")), Op::Remove(b("copy"))];
    let mut moved_at = [0, 0];
    for (dir, name, ops) in [
        (0, "came", &takes_out[1..]),
        (1, "came", &takes_out[1..]),
        (0, "lh", &takes_out[1..]),
        (1, "lh", &takes_out[1..]),
        (1, "came", &takes_out[..]),
    ] {
        for kill_at in 1_u32..200 {
            let scene = Scene::one_of_many(LayerMode::Root, &base);
            let layer = scene.layer(ops);
            let held = ["gone", "gone/sub"].map(|name| fs::File::open(scene.ws().join(name)).unwrap());
            layer.park(&scene.workspace(), &Rules::default()).unwrap();
            drop(layer);
            let order = scene.dir.path().to_str().unwrap().to_owned();
            let at = kill_at.to_string();
            if scene.child("child_commits_until_it_is_killed", &order, &[("NEXUS_LAYER_ABORT_AT", &at)], false).is_ok()
            {
                assert!(!scene.ws().join("gone").exists() && kill_at > 20, "{kill_at}");
                break;
            }
            let mine = scene.ws().join("mine");
            let moved = rustix::fs::renameat(rustix::fs::CWD, &mine, &held[dir], name).is_ok() && !mine.exists();
            moved_at[usize::from(name == "lh")] += u32::from(moved);
            recover(&scene.path("layers"), "run", &scene.workspace()).unwrap();
            let found =
                Command::new("grep").args(["-rl", "precious"]).args([scene.ws(), scene.path("layers")]).output();
            let found = found.unwrap();
            assert!(!found.stdout.is_empty(), "killed at {kill_at}, moved to {name} of {dir}: {moved}");
        }
    }
    assert!(moved_at[0] > 20 && moved_at[1] > 2, "{moved_at:?}");
}

/// A directory that keeps its owner out is opened up for the call that moves it, and for the ones that work in it.
#[test]
fn a_users_commit_killed_anywhere_opens_no_directory() {
    let base = [
        Op::Mkdir(b("p")),
        Op::Mkdir(b("p/q")),
        Op::Write(b("p/q/f"), "old".into()),
        Op::Chmod(b("p/q"), 0o555),
        Op::Chmod(b("p"), 0o555),
        Op::Mkdir(b("gone")),
        Op::Write(b("gone/f"), "old".into()),
        Op::Chmod(b("gone"), 0o500),
    ];
    let run = [
        Op::Chmod(b("p"), 0o755),
        Op::Chmod(b("p/q"), 0o755),
        Op::Append(b("p/q/f"), "new".into()),
        Op::Chmod(b("p/q"), 0o555),
        Op::Chmod(b("p"), 0o555),
        Op::Chmod(b("gone"), 0o700),
        Op::RemoveTree(b("gone")),
        Op::Mkdir(b("n")),
        Op::Write(b("n/f"), "x".into()),
        Op::Chmod(b("n"), 0o100),
    ];
    let mut ends = [0, 0];
    for kill_at in 1_u32..200 {
        let scene = Scene::one_of_many(LayerMode::User, &base);
        let layer = scene.layer(&run);
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        give(&scene.path("layers"));
        let (old, new) = (scene.found(), scene.wanted());
        let order = scene.dir.path().to_str().unwrap();
        let at = kill_at.to_string();
        let survived = scene.child("child_commits_until_it_is_killed", order, &[("NEXUS_LAYER_ABORT_AT", &at)], false);
        if let Err(output) = &survived {
            assert!(output.contains("(9)") || output.contains("signal: 9"), "{output}");
        }
        let is_decided = ["journal", "journal.done"].iter().any(|name| scene.path("layers/run").join(name).exists());
        scene.child("child_recovers_until_it_is_killed", order, &[], false).unwrap();
        let is_new = is_decided || survived.is_ok() || !scene.path("layers/run").exists();
        assert_eq!(&scene.found(), if is_new { &new } else { &old }, "killed at {kill_at}");
        ends[usize::from(is_new)] += 1;
        if survived.is_ok() {
            assert!(ends[0] > 2 && ends[1] > 10, "{ends:?}");
            return;
        }
    }
    panic!("the commit never came to its end");
}

/// A look at a layer, and the copying of its entries to another file system, open up what the run closed to its owner.
#[test]
fn a_user_accept_that_is_killed_keeps_the_modes_of_the_layer() {
    let run = [
        Op::Mkdir(b("n")),
        Op::Mkdir(b("n/in")),
        Op::Write(b("n/in/f"), "x".into()),
        Op::Write(b("n/in/g"), "x".into()),
        Op::Chmod(b("n/in/f"), 0o040),
        Op::Chmod(b("n/in"), 0o311),
        Op::Chmod(b("n"), 0o100),
    ];
    let modes = |upper: &Path| {
        ["n", "n/in", "n/in/f"].map(|name| fs::symlink_metadata(upper.join(name)).unwrap().permissions().mode() & 0o777)
    };
    let mut undecided = 0;
    for kill_at in 1_u32..200 {
        let scene = Scene::new(LayerMode::User, &[]);
        let layer = scene.layer(&run);
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        // In memory, so that the commit copies.
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        let copied = Command::new("cp").arg("-a").arg(scene.path("layers/run")).arg(elsewhere.path()).status().unwrap();
        assert!(copied.success());
        fs::remove_dir_all(scene.path("layers")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), scene.path("layers")).unwrap();
        give(elsewhere.path());
        let order = scene.dir.path().to_str().unwrap();
        let at = kill_at.to_string();
        let survived = scene.child("child_commits_until_it_is_killed", order, &[("NEXUS_LAYER_ABORT_AT", &at)], false);
        let layer = elsewhere.path().join("run");
        if survived.is_ok() {
            assert_eq!(scene.found(), scene.wanted());
            assert!(undecided > 4, "only {undecided} kills");
            return;
        }
        if !["journal", "journal.done"].iter().any(|name| layer.join(name).exists())
            && layer.join("parked.json").exists()
        {
            undecided += 1;
            drop(reopen(elsewhere.path()));
            assert_eq!(modes(&layer.join("upper")), [0o100, 0o311, 0o040], "killed at {kill_at}");
            assert!(!layer.join("opened.modes").exists(), "killed at {kill_at}");
        }
    }
    panic!("the commit never came to its end");
}

#[test]
fn every_step_that_fails_leaves_the_old_version_or_a_journal() {
    for step in Phase::ALL {
        let scene = Scene::one_of_many(LayerMode::Root, &base());
        if *step == Phase::CreateLayer {
            let faults = Faults::failing(*step);
            assert!(
                Layer::create_with(None, &scene.path("layers"), "run", &scene.workspace(), LayerMode::Root, faults)
                    .is_err()
            );
            continue;
        }
        let mut layer = scene.layer(&run());
        if *step == Phase::Materialise {
            let upper = std::fs::File::open(layer.upper()).unwrap();
            layer = layer.with_upper(upper.into());
        }
        if matches!(step, Phase::Park | Phase::Discard) {
            layer.set_faults(Faults::failing(*step));
            if *step == Phase::Park {
                assert!(layer.park(&scene.workspace(), &Rules::default()).is_err());
            } else {
                assert!(layer.discard().is_err());
            }
            continue;
        }
        let (old, new) = (scene.found(), {
            std::fs::remove_dir_all(scene.path("plain/.vscode")).unwrap();
            scene.wanted()
        });
        layer.set_faults(Faults::failing(*step));
        let error = layer.commit(&scene.workspace(), &Rules::default()).unwrap_err();
        drop(layer);
        if matches!(error, CommitError::Interrupted { .. }) {
            let recovered = recover(&scene.path("layers"), "run", &scene.workspace()).unwrap();
            assert!(matches!(&recovered, Recovered::RolledForward(done) if done.conflicts.is_empty()), "{recovered:?}");
            assert_eq!(scene.found(), new, "{}", step.name());
        } else {
            assert_eq!(scene.found(), old, "{}", step.name());
            assert_eq!(recover(&scene.path("layers"), "run", &scene.workspace()).unwrap(), Recovered::Undecided);
        }
    }
}

#[test]
fn a_layer_that_was_never_decided_is_kept() {
    let scene = Scene::one_of_many(LayerMode::Root, &base());
    let layer = scene.layer(&run());
    let workspace = scene.workspace();
    assert!(matches!(recover(&scene.path("layers"), "run", &workspace), Err(nexus_layer::RecoverError::Busy { .. })));
    drop(layer);
    let old = snapshot(&scene.ws(), true);
    for _ in 0..2 {
        assert_eq!(recover(&scene.path("layers"), "run", &workspace).unwrap(), Recovered::Undecided);
    }
    nexus_layer::abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
    assert_eq!(recover(&scene.path("layers"), "run", &workspace).unwrap(), Recovered::Nothing);
    assert_eq!(snapshot(&scene.ws(), true), old);
}
