//! The cost of a claim stays the same, however many directives are stored: the plans that the server uses for the statements of a
//! directive's life, over many rows.

use super::client::Client;
use super::database::Database;
use super::pool::Postgres;
use crate::store::Store;
use crate::store::sql::{Connection, Row};
use crate::store::types::{
    Account, Creation, EndResult, Enrolment, Holding, LeaseTimes, NewChunk, NewEnd, NewFacility, NewTerritory, Offer,
    Presence, Reported, Territory,
};
use crate::store::value::params;
use nexus_api::Labels;
use nexus_api::conduits::{Capacity, Stream};
use nexus_api::mothership::FacilityKind;
use nexus_model::directive::FinishStatus;
use nexus_model::ids::DirectiveId;
use std::cell::RefCell;
use std::sync::Arc;

#[path = "../../../tests/support/cluster.rs"]
mod cluster;

/// Number of stored directives, of either kind: 100,000 unless `NEXUS_SOAK_STORED` says otherwise.
fn stored() -> u32 {
    std::env::var("NEXUS_SOAK_STORED").map_or(100_000, |text| text.parse().unwrap())
}

const TIMES: LeaseTimes = LeaseTimes { ttl_ms: 60_000, start_ms: 8_000, offline_ms: 90_000, prepare_ms: 600_000 };

struct Scene {
    store: Store,
    database: String,
    account: Account,
    territory: Territory,
}

impl Scene {
    async fn new() -> Self {
        let database = cluster::shared().database();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let read = Database::read(&cluster::shared().url(&database), provider).unwrap();
        let (store, _, _) = Store::open_postgres(read, 1).await.unwrap();
        store.first_account([1; 32], 1).await.unwrap();
        let account = store.key_by_hash([1; 32]).await.unwrap().unwrap();
        store.create_enroll_token(account, [2; 32], None, Labels::default(), [i64::MAX, 1]).await.unwrap();
        let capacity: Capacity = serde_json::from_value(serde_json::json!({"max_concurrent": 1000})).unwrap();
        let new = NewTerritory {
            token: [2; 32],
            csr_key: None,
            source: String::new(),
            max_tries: 10,
            kind: None,
            name: None,
            display_name: None,
            platform: None,
            labels: Labels::default(),
            capacity,
        };
        let Enrolment::Enrolled { territory, .. } = store.enroll(new, 1).await.unwrap() else {
            panic!("not enrolled");
        };
        Self { store, database, account, territory }
    }

    async fn create(&self) -> DirectiveId {
        let new = NewFacility { kind: FacilityKind::Empty, name: None, repo_url: None, pin: None };
        let id = self.store.create_facility(self.account, new, 1).await.unwrap();
        let facility = self.store.facility_ref(self.account, id).await.unwrap();
        let request = serde_json::json!({"command": "x", "group": "g", "queue_timeout_seconds": 1_000_000});
        let mut new = crate::decide::build(
            serde_json::from_value(request).unwrap(),
            facility,
            self.account.role,
            &nexus_policy::document::Effective::default(),
            60_000,
        )
        .unwrap();
        new.idempotency = Some((DirectiveId::new().to_string(), "h".into()));
        match self.store.create_directive(self.account, new, 1).await.unwrap() {
            Creation::Stored { id, .. } => id,
            Creation::OtherBody => panic!("another body"),
        }
    }

    /// Stores so many ready directives of other facilities, and as many that are over.
    fn fill(&self, count: u32) {
        let account = data_encoding::HEXLOWER.encode(self.account.id.as_bytes());
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
        let account = data_encoding::HEXLOWER.encode(self.account.id.as_bytes());
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

    async fn life(&self) {
        let made = self.create().await;
        let offer =
            Offer { profiles: vec!["untrusted".into()], guarantees: None, max: 1, poll_id: Some(made.to_string()) };
        let claims = self.store.claim(self.territory, offer, TIMES, 2).await.unwrap().claims;
        assert_eq!(claims[0].id, made, "the new directive has the lowest rank");
        let holding = Holding { directive: made, fence: claims[0].fence };
        self.store.started(self.territory, holding, "v".into(), TIMES, 3).await.unwrap();
        self.store.beat(self.territory, holding, None, TIMES, 3).await.unwrap();
        let chunk = NewChunk { stream: Stream::Stdout, seq: 0, bytes: b"x".to_vec(), truncated: false };
        self.store.put_chunk(self.territory, holding, chunk, 4).await.unwrap();
        self.store.directive(self.account, made, TIMES, 4).await.unwrap();
        let end = NewEnd {
            status: FinishStatus::Succeeded,
            reason: None,
            exit_code: Some(0),
            truncated: [false; 2],
            payload_hash: "p".into(),
            diff: Some(b"d".to_vec()),
            receipt: None,
            result: EndResult::default(),
        };
        let ended = self.store.finished(self.territory, holding, end, 5).await.unwrap();
        assert!(matches!(ended, Reported::Done(_)), "{ended:?}");
        self.store.reap(5).await.unwrap();
        let beat = Presence {
            labels: None,
            capacity: None,
            nexus_version: None,
            protocol_version: None,
            running: None,
            directives: Vec::new(),
        };
        self.store.presence(self.territory, beat, TIMES, 6).await.unwrap();
    }

    fn database(&self) -> &Postgres {
        self.store.shared().unwrap()
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
    let account = data_encoding::HEXLOWER.encode(scene.account.id.as_bytes());
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
    scene.life().await;
    scene.fill(1_000);
    let few = pages_of_a_look(&scene);
    scene.fill(stored());
    let many = pages_of_a_look(&scene);
    scene.neighbours(0..10);
    let ten = pages_of_a_look(&scene);
    scene.neighbours(10..1_000);
    let thousand = pages_of_a_look(&scene);
    let count = stored();
    println!(
        "    pages of a look: {few} with 1,000 directives, {many} with {count} more, {ten} and {thousand} with 10 and 1,000 territories"
    );
    // A deeper tree, and pages that the claims before left behind.
    for pages in [many, ten, thousand] {
        assert!(pages < few + 20, "{few} pages with 1,000 directives; {many}, {ten} and {thousand} with more");
    }
    // The statements are prepared again with what the server knows now.
    scene.database().0.drop_idle();
    scene.life().await;
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
