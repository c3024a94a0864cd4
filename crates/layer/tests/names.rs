//! Protected names through real overlays of root. With git itself: `git.rs`.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename, wait_for_tick};
use nexus_layer::{CommitState, Committed, Layer, LayerMode, Rules};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

fn dir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

fn file(path: &str, text: &str) -> Op {
    Op::Write(b(path), text.into())
}

fn append(path: &str, text: &str) -> Op {
    Op::Append(b(path), text.into())
}

fn link(from: &str, to: &str) -> Op {
    Op::Link(b(from), b(to))
}

fn commit_by(scene: &Scene, layer: &Layer, rules: &Rules) -> Committed {
    layer.commit(&scene.workspace(), rules).unwrap()
}

fn parked(result: &Committed) -> Vec<String> {
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

fn read(scene: &Scene, path: &str) -> Option<String> {
    std::fs::read_to_string(scene.ws().join(path)).ok()
}

fn inode(scene: &Scene, path: &str) -> u64 {
    std::fs::symlink_metadata(scene.ws().join(path)).unwrap().ino()
}

/// Runs operations in a layer and commits it; what is parked is thrown away.
fn run(scene: &Scene, ops: &[Op]) -> Committed {
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(ops);
    let result = commit_by(scene, &layer, &Rules::default());
    drop(layer);
    if let Ok(layer) = Layer::open(&scene.path("layers"), "run") {
        layer.discard().unwrap();
    }
    result
}

fn named(paths: &[&str]) -> Rules {
    let paths: Vec<_> = paths.iter().map(|path| (*path).into()).collect();
    Rules { only: Some(paths.clone()), named: paths, ..Rules::default() }
}

fn accept(scene: &Scene, rules: &Rules) -> Committed {
    commit_by(scene, &Layer::open(&scene.path("layers"), "run").unwrap(), rules)
}

const CONFIG: &str = "[core]\n\tbare = false\n";

fn repository() -> Vec<Op> {
    vec![
        dir(".git"),
        dir(".git/hooks"),
        dir(".git/objects"),
        dir(".git/objects/info"),
        dir(".git/info"),
        dir(".git/refs"),
        dir(".git/refs/heads"),
        file(".git/HEAD", "ref: refs/heads/main\n"),
        file(".git/index", "old"),
        file(".git/config", CONFIG),
        file(".git/hooks/post-merge", "safe"),
        file("other", "o"),
    ]
}

const EVIL: &str = "[core]\n\tfsmonitor = touch PWNED;false\n";

#[test]
fn a_link_of_one_run_is_no_way_to_a_protected_file_for_the_next() {
    for (protected, evil) in
        [(".git/config", EVIL), (".git/hooks/post-merge", "evil"), (".envrc", "evil"), ("bare.git/config", EVIL)]
    {
        let mut base = repository();
        base.push(file(".envrc", "safe"));
        base.extend(["bare.git", "bare.git/objects", "bare.git/refs"].map(dir));
        base.extend([file("bare.git/HEAD", "ref: x"), file("bare.git/config", CONFIG)]);
        let scene = Scene::new(LayerMode::Root, &base);
        let safe = read(&scene, protected);
        run(&scene, &[link(protected, "x")]);
        assert_eq!(read(&scene, protected), safe);
        if scene.ws().join("x").exists() {
            assert_ne!(inode(&scene, "x"), inode(&scene, protected), "{protected} got another name");
        }
        std::fs::write(scene.path("plain/x"), safe.as_deref().unwrap()).unwrap();
        std::fs::write(scene.ws().join("x"), safe.as_deref().unwrap()).unwrap();
        run(&scene, &[append("x", evil)]);
        assert_eq!(read(&scene, protected), safe, "{protected}");
        assert!(read(&scene, "x").unwrap().ends_with(evil));
    }
}

#[test]
fn a_protected_file_with_another_name_is_not_written_through_it() {
    for protected in [".git/config", ".git/hooks/post-merge", "bare.git/config"] {
        let mut base = repository();
        base.extend(["bare.git", "bare.git/objects", "bare.git/refs"].map(dir));
        base.extend([file("bare.git/HEAD", "ref: x"), file("bare.git/config", CONFIG)]);
        base.extend([dir("d"), link(protected, "d/x"), link(protected, "d/y")]);
        let scene = Scene::new(LayerMode::Root, &base);
        let safe = read(&scene, protected);
        let result = run(&scene, &[append("d/x", EVIL)]);
        assert_eq!(parked(&result), [""; 0]);
        assert_eq!(read(&scene, protected), safe);
        assert_eq!(read(&scene, "d/y"), safe, "the other name is the protected file too");
        assert!(read(&scene, "d/x").unwrap().ends_with(EVIL), "the committed name is a file of its own");
        // Written through a name that is gone again: nothing could be parted, so all of it waits.
        let result = run(&scene, &[append("d/y", EVIL), Op::Remove(b("d/y")), append("other", "+")]);
        assert_eq!(result.state, CommitState::Parked, "{result:?}");
        assert_eq!(read(&scene, protected), safe);
        assert!(result.parked.iter().any(|one| one.protected.is_some()), "{result:?}");
    }
}

#[test]
fn names_outside_the_workspace_part_from_a_committed_file() {
    let scene = Scene::new(LayerMode::Root, &[dir("d"), file("d/a", "old"), link("d/a", "d/b"), file("d/c", "old")]);
    std::fs::hard_link(scene.ws().join("d/c"), scene.path("outside")).unwrap();
    let result = run(&scene, &[append("d/c", "new"), append("d/a", "new")]);
    assert_eq!(parked(&result), [""; 0]);
    assert_eq!(std::fs::read_to_string(scene.path("outside")).unwrap(), "old");
    assert_eq!(read(&scene, "d/c").as_deref(), Some("oldnew"));
    // All names of the other file are in the workspace, and they stay one file although one is not in the layer.
    assert_eq!(read(&scene, "d/b").as_deref(), Some("oldnew"));
    assert_eq!(inode(&scene, "d/a"), inode(&scene, "d/b"));
}

#[test]
fn accepting_a_protected_file_gives_it_no_hard_link() {
    let scene = Scene::new(LayerMode::Root, &[dir("sub"), file("sub/.envrc", "safe")]);
    let layer = scene.layer(&[link("sub/.envrc", "alias"), append("alias", "evil")]);
    let rules = Rules { accept_protected: true, ..Rules::default() };
    assert_eq!(parked(&commit_by(&scene, &layer, &rules)), [""; 0]);
    assert_eq!((read(&scene, "alias"), read(&scene, "sub/.envrc")), (Some("safeevil".into()), Some("safeevil".into())));
    assert_ne!(inode(&scene, "alias"), inode(&scene, "sub/.envrc"));
}

#[test]
fn what_git_resumes_parks_as_a_unit_and_may_go_away() {
    for (state, inside) in [
        (".git/rebase-merge", "git-rebase-todo"),
        (".git/rebase-apply", "next"),
        (".git/sequencer", "todo"),
        (".git/Rebase-Merge", "git-rebase-todo"),
    ] {
        let scene = Scene::new(LayerMode::Root, &repository());
        let path = format!("{state}/{inside}");
        let ops = [dir(state), file(&path, "exec touch PWNED\n"), append("other", "+")];
        let result = run(&scene, &ops);
        assert_eq!(parked(&result), [state, &path]);
        assert!(!scene.ws().join(state).exists() && read(&scene, "other").as_deref() == Some("o+"));
        // One file of it cannot change or go on its own; all of it can go.
        for root in [scene.ws(), scene.path("plain")] {
            std::fs::create_dir_all(root.join(state)).unwrap();
            std::fs::write(root.join(&path), "pick x\n").unwrap();
            std::fs::write(root.join(state).join("done"), "x\n").unwrap();
        }
        assert_eq!(parked(&run(&scene, &[append(&path, "exec touch PWNED\n")])), [path.as_str()]);
        assert_eq!(parked(&run(&scene, &[Op::RemoveTree(b(state)), dir(state)])).len(), 2, "{state}");
        assert_eq!(read(&scene, &path).as_deref(), Some("pick x\n"));
        let scene = Scene::new(LayerMode::Root, &[repository(), vec![dir(state), file(&path, "x")]].concat());
        assert_eq!(parked(&run(&scene, &[Op::RemoveTree(b(state))])), [""; 0]);
        assert!(!scene.ws().join(state).exists());
        // Made elsewhere and renamed into place, in one run or in two.
        let made = [dir("made"), file(&format!("made/{inside}"), "exec x\n")];
        assert!(!parked(&run(&scene, &[&made[..], &[rename("made", state)]].concat())).is_empty());
        let scene = Scene::new(LayerMode::Root, &[&repository()[..], &made[..]].concat());
        assert_eq!(parked(&run(&scene, &[rename("made", state)])), [state]);
        assert!(!scene.ws().join(state).exists());
        // Deeper in a directory that becomes a part of git's.
        let inner = [dir("made"), dir("made/rebase-merge"), file("made/rebase-merge/git-rebase-todo", "exec x\n")];
        let scene = Scene::new(LayerMode::Root, &[&repository()[..], &[dir(".git/modules")], &inner].concat());
        assert_eq!(parked(&run(&scene, &[rename("made", ".git/modules/m")])), [".git/modules/m"]);
    }
}

#[test]
fn files_that_give_git_objects_attributes_or_remotes_park() {
    for path in [
        ".git/objects/info/alternates",
        ".git/objects/info/http-alternates",
        ".git/info/attributes",
        ".git/info/grafts",
        ".git/shallow",
        ".git/BISECT_RUN",
        ".git/remotes/origin",
        ".git/branches/origin",
    ] {
        let mut base = repository();
        base.extend([dir(".git/remotes"), dir(".git/branches")]);
        let scene = Scene::new(LayerMode::Root, &base);
        let result = run(&scene, &[file(path, "/evil\n"), append("other", "+")]);
        assert_eq!(parked(&result), [path]);
        assert!(!scene.ws().join(path).exists() && read(&scene, "other").as_deref() == Some("o+"));
    }
}

/// The verdict, not only the class of the name.
#[test]
fn a_link_inside_a_git_directory_parks() {
    for path in [".git/modules/x", ".git/refs/heads/x", ".git/objects/ab", ".git/rebase-merge", ".git/logs"] {
        let mut base = repository();
        base.push(dir(".git/modules"));
        let scene = Scene::new(LayerMode::Root, &base);
        let result = run(&scene, &[Op::Symlink(b("/evil"), b(path)), append("other", "+")]);
        assert_eq!(parked(&result), [path]);
        assert!(std::fs::symlink_metadata(scene.ws().join(path)).is_err());
        assert_eq!(read(&scene, "other").as_deref(), Some("o+"));
    }
}

#[test]
fn a_new_link_to_something_protected_parks() {
    let mut base = repository();
    base.extend([dir("d"), file("d/AGENTS.md", "a")]);
    let scene = Scene::new(LayerMode::Root, &base);
    let links =
        [("log", ".git/hooks/post-merge"), ("d/x", "AGENTS.md"), ("e", "../../.bashrc"), ("free", "d/y"), ("up", "..")];
    let mut ops: Vec<Op> = links.iter().map(|(link, text)| Op::Symlink(b(text), b(link))).collect();
    ops.push(append("other", "+"));
    let result = run(&scene, &ops);
    assert_eq!(parked(&result), ["d/x", "e", "log"]);
    assert!(scene.ws().join("free").is_symlink() && scene.ws().join("up").is_symlink());
    // With a directory that moves to where its links lead to something protected.
    let scene = Scene::new(
        LayerMode::Root,
        &[repository(), vec![dir("n"), dir("n/m"), Op::Symlink(b("../.git/config"), b("n/m/l"))]].concat(),
    );
    assert_eq!(parked(&run(&scene, &[rename("n/m", "m"), append("other", "+")])), ["m"]);
}

#[test]
fn a_bare_repository_is_classified_like_a_git_directory() {
    let frame = |name: &str| {
        let at = |inner: &str| format!("{name}/{inner}");
        vec![dir(name), file(&at("HEAD"), "ref: refs/heads/main\n"), dir(&at("objects")), dir(&at("refs"))]
    };
    let evil = ["r.git/config", "r.git/hooks", "r.git/hooks/post-update"];
    let plant = [file(evil[0], EVIL), dir(evil[1]), file(evil[2], "evil")];
    // In one run.
    let scene = Scene::new(LayerMode::Root, &[]);
    let result = run(&scene, &[frame("r.git"), plant.to_vec()].concat());
    assert_eq!(parked(&result), ["r.git/config", "r.git/hooks/post-update"]);
    assert_eq!(read(&scene, "r.git/config").as_deref(), Some("[core]\n\t\n"), "the configuration comes stripped");
    assert!(scene.ws().join("r.git/HEAD").exists() && !scene.ws().join(evil[2]).exists());
    // The settings after the repository.
    let scene = Scene::new(LayerMode::Root, &frame("r.git"));
    assert_eq!(parked(&run(&scene, &plant)), ["r.git/config", "r.git/hooks/post-update"]);
    assert!(!scene.ws().join(evil[0]).exists());
    // The repository after the settings.
    let scene = Scene::new(LayerMode::Root, &[&[dir("r.git")][..], &plant[..]].concat());
    let result = run(&scene, &frame("r.git")[1..]);
    assert_eq!(parked(&result), ["r.git/HEAD", "r.git/objects", "r.git/refs"]);
    // The hooks from another directory.
    let other = [dir("o"), dir("o/hooks"), file("o/hooks/x", "evil")];
    let scene = Scene::new(LayerMode::Root, &[frame("r.git"), other.to_vec()].concat());
    assert_eq!(parked(&run(&scene, &[rename("o/hooks", "r.git/hooks")])), ["r.git/hooks"]);
    // The workspace itself.
    let scene = Scene::new(LayerMode::Root, &[file("HEAD", "ref: x"), dir("objects"), dir("refs")]);
    assert_eq!(
        parked(&run(&scene, &[dir("hooks"), file("hooks/x", "evil"), file("config", EVIL)])),
        ["config", "hooks/x"]
    );
    // Ordinary directories of these names.
    let scene = Scene::new(LayerMode::Root, &[dir("app"), dir("app/objects")]);
    let ops = [dir("app/hooks"), file("app/hooks/useX.js", "x"), file("app/config", EVIL), dir("app/refs")];
    assert_eq!(parked(&run(&scene, &ops)), [""; 0]);
}

#[test]
fn a_repository_inside_git_s_own_directory_is_classified() {
    for place in [".git/srv", ".git/a/b", ".git/refs/heads/srv", ".git/objects/srv", ".git/logs/srv", ".git/lfs/srv"] {
        let at = |inner: &str| format!("{place}/{inner}");
        let mut frame: Vec<Op> = Vec::new();
        for (end, _) in place.match_indices('/').filter(|(end, _)| *end > 4) {
            frame.push(dir(&place[..end]));
        }
        let known = repository();
        frame.retain(|op| !known.iter().any(|one| format!("{one:?}") == format!("{op:?}")));
        frame.extend([dir(place), file(&at("HEAD"), "ref: refs/heads/main\n"), dir(&at("objects")), dir(&at("refs"))]);
        let plant = [file(&at("config"), EVIL), dir(&at("hooks")), file(&at("hooks/pre-receive"), "evil")];
        let scene = Scene::new(LayerMode::Root, &repository());
        let remote = append(".git/config", &format!("[remote \"origin\"]\n\turl = {place}\n"));
        wait_for_tick(scene.dir.path());
        let layer = scene.layer(&[frame, plant.to_vec(), vec![remote]].concat());
        let whole = commit_by(&scene, &layer, &Rules::default());
        assert!(
            parked(&whole).iter().any(|path| path == place) && !scene.ws().join(place).exists(),
            "{place}: {whole:?}"
        );
        drop(layer);
        // Accepted, its settings and hooks wait.
        let named = Rules { named: vec![place.into()], only: Some(vec![place.into()]), ..Rules::default() };
        let result = commit_by(&scene, &Layer::open(&scene.path("layers"), "run").unwrap(), &named);
        let mut wanted = vec![".git/config".to_owned(), at("config"), at("hooks/pre-receive")];
        if place.starts_with(".git/refs/") {
            // It is a branch that stands for another one, too.
            wanted.push(at("HEAD"));
        }
        wanted.sort();
        let mut found = parked(&result);
        found.sort();
        assert_eq!(found, wanted, "{place}");
        assert!(!scene.ws().join(at("hooks/pre-receive")).exists());
        assert_eq!(read(&scene, ".git/config").as_deref(), Some(CONFIG));
    }
}

#[test]
fn a_repository_with_hooks_does_not_leave_git_s_directory_unasked() {
    let mut base = repository();
    base.extend([".git/srv", ".git/srv/objects", ".git/srv/refs", ".git/srv/hooks"].map(dir));
    base.extend([file(".git/srv/HEAD", "ref: x"), file(".git/srv/hooks/pre-receive", "evil")]);
    let scene = Scene::new(LayerMode::Root, &base);
    let result = run(&scene, &[rename(".git/srv", "tool")]);
    assert!(result.parked.iter().any(|one| one.protected.is_some()), "{result:?}");
    assert!(!scene.ws().join("tool").exists() && scene.ws().join(".git/srv").exists());
}

/// The files that make a directory a repository may go away in the layer and stay in the workspace.
#[test]
fn a_repository_that_the_layer_takes_apart_is_still_one() {
    let frame = [dir("r"), file("r/HEAD", "ref: refs/heads/main\n"), dir("r/objects"), dir("r/refs")];
    let ways = [
        (Op::Remove(b"r/HEAD".to_vec()), ["r/HEAD", "r/config", "r/hooks/x"]),
        (rename("r/refs", "elsewhere"), ["elsewhere", "r/config", "r/hooks/x"]),
        (Op::RemoveTree(b"r/objects".to_vec()), ["r/config", "r/hooks/x", "r/objects"]),
    ];
    for (way, wanted) in ways {
        let scene = Scene::new(LayerMode::Root, &frame);
        let result = run(&scene, &[way.clone(), file("r/config", EVIL), dir("r/hooks"), file("r/hooks/x", "evil")]);
        assert_eq!(parked(&result), wanted, "{way:?}");
        assert!(!scene.ws().join("r/config").exists(), "{way:?}");
    }
}

#[test]
fn naming_a_directory_accepts_nothing_protected_below_it() {
    let base = [
        dir("src"),
        dir("src/sub"),
        dir("src/sub/.git"),
        dir("src/sub/.git/hooks"),
        file("src/sub/.git/config", CONFIG),
        dir("src/old"),
        file("src/old/.envrc", "safe"),
    ];
    let ops = [
        dir("src/.vscode"),
        file("src/.vscode/tasks.json", "t"),
        file("src/.vscode/settings.json", "s"),
        file("src/sub/.git/hooks/pre-commit", "evil"),
        append("src/sub/.git/config", EVIL),
        file("src/plain", "x"),
        Op::RemoveTree(b("src/old")),
    ];
    let held = [
        "src/.vscode",
        "src/.vscode/settings.json",
        "src/.vscode/tasks.json",
        "src/old",
        "src/sub/.git/config",
        "src/sub/.git/hooks/pre-commit",
    ];
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&ops);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    let result = accept(&scene, &named(&["src"]));
    assert_eq!(parked(&result), held);
    assert_eq!(read(&scene, "src/plain").as_deref(), Some("x"));
    assert!(scene.ws().join("src/old/.envrc").exists());
    // One file of a protected directory comes alone.
    let result = accept(&scene, &named(&["src/.vscode/tasks.json"]));
    assert_eq!(result.changes.changes.len(), 2, "{result:?}");
    assert!(
        scene.ws().join("src/.vscode/tasks.json").exists() && !scene.ws().join("src/.vscode/settings.json").exists()
    );
    // The directory by its name, and a setting of git by its file.
    let result = accept(&scene, &named(&["src/.vscode", "src/sub/.git/config"]));
    assert_eq!(parked(&result), ["src/old", "src/sub/.git/hooks/pre-commit"]);
    assert!(read(&scene, "src/sub/.git/config").unwrap().ends_with(EVIL));
    let result = accept(&scene, &named(&["src/sub/.git/hooks"]));
    assert_eq!(parked(&result), ["src/old"]);
    // A directory that goes with protected names in it needs the accept of all.
    assert_eq!(parked(&accept(&scene, &named(&["src/old"]))), ["src/old"]);
    let all = Rules { accept_protected: true, ..named(&["src/old"]) };
    assert_eq!(parked(&accept(&scene, &all)), [""; 0]);
    assert!(!scene.ws().join("src/old").exists());
}

/// Capabilities, which a run cannot set, count like setuid bits.
#[test]
fn setuid_bits_and_capabilities_need_their_exact_path() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = scene.layer(&[dir("d"), file("d/suid", "x"), file("d/cap", "x"), file("d/plain", "x")]);
    std::fs::set_permissions(layer.upper().join("d/suid"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    // VFS_CAP_REVISION_2 with CAP_NET_RAW, permitted and effective.
    let value: Vec<u8> = [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(layer.upper().join("d/cap"), "security.capability", &value, flags).unwrap();
    let result = commit_by(&scene, &layer, &Rules::default());
    drop(layer);
    assert_eq!(parked(&result), ["d/cap", "d/suid"]);
    assert!(result.parked.iter().all(|one| one.setuid && one.protected.is_some()), "{result:?}");
    assert_eq!(read(&scene, "d/plain").as_deref(), Some("x"));
    assert_eq!(parked(&accept(&scene, &named(&["d"]))), ["d/cap", "d/suid"]);
    assert_eq!(parked(&accept(&scene, &named(&["d/suid"]))), ["d/cap"]);
    assert_eq!(std::fs::metadata(scene.ws().join("d/suid")).unwrap().mode() & 0o7777, 0o4755);
}

#[test]
fn other_spellings_of_protected_names_park() {
    for path in [".VSCODE", ".vscode.", ".vscode ", ".v\u{17f}code", ".vs\u{200c}code", ".vscode:x", "AGENTS.MD"] {
        let scene = Scene::new(LayerMode::Root, &[]);
        let result = run(&scene, &[file(path, "x"), file("fine", "x")]);
        assert_eq!(parked(&result), [path]);
        assert!(scene.ws().join("fine").exists());
    }
    for git in ["GIT~1", ".g\u{200d}it", ".git ", ".git.", ".Git"] {
        let scene = Scene::new(LayerMode::Root, &[dir(git)]);
        let hook = format!("{git}/hooks/post-merge");
        let result = run(&scene, &[dir(&format!("{git}/hooks")), file(&hook, "evil")]);
        assert_eq!(parked(&result), [hook], "{git}");
    }
}

#[test]
fn a_git_of_the_host_that_holds_the_index_is_a_conflict() {
    for (lock, ops, holds) in [
        (Some(".git/index.lock"), vec![append(".git/index", "+")], true),
        (Some(".git/index.lock"), vec![file(".git/refs/heads/main", "0")], true),
        (Some(".git/refs/heads/main.lock"), vec![file(".git/refs/heads/main", "0")], true),
        (Some(".git/index.lock"), vec![file(".git/objects/x", "0"), append("other", "+")], false),
        // The run removed an old lock itself.
        (Some(".git/index.lock"), vec![Op::Remove(b(".git/index.lock")), append(".git/index", "+")], false),
        (None, vec![append(".git/index", "+"), file(".git/refs/heads/main", "0")], false),
    ] {
        let mut base = repository();
        base.extend(lock.map(|lock| file(lock, "")));
        let scene = Scene::new(LayerMode::Root, &base);
        let result = run(&scene, &ops);
        assert_eq!(!result.conflicts.is_empty(), holds, "{lock:?} {ops:?}: {result:?}");
        assert_eq!(result.state == CommitState::Committed, !holds, "{lock:?} {ops:?}");
        if let (Some(lock), true) = (lock, holds) {
            assert_eq!(result.conflicts[0].path, lock.into());
        }
    }
}

#[test]
fn a_fifo_where_git_reads_and_a_lock_wait() {
    let mut base = repository();
    base.extend([file(".git/HEAD.lock", ""), file("doc", "x")]);
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&[
        Op::Fifo(b(".gitignore")),
        Op::Fifo(b(".git/info/exclude")),
        Op::Fifo(b("pipe")),
        Op::Remove(b("doc")),
        Op::Fifo(b("doc")),
        file(".git/index.lock", ""),
        Op::Remove(b(".git/HEAD.lock")),
        file("Cargo.lock", "x"),
    ]);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), [".git/index.lock", ".git/info/exclude", ".gitignore", "doc"]);
    assert!(scene.ws().join("doc").is_file(), "a reader of it would wait");
    assert!(scene.ws().join("pipe").exists() && scene.ws().join("Cargo.lock").exists());
    assert!(!scene.ws().join(".git/HEAD.lock").exists(), "a lock that the run removed");
}

#[test]
fn more_names_can_be_protected_for_a_run() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = scene.layer(&[file("Makefile", "x"), dir("deploy"), file("deploy/a.sh", "x"), file("deploy/b", "x")]);
    let rules = Rules::protecting(&["makefile".to_owned(), "deploy/*.sh".to_owned()]).unwrap();
    assert_eq!(parked(&commit_by(&scene, &layer, &rules)), ["Makefile", "deploy/a.sh"]);
    assert!(scene.ws().join("deploy/b").exists());
}

#[test]
fn a_link_to_a_protected_file_through_other_links_parks() {
    let mut base = repository();
    base.extend([dir("x"), dir("x/y"), Op::Symlink(b("x/y"), b("old")), dir("r"), dir("r/objects"), dir("r/refs")]);
    base.extend([file("r/HEAD", "ref: x"), file("r/config", CONFIG)]);
    let scene = Scene::new(LayerMode::Root, &base);
    let sym = |text: &str, path: &str| Op::Symlink(b(text), b(path));
    let result = run(
        &scene,
        &[
            sym("old/../../.git/hooks/pre-commit", "by-old"),
            dir("n"),
            dir("n/m"),
            sym("n/m", "new"),
            sym("new/../../.envrc", "by-new"),
            sym("r/config", "bare"),
            sym("old/../plain", "back"),
            sym("x/plain", "fine"),
            sym(".git/hooks", "hooks"),
        ],
    );
    assert_eq!(parked(&result), ["back", "bare", "by-new", "by-old", "hooks"]);
}

/// The first link is harmless when it comes, and nothing looks at it when the second one turns it.
#[test]
fn two_links_of_two_runs_do_not_lead_into_git() {
    let sym = |text: &str, path: &str| Op::Symlink(b(text), b(path));
    let base = [repository(), vec![dir(".git/logs"), dir("a"), dir(".hg"), dir(".hg/store")]].concat();
    let scene = Scene::new(LayerMode::Root, &base);
    assert_eq!(parked(&run(&scene, &[sym("a/../config", "out.log")])), ["out.log"]);
    assert_eq!(parked(&run(&scene, &[sym("a/../hgrc", "o2.log"), sym("a", "plain")])), ["o2.log"]);
    let inside = run(&scene, &[Op::Remove(b("a")), sym(".git/logs", "a"), sym(".git/refs/heads/main", "ref")]);
    assert_eq!(parked(&inside), ["a", "ref"]);
}

#[test]
fn a_directory_with_something_to_resume_becomes_no_repository() {
    for state in ["rebase-merge/git-rebase-todo", "info/attributes", "MERGE_AUTOSTASH", "refs/replace/x"] {
        let path = format!("d/{state}");
        let mut base = vec![dir("d"), dir("d/objects"), dir("d/refs")];
        base.extend((!state.starts_with("MERGE")).then(|| dir(path.rsplit_once('/').unwrap().0)));
        base.push(file(&path, "x"));
        let scene = Scene::new(LayerMode::Root, &base);
        assert_eq!(parked(&run(&scene, &[file("d/HEAD", "ref: refs/heads/main\n")])), ["d/HEAD"], "{state}");
    }
    let base = [dir("d"), dir("d/objects"), dir("d/refs"), dir("d/branches"), file("d/description", "x")];
    let scene = Scene::new(LayerMode::Root, &base);
    assert_eq!(parked(&run(&scene, &[file("d/HEAD", "ref: refs/heads/main\n")])), [""; 0], "nothing to resume");
}

#[test]
fn a_link_in_place_of_hooks_holds_a_new_bare_repository_back() {
    let scene = Scene::new(LayerMode::Root, &[dir("r"), dir("r/objects"), dir("r/refs")]);
    symlink("elsewhere", scene.ws().join("r/hooks")).unwrap();
    std::fs::create_dir_all(scene.path("plain/r")).unwrap();
    symlink("elsewhere", scene.path("plain/r/hooks")).unwrap();
    assert_eq!(parked(&run(&scene, &[file("r/HEAD", "ref: x")])), ["r/HEAD"]);
}
