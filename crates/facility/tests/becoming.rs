//! Directories that a run turns into git repositories, and repositories that it unmakes.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, wait_for_tick};
use nexus_facility::{LayerMode, Rules};

const EVIL: &str = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = /ws/wt\nfsmonitor = /ws/d/e.sh\n";

fn write(path: &str, text: &str) -> Op {
    Op::Write(path.into(), text.into())
}

fn append(path: &str, text: &str) -> Op {
    Op::Append(path.into(), text.into())
}

fn dir(path: &str) -> Op {
    Op::Mkdir(path.into())
}

fn remove(path: &str) -> Op {
    Op::Remove(path.into())
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename(from.into(), to.into())
}

/// Commits `run` over a workspace made by `base`, and returns what waits.
fn parked(base: &[Op], run: &[Op]) -> Vec<String> {
    let scene = Scene::one_of_many(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let result = scene.layer(run).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(result.conflicts, []);
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

/// A directory at `at` that lacks `HEAD` alone to be a repository; empty for the workspace itself.
fn almost(at: &str, more: &[Op]) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    if !at.is_empty() {
        ops.push(dir(at.trim_end_matches('/')));
    }
    ops.extend(["objects", "refs", "refs/heads"].map(|name| dir(&format!("{at}{name}"))));
    ops.extend_from_slice(more);
    ops
}

const HEAD: &str = "ref: refs/heads/main\n";

#[test]
fn nothing_beside_settings_makes_a_repository_come_unasked() {
    for at in ["", "d/"] {
        let path = |name: &str| format!("{at}{name}");
        let head = write(&path("HEAD"), HEAD);
        let base = almost(at, &[write(&path("config"), EVIL)]);
        for (more, wanted) in [
            (vec![], vec![path("HEAD")]),
            (vec![write(&path("Config"), "\n")], vec![path("HEAD")]),
            (vec![append(&path("config"), "# x\n")], vec![path("HEAD"), path("config")]),
            (vec![write(&path("config"), "[core]\nbare = false\n")], vec![path("HEAD")]),
            (vec![remove(&path("config"))], vec![path("HEAD")]),
            (vec![rename(&path("config"), &path("x"))], vec![path("HEAD")]),
            // Several spellings of a name, one of them gone.
            (vec![write(&path("Head"), "x"), remove(&path("Refs"))], vec![path("HEAD"), path("Head")]),
        ] {
            let base = [base.clone(), vec![write(&path("Refs"), "x")]].concat();
            let run = [vec![head.clone()], more].concat();
            assert_eq!(parked(&base, &run), wanted, "{run:?}");
        }
    }
}

#[test]
fn a_directory_with_another_commondir_becomes_no_repository() {
    let base = [dir("d"), write("d/commondir", "../e\n")];
    let head = write("d/HEAD", HEAD);
    assert_eq!(parked(&base, std::slice::from_ref(&head)), ["d/HEAD"]);
    assert_eq!(parked(&base, &[head.clone(), write("d/Commondir", "x")]), ["d/Commondir", "d/HEAD"]);
    assert_eq!(parked(&base, &[head, append("d/commondir", "\n")]), ["d/HEAD", "d/commondir"]);
}

#[test]
fn a_directory_with_replaced_objects_becomes_no_repository() {
    let packed = write("d/packed-refs", "0a refs/replace/0b\n");
    assert_eq!(parked(&almost("d/", &[packed]), &[write("d/HEAD", HEAD)]), ["d/HEAD"]);
    let packed = write("d/packed-refs", "0a refs/heads/main\n");
    assert_eq!(parked(&almost("d/", &[packed]), &[write("d/HEAD", HEAD)]), [""; 0]);
}

#[test]
fn a_plain_directory_may_become_a_repository() {
    let config = "[core]\nrepositoryformatversion = 0\nfilemode = true\nbare = true\n";
    for at in ["", "d/"] {
        let path = |name: &str| format!("{at}{name}");
        let base = almost(at, &[write(&path("f"), "x")]);
        let run = [write(&path("HEAD"), HEAD), write(&path("config"), config)];
        assert_eq!(parked(&base, &run), [""; 0], "{at}");
    }
}

#[test]
fn a_repository_in_the_hooks_of_another_hides_no_hook() {
    let base = almost("d/", &[write("d/HEAD", HEAD), dir("d/hooks")]);
    let run = [
        write("d/hooks/HEAD", HEAD),
        dir("d/hooks/objects"),
        dir("d/hooks/refs"),
        write("d/hooks/post-update", "evil"),
    ];
    assert_eq!(parked(&base, &run), ["d/hooks/HEAD", "d/hooks/post-update"]);
}

const CLONE: &str = "[core]\nbare = false\n[remote \"origin\"]\nurl = h:a\n[branch \"main\"]\nremote = origin\n";
const TURNED: &str = "[core]\nbare = false\n[remote \"origin\"]\nurl = h:b\n[branch \"main\"]\nremote = origin\n";

/// A repository at `at` with this configuration.
fn repository(at: &str, config: &str) -> Vec<Op> {
    let path = |name: &str| format!("{at}/{name}");
    let mut ops: Vec<Op> = at.match_indices('/').map(|(end, _)| dir(&at[..end])).collect();
    ops.extend(almost(&format!("{at}/"), &[write(&path("HEAD"), HEAD), write(&path("config"), config)]));
    ops
}

#[test]
fn the_configuration_of_a_repository_does_not_go_alone() {
    for at in [".git", "d", ".git/modules/sub"] {
        let base = [repository(at, CLONE), vec![dir("other"), dir("other/g")]].concat();
        let config = format!("{at}/config");
        assert_eq!(parked(&base, &[remove(&config)]), [config.as_str()]);
        assert_eq!(parked(&base, &[rename(&config, "c")]), [config.as_str()]);
        assert_eq!(parked(&base, &[Op::RemoveTree(at.into())]), [""; 0], "{at} as a whole");
        let again = [vec![Op::RemoveTree(at.into())], repository(at, TURNED)].concat();
        let again: Vec<Op> =
            again.into_iter().filter(|op| !matches!(op, Op::Mkdir(path) if path.len() < at.len())).collect();
        assert_eq!(parked(&base, &again), [config.as_str()], "{at} made again");
        // It went in another way.
        let base = [base, vec![remove(&config)]].concat();
        assert_eq!(parked(&base, &[write(&config, TURNED)]), [config.as_str()]);
        assert_eq!(parked(&base, &[write(&config, "[core]\nbare = false\n")]), [""; 0]);
    }
}

#[test]
fn settings_of_one_working_tree_are_judged_by_the_same_rules() {
    let of_module = repository(".git/modules/sub", CLONE);
    for (at, text) in [
        (".git/modules/sub", "[core]\n\tworktree = ../../../evil\n"),
        (".git/modules/sub", "[core]\n\tworktree = ../../../sub\n"),
        (".git", "[core]\n\tbare = true\n"),
        (".git", "[core]\n\tbare = false\n"),
        (".git", "[remote \"up\"]\nurl = h:b\n[branch \"main\"]\nremote = up\n"),
        (".git", "[extensions]\nobjectFormat = sha256\n"),
    ] {
        let base = [of_module.clone(), repository(".git", CLONE)[1..].to_vec()].concat();
        let path = format!("{at}/config.worktree");
        assert_eq!(parked(&base, &[write(&path, text)]), [path.as_str()], "{text}");
        let with = [base.clone(), vec![write(&path, "[user]\nname = x\n")]].concat();
        assert_eq!(parked(&with, &[append(&path, text)]), [path.as_str()], "{text}");
        assert_eq!(parked(&with, &[append(&path, "email = a@b\n")]), [""; 0]);
    }
    // In a working tree that is new.
    let base = [repository(".git", CLONE), vec![dir(".git/worktrees")]].concat();
    let run = [dir(".git/worktrees/w"), write(".git/worktrees/w/config.worktree", "[branch \"main\"]\nremote = up\n")];
    assert_eq!(parked(&base, &run), [".git/worktrees/w/config.worktree"]);
}

#[test]
fn a_new_submodule_says_only_where_its_own_working_tree_is() {
    for (file, waits) in [
        ("gitdir: ../.git/modules/sub\n", false),
        ("gitdir: ../.git/modules/other\n", true),
        ("gitdir: .git/modules/sub\n", true),
        ("../.git/modules/sub\n", true),
    ] {
        let base = [repository(".git", CLONE), vec![dir(".git/modules"), dir("sub"), write("sub/.git", file)]].concat();
        let config = "[core]\n\tbare = false\n\tworktree = ../../../sub\n";
        let run = repository(".git/modules/sub", config)[2..].to_vec();
        let wanted: &[&str] = if waits { &[".git/modules/sub/config"] } else { &[] };
        assert_eq!(parked(&base, &run), wanted, "{file}");
        // The whole of it goes, or moves with its working tree.
        let all = [base, run].concat();
        let goes = parked(&all, &[Op::RemoveTree(".git/modules/sub".into())]);
        assert_eq!(goes.is_empty(), !waits, "{file}: {goes:?}");
    }
    // The run brings the file: it waits, and so does the setting.
    let base = [repository(".git", CLONE), vec![dir(".git/modules"), dir("evil")]].concat();
    let mut run = repository(".git/modules/sub", "[core]\n\tworktree = ../../../evil\n")[2..].to_vec();
    run.push(write("evil/.git", "gitdir: ../.git/modules/sub\n"));
    assert_eq!(parked(&base, &run), [".git/modules/sub/config", "evil/.git"]);
}

/// A directory that is no repository any more keeps neither its hooks nor what they start from a run.
#[test]
fn what_makes_a_repository_does_not_go_alone() {
    for at in [".git", "d", ".git/modules/sub"] {
        let base = [repository(at, CLONE), vec![write("f", "x")]].concat();
        for name in ["HEAD", "objects", "refs"] {
            let path = format!("{at}/{name}");
            assert_eq!(parked(&base, &[Op::RemoveTree(path.as_str().into())]), [path.as_str()]);
            let renamed = if name == "HEAD" { &path } else { "x" };
            assert_eq!(parked(&base, &[rename(&path, "x")]), [renamed]);
            let other =
                [Op::RemoveTree(path.as_str().into()), if name == "HEAD" { dir(&path) } else { write(&path, "x") }];
            assert_eq!(parked(&base, &other), [path.as_str()], "another kind of entry");
        }
        let run = [write(&format!("{at}/new"), "x"), rename(&format!("{at}/new"), &format!("{at}/HEAD"))];
        assert_eq!(parked(&base, &run), [""; 0], "as git changes HEAD");
        assert_eq!(parked(&base, &[Op::RemoveTree(at.into())]), [""; 0], "as a whole");
    }
    let further = [dir("w"), write("w/HEAD", HEAD), write("w/commondir", "../d\n")];
    assert_eq!(parked(&further, &[remove("w/HEAD")]), ["w/HEAD"]);
    let plain = [dir("d"), dir("d/objects"), write("d/HEAD", "x")];
    assert_eq!(parked(&plain, &[Op::RemoveTree("d/objects".into()), remove("d/HEAD")]), [""; 0], "no repository");
}
