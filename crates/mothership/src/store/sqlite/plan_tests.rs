//! The cost of a claim stays the same in SQLite, however many directives are stored and whatever other territories have: the steps of
//! the look for the first ready directive, and the plans of all statements of a directive's life.

use crate::store::Store;
use crate::store::life_tests::{Subject, stored};
use crate::store::rows::FIRST_READY;
use crate::store::sql::seen;
use rusqlite::{Connection, StatementStatus, params};

/// No territory: every one may claim.
const ANY: [u8; 16] = [0; 16];

const ROW: &str = "rank, phase, timeout_ms, requeue, log_limit, out, err";

/// Stores so many ready directives of other facilities, and as many that are over.
fn fill(db: &Connection, account: &[u8], count: u32) {
    let text = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
         INSERT INTO work (directive_id, account_id, facility_id, pin, class_id, {ROW})
           SELECT randomblob(16), ?1, randomblob(16), ?2, (SELECT min(id) FROM class), 1000000 + n, 1, 1, 0, 1, '{{}}', '{{}}'
           FROM numbers"
    );
    db.execute(&text, params![account, ANY]).unwrap();
    let text = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
         INSERT INTO directive (id, account_id, facility_id, state, created_at, ended_at, spec, approval_reasons, kept)
           SELECT randomblob(16), ?1, randomblob(16), 'succeeded', n, n, '{{}}', '[]', 0 FROM numbers"
    );
    db.execute(&text, params![account]).unwrap();
}

/// Stores another territory with ten ready directives that only it may claim and that came earlier.
fn neighbour(db: &Connection, account: &[u8]) {
    let id: Vec<u8> = db.query_row("SELECT randomblob(16)", [], |row| row.get(0)).unwrap();
    db.execute(
        "INSERT INTO territory (id, account_id, state, kind, created_at) VALUES (?1, ?2, 1, 'server', 1)",
        params![id, account],
    )
    .unwrap();
    db.execute(
        "INSERT INTO presence (territory_id, last_seen, labels, capacity, guarantees, profiles) VALUES (?1, 1, '{}', '{}', '[]', '[]')",
        params![id],
    )
    .unwrap();
    let text = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10)
         INSERT INTO work (directive_id, account_id, facility_id, pin, class_id, {ROW})
           SELECT randomblob(16), ?1, randomblob(16), ?2, (SELECT min(id) FROM class), n, 1, 1, 0, 1, '{{}}', '{{}}' FROM numbers"
    );
    db.execute(&text, params![account, id]).unwrap();
}

/// Steps of the virtual machine that the look for the first ready directive takes, and rows that it goes over without an index.
fn steps_of_a_look(db: &Connection, account: &[u8]) -> (i32, i32) {
    let class: i64 = db.query_row("SELECT min(id) FROM class", [], |row| row.get(0)).unwrap();
    let mut look = db.prepare(FIRST_READY).unwrap();
    look.query_row(params![account, class, ANY], |row| row.get::<_, i64>(0)).unwrap();
    (look.get_status(StatementStatus::VmStep), look.get_status(StatementStatus::FullscanStep))
}

/// Returns the plans of all statements that were seen, with the text of each.
fn plans(db: &Connection) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for text in seen::all() {
        // Statements about the database itself have no plan.
        let Ok(mut statement) = db.prepare(&format!("EXPLAIN QUERY PLAN {text}")) else { continue };
        let (mut rows, mut lines) = (statement.raw_query(), Vec::new());
        while let Some(row) = rows.next().unwrap() {
            lines.push(row.get::<_, String>("detail").unwrap());
        }
        found.push((text, lines));
    }
    found
}

/// Reports whether a line of a plan goes over all directives. Few are held, wait for a time, or wait for an approval.
fn is_scan(line: &str) -> bool {
    let table = line.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
    let is_large = table.is_some_and(|name| matches!(name, "work" | "w" | "directive" | "d"));
    is_large && !["work_held", "work_queue", "work_awaits"].iter().any(|index| line.contains(index))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cost_of_a_claim_in_sqlite_does_not_grow_with_the_directives() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open_sqlite(directory.path(), 1).unwrap();
    let subject = Subject::of(store).await;
    subject.life().await;
    let account = *subject.account.id.as_bytes();
    let db = Connection::open(directory.path().join("mothership.db")).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let count = stored();
    let cases =
        ["1,000 directives".to_owned(), format!("{count} more"), "10 territories".into(), "1,000 territories".into()];
    let mut measured = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        match number {
            0 => fill(&db, &account, 1_000),
            1 => fill(&db, &account, count),
            2 => (0..10).for_each(|_| neighbour(&db, &account)),
            _ => {
                db.execute_batch("BEGIN").unwrap();
                (10..1_000).for_each(|_| neighbour(&db, &account));
                db.execute_batch("COMMIT").unwrap();
            }
        }
        let (steps, claim) = (steps_of_a_look(&db, &account), subject.claim().await);
        println!("    {case}: {} steps of a look, {claim:?} for a claim", steps.0);
        measured.push(steps);
    }
    assert!(measured.iter().all(|steps| *steps == measured[0] && steps.1 == 0), "{measured:?}");
    let plans = plans(&db);
    let scans: Vec<String> = plans
        .iter()
        .filter(|(_, plan)| plan.iter().any(|line| is_scan(line)))
        .map(|(text, plan)| format!("{text}\n{}", plan.join("\n")))
        .collect();
    assert!(scans.is_empty(), "{}", scans.join("\n\n"));
    let of_work = plans.iter().filter(|(text, _)| text.contains("work")).count();
    println!("    {} statements, {of_work} of them about directives that are not over", plans.len());
    assert!(plans.len() > 25 && of_work > 10, "{} statements were seen", plans.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_of_long_commands_in_sqlite_is_read_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open_sqlite(directory.path(), 1).unwrap();
    Subject::of(store).await.lists_in_parts().await;
}
