//! Figures of the fleet, for `cargo xtask bench`: prints one line of JSON.
//!
//! ```text
//!  fleet_bench lives SECONDS CLIENTS STORED TERRITORIES    whole lives of directives a second: create, claim, started, a chunk, finished
//!  fleet_bench shared SECONDS CLIENTS STORED TERRITORIES   the same over PostgreSQL, and the transactions of pgbench -N on the same server
//!  fleet_bench idle COUNT                                  time from the creation to the claim by a poll that waits, and the p99 of it
//!  fleet_bench page COUNT STORED                           time until the console's page of 10,000 directives is there, over as many stored ones
//!  fleet_bench append COUNT                                time that one event costs in the audit chain: its row in the act, and its place and hash
//!  fleet_bench up URL COUNT COMMAND                        directives through a fleet that runs, one after the other; the key is in NEXUS_API_KEY
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement ends at the first surprise")]

#[path = "../tests/support/cluster.rs"]
mod cluster;

use cluster::Cluster;
use nexus_api::base64;
use nexus_api::client::{ClientConfig, ConduitsClient, Http, MothershipClient, TerritoryIdentity};
use nexus_api::conduits::{EnrollRequest, FinishedRequest, LogChunkRequest, PollRequest, StartedRequest, Stream};
use nexus_api::mothership::{CreateDirective, CreateEnrollmentToken, CreateFacility, DirectiveEvent, FacilityKind};
use nexus_model::directive::FinishStatus;
use nexus_model::ids::{DirectiveId, FacilityId, TerritoryId};
use nexus_mothership::{Config, Database, Listener, Running, TerritoryAuth, serve};
use serde_json::json;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// A measurement that takes longer waits for something that does not come.
const LONGEST: Duration = Duration::from_secs(900);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let measured = async {
        match words[0].as_str() {
            "lives" => lives(Duration::from_secs(number(1)), number(2), number(3), number(4), None).await,
            "shared" => shared(number(1), number(2), number(3), number(4)).await,
            "idle" => idle(number(1)).await,
            "page" => page(number(1), number(2)).await,
            "append" => append(number(1)).await,
            "up" => up(&words[1], number(2), &words[3]).await,
            other => panic!("{other} is not known"),
        }
    };
    let measured = async { tokio::time::timeout(LONGEST, measured).await };
    println!("{}", runtime.block_on(measured).expect("the measurement did not end"));
}

struct Server {
    running: Running,
    key: String,
}

impl Server {
    async fn start(data: &Path, database: Option<Database>) -> Self {
        let mut config = Config::new(data);
        config.database = database;
        config.territory_auth = TerritoryAuth::Header;
        config.enroll_per_hour = u32::MAX;
        config.empty_polls_per_minute = u32::MAX;
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let running = serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await.unwrap();
        let key = running.first_key.clone().unwrap();
        Self { running, key }
    }

    fn http(&self) -> Http {
        Http::new(ClientConfig::new(&self.running.api_url)).unwrap()
    }

    fn owner(&self) -> MothershipClient {
        MothershipClient::new(&self.http(), &self.key).unwrap()
    }

    async fn daemon(&self) -> ConduitsClient {
        let token = self.owner().create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token;
        let anyone = ConduitsClient::new(&self.http(), &TerritoryIdentity::Certificate).unwrap();
        let request = EnrollRequest { enroll_token: token, ..EnrollRequest::default() };
        let id: TerritoryId = anyone.enroll(&request).await.unwrap().territory_id;
        ConduitsClient::new(&self.http(), &TerritoryIdentity::Header(id)).unwrap()
    }
}

async fn facility(users: &MothershipClient) -> FacilityId {
    let kind = FacilityKind::Empty;
    let new = CreateFacility { kind, name: None, repo_url: None, territory_id: None, retention_policy: None };
    users.create_facility(&new).await.unwrap().facility_id
}

fn directive(command: &str) -> CreateDirective {
    CreateDirective { command: command.to_owned(), ..CreateDirective::default() }
}

/// A data directory beside the program's other ones, on a disk.
fn data() -> std::path::PathBuf {
    let path = Path::new("/var/tmp").join(format!("nexus-fleet-bench-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Adds directives that have ended.
fn store(data: &Path, count: u64) {
    let mut db = rusqlite::Connection::open(data.join("mothership.db")).unwrap();
    let account: Vec<u8> = db.query_row("SELECT id FROM account", [], |row| row.get(0)).unwrap();
    let spec = json!({"directive_id": DirectiveId::new(), "facility": {"id": FacilityId::new()}, "command": "true"})
        .to_string();
    let facilities: Vec<FacilityId> = (0..1000).map(|_| FacilityId::new()).collect();
    let transaction = db.transaction().unwrap();
    {
        let mut insert = transaction
            .prepare(
                "INSERT INTO directive (id, account_id, facility_id, state, exit_code, attempt, fence, version, created_at, ended_at,
                   spec, approval_reasons) VALUES (?1, ?2, ?3, 'succeeded', 0, 1, 1, 4, ?4, ?4, ?5, '[]')",
            )
            .unwrap();
        for number in 0..count {
            let facility = facilities[(number % 1000) as usize].as_bytes();
            insert
                .execute(rusqlite::params![DirectiveId::new().as_bytes(), account, facility, number as i64, spec])
                .unwrap();
        }
    }
    transaction.commit().unwrap();
}

fn end() -> FinishedRequest {
    serde_json::from_value(json!({"status": FinishStatus::Succeeded, "exit_code": 0})).unwrap()
}

/// The lives over a PostgreSQL of this program, between two runs of pgbench on the same server.
async fn shared(seconds: u64, clients: u64, stored: u64, territories: u64) -> serde_json::Value {
    let cluster = Cluster::start_durable();
    cluster.sql("postgres", "CREATE DATABASE bench");
    pgbench(&cluster, &["-i", "-s", "10", "-q"]);
    let (count, time) = (clients.to_string(), seconds.to_string());
    let measure = ["-N", "-n", "-c", &count, "-j", "2", "-T", &time];
    let before = pgbench(&cluster, &measure);
    let database = cluster.database();
    let here = Some((&cluster, database.as_str()));
    let mut answer = lives(Duration::from_secs(seconds), clients, stored, territories, here).await;
    let after = pgbench(&cluster, &measure);
    let tps = before.zip(after).map(|(before, after)| f64::midpoint(before, after)).unwrap();
    answer["pgbench_tps"] = json!(tps);
    answer["of_pgbench"] = json!(answer["lives_per_second"].as_f64().unwrap() / tps);
    answer
}

/// Runs pgbench, and returns its transactions a second.
fn pgbench(cluster: &Cluster, words: &[&str]) -> Option<f64> {
    let output = cluster.tool("pgbench").args(words).arg("bench").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("tps = ").nth(1)?.split(' ').next()?.parse().ok()
}

/// Adds directives that have ended to a database of PostgreSQL.
fn store_shared(cluster: &Cluster, database: &str, count: u64) {
    let spec = json!({"directive_id": DirectiveId::new(), "facility": {"id": FacilityId::new()}, "command": "true"});
    cluster.sql(
        database,
        &format!(
            "INSERT INTO directive (id, account_id, facility_id, state, exit_code, attempt, fence, version, created_at, ended_at,
               spec, approval_reasons) SELECT uuid_send(gen_random_uuid()), (SELECT id FROM account),
               decode(md5('facility ' || n % 1000), 'hex'), 'succeeded', 0, 1, 1, 4, n, n, '{spec}', '[]'
               FROM generate_series(1, {count}) n"
        ),
    );
    // The server would do that on its own, some time in the middle of the measurement.
    cluster.sql(database, "VACUUM ANALYZE");
    cluster.sql(database, "CHECKPOINT");
}

async fn lives(
    time: Duration,
    clients: u64,
    stored: u64,
    territories: u64,
    shared: Option<(&Cluster, &str)>,
) -> serde_json::Value {
    let data = data();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let database = shared.map(|(cluster, name)| Database::read(&cluster.url(name), provider).unwrap());
    let server = Server::start(&data, database).await;
    match shared {
        Some((cluster, name)) => store_shared(cluster, name, stored),
        None => store(&data, stored),
    }
    for _ in 0..territories {
        server.daemon().await;
    }
    let mut ready = Vec::new();
    for _ in 0..clients {
        let (users, daemon) = (server.owner(), server.daemon().await);
        let facility = facility(&users).await;
        // The first life pins the facility: from then on no other client gets a directive of it.
        life(&users, &daemon, facility).await;
        ready.push((users, daemon, facility));
    }
    let begin = Instant::now();
    let tasks: Vec<_> = ready
        .into_iter()
        .map(|(users, daemon, facility)| {
            tokio::spawn(async move {
                let mut count = 0u64;
                while begin.elapsed() < time {
                    count += life(&users, &daemon, facility).await;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap();
    }
    let seconds = begin.elapsed().as_secs_f64();
    server.running.stop();
    server.running.stopped().await;
    std::fs::remove_dir_all(&data).unwrap();
    json!({
        "mode": if shared.is_some() { "shared" } else { "lives" }, "clients": clients, "stored": stored, "territories": territories,
        "lives": count, "lives_per_second": count as f64 / seconds,
    })
}

/// One life of a directive, by a client that is its user and its daemon.
async fn life(users: &MothershipClient, daemon: &ConduitsClient, facility: FacilityId) -> u64 {
    users.create_directive(facility, &directive("true"), None).await.unwrap();
    let claims = daemon.poll(&PollRequest { wait_seconds: Some(20), ..PollRequest::default() }).await.unwrap();
    let mut count = 0;
    for claim in claims.directives {
        let (id, token) = (claim.directive_id, claim.directive_token);
        daemon.started(id, &token, &StartedRequest::default()).await.unwrap();
        let bytes = base64::encode(b"output\n");
        let chunk = LogChunkRequest { stream: Stream::Stdout, seq: 0, bytes, truncated: false };
        daemon.log_chunk(id, &token, &chunk).await.unwrap();
        daemon.finished(id, &token, &end()).await.unwrap();
        count += 1;
    }
    count
}

async fn idle(count: u64) -> serde_json::Value {
    let data = data();
    let server = Server::start(&data, None).await;
    let (users, daemon) = (server.owner(), server.daemon().await);
    let facility = facility(&users).await;
    let mut times = Vec::new();
    for _ in 0..count {
        let waiting = daemon.clone();
        let poll = tokio::spawn(async move {
            let claimed =
                waiting.poll(&PollRequest { wait_seconds: Some(20), ..PollRequest::default() }).await.unwrap();
            (Instant::now(), claimed.directives)
        });
        // The poll has to wait already: it is the creation that wakes it.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let created = Instant::now();
        users.create_directive(facility, &directive("true"), None).await.unwrap();
        let (claimed, mut directives) = poll.await.unwrap();
        times.push((claimed - created).as_secs_f64() * 1e6);
        let claim = directives.remove(0);
        daemon.started(claim.directive_id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        daemon.finished(claim.directive_id, &claim.directive_token, &end()).await.unwrap();
    }
    server.running.stop();
    server.running.stopped().await;
    std::fs::remove_dir_all(&data).unwrap();
    summary("idle", times)
}

/// Gets the longest page of the console again and again, first and last one of the list in turn.
async fn page(count: u64, stored: u64) -> serde_json::Value {
    const ENTRIES: u64 = 10_000;
    let data = data();
    let server = Server::start(&data, None).await;
    store(&data, stored.max(ENTRIES));
    let (address, key) = (server.running.addresses[0], server.key.clone());
    let times = tokio::task::spawn_blocking(move || {
        let form = format!("key={key}");
        let kind = "Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin\r\n";
        let answer = request(address, "POST", "/login", kind, &form);
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
        // The page that ends the list stands behind all others.
        let db = rusqlite::Connection::open(data.join("mothership.db")).unwrap();
        let last: Vec<u8> = db
            .query_row("SELECT id FROM directive ORDER BY id LIMIT 1 OFFSET ?1", [ENTRIES], |row| row.get(0))
            .unwrap_or(vec![0xff; 16]);
        let last = DirectiveId::from_bytes(last.try_into().unwrap());
        let mut times = Vec::new();
        for number in 0..count {
            let before = if number % 2 == 0 { String::new() } else { format!("&before={last}") };
            let start = Instant::now();
            let answer = request(address, "GET", &format!("/directives?limit={ENTRIES}{before}"), &cookie, "");
            times.push(start.elapsed().as_secs_f64() * 1e6);
            assert_eq!(
                answer.matches("class=\"row-link").count() as u64,
                ENTRIES,
                "{}",
                answer.lines().next().unwrap()
            );
        }
        std::fs::remove_dir_all(&data).unwrap();
        times
    });
    let times = times.await.unwrap();
    server.running.stop();
    server.running.stopped().await;
    summary("page", times)
}

/// Sends one request on a connection of its own, and returns the whole answer.
fn request(address: std::net::SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Adds events as acts do, many in one transaction so that no commit is counted, and lets the server give them their places.
async fn append(count: u64) -> serde_json::Value {
    let data = data();
    let server = Server::start(&data, None).await;
    let users = server.owner();
    users.audit_events(None, 1).await.unwrap();
    let mut db = rusqlite::Connection::open(data.join("mothership.db")).unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    let account: Vec<u8> = db.query_row("SELECT id FROM account", [], |row| row.get(0)).unwrap();
    let actor = json!({"kind": "api_key", "id": DirectiveId::new(), "role": "owner"}).to_string();
    let detail = json!({"facility": FacilityId::new(), "state": "queued", "attempt": 1}).to_string();
    let transaction = db.transaction().unwrap();
    let start = Instant::now();
    {
        let mut insert = transaction
            .prepare(
                "INSERT INTO audit_event (id, account_id, at, actor, action, object, detail)
                   VALUES (?1, ?2, ?3, ?4, 'directive.create', ?5, ?6)",
            )
            .unwrap();
        for number in 0..count {
            let (id, object) = (DirectiveId::new(), format!("directive/{}", DirectiveId::new()));
            insert.execute(rusqlite::params![id.as_bytes(), account, number as i64, actor, object, detail]).unwrap();
        }
    }
    let row_us = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    transaction.commit().unwrap();
    let start = Instant::now();
    let head = users.audit_events(None, 1).await.unwrap().head;
    let place_us = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    assert!(head.seq >= count, "{head:?}");
    server.running.stop();
    server.running.stopped().await;
    std::fs::remove_dir_all(&data).unwrap();
    json!({"mode": "append", "count": count, "row_us": row_us, "place_us": place_us, "event_us": row_us + place_us})
}

async fn up(url: &str, count: u64, command: &str) -> serde_json::Value {
    let http = Http::new(ClientConfig::new(url)).unwrap();
    let users = MothershipClient::new(&http, &std::env::var("NEXUS_API_KEY").unwrap()).unwrap();
    let facility = facility(&users).await;
    let mut times = Vec::new();
    for number in 0..count + 5 {
        // The daemon polls again meanwhile: the fleet is idle.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let created = Instant::now();
        let made = users.create_directive(facility, &directive(command), None).await.unwrap();
        let mut events = users.events(made.directive_id, None).await.unwrap();
        loop {
            let event = events.next().await.unwrap().expect("the stream ends after the end of the directive");
            let data: DirectiveEvent = serde_json::from_str(&event.data).unwrap();
            if data.state.is_terminal() {
                assert_eq!(data.exit_code, Some(0), "{data:?}");
                break;
            }
        }
        // The first ones make the facility.
        if number >= 5 {
            times.push(created.elapsed().as_secs_f64() * 1e6);
        }
    }
    summary("up", times)
}

fn summary(mode: &str, mut times: Vec<f64>) -> serde_json::Value {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    json!({"mode": mode, "count": times.len(), "median_us": at(50), "p99_us": at(99), "least_us": times[0]})
}
