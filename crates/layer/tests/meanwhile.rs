//! A commit while it works: the workspace at each moment, and changes of the host between two steps. With the real git and the real
//! SQLite.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;
#[path = "common/sqlite.rs"]
mod sqlite;

use common::Scene;
use nexus_layer::commit::roll_back::roll_back;
use nexus_layer::{Committed, Faults, Layer, LayerMode, Rules};
use repository::{cloned_scene, git, packed_and_committed, run_with};
use sqlite::sql;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Commits a layer, and calls a function with the workspace before each step after the decision.
fn with(scene: &Scene, mut layer: Layer, call: impl Fn(&Path) + Send + Sync + 'static) -> Committed {
    let (journal, ws) = (scene.path("layers/run/journal"), scene.ws());
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if journal.exists() {
            call(&ws);
        }
    })));
    layer.commit(&scene.workspace(), &Rules::default()).unwrap()
}

/// Commits a layer. Once a file is gone or another one than before, the host acts.
fn acting(scene: &Scene, layer: Layer, file: &'static str, act: impl Fn(&Path) + Send + Sync + 'static) -> Committed {
    let old = fs::read(scene.ws().join(file)).unwrap();
    let left = Mutex::new(Some(()));
    let done = with(scene, layer, move |ws| {
        if fs::read(ws.join(file)).ok() != Some(old.clone()) && left.lock().unwrap().take().is_some() {
            act(ws);
        }
    });
    assert!(!done.conflicts.is_empty(), "{done:?}");
    done
}

/// Returns what a function found at any moment of a commit that comes as a whole.
fn found(scene: &Scene, layer: Layer, find: impl Fn(&Path) -> Option<String> + Send + Sync + 'static) -> Vec<String> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let here = Arc::clone(&all);
    let done = with(scene, layer, move |ws| here.lock().unwrap().extend(find(ws)));
    assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{done:?}");
    let all = all.lock().unwrap();
    all.clone()
}

/// A clone with packed refs and others, and a run that commits and packs all of them.
fn packed() -> (Scene, Layer) {
    packed_and_committed(&["pack-refs", "--all"])
}

/// Reports whether a ref has a commit.
fn has_ref(git_dir: &Path, name: &str) -> bool {
    let packed = fs::read_to_string(git_dir.join("packed-refs")).unwrap_or_default();
    git_dir.join(name).is_file() || packed.lines().any(|line| line.ends_with(&format!(" {name}")))
}

#[test]
fn at_no_moment_is_a_branch_gone() {
    let (scene, layer) = packed();
    let gone = found(&scene, layer, |ws| {
        let lost = ["refs/heads/main", "refs/heads/feat"].into_iter().find(|name| !has_ref(&ws.join(".git"), name));
        lost.map(ToOwned::to_owned)
    });
    assert_eq!(gone, [""; 0]);
}

#[test]
fn at_no_moment_does_head_name_a_branch_that_did_not_come() {
    let scene = cloned_scene();
    let layer = run_with(&scene, |upper| drop(git(upper, &["checkout", "-q", "-b", "new"])));
    let unborn = found(&scene, layer, |ws| {
        let head = fs::read_to_string(ws.join(".git/HEAD")).unwrap();
        let name = head.strip_prefix("ref: ").unwrap().trim();
        (!has_ref(&ws.join(".git"), name)).then(|| name.to_owned())
    });
    assert_eq!(unborn, [""; 0]);
    assert!(fs::read_to_string(scene.ws().join(".git/HEAD")).unwrap().contains("refs/heads/new"));
}

/// The other way round, the next commit of the user would take the work of the run back.
#[test]
fn at_no_moment_has_a_further_working_tree_a_new_branch_and_an_old_index() {
    const TREE: &str = ".git/worktrees/wt";
    let scene = cloned_scene();
    git(&scene.ws(), &["worktree", "add", "-q", "wt", "-b", "fix"]);
    let layer = run_with(&scene, |upper| {
        fs::write(upper.join("wt/g"), "of the run").unwrap();
        for work in [&["add", "g"][..], &["commit", "-q", "-m", "of the run"]] {
            git(&upper.join("wt"), &[&["--git-dir=../.git/worktrees/wt", "--work-tree=."][..], work].concat());
        }
    });
    let [index, branch] = [format!("{TREE}/index"), ".git/refs/heads/fix".to_owned()];
    let [old_index, old_branch] = [&index, &branch].map(|file| fs::read(scene.ws().join(file)).unwrap());
    assert_ne!(fs::read(layer.upper().join(&branch)).unwrap(), old_branch);
    assert_ne!(fs::read(layer.upper().join(&index)).unwrap(), old_index);
    let apart = found(&scene, layer, move |ws| {
        let is_new = |file: &String, old: &Vec<u8>| fs::read(ws.join(file)).is_ok_and(|now| now != *old);
        (is_new(&branch, &old_branch) && !is_new(&index, &old_index)).then(|| "the branch came first".to_owned())
    });
    assert_eq!(apart, [""; 0]);
}

/// The index came, and the host writes `packed-refs` before that one comes.
#[test]
fn a_branch_does_not_go_when_packed_refs_changes_meanwhile() {
    for adds in [false, true] {
        let (scene, layer) = packed();
        let done = acting(&scene, layer, ".git/index", move |ws| {
            if adds {
                fs::write(ws.join("h"), "of the host").unwrap();
                git(ws, &["add", "h"]);
            }
            git(ws, &["tag", "-d", "old-tag"]);
        });
        let ws = scene.ws();
        for name in ["refs/heads/main", "refs/heads/feat", "refs/heads/mine"] {
            assert!(has_ref(&ws.join(".git"), name), "{name}: {done:?}");
        }
        assert_eq!(git(&ws, &["log", "--format=%s", "main"]), "2\n1\n", "{done:?}");
        let staged = git(&ws, &["ls-files"]);
        let has = |name: &str| staged.lines().any(|line| line == name);
        // An index that the host wrote stays; another one goes back with the refs.
        assert_eq!((has("h"), has("g")), (adds, adds), "{staged}: {done:?}");
        let said = git(&ws, &["fsck", "--full"]);
        assert!(!["missing", "broken", "error", "fatal"].iter().any(|word| said.contains(word)), "{said}");
    }
}

/// A branch that gets another name has one of both.
#[test]
fn at_no_moment_has_a_renamed_branch_no_name() {
    let scene = cloned_scene();
    let layer = run_with(&scene, |upper| drop(git(upper, &["branch", "-m", "mine", "zz"])));
    let gone = found(&scene, layer, |ws| {
        let is_there = ["refs/heads/mine", "refs/heads/zz"].iter().any(|name| has_ref(&ws.join(".git"), name));
        (!is_there).then(|| "no name".to_owned())
    });
    assert_eq!(gone, [""; 0]);
    assert!(has_ref(&scene.ws().join(".git"), "refs/heads/zz"));
}

/// A workspace with a database in WAL mode, with or without rows in a log that was left.
fn with_database(has_log: bool) -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let rows = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into t select i, hex(randomblob(20)) from n";
    sql(&scene.ws(), &format!("pragma journal_mode=wal; create table t (i integer primary key, x); {rows}"), true);
    if has_log {
        sql(&scene.ws(), "insert into t (x) values ('before')", false);
    }
    assert_eq!(scene.ws().join("app.db-wal").exists(), has_log);
    scene
}

/// A run that makes another database of it, with its log or without one.
fn rewritten(scene: &Scene, has_log: bool) -> Layer {
    let layer = run_with(scene, |upper| {
        let work = "delete from t where i < 900; vacuum; pragma wal_checkpoint(full); insert into t (x) values ('run')";
        sql(upper, work, !has_log);
    });
    assert_eq!(fs::metadata(layer.upper().join("app.db-wal")).is_ok_and(|log| log.len() > 0), has_log);
    layer
}

fn host_writes(ws: &Path) {
    assert_eq!(sql(ws, "update t set x = 'host' where i between 1901 and 2000", false), "", "the host writes");
}

fn has_what_the_host_wrote(scene: &Scene, context: &str) {
    let said = sql(&scene.ws(), "pragma integrity_check; select count(*) from t where x = 'host'", true);
    assert_eq!(said, "ok\n100\n", "{context}");
}

/// Reports whether a commit put this version beside its path.
fn is_beside(scene: &Scene, done: &Committed, version: &[u8]) -> bool {
    let mut all = done.conflicts.iter().filter_map(|one| one.beside.as_ref());
    all.any(|at| fs::read(scene.ws().join(at.as_path())).is_ok_and(|found| found == version))
}

/// SQLite would apply the old log to the new database.
#[test]
fn at_no_moment_is_a_new_database_beside_an_old_log() {
    let scene = with_database(true);
    let layer = rewritten(&scene, false);
    let [old, log] = ["app.db", "app.db-wal"].map(|name| fs::read(scene.ws().join(name)).unwrap());
    let apart = found(&scene, layer, move |ws| {
        let is_new = fs::read(ws.join("app.db")).is_ok_and(|now| now != old);
        (is_new && fs::read(ws.join("app.db-wal")).is_ok_and(|now| now == log)).then(|| "an old log".to_owned())
    });
    assert_eq!(apart, [""; 0]);
    assert!(!scene.ws().join("app.db-wal").exists());
}

/// The database came, and the host writes to it before its log comes.
#[test]
fn a_log_of_the_host_keeps_the_database_that_it_belongs_to() {
    let scene = with_database(false);
    let layer = rewritten(&scene, true);
    let old = fs::read(scene.ws().join("app.db")).unwrap();
    let done = acting(&scene, layer, "app.db", host_writes);
    has_what_the_host_wrote(&scene, &format!("{done:?}"));
    assert!(is_beside(&scene, &done, &old), "{done:?}");
}

/// The old log went, and the host writes to the old database before the new one comes.
#[test]
fn a_log_that_went_is_kept_when_its_database_changes_meanwhile() {
    let scene = with_database(true);
    let layer = rewritten(&scene, false);
    let log = fs::read(scene.ws().join("app.db-wal")).unwrap();
    let done = acting(&scene, layer, "app.db-wal", host_writes);
    has_what_the_host_wrote(&scene, &format!("{done:?}"));
    assert!(is_beside(&scene, &done, &log), "{done:?}");
}

/// The only step is that of the database, and the host writes its log after the decision.
#[test]
fn a_database_alone_does_not_come_below_a_log_that_came_meanwhile() {
    let scene = with_database(false);
    let layer = rewritten(&scene, false);
    let left = Mutex::new(Some(()));
    let done = with(&scene, layer, move |ws| {
        if left.lock().unwrap().take().is_some() {
            host_writes(ws);
        }
    });
    assert_eq!(done.conflicts.len(), 1, "{done:?}");
    has_what_the_host_wrote(&scene, &format!("{done:?}"));
}

/// The database came, the commit was killed, and the host left a log beside it.
#[test]
fn a_database_alone_does_not_go_back_below_a_log_of_the_host() {
    let scene = with_database(false);
    let mut layer = rewritten(&scene, false);
    let (ws, old) = (scene.ws(), fs::read(scene.ws().join("app.db")).unwrap());
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if fs::read(ws.join("app.db")).unwrap() != old {
            std::panic::panic_any("crash");
        }
    })));
    let workspace = scene.workspace();
    assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
    drop(layer);
    host_writes(&scene.ws());
    let conflicts = roll_back(&scene.path("layers"), "run", &workspace).unwrap();
    assert!(!conflicts.is_empty());
    has_what_the_host_wrote(&scene, &format!("{conflicts:?}"));
}
