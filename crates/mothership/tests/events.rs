//! Event streams: they are live, kept open, bounded for each key, and no producer waits for a reader.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::base64;
use nexus_api::client::{ConduitsClient, MothershipClient, SseEvent};
use nexus_api::conduits::{LogChunkRequest, PollRequest, StartedRequest, Stream};
use nexus_api::mothership::DirectiveEvent;
use nexus_model::directive::{FinishStatus, State};
use nexus_model::ids::DirectiveId;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Server, end, plain};

/// Starts a directive and returns it with its token.
async fn running(server: &Server) -> (ConduitsClient, DirectiveId, String) {
    let daemon = server.territory("one").await;
    let facility = server.facility().await;
    let id = server.owner().create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    (daemon, id, claim.directive_token)
}

async fn chunk(daemon: &ConduitsClient, id: DirectiveId, token: &str, seq: i64) {
    let request = LogChunkRequest { stream: Stream::Stdout, seq, bytes: base64::encode(b"line\n"), truncated: false };
    daemon.log_chunk(id, token, &request).await.unwrap();
}

fn event(read: &SseEvent) -> DirectiveEvent {
    serde_json::from_str(&read.data).unwrap()
}

/// Number of open streams that the server counts.
async fn open_streams(server: &Server) -> u64 {
    let reply = server.http().with_bearer(&server.key).unwrap();
    let reply = reply.fetch(nexus_api::routes::Method::Get, "/metrics", None, Duration::ZERO).await.unwrap();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    text.lines().find_map(|line| line.strip_prefix("nexus_event_streams ")).unwrap().parse().unwrap()
}

async fn until_open(server: &Server, count: u64) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while open_streams(server).await != count {
        assert!(Instant::now() < deadline, "{} streams are open, not {count}", open_streams(server).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_arrives_when_it_happens() {
    let server = Server::start().await;
    let (daemon, id, token) = running(&server).await;
    let mut stream = server.owner().events(id, None).await.unwrap();
    assert_eq!(event(&stream.next().await.unwrap().unwrap()).state, State::Running);
    let (began, mut ids) = (Instant::now(), BTreeSet::new());
    for seq in 0..20 {
        chunk(&daemon, id, &token, seq).await;
        let next = stream.next().await.unwrap().unwrap();
        assert_eq!((next.event.as_str(), event(&next).stdout_next_seq), ("log", seq + 1));
        assert!(ids.insert(next.id.unwrap()), "each event has its own id");
    }
    // The timer of a stream alone would take a second for each.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    let last = stream.next().await.unwrap().unwrap();
    assert_eq!((last.event.as_str(), event(&last).state), ("state", State::Succeeded));
    assert_eq!(stream.next().await.unwrap(), None);
    // Every reader of the end sees it under the same id, and one who has it gets nothing twice.
    let last_id = last.id.unwrap();
    let mut again = server.owner().events(id, None).await.unwrap();
    assert_eq!(again.next().await.unwrap().unwrap().id, Some(last_id.clone()));
    let mut known = server.owner().events(id, Some(last_id.parse().unwrap())).await.unwrap();
    assert_eq!(known.next().await.unwrap(), None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_is_kept_open_by_comments() {
    let server = Server::start_with(|config| config.keep_alive = Duration::from_millis(200)).await;
    let (_, id, _) = running(&server).await;
    let (address, key) = (server.url.rsplit('/').next().unwrap().to_owned(), server.key.clone());
    let seen = tokio::task::spawn_blocking(move || {
        let mut tcp = TcpStream::connect(&address).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let path = format!("/mothership/api/v1/directives/{id}/events");
        write!(tcp, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\r\n").unwrap();
        let (mut seen, mut buffer) = (String::new(), [0; 4096]);
        while seen.matches(": keep-alive\n\n").count() < 2 {
            let count = tcp.read(&mut buffer).unwrap();
            assert!(count > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        seen
    });
    let seen = seen.await.unwrap();
    assert!(seen.to_lowercase().contains("content-type: text/event-stream"), "{seen}");
    assert_eq!(seen.matches("event: state").count(), 1, "{seen}");
    until_open(&server, 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_a_bounded_number_of_streams() {
    let server = Server::start_with(|config| config.streams_per_key = 2).await;
    let (_, id, _) = running(&server).await;
    let first = server.owner().events(id, None).await.unwrap();
    let _second = server.owner().events(id, None).await.unwrap();
    let refused = server.owner().events(id, None).await.err().unwrap();
    assert_eq!(refused.status(), Some(429), "{refused}");
    let new = serde_json::from_value(serde_json::json!({"role": "viewer"})).unwrap();
    let other = server.owner().create_api_key(&new).await.unwrap();
    let other = MothershipClient::new(&server.http(), &other.api_key).unwrap();
    let mut of_other = other.events(id, None).await.unwrap();
    assert_eq!(event(&of_other.next().await.unwrap().unwrap()).state, State::Running, "another key has its own");
    drop(first);
    until_open(&server, 2).await;
    server.owner().events(id, None).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_takes_nothing_is_cut_and_delays_no_other() {
    const SLOW: u64 = 30;
    let server = Server::start_with(|config| {
        config.stall = Duration::from_secs(2);
        config.streams_per_key = 100;
    })
    .await;
    let (daemon, id, token) = running(&server).await;
    let (host, port) = server.url.rsplit('/').next().unwrap().split_once(':').unwrap();
    let path = format!("/mothership/api/v1/directives/{id}/events");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slow_readers.py");
    let mut readers = Command::new("python3");
    readers.args([script, host, port, &path, &server.key, &SLOW.to_string()]);
    let mut readers = readers.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(readers.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "open");
    let mut fast = server.owner().events(id, None).await.unwrap();
    let fast = tokio::spawn(async move {
        let mut last = None;
        while let Some(read) = fast.next().await.unwrap() {
            last = Some(event(&read));
        }
        last.unwrap()
    });
    until_open(&server, SLOW + 1).await;
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    let mut seq = 0;
    // More than the buffers of a reader hold, and until the last of them is gone.
    while open_streams(&server).await > 1 {
        for _ in 0..50 {
            let one = Instant::now();
            chunk(&daemon, id, &token, seq).await;
            slowest = slowest.max(one.elapsed());
            seq += 1;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "slow readers are still there after {seq} chunks");
    }
    assert!(slowest < Duration::from_secs(2), "a chunk took {slowest:?}");
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    let last = fast.await.unwrap();
    assert_eq!((last.state, last.stdout_next_seq), (State::Succeeded, seq), "who reads misses nothing");
    writeln!(readers.stdin.take().unwrap()).unwrap();
    for line in said {
        let line = line.unwrap();
        assert!(line.starts_with("cut "), "{line}");
    }
    assert!(readers.wait().unwrap().success());
    println!("    {seq} chunks beside {SLOW} readers that take nothing: the slowest took {slowest:?}");
    server.stop().await;
}
