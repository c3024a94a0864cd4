//! Refs wait where commits that they lead to need objects which are not there, in the run or after a kill: with the real git.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene, dying};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::{Faults, Layer, Rules};
use repository::{accept, cloned_scene, commit_by, git, parked, run_with, scene_like};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn id(dir: &Path, what: &str) -> String {
    git(dir, &["rev-parse", what]).trim().to_owned()
}

/// Removes the loose object that a name leads to.
fn remove_object(dir: &Path, what: &str) {
    let id = id(dir, what);
    fs::remove_file(dir.join(".git/objects").join(&id[..2]).join(&id[2..])).unwrap();
}

fn assert_sound(scene: &Scene, context: &str) {
    let told = git(&scene.ws(), &["fsck", "--full"]);
    assert!(!["missing", "broken", "error", "fatal"].iter().any(|word| told.contains(word)), "{context}: {told}");
}

/// Two commits of a run in a clone, with a directory.
fn two_commits(upper: &Path) {
    for text in ["second", "third"] {
        fs::create_dir_all(upper.join("of/run")).unwrap();
        fs::write(upper.join("of/run/file"), text).unwrap();
        git(upper, &["add", "."]);
        git(upper, &["commit", "-q", "-m", text]);
    }
}

type Naming = (&'static str, fn(&Path));

#[test]
fn a_commit_without_all_that_it_needs_waits() {
    let ways: [Naming; 4] = [
        ("as the branch", |_| {}),
        ("packed refs", |upper| drop(git(upper, &["pack-refs", "--all"]))),
        ("another branch", |upper| {
            git(upper, &["branch", "new"]);
            git(upper, &["reset", "-q", "--hard", "HEAD~2"]);
        }),
        ("a tag", |upper| {
            git(upper, &["tag", "-a", "-m", "new", "new"]);
            git(upper, &["reset", "-q", "--hard", "HEAD~2"]);
        }),
    ];
    for missing in ["", "HEAD^{tree}", "HEAD:of", "HEAD:of/run/file", "HEAD~1", "HEAD~1^{tree}", "HEAD~1:of/run/file"] {
        for (way, then) in ways {
            let scene = cloned_scene();
            let old = id(&scene.ws(), "main");
            let layer = run_with(&scene, |upper| {
                two_commits(upper);
                let gone = if missing.is_empty() { None } else { Some(id(upper, missing)) };
                then(upper);
                if let Some(gone) = gone {
                    remove_object(upper, &gone);
                }
            });
            let result = commit_by(&scene, &layer, &Rules::default());
            let waits = parked(&result).iter().any(|path| path.starts_with(".git/refs/") || path == ".git/packed-refs");
            assert_eq!(waits, !missing.is_empty(), "{missing} {way}: {result:?}");
            assert_sound(&scene, &format!("{missing} {way}"));
            if waits {
                assert_eq!(id(&scene.ws(), "main"), old, "{missing} {way}");
            }
        }
    }
}

#[test]
fn a_branch_that_names_no_commit_waits() {
    for (what, waits) in [("main^{tree}", true), ("main:f", true), ("main", false)] {
        let scene = cloned_scene();
        let layer = run_with(&scene, |upper| {
            let id = id(upper, what);
            fs::write(upper.join(".git/refs/heads/new"), format!("{id}\n")).unwrap();
            git(upper, &["tag", "of-a-tree", "main^{tree}"]);
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!(parked(&result).iter().any(|path| path == ".git/refs/heads/new"), waits, "{what}: {result:?}");
        assert_eq!(scene.ws().join(".git/refs/tags/of-a-tree").exists(), !waits, "{what}");
    }
}

/// Ordinary work of git comes: nothing that it needs is missing.
#[test]
fn ordinary_work_needs_nothing_that_is_missing() {
    let works: [&[&[&str]]; 7] = [
        // git has no object for the tree without entries.
        &[&["rm", "-q", "-r", "."], &["commit", "-q", "-m", "nothing"]],
        &[&["commit", "-q", "--allow-empty", "-m", "empty"]],
        &[&["commit", "-q", "--allow-empty", "-m", "empty"], &["gc", "-q"]],
        &[&["commit", "-q", "--amend", "-m", "amended"], &["reflog", "expire", "--expire=now", "--all"], &["gc", "-q"]],
        &[&["tag", "-a", "-m", "t", "t", "old"], &["branch", "-D", "old"]],
        &[&["rm", "-q", "-r", "src"], &["commit", "-q", "-m", "less"], &["repack", "-q", "-a", "-d"]],
        &[&["commit", "-q", "--allow-empty", "-m", "x"], &["branch", "y"], &["pack-refs", "--all"]],
    ];
    for work in works {
        let scene = cloned_scene();
        let layer = repository::run_git(&scene, work);
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{work:?}");
        assert_sound(&scene, &format!("{work:?}"));
    }
}

/// A workspace that has what a run commits, since long ago, and that no ref leads to.
fn with_unreachable_objects(packed: bool) -> Scene {
    scene_like(&format!("unreachable, packed {packed}"), || {
        let scene = cloned_scene();
        let ws = scene.ws();
        fs::create_dir(ws.join("u")).unwrap();
        fs::write(ws.join("u/u"), "unreachable").unwrap();
        git(&ws, &["add", "u"]);
        git(&ws, &["commit", "-q", "-m", "u"]);
        if packed {
            git(&ws, &["repack", "-q", "-a", "-d"]);
        }
        git(&ws, &["reset", "-q", "--soft", "HEAD~1"]);
        git(&ws, &["reset", "-q"]);
        git(&ws, &["reflog", "expire", "--expire=now", "--all"]);
        let age = ["-type", "f", "-exec", "touch", "-d", "2020-01-01", "{}", "+"];
        let aged = Command::new("find").arg(ws.join(".git/objects")).args(age).status();
        assert!(aged.unwrap().success());
        scene
    })
}

fn with_unreachable(packed: bool) -> (Scene, Layer) {
    let scene = with_unreachable_objects(packed);
    let layer = run_with(&scene, |upper| {
        git(upper, &["add", "u"]);
        git(upper, &["commit", "-q", "-m", "of the run"]);
    });
    (scene, layer)
}

/// The host removes objects between a kill of the commit and its recovery. What the commit brought already may be among them.
fn host_prunes(packed: bool, work: &[&str], takes_new: bool) {
    let (mut kills, mut kept, mut nth) = (0, 0, 1);
    loop {
        let (scene, mut layer) = with_unreachable(packed);
        let context = format!("{work:?} {nth}");
        layer.set_faults(dying(&scene, nth));
        let workspace = scene.workspace();
        let done = catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &Rules::default()))));
        drop(layer);
        git(&scene.ws(), work);
        recover_with(&scene.path("layers"), "run", &scene.workspace(), &Faults::default()).unwrap();
        assert_sound(&scene, &context);
        let is_there = || git(&scene.ws(), &["log", "--format=%s", "main"]).contains("of the run");
        if !is_there() {
            kept += 1;
            let result = accept(&scene, &Rules::default());
            assert_sound(&scene, &context);
            if is_there() {
                assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{context}");
                assert_eq!(git(&scene.ws(), &["status", "--porcelain"]), "", "{context}");
            } else {
                let reasons = format!("{:?}", result.parked);
                assert!(takes_new && reasons.contains("neither here nor in the run"), "{context}: {result:?}");
            }
        }
        if done.is_ok() {
            break;
        }
        (kills, nth) = (kills + 1, nth + 3);
    }
    assert!(kills > 5 && kept > 1, "{work:?}: {kills} {kept}");
}

#[test]
fn refs_whose_objects_went_after_a_kill_wait_with_the_objects_of_the_run() {
    host_prunes(false, &["prune", "--expire=1.hour.ago"], false);
    host_prunes(true, &["repack", "-q", "-a", "-d"], false);
    host_prunes(false, &["prune", "--expire=now"], true);
}

fn git_op(words: &[&str]) -> Op {
    Op::Git(words.iter().map(|word| (*word).to_owned()).collect())
}

/// Prunes as the host, once the journal of a commit is there and the commit then reached its `nth` point between two steps. Returns
/// whether it came to that.
fn commit_and_prune(scene: &Scene, layer: &mut Layer, nth: usize, kills: bool) -> bool {
    let (ws, journal) = (scene.ws(), scene.path("layers/run/journal"));
    let (count, is_reached) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let reached = Arc::clone(&is_reached);
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if journal.exists() && count.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            reached.store(true, Ordering::SeqCst);
            git(&ws, &["prune", "--expire=1.hour.ago"]);
            if kills {
                std::panic::panic_any("crash");
            }
        }
    })));
    let workspace = scene.workspace();
    let done = catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &Rules::default()))));
    let is_reached = is_reached.load(Ordering::SeqCst);
    assert_eq!(done.is_err(), kills && is_reached);
    is_reached
}

/// The next accept brings what a commit kept back whose objects went meanwhile. `is_here` reports whether the work of the run is in
/// the workspace.
fn assert_comes_later(scene: &Scene, is_here: &dyn Fn() -> bool, context: &str) -> bool {
    recover_with(&scene.path("layers"), "run", &scene.workspace(), &Faults::default()).unwrap();
    assert_sound(scene, context);
    if is_here() {
        return false;
    }
    let result = accept(scene, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{context}: {result:?}");
    assert_sound(scene, context);
    assert!(is_here(), "{context}");
    true
}

/// The same with a real overlay, which knows the files that the run's copies of objects were made from; without and with a kill, at
/// each step, and with a staged file alone.
#[test]
fn objects_that_the_host_removes_after_the_decision_come_with_the_next_accept() {
    // The last one leaves the file to an older stash, which the log of stashes alone names.
    let stashes = "add u,stash -q,commit -q --allow-empty -m x,rm -q f,stash -q";
    for (work, wanted, step) in [("add u,commit -q -m of-the-run", "u/u", 1), ("add u", "u/u", 3), (stashes, "", 9)] {
        for kills in [true, false] {
            let (mut nth, mut later) = (1, 0);
            loop {
                let scene = with_unreachable_objects(false);
                let mut layer = scene.layer(&git_ops(work));
                let context = format!("{work} {kills} {nth}");
                let is_reached = commit_and_prune(&scene, &mut layer, nth, kills);
                drop(layer);
                let is_here = || match wanted {
                    "" => git(&scene.ws(), &["stash", "list"]).lines().count() == 2,
                    _ => git(&scene.ws(), &["ls-files", wanted]) == format!("{wanted}\n"),
                };
                later += u32::from(assert_comes_later(&scene, &is_here, &context));
                if !is_reached {
                    break;
                }
                nth += step;
            }
            assert!(nth > 2 && later > 0, "{work} {kills}: {nth} {later}");
        }
    }
}

/// In a repository that borrows or fetches objects, one that is not found need not be missing, but the copies of the run stay.
#[test]
fn copies_of_objects_stay_also_where_the_repository_borrows_or_fetches_some() {
    for way in ["alternates", "promisor"] {
        for (work, kills) in [("add u,commit -q -m of-the-run", true), ("add u,commit -q -m of-the-run", false)] {
            let scene = with_unreachable_objects(false);
            let objects = scene.ws().join(".git/objects");
            match way {
                "alternates" => {
                    let lender = scene.path("origin.git/objects");
                    fs::write(objects.join("info/alternates"), format!("{}\n", lender.display())).unwrap();
                }
                _ => fs::write(objects.join("pack/pack-of-a-promise.promisor"), "").unwrap(),
            }
            let mut layer = scene.layer(&git_ops(work));
            let context = format!("{way} {kills}");
            assert!(commit_and_prune(&scene, &mut layer, 1, kills), "{context}");
            drop(layer);
            let is_here = || git(&scene.ws(), &["ls-files", "u/u"]) == "u/u\n";
            assert!(assert_comes_later(&scene, &is_here, &context), "{context}: it came although its objects had gone");
        }
    }
}

fn git_ops(work: &str) -> Vec<Op> {
    work.split(',').map(|words| git_op(&words.split(' ').collect::<Vec<_>>())).collect()
}

/// A clone in which `topic` is checked out, without logs, and packed: it leads to `main`, and `side` and `later` lead to it.
fn scene_with_topic() -> Scene {
    scene_like("topic", || {
        let scene = cloned_scene();
        let ws = scene.ws();
        git(&ws, &["config", "core.logAllRefUpdates", "false"]);
        fs::remove_dir_all(ws.join(".git/logs")).unwrap();
        for branch in ["topic", "side"] {
            git(&ws, &["checkout", "-q", "-b", branch]);
            git(&ws, &["commit", "-q", "--allow-empty", "-m", branch]);
        }
        git(&ws, &["branch", "later"]);
        git(&ws, &["checkout", "-q", "topic"]);
        git(&ws, &["commit", "-q", "--allow-empty", "-m", "of the host"]);
        git(&ws, &["branch", "-M", "host"]);
        git(&ws, &["checkout", "-q", "-b", "topic", "side~"]);
        git(&ws, &["pack-refs", "--all"]);
        scene
    })
}

/// The host packs its value of a branch that the run moves as well.
#[test]
fn a_ref_of_a_run_hides_no_commit_that_the_host_packed_meanwhile() {
    let work = git_op(&["commit", "-q", "--allow-empty", "-m", "of the run"]);
    let logged = |words: &[&str]| git_op(&[&["-c", "core.logAllRefUpdates=true"], words].concat());
    let logged_work = logged(&["commit", "-q", "--allow-empty", "-m", "of the run"]);
    let forward = ["update-ref", "refs/heads/topic", "later"];
    let new = ["update-ref", "refs/heads/new", "later"];
    let deep = ["update-ref", "refs/heads/a/new", "later"];
    let pack: &[&str] = &["pack-refs", "--all"];
    let set = |branch, to| vec!["branch", "-f", branch, to];
    let set_topic = |to| vec!["update-ref", "refs/heads/topic", to];
    // What the run and the host do, and whether the branch of the run comes.
    let scenes = [
        // What the host did to other refs, or twice, is not a change of this one.
        (&work, vec![], true),
        (&work, set_topic("topic"), true),
        (&work, vec!["tag", "v1"], true),
        (&logged_work, vec![], true),
        (&logged_work, vec!["tag", "v1"], true),
        (&logged(&forward), vec![], true),
        // A commit of the host that no name would lead to.
        (&work, set_topic("host"), false),
        (&logged_work, set_topic("host"), false),
        (&logged(&forward), set_topic("host"), false),
        // The run has it among its ancestors, and the host has set the branch back or made it.
        (&work, set_topic("main"), false),
        (&logged_work, set_topic("main"), false),
        (&logged(&forward), set_topic("main"), false),
        (&git_op(&forward), set_topic("main"), false),
        (&logged(&new), set("new", "topic"), false),
        (&git_op(&new), set("new", "topic"), false),
        // git puts such a ref into a directory of its own.
        (&logged(&deep), set("a/new", "topic"), false),
        (&git_op(&deep), set("a/new", "topic"), false),
        // Both made the same of it.
        (&git_op(&forward), set_topic("later"), true),
        (&git_op(&new), set("new", "later"), true),
        (&git_op(&deep), set("a/new", "later"), true),
    ];
    for (run, host, comes) in scenes {
        let scene = scene_with_topic();
        let ws = scene.ws();
        let branch = ["new", "a/new"].into_iter().find(|one| host.contains(one)).unwrap_or("topic");
        let layer = scene.layer(std::slice::from_ref(run));
        let context = format!("{run:?} {host:?}");
        if !host.is_empty() {
            let said = git(&ws, &host);
            assert!(!said.contains("fatal"), "{context}: {said}");
        }
        git(&ws, pack);
        let of_host = id(&ws, branch);
        let result = commit_by(&scene, &layer, &Rules::default());
        let named: Vec<_> =
            result.conflicts.iter().map(|one| String::from_utf8_lossy(&one.path.0).into_owned()).collect();
        let is_named = named.contains(&format!(".git/refs/heads/{}", branch.split('/').next().unwrap()));
        assert_eq!((is_named, named.is_empty()), (!comes, comes), "{context}: {named:?}");
        assert_eq!(id(&ws, branch) == of_host, !comes || of_host == id(&ws, "later"), "{context}: {result:?}");
    }
}

#[test]
fn packed_refs_of_a_run_bring_no_branch_back_that_the_host_deleted_after_a_kill() {
    let scene = cloned_scene();
    git(&scene.ws(), &["branch", "topic"]);
    let mut layer = scene.layer(&[git_op(&["pack-refs", "--all"])]);
    layer.set_faults(dying(&scene, 1));
    let workspace = scene.workspace();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &Rules::default())))).is_err());
    drop(layer);
    git(&scene.ws(), &["branch", "-D", "topic"]);
    recover_with(&scene.path("layers"), "run", &scene.workspace(), &Faults::default()).unwrap();
    assert_eq!(git(&scene.ws(), &["branch", "--list", "topic"]), "");
    assert!(git(&scene.ws(), &["branch", "--list", "mine"]).contains("mine"));
}

/// Files that a layer would need first, or that say nothing about the workspace, do not excuse what is missing.
#[test]
fn no_file_of_a_run_switches_the_search_for_missing_objects_off() {
    for way in ["alternates", "promisor", "nonsense", "kinds", "index"] {
        let scene = cloned_scene();
        let layer = run_with(&scene, |upper| {
            let objects = upper.join(".git/objects");
            two_commits(upper);
            match way {
                "alternates" | "promisor" => {
                    let tree = id(upper, "HEAD^{tree}");
                    fs::create_dir_all(objects.join("pack")).unwrap();
                    let (name, text) =
                        if way == "promisor" { ("pack/x.promisor", "") } else { ("info/alternates", "/elsewhere\n") };
                    fs::write(objects.join(name), text).unwrap();
                    fs::remove_file(objects.join(&tree[..2]).join(&tree[2..])).unwrap();
                }
                "nonsense" => {
                    fs::write(upper.join("text"), "nonsense").unwrap();
                    let id = git(upper, &["hash-object", "-w", "-t", "commit", "--literally", "text"]);
                    fs::remove_file(upper.join("text")).unwrap();
                    fs::write(upper.join(".git/refs/heads/main"), id).unwrap();
                }
                "kinds" => {
                    let blob = id(upper, "HEAD:f");
                    let text = format!("tree {blob}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n");
                    fs::write(upper.join("text"), text).unwrap();
                    let id = git(upper, &["hash-object", "-w", "-t", "commit", "--literally", "text"]);
                    fs::remove_file(upper.join("text")).unwrap();
                    fs::write(upper.join(".git/refs/heads/main"), id).unwrap();
                }
                _ => {
                    git(upper, &["reset", "-q", "--hard", "HEAD~2"]);
                    fs::write(upper.join("staged"), "staged").unwrap();
                    git(upper, &["add", "staged"]);
                    let id = git(upper, &["hash-object", "staged"]);
                    fs::remove_file(objects.join(&id[..2]).join(id[2..].trim())).unwrap();
                }
            }
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        let wanted = if way == "index" { ".git/index" } else { ".git/refs/heads/main" };
        assert!(parked(&result).iter().any(|path| path == wanted), "{way}: {result:?}");
        assert_eq!(git(&scene.ws(), &["log", "--format=%s"]), "1\n", "{way}");
        if !matches!(way, "nonsense" | "kinds") {
            assert_sound(&scene, way);
        }
    }
}

/// A tree of many files is read as well.
#[test]
fn a_missing_file_of_a_large_tree_is_seen() {
    for missing in [false, true] {
        let scene = cloned_scene();
        let layer = run_with(&scene, |upper| {
            let blob = id(upper, "main:f");
            fs::write(upper.join("file"), "of the run").unwrap();
            let new = git(upper, &["hash-object", "-w", "file"]).trim().to_owned();
            fs::remove_file(upper.join("file")).unwrap();
            let lines = (0..40_000).map(|at| format!("100644 blob {blob}\tf{at:05}\n")).collect::<Vec<_>>().concat();
            fs::write(upper.join("lines"), format!("{lines}100644 blob {new}\tz\n")).unwrap();
            let made =
                Command::new("sh").args(["-c", "git -c safe.directory=* mktree < lines"]).current_dir(upper).output();
            fs::remove_file(upper.join("lines")).unwrap();
            let tree = String::from_utf8(made.unwrap().stdout).unwrap().trim().to_owned();
            let commit = git(upper, &["commit-tree", "-p", "main", "-m", "large", &tree]);
            git(upper, &["branch", "large", commit.trim()]);
            if missing {
                fs::remove_file(upper.join(".git/objects").join(&new[..2]).join(&new[2..])).unwrap();
            }
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!(parked(&result).iter().any(|path| path == ".git/refs/heads/large"), missing, "{result:?}");
    }
}
