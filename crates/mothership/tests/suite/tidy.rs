//! The server compacts and removes old output.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::{Server, end, plain};
use nexus_api::base64;
use nexus_api::client::{ConduitsClient, LogQuery};
use nexus_api::conduits::{
    ArtifactChunkRequest, ArtifactRequest, FinishedRequest, LogChunkRequest, PollRequest, StartedRequest, Stream,
};
use nexus_api::mothership::LogChunk;
use nexus_model::directive::{FinishStatus, State};
use nexus_model::ids::DirectiveId;

const MINUTE: i64 = 60_000;
const DAY: i64 = 86_400_000;

fn chunk(seq: i64, text: &str) -> LogChunkRequest {
    LogChunkRequest { stream: Stream::Stdout, seq, bytes: base64::encode(text.as_bytes()), truncated: false }
}

async fn started(server: &Server, daemon: &ConduitsClient) -> (DirectiveId, String) {
    let facility = server.facility().await;
    server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(claim.directive_id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    (claim.directive_id, claim.directive_token)
}

async fn log(server: &Server, id: DirectiveId) -> Vec<LogChunk> {
    let query = LogQuery { stream: Stream::Stdout, after_seq: -1, limit: None, attempt: None };
    server.owner().log_chunks(id, &query).await.unwrap().chunks
}

/// Lets the tasks run until the answer to a question is the expected one.
async fn tidied(server: &Server, question: &str, expected: i64) {
    for _ in 0..100 {
        server.tidy();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        if server.number(question) == expected {
            return;
        }
    }
    panic!("{question}: {} and not {expected}", server.number(question));
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_without_bytes_are_bounded() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    let (id, token) = started(&server, &daemon).await;
    server.change("UPDATE work SET log_limit = 640");
    let mut stored = Vec::new();
    for seq in 0..20 {
        stored.push(daemon.log_chunk(id, &token, &chunk(seq, "")).await.unwrap().stored);
    }
    assert_eq!(stored.iter().filter(|stored| **stored).count(), 10, "{stored:?}");
    assert_eq!(server.number("SELECT count(*) FROM log_chunk"), 10);
    // Bytes have the bound that they had.
    assert!(daemon.log_chunk(id, &token, &chunk(20, "text")).await.unwrap().stored);
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    let truncated = server.owner().directive(id).await.unwrap().stdout_truncated;
    assert!(truncated, "a chunk that is not stored is missing");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_in_a_file_reads_as_before_and_takes_late_chunks() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    let (id, token) = started(&server, &daemon).await;
    for (seq, text) in [(0, "zero"), (1, "one"), (3, "three")] {
        daemon.log_chunk(id, &token, &chunk(seq, text)).await.unwrap();
    }
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    let (running, running_token) = started(&server, &daemon).await;
    for seq in 0..2 {
        daemon.log_chunk(running, &running_token, &chunk(seq, "live")).await.unwrap();
    }
    let before = log(&server, id).await;
    server.jump(9 * MINUTE).await;
    server.tidy();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(server.number("SELECT count(*) FROM log_blob"), 0, "it may still be written to");
    server.jump(2 * MINUTE).await;
    tidied(&server, "SELECT count(*) FROM log_blob", 1).await;
    tidied(&server, "SELECT count(*) FROM directive WHERE kept = 1", 1).await;
    assert_eq!(server.number("SELECT count(*) FROM log_chunk"), 2, "those of the directive that runs");
    assert_eq!(server.kept_files(), 1);
    assert_eq!(log(&server, id).await, before);
    let page = LogQuery { stream: Stream::Stdout, after_seq: 0, limit: Some(1), attempt: None };
    assert_eq!(server.owner().log_chunks(id, &page).await.unwrap().chunks, before[1..2]);
    assert!(daemon.log_chunk(id, &token, &chunk(1, "one")).await.unwrap().duplicate);
    assert_eq!(daemon.log_chunk(id, &token, &chunk(1, "two")).await.unwrap_err().status(), Some(409));
    assert!(server.owner().directive(id).await.unwrap().stdout_truncated);
    daemon.log_chunk(id, &token, &chunk(2, "two")).await.unwrap();
    let server = server.restart().await;
    let text: Vec<u8> =
        log(&server, id).await.iter().flat_map(|chunk| base64::decode(&chunk.bytes_base64).unwrap()).collect();
    assert_eq!(text, b"zeroonetwothree");
    assert!(!server.owner().directive(id).await.unwrap().stdout_truncated, "the gap is filled");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_removed_after_its_days_and_the_end_stays() {
    let server = Server::start().await;
    let territory = server.enroll("one").await;
    let daemon = server.daemon(territory);
    let (id, token) = started(&server, &daemon).await;
    daemon.log_chunk(id, &token, &chunk(0, "zero")).await.unwrap();
    daemon.log_chunk(id, &token, &chunk(1, "one")).await.unwrap();
    let blake3 = blake3::hash(b"x").to_hex().to_string();
    let file = ArtifactRequest { name: "a".into(), size: 1, blake3, media_type: None };
    let artifact = daemon.artifact(id, &token, &file).await.unwrap().artifact_id;
    let piece = ArtifactChunkRequest { offset: 0, bytes: base64::encode(b"x") };
    daemon.artifact_chunk(id, &token, &artifact, &piece).await.unwrap();
    let report = FinishedRequest {
        diff_base64: Some(base64::encode(b"+x\n")),
        receipt: Some(serde_json::json!({"r": 1})),
        ..end(FinishStatus::Succeeded)
    };
    daemon.finished(id, &token, &report).await.unwrap();
    server.jump(29 * DAY).await;
    tidied(&server, "SELECT count(*) FROM log_blob", 1).await;
    assert_eq!(server.kept_files(), 2, "a file of output and a kept one");
    assert_eq!(log(&server, id).await.len(), 2);
    assert_eq!(server.owner().artifact(id, &artifact, 0).await.unwrap(), b"x");
    let (young, young_token) = started(&server, &daemon).await;
    daemon.log_chunk(young, &young_token, &chunk(0, "young")).await.unwrap();
    server.jump(2 * DAY).await;
    tidied(&server, "SELECT count(*) FROM directive WHERE kept = 0", 1).await;
    tidied(&server, "SELECT count(*) FROM artifact", 0).await;
    for _ in 0..100 {
        if server.kept_files() == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(server.kept_files(), 0, "no file stays without a row");
    let owner = server.owner();
    let seen = owner.directive(id).await.unwrap();
    assert_eq!((seen.state, seen.exit_code, seen.has_diff), (State::Succeeded, Some(0), false));
    assert!(seen.stdout_truncated && !seen.stderr_truncated, "missing output is not taken for none");
    assert!(log(&server, id).await.is_empty() && owner.artifacts(id).await.unwrap().artifacts.is_empty());
    assert_eq!(owner.diff(id).await.unwrap_err().status(), Some(404));
    assert_eq!(owner.receipt(id).await.unwrap(), serde_json::json!({"r": 1}), "the receipt stays");
    assert_eq!(log(&server, young).await.len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_for_a_while_removes_nothing() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    let (id, token) = started(&server, &daemon).await;
    daemon.log_chunk(id, &token, &chunk(0, "kept")).await.unwrap();
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    let rounds = || async {
        for _ in 0..10 {
            server.tidy();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    rounds().await;
    server.move_wall_clock(40 * DAY).await;
    rounds().await;
    server.move_wall_clock(-40 * DAY).await;
    rounds().await;
    assert_eq!(log(&server, id).await.len(), 1, "it is not old by the clock that goes on");
    assert!(!server.owner().directive(id).await.unwrap().stdout_truncated);
    // Time that passes makes it old.
    server.jump(32 * DAY).await;
    tidied(&server, "SELECT count(*) FROM directive WHERE kept = 0", 1).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_a_wrong_clock_removes_nothing_though_a_daemon_speaks() {
    let server = Server::start().await;
    let territory = server.enroll("one").await;
    let beat = serde_json::json!({"protocol_version": 1, "capacity": {"max_concurrent": 5}});
    let beat: nexus_api::conduits::TerritoryHeartbeatRequest = serde_json::from_value(beat).unwrap();
    let daemon = server.daemon(territory);
    daemon.territory_heartbeat(&beat).await.unwrap();
    let (id, token) = started(&server, &daemon).await;
    daemon.log_chunk(id, &token, &chunk(0, "kept")).await.unwrap();
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    let server = server.restart_with_wall_clock(40 * DAY).await;
    // The daemon is connected before the first round of removals.
    server.daemon(territory).territory_heartbeat(&beat).await.unwrap();
    for _ in 0..10 {
        server.tidy();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(log(&server, id).await.len(), 1, "it is not old");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_and_idempotency_keys_are_removed_after_their_days() {
    let server = Server::start().await;
    let territory = server.enroll("one").await;
    let daemon = server.daemon(territory);
    let facility = server.facility().await;
    let request = plain("x");
    let id = server.owner().create_directive(facility, &request, Some("k")).await.unwrap().directive_id;
    assert!(server.number("SELECT count(*) FROM trail") > 0);
    server.jump(2 * DAY).await;
    server.tidy();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(server.number("SELECT count(*) FROM idempotency"), 1, "the directive is not over");
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    daemon.finished(id, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    tidied(&server, "SELECT count(*) FROM idempotency", 0).await;
    assert!(server.number("SELECT count(*) FROM trail") > 0, "it is younger than 90 days");
    server.jump(91 * DAY).await;
    tidied(&server, "SELECT count(*) FROM trail", 0).await;
    server.stop().await;
}
