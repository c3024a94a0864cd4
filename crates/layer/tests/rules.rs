//! Rules of a commit: changes that it lets through, holds back and refuses, through real overlays of root.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename, run_op, wait_for_tick};
use nexus_layer::ChangeKind::{Added, Deleted, Mode, Modified, Renamed, Type};
use nexus_layer::entries::changes::Outside;
use nexus_layer::{CommitState, Committed, Layer, LayerMode, Rules};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

fn dir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

fn file(path: &str, text: &str) -> Op {
    Op::Write(b(path), text.into())
}

fn commit(scene: &Scene, layer: &Layer) -> Committed {
    layer.commit(&scene.workspace(), &Rules::default()).unwrap()
}

fn run(base: &[Op], ops: &[Op]) -> (Scene, Committed) {
    let scene = Scene::new(LayerMode::Root, base);
    let layer = scene.layer(ops);
    let result = commit(&scene, &layer);
    (scene, result)
}

fn parked(result: &Committed) -> Vec<String> {
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

fn accept(scene: &Scene) -> Committed {
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    layer.commit(&scene.workspace(), &Rules { accept_protected: true, ..Rules::default() }).unwrap()
}

fn read(scene: &Scene, path: &str) -> Option<String> {
    std::fs::read_to_string(scene.ws().join(path)).ok()
}

#[test]
fn an_empty_layer_disappears_without_a_journal() {
    let (scene, result) = run(&[file("f", "x")], &[]);
    assert_eq!(result.state, CommitState::Nothing);
    assert!(!scene.path("layers/run").exists());
}

#[test]
fn a_layer_that_changed_nothing_commits_nothing() {
    let (scene, result) = run(
        &[file("f", "x"), dir("d")],
        &[Op::Chmod(b("d"), 0o700), Op::Chmod(b("d"), 0o755), file("n", ""), Op::Remove(b("n"))],
    );
    assert_eq!((result.state, result.changes.changes.len()), (CommitState::Nothing, 0));
    assert!(!scene.path("layers/run").exists());
}

#[test]
fn the_report_names_each_kind_of_change() {
    let base = [
        file("mod", "x"),
        file("mode", "x"),
        file("type", "x"),
        dir("ren"),
        file("ren/in", "x"),
        dir("del"),
        file("del/x", ""),
    ];
    let ops = [
        Op::Append(b("mod"), "y".into()),
        Op::Chmod(b("mode"), 0o755),
        Op::Remove(b("type")),
        Op::Symlink(b("mod"), b("type")),
        rename("ren", "moved"),
        Op::RemoveTree(b("del")),
        file("new", "12345"),
    ];
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&ops);
    let set = layer.changes(&scene.workspace(), &Rules::default()).unwrap();
    let found: Vec<_> = set
        .changes
        .iter()
        .map(|one| (one.path.as_path().to_str().unwrap(), one.kind.clone(), one.new_executable))
        .collect();
    let was = nexus_layer::meta::EntryType::File;
    let wanted = [
        ("del", Deleted, false),
        ("mod", Modified, false),
        ("mode", Mode, true),
        ("moved", Renamed { from: "ren".into() }, false),
        ("new", Added, false),
        ("type", Type { was }, false),
    ];
    assert_eq!(found, wanted);
    assert_eq!(set.counts(), (1, 4, 1));
    assert_eq!(set.changes[4].size, 5);
}

#[test]
fn protected_names_park_and_their_harmless_neighbours_commit() {
    for (bad, good) in [
        (vec![file("nexus.yaml", "x")], vec![file("nexus.yml", "x")]),
        (vec![dir(".vscode"), file(".vscode/tasks.json", "x")], vec![dir("vscode"), file("vscode/tasks.json", "x")]),
        (vec![dir(".VsCode")], vec![dir(".vsx")]),
        (vec![Op::Symlink(b("x"), b(".claude"))], vec![Op::Symlink(b("claude"), b("x"))]),
        (vec![Op::Symlink(b("evil"), b(".config"))], vec![dir(".config"), file(".config/other", "x")]),
        (vec![Op::Append(b("sub/.envrc"), "x".into())], vec![Op::Append(b("sub/env"), "x".into())]),
        (vec![Op::Remove(b("sub/.envrc"))], vec![Op::Remove(b("sub/env"))]),
        (vec![Op::RemoveTree(b("sub"))], vec![Op::RemoveTree(b("harmless"))]),
        (vec![rename("sub", "sub2")], vec![rename("harmless", "harmless2")]),
        (vec![rename("harmless", ".codex")], vec![rename("harmless", "codex")]),
        (vec![rename("sub/.envrc", "x")], vec![rename("sub/env", "x")]),
        (
            vec![Op::Link(b("sub/.envrc"), b("alias")), Op::Append(b("alias"), "evil".into())],
            vec![Op::Link(b("sub/env"), b("alias"))],
        ),
    ] {
        let base =
            [dir("sub"), file("sub/.envrc", "safe"), file("sub/env", "safe"), dir("harmless"), file("harmless/x", "x")];
        let (scene, result) = run(&base, &bad);
        assert!(
            !result.parked.is_empty() && result.parked.iter().any(|one| one.protected.is_some()),
            "{bad:?}: {result:?}"
        );
        assert_eq!(read(&scene, "sub/.envrc").as_deref(), Some("safe"), "{bad:?}");
        assert!(!scene.ws().join(".codex").exists() && std::fs::symlink_metadata(scene.ws().join(".claude")).is_err());
        assert!(std::fs::symlink_metadata(scene.ws().join(".config")).is_err());
        // What was parked is complete: accepting it gives what the run saw.
        let accepted = accept(&scene);
        assert_eq!(accepted.conflicts, [], "{bad:?}");
        assert_eq!(names_of(&scene.ws()), names_of(&scene.path("plain")), "{bad:?}");

        let (scene, result) = run(&base, &good);
        assert_eq!(parked(&result), Vec::<String>::new(), "{good:?}");
        assert_eq!(scene.found(), scene.wanted(), "{good:?}");
    }
}

fn names_of(root: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    common::snapshot(root, false).into_iter().map(|(name, entry)| (name, entry.2)).collect()
}

/// F04 within the workspace.
#[test]
fn a_second_run_cannot_write_a_hook_through_a_link_made_by_the_first() {
    let base = [dir(".git"), dir(".git/hooks"), file(".git/hooks/pre-commit", "safe")];
    let (scene, _) = run(&base, &[Op::Link(b(".git/hooks/pre-commit"), b("alias"))]);
    Layer::open(&scene.path("layers"), "run").unwrap().discard().unwrap();
    assert_eq!(read(&scene, "alias").as_deref(), Some("safe"));
    wait_for_tick(&scene.ws());
    let layer = scene.layer(&[Op::Append(b("alias"), "evil".into())]);
    assert_eq!(commit(&scene, &layer).parked, []);
    assert_eq!(read(&scene, "alias").as_deref(), Some("safeevil"));
    assert_eq!(read(&scene, ".git/hooks/pre-commit").as_deref(), Some("safe"));
}

#[test]
fn a_new_repository_commits_without_its_hooks_and_dangerous_settings() {
    let evil = "[core]\n\tbare = false\n\tfsmonitor = ./evil\n";
    let ops = [
        dir("repo"),
        dir("repo/.git"),
        dir("repo/.git/hooks"),
        dir("repo/.git/objects"),
        dir("repo/.git/refs"),
        file("repo/.git/HEAD", "ref: refs/heads/x"),
        file("repo/.git/config", evil),
        file("repo/.git/hooks/pre-commit", "evil"),
        file("repo/file", "x"),
    ];
    let (scene, result) = run(&[], &ops);
    assert_eq!(parked(&result), ["repo/.git/config", "repo/.git/hooks/pre-commit"]);
    assert_eq!(read(&scene, "repo/.git/config").unwrap(), "[core]\n\tbare = false\n\t\n");
    assert_eq!(read(&scene, "repo/.git/HEAD").unwrap(), "ref: refs/heads/x");
    assert!(scene.ws().join("repo/.git/hooks").is_dir());
    assert!(!scene.ws().join("repo/.git/hooks/pre-commit").exists());
    let parked_now =
        Layer::open(&scene.path("layers"), "run").unwrap().changes(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(parked_now.changes.len(), 2, "{parked_now:?}");
    assert_eq!(accept(&scene).conflicts, []);
    assert_eq!(scene.found(), scene.wanted());
}

#[test]
fn a_repository_made_by_git_itself_commits_whole() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
    // `git init` writes the same files through an overlay; a new directory needs no marks.
    let made = std::process::Command::new("git").args(["init", "-q"]).arg(layer.upper().join("r")).status().unwrap();
    assert!(made.success());
    let result = commit(&scene, &layer);
    assert_eq!(parked(&result), Vec::<String>::new());
    assert!(scene.ws().join("r/.git/hooks").is_dir() && scene.ws().join("r/.git/config").is_file());
}

#[test]
fn an_existing_repository_keeps_its_hooks_and_dangerous_settings() {
    let config = "[core]\n\tbare = false\n";
    let base = [
        dir(".git"),
        dir(".git/hooks"),
        file(".git/hooks/post-merge", "safe"),
        file(".git/config", config),
        dir(".git/refs"),
    ];
    for (ops, holds) in [
        (vec![Op::Append(b(".git/config"), "[user]\n\tname = x\n".into())], false),
        (vec![Op::Append(b(".git/config"), "[remote \"o\"]\n\turl = h:x\n".into())], true),
        (vec![Op::Append(b(".git/config"), "[alias]\n\tx = !evil\n".into())], true),
        (vec![file(".git/hooks/pre-commit", "evil")], true),
        (vec![Op::Append(b(".git/hooks/post-merge"), "evil".into())], true),
        (vec![Op::Chmod(b(".git/hooks/post-merge"), 0o755)], true),
        (vec![Op::Remove(b(".git/hooks/post-merge"))], true),
        (vec![Op::RemoveTree(b(".git/hooks"))], true),
        (vec![Op::RemoveTree(b(".git"))], true),
        (vec![rename(".git", "git"), file("git/config", "[core]\nfsmonitor=x\n"), rename("git", ".git")], true),
        (vec![rename(".git/hooks", ".git/h"), Op::Symlink(b("../evil"), b(".git/hooks"))], true),
        (vec![Op::RemoveTree(b(".git")), Op::Symlink(b("evil"), b(".git"))], true),
        (vec![Op::RemoveTree(b(".git")), file(".git", "gitdir: evil")], true),
        (vec![file(".git/commondir", "../evil")], true),
        (vec![Op::Remove(b(".git/hooks/post-merge")), dir(".git/hooks/post-merge")], true),
        (vec![dir("sub"), file("sub/.git", "gitdir: ../evil")], true),
        (vec![dir("evil"), dir("evil/hooks"), file("evil/hooks/x", "x"), dir("sub"), rename("evil", "sub/.git")], true),
        (
            vec![
                dir(".git/modules"),
                dir(".git/modules/m"),
                file(".git/modules/m/config", "[core]\nworktree = ../../../m\n"),
            ],
            true,
        ),
        (vec![file(".git/config.worktree", "[core]\nsshCommand = x\n")], true),
        (vec![rename(".git/refs", ".git/refs2"), file(".git/index", "x")], false),
    ] {
        let (scene, result) = run(&base, &ops);
        assert_eq!(!result.parked.is_empty(), holds, "{ops:?}: {result:?}");
        assert_eq!(read(&scene, ".git/hooks/post-merge").as_deref(), Some("safe"), "{ops:?}");
        let config = read(&scene, ".git/config").unwrap();
        let place = nexus_git::config::Place::of_new(b".git");
        let held = nexus_git::config::changed(Some(config.as_bytes()), None, &place).unwrap();
        assert!(held.is_empty(), "{ops:?}");
        assert!(!scene.ws().join(".git/hooks/pre-commit").exists() && !scene.ws().join(".git/commondir").exists());
        assert!(!scene.ws().join("sub/.git/hooks/x").exists());
        if holds {
            assert_eq!(accept(&scene).conflicts, [], "{ops:?}");
        }
        assert_eq!(names_of(&scene.ws()), names_of(&scene.path("plain")), "{ops:?}");
    }
}

/// F05 for devices.
#[test]
fn setuid_files_and_device_nodes_never_reach_the_workspace_unasked() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = scene.layer(&[file("suid", "x"), file("plain", "x"), dir("d"), file("d/sgid", "x")]);
    std::fs::set_permissions(layer.upper().join("suid"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(layer.upper().join("d/sgid"), std::fs::Permissions::from_mode(0o2755)).unwrap();
    let node = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        layer.upper().join("null"),
        rustix::fs::FileType::CharacterDevice,
        0o666.into(),
        node,
    )
    .unwrap();
    let result = commit(&scene, &layer);
    drop(layer);
    assert_eq!(parked(&result), ["d/sgid", "null", "suid"]);
    assert!(result.parked.iter().filter(|one| one.setuid).count() == 2);
    assert_eq!(read(&scene, "plain").as_deref(), Some("x"));
    let left = accept(&scene);
    assert_eq!(parked(&left), ["null"], "a device node cannot even be accepted");
    assert_eq!(std::fs::metadata(scene.ws().join("suid")).unwrap().mode() & 0o7777, 0o4755);
}

/// F05 for sockets.
#[test]
fn sockets_are_skipped_and_listed() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = scene.layer(&[dir("d"), file("d/f", "x")]);
    let listener = std::os::unix::net::UnixListener::bind(layer.upper().join("d/socket")).unwrap();
    let result = commit(&scene, &layer);
    drop(listener);
    assert!(result.changes.changes.iter().any(|one| one.skipped && one.path == "d/socket".into()));
    assert_eq!(read(&scene, "d/f").as_deref(), Some("x"));
    assert!(!scene.ws().join("d/socket").exists());
}

#[test]
fn unknown_marks_are_an_error_and_nothing_is_committed() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = scene.layer(&[file("f", "x")]);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(layer.upper().join("f"), "trusted.overlay.whiteout", b"", flags).unwrap();
    assert!(layer.commit(&scene.workspace(), &Rules::default()).is_err());
    assert!(!scene.ws().join("f").exists() && layer.upper().join("f").exists());
}

/// Sets or clears the append-only flag.
fn append_only(path: &Path, on: bool) {
    let fd = rustix::fs::open(path, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let mut flags = rustix::fs::ioctl_getflags(&fd).unwrap();
    flags.set(rustix::fs::IFlags::APPEND, on);
    rustix::fs::ioctl_setflags(&fd, flags).unwrap();
}

/// Without this a test that fails could not remove its workspace.
struct AppendOnly(Vec<std::path::PathBuf>);

impl Drop for AppendOnly {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| append_only(path, false));
    }
}

#[test]
fn what_is_append_only_in_the_workspace_parks_alone() {
    let base = [dir("ap"), file("ap/old", "old"), file("log", "1"), dir("d"), file("d/f", "old")];
    let scene = Scene::new(LayerMode::Root, &base);
    let pinned = AppendOnly(vec![scene.ws().join("ap"), scene.ws().join("log")]);
    pinned.0.iter().for_each(|path| append_only(path, true));
    wait_for_tick(scene.dir.path());
    let ops = [
        file("ap/new", "x"),
        dir("ap/sub"),
        file("ap/sub/f", "x"),
        file("ap/old", "new"),
        Op::Append(b("log"), "2".into()),
        file("other", "x"),
        file("d/f", "new"),
    ];
    let result = commit(&scene, &scene.layer(&ops));
    assert_eq!(result.state, CommitState::Committed);
    assert_eq!(parked(&result), ["ap/new", "ap/old", "ap/sub", "ap/sub/f", "log"]);
    assert!(
        result.parked.iter().all(|one| one.path == "ap/sub/f".into()
            || one.protected.as_deref().is_some_and(|why| why.contains("append-only")))
    );
    assert_eq!((read(&scene, "other").as_deref(), read(&scene, "d/f").as_deref()), (Some("x"), Some("new")));
    assert_eq!(parked(&accept(&scene)), ["ap/new", "ap/old", "ap/sub", "ap/sub/f", "log"], "still append-only");
    append_only(&scene.ws().join("ap"), false);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let rules = Rules { accept_protected: true, only: Some(vec!["ap".into()]), ..Rules::default() };
    let taken = layer.commit(&scene.workspace(), &rules).unwrap();
    assert_eq!(parked(&taken), ["log"]);
    assert_eq!((read(&scene, "ap/new").as_deref(), read(&scene, "ap/sub/f").as_deref()), (Some("x"), Some("x")));
}

#[test]
fn attributes_that_the_next_layer_would_obey_park() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = scene.layer(&[file("f", "x"), file("g", "x")]);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(layer.upper().join("f"), "user.overlay.whiteout", b"", flags).unwrap();
    assert_eq!(parked(&commit(&scene, &layer)), ["f"]);
}

#[test]
fn changes_outside_are_conflicts_and_nothing_is_committed() {
    let base = || {
        vec![
            file("f", "old"),
            file("g", "old"),
            dir("d"),
            file("d/x", "old"),
            dir("e"),
            file("e/x", "old"),
            dir("m"),
            file("keep", "k"),
        ]
    };
    let outside = vec![
        (
            "a changed file",
            vec![Op::Append(b("f"), "in".into())],
            vec![Op::Append(b("f"), "out".into())],
            "f",
            Outside::Changed,
        ),
        ("a deleted file", vec![Op::Append(b("f"), "in".into())], vec![Op::Remove(b("f"))], "f", Outside::Vanished),
        (
            "a replaced file",
            vec![Op::Append(b("f"), "in".into())],
            vec![file("n", "n"), rename("n", "f")],
            "f",
            Outside::Changed,
        ),
        (
            "deleting a changed file",
            vec![Op::Remove(b("f"))],
            vec![Op::Append(b("f"), "out".into())],
            "f",
            Outside::Changed,
        ),
        ("a file that appeared", vec![file("new", "in")], vec![file("new", "out")], "new", Outside::Changed),
        (
            "deleting a folder with a changed file",
            vec![Op::RemoveTree(b("d"))],
            vec![Op::Append(b("d/x"), "out".into())],
            "d/x",
            Outside::Changed,
        ),
        (
            "deleting a folder with a new file",
            vec![Op::RemoveTree(b("d"))],
            vec![file("d/new", "out")],
            "d/new",
            Outside::Changed,
        ),
        (
            "deleting a folder into which an old file came",
            vec![Op::RemoveTree(b("d"))],
            vec![rename("keep", "d/keep")],
            "d/keep",
            Outside::Changed,
        ),
        (
            "replacing a folder",
            vec![Op::RemoveTree(b("d")), dir("d")],
            vec![Op::Append(b("d/x"), "out".into())],
            "d/x",
            Outside::Changed,
        ),
        (
            "a renamed folder that vanished",
            vec![rename("d", "d2")],
            vec![Op::RemoveTree(b("d"))],
            "d2",
            Outside::Vanished,
        ),
        ("a renamed file that vanished", vec![rename("f", "f2")], vec![Op::Remove(b("f"))], "f2", Outside::Vanished),
        ("a changed mode", vec![Op::Chmod(b("f"), 0o600)], vec![Op::Chmod(b("f"), 0o640)], "f", Outside::Changed),
        ("the mode of a folder", vec![Op::Chmod(b("m"), 0o700)], vec![Op::Chmod(b("m"), 0o711)], "m", Outside::Changed),
    ];
    for (what, ops, meanwhile, path, how) in outside {
        let scene = Scene::new(LayerMode::Root, &base());
        let mut ops = ops;
        ops.push(Op::Append(b("g"), "innocent".into()));
        let layer = scene.layer(&ops);
        wait_for_tick(&scene.ws());
        for op in &meanwhile {
            run_op(&scene.ws(), op).unwrap();
        }
        let before = scene.found();
        let result = commit(&scene, &layer);
        assert_eq!(result.state, CommitState::Parked, "{what}");
        assert!(
            result.conflicts.iter().any(|one| one.path == path.into() && one.outside == how),
            "{what}: {:?}",
            result.conflicts
        );
        assert_eq!(scene.found(), before, "{what}: nothing is committed");
        assert!(parked(&result).contains(&"g".to_owned()), "{what}: all is parked");
    }
}

#[test]
fn changes_beside_the_layer_are_no_conflicts() {
    let base = [file("f", "old"), dir("d"), file("d/x", "old"), dir("d/sub"), file("other", "old")];
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&[Op::Append(b("d/x"), "in".into()), file("d/new", "in"), Op::RemoveTree(b("d/sub"))]);
    wait_for_tick(&scene.ws());
    for op in [file("d/outside", "out"), Op::Append(b("other"), "out".into()), Op::Remove(b("f"))] {
        run_op(&scene.ws(), &op).unwrap();
        run_op(&scene.path("plain"), &op).unwrap();
    }
    assert_eq!(commit(&scene, &layer).conflicts, []);
    assert_eq!(scene.found(), scene.wanted());
}

#[test]
fn a_part_of_a_layer_is_accepted_and_the_rest_stays_readable() {
    let base = [
        file("a", "old"),
        dir("gone"),
        file("gone/x", ""),
        dir("mv"),
        file("mv/x", "x"),
        dir("re"),
        file("re/old", ""),
        file("re/same", "s"),
    ];
    let ops = [
        Op::Append(b("a"), "+".into()),
        dir("new"),
        dir("new/in"),
        file("new/in/f", "1"),
        file("new/g", "2"),
        Op::RemoveTree(b("gone")),
        rename("mv", "moved"),
        Op::RemoveTree(b("re")),
        dir("re"),
        file("re/new", "n"),
    ];
    for first in [vec!["new/in"], vec!["a", "re/new"], vec!["moved"], vec!["gone", "re"], vec!["new/g", "re/old"]] {
        let scene = Scene::new(LayerMode::Root, &base);
        let layer = scene.layer(&ops);
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        let only = Some(first.iter().map(|path| (*path).into()).collect());
        let result = layer.commit(&scene.workspace(), &Rules { only, ..Rules::default() }).unwrap();
        assert_eq!((result.state, result.conflicts.len()), (CommitState::Committed, 0), "{first:?}");
        assert!(!result.parked.is_empty(), "{first:?}");
        drop(layer);
        let rest = Layer::open(&scene.path("layers"), "run").unwrap();
        let again = rest.changes(&scene.workspace(), &Rules::default()).unwrap();
        let names: Vec<_> = again.changes.iter().map(|one| one.path.clone()).collect();
        let wanted: Vec<_> = result.parked.iter().map(|one| one.path.clone()).collect();
        assert_eq!(names, wanted, "{first:?}: the rest is what was said to be parked");
        assert_eq!(commit(&scene, &rest).conflicts, [], "{first:?}");
        assert_eq!(scene.found(), scene.wanted(), "{first:?}");
    }
}

#[test]
fn a_file_changed_between_two_accepts_is_a_conflict() {
    let scene = Scene::new(LayerMode::Root, &[file("a", ""), file("b", "")]);
    let layer = scene.layer(&[Op::Append(b("a"), "+".into()), Op::Append(b("b"), "+".into())]);
    let result = layer.commit(&scene.workspace(), &Rules { only: Some(vec!["a".into()]), ..Rules::default() }).unwrap();
    assert_eq!(parked(&result), ["b"]);
    drop(layer);
    wait_for_tick(&scene.ws());
    std::fs::write(scene.ws().join("b"), "outside").unwrap();
    assert_eq!(accept(&scene).conflicts.len(), 1);
    assert_eq!(read(&scene, "b").as_deref(), Some("outside"));
}

/// F02: a link to a file of the host.
#[test]
fn a_link_in_the_workspace_is_replaced_and_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("canary"), "alive").unwrap();
    let scene = Scene::new(LayerMode::Root, &[dir("d"), file("d/x", "x")]);
    let layer = scene.layer(&[Op::Append(b("d/x"), "in".into())]);
    std::fs::remove_dir_all(scene.ws().join("d")).unwrap();
    symlink(outside.path(), scene.ws().join("d")).unwrap();
    std::fs::write(outside.path().join("x"), "outside").unwrap();
    let result = layer.commit(&scene.workspace(), &Rules::default());
    assert!(result.is_err() || !result.unwrap().conflicts.is_empty());
    assert_eq!(std::fs::read_to_string(outside.path().join("x")).unwrap(), "outside");
}

/// F04 within the workspace.
#[test]
fn a_file_that_is_also_a_hook_is_not_written_through_its_other_names() {
    let base = [
        dir(".git"),
        dir(".git/hooks"),
        file(".git/hooks/post-merge", "safe"),
        Op::Link(b(".git/hooks/post-merge"), b("other")),
    ];
    let (scene, result) = run(
        &base,
        &[Op::Append(b(".git/hooks/post-merge"), "evil".into()), Op::Link(b(".git/hooks/post-merge"), b("new"))],
    );
    assert_eq!(parked(&result), [".git/hooks/post-merge"]);
    assert_eq!(read(&scene, ".git/hooks/post-merge").as_deref(), Some("safe"));
    assert_eq!(read(&scene, "new").as_deref(), Some("safeevil"));
}

#[test]
fn what_is_parked_does_not_change_with_a_committed_name_of_the_same_file() {
    let (scene, result) = run(&[], &[file("x", "reviewed"), dir(".vscode"), Op::Link(b("x"), b(".vscode/y"))]);
    assert_eq!(parked(&result), [".vscode", ".vscode/y"]);
    std::fs::write(scene.ws().join("x"), "something else").unwrap();
    assert_eq!(accept(&scene).conflicts, []);
    assert_eq!(read(&scene, ".vscode/y").as_deref(), Some("reviewed"));
}

#[test]
fn a_protected_directory_parks_its_rename_even_when_it_is_empty_or_harmless() {
    let base = [dir(".idea"), dir("r"), dir("r/.git"), file("r/.git/config", "[core]\nbare = false\n")];
    for ops in [rename(".idea", "idea"), rename("r/.git", "r/store")] {
        let (scene, result) = run(&base, std::slice::from_ref(&ops));
        assert!(
            result.changes.is_empty() && result.parked.iter().any(|one| one.protected.is_some()),
            "{ops:?}: {result:?}"
        );
        assert!(scene.ws().join(".idea").is_dir() && scene.ws().join("r/.git").is_dir());
        assert_eq!(accept(&scene).conflicts, []);
        assert_eq!(scene.found(), scene.wanted(), "{ops:?}");
    }
}

#[test]
fn an_equal_file_made_again_has_parted_from_the_other_names_of_the_old_one() {
    let base = [file("a", "same"), Op::Link(b("a"), b("b")), Op::Touch(b("a"))];
    let (scene, result) = run(&base, &[Op::Remove(b("a")), file("a", "same"), Op::Touch(b("a"))]);
    assert_eq!(result.changes.changes.len(), 1);
    assert_eq!(scene.found(), scene.wanted());
}

#[test]
fn a_file_written_through_a_name_that_is_gone_again_changes_under_its_other_names() {
    let base = [file("a", "old"), Op::Link(b("a"), b("b")), dir("d"), Op::Link(b("a"), b("d/c"))];
    for ops in [
        vec![Op::Append(b("a"), "new".into()), Op::Remove(b("a"))],
        vec![Op::Append(b("d/c"), "new".into()), Op::RemoveTree(b("d"))],
    ] {
        let (scene, result) = run(&base, &ops);
        assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0));
        assert_eq!(read(&scene, "b").as_deref(), Some("oldnew"), "{ops:?}");
        assert_eq!(scene.found(), scene.wanted(), "{ops:?}");
    }
}

#[test]
fn a_directory_renamed_away_and_back_into_a_new_one_has_not_moved() {
    let base = [dir("a"), dir("a/x"), file("a/x/f", "x"), file("a/old", "x")];
    let ops = [rename("a/x", "t"), Op::RemoveTree(b("a")), dir("a"), rename("t", "a/x")];
    let (scene, result) = run(&base, &ops);
    let paths: Vec<_> = result.changes.changes.iter().map(|one| one.path.as_path().to_str().unwrap()).collect();
    assert_eq!(paths, ["a/old"], "{result:?}");
    assert_eq!(scene.found(), scene.wanted());
}

#[test]
fn what_only_the_index_holds_waits_beside_another_choice() {
    let base = [file("one", "1\n"), Op::Link(b("one"), b("two")), file("other", "")];
    let changed = [Op::Append(b("one"), "2\n".into()), Op::Remove(b("one")), Op::Append(b("other"), "+".into())];
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&changed);
    let only = Rules { only: Some(vec!["other".into()]), ..Rules::default() };
    let result = layer.commit(&scene.workspace(), &only).unwrap();
    assert_eq!(result.changes.changes.len(), 1, "{result:?}");
    assert_eq!((read(&scene, "two").as_deref(), read(&scene, "other").as_deref()), (Some("1\n"), Some("+")));
    // Together they can be had.
    drop(layer);
    accept(&scene);
    assert_eq!(scene.found(), scene.wanted());
}
