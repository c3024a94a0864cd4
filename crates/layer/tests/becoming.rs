//! Directories that a run turns into git repositories, and repositories that it unmakes.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, wait_for_tick};
use nexus_layer::{LayerMode, Rules};

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
    parked_beside(base, run, &[])
}

/// The same, when these paths are accepted.
fn parked_beside(base: &[Op], run: &[Op], named: &[&str]) -> Vec<String> {
    let scene = Scene::one_of_many(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let rules = Rules { named: named.iter().map(|path| (*path).into()).collect(), ..Rules::default() };
    let result = scene.layer(run).commit(&scene.workspace(), &rules).unwrap();
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
fn settings_of_one_working_tree_are_classified_by_the_same_rules() {
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
        assert_eq!(parked_beside(&base, &run, &[".git/modules/sub"]), wanted, "{file}");
        // A new one in its place could have another working tree.
        let all = [base, run].concat();
        assert_eq!(parked(&all, &[Op::RemoveTree(".git/modules/sub".into())]), [".git/modules/sub"], "{file}");
    }
    // The run brings the file: it waits, and so does the setting.
    let base = [repository(".git", CLONE), vec![dir(".git/modules"), dir("evil")]].concat();
    let mut run = repository(".git/modules/sub", "[core]\n\tworktree = ../../../evil\n")[2..].to_vec();
    run.push(write("evil/.git", "gitdir: ../.git/modules/sub\n"));
    assert_eq!(parked_beside(&base, &run, &[".git/modules/sub"]), [".git/modules/sub/config", "evil/.git"]);
}

/// A directory that is not a repository any more keeps neither its hooks nor what they start from a run.
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
        let run = [write(&format!("{at}/new"), HEAD), rename(&format!("{at}/new"), &format!("{at}/HEAD"))];
        assert_eq!(parked(&base, &run), [""; 0], "as git changes HEAD");
    }
    let further = [dir("w"), write("w/HEAD", HEAD), write("w/commondir", "../d\n")];
    assert_eq!(parked(&further, &[remove("w/HEAD")]), ["w/HEAD"]);
    let plain = [dir("d"), dir("d/objects"), write("d/HEAD", "x")];
    assert_eq!(parked(&plain, &[Op::RemoveTree("d/objects".into()), remove("d/HEAD")]), [""; 0], "no repository");
}

/// A repository at `d` that was cloned, with the further entries of its git directory.
fn clone_of(git_dir: &str, more: &[Op]) -> Vec<Op> {
    [vec![dir("d")], repository(git_dir, CLONE)[1..].to_vec(), more.to_vec()].concat()
}

/// A repository that comes back in a later run would be a new repository, with another remote.
#[test]
fn a_repository_with_remotes_does_not_go_or_move_as_a_whole() {
    for git_dir in ["d/.git", "d/srv", "d/.git/modules/sub", "d/a/b/.git"] {
        let base = clone_of(git_dir, &[write("d/f", "x"), dir("other")]);
        for (run, waits) in [
            (Op::RemoveTree(git_dir.into()), git_dir),
            (Op::RemoveTree("d".into()), "d"),
            (rename("d", "e"), "e"),
            (rename("d", "other/e"), "other/e"),
            (rename(git_dir, "g2"), "g2"),
        ] {
            assert!(parked(&base, std::slice::from_ref(&run)).iter().any(|path| path == waits), "{git_dir}: {run:?}");
        }
    }
    let linked = repository("d", "[core]\nbare = false\n");
    assert_eq!(parked(&linked, &[Op::RemoveTree("d".into())]), ["d"], "the git directory of a working tree elsewhere");
    for more in [
        vec![dir("d/.git/remotes"), write("d/.git/remotes/origin", "URL: h:a\n")],
        vec![dir("d/.git/info"), write("d/.git/info/attributes", "* filter=crypt\n")],
        vec![dir("d/.git/hooks"), write("d/.git/hooks/pre-push", "x")],
    ] {
        let base = [vec![dir("d")], repository("d/.git", "[core]\nbare = false\n")[1..].to_vec(), more].concat();
        assert_eq!(parked(&base, &[Op::RemoveTree("d".into())]), ["d"], "{base:?}");
    }
}

#[test]
fn a_repository_without_remotes_goes_and_moves_unasked() {
    let resumed = [dir("d/.git/rebase-merge"), write("d/.git/rebase-merge/git-rebase-todo", "pick x")];
    let plain =
        [vec![dir("d")], repository("d/.git", "[core]\nbare = false\n[user]\nname = x\n")[1..].to_vec()].concat();
    for base in [plain.clone(), [plain.clone(), resumed.to_vec()].concat()] {
        assert_eq!(parked(&base, &[Op::RemoveTree("d".into())]), [""; 0]);
        assert_eq!(parked(&base, &[Op::RemoveTree("d/.git".into())]), [""; 0]);
    }
    assert_eq!(parked(&plain, &[rename("d", "e")]), [""; 0]);
    let server = repository("srv.git", "[core]\nbare = true\n");
    assert_eq!(parked(&server, &[Op::RemoveTree("srv.git".into())]), [""; 0]);
    let cloned = clone_of("d/.git", &[]);
    assert_eq!(parked(&[], &cloned), [""; 0], "a new clone");
}

/// The hooks and settings of a bare repository do not go with one of its directories either.
#[test]
fn a_part_of_a_bare_repository_does_not_go_unseen() {
    let base = [
        repository("srv.git", "[core]\nbare = true\n"),
        vec![dir("srv.git/hooks"), write("srv.git/hooks/pre-receive", "x"), dir("srv.git/modules")],
        repository("srv.git/modules/sub", CLONE)[2..].to_vec(),
        vec![dir("srv.git/logs"), write("srv.git/logs/HEAD", "x")],
    ]
    .concat();
    for (path, waits) in [("srv.git/hooks", true), ("srv.git/modules", true), ("srv.git/logs", false)] {
        assert_eq!(parked(&base, &[Op::RemoveTree(path.into())]).is_empty(), !waits, "{path}");
    }
}

/// As `git branch -d` and `git branch -m` do it.
#[test]
fn the_settings_of_a_branch_go_only_with_its_ref() {
    let old = "[branch \"x/old\"]\nremote = origin\nmerge = refs/heads/main\n";
    let packed = write(".git/packed-refs", "# pack-refs with: peeled\n0a refs/heads/x/old\n0b refs/heads/main\n");
    let unpacked = write(".git/packed-refs", "# pack-refs with: peeled\n0b refs/heads/main\n");
    let loose = [dir(".git/refs/heads/x"), write(".git/refs/heads/x/old", "0a\n")];
    let base = repository(".git", &format!("{CLONE}{old}"));
    let goes = write(".git/config", CLONE);
    let waits = [".git/config".to_owned()];
    let one = std::slice::from_ref;
    let with = |more: &[Op]| [base.clone(), more.to_vec()].concat();
    assert_eq!(parked(&base, std::slice::from_ref(&goes)), waits, "no such branch");
    let remove = Op::Remove(".git/refs/heads/x/old".into());
    let whole = Op::RemoveTree(".git/refs/heads/x".into());
    for (base, run, unasked) in [
        (with(&loose), vec![], false),
        (with(&loose), vec![remove.clone()], true),
        (with(&loose), vec![whole.clone()], true),
        (with(&loose), vec![rename(".git/refs/heads/x", ".git/refs/heads/y")], true),
        (with(one(&packed)), vec![], false),
        (with(one(&packed)), vec![unpacked.clone()], true),
        (with(&[&loose[..], one(&packed)].concat()), vec![remove.clone()], false),
        (with(&[&loose[..], one(&packed)].concat()), vec![unpacked.clone()], false),
        (with(&[&loose[..], &[packed]].concat()), vec![unpacked, whole.clone()], true),
        (with(&loose), vec![whole.clone(), write(".git/HEAD", "ref: refs/heads/x/old\n")], false),
        (with(&loose), vec![whole.clone(), dir(".git/refs/heads/x"), write(".git/refs/heads/x/old", "0c\n")], false),
    ] {
        let run = [run, vec![goes.clone()]].concat();
        assert_eq!(parked(&base, &run).is_empty(), unasked, "{base:?} {run:?}");
    }
    let renamed = format!("{CLONE}{}", old.replace("x/old", "new"));
    let run = |config: &str| [whole.clone(), write(".git/refs/heads/new", "0a\n"), write(".git/config", config)];
    assert_eq!(parked(&with(&loose), &run(&renamed)), waits, "`git branch -m`: the upstream has another name");
    let own = renamed.replace("merge = refs/heads/main", "merge = refs/heads/new");
    assert_eq!(parked(&with(&loose), &run(&own)), [""; 0], "`git branch -m`, `git push -u`");
    let all = with(&loose);
    assert_eq!(parked(&all, &[write(".git/config", &renamed)]), waits, "the old ref stays");
    // A bare repository's.
    let bare =
        [repository("d", &format!("{CLONE}{old}")), vec![dir("d/refs/heads/x"), write("d/refs/heads/x/old", "0a\n")]];
    let gone = [Op::Remove("d/refs/heads/x/old".into()), write("d/config", CLONE)];
    assert_eq!(parked(&bare.concat(), &gone), [""; 0]);
    assert_eq!(parked(&bare.concat(), &gone[1..]), ["d/config"]);
}

/// git reads them where the configuration says no remote of this name.
#[test]
fn a_remote_in_its_old_form_is_not_replaced_unasked() {
    let base = repository(".git", "[core]\nbare = false\n[remote \"origin\"]\nurl = h:b\n");
    let run = [append(".git/config", "[branch \"x\"]\nremote = origin\n")];
    assert_eq!(parked(&base, &run), [""; 0]);
    for at in ["remotes", "branches"] {
        let none = [base.clone(), vec![dir(&format!(".git/{at}"))]].concat();
        assert_eq!(parked(&none, &run), [""; 0], "an empty directory");
        let old = [none, vec![write(&format!(".git/{at}/origin"), "URL: h:a\n")]].concat();
        assert_eq!(parked(&old, &run), [".git/config"], "{at}");
    }
}

/// git keeps no configuration there: with one, it would be a repository with other remotes for that working tree.
#[test]
fn the_git_directory_of_a_working_tree_has_no_remotes() {
    let base = [repository(".git", CLONE), vec![dir(".git/worktrees")]].concat();
    let run = &repository(".git/worktrees/w", TURNED)[2..];
    assert_eq!(parked_beside(&base, run, &[".git/worktrees/w"]), [".git/worktrees/w/config"]);
    let run =
        [dir(".git/worktrees/w"), write(".git/worktrees/w/HEAD", HEAD), write(".git/worktrees/w/commondir", "../..\n")];
    assert_eq!(parked(&base, &run), [""; 0], "`git worktree add`");
    let all = [base, run.to_vec()].concat();
    assert_eq!(parked(&all, &[Op::RemoveTree(".git/worktrees/w".into())]), [""; 0], "`git worktree prune`");
}

fn link(text: &str, path: &str) -> Op {
    Op::Symlink(text.into(), path.into())
}

/// Steps of one run that make a bare repository at `at`.
fn server(at: &str) -> Vec<Op> {
    repository(at, "[core]\nbare = true\n")
}

const MAKERS: [&str; 4] = ["b/HEAD", "b/objects", "b/refs", "b/refs/heads"];

/// The link comes in one run, and what it leads to in the next.
#[test]
fn no_repository_comes_where_links_lead() {
    for text in ["b/config", "b/hooks/post-receive", "b", "b/hooks", "c/config", "q/../b/config"] {
        let more = [link("b", "c"), dir("q"), link(text, "out.log")];
        assert_eq!(parked(&more, &server("b")), MAKERS, "{text}");
        let deep = [vec![dir("n"), dir("n/m"), link(&format!("../../{text}"), "n/m/l")], more.to_vec()].concat();
        assert_eq!(parked(&deep[..5], &server("b")), MAKERS, "{text}");
        let existing = [vec![dir("b"), write("b/k", "x")], more.to_vec()].concat();
        assert_eq!(parked(&existing, &server("b")[1..]), MAKERS, "{text} of a directory that was there");
    }
    let elsewhere = [link("src/config", "out.log"), dir("src"), link("nowhere", "x"), link("/usr/lib", "lib")];
    assert_eq!(parked(&elsewhere, &server("b")), [""; 0]);
    // The workspace itself.
    let top: Vec<Op> = almost("", &[]);
    let makers = ["HEAD", "objects", "refs", "refs/heads"];
    let run = [top, vec![write("HEAD", HEAD)]].concat();
    assert_eq!(parked(&[link("config", "out.log")], &run), makers);
    assert_eq!(parked(&[link("src/f", "out.log"), dir("src")], &run), [""; 0]);
    // A link of the same run, and one that the run turns.
    let with = |more: Op| [server("b"), vec![more]].concat();
    assert_eq!(parked(&[], &with(link("b/config", "out.log"))), ["out.log"]);
    assert_eq!(parked(&[], &with(link("plain", "out.log"))), [""; 0]);
    assert_eq!(parked(&[link("b/config", "out.log")], &with(remove("out.log"))), MAKERS, "it may stay");
}

#[test]
fn what_cannot_be_looked_through_for_links_could_have_one() {
    let scene = Scene::new(LayerMode::User, &[dir("shut"), Op::Chmod("shut".into(), 0)]);
    let layer = scene.layer(&server("b"));
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    common::give(&scene.path("layers"));
    scene.child("child_makes_a_repository", scene.dir.path().to_str().unwrap(), &[], false).unwrap();
}

#[test]
#[ignore = "the child of another test"]
fn child_makes_a_repository() {
    let scene = std::path::PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let ws = nexus_layer::Workspace::open(&scene.join("ws")).unwrap();
    let result = common::reopen(&scene.join("layers")).commit(&ws, &Rules::default()).unwrap();
    let parked: Vec<_> = result.parked.into_iter().map(|change| change.path.0).collect();
    assert_eq!(parked, MAKERS.map(|path| path.as_bytes().to_vec()));
}

/// The directory of the repository comes to the place where a link leads, or the link to the repository.
#[test]
fn neither_link_nor_repository_is_turned_to_the_other() {
    let base =
        [server("srv.git"), vec![dir("a"), write("a/k", "x"), link("a/hooks/post-receive", "out.log"), dir("src")]]
            .concat();
    assert_eq!(parked(&base, &[Op::RemoveTree("a".into()), link("srv.git", "a")]), ["a"]);
    for text in ["srv.git", "srv.git/hooks", "srv.git/refs/heads/main", "srv.git/new"] {
        assert_eq!(parked(&base, &[link(text, "l")]), ["l"], "{text}");
    }
    assert_eq!(parked(&base, &[link("src", "l"), link("srv", "l2"), link("src/srv.git", "l3")]), [""; 0]);
    assert_eq!(parked(&base, &[rename("srv.git", "b")]), ["b"], "a repository that moves");
    assert_eq!(parked(&base, &[Op::RemoveTree("a".into()), rename("srv.git", "a")]).len(), 1);
    // A link that moves with a directory, to where the same text leads into the repository.
    let moving = [server("srv.git"), vec![dir("n"), dir("n/m"), link("../srv.git/config", "n/m/l")]].concat();
    assert_eq!(parked(&moving, &[rename("n/m", "m")]), ["m"]);
    assert_eq!(parked(&moving, &[rename("n/m", "n/k")]), [""; 0]);
}

#[test]
fn a_directory_with_links_in_place_of_gits_becomes_no_repository() {
    let head = [write("d/HEAD", HEAD)];
    for (place, text) in [("info", "../i"), ("refs/replace", "../i"), ("objects/info", "../i")] {
        let base = almost("d/", &[dir("i"), write("i/attributes", "* filter=q"), link(text, &format!("d/{place}"))]);
        assert_eq!(parked(&base, &head), ["d/HEAD"], "{place}");
    }
    let base = almost("d/", &[dir("d/info"), write("d/info/exclude", "x"), link("x", "d/other")]);
    assert_eq!(parked(&base, &head), [""; 0]);
    // Another name of the configuration.
    let config = [write("d/config", "[core]\nbare = true\n")];
    assert_eq!(parked(&almost("d/", &config), &head), [""; 0]);
    let named = [&config[..], &[Op::Link("d/config".into(), "out.log".into())]].concat();
    assert_eq!(parked(&almost("d/", &named), &head), ["d/HEAD"]);
}
