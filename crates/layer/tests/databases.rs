//! Databases of SQLite and the logs beside them: with the real SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;
#[path = "common/sqlite.rs"]
mod sqlite;

use common::{Op, Scene, b, wait_for_tick, write};
use nexus_layer::{LayerMode, Outside, Rules};
use repository::{commit_by, named, parked, run_with};
use std::fs;
use std::path::Path;

/// Executes SQL, which has to succeed.
fn sql(directory: &Path, statements: &str, cleanly: bool) -> String {
    let output = sqlite::sql(directory, statements, cleanly);
    assert!(!output.contains("Error: "), "{output}");
    output
}

/// A workspace with a database in WAL mode, closed cleanly.
fn scene() -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let rows = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into t select i, hex(randomblob(20)) from n";
    sql(&scene.ws(), &format!("pragma journal_mode=wal; create table t (i integer primary key, x); {rows}"), true);
    assert!(!scene.ws().join("app.db-wal").exists());
    scene
}

const OF_THE_RUN: &str = "alter table t add column y; update t set y = x; vacuum; pragma wal_checkpoint(truncate)";
const OF_THE_HOST: &str = "update t set x = 'host' where i > 2500; insert into t (x) values ('host')";

#[test]
fn a_database_does_not_come_below_a_log_of_the_host() {
    for cleanly in [true, false] {
        let scene = scene();
        let layer = run_with(&scene, |upper| {
            sql(upper, OF_THE_RUN, true);
        });
        sql(&scene.ws(), OF_THE_HOST, cleanly);
        // Its pages went into the database where the host closed it, and that is a conflict of its own.
        assert_eq!(scene.ws().join("app.db-wal").exists(), !cleanly);
        let result = commit_by(&scene, &layer, &Rules::default());
        let place = if cleanly { "app.db" } else { "app.db-wal" };
        assert_eq!(result.conflicts.len(), 1, "{result:?}");
        assert_eq!(
            (result.conflicts[0].path.0.as_slice(), result.conflicts[0].outside),
            (place.as_bytes(), Outside::Changed)
        );
        assert_eq!(
            sql(&scene.ws(), "pragma integrity_check; select count(*) from t where x = 'host'", true),
            "ok\n501\n"
        );
    }
}

/// The run saw the log, or made it: it belongs to its version of the database.
#[test]
fn a_database_comes_with_the_log_that_a_run_left() {
    for before in [false, true] {
        let scene = scene();
        if before {
            sql(&scene.ws(), "insert into t (x) values ('before')", false);
            assert!(scene.ws().join("app.db-wal").exists());
        }
        let layer = run_with(&scene, |upper| {
            sql(upper, "insert into t (x) values ('run')", false);
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((parked(&result).len(), result.conflicts.len()), (0, 0), "{result:?}");
        let count = "pragma integrity_check; select count(*) from t where x in ('run', 'before')";
        assert_eq!(sql(&scene.ws(), count, true), if before { "ok\n2\n" } else { "ok\n1\n" });
    }
}

#[test]
fn a_database_and_its_log_are_accepted_together() {
    for name in ["app.db", "app.db-wal"] {
        let scene = scene();
        let layer = run_with(&scene, |upper| {
            sql(
                upper,
                "insert into t (x) values ('run'); pragma wal_checkpoint(full); insert into t (x) values ('run')",
                false,
            );
        });
        assert!(fs::metadata(layer.upper().join("app.db-wal")).unwrap().len() > 0);
        let old = fs::read(scene.ws().join("app.db")).unwrap();
        assert_ne!(fs::read(layer.upper().join("app.db")).unwrap(), old);
        let result = commit_by(&scene, &layer, &named(&[name]));
        assert!(result.changes.changes.is_empty() && parked(&result).contains(&name.to_owned()), "{name}: {result:?}");
        assert_eq!(fs::read(scene.ws().join("app.db")).unwrap(), old);
        let both = commit_by(&scene, &layer, &named(&["app.db", "app.db-wal"]));
        assert_eq!(both.conflicts, [], "{both:?}");
        assert_eq!(sql(&scene.ws(), "pragma integrity_check; select count(*) from t where x = 'run'", true), "ok\n2\n");
    }
}

/// A run is killed at its end: the database was accepted before, and its log is left.
#[test]
fn a_log_does_not_come_beside_a_database_of_the_host() {
    let scene = scene();
    let layer = run_with(&scene, |upper| {
        sql(upper, "insert into t (x) values ('run')", false);
    });
    fs::remove_file(layer.upper().join("app.db")).unwrap();
    sql(&scene.ws(), OF_THE_HOST, true);
    let result = commit_by(&scene, &layer, &Rules::default());
    let conflicts: Vec<_> = result.conflicts.iter().map(|one| one.path.0.as_slice()).collect();
    assert_eq!(conflicts, [b"app.db"], "{result:?}");
    assert_eq!(sql(&scene.ws(), "pragma integrity_check; select count(*) from t where x = 'host'", true), "ok\n501\n");
}

#[test]
fn a_file_with_a_name_of_the_maximum_length_comes() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let (name, old) = ("a".repeat(255), "b".repeat(252));
    for one in [&name, &old] {
        fs::write(scene.ws().join(one), "old").unwrap();
    }
    let layer = run_with(&scene, |upper| {
        for one in [&name, &old] {
            fs::write(upper.join(one), "of the run").unwrap();
        }
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result).len(), result.conflicts.len()), (0, 0), "{result:?}");
    for one in [&name, &old] {
        assert_eq!(fs::read_to_string(scene.ws().join(one)).unwrap(), "of the run");
    }
}

/// The first bytes of a database.
const BEGIN: &str = "SQLite format 3\0";

/// A file of whole pages with the first bytes of a database.
fn pages(path: &str, text: &str) -> Op {
    let text = format!("{BEGIN}{text}");
    Op::Padded(b(path), text.clone(), 512 - text.len())
}

/// A text of the same length.
fn plain(path: &str, text: &str) -> Op {
    Op::Padded(b(path), text.into(), 512 - text.len())
}

/// Paths of the conflicts and of what waits, after the host wrote to files.
fn after(base: &[Op], run: &[Op], host: &[(&str, &str)], rules: &Rules) -> (Scene, Vec<String>, Vec<String>) {
    let scene = Scene::new(LayerMode::Root, base);
    let layer = scene.layer(run);
    wait_for_tick(scene.dir.path());
    for (path, text) in host {
        fs::write(scene.ws().join(path), text).unwrap();
    }
    let result = commit_by(&scene, &layer, rules);
    let conflicts = result.conflicts.iter().map(|one| one.path.as_path().display().to_string()).collect();
    (scene, conflicts, parked(&result))
}

/// A new database in the place of a small file, or the other way round, below a log of the host.
#[test]
fn a_file_that_becomes_a_database_does_not_come_below_a_log_of_the_host() {
    for (base, run, host, conflict) in [
        (write("x", "old"), pages("x", "new"), ("x-wal", "log"), Some("x-wal")),
        (pages("x", "old"), write("x", "new"), ("x-journal", "log"), Some("x-journal")),
        // The twins: no file is of whole pages, or the log is empty.
        (write("x", "old"), write("x", "new!"), ("x-wal", "log"), None),
        (pages("x", "old"), pages("x", "new"), ("x-wal", ""), None),
        // No file is a database, and neither log begins like one.
        (plain("x", "old"), plain("x", "new"), ("x-wal", "log"), None),
        (plain("x", "old"), write("x", "new"), ("x-journal", "log"), None),
        (plain("x", "old"), plain("x", "new"), ("x-wal", "7\u{7f}\u{6}"), None),
    ] {
        let case = format!("{base:?} {run:?}");
        let (scene, conflicts, _) = after(&[base], &[run], &[host], &Rules::default());
        assert_eq!(conflicts.first().map(String::as_str), conflict, "{case}");
        let now = fs::read_to_string(scene.ws().join("x")).unwrap();
        let now = now.strip_prefix(BEGIN).unwrap_or(&now);
        assert_eq!(now.starts_with("new"), conflict.is_none(), "{case}");
    }
}

/// A text and another one with a name like that of its log: none of them is of SQLite.
#[test]
fn texts_with_the_names_of_a_database_and_its_log_are_no_database() {
    let base = [plain("x", "old"), write("x-journal", "old")];
    for name in ["x", "x-journal"] {
        let (scene, conflicts, waits) =
            after(&base, &[plain("x", "new"), write("x-journal", "new")], &[], &named(&[name]));
        assert_eq!((conflicts, waits.contains(&name.to_owned())), (vec![], false), "{name}: {waits:?}");
        assert!(fs::read_to_string(scene.ws().join(name)).unwrap().starts_with("new"), "{name}");
    }
    let one = [write("x-journal", "new")];
    let (scene, conflicts, waits) = after(&base, &one, &[("x", "of the host")], &Rules::default());
    assert_eq!((conflicts, waits), (vec![], vec![]));
    assert_eq!(fs::read_to_string(scene.ws().join("x-journal")).unwrap(), "new");
    // The twin: a database of the host, or of the run.
    for (of_run, of_host) in [(false, true), (true, false)] {
        let first = |is_one| format!("{}of the host", if is_one { BEGIN } else { "" });
        let base = [if of_run { pages("x", "old") } else { plain("x", "old") }, write("x-journal", "old")];
        let (_, conflicts, _) = after(&base, &one, &[("x", &first(of_host || of_run))], &Rules::default());
        assert_eq!(conflicts, ["x"], "{of_run} {of_host}");
    }
}

/// The run opened the log, or the database, and left it as it was.
#[test]
fn a_log_or_database_that_says_the_same_holds_nothing() {
    let base = [pages("x", "old"), write("x-wal", "log")];
    let copied_up = |path: &str| Op::Chmod(b(path), 0o644);
    let of_one = [(pages("x", "new"), copied_up("x-wal"), "x"), (copied_up("x"), write("x-wal", "new"), "x-wal")];
    for (one, other, name) in of_one {
        let (scene, conflicts, waits) = after(&base, &[one, other], &[], &named(&[name]));
        let now = fs::read_to_string(scene.ws().join(name)).unwrap();
        assert!(now.contains("new") && conflicts.is_empty(), "{name}: {now} {waits:?}");
    }
    let (_, conflicts, waits) = after(&base, &[copied_up("x-wal")], &[("x", "of the host")], &Rules::default());
    assert_eq!((conflicts, waits), (vec![], vec![]));
}

/// The database is a protected file, and its log has no rule of its own.
#[test]
fn a_log_waits_with_a_database_that_is_protected() {
    let base = [pages(".fslckout", "old")];
    let run = [pages(".fslckout", "new"), write(".fslckout-journal", "log")];
    let (scene, conflicts, waits) = after(&base, &run, &[], &Rules::default());
    assert_eq!((conflicts, waits), (vec![], vec![".fslckout".to_owned(), ".fslckout-journal".to_owned()]));
    assert!(!scene.ws().join(".fslckout-journal").exists());
}
