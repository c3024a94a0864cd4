//! The way back of a workspace: against a model, cut off at each step, and beside programs that write meanwhile.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use common::listing;
use common::undoing::{Scene, edits, played, whole};
use nexus_facility::checkpoints::{CheckpointError, UndoRequest};
use proptest::prelude::*;
use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_undo_restores_the_directory_exactly(before in edits(20), during in edits(30), ends in any::<bool>()) {
        let (scene, run, wanted) = played(&before, &during);
        let ruined = whole(&scene.tree());
        if ends {
            scene.end(run);
        }
        let done = scene.undo(run, &scene.whole(run)).unwrap();
        prop_assert_eq!(&done.applied.left, &vec![]);
        prop_assert_eq!(&done.applied.aside, &vec![]);
        prop_assert_eq!(whole(&scene.tree()), wanted);
        // And the undo can be undone, all but what no state keeps.
        if let Some(kept) = done.kept {
            let to = Some(kept.tree);
            scene.undo(run, &UndoRequest { to, ..UndoRequest::default() }).unwrap();
            let mut ruined = ruined;
            let is_fifo = |mode: u32| mode & 0o170_000 == 0o010_000;
            let has_fifos = ruined.0.values().any(|one| is_fifo(one.mode));
            ruined.0.retain(|_, one| !is_fifo(one.mode));
            // The time of a directory that had a FIFO is the one of that time, too.
            let again = whole(&scene.tree());
            prop_assert!(again == ruined, "{has_fifos}: {again:?} {ruined:?}");
        }
    }

    #[test]
    fn an_undo_that_is_cut_off_goes_on(
        before in edits(12), during in edits(16), cuts in prop::collection::vec(0..40_usize, 1..4), ends in any::<bool>()
    ) {
        let (scene, run, wanted) = played(&before, &during);
        if ends {
            scene.end(run);
        }
        let mut is_done = false;
        for after in cuts {
            is_done = scene.cut_off(run, after).is_ok();
            if is_done {
                break;
            }
        }
        if !is_done {
            let done = scene.undo(run, &scene.whole(run)).unwrap();
            prop_assert_eq!(&done.applied.left, &vec![]);
            prop_assert_eq!(&done.applied.aside, &vec![]);
        }
        prop_assert_eq!(whole(&scene.tree()), wanted);
        let next = scene.undo(run, &scene.whole(run)).unwrap();
        prop_assert!(next.went_on.is_none() && next.kept.is_none(), "nothing is left to do");
    }
}

#[test]
fn a_directory_that_comes_with_a_name_of_a_file_elsewhere_has_its_time() {
    let scene = Scene::new();
    scene.put("a/z", "text");
    scene.put("c/in/x", "text");
    fs::hard_link(scene.tree().join("a/z"), scene.tree().join("c/in/y")).unwrap();
    fs::hard_link(scene.tree().join("a/z"), scene.tree().join("c/y")).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let wanted = whole(&scene.tree());
    let run = scene.take();
    fs::remove_dir_all(scene.tree().join("c")).unwrap();
    scene.end(run);
    scene.undo(run, &scene.whole(run)).unwrap();
    assert_eq!(whole(&scene.tree()), wanted);
}

#[test]
fn a_file_of_which_the_run_made_another_name_gets_its_mode_back() {
    for other in ["a/z", "z", "0"] {
        let scene = Scene::new();
        scene.put("a/y", "text");
        let wanted = whole(&scene.tree());
        let run = scene.take();
        fs::hard_link(scene.tree().join("a/y"), scene.tree().join(other)).unwrap();
        fs::set_permissions(scene.tree().join("a/y"), Permissions::from_mode(0o733)).unwrap();
        let done = scene.undo(run, &scene.whole(run)).unwrap();
        assert_eq!((done.applied.left, done.applied.aside), (vec![], vec![]), "{other}");
        assert_eq!(whole(&scene.tree()), wanted, "{other}");
    }
}

#[test]
fn an_undo_that_is_cut_off_after_a_fifo_went_goes_on_without_it() {
    for after in 0..40 {
        let scene = Scene::new();
        let wanted = whole(&scene.tree());
        let run = scene.take();
        scene.put("a/file", "of the run");
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mkfifoat(rustix::fs::CWD, scene.tree().join("a/fifo"), mode).unwrap();
        if scene.cut_off(run, after).is_ok() {
            assert!(after > 3, "cut off {after} times");
            return;
        }
        let done = scene.undo(run, &scene.whole(run)).unwrap();
        assert_eq!((done.applied.left, done.applied.aside), (vec![], vec![]), "after {after}");
        assert_eq!(whole(&scene.tree()), wanted, "after {after}");
    }
    panic!("the undo never came to its end");
}

#[test]
fn an_undo_that_is_given_up_leaves_everything_as_it_is() {
    let mut stayed = 0;
    for after in 0..40 {
        let scene = Scene::new();
        scene.put("a/file", "old\n");
        scene.put("b", "old\n");
        let wanted = whole(&scene.tree());
        let run = scene.take();
        scene.put("a/file", "by the run\n");
        scene.put("b", "by the run\n");
        scene.put("c", "by the run\n");
        scene.end(run);
        let undo = scene.cut_off(run, after);
        let before = whole(&scene.tree());
        let given_up = scene.checkpoints.abandon("d", scene.root.as_fd()).unwrap();
        if undo.is_ok() {
            assert!(after > 3 && given_up.is_none(), "cut off {after} times");
            assert!(stayed > 3, "{stayed}");
            return;
        }
        let mut now = whole(&scene.tree());
        if let Some((of, rest)) = given_up {
            assert_eq!(of, run);
            match rest {
                Some(rest) => {
                    stayed += 1;
                    assert!(now.0.contains_key(std::path::Path::new(&rest)), "{rest} is named and stays");
                }
                // An empty staging directory goes.
                None => now.0.clone_from(&before.0),
            }
        }
        assert_eq!(now.0, before.0, "after {after}");
        assert!(scene.checkpoints.unfinished("d").unwrap().is_none());
        let done = scene.undo(run, &UndoRequest { overwrites: true, ..UndoRequest::default() }).unwrap();
        assert!(done.went_on.is_none());
        assert_eq!(whole(&scene.tree()).0, wanted.0, "after {after}");
    }
    panic!("the undo never came to its end");
}

#[test]
fn entries_with_several_names_go_with_their_directory() {
    let scene = Scene::new();
    let wanted = whole(&scene.tree());
    let run = scene.take();
    scene.put("a/file", "by the run\n");
    symlink("file", scene.tree().join("a/link")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, scene.tree().join("a/fifo"), mode).unwrap();
    for name in ["file", "link", "fifo"] {
        fs::hard_link(scene.tree().join("a").join(name), scene.tree().join(format!("a/again-{name}"))).unwrap();
    }
    let done = scene.undo(run, &scene.whole(run)).unwrap();
    assert_eq!((done.applied.left, done.applied.aside), (vec![], vec![]));
    assert_eq!(whole(&scene.tree()), wanted);
}

#[test]
fn the_mode_of_a_file_that_its_owner_cannot_read_comes_back() {
    let scene = Scene::new();
    scene.put("f", "old\n");
    let path = scene.tree().join("f");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    fs::set_permissions(&path, Permissions::from_mode(0o200)).unwrap();
    let run = scene.take();
    assert_eq!(mode(), 0o200, "a state changes nothing");
    fs::remove_file(&path).unwrap();
    scene.put("f", "by the run\n");
    scene.end(run);
    scene.undo(run, &scene.whole(run)).unwrap();
    assert_eq!(mode(), 0o200);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(scene.text("f"), "old\n");
}

#[test]
fn what_a_person_edited_after_the_run_stays() {
    let scene = Scene::new();
    for name in ["both", "mine", "run", "d/run"] {
        scene.put(name, "old\n");
    }
    let run = scene.take();
    for name in ["both", "run", "new/by-run", "new/both"] {
        scene.put(name, "by the run\n");
    }
    fs::remove_dir_all(scene.tree().join("d")).unwrap();
    scene.end(run);
    scene.put("mine", "mine\n");
    scene.put("both", "both\n");
    scene.put("new/both", "both\n");
    scene.put("new/mine", "mine\n");
    scene.put("fresh/mine", "mine\n");
    let done = scene.undo(run, &scene.whole(run)).unwrap();
    let left: Vec<_> = done.applied.left.iter().map(|left| String::from_utf8_lossy(&left.path).into_owned()).collect();
    assert_eq!(left, ["both", "new/both"]);
    assert_eq!(done.theirs, 3, "mine, new/mine and fresh");
    for (name, content) in [
        ("both", "both\n"),
        ("mine", "mine\n"),
        ("run", "old\n"),
        ("d/run", "old\n"),
        ("new/by-run", ""),
        ("new/both", "both\n"),
        ("new/mine", "mine\n"),
        ("fresh/mine", "mine\n"),
    ] {
        assert_eq!(scene.text(name), content, "{name}");
    }
    // Asked for, they go back too, and the state before stays.
    let kept = scene.undo(run, &UndoRequest { overwrites: true, ..UndoRequest::default() }).unwrap().kept.unwrap();
    assert_eq!(
        (scene.text("both"), scene.text("mine"), scene.text("fresh/mine")),
        ("old\n".into(), "old\n".into(), String::new())
    );
    assert!(scene.checkpoints.run(run).unwrap().kept.contains(&kept));
    scene.undo(run, &UndoRequest { to: Some(kept.short().to_owned()), ..UndoRequest::default() }).unwrap();
    assert_eq!((scene.text("both"), scene.text("new/mine")), ("both\n".into(), "mine\n".into()));
}

#[test]
fn a_directory_of_the_run_that_a_person_marked_since_stays() {
    let scene = Scene::new();
    let run = scene.take();
    for name in ["made/marked/f", "made/other/f", "mode/f"] {
        scene.put(name, "by the run\n");
    }
    scene.end(run);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(scene.tree().join("made/marked"), "user.mark", b"mine", flags).unwrap();
    fs::set_permissions(scene.tree().join("mode"), Permissions::from_mode(0o711)).unwrap();
    let done = scene.undo(run, &UndoRequest::default()).unwrap();
    let left: Vec<_> = done.applied.left.iter().map(|left| String::from_utf8_lossy(&left.path).into_owned()).collect();
    assert_eq!(left, ["made/marked", "mode"]);
    assert!(scene.tree().join("made/marked").exists() && !scene.tree().join("made/other").exists());
    assert_eq!((scene.text("made/marked/f"), scene.text("mode/f")), (String::new(), String::new()));
    scene.undo(run, &UndoRequest { overwrites: true, ..UndoRequest::default() }).unwrap();
    assert!(!scene.tree().join("made").exists() && !scene.tree().join("mode").exists());
}

#[test]
fn single_paths_go_back_and_others_stay() {
    let scene = Scene::new();
    for name in ["a/one", "a/two", "b"] {
        scene.put(name, "old\n");
    }
    fs::hard_link(scene.tree().join("a/one"), scene.tree().join("linked")).unwrap();
    let run = scene.take();
    for name in ["a/one", "a/two", "b", "c"] {
        fs::remove_file(scene.tree().join(name)).ok();
        scene.put(name, "new\n");
    }
    fs::remove_file(scene.tree().join("linked")).unwrap();
    scene.end(run);
    let only = |names: &[&str]| UndoRequest {
        only: names.iter().map(|name| (*name).into()).collect(),
        ..UndoRequest::default()
    };
    scene.undo(run, &only(&["a/one", "c"])).unwrap();
    let texts = |scene: &Scene| ["a/one", "a/two", "b", "c", "linked"].map(|name| scene.text(name));
    assert_eq!(texts(&scene), ["old\n", "new\n", "new\n", "", ""]);
    assert!(matches!(scene.undo(run, &only(&["a/one"])), Err(CheckpointError::Unchanged { .. })));
    scene.undo(run, &only(&["linked"])).unwrap();
    let inode = |name: &str| fs::metadata(scene.tree().join(name)).unwrap().ino();
    assert_eq!((scene.text("linked"), inode("linked")), ("old\n".into(), inode("a/one")), "one file again");
    scene.undo(run, &only(&["a"])).unwrap();
    assert_eq!(texts(&scene), ["old\n", "old\n", "new\n", "", "old\n"]);
}

#[test]
fn what_is_written_while_an_undo_works_is_put_beside() {
    for at in 0..12 {
        let scene = Scene::new();
        scene.put("f", "old\n");
        let run = scene.take();
        scene.put("f", "by the run\n");
        scene.put("g", "by the run\n");
        scene.end(run);
        let (tree, mut count) = (scene.tree(), 0);
        let done = scene
            .checkpoints
            .undo(run, scene.root.as_fd(), &UndoRequest::default(), &mut || {
                if count == at {
                    for name in ["f", "g"] {
                        fs::write(tree.join("new"), "of an editor\n").unwrap();
                        fs::rename(tree.join("new"), tree.join(name)).unwrap();
                    }
                }
                count += 1;
                Ok(())
            })
            .unwrap();
        if count <= at {
            assert!(at > 3, "{at}: there are several pauses");
            break;
        }
        let all = fs::read_dir(&tree).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let edits = all.filter(|text| text == "of an editor\n").count();
        assert_eq!(edits, 2, "pause {at}: both edits are there: {:?}", done.applied);
    }
}

#[test]
fn a_tree_that_is_swapped_for_links_leads_an_undo_nowhere() {
    let scene = Scene::new();
    for at in 0..40 {
        scene.put(&format!("d/e/{at}"), "old\n");
    }
    let outside = scene.base.path().join("outside");
    fs::create_dir_all(outside.join("e")).unwrap();
    for at in 0..40 {
        fs::write(outside.join(format!("e/{at}")), "outside\n").unwrap();
    }
    let before = listing(&outside);
    let run = scene.take();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tree = scene.tree();
        let (swapper_tree, outside, is_over) = (tree.clone(), outside.clone(), &is_over);
        scope.spawn(move || {
            let tree = swapper_tree;
            symlink(&outside, tree.join("link")).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let (dir, link) = (tree.join("d"), tree.join("link"));
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &dir, rustix::fs::CWD, &link, flags).ok();
            }
        });
        for _ in 0..40 {
            // By a descriptor, so that the test itself follows no link.
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::DIRECTORY;
            if let Ok(dir) = rustix::fs::open(tree.join("d"), flags, rustix::fs::Mode::empty()) {
                for at in 0..40 {
                    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC;
                    if let Ok(file) = rustix::fs::openat(&dir, format!("e/{at}"), flags, rustix::fs::Mode::empty()) {
                        rustix::io::write(file, b"by the run\n").unwrap();
                    }
                }
            }
            // It may find that something keeps changing.
            scene.undo(run, &scene.whole(run)).ok();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(listing(&outside), before);
    // And it ends once no thread swaps any more.
    for _ in 0..3 {
        scene.undo(run, &UndoRequest { overwrites: true, ..UndoRequest::default() }).unwrap();
    }
    assert_eq!((scene.text("d/e/0"), scene.text("d/e/39")), ("old\n".into(), "old\n".into()));
    assert!(fs::read_dir(scene.tree()).unwrap().all(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name == "d" || name.contains(".kept-")
    }));
    assert_eq!(listing(&outside), before);
}

#[test]
fn each_changed_byte_of_a_record_is_found() {
    let scene = Scene::new();
    scene.put("f", "old\n");
    let run = scene.take();
    let path = scene.base.path().join(format!("state/checkpoints/runs/{run}"));
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        let error = scene.checkpoints.run(run).unwrap_err();
        assert_eq!(error.code(), "checkpoint_damaged", "byte {at}: {error}");
        assert_eq!(scene.checkpoints.runs().unwrap().1.len(), 1);
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(scene.checkpoints.run(run).unwrap().run, run);
}

#[test]
fn a_cleaning_keeps_what_a_record_reaches() {
    let scene = Scene::new();
    scene.put("f", "old\n");
    let (first, run) = (scene.take(), scene.take());
    scene.put("f", "by the run\n");
    scene.end(run);
    scene.checkpoints.forget(first).unwrap();
    assert_eq!(scene.checkpoints.clean(&mut |_, _| {}).unwrap().objects, 0);
    scene.undo(run, &scene.whole(run)).unwrap();
    assert_eq!(scene.text("f"), "old\n");
    scene.checkpoints.forget(run).unwrap();
    assert!(scene.checkpoints.clean(&mut |_, _| {}).unwrap().objects > 0);
}
