//! The cost of a claim stays the same, however many directives are stored: the plans that the server uses for the statements of a
//! directive's life, over many rows.

use super::client::Client;
use super::database::Database;
use super::pool::Postgres;
use crate::store::Store;
use crate::store::life_tests::{Subject, stored};
use crate::store::sql::{Connection, Row};
use crate::store::value::params;
use std::cell::RefCell;
use std::sync::Arc;

#[path = "../../../tests/support/cluster.rs"]
mod cluster;

struct Scene {
    subject: Subject,
    database: String,
}

impl Scene {
    async fn new() -> Self {
        let database = cluster::shared().database();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let read = Database::read(&cluster::shared().url(&database), provider).unwrap();
        let (store, _, _) = Store::open_postgres(read, 1).await.unwrap();
        Self { subject: Subject::of(store).await, database }
    }

    /// Stores so many ready directives of other facilities, and as many that are over.
    fn fill(&self, count: u32) {
        let account = data_encoding::HEXLOWER.encode(self.subject.account.id.as_bytes());
        let class = "(SELECT min(id) FROM class)";
        let id = |salt: u32| format!("decode(md5('{salt} {count} ' || n), 'hex')");
        let any = "decode(repeat('00', 16), 'hex')";
        let counters = r#"{"count":0,"top":-1,"bytes":0,"next":0,"truncated":false}"#;
        cluster::shared().sql(
            &self.database,
            &format!(
                "INSERT INTO work (directive_id, account_id, facility_id, pin, class_id, rank, phase, timeout_ms, requeue,
                   log_limit, out, err)
                   SELECT {}, '\\x{account}', {}, {any}, {class}, 1000000 + n, 1, 1, FALSE, 1, '{counters}', '{counters}'
                   FROM generate_series(1, {count}) n;
                 INSERT INTO directive (id, account_id, facility_id, state, created_at, ended_at, spec, approval_reasons, kept)
                   SELECT {}, '\\x{account}', {}, 'succeeded', n, n, '{{}}', '[]', 0 FROM generate_series(1, {count}) n;",
                id(1),
                id(2),
                id(3),
                id(4)
            ),
        );
        cluster::shared().sql(&self.database, "VACUUM ANALYZE");
    }

    /// Stores other territories with these numbers, each with ten ready directives that only it may claim and that came earlier.
    fn neighbours(&self, numbers: std::ops::Range<u32>) {
        let account = data_encoding::HEXLOWER.encode(self.subject.account.id.as_bytes());
        let class = "(SELECT min(id) FROM class)";
        let id = |salt: &str| format!("decode(md5('{salt} ' || n), 'hex')");
        let counters = r#"{"count":0,"top":-1,"bytes":0,"next":0,"truncated":false}"#;
        let territory = "decode(md5('territory ' || n / 10), 'hex')";
        let (first, last) = (numbers.start * 10, numbers.end * 10 - 1);
        cluster::shared().sql(
            &self.database,
            &format!(
                "INSERT INTO territory (id, account_id, state, kind, created_at)
                   SELECT DISTINCT {territory}, '\\x{account}'::bytea, 1, 'server', 1 FROM generate_series({first}, {last}) n;
                 INSERT INTO presence (territory_id, last_seen, labels, capacity, guarantees, profiles)
                   SELECT DISTINCT {territory}, 1, '{{}}', '{{}}', '[]', '[]' FROM generate_series({first}, {last}) n;
                 INSERT INTO work (directive_id, account_id, facility_id, pin, class_id, rank, phase, timeout_ms, requeue,
                   log_limit, out, err)
                   SELECT {}, '\\x{account}', {}, {territory}, {class}, n, 1, 1, FALSE, 1, '{counters}', '{counters}'
                   FROM generate_series({first}, {last}) n;",
                id("neighbour"),
                id("its facility"),
            ),
        );
        cluster::shared().sql(&self.database, "VACUUM ANALYZE");
    }

    fn database(&self) -> &Postgres {
        self.subject.store.shared().unwrap()
    }
}

fn lines(connection: &Connection<'_>, text: &str) -> Vec<String> {
    let read = |row: &Row<'_>| row.get(0);
    connection.prepare_cached(text).unwrap().query_all(params![], read).unwrap()
}

/// Plans of all statements that a session has prepared, with the text of each.
fn plans(session: Client) -> Vec<(String, Vec<String>)> {
    let session = RefCell::new(session);
    session.borrow_mut().batch("SET plan_cache_mode = force_generic_plan").unwrap();
    let connection = Connection::postgres(&session);
    let question = "SELECT CAST(name AS text), statement, CAST(coalesce(array_length(parameter_types, 1), 0) AS bigint)
        FROM pg_prepared_statements";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?));
    let known: Vec<(String, String, i64)> =
        connection.prepare_cached(question).unwrap().query_all(params![], read).unwrap();
    let known = known.into_iter().filter(|(_, text, _)| !text.contains("pg_") && !text.contains("plan_cache"));
    known
        .map(|(name, text, count)| {
            let values = vec!["NULL"; count as usize].join(", ");
            let values = if count == 0 { String::new() } else { format!("({values})") };
            (text, lines(&connection, &format!("EXPLAIN EXECUTE {name}{values}")))
        })
        .collect()
}

/// Cost of a plan, in the units of the server.
fn cost(plan: &[String]) -> f64 {
    let first = plan.first().unwrap().split("..").nth(1).unwrap();
    first.split(' ').next().unwrap().parse().unwrap()
}

/// Pages that the look for the first ready directive touches.
fn pages_of_a_look(scene: &Scene) -> u64 {
    let session = RefCell::new(scene.database().0.connect().unwrap());
    let connection = Connection::postgres(&session);
    let account = data_encoding::HEXLOWER.encode(scene.subject.account.id.as_bytes());
    let text = crate::store::rows::FIRST_READY
        .replace("?1", &format!("'\\x{account}'"))
        .replace("?2", "(SELECT min(id) FROM class)")
        .replace("?3", "decode(repeat('00', 16), 'hex')");
    let plan = lines(&connection, &format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {text}"));
    let first = plan.iter().find(|line| line.contains("Buffers:")).unwrap();
    let numbers = first.split(['=', ' ']).filter_map(|word| word.parse::<u64>().ok());
    numbers.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cost_of_a_claim_does_not_grow_with_the_directives() {
    let scene = Scene::new().await;
    scene.subject.life().await;
    let mut measured = Vec::new();
    scene.fill(1_000);
    measured.push((pages_of_a_look(&scene), scene.subject.claim().await));
    scene.fill(stored());
    measured.push((pages_of_a_look(&scene), scene.subject.claim().await));
    scene.neighbours(0..10);
    measured.push((pages_of_a_look(&scene), scene.subject.claim().await));
    scene.neighbours(10..1_000);
    measured.push((pages_of_a_look(&scene), scene.subject.claim().await));
    let count = stored();
    let cases =
        ["1,000 directives".to_owned(), format!("{count} more"), "10 territories".into(), "1,000 territories".into()];
    for (case, (pages, claim)) in cases.iter().zip(&measured) {
        println!("    {case}: {pages} pages of a look, {claim:?} for a claim");
    }
    let [few, many, ten, thousand] = [0, 1, 2, 3].map(|case: usize| measured[case].0);
    // A deeper tree, and pages that the claims before left behind.
    for pages in [many, ten, thousand] {
        assert!(pages < few + 20, "{few} pages with 1,000 directives; {many}, {ten} and {thousand} with more");
    }
    // The statements are prepared again with what the server knows now.
    scene.database().0.drop_idle();
    scene.subject.life().await;
    // Without values the server takes a third of the rows for those that a statement wants.
    let most = 2_000.0 * f64::from(stored()) / 100_000.0;
    let (mut seen, mut dearest) = (0, (0.0, String::new()));
    while let Some(session) = scene.database().0.take_idle() {
        for (text, plan) in plans(session) {
            seen += 1;
            let is_scan = |line: &String| {
                ["work", "directive"].iter().any(|table| line.contains(&format!("Seq Scan on {table} ")))
            };
            assert!(!plan.iter().any(is_scan), "{text}\n{}", plan.join("\n"));
            // A whole table or a whole index of these rows costs five times as much.
            if cost(&plan) > dearest.0 {
                dearest = (cost(&plan), text.clone());
            }
            assert!(cost(&plan) < most, "{text}\n{}", plan.join("\n"));
        }
    }
    println!("    {seen} statements, of which the dearest has the cost {}: {}", dearest.0, dearest.1);
    assert!(seen > 25, "only {seen} statements were seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_loses_the_lead() {
    let database = cluster::shared().database();
    let open = async || {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let read = Database::read(&cluster::shared().url(&database), provider).unwrap();
        Store::open_postgres(read, 1).await.unwrap().0
    };
    let (first, second) = (open().await, open().await);
    let round = async |store: &Store| store.shared().unwrap().round(crate::clock::Clock::system()).await;
    assert!(round(&first).await.unwrap() && !round(&second).await.unwrap());
    // Rounds keep it for longer than the bound.
    let clock = std::time::Instant::now();
    while clock.elapsed() < std::time::Duration::from_secs(22) {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert!(round(&first).await.unwrap() && !round(&second).await.unwrap());
    }
    // It says nothing any more, and its session stays open.
    let clock = std::time::Instant::now();
    while !round(&second).await.unwrap() {
        assert!(clock.elapsed() < std::time::Duration::from_secs(40), "nobody leads");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(!round(&first).await.unwrap_or(false), "two lead");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_of_long_commands_in_postgres_is_read_in_parts() {
    Scene::new().await.subject.lists_in_parts().await;
}
