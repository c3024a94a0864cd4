//! Accepting a change part by part.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, wait_for_tick};
use nexus_layer::review::diff::{AcceptError, Choice, Content, DiffOptions, FileDiff};
use nexus_layer::{Abandoned, CommitState, Committed, Layer, LayerMode, Rules, abandon};
use nexus_model::ByteText;

/// Thirty numbered lines, some of them replaced.
fn text(changed: &[(usize, &str)]) -> String {
    let line =
        |at: usize| changed.iter().find(|(line, _)| *line == at).map_or(at.to_string(), |(_, new)| (*new).into());
    (0..30).map(|at| line(at) + "\n").collect()
}

fn file(path: &str, text: String) -> Op {
    Op::Write(b(path), text)
}

/// A workspace with `d/f`, in which a run changed the lines 2, 15 and 28, and another file.
fn scene() -> Scene {
    let base = [Op::Mkdir(b("d")), file("d/f", text(&[])), file("other", "1\n".into())];
    let scene = Scene::new(LayerMode::Root, &base);
    let ops = [file("d/f", text(&[(2, "two"), (15, "fifteen"), (28, "last")])), file("other", "2\n".into())];
    let layer = scene.layer(&ops);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    scene
}

fn open(scene: &Scene) -> Layer {
    Layer::open(&scene.path("layers"), "run").unwrap()
}

fn find(scene: &Scene, path: &str) -> Option<FileDiff> {
    let diff = open(scene).diff(&scene.workspace(), &Rules::default(), &DiffOptions::default()).unwrap();
    diff.files.into_iter().find(|file| file.path.0 == path.as_bytes())
}

fn count(scene: &Scene, path: &str) -> usize {
    match find(scene, path).map(|file| file.content) {
        Some(Content::Text { hunks }) => hunks.len(),
        _ => 0,
    }
}

fn accept_by(
    scene: &Scene,
    rules: &Rules,
    path: &str,
    hunks: &[usize],
    seen: Option<&str>,
) -> Result<Committed, AcceptError> {
    let (path, options) = (ByteText::from(path), DiffOptions::default());
    let choice = Choice { path: &path, hunks, seen, options: &options };
    open(scene).accept_hunks(&scene.workspace(), rules, &choice)
}

fn accept(scene: &Scene, path: &str, hunks: &[usize]) -> Result<Committed, AcceptError> {
    accept_by(scene, &Rules::default(), path, hunks, None)
}

fn read(scene: &Scene, path: &str) -> String {
    std::fs::read_to_string(scene.ws().join(path)).unwrap()
}

fn names(changes: &[nexus_layer::Change]) -> Vec<String> {
    changes.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

#[test]
fn an_accepted_hunk_is_in_the_workspace_and_the_others_wait() {
    let scene = scene();
    assert_eq!(count(&scene, "d/f"), 3);
    let result = accept(&scene, "d/f", &[1]).unwrap();
    assert_eq!((result.state, result.conflicts.len()), (CommitState::Committed, 0));
    assert_eq!(names(&result.changes.changes), ["d/f"]);
    assert_eq!(names(&result.parked), ["d/f", "other"]);
    assert_eq!(read(&scene, "d/f"), text(&[(15, "fifteen")]));
    assert_eq!(read(&scene, "other"), "1\n");
    // What is left is the rest, and it is not a conflict with what was just written.
    assert_eq!(count(&scene, "d/f"), 2);
    let result = accept(&scene, "d/f", &[1]).unwrap();
    assert_eq!((result.state, result.conflicts.len()), (CommitState::Committed, 0));
    assert_eq!(read(&scene, "d/f"), text(&[(15, "fifteen"), (28, "last")]));
    let result = accept(&scene, "d/f", &[0]).unwrap();
    assert_eq!((result.state, names(&result.parked)), (CommitState::Committed, vec!["other".to_owned()]));
    assert_eq!(read(&scene, "d/f"), text(&[(2, "two"), (15, "fifteen"), (28, "last")]));
    assert!(find(&scene, "d/f").is_none());
    // Then the rest of the layer, which is gone afterwards.
    let result = open(&scene).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0));
    assert_eq!(scene.found(), scene.wanted());
    assert!(!scene.path("layers/run").exists());
}

#[test]
fn after_some_hunks_the_layer_commits_or_is_discarded_as_ever() {
    let scene = scene();
    accept(&scene, "d/f", &[0, 2]).unwrap();
    let result = open(&scene).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0), "{result:?}");
    assert_eq!(scene.found(), scene.wanted());

    let scene = self::scene();
    accept(&scene, "d/f", &[0, 2]).unwrap();
    let kept = open(&scene).discard().unwrap();
    assert!(kept.is_none(), "the file is in the workspace, so that the layer has no only copy: {kept:?}");
    assert_eq!(read(&scene, "d/f"), text(&[(2, "two"), (28, "last")]));
}

#[test]
fn a_change_outside_is_a_conflict_before_and_after_a_part_was_accepted() {
    for accept_first in [false, true] {
        let scene = scene();
        if accept_first {
            accept(&scene, "d/f", &[1]).unwrap();
        }
        wait_for_tick(&scene.path("layers"));
        let outside = read(&scene, "d/f") + "outside\n";
        std::fs::write(scene.ws().join("d/f"), &outside).unwrap();
        let result = accept(&scene, "d/f", &[0]).unwrap();
        assert_eq!((result.state, result.conflicts.len()), (CommitState::Parked, 1), "{result:?}");
        assert_eq!(names(&result.parked), ["d/f", "other"]);
        assert_eq!(read(&scene, "d/f"), outside);
    }
}

#[test]
fn only_what_was_reviewed_is_accepted() {
    let scene = scene();
    let seen = find(&scene, "d/f").unwrap().digest();
    accept_by(&scene, &Rules::default(), "d/f", &[0], Some(&seen)).unwrap();
    // Hunk 1 was line 15 in the review; now it would be line 28.
    let second = accept_by(&scene, &Rules::default(), "d/f", &[1], Some(&seen));
    assert!(matches!(second, Err(AcceptError::Stale { .. })), "{second:?}");
    assert_eq!(read(&scene, "d/f"), text(&[(2, "two")]));
}

#[test]
fn a_number_that_does_not_exist_or_no_number_changes_nothing() {
    let scene = scene();
    for hunks in [&[3][..], &[0, 1, 2, 3], &[usize::MAX]] {
        assert!(matches!(accept(&scene, "d/f", hunks), Err(AcceptError::Hunks { .. })), "{hunks:?}");
    }
    assert_eq!(accept(&scene, "d/f", &[]).unwrap().state, CommitState::Parked);
    assert!(matches!(accept(&scene, "missing", &[0]), Err(AcceptError::Stale { .. })));
    assert_eq!(read(&scene, "d/f"), text(&[]));
    assert_eq!(count(&scene, "d/f"), 3);
}

/// A scene whose base and operations are given, parked.
fn parked(base: &[Op], ops: &[Op]) -> Scene {
    let scene = Scene::new(LayerMode::Root, base);
    scene.layer(ops).park(&scene.workspace(), &Rules::default()).unwrap();
    scene
}

#[test]
fn a_protected_file_needs_its_accept_also_for_a_part_and_gets_no_more_than_the_part() {
    let new = text(&[(2, "two"), (28, "last")]);
    for (path, dirs) in
        [(".envrc", &[][..]), (".git/hooks/pre-commit", &[".git", ".git/hooks"]), (".vscode/x", &[".vscode"])]
    {
        let mut base: Vec<Op> = dirs.iter().map(|dir| Op::Mkdir(b(dir))).collect();
        base.push(file(path, text(&[])));
        base.push(file("nexus.yaml", "a\n".into()));
        let scene = parked(&base, &[file(path, new.clone()), file("nexus.yaml", "b\n".into())]);
        assert!(matches!(accept(&scene, path, &[0]), Err(AcceptError::Protected { .. })), "{path}");
        assert!(matches!(accept(&scene, path, &[0, 1]), Err(AcceptError::Protected { .. })), "{path}");
        assert_eq!(read(&scene, path), text(&[]));
        let rules = Rules { accept_protected: true, ..Rules::default() };
        let result = accept_by(&scene, &rules, path, &[0], None).unwrap();
        assert_eq!(result.state, CommitState::Committed);
        assert_eq!(read(&scene, path), text(&[(2, "two")]), "{path}");
        assert!(result.parked.iter().all(|change| change.protected.is_some()), "{result:?}");
        assert_eq!(read(&scene, "nexus.yaml"), "a\n");
        // What waits is still held back.
        let rest = open(&scene).commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(names(&rest.parked), [path, "nexus.yaml"], "{rest:?}");
        assert!(rest.parked.iter().all(|change| change.protected.is_some()), "{rest:?}");
    }
}

#[test]
fn what_cannot_be_split_is_refused_in_part_and_accepted_whole() {
    let (old, new) = (text(&[]), text(&[(2, "two"), (28, "last")]));
    let cases: [(&[Op], &[Op], &str, usize); 4] = [
        // Several names: a write would part them.
        (&[file("f", old.clone()), Op::Link(b("f"), b("g"))], &[file("f", new.clone())], "f", 0),
        (&[file("a", old.clone())], &[Op::Rename(b("a"), b("f")), file("f", new.clone())], "f", 0),
        (
            &[Op::Mkdir(b("a")), file("a/f", old.clone())],
            &[Op::Rename(b("a"), b("b")), file("b/f", new.clone())],
            "b/f",
            0,
        ),
        (&[file("f", old.clone())], &[file("f", new.clone()), Op::Chmod(b("f"), 0o4755)], "f", 0),
    ];
    for (number, (base, ops, path, hunk)) in cases.into_iter().enumerate() {
        let scene = parked(base, ops);
        let before = scene.found();
        let rules = Rules { accept_protected: true, ..Rules::default() };
        let part = accept_by(&scene, &rules, path, &[hunk], None);
        assert!(matches!(part, Err(AcceptError::Whole { .. })), "case {number}: {part:?}");
        assert_eq!(scene.found(), before);
    }
    let scene = parked(&[], &[file("new", new.clone()), file("n2", "x\n".into())]);
    assert_eq!(accept(&scene, "new", &[0]).unwrap().state, CommitState::Committed);
    assert_eq!(read(&scene, "new"), new);
    assert!(!scene.ws().join("n2").exists());
}

#[test]
fn a_parked_change_of_the_directory_is_no_conflict_with_our_own_write_in_it() {
    let base = [Op::Mkdir(b("d")), file("d/f", text(&[]))];
    let scene = parked(&base, &[file("d/f", text(&[(2, "two"), (28, "last")])), Op::Chmod(b("d"), 0o700)]);
    accept(&scene, "d/f", &[0]).unwrap();
    let rest = open(&scene).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((rest.conflicts.len(), rest.parked.len()), (0, 0), "{rest:?}");
    assert_eq!(scene.found(), scene.wanted());
}

#[test]
fn other_changes_of_the_layer_survive_a_part_that_was_accepted() {
    let base = [
        file("f", text(&[])),
        Op::Mkdir(b("a")),
        file("a/x", "1\n".into()),
        file("gone", "1\n".into()),
        file("old", "1\n".into()),
    ];
    let ops = [
        file("f", text(&[(2, "two"), (28, "last")])),
        Op::Rename(b("a"), b("b")),
        Op::Remove(b("gone")),
        Op::Rename(b("old"), b("new")),
        Op::Mkdir(b("n")),
        file("n/x", "1\n".into()),
        Op::Link(b("n/x"), b("n/y")),
    ];
    let scene = parked(&base, &ops);
    accept(&scene, "f", &[1]).unwrap();
    assert_eq!(read(&scene, "f"), text(&[(28, "last")]));
    assert!(scene.ws().join("a/x").exists() && scene.ws().join("gone").exists() && !scene.ws().join("n").exists());
    let rest = open(&scene).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((rest.conflicts.len(), rest.parked.len()), (0, 0), "{rest:?}");
    assert_eq!(scene.found(), scene.wanted());
}

/// Accepts the middle hunk as a child that dies where its environment says.
#[cfg(feature = "inject")]
#[test]
#[ignore = "the child of the next test"]
fn child_accepts() {
    let scene = std::path::PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let mut layer = Layer::open(&scene.join("layers"), "run").unwrap();
    layer.set_faults(nexus_layer::Faults::from_env());
    let (path, options) = (ByteText::from("d/f"), DiffOptions::default());
    let choice = Choice { path: &path, hunks: &[1], seen: None, options: &options };
    let workspace = nexus_layer::Workspace::open(&scene.join("ws")).unwrap();
    layer.accept_hunks(&workspace, &Rules::default(), &choice).unwrap();
}

#[cfg(feature = "inject")]
#[test]
fn after_a_kill_at_any_step_the_hunk_is_there_or_not_and_the_rest_still_waits() {
    use nexus_layer::{Recovered, recover};
    let (old, part) = (text(&[]), text(&[(15, "fifteen")]));
    let mut seen = Vec::new();
    for nth in 1.. {
        assert!(nth < 200, "the accept never ends");
        let scene = scene();
        let order = scene.dir.path().to_str().unwrap().to_owned();
        let at = nth.to_string();
        let survived = scene.child("child_accepts", &order, &[("NEXUS_LAYER_ABORT_AT", &at)], false).is_ok();
        let recovered = recover(&scene.path("layers"), "run", &scene.workspace()).unwrap();
        let found = read(&scene, "d/f");
        let forward = match &recovered {
            // Before the decision, or after everything was done.
            Recovered::Parked => {
                assert!(found == old || found == part, "{nth}: {found}");
                false
            }
            Recovered::RolledForward(done) => {
                assert_eq!((&found, done.conflicts.len()), (&part, 0), "{nth}");
                true
            }
            other => panic!("{nth}: {other:?}"),
        };
        assert_eq!(count(&scene, "d/f"), if found == part { 2 } else { 3 }, "{nth}");
        let rest = open(&scene).commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!((rest.conflicts.len(), rest.parked.len()), (0, 0), "{nth}: {rest:?}");
        assert_eq!(scene.found(), scene.wanted(), "{nth}");
        seen.push((forward, found == part));
        if survived {
            break;
        }
    }
    for wanted in [(false, false), (true, true), (false, true)] {
        assert!(seen.contains(&wanted), "{wanted:?} never happened: {seen:?}");
    }
}

/// An ordinary user's mark does not tell an edit from a file that was renamed over another one and edited.
#[test]
fn a_part_of_what_was_renamed_over_a_file_leaves_it_an_only_copy() {
    let base = [file("a", text(&[(2, "only in a"), (28, "end")])), file("b", text(&[]))];
    let scene = Scene::new(LayerMode::User, &base);
    let layer = scene.layer(&[Op::Rename(b("a"), b("b")), Op::SetXattr(b("b"), "v".into())]);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    accept(&scene, "b", &[1]).unwrap();
    let chosen = Rules { only: Some(vec!["a".into()]), ..Rules::default() };
    open(&scene).commit(&scene.workspace(), &chosen).unwrap();
    let end = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
    let Abandoned::Removed(Some(left)) = end else { panic!("nothing is named: {end:?}") };
    let kept = std::fs::read_to_string(left.at.as_path().join("upper/b")).unwrap();
    assert!(kept.contains("only in a"), "{left:?}");
}
