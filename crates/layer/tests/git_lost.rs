//! A run that takes the names of the user's commits away: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Scene, wait_for_tick};
use nexus_layer::{Committed, Layer, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_with, scene_like};
use std::fs;
use std::path::Path;
use std::process::Command;

fn sh(directory: &Path, work: &str) {
    let output = Command::new("sh").args(["-ec", work]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{work}: {output:?}");
}

/// Names the author of commits of a script.
const AUTHOR: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_EDITOR=true GIT_SEQUENCE_EDITOR=true";
/// Begins a history.
const FRESH: &str = "git add .; git -c user.name=a -c user.email=a@b commit -qam fresh";

/// The branches, the reflog, the history and the stash of a repository.
fn known(repository: &Path) -> String {
    [&["for-each-ref"][..], &["reflog"], &["log", "--oneline", "HEAD"], &["stash", "list"]]
        .map(|work| git(repository, work))
        .concat()
}

/// The paths that wait, without the settings of a branch that gets another name.
fn waiting(result: &Committed) -> Vec<String> {
    parked(result).into_iter().filter(|path| path != ".git/config").collect()
}

/// Works in a run, and expects that the names of commits stay as they are until the repository is accepted as a whole.
fn assert_kept(scene: &Scene, work: &str, reason: &str) {
    let before = known(&scene.ws());
    let layer = run_with(scene, |upper| {
        sh(upper, &format!("{AUTHOR}; {work}"));
        fs::write(upper.join("z"), "z").unwrap();
    });
    let result = commit_by(scene, &layer, &Rules::default());
    assert!(result.conflicts.is_empty() && scene.ws().join("z").exists(), "{work}: {result:?}");
    assert_eq!(known(&scene.ws()), before, "{work}: {result:?}");
    let waits = |why: &str| result.parked.iter().any(|one| one.protected.as_ref().is_some_and(|one| one.contains(why)));
    assert!(waits(reason) && waits("nexus changes accept .git"), "{work}: {result:?}");
    drop(layer);
    // A part does not come by its name, and the whole does.
    accept(scene, &named(&[".git/logs", ".git/refs/heads/main", ".git/refs/stash", ".git/packed-refs"]));
    assert_eq!(known(&scene.ws()), before, "{work}");
    assert_eq!(waiting(&accept(scene, &named(&[".git"]))), [""; 0], "{work}");
    assert_ne!(known(&scene.ws()), before, "{work}");
}

/// Works in a run, and expects that the names of commits come.
fn assert_comes(scene: &Scene, work: &str) {
    let mut wanted = String::new();
    let layer = run_with(scene, |upper| {
        sh(upper, &format!("{AUTHOR}; {work}"));
        wanted = known(upper);
    });
    let result = commit_by(scene, &layer, &Rules::default());
    assert_eq!((waiting(&result), result.conflicts.len()), (vec![], 0), "{work}: {result:?}");
    assert_eq!(known(&scene.ws()), wanted, "{work}");
}

/// The logs of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logs {
    Young,
    /// Their entries have this age in days.
    Aged(u64),
    Off,
}

/// A clone whose branches `main` and `mine` have a commit each that is nowhere else.
fn scene_with_branches(logs: Logs, is_packed: bool) -> Scene {
    let scene = scene_like(&format!("branches, packed {is_packed}"), || {
        let scene = cloned_scene();
        let pack = if is_packed { "git pack-refs --all" } else { ":" };
        let commit = |name: &str| format!("echo {name} > {name}; git add {name}; git commit -qm {name}");
        let (work, mine) = (commit("work"), commit("mine"));
        sh(&scene.ws(), &format!("{AUTHOR}; {work}; git checkout -q mine; {mine}; git checkout -q main; {pack}"));
        scene
    });
    age(&scene, logs);
    scene
}

fn age(scene: &Scene, logs: Logs) {
    match logs {
        Logs::Young => {}
        Logs::Aged(days) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            let time = now - days * 24 * 60 * 60;
            sh(&scene.ws(), &format!("find .git/logs -type f -exec sed -Ei 's/> [0-9]+ /> {time} /' {{}} +"));
        }
        Logs::Off => sh(&scene.ws(), "git config core.logAllRefUpdates false; rm -rf .git/logs"),
    }
}

/// A clone, or a bare one in it.
fn scene(is_bare: bool, is_packed: bool) -> (Scene, &'static str) {
    let scene = cloned_scene();
    let place = if is_bare { "b.git" } else { "" };
    if is_bare {
        git(&scene.ws(), &["clone", "-q", "--bare", "--no-hardlinks", ".", "b.git"]);
        // git makes it with packed refs.
        let head = git(&scene.ws(), &["rev-parse", "main"]);
        if !is_packed {
            fs::remove_file(scene.ws().join("b.git/packed-refs")).unwrap();
            fs::write(scene.ws().join("b.git/refs/heads/main"), head).unwrap();
        }
    } else if is_packed {
        git(&scene.ws(), &["pack-refs", "--all"]);
    }
    (scene, place)
}

#[test]
fn branches_and_logs_of_the_user_do_not_go_unasked() {
    let lost = "HEAD names refs/heads/main, which would have no commit any more";
    let (gone, cut) = ("(logs/HEAD) would be gone", "(logs/HEAD) would lose its last entry");
    for (is_packed, work, reason) in [
        (false, "rm -rf .git/refs/heads .git/packed-refs .git/logs", lost),
        (false, "rm -rf .git/refs/heads", lost),
        (false, "rm -rf .git/refs/heads/*", lost),
        (false, "find . -name main -delete", lost),
        (false, "git update-ref -d refs/heads/main", lost),
        (true, "rm -rf .git/packed-refs .git/logs", lost),
        (true, "rm .git/packed-refs", lost),
        (true, "sed -i /heads.main/d .git/packed-refs", lost),
        (false, "rm -rf .git/logs", gone),
        (false, "rm .git/logs/HEAD", gone),
        (false, &format!("rm -rf .git/refs/heads/* .git/logs; {FRESH}"), cut),
        (true, &format!("rm -rf .git/packed-refs .git/logs; {FRESH}"), cut),
        (false, &format!("rm -rf .git/refs/*/*; {FRESH}; : > .git/logs/HEAD"), cut),
        (false, "sed -i '$d' .git/logs/HEAD", cut),
    ] {
        let (scene, _) = scene(false, is_packed);
        assert_kept(&scene, work, reason);
    }
}

/// A bare repository has no log of `HEAD`.
#[test]
fn a_bare_repository_keeps_the_branch_of_its_head() {
    for (is_packed, work, is_lost) in [
        (false, "rm -rf refs/heads/main", true),
        (true, "rm packed-refs", true),
        (true, "git branch -D mine", false),
        (true, "git branch -m main renamed", false),
        (false, "git pack-refs --all; git gc -q", false),
        (true, "git update-ref refs/heads/main refs/heads/old", false),
    ] {
        let (scene, place) = scene(true, is_packed);
        let at = scene.ws().join(place);
        let before = known(&at);
        let layer = run_with(&scene, |upper| sh(&upper.join(place), work));
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((result.parked.is_empty(), result.conflicts.len()), (!is_lost, 0), "{work}: {result:?}");
        if is_lost {
            assert_eq!(known(&at), before, "{work}");
        }
    }
}

/// The twins: ordinary work with branches and logs.
#[test]
fn ordinary_work_with_branches_comes_unasked() {
    for work in [
        "git branch -D mine old",
        "git branch -m renamed",
        "git branch -M mine",
        "git branch -m master; git branch -D mine",
        "git checkout -q -b new; echo x > x; git add x; git commit -qm x; git branch -D main",
        "git switch -q --orphan fresh; echo x > x; git add x; git commit -qm x",
        "git switch -q --orphan fresh",
        "git checkout -q --orphan fresh; git commit -qam x; git branch -D main; git branch -m main",
        "echo x > f; git commit -qam x; git reset -q --hard HEAD~",
        "echo x > f; git commit -qam x; git commit -q --amend -m y; git rebase -q --root",
        "echo x > f; git stash -q; git stash pop -q; git stash -q; git stash drop -q",
        "git gc -q --prune=now; git pack-refs --all --prune",
        "git checkout -q --detach; git checkout -q main",
        "git reflog expire --expire=now --all; git gc -q --prune=now",
        "git reflog expire --all; git reflog delete --rewrite mine@{0}",
        "git checkout -q old; git merge -q main; git branch -d main",
        "rm -rf .git/refs/heads/mine .git/logs/refs/heads/mine",
    ] {
        for is_packed in [false, true] {
            let (scene, _) = scene(false, is_packed);
            assert_comes(&scene, work);
        }
    }
}

/// git expires an entry that is older than it keeps any.
#[test]
fn an_old_entry_of_the_log_may_expire() {
    for (age, waits) in [(29, true), (31, false)] {
        let (scene, _) = scene(false, false);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let log = scene.ws().join(".git/logs/HEAD");
        let head = git(&scene.ws(), &["rev-parse", "HEAD"]);
        let (zeros, head, time) = ("0".repeat(40), head.trim(), now - age * 24 * 60 * 60);
        fs::write(&log, format!("{zeros} {head} N <n@x> {time} +0000\told\n")).unwrap();
        let layer = run_with(&scene, |upper| {
            let log = upper.join(".git/logs/HEAD");
            fs::write(&log, format!("{head} {head} N <n@x> {now} +0000\tof the run\n")).unwrap();
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!(!parked(&result).is_empty(), waits, "{age}: {result:?}");
    }
}

/// A layer that has these files and nothing else.
fn layer_of(scene: &Scene, files: &[(&str, &str)]) -> Layer {
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[]);
    for (path, text) in files {
        let at = layer.upper().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    layer
}

/// A log that is emptied comes where another name leads to the commit of its last entry, in the workspace or in the layer.
#[test]
fn a_log_may_be_emptied_while_a_ref_names_its_commit() {
    const LOG: &str = ".git/logs/HEAD";
    for (is_moved, is_kept, waits) in [(false, false, false), (true, false, true), (true, true, false)] {
        let (scene, _) = scene(false, false);
        git(&scene.ws(), &["commit", "-q", "--allow-empty", "-m", "of the user"]);
        let [new, old] = ["main", "main~"].map(|name| git(&scene.ws(), &["rev-parse", name]));
        let mut run = vec![(LOG, "")];
        if is_moved {
            run.push((".git/refs/heads/main", &old));
        }
        if is_kept {
            run.push((".git/refs/heads/kept", &new));
        }
        let result = commit_by(&scene, &layer_of(&scene, &run), &Rules::default());
        assert_eq!(parked(&result).contains(&LOG.to_owned()), waits, "{is_moved} {is_kept}: {result:?}");
    }
    // One that is empty may go away.
    let (scene, _) = scene(false, false);
    fs::write(scene.ws().join(LOG), "").unwrap();
    let layer = run_with(&scene, |upper| fs::remove_file(upper.join(LOG)).unwrap());
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
}

/// `HEAD` of the user names a branch that has no commit yet.
#[test]
fn a_branch_without_a_commit_is_not_lost() {
    let (scene, _) = scene(false, false);
    git(&scene.ws(), &["checkout", "-q", "--orphan", "fresh"]);
    let layer = run_with(&scene, |upper| drop(git(upper, &["branch", "new", "main"])));
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    assert!(scene.ws().join(".git/refs/heads/new").exists());
}

/// git removes what only an entry leads to that is older than it keeps any.
#[test]
fn the_last_way_to_a_commit_does_not_go_unasked() {
    let old = Logs::Aged(40);
    let cut = "(logs/HEAD) would lose its last entry, and nothing would lead to its commit";
    let branch = "refs/heads/mine and the log of HEAD of before would be gone, and nothing would lead to commit";
    let root = "HEAD names refs/heads/main, which would begin again, and nothing would lead to its commit";
    let of_mine = "echo 9 >> f; git commit -qam 9";
    for (logs, is_packed, work, reason) in [
        (old, false, format!("rm -rf .git/refs/heads/* .git/logs; {FRESH}"), cut),
        (old, true, format!("rm -rf .git/packed-refs .git/logs; {FRESH}"), cut),
        (
            old,
            true,
            "git update-ref refs/heads/main main~; rm -rf .git/logs; git commit -qam 9 --allow-empty".into(),
            cut,
        ),
        (Logs::Aged(400), false, "git commit -q --amend -m x; git reflog expire --expire=now --all".into(), cut),
        (old, false, "git reset -q --hard main~; rm -rf .git/logs; git commit -qm x --allow-empty".into(), cut),
        (old, false, format!("rm -rf .git/refs/heads/mine .git/logs; {of_mine}"), branch),
        (old, true, format!("sed -i /heads.mine/d .git/packed-refs; rm -rf .git/logs; {of_mine}"), branch),
        (old, false, "rm -rf .git/refs/heads/mine; : > .git/logs/HEAD".into(), branch),
        (Logs::Young, false, "rm -rf .git/refs/heads/mine; : > .git/logs/HEAD".into(), branch),
        (old, false, format!("rm -rf .git/refs/heads; mkdir .git/refs/heads; {FRESH}"), root),
        (old, false, format!("find . -name main -delete; {FRESH}"), root),
        (
            old,
            false,
            "git checkout -q --orphan x; git commit -qam x; git branch -D main; git branch -m main".into(),
            root,
        ),
        (Logs::Off, false, format!("rm -rf .git/refs/heads/* .git/refs/tags/*; {FRESH}"), root),
        (Logs::Off, true, "git update-ref refs/heads/main $(git commit-tree -m x HEAD^{tree})".into(), root),
        (Logs::Off, false, "git rebase -q --root -f".into(), root),
    ] {
        let scene = scene_with_branches(logs, is_packed);
        if work.contains("rebase") {
            // Without another time the commits would be those of before.
            sh(&scene.ws(), "sleep 1.1");
        }
        assert_kept(&scene, &work, reason);
    }
}

/// The twins: what git does with old logs and without any.
#[test]
fn work_in_a_repository_with_old_logs_or_none_comes_unasked() {
    let (old, older) = (Logs::Aged(40), Logs::Aged(100));
    for (needs_log, work) in [
        (false, "echo x > f; git commit -qam x"),
        (false, "echo x > f; git commit -qa --amend -m y"),
        (true, "git reset -q --soft $(git rev-list --max-parents=0 HEAD); git commit -q --amend -m root"),
        (true, "git rebase -q --root -f"),
        (true, "git filter-branch -f --msg-filter 'sed s/$/x/' -- --all 2> /dev/null"),
        (true, "git checkout -q --orphan fresh; git commit -qam x; git checkout -q -B main"),
        (true, "git checkout -q --orphan fresh; git commit -qam x; git branch old-main main; git branch -M main"),
        (false, "git switch -q --orphan fresh; echo x > x; git add x; git commit -qm x"),
        (false, "git checkout -q --orphan fresh; git commit -qam x; git merge -q --allow-unrelated-histories main"),
        (false, "git rebase -q mine"),
        (false, "git reset -q --hard HEAD~; echo x > x; git add x; git commit -qm x"),
        (true, "git reset -q --hard HEAD~; git gc -q"),
        (false, "git gc -q --prune=now; git pack-refs --all --prune"),
        (false, "git branch keep; git reset -q --hard HEAD~; git reflog expire --expire=now --all; git gc -q"),
        (false, "git reflog expire --expire=now --expire-unreachable=now --all; git gc -q --prune=now"),
        (false, "git branch -D mine"),
        (false, "git branch -m renamed"),
        (false, "git branch -M mine"),
        (false, "git checkout -q -B main mine~"),
        (false, "git update-ref refs/heads/main mine"),
        (false, "git update-ref refs/heads/mine main"),
        (false, "git merge -q -m merged mine; git branch -d mine; git gc -q"),
        (false, "git checkout -q --detach; echo x > f; git commit -qam x; git checkout -q main"),
        (false, "echo x > f; git stash -q; git stash pop -q; git stash -q; git stash drop -q"),
        (false, "git pull -q 2> /dev/null || git fetch -q"),
        (false, "git worktree add -q -b side wt; git worktree remove wt"),
    ] {
        for (logs, is_packed) in [(old, false), (old, true), (older, false), (Logs::Off, false)] {
            if logs != Logs::Off || !needs_log {
                assert_comes(&scene_with_branches(logs, is_packed), work);
            }
        }
    }
}

/// A clone with two entries in its stash.
fn scene_with_stash(is_packed: bool) -> Scene {
    scene_like(&format!("stash, packed {is_packed}"), || {
        let scene = cloned_scene();
        let pack = if is_packed { "git pack-refs --all" } else { ":" };
        sh(&scene.ws(), &format!("{AUTHOR}; for one in 1 2; do echo $one > f$one; git stash -qu; done; {pack}"));
        scene
    })
}

#[test]
fn the_stash_of_the_user_does_not_go_unasked() {
    let gone = "the log of the stash (logs/refs/stash) would be gone";
    let alone = "refs/stash would be gone while its log stays";
    let cut = "the log of the stash (logs/refs/stash) would lose entries that no git stash dropped, and nothing would lead to commit";
    for (is_packed, work, reason) in [
        (false, "rm .git/logs/refs/stash", gone),
        (true, "rm .git/logs/refs/stash", gone),
        (true, "rm -rf .git/logs/refs", gone),
        // git finds the entries that are left, and no name leads to the other ones.
        (false, ": > .git/logs/refs/stash", cut),
        (true, ": > .git/logs/refs/stash", cut),
        (false, "sed -i 1d .git/logs/refs/stash", cut),
        (false, "sed -i 1d .git/logs/refs/stash; echo x > x; git stash -qu", cut),
        (false, ": > .git/logs/refs/stash; echo x > x; git stash -qu", cut),
        (false, "git reflog delete stash@{1}", cut),
        (false, "git reflog expire --expire=now --all; git pack-refs --all", cut),
        (false, "rm .git/refs/stash", alone),
        (true, "sed -i /stash/d .git/packed-refs", alone),
    ] {
        assert_kept(&scene_with_stash(is_packed), work, reason);
    }
}

#[test]
fn work_with_the_stash_comes_unasked() {
    for work in [
        "git stash drop -q",
        "git stash drop -q stash@{1}",
        "git stash drop -q; git stash drop -q",
        "git stash pop -q",
        "git stash pop -q; git stash pop -q",
        "git stash clear",
        "git stash clear; echo x > x; git stash -qu",
        "git stash drop -q; echo x > x; git stash -qu",
        "echo x > x; git stash -qu; git stash drop -q stash@{2}",
        "git stash branch side",
        "git stash clear; git gc -q --prune=now",
        "git branch kept stash@{1}; sed -i 1d .git/logs/refs/stash",
        "git reflog expire --all; git pack-refs --all",
        "git update-ref -d refs/stash",
    ] {
        for is_packed in [false, true] {
            assert_comes(&scene_with_stash(is_packed), work);
        }
    }
}

/// An amended commit is named by the log of `HEAD` alone.
#[test]
fn entries_of_the_log_that_alone_lead_to_commits_do_not_go_unasked() {
    let cut = "the log of HEAD (logs/HEAD) would lose entries, and nothing would lead to commit";
    let amended = |logs| {
        let scene = scene_like("amended", || {
            let scene = cloned_scene();
            let work = "echo 2 > f; git commit -qam 2; git commit -q --amend -m 3; git commit -q --amend -m 4";
            sh(&scene.ws(), &format!("{AUTHOR}; {work}; rm .git/logs/refs/heads/main"));
            scene
        });
        age(&scene, logs);
        scene
    };
    let last = "sed -i '$!d' .git/logs/HEAD";
    for work in [last, "git reflog expire --expire=now --all", &format!("{last}; echo 4 > f; git commit -qam 4")] {
        assert_kept(&amended(Logs::Young), work, cut);
        // git expires such entries itself, and what a ref leads to is not lost.
        assert_comes(&amended(Logs::Aged(31)), work);
        assert_comes(&amended(Logs::Young), &format!("git branch kept HEAD@{{2}}; git branch too HEAD@{{1}}; {work}"));
    }
    assert_comes(&amended(Logs::Young), "git commit -q --amend -m 5; git gc -q; git reflog delete --rewrite HEAD@{0}");
}

/// A clone that borrows all its objects has branches and logs like every other one.
#[test]
fn a_fresh_clone_that_borrows_objects_keeps_its_branches() {
    let borrower = || {
        let scene = cloned_scene();
        let (ws, lender) = (scene.ws(), scene.path("lender"));
        fs::rename(&ws, &lender).unwrap();
        git(scene.dir.path(), &["clone", "-q", "-s", lender.to_str().unwrap(), ws.to_str().unwrap()]);
        sh(&ws, "git branch mine");
        let stores = fs::read_dir(ws.join(".git/objects")).unwrap().count();
        assert_eq!(stores, 2, "it has the directories info and pack alone");
        scene
    };
    for work in ["rm -rf .git/refs/heads/* .git/logs", "rm -rf .git/refs/heads .git/logs; mkdir .git/refs/heads"] {
        let scene = borrower();
        let before = known(&scene.ws());
        let layer = run_with(&scene, |upper| sh(upper, work));
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(!result.parked.is_empty() && result.conflicts.is_empty(), "{work}: {result:?}");
        assert_eq!(known(&scene.ws()), before, "{work}: {result:?}");
    }
    let scene = borrower();
    let layer = run_with(&scene, |upper| sh(upper, "rm -rf .git"));
    let result = commit_by(&scene, &layer, &Rules::default());
    assert!(scene.ws().join(".git/HEAD").exists(), "{result:?}");
    // The twin: work in it comes.
    assert_comes(&borrower(), "echo 2 > f; git commit -qam 2; git branch -m mine yours; git checkout -qb new");
}

/// git replaces an index, and never removes it.
#[test]
fn an_index_of_the_user_does_not_go_unasked() {
    let scene_with_staged = || {
        let scene = cloned_scene();
        git(&scene.ws(), &["worktree", "add", "-q", "wt", "mine"]);
        for place in ["", "wt"] {
            sh(&scene.ws().join(place), "echo staged > s; git -c safe.directory='*' add s; rm s");
        }
        scene
    };
    for (work, place, waits) in [
        ("rm .git/index", "", true),
        ("rm .git/worktrees/wt/index", "wt", true),
        ("rm .git/index; mkdir .git/index", "", true),
        ("rm .git/index; git reset -q", "", false),
        ("git reset -q --hard", "", false),
        ("git rm -qr --cached .", "", false),
    ] {
        let scene = scene_with_staged();
        let staged = || git(&scene.ws().join(place), &["ls-files", "-s", "s"]);
        let before = staged();
        assert!(before.contains('s'), "{before}");
        let layer = run_with(&scene, |upper| sh(upper, work));
        let result = commit_by(&scene, &layer, &Rules::default());
        let why = "would be gone, which alone names what is staged";
        let index = if place.is_empty() { ".git/index" } else { ".git/worktrees/wt/index" };
        let waiting = result.parked.iter().find(|one| one.path.0 == index.as_bytes());
        let named = waiting.is_some_and(|one| one.protected.as_ref().is_some_and(|one| one.contains(why)));
        assert_eq!((named, staged() == before), (waits, waits), "{work}: {result:?}");
    }
}

/// `git gc` and `git fsck` refuse to work with such a name.
#[test]
fn names_that_git_refuses_wait() {
    for work in [
        "git pack-refs --all; echo $(git rev-parse HEAD) refs/../x >> .git/packed-refs",
        "echo $(git rev-parse HEAD) refs/heads/x.lock > .git/packed-refs",
        "echo ref: refs/../x > .git/refs/remotes/origin/HEAD",
        "echo ref: refs/heads/a..b > .git/HEAD",
    ] {
        let scene = cloned_scene();
        let before = known(&scene.ws());
        let layer = run_with(&scene, |upper| sh(upper, work));
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(!result.parked.is_empty(), "{work}: {result:?}");
        assert_eq!(known(&scene.ws()), before, "{work}");
        sh(&scene.ws(), "git -c safe.directory='*' gc -q");
    }
}
