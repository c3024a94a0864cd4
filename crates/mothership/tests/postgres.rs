//! Several servers on one PostgreSQL database: its sessions, its schema, and what happens when it is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::client::{ClientConfig, ConduitsClient, Http, MothershipClient, TerritoryIdentity};
use nexus_api::conduits::{ConnectionRequest, PollRequest, StartedRequest, TerritoryHeartbeatRequest};
use nexus_api::mothership::{ApproveRequest, CreateApiKey, Role};
use nexus_model::directive::{FinishStatus, State};
use nexus_model::ids::TerritoryId;
use nexus_mothership::{Config, Database, Listener, Running, ServeError, TerritoryAuth, serve};
use rcgen::{CertificateParams, KeyPair};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::cluster::{self, Cluster, PASSWORD};
use support::{Server, end, plain, provider};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn users(running: &Running, key: &str) -> MothershipClient {
    MothershipClient::new(&Http::new(ClientConfig::new(&running.api_url)).unwrap(), key).unwrap()
}

fn daemon(running: &Running, id: TerritoryId) -> ConduitsClient {
    let http = Http::new(ClientConfig::new(&running.api_url)).unwrap();
    ConduitsClient::new(&http, &TerritoryIdentity::Header(id)).unwrap()
}

async fn stop(running: Running) {
    running.stop();
    tokio::time::timeout(Duration::from_secs(10), running.stopped()).await.unwrap();
}

/// Starts a server on a database of this address.
async fn try_serve(directory: &TempDir, url: &str) -> Result<Running, ServeError> {
    let mut config = Config::new(directory.path());
    config.territory_auth = TerritoryAuth::Header;
    config.reap_every = Duration::from_millis(100);
    config.database = Some(Database::read(url, provider()).map_err(ServeError::Store)?);
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await
}

/// A territory with this room, whose daemon names its version of the protocol.
async fn territory(server: &Server, room: u32) -> TerritoryId {
    let id = server.enroll("one").await;
    let beat = serde_json::json!({"protocol_version": 1, "capacity": {"max_concurrent": room}});
    let beat: TerritoryHeartbeatRequest = serde_json::from_value(beat).unwrap();
    server.daemon(id).territory_heartbeat(&beat).await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_of_one_server_is_woken_by_a_directive_of_another() {
    let server = Server::start().await;
    let other = server.replica().await;
    let id = territory(&server, 9).await;
    // The listener of the other server needs a moment to begin.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut waited = Vec::new();
    for _ in 0..3 {
        let facility = server.facility().await;
        let poll = daemon(&other, id);
        let request = PollRequest { wait_seconds: Some(20), ..PollRequest::default() };
        let waiting = tokio::spawn(async move { poll.poll(&request).await });
        // The timer of the poll goes off a second after its first look: 700 ms after the creation.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let created = Instant::now();
        server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().directives.len(), 1);
        waited.push(created.elapsed());
    }
    assert!(waited.iter().any(|time| *time < Duration::from_millis(400)), "only timers woke the polls: {waited:?}");
    stop(other).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_reaches_the_other_servers() {
    let server = Server::start().await;
    let other = server.replica().await;
    let id = territory(&server, 9).await;
    let daemon = daemon(&other, id);
    // The listener of the other server needs a moment to begin.
    tokio::time::sleep(Duration::from_millis(500)).await;
    daemon.poll(&PollRequest::default()).await.unwrap();
    let waiting = daemon.clone();
    let waiting =
        tokio::spawn(
            async move { waiting.poll(&PollRequest { wait_seconds: Some(20), ..PollRequest::default() }).await },
        );
    tokio::time::sleep(Duration::from_millis(300)).await;
    let revoked = Instant::now();
    server.owner().revoke(id).await.unwrap();
    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(refused.status(), Some(401));
    assert!(revoked.elapsed() < Duration::from_secs(2), "{:?}", revoked.elapsed());
    assert_eq!(daemon.poll(&PollRequest::default()).await.unwrap_err().status(), Some(401));
    stop(other).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_takes_back_what_has_passed_when_the_first_one_ends() {
    let server = Server::start().await;
    let id = territory(&server, 9).await;
    let facility = server.facility().await;
    let made = server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
    // The first server has the lead before the other one asks for it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let other = server.replica().await;
    // The other one has seen that there is a leader, so it knows of no outage.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let claim = daemon(&other, id).poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    let key = server.key.clone();
    server.stop_then_advance(9_000).await;
    let again =
        daemon(&other, id).poll(&PollRequest { wait_seconds: Some(10), ..PollRequest::default() }).await.unwrap();
    assert_eq!(again.directives[0].directive_id, made.directive_id);
    assert!(again.directives[0].fence > claim.fence, "{again:?}");
    assert_eq!(users(&other, &key).directive(made.directive_id).await.unwrap().attempt, 2);
    stop(other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_ask_answer_and_count_connections_as_one() {
    let server = Server::start().await;
    let other = server.replica().await;
    let id = territory(&server, 1).await;
    let (agent, facility) = (server.owner(), server.facility().await);
    let body = serde_json::json!({"command": "x", "requested_capabilities": {
        "net": {"mode": "allowlist", "allow": [], "x_ext": {"x_ask_seconds": 60}}}});
    let body = serde_json::from_value(body).unwrap();
    let made = agent.create_directive(facility, &body, None).await.unwrap().directive_id;
    let daemons = [server.daemon(id), daemon(&other, id)];
    let claim = daemons[0].poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemons[0].started(made, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    // Many connections to one destination ask both servers at once, and there is one request.
    let connect = |number: usize| {
        let (daemon, token) = (daemons[number % 2].clone(), claim.directive_token.clone());
        tokio::spawn(async move {
            let (destination, use_name) = ("a.test:443".to_owned(), format!("c{number}"));
            let request = ConnectionRequest { destination, program: None, use_name, wait_seconds: 60, gone: false };
            daemon.connection(made, &token, &request).await.unwrap()
        })
    };
    let mut asked = BTreeSet::new();
    for one in (0..12).map(connect).collect::<Vec<_>>() {
        asked.insert(one.await.unwrap().approval_id.unwrap());
    }
    assert_eq!(asked.len(), 1);
    let new = CreateApiKey { role: Role::Operator, name: None };
    let key = server.owner().create_api_key(&new).await.unwrap().api_key;
    let yes = ApproveRequest { approval_id: asked.pop_first(), max_uses: Some(5), ..ApproveRequest::default() };
    users(&other, &key).approve(made, &yes).await.unwrap();
    let mut allowed = 0;
    for one in (0..12).map(connect).collect::<Vec<_>>() {
        allowed += usize::from(one.await.unwrap().allowed);
    }
    assert_eq!(allowed, 5);
    // A server ends, and the other one goes on.
    server.stop().await;
    let rest = (0..12).filter(|number| number % 2 == 1).map(connect).collect::<Vec<_>>();
    for one in rest {
        one.await.unwrap();
    }
    stop(other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_of_two_servers_at_once_claim_no_more_than_the_room_and_nothing_twice() {
    let server = Server::start().await;
    let other = server.replica().await;
    let id = territory(&server, 5).await;
    for _ in 0..20 {
        let facility = server.facility().await;
        server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
    }
    let mut polls = Vec::new();
    for number in 0..20 {
        let daemon = if number % 2 == 0 { server.daemon(id) } else { daemon(&other, id) };
        let request = PollRequest { max_directives_to_claim: 3, ..PollRequest::default() };
        polls.push(tokio::spawn(async move { daemon.poll(&request).await.unwrap().directives }));
    }
    let mut claimed = Vec::new();
    for poll in polls {
        claimed.extend(poll.await.unwrap().into_iter().map(|claim| claim.directive_id));
    }
    assert_eq!(claimed.len(), 5, "each poll counts what the others claimed");
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 5);
    stop(other).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_poll_is_empty_beside_a_ready_directive() {
    let server = Server::start().await;
    let other = server.replica().await;
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(territory(&server, 50).await);
    }
    for _ in 0..48 {
        let facility = server.facility().await;
        server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
    }
    let mut polls = Vec::new();
    for (number, id) in ids.into_iter().enumerate() {
        let daemon = if number % 2 == 0 { server.daemon(id) } else { daemon(&other, id) };
        polls.push(tokio::spawn(async move {
            let mut found = Vec::new();
            for _ in 0..4 {
                found.push(daemon.poll(&PollRequest::default()).await.unwrap().directives);
            }
            found
        }));
    }
    let mut claimed = BTreeSet::new();
    for poll in polls {
        for found in poll.await.unwrap() {
            assert_eq!(found.len(), 1, "a poll was empty while directives were ready");
            assert!(claimed.insert(found[0].directive_id), "a directive was claimed twice");
        }
    }
    assert_eq!(claimed.len(), 48);
    stop(other).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_directive_is_forgotten_between_an_end_and_a_creation() {
    let server = Server::start().await;
    let other = server.replica().await;
    let (id, facility) = (territory(&server, 1).await, server.facility().await);
    let (here, there) = (server.daemon(id), users(&other, &server.key));
    let mut next = there.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    for round in 0..100 {
        let claims = here.poll(&PollRequest { wait_seconds: Some(3), ..PollRequest::default() }).await.unwrap();
        let claim = claims.directives.first().unwrap_or_else(|| panic!("round {round}: {next} waits for nothing"));
        assert_eq!(claim.directive_id, next);
        here.started(next, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        // The end of the only directive and the creation of the next one, at the same time.
        let (report, new) = (end(FinishStatus::Succeeded), plain("x"));
        let ended = here.finished(next, &claim.directive_token, &report);
        let (ended, made) = tokio::join!(ended, there.create_directive(facility, &new, None));
        ended.unwrap();
        next = made.unwrap().directive_id;
    }
    stop(other).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_proved_and_a_wrong_one_is_refused() {
    let (cluster, directory) = (cluster::shared(), TempDir::new().unwrap());
    let name = cluster.database();
    stop(try_serve(&directory, &cluster.tcp_url(&name, PASSWORD)).await.unwrap()).await;
    let wrong = try_serve(&directory, &cluster.tcp_url(&name, "wrong")).await.err().unwrap();
    assert_eq!(wrong.code(), "store_settings");
    let missing = cluster.tcp_url(&name, PASSWORD).replace(&PASSWORD.replace(' ', "%20"), "").replace(":@", "@");
    let missing = try_serve(&directory, &missing).await.err().unwrap();
    assert_eq!(missing.code(), "store_settings");
    assert!(missing.to_string().contains("asks for a password"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_and_the_name_of_a_database_server_are_checked() {
    let certificate = |name: &str| {
        let key = KeyPair::generate().unwrap();
        (CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let directory = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    for (at, name) in ["127.0.0.1", "db.example"].into_iter().enumerate() {
        let (pem, key) = certificate(name);
        let cluster = Cluster::start_with(Some((&pem, &key)));
        let url = cluster.tcp_url(&cluster.database(), PASSWORD);
        let good = format!("{url}?sslrootcert={}", file(&format!("good{at}"), &pem));
        let other = format!("{url}?sslrootcert={}", file(&format!("other{at}"), &certificate(name).0));
        let data = TempDir::new().unwrap();
        assert_eq!(try_serve(&data, &other).await.err().unwrap().code(), "store_unreachable");
        if name == "127.0.0.1" {
            let running = try_serve(&data, &good).await.unwrap();
            let sessions =
                "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'nexus' AND ssl";
            assert!(cluster.sql("postgres", sessions).parse::<u32>().unwrap() > 0);
            assert_eq!(cluster.sql("postgres", &sessions.replace("AND ssl", "AND NOT ssl")), "0");
            stop(running).await;
        } else {
            assert_eq!(
                try_serve(&data, &good).await.err().unwrap().code(),
                "store_unreachable",
                "it is of another name"
            );
        }
    }
    let (cluster, (pem, _)) = (cluster::shared(), certificate("127.0.0.1"));
    let url = cluster.tcp_url(&cluster.database(), PASSWORD);
    let refused = try_serve(&directory, &format!("{url}?sslrootcert={}", file("ca", &pem))).await.err().unwrap();
    assert!(refused.to_string().contains("the server has no TLS"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_kept_files_is_refused() {
    let (cluster, directory) = (cluster::shared(), TempDir::new().unwrap());
    let url = cluster.url(&cluster.database());
    let first = try_serve(&directory, &url).await.unwrap();
    let elsewhere = TempDir::new().unwrap();
    assert_eq!(try_serve(&elsewhere, &url).await.err().unwrap().code(), "other_files");
    stop(try_serve(&directory, &url).await.unwrap()).await;
    stop(first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_database_of_a_newer_program_is_refused_untouched() {
    let server = Server::start().await;
    let name = server.database.clone().unwrap();
    let directory = server.stop_and_keep().await;
    let cluster = cluster::shared();
    cluster.sql(&name, "UPDATE schema_version SET version = 9, min_reader = 9");
    let refused = try_serve(&directory, &cluster.url(&name)).await.err().unwrap();
    assert_eq!(refused.code(), "store_newer");
    assert_eq!(cluster.sql(&name, "SELECT version, min_reader FROM schema_version"), "9|9");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_history_of_the_database_repeats_no_fence() {
    let server = Server::start().await;
    let id = territory(&server, 5).await;
    let facility = server.facility().await;
    server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
    let before = server.daemon(id).poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    assert!(before.fence.unwrap().0 < 1 << 32);
    // As after the promotion of a standby: the fences of the lost transactions are not known.
    let server = server.restart_after(|_| {}).await;
    server.change("UPDATE store SET timeline = '00000000'");
    let server = server.restart_after(|_| {}).await;
    let other = server.facility().await;
    server.owner().create_directive(other, &plain("y"), None).await.unwrap();
    let after = server.daemon(id).poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    assert!(after.fence.unwrap().0 >= 1 << 32, "{after:?}");
    assert_eq!(server.number("SELECT epoch FROM store"), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_go_on_after_their_database_was_killed() {
    let (cluster, directory) = (Cluster::start(), TempDir::new().unwrap());
    let url = cluster.url(&cluster.database());
    let running = try_serve(&directory, &url).await.unwrap();
    let key = running.first_key.clone().unwrap();
    let owner = users(&running, &key);
    let new = serde_json::from_value(serde_json::json!({"kind": "empty"})).unwrap();
    let facility = owner.create_facility(&new).await.unwrap().facility_id;
    let made = owner.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.restart_after(Duration::from_millis(300));
        cluster
    });
    // While it is gone each call gets that answer in time, and none is answered wrongly.
    let mut refused = 0;
    while !cluster.is_finished() {
        let asked = Instant::now();
        match owner.directive(made).await {
            Ok(seen) => assert_eq!(seen.state, State::Queued),
            Err(error) => {
                assert_eq!((error.status(), error.code()), (Some(503), "store_failed"), "{error}");
                refused += 1;
            }
        }
        assert!(asked.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let cluster = cluster.await.unwrap();
    assert!(refused > 0, "the database was not gone: the test tried nothing");
    assert_eq!(owner.directive(made).await.unwrap().state, State::Queued, "the first call after it is answered");
    owner.create_directive(facility, &plain("y"), None).await.unwrap();
    // Sessions that were lost while no call was made are noticed by the next call, which is answered all the same.
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.restart_after(Duration::ZERO);
        cluster
    });
    let cluster = cluster.await.unwrap();
    owner.create_directive(facility, &plain("z"), None).await.unwrap();
    stop(running).await;
    drop(cluster);
}

/// A database whose processes do not run, with connections that stay open.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_database_stands_still_says_so_and_shows_its_counters() {
    let (cluster, directory) = (Cluster::start(), TempDir::new().unwrap());
    let running = try_serve(&directory, &cluster.url(&cluster.database())).await.unwrap();
    let key = running.first_key.clone().unwrap();
    let get = async |path: &str, bearer: &str| {
        let mut tcp = tokio::net::TcpStream::connect(running.api_url.trim_start_matches("http://")).await.unwrap();
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\r\n"
        );
        tcp.write_all(text.as_bytes()).await.unwrap();
        let (clock, mut answer) = (Instant::now(), String::new());
        let read = tokio::time::timeout(Duration::from_secs(15), tcp.read_to_string(&mut answer)).await;
        (answer.get(9..12).map(ToOwned::to_owned).filter(|_| read.is_ok()), clock.elapsed(), answer)
    };
    assert_eq!(get("/readyz", "").await.0.as_deref(), Some("200"));
    assert_eq!(get("/metrics", &key).await.0.as_deref(), Some("200"));
    cluster.stand_still(true);
    // What the store has confirmed counts for a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let (ready, counters, unknown) =
        tokio::join!(get("/readyz", ""), get("/metrics", &key), get("/metrics", "nxk_nobody"));
    cluster.stand_still(false);
    assert_eq!(ready.0.as_deref(), Some("503"), "{ready:?}");
    assert!(ready.1 < Duration::from_secs(5), "{ready:?}");
    assert!(
        counters.0.as_deref() == Some("200") && counters.2.contains("nexus_background_failures_total"),
        "{counters:?}"
    );
    assert_eq!(unknown.0.as_deref(), Some("503"), "{unknown:?}");
    let end = Instant::now() + Duration::from_secs(20);
    while get("/readyz", "").await.0.as_deref() != Some("200") {
        assert!(Instant::now() < end, "it is not ready when the database goes on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop(running).await;
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_the_database_cannot_hold_is_refused_with_words() {
    let server = Server::start().await;
    let mut new = serde_json::json!({"kind": "empty"});
    new["name"] = "a\0b".into();
    let refused = server.owner().create_facility(&serde_json::from_value(new).unwrap()).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(422), "invalid_field"), "{refused}");
    server.stop().await;
}

/// Runs the example of `docs/operations.md` that holds these words.
fn run_example(words: &str, directory: &Path, database: &str) {
    let page = include_str!("../../../docs/operations.md");
    let mut examples = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let example = examples.find(|example| example.contains(words)).unwrap();
    let mut command = Command::new("sh");
    command.arg("-ec").arg(example).current_dir(directory).env("DATABASE", cluster::shared().url(database));
    command.env("PATH", format!("{}:/usr/bin:/bin", cluster::programs().display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_of_postgresql_has_everything_and_repeats_no_fence() {
    let server = Server::start().await;
    let (id, facility) = (territory(&server, 5).await, server.facility().await);
    let first = server.owner().create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let claim = server.daemon(id).poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    server.daemon(id).started(first, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    server.daemon(id).finished(first, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    let waiting = server.owner().create_directive(facility, &plain("y"), None).await.unwrap().directive_id;
    std::fs::create_dir(server.directory.path().join("backup")).unwrap();
    run_example("pg_dump", server.directory.path(), server.database.as_deref().unwrap());
    // What the backup does not know: the waiting directive was claimed.
    let after = server.daemon(id).poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    let (key, name) = (server.key.clone(), cluster::shared().database());
    let directory = server.stop_and_keep().await;
    std::fs::rename(directory.path().join("backup"), directory.path().join("restored")).unwrap();
    run_example("pg_restore", directory.path(), &name);
    let data = TempDir::new().unwrap();
    std::fs::rename(directory.path().join("restored/blobs"), data.path().join("blobs")).unwrap();
    let running = try_serve(&data, &cluster::shared().url(&name)).await.unwrap();
    assert_eq!(users(&running, &key).directive(first).await.unwrap().state, State::Succeeded);
    let again = daemon(&running, id).poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    assert_eq!(again.directive_id, waiting);
    assert!(again.fence > after.fence, "{:?} after {:?}", again.fence, after.fence);
    let stale = daemon(&running, id).started(waiting, &after.directive_token, &StartedRequest::default()).await;
    assert_eq!(stale.unwrap_err().code(), "stale_fence");
    stop(running).await;
}

/// Tables and columns of a database, as `table.column`.
fn columns(text: &str) -> BTreeSet<String> {
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_databases_have_the_same_tables_and_columns() {
    let server = Server::start().await;
    let name = server.database.clone().unwrap();
    let question =
        "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'";
    let postgres = columns(&cluster::shared().sql(&name, question));
    let directory = TempDir::new().unwrap();
    stop(support::try_run(directory.path()).await.unwrap()).await;
    let db = rusqlite::Connection::open(directory.path().join("mothership.db")).unwrap();
    let question =
        "SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'";
    let sqlite: Vec<String> =
        db.prepare(question).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let sqlite = columns(&sqlite.join("\n"));
    let only: Vec<_> = postgres.symmetric_difference(&sqlite).map(String::as_str).collect();
    assert_eq!(only, ["store.blobs_id", "store.timeline"]);
    server.stop().await;
}
