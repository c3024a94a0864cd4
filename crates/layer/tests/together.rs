//! Paths that go together stay together when another process changes one of them after the decision: with the real git and the
//! real SQLite.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;
#[path = "common/sqlite.rs"]
mod sqlite;

use common::{Scene, dying};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::faults::Comparison;
use nexus_layer::{Faults, Layer, LayerMode, Rules, recover};
use repository::{accept, git, named, packed_and_committed, parked, run_with, scene_like};
use sqlite::sql;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The database before the run, with or without a log that was left, and what the run does.
#[derive(Clone, Copy, Debug)]
struct Case {
    mode: &'static str,
    before: Option<&'static str>,
    run: (&'static str, bool),
}

const ROWS: &str = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into t select i, hex(randomblob(20)) from n";
const OF_THE_RUN: &str = "insert into t (x) values ('run'); update t set x = 'run' where i < 300";
/// Leaves a log that has to be rolled back, with pages already in the database.
const CUT_OFF: &str = "begin; update t set x = 'cut off'";

const CASES: &[Case] = &[
    // The database and its log; the log alone; the database alone; a log that goes away.
    Case { mode: "wal", before: None, run: ("pragma wal_autocheckpoint=1; insert into t (x) values ('run')", false) },
    Case { mode: "wal", before: None, run: (OF_THE_RUN, false) },
    Case { mode: "wal", before: None, run: (OF_THE_RUN, true) },
    Case { mode: "wal", before: Some("insert into t (x) values ('before')"), run: (OF_THE_RUN, true) },
    Case { mode: "delete", before: None, run: (OF_THE_RUN, true) },
    Case { mode: "delete", before: None, run: (CUT_OFF, false) },
    Case { mode: "delete", before: Some(CUT_OFF), run: (OF_THE_RUN, true) },
];

impl Case {
    /// A commit that was killed before its call with this number, if it came that far.
    fn killed(&self, nth: u64) -> (Scene, bool) {
        let scene = scene_like(&format!("{} {:?}", self.mode, self.before), || {
            let scene = Scene::new(LayerMode::Root, &[]);
            let table = format!("pragma journal_mode={}; create table t (i integer primary key, x); {ROWS}", self.mode);
            sql(&scene.ws(), &table, true);
            if let Some(before) = self.before {
                sql(&scene.ws(), before, false);
            }
            scene
        });
        let mut layer = run_with(&scene, |upper| drop(sql(upper, self.run.0, self.run.1)));
        layer.set_faults(dying(&scene, nth));
        let workspace = scene.workspace();
        let done = catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &Rules::default()))));
        (scene, done.is_err())
    }
}

/// The files of the database in a directory.
fn files(directory: &Path) -> Vec<Option<Vec<u8>>> {
    ["app.db", "app.db-wal", "app.db-journal"].iter().map(|name| fs::read(directory.join(name)).ok()).collect()
}

const CHECK: &str = "pragma integrity_check; select count(*) from t where x = 'host'";

/// Writes to the database as the host, and leaves a log or none.
fn host_writes(scene: &Scene, cleanly: bool) {
    let update = "update t set x = 'host' where i between 1200 and 1219; insert into t (x) values ('host')";
    let told = sql(&scene.ws(), update, cleanly);
    assert_eq!(told, "", "the host writes");
}

/// The host writes between a kill and what goes on with the commit. Returns the number of kills.
fn host_between(case: Case, cleanly: bool, go_on: impl Fn(&Scene, &Faults)) -> u32 {
    let (mut kills, mut nth) = (0, 1);
    loop {
        let (scene, is_killed) = case.killed(nth);
        if !is_killed {
            return kills;
        }
        let upper = scene.path("layers/run/upper");
        let in_layer = files(&upper);
        // While no file of the layer went, the workspace is the old version; when all went, it is the new one.
        let went = in_layer.iter().filter(|one| one.is_none()).count();
        if kills == 0 || went == 3 {
            host_writes(&scene, cleanly);
            go_on(&scene, &Faults::default());
            assert_eq!(sql(&scene.ws(), CHECK, true), "ok\n21\n", "{case:?} {cleanly} {nth}");
        } else {
            go_on(&scene, &Faults::default());
            assert!(sql(&scene.ws(), "pragma integrity_check", true).starts_with("ok\n"), "{case:?} {nth}");
        }
        (kills, nth) = (kills + 1, nth + 3);
    }
}

fn forward(scene: &Scene, faults: &Faults) {
    recover_with(&scene.path("layers"), "run", &scene.workspace(), faults).unwrap();
}

fn back(scene: &Scene, faults: &Faults) {
    // One that was applied as a whole goes on.
    if roll_back_with(&scene.path("layers"), "run", &scene.workspace(), faults).is_err() {
        forward(scene, faults);
    }
}

#[test]
fn a_database_and_its_log_stay_together_after_a_kill() {
    for (number, case) in CASES.iter().enumerate() {
        assert!(host_between(*case, number % 2 == 0, forward) > 1, "{case:?}");
        assert!(host_between(*case, number % 2 == 1, back) > 1, "{case:?}");
    }
}

/// The way back itself is killed, and the host writes before it goes on.
#[test]
fn a_database_and_its_log_stay_together_on_a_way_back_that_was_killed() {
    for case in CASES.iter().filter(|case| case.before.is_some()) {
        // All steps are carried out, and the journal is not marked done.
        let is_before = |at: &u64| {
            let (scene, is_killed) = case.killed(*at);
            is_killed && scene.path("layers/run/journal").exists() && !scene.path("layers/run/outcome").exists()
        };
        let whole = (1..1000).take_while(is_before).last().unwrap();
        let (mut kills, mut nth) = (0, 1);
        loop {
            let (scene, _) = case.killed(whole);
            let faults = dying(&scene, nth);
            let done = catch_unwind(AssertUnwindSafe(|| back(&scene, &faults)));
            if done.is_ok() {
                break;
            }
            let is_old = sql(&scene.ws(), CHECK, false) == "ok\n0\n";
            if is_old {
                host_writes(&scene, true);
            }
            back(&scene, &Faults::default());
            let told = sql(&scene.ws(), CHECK, true);
            assert!(told == "ok\n21\n" || (!is_old && told.starts_with("ok\n")), "{case:?} {nth}: {told}");
            (kills, nth) = (kills + 1, nth + 3);
        }
        assert!(kills > 2, "{kills}");
    }
}

/// A run that commits and packs its refs.
fn packed() -> (Scene, Layer) {
    packed_and_committed(&["gc", "-q"])
}

/// Kills a commit at each call, lets the host act, and goes on.
fn after_each_kill(go_on: impl Fn(&Scene, &Faults), host: impl Fn(&Scene), check: impl Fn(&Scene, &str)) {
    let (mut kills, mut nth) = (0, 1);
    loop {
        let (scene, mut layer) = packed();
        layer.set_faults(dying(&scene, nth));
        let workspace = scene.workspace();
        let done = catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &Rules::default()))));
        drop(layer);
        host(&scene);
        go_on(&scene, &Faults::default());
        let told = git(&scene.ws(), &["fsck", "--full"]);
        assert!(!["missing", "broken", "error", "fatal"].iter().any(|word| told.contains(word)), "{nth}: {told}");
        check(&scene, &format!("killed at {nth}"));
        if done.is_ok() {
            break;
        }
        (kills, nth) = (kills + 1, nth + 4);
    }
    assert!(kills > 5, "{kills}");
}

/// No branch is gone, and none lost a commit that it had before the run.
fn has_branches(scene: &Scene, context: &str) {
    let all = git(&scene.ws(), &["branch", "--format=%(refname:short)"]);
    for branch in ["feat", "main", "mine"] {
        assert!(all.lines().any(|line| line == branch), "{context}: {branch} of {all}");
    }
    let log = git(&scene.ws(), &["log", "--format=%s", "main"]);
    assert!(log.lines().any(|line| line == "2"), "{context}: {log}");
}

#[test]
fn packed_refs_and_the_refs_in_them_stay_together_after_a_kill() {
    let deletes = |scene: &Scene| drop(git(&scene.ws(), &["tag", "-d", "old-tag"]));
    after_each_kill(forward, deletes, has_branches);
    after_each_kill(back, deletes, has_branches);
}

#[test]
fn an_index_and_its_branch_stay_together_after_a_kill() {
    let adds = |scene: &Scene| {
        fs::write(scene.ws().join("h"), "of the host").unwrap();
        git(&scene.ws(), &["add", "h"]);
    };
    after_each_kill(forward, adds, |scene, context| {
        git(&scene.ws(), &["commit", "-q", "-m", "of the host"]);
        let files = git(&scene.ws(), &["ls-tree", "--name-only", "main"]);
        let has = |name: &str| files.lines().any(|line| line == name);
        assert!(has("h"), "{context}: {files}");
        let log = git(&scene.ws(), &["log", "--format=%s", "main"]);
        assert!(!log.contains("of the run") || has("g"), "{context}: the commit of the host took that of the run back");
        has_branches(scene, context);
    });
}

/// An editor asks for the state now and then, and git writes its index again.
#[test]
fn refs_and_index_go_back_together_after_a_look_of_the_host() {
    let looks = |scene: &Scene| {
        fs::write(scene.ws().join("src/f"), "1").unwrap();
        git(&scene.ws(), &["status"]);
    };
    after_each_kill(back, looks, |scene, context| {
        has_branches(scene, context);
        let came = git(&scene.ws(), &["log", "--format=%s", "main"]).contains("of the run");
        let status = git(&scene.ws(), &["status", "--porcelain", "--untracked-files=no"]);
        assert_eq!(status, "", "{context}: {came}");
        let branches = git(&scene.ws(), &["branch", "-a"]);
        assert!(!branches.contains("conflict"), "{context}: {branches}");
    });
}

#[test]
fn objects_that_the_host_has_once_now_stay_on_a_way_back() {
    let prunes = |scene: &Scene| drop(git(&scene.ws(), &["prune-packed"]));
    after_each_kill(back, prunes, has_branches);
}

/// The same while the commit goes on: the host acts after the decision.
#[test]
fn without_a_look_at_all_of_a_unit_a_part_of_it_comes() {
    for (left_out, is_whole) in [(&[][..], true), (&[Comparison::Unit][..], false)] {
        let case = CASES[1];
        let (scene, _) = case.killed(1);
        host_writes(&scene, true);
        forward(&scene, &Faults::default().without_comparisons(left_out));
        assert_eq!(sql(&scene.ws(), CHECK, true) == "ok\n21\n", is_whole, "{left_out:?}");
    }
}

#[test]
fn no_accept_removes_refs_without_the_packed_refs_that_have_them() {
    let refs = [".git/refs/heads/main", ".git/refs/heads/feat"];
    for rejected in [false, true] {
        let (scene, layer) = packed();
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        let rules =
            if rejected { Rules { except: vec![".git/packed-refs".into()], ..Rules::default() } } else { named(&refs) };
        let result = accept(&scene, &rules);
        let waits = parked(&result);
        assert!(refs.iter().all(|path| waits.iter().any(|one| one == path)), "{rejected}: {waits:?}");
        has_branches(&scene, "a part was accepted");
        let all = accept(&scene, &Rules::default());
        assert_eq!((parked(&all), all.conflicts.len()), (vec![], 0), "{all:?}");
        assert!(git(&scene.ws(), &["log", "--format=%s", "main"]).contains("of the run"));
        has_branches(&scene, "all was accepted");
        recover(&scene.path("layers"), "run", &scene.workspace()).unwrap();
    }
}
