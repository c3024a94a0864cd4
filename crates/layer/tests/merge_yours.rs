//! Conflicts that are merged: only where git had the file as it was when the run began, and both versions stay.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, reopen, wait_for_tick, write};
use nexus_layer::{Layer, LayerMode, Rules, Yours, YoursError};
use nexus_model::ByteText;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];
const OLD: &str = "1\n2\n3\n4\n5\n6\n7\n";
const RUN: &str = "1\n2\n3\n4\n5\n6\nrun\n";
const MINE: &str = "mine\n2\n3\n4\n5\n6\n7\n";
const BOTH: &str = "mine\n2\n3\n4\n5\n6\nrun\n";

fn git(scene: &Scene, words: &[&str]) {
    let settings = ["-c", "safe.directory=*", "-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "gc.auto=0"];
    let output = Command::new("git").current_dir(scene.ws()).args(settings).args(words).output().unwrap();
    assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A workspace with these files in a commit of git, which has looked at them since.
fn committed(mode: LayerMode, files: &[Op]) -> Scene {
    let scene = Scene::new(mode, files);
    wait_for_tick(scene.dir.path());
    git(&scene, &["init", "-q"]);
    git(&scene, &["add", "."]);
    git(&scene, &["commit", "-q", "-m", "First"]);
    wait_for_tick(scene.dir.path());
    scene
}

/// Replaces a file as an editor does.
fn replace(scene: &Scene, name: &str, text: &str) {
    wait_for_tick(scene.dir.path());
    fs::write(scene.ws().join("new"), text).unwrap();
    fs::rename(scene.ws().join("new"), scene.ws().join(name)).unwrap();
}

/// A layer whose run was long enough for a look at all files.
fn surveyed(scene: &Scene, ops: &[Op]) -> Layer {
    let mut layer = scene.layer(ops);
    let mut survey = layer.survey_bases(&scene.workspace()).unwrap();
    while !survey.look_on() {}
    layer.set_bases(survey);
    layer
}

/// Tries to commit, which parks the layer for its conflict.
fn in_conflict(scene: &Scene, layer: &Layer) {
    let plain = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(plain.conflicts.len(), 1, "{:?}: {plain:?}", scene.mode);
}

fn merge(scene: &Scene, layer: &Layer) -> Result<Yours, YoursError> {
    layer.merge_yours(&scene.workspace(), &"f".into())
}

fn why(result: &Result<Yours, YoursError>) -> String {
    result.as_ref().unwrap_err().to_string()
}

fn text(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.ws().join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
}

fn has_copies(scene: &Scene) -> bool {
    let names = fs::read_dir(scene.ws()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.into_iter().any(|name| name.contains(".yours-") || name.contains(".theirs-"))
}

fn is_merged(scene: &Scene, layer: &Layer) {
    let yours = merge(scene, layer).unwrap();
    let copies = [yours.copy.clone().unwrap(), yours.merged().unwrap().copy.clone()];
    let done = layer.commit(&scene.workspace(), &Rules { theirs: vec![yours], ..Rules::default() }).unwrap();
    assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{:?}: {done:?}", scene.mode);
    assert_eq!(text(scene, "f"), BOTH, "{:?}", scene.mode);
    let kept = copies.map(|copy| fs::read_to_string(scene.ws().join(copy.as_path())).unwrap());
    assert_eq!(kept, [MINE, RUN], "{:?}", scene.mode);
    // Nothing of the run waits, which would take the merge back.
    assert!(!scene.path("layers/run").exists(), "{:?}", scene.mode);
}

#[test]
fn both_changes_come_and_both_versions_stay_beside() {
    for mode in MODES {
        for is_packed in [false, true] {
            let scene = committed(mode, &[write("f", OLD), write("sub/g", "x")]);
            if is_packed {
                // Two versions that are alike make a delta of one of them.
                let large: String = (0..400).map(|line| format!("{line} {OLD}")).collect::<Vec<_>>().concat();
                for add in ["", "more"] {
                    fs::write(scene.ws().join("large"), format!("{large}{add}")).unwrap();
                    git(&scene, &["add", "large"]);
                    git(&scene, &["commit", "-q", "-m", "Large"]);
                }
                git(&scene, &["gc", "-q"]);
                wait_for_tick(scene.dir.path());
            }
            let layer = surveyed(&scene, &[write("f", RUN)]);
            replace(&scene, "f", MINE);
            in_conflict(&scene, &layer);
            drop(layer);
            is_merged(&scene, &reopen(&scene.path("layers")));
        }
    }
}

#[test]
fn a_file_that_changes_after_its_run_was_parked_is_merged() {
    for mode in MODES {
        let scene = committed(mode, &[write("f", OLD)]);
        let layer = scene.layer(&[write("f", RUN)]);
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        replace(&scene, "f", MINE);
        let layer = reopen(&scene.path("layers"));
        in_conflict(&scene, &layer);
        is_merged(&scene, &layer);
    }
}

#[test]
fn a_file_that_git_did_not_have_as_it_was_is_not_merged() {
    for mode in MODES {
        let uncommitted = |scene: &Scene| fs::write(scene.ws().join("f"), "0\n1\n2\n3\n4\n5\n6\n7\n").unwrap();
        // A change that was taken into no index, and one of the same size that was given the old time.
        let same_size = |scene: &Scene| {
            let before = fs::metadata(scene.ws().join("f")).unwrap().modified().unwrap();
            wait_for_tick(scene.dir.path());
            fs::write(scene.ws().join("f"), OLD.replace('3', "x")).unwrap();
            fs::File::open(scene.ws().join("f")).unwrap().set_modified(before).unwrap();
        };
        let no_git = |scene: &Scene| fs::remove_dir_all(scene.ws().join(".git")).unwrap();
        let changes: [&dyn Fn(&Scene); 3] = [&uncommitted, &same_size, &no_git];
        for (number, change) in changes.iter().enumerate() {
            let scene = committed(mode, &[write("f", OLD)]);
            change(&scene);
            wait_for_tick(scene.dir.path());
            let mut layer = scene.layer(&[write("f", RUN)]);
            if let Some(mut survey) = layer.survey_bases(&scene.workspace()) {
                while !survey.look_on() {}
                layer.set_bases(survey);
            }
            replace(&scene, "f", MINE);
            in_conflict(&scene, &layer);
            let merged = merge(&scene, &layer);
            assert!(why(&merged).contains("git did not have the file as it was"), "{mode:?} {number}: {merged:?}");
            assert!(!has_copies(&scene) && text(&scene, "f") == MINE, "{mode:?} {number}");
        }
    }
}

#[test]
fn a_file_that_changed_before_it_was_looked_at_is_not_merged() {
    for mode in MODES {
        let scene = committed(mode, &[write("f", OLD)]);
        let layer = scene.layer(&[write("f", RUN)]);
        replace(&scene, "f", MINE);
        in_conflict(&scene, &layer);
        assert!(why(&merge(&scene, &layer)).contains("git did not have the file as it was"), "{mode:?}");
        // Nor by an index that git wrote after the run had started.
        let scene = committed(mode, &[write("f", OLD)]);
        let layer = scene.layer(&[write("f", RUN)]);
        replace(&scene, "f", "later\n");
        wait_for_tick(scene.dir.path());
        git(&scene, &["commit", "-q", "-a", "-m", "Later"]);
        in_conflict(&scene, &layer);
        assert!(why(&merge(&scene, &layer)).contains("git did not have the file as it was"), "{mode:?}");
    }
}

#[test]
fn what_cannot_be_merged_is_named_and_leaves_nothing() {
    for mode in MODES {
        let overlap = |scene: &Scene| replace(scene, "f", &OLD.replace('7', "mine"));
        let binary = |scene: &Scene| replace(scene, "f", "mine\0\n");
        let removed = |scene: &Scene| {
            wait_for_tick(scene.dir.path());
            fs::remove_file(scene.ws().join("f")).unwrap();
        };
        let other_mode = |scene: &Scene| {
            replace(scene, "f", MINE);
            fs::set_permissions(scene.ws().join("f"), fs::Permissions::from_mode(0o755)).unwrap();
        };
        let other_attribute = |scene: &Scene| {
            replace(scene, "f", MINE);
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(scene.ws().join("f"), "user.mine", b"1", flags).unwrap();
        };
        let without_objects = |scene: &Scene| {
            replace(scene, "f", MINE);
            fs::remove_dir_all(scene.ws().join(".git/objects")).unwrap();
        };
        // Another object of the same length under the name of the base.
        let other_object = |scene: &Scene| {
            replace(scene, "f", MINE);
            replace(scene, "other", &OLD.replace('7', "8"));
            git(scene, &["add", "other"]);
            let script = "at() { git rev-parse \"$1\" | sed 's,^..,.git/objects/&/,'; }; cp --remove-destination \
                          \"$(at :other)\" \"$(at :f)\"";
            let mut copy = Command::new("sh");
            copy.current_dir(scene.ws()).args(["-c", script]);
            copy.envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")]);
            assert!(copy.status().unwrap().success());
        };
        type Case<'a> = (&'a dyn Fn(&Scene), &'a str);
        let cases: [Case<'_>; 7] = [
            (&overlap, "both versions changed the same lines, in 1 place"),
            (&binary, "it is not a text"),
            (&removed, "you removed it"),
            (&other_mode, "the two versions have other modes"),
            (&other_attribute, "the two versions have other extended attributes"),
            (&without_objects, "git has no longer what the file was"),
            (&other_object, "git has no longer what the file was"),
        ];
        for (change, wanted) in cases {
            let scene = committed(mode, &[write("f", OLD)]);
            let layer = surveyed(&scene, &[write("f", RUN)]);
            change(&scene);
            in_conflict(&scene, &layer);
            let merged = merge(&scene, &layer);
            assert!(why(&merged).contains(wanted), "{mode:?} {wanted}: {merged:?}");
            assert!(!has_copies(&scene), "{mode:?} {wanted}");
        }
        // The run's side.
        for (op, wanted) in [
            (Op::Remove(b("f")), "the run left no file there"),
            (Op::Link(b("f"), b("g")), "the run gave the file several names"),
        ] {
            let scene = committed(mode, &[write("f", OLD)]);
            let layer = surveyed(&scene, &[Op::Append(b("f"), "run\n".into()), op]);
            replace(&scene, "f", MINE);
            layer.commit(&scene.workspace(), &Rules::default()).unwrap();
            let merged = merge(&scene, &layer);
            assert!(why(&merged).contains(wanted), "{mode:?} {wanted}: {merged:?}");
            assert!(!has_copies(&scene), "{mode:?} {wanted}");
        }
    }
}

/// A worktree whose repository is elsewhere, and a directory below the top of one.
#[test]
fn a_repository_that_is_elsewhere_is_named() {
    for mode in MODES {
        for (dot_git, wanted) in [(Some("gitdir: ../elsewhere"), "is elsewhere"), (None, "no repository at the top")] {
            let scene = committed(mode, &[write("f", OLD)]);
            fs::remove_dir_all(scene.ws().join(".git")).unwrap();
            if let Some(text) = dot_git {
                fs::write(scene.ws().join(".git"), text).unwrap();
            }
            wait_for_tick(scene.dir.path());
            let layer = scene.layer(&[write("f", RUN)]);
            replace(&scene, "f", MINE);
            in_conflict(&scene, &layer);
            assert!(why(&merge(&scene, &layer)).contains(wanted), "{mode:?}: {:?}", merge(&scene, &layer));
        }
    }
}

#[test]
fn a_copy_that_a_process_wrote_to_stays_when_the_merge_is_forgotten() {
    for mode in MODES {
        for of_run in [true, false] {
            let scene = committed(mode, &[write("f", OLD)]);
            let layer = surveyed(&scene, &[write("f", RUN)]);
            replace(&scene, "f", MINE);
            in_conflict(&scene, &layer);
            let yours = merge(&scene, &layer).unwrap();
            let all = [yours.copy.clone().unwrap(), yours.merged().unwrap().copy.clone()];
            let [mine, theirs] = all.map(|copy| scene.ws().join(copy.as_path()));
            let (written, other) = if of_run { (theirs, mine) } else { (mine, theirs) };
            wait_for_tick(scene.dir.path());
            fs::write(&written, "precious").unwrap();
            layer.forget_yours(&scene.workspace(), &yours).unwrap();
            assert_eq!(fs::read_to_string(&written).unwrap(), "precious", "{mode:?} {of_run}");
            assert!(!other.exists(), "{mode:?} {of_run}");
        }
    }
}

#[test]
fn a_file_whose_line_ends_git_changed_is_not_merged() {
    for mode in MODES {
        let scene = Scene::new(mode, &[write("f", &OLD.replace('\n', "\r\n"))]);
        wait_for_tick(scene.dir.path());
        git(&scene, &["init", "-q"]);
        git(&scene, &["-c", "core.autocrlf=true", "add", "."]);
        wait_for_tick(scene.dir.path());
        let layer = surveyed(&scene, &[write("f", &RUN.replace('\n', "\r\n"))]);
        replace(&scene, "f", &MINE.replace('\n', "\r\n"));
        in_conflict(&scene, &layer);
        assert!(why(&merge(&scene, &layer)).contains("git has no longer what the file was"), "{mode:?}");
    }
}

#[test]
fn a_version_that_changes_after_the_merge_stays() {
    for mode in MODES {
        let scene = committed(mode, &[write("f", OLD)]);
        let layer = surveyed(&scene, &[write("f", RUN)]);
        replace(&scene, "f", MINE);
        in_conflict(&scene, &layer);
        let yours = merge(&scene, &layer).unwrap();
        replace(&scene, "f", "mine again\n");
        let rules = Rules { theirs: vec![yours.clone()], ..Rules::default() };
        let done = layer.commit(&scene.workspace(), &rules).unwrap();
        assert_eq!((done.conflicts.len(), text(&scene, "f")), (1, "mine again\n".into()), "{mode:?}");
        layer.forget_yours(&scene.workspace(), &yours).unwrap();
        assert!(!has_copies(&scene), "{mode:?}");
        // A file of the user at the name of a copy is never written over.
        let theirs = yours.merged().unwrap().copy.clone();
        fs::write(scene.ws().join(theirs.as_path()), "precious").unwrap();
        replace(&scene, "f", MINE);
        let at = |copy: &ByteText| scene.ws().join(copy.as_path());
        let second = merge(&scene, &layer).unwrap();
        let beside = second.merged().unwrap().copy.clone();
        assert_eq!(
            (text(&scene, beside.as_path().to_str().unwrap()), beside != theirs),
            (RUN.into(), true),
            "{mode:?}"
        );
        // What is written to a copy before it is forgotten stays.
        let kept = second.copy.clone().unwrap();
        fs::write(at(&kept), "mine, written to the copy").unwrap();
        fs::write(at(&beside), "theirs, written to the copy").unwrap();
        layer.forget_yours(&scene.workspace(), &second).unwrap();
        assert_eq!(fs::read_to_string(at(&kept)).unwrap(), "mine, written to the copy", "{mode:?}");
        assert_eq!(fs::read_to_string(at(&beside)).unwrap(), "theirs, written to the copy", "{mode:?}");
        // That of an accept that was killed counts as made, and a part of one does not stop the next.
        fs::write(at(&beside), RUN).unwrap();
        assert_eq!(merge(&scene, &layer).unwrap().merged().unwrap().copy, beside, "{mode:?}");
        fs::write(at(&beside), &RUN[..4]).unwrap();
        let third = merge(&scene, &layer).unwrap().merged().unwrap().copy.clone();
        assert_eq!(fs::read_to_string(at(&third)).unwrap(), RUN, "{mode:?}");
        // The names end, and nothing is written over.
        for number in 2..=9 {
            fs::write(scene.ws().join(format!("{}-{number}", theirs.as_path().display())), "precious").unwrap();
        }
        assert!(why(&merge(&scene, &layer)).contains("other files have the names"), "{mode:?}");
        assert_eq!(fs::read_to_string(at(&theirs)).unwrap(), "precious", "{mode:?}");
    }
}
