//! A git repository that a run makes inside another one: the user's next commits at its place would be its own.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename, write};
use nexus_layer::{Committed, Layer, LayerMode, Rules};

const HEAD: &str = "ref: refs/heads/main\n";
const EVIL: &str = "[core]\nrepositoryformatversion = 0\nbare = false\n[remote \"origin\"]\nurl = https://evil.example.org/a\n\
    fetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\nremote = origin\nmerge = refs/heads/main\n";

fn dir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

fn gone(path: &str) -> Op {
    Op::RemoveTree(b(path))
}

/// The files of a repository, in a directory that they make.
fn repository(at: &str, config: &str) -> Vec<Op> {
    let place = |name: &str| format!("{at}/{name}");
    let directories = ["objects", "refs", "refs/heads"].map(|name| dir(&place(name)));
    let files = [write(&place("HEAD"), HEAD), write(&place("config"), config)];
    [vec![dir(at)], directories.to_vec(), files.to_vec()].concat()
}

fn evil(at: &str) -> Vec<Op> {
    repository(at, EVIL)
}

fn ops(parts: &[&[Op]]) -> Vec<Op> {
    parts.concat()
}

/// The files of a workspace, below `at`.
fn files(at: &str) -> Vec<Op> {
    vec![
        dir(&format!("{at}src")),
        write(&format!("{at}src/b"), "b"),
        write(&format!("{at}c"), "c"),
        dir(&format!("{at}sub")),
        dir(&format!("{at}almost")),
        dir(&format!("{at}almost/refs")),
    ]
}

fn commit(base: &[Op], run: &[Op]) -> (Scene, Committed) {
    let scene = Scene::one_of_many(LayerMode::Root, base);
    let result = scene.layer(run).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(result.conflicts, [], "{run:?}");
    (scene, result)
}

fn parked(result: &Committed) -> Vec<String> {
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

/// Each row: what the run does, the place that must not be there afterwards, and what waits as a whole.
fn variants() -> Vec<(Vec<Op>, &'static str, &'static str)> {
    vec![
        (evil("src/.git"), "src/.git", "src/.git"),
        // Files of the outer repository that are gone since an earlier run, on another branch, or come with a pull.
        (ops(&[&[dir("docs")], &evil("docs/.git")]), "docs/.git", "docs"),
        (ops(&[&[dir("p"), dir("p/q")], &evil("p/q/.git")]), "p/q/.git", "p/q"),
        (ops(&[&[gone("src"), dir("src")], &evil("src/.git")]), "src/.git", "src/.git"),
        (ops(&[&[gone("c"), dir("c")], &evil("c/.git")]), "c/.git", "c"),
        (ops(&[&[rename("src", "lib")], &evil("lib/.git")]), "lib/.git", "lib/.git"),
        // A submodule that is not initialised.
        (evil("sub/.git"), "sub/.git", "sub/.git"),
        (ops(&[&[gone("sub"), dir("sub2")], &evil("sub2/.git"), &[rename("sub2", "sub")]]), "sub/.git", "sub/.git"),
        // Without the name `.git`.
        (evil("bare.git"), "bare.git", "bare.git"),
        (evil("almost"), "almost/HEAD", "almost/HEAD"),
    ]
}

#[test]
fn a_repository_inside_another_one_waits_as_a_whole() {
    for (run, place, whole) in variants() {
        let (scene, result) = commit(&ops(&[&repository(".git", "[core]\nbare = false\n"), &files("")]), &run);
        let first = result.parked.first().unwrap();
        assert_eq!(String::from_utf8_lossy(&first.path.0), whole, "{run:?} {:?}", parked(&result));
        assert!(first.protected.as_ref().unwrap().contains("a repository inside a repository"), "{first:?}");
        assert!(!scene.ws().join(place).exists(), "{place}");
        // The twin: nothing is around it.
        let (scene, result) = commit(&files(""), &run);
        assert!(scene.ws().join(place).exists(), "{place} waits: {:?}", parked(&result));
    }
}

/// Without their `.git`, the next `git reset --hard` there would work on the outer repository.
#[test]
fn the_files_of_a_new_repository_wait_with_its_git() {
    let base = ops(&[&repository(".git", "[core]\nbare = false\n"), &files("")]);
    let beside = [write("beside", "1"), write("c", "2")];
    let tree = |at: &str, more: &[Op]| {
        let place = |name: &str| format!("{at}/{name}");
        ops(&[more, &[write(&place("new"), "n"), dir(&place("d")), write(&place("d/x"), "x")], &beside])
    };
    let file = |at: &str| write(&format!("{at}/.git"), "gitdir: ../.git/worktrees/w\n");
    let hook = [dir("docs/.git/hooks"), write("docs/.git/hooks/post-checkout", "#!/bin/sh\n")];
    for (top, is_new, run) in [
        ("docs", true, tree("docs", &ops(&[&[dir("docs")], &evil("docs/.git"), &hook]))),
        ("src", false, tree("src", &ops(&[&evil("src/.git"), &[write("src/b", "B")]]))),
        ("src", false, tree("src", &ops(&[&[gone("src"), dir("src")], &evil("src/.git"), &[write("src/b", "B")]]))),
        // A further working tree and a submodule.
        ("wt", true, tree("wt", &[dir("wt"), file("wt")])),
        ("sub", false, tree("sub", &[file("sub")])),
    ] {
        let (scene, result) = commit(&base, &run);
        let waits = parked(&result);
        let read = |name: &str| std::fs::read_to_string(scene.ws().join(name)).unwrap_or_default();
        assert!(waits.iter().all(|path| path == top || path.starts_with(&format!("{top}/"))), "{waits:?}");
        assert_eq!(waits[0] == top, is_new, "{waits:?}");
        let why = format!("accept it with nexus changes accept {top}");
        assert!(result.parked[0].protected.as_ref().unwrap().ends_with(&why), "{:?}", result.parked[0]);
        for name in [".git", "new", "d"] {
            assert!(!scene.ws().join(top).join(name).exists(), "{top}/{name}");
        }
        assert_eq!((&*read("src/b"), &*read("beside"), &*read("c")), ("b", "1", "2"), "{top}");
        // Its name brings all of it but what waits for its own reasons.
        let paths = vec![top.into()];
        let rules = Rules { only: Some(paths.clone()), named: paths, ..Rules::default() };
        let result = Layer::open(&scene.path("layers"), "run").unwrap().commit(&scene.workspace(), &rules).unwrap();
        for name in [".git", "new", "d/x"] {
            assert!(scene.ws().join(top).join(name).exists(), "{top}/{name} {:?}", parked(&result));
        }
        let hooks = parked(&result).iter().all(|path| path.starts_with("docs/.git/hooks"));
        assert!(hooks && !scene.ws().join("docs/.git/hooks/post-checkout").exists(), "{:?}", parked(&result));
    }
    // The twins: without `.git`, and with nothing around it.
    for (base, run) in [
        (base, tree("docs", &[dir("docs")])),
        (files(""), tree("docs", &ops(&[&[dir("docs")], &evil("docs/.git")]))),
        (files(""), tree("src", &ops(&[&evil("src/.git"), &[write("src/b", "B")]]))),
    ] {
        assert_eq!(parked(&commit(&base, &run).1), [""; 0], "{run:?}");
    }
}

/// git takes no notice of such a directory, until a later run gives it the rest.
#[test]
fn a_git_directory_that_is_finished_later_waits() {
    let outer = repository(".git", "[core]\nbare = false\n");
    let is_missing = |one: &Op, lacks: &[&str]| {
        let (Op::Write(path, _) | Op::Mkdir(path)) = one else { return false };
        let path = String::from_utf8_lossy(path);
        let name = path.trim_start_matches("src/.git").split('/').nth(1).unwrap_or_default();
        lacks.contains(&name)
    };
    let part = |lacks: &[&str], missing: bool| -> Vec<Op> {
        evil("src/.git").into_iter().filter(|one| is_missing(one, lacks) == missing).collect()
    };
    for lacks in [&["HEAD"][..], &["objects"], &["refs"], &["HEAD", "objects", "refs"]] {
        // New, with and without a repository around it.
        for base in [files(""), ops(&[&files(""), &outer])] {
            let (scene, result) = commit(&base, &part(lacks, false));
            assert_eq!(parked(&result)[0], "src/.git", "{lacks:?}");
            assert!(!scene.ws().join("src/.git").exists(), "{lacks:?}");
        }
        // Finished: the missing parts and what else the run changed wait.
        let base = ops(&[&files(""), &part(lacks, false)]);
        let run = ops(&[&part(lacks, true), &[write("src/b", "B")]]);
        let (scene, result) = commit(&ops(&[&base, &outer]), &run);
        for name in lacks {
            assert!(!scene.ws().join("src/.git").join(name).exists(), "{lacks:?} {name} {:?}", parked(&result));
        }
        assert!(parked(&result).contains(&"src/b".to_owned()), "{:?}", parked(&result));
        // Its name brings it, and with nothing around it comes unasked.
        let named = vec!["src".into()];
        let rules = Rules { only: Some(named.clone()), named, ..Rules::default() };
        let result = Layer::open(&scene.path("layers"), "run").unwrap().commit(&scene.workspace(), &rules).unwrap();
        assert!(scene.ws().join("src/.git/HEAD").exists(), "{:?}", parked(&result));
        let (scene, result) = commit(&base, &run);
        assert!(scene.ws().join("src/.git/HEAD").exists(), "{lacks:?} {:?}", parked(&result));
    }
    // The twin: a repository that was one before.
    let base = ops(&[&files(""), &outer, &evil("src/.git")]);
    let run = [write("src/.git/HEAD", "ref: refs/heads/other\n"), dir("src/.git/objects/aa"), write("src/b", "B")];
    assert_eq!(parked(&commit(&base, &run).1), [""; 0]);
}

/// A repository that is away for one run is not around what that run makes, and comes back in the next one.
#[test]
fn a_repository_with_objects_does_not_go_unasked() {
    let objects = |at: &str| vec![dir(&format!("{at}/objects/aa")), write(&format!("{at}/objects/aa/bb"), "x")];
    let packed = |at: &str| vec![dir(&format!("{at}/objects/pack")), write(&format!("{at}/objects/pack/p.idx"), "x")];
    let plain = |at: &str| repository(at, "[core]\nbare = false\n");
    for (more, waits) in [(objects as fn(&str) -> Vec<Op>, true), (packed, true), (|_| vec![], false)] {
        let base = ops(&[&files(""), &plain(".git"), &more(".git"), &plain("src/.git"), &more("src/.git")]);
        for (run, place) in [
            (vec![gone(".git")], ".git"),
            (vec![gone("src/.git")], "src/.git"),
            (vec![gone("src")], "src"),
            (vec![gone(".git"), write("notes.bin", "x")], ".git"),
        ] {
            let (scene, result) = commit(&base, &run);
            let wanted: &[&str] = if waits { &[place] } else { &[] };
            assert_eq!(parked(&result), wanted, "{run:?}");
            assert_eq!(scene.ws().join(place).join("").exists(), waits, "{run:?}");
            if waits {
                let rules = Rules { accept_protected: true, ..Rules::default() };
                Layer::open(&scene.path("layers"), "run").unwrap().commit(&scene.workspace(), &rules).unwrap();
                assert!(!scene.ws().join(place).exists(), "{run:?}");
            }
        }
        // With its working tree it may get another name.
        let moved = vec![rename("src", "lib")];
        assert_eq!(parked(&commit(&base, &moved).1), [""; 0]);
    }
}

/// The outer repository may be around the workspace, a working tree with a `.git` file, or a directory of the workspace.
#[test]
fn each_kind_of_outer_repository_counts() {
    let run = |at: &str| ops(&[&[dir(&format!("{at}docs"))], &evil(&format!("{at}docs/.git"))]);
    let file = write(".git", "gitdir: /elsewhere/.git/worktrees/w\n");
    let inner = ops(&[&[dir("a")], &repository("a/.git", ""), &files("a/")]);
    for (base, run, waits) in [
        (vec![file], run(""), true),
        (inner.clone(), run("a/"), true),
        (inner.clone(), run(""), false),
        // The outer repository moves in the same run.
        (inner.clone(), ops(&[&[rename("a", "z")], &run("z/")]), true),
        // The outer repository comes in the same run.
        (inner, ops(&[&[dir("new")], &evil("new/.git"), &run("new/")]), true),
        (files(""), ops(&[&evil(".git"), &run("")]), true),
        (files(""), run(""), false),
    ] {
        let (scene, result) = commit(&base, &run);
        let has = |at: &str| scene.ws().join(at).join("docs/.git").exists();
        assert_eq!(!["", "a", "z", "new"].iter().any(|at| has(at)), waits, "{run:?} {:?}", parked(&result));
    }
}

/// The git directory of a further working tree names the shared one. With objects of its own it would be another repository.
#[test]
fn below_a_git_directory_no_repository_of_its_own_comes() {
    let base = repository(".git", "[core]\nbare = false\n");
    let tree = |more: &[Op]| {
        let files = [
            write(".git/worktrees/w/HEAD", HEAD),
            write(".git/worktrees/w/gitdir", "/ws/w/.git\n"),
            dir(".git/worktrees/w/refs"),
        ];
        ops(&[&[dir(".git/worktrees"), dir(".git/worktrees/w")], &files, more])
    };
    let usual = write(".git/worktrees/w/commondir", "../..\n");
    for (run, place, waits) in [
        (tree(&[dir(".git/worktrees/w/objects")]), ".git/worktrees/w", true),
        (tree(&[usual.clone(), dir(".git/worktrees/w/objects")]), ".git/worktrees/w", true),
        (ops(&[&[dir(".git/modules")], &evil(".git/modules/m")]), ".git/modules/m", true),
        (evil(".git/other"), ".git/other", true),
        (tree(&[usual]), ".git/worktrees/w", false),
    ] {
        let (scene, result) = commit(&base, &run);
        assert_eq!(!scene.ws().join(place).exists(), waits, "{run:?} {:?}", parked(&result));
        let whole = result.parked.first().is_some_and(|first| String::from_utf8_lossy(&first.path.0) == place);
        assert_eq!(whole, waits, "{:?}", parked(&result));
    }
}

fn link(text: &str, path: &str) -> Op {
    Op::Symlink(b(text), b(path))
}

/// Below such a link, the user's commits would go to the other repository.
#[test]
fn a_link_into_another_repository_waits() {
    let base = ops(&[&repository(".git", "[core]\nbare = false\n"), &files("")]);
    let hidden = ops(&[&[gone("src"), dir(".x"), dir(".x/src")], &evil(".x/src/.git")]);
    let deeper = ops(&[&[gone("src"), dir(".x"), dir(".x/src")], &evil(".x/.git")]);
    let other = ops(&[&[dir("a")], &repository("a/.git", ""), &files("a/"), &[dir("o"), dir("o/s")], &evil("o/.git")]);
    let plain = ops(&[&[dir("a")], &repository("a/.git", ""), &files("a/"), &[dir("o"), dir("o/s")]]);
    let staged = ops(&[&other, &[dir("stage"), link("../../o/s", "stage/src")]]);
    for (base, run, at, waits) in [
        (&base, ops(&[&hidden, &[link(".x/src", "src")]]), "src", true),
        (&base, ops(&[&deeper, &[link(".x/src", "src")]]), "src", true),
        // Above a new repository, and through another link.
        (&base, ops(&[&hidden, &[link(".x", "p")]]), "p", true),
        (&base, ops(&[&hidden, &[link(".x/src", "one"), link("one", "two")]]), "two", true),
        // To a repository of an earlier run, which nothing was around.
        (&other, vec![gone("a/src"), link("../o/s", "a/src")], "a/src", true),
        (&other, vec![link("../o", "a/p")], "a/p", true),
        (&other, vec![link("..", "a/p")], "a/p", true),
        (&plain, ops(&[&evil("o/.git"), &[link("../o/s", "a/p")]]), "a/p", true),
        (&staged, vec![rename("stage", "a/p")], "a/p/src", true),
        // Within one repository, to a plain directory, and where no repository is around the link.
        (&base, vec![link("src", "p"), link("..", "src/up")], "src/up", false),
        (&other, vec![link("src", "a/p")], "a/p", false),
        (&plain, vec![link("../o/s", "a/p")], "a/p", false),
        (&other, vec![link("o/s", "p")], "p", false),
        (
            &base,
            ops(&[&[dir("n")], &evil("n/.git"), &[dir("n/d"), link("../d", "n/d/l"), link("d", "n/l")]]),
            "n/l",
            // With the working tree that it is in.
            true,
        ),
        (
            &files(""),
            ops(&[&[dir("n")], &evil("n/.git"), &[dir("n/d"), link("../d", "n/d/l"), link("d", "n/l")]]),
            "n/l",
            false,
        ),
    ] {
        let (scene, result) = commit(base, &run);
        assert_eq!(!scene.ws().join(at).is_symlink(), waits, "{run:?} {:?}", parked(&result));
    }
    // A link that stays as it was needs no accept.
    let led = ops(&[&other, &[link("../o/s", "a/l")]]);
    assert_eq!(parked(&commit(&led, &[Op::Touch(b("a/l"))]).1), [""; 0]);
}

/// The link may come from an earlier run, when no repository was there.
#[test]
fn a_repository_to_which_links_of_another_lead_waits() {
    let plain = ops(&[&[dir("a")], &repository("a/.git", ""), &files("a/"), &[dir("o"), dir("o/s"), dir("p")]]);
    let with = |links: &[Op]| ops(&[&plain, links]);
    let below = [dir("a/d"), link("../../o/s", "a/d/l"), link("l", "a/d/m")];
    let deep = [dir("p/x"), link("../../../o", "p/x/l")];
    for (base, run, at, waits) in [
        // To, into and above the new one, through another link, to what is not there yet, and from below the repository's top.
        (with(&[link("../o", "a/l")]), evil("o/.git"), "o/.git", true),
        (with(&[link("../o/s", "a/l")]), evil("o/.git"), "o/.git", true),
        (with(&[link("../o", "a/l")]), evil("o/s/.git"), "o/s/.git", true),
        (with(&[link("../one", "a/l"), link("o", "one")]), evil("o/.git"), "o/.git", true),
        (
            with(&[link("../one", "a/l"), link("p", "one")]),
            ops(&[&[gone("one"), link("o", "one")], &evil("o/.git")]),
            "o/.git",
            true,
        ),
        (with(&[link("../new", "a/l")]), ops(&[&[dir("new")], &evil("new/.git")]), "new/.git", true),
        (with(&below), evil("o/.git"), "o/.git", true),
        (with(&[link("../..", "a/l")]), evil("o/.git"), "o/.git", true),
        (with(&[link("../o", "a/l")]), ops(&[&evil("p/git"), &[rename("p/git", "o/.git")]]), "o/.git", true),
        // Elsewhere, from no repository, from the new one itself, within the other one, and at the top of the workspace.
        (with(&[link("../o", "a/l")]), evil("p/.git"), "p/.git", false),
        (with(&[link("../o", "p/l")]), evil("o/.git"), "o/.git", false),
        (with(&[link("s", "o/l"), link("..", "o/s/up")]), evil("o/.git"), "o/.git", false),
        (with(&[link("src", "a/l")]), evil("o/.git"), "o/.git", false),
        (with(&[link("../o", "a/l")]), evil(".git"), ".git", false),
        (with(&deep), evil("o/.git"), "o/.git", false),
    ] {
        let (scene, result) = commit(&base, &run);
        assert_eq!(!scene.ws().join(at).exists(), waits, "{base:?} {run:?} {:?}", parked(&result));
        let why = result.parked.first().map(|first| first.protected.clone().unwrap());
        assert_eq!(why.is_some_and(|why| why.contains("links of another one lead")), waits, "{run:?}");
    }
}

/// A repository of the user beside the workspace may have another remote.
#[test]
fn a_link_to_a_repository_outside_waits() {
    let own = ops(&[&repository(".git", ""), &files("")]);
    let inner = ops(&[&[dir("a")], &repository("a/.git", ""), &files("a/"), &[dir("x")]]);
    let led = ops(&[&own, &[dir("p"), dir("p/q"), link("../../pub", "p/q/l")]]);
    let taken = |text: &str| vec![gone("src"), link(text, "src")];
    for (base, run, at, waits) in [
        (&own, taken("../pub/src"), "src", true),
        (&own, taken("../pub"), "src", true),
        (&own, taken("../pub/none"), "src", true),
        (&own, taken("../bare.git/refs"), "src", true),
        (&own, taken("../tree"), "src", true),
        (&own, vec![link("../data/on", "p")], "p", true),
        (&own, vec![link("../pub/src", "one"), link("one", "two")], "two", true),
        (&inner, vec![link("../../pub", "a/p")], "a/p", true),
        // The directory of a link of the user comes to a place from where it leads there.
        (&led, vec![rename("p/q", "q")], "q/l", true),
        // Where no repository is, to a file, where the link itself lies in none, and a link of before.
        (&own, taken("../data"), "src", false),
        (&own, taken("../none"), "src", false),
        (&own, taken("/usr/share"), "src", false),
        (&own, taken(".."), "src", false),
        (&own, vec![link("../pub/src/b", "p")], "p", false),
        (&inner, vec![link("../pub/src", "p"), link("../../pub", "x/p")], "x/p", false),
        (&led, vec![Op::Touch(b("p/q/l"))], "p/q/l", false),
    ] {
        let scene = beside(base);
        let result = scene.layer(&run).commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(!scene.ws().join(at).is_symlink(), waits, "{run:?} {:?}", parked(&result));
    }
}

/// The workspace is a directory of a repository, in which it may have links, and not out of it.
#[test]
fn a_link_within_the_repository_around_comes() {
    for (text, waits) in [("../beside", false), ("..", false), ("../beside/other/src", true), ("/usr/share", false)] {
        let scene = beside(&files(""));
        std::fs::create_dir(scene.path(".git")).unwrap();
        std::fs::create_dir_all(scene.path("beside/other/.git")).unwrap();
        std::fs::create_dir(scene.path("beside/other/src")).unwrap();
        let result = scene.layer(&[link(text, "p")]).commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(!scene.ws().join("p").is_symlink(), waits, "{text} {:?}", parked(&result));
    }
}

/// A workspace with repositories and a plain directory beside it.
fn beside(base: &[Op]) -> Scene {
    let scene = Scene::one_of_many(LayerMode::Root, base);
    for at in ["pub/.git", "pub/src", "bare.git/objects", "bare.git/refs", "tree", "data"] {
        std::fs::create_dir_all(scene.path(at)).unwrap();
    }
    for at in ["pub/src/b", "bare.git/HEAD", "tree/.git"] {
        std::fs::write(scene.path(at), "").unwrap();
    }
    std::os::unix::fs::symlink("../pub/src", scene.path("data/on")).unwrap();
    scene
}

/// git believes them which tree a commit has. It makes them again.
#[test]
fn a_commit_graph_of_a_run_is_left_out_without_a_word() {
    let info = |at: &str| ops(&[&repository(at, ""), &[dir(&format!("{at}/objects/info"))]]);
    let old = ops(&[&info(".git"), &[write(".git/objects/info/commit-graph", "old")]]);
    let bare = info("b.git");
    let chain = "/objects/info/commit-graphs";
    let split = |at: &str| {
        let files = ["commit-graph-chain", "graph-1.graph"].map(|name| write(&format!("{at}{chain}/{name}"), "new"));
        ops(&[&[dir(&format!("{at}{chain}"))], &files])
    };
    let graph = |at: &str| write(&format!("{at}/objects/info/commit-graph"), "new");
    for (base, run, at, wanted) in [
        (&old, vec![graph(".git")], ".git/objects/info/commit-graph", Some("old")),
        (
            &old,
            vec![write("x", "new"), rename("x", ".git/objects/info/commit-graph")],
            ".git/objects/info/commit-graph",
            Some("old"),
        ),
        (&old, split(".git"), ".git/objects/info/commit-graphs/graph-1.graph", None),
        (&bare, vec![graph("b.git")], "b.git/objects/info/commit-graph", None),
        (
            &repository(".git", ""),
            vec![dir(".git/objects/info"), graph(".git")],
            ".git/objects/info/commit-graph",
            None,
        ),
        (
            &vec![dir("n")],
            ops(&[&info("n/.git"), &split("n/.git")]),
            "n/.git/objects/info/commit-graphs/commit-graph-chain",
            None,
        ),
        (&vec![], ops(&[&info("n.git"), &[graph("n.git")]]), "n.git/objects/info/commit-graph", None),
        // Its neighbours, and a file of this name elsewhere.
        (&old, vec![write(".git/objects/info/packs", "new")], ".git/objects/info/packs", Some("new")),
        (
            &vec![dir("d")],
            ops(&[&[dir("d/objects"), dir("d/objects/info")], &[graph("d")]]),
            "d/objects/info/commit-graph",
            Some("new"),
        ),
    ] {
        let (scene, result) = commit(base, &ops(&[&run, &[write("z", "z")]]));
        assert_eq!(parked(&result), [""; 0], "{run:?}");
        assert_eq!(std::fs::read_to_string(scene.ws().join(at)).ok().as_deref(), wanted, "{run:?}");
        assert!(scene.ws().join("z").exists() && scene.ws().join(at).parent().unwrap().exists());
    }
    // A directory of the workspace that comes to the place waits, since it may hold graphs.
    let junk = ops(&[&old, &[dir("j"), write("j/commit-graph", "new"), write("j/graph-1.graph", "new")]]);
    for (run, at) in [
        (vec![rename("j", ".git/objects/info/commit-graphs")], ".git/objects/info/commit-graphs"),
        (vec![gone(".git/objects/info"), rename("j", ".git/objects/info")], ".git/objects/info"),
    ] {
        let (_, result) = commit(&junk, &run);
        assert!(parked(&result).iter().any(|one| one == at), "{run:?} {:?}", parked(&result));
    }
}

/// Names in this file are not shown by `git status`.
#[test]
fn what_git_status_leaves_out_does_not_change_unasked() {
    let exclude = |at: &str, text: &str| write(&format!("{at}/info/exclude"), text);
    let comments = "# git ls-files --others --exclude-from=.git/info/exclude\n";
    let bare = repository(".git", "[core]\nbare = false\n");
    let base = ops(&[&bare, &[dir(".git/info"), exclude(".git", comments)]]);
    let own = ops(&[&bare, &[dir(".git/info"), exclude(".git", "/docs\n")]]);
    let fresh = ops(&[&repository("n/.git", ""), &[dir("n/.git/info"), exclude("n/.git", "/docs\n")]]);
    let fresh = ops(&[&[dir("n")], &fresh]);
    let at = ".git/info/exclude";
    for (base, run, waits) in [
        (&base, vec![exclude(".git", "/docs\n")], vec![at]),
        (&base, vec![gone(".git/info"), dir(".git/info"), exclude(".git", "/docs\n")], vec![at]),
        (&bare, vec![dir(".git/info"), exclude(".git", "/docs\n")], vec![at]),
        (&bare, vec![dir("x"), write("x/exclude", "*"), rename("x", ".git/info")], vec![at]),
        (&own, vec![gone(at)], vec![at]),
        // What says nothing, what goes with its repository, and a repository that brings its own.
        (&bare, vec![dir(".git/info"), exclude(".git", comments)], vec![]),
        (&base, vec![gone(at)], vec![]),
        (&own, vec![gone(".git")], vec![]),
        (&vec![], fresh.clone(), vec![]),
        (&fresh, vec![rename("n", "m")], vec![]),
    ] {
        let (_, result) = commit(base, &run);
        assert_eq!(parked(&result), waits, "{run:?}");
    }
}
