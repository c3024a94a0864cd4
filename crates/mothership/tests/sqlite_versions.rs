//! A SQLite database of another version of the program.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::base64;
use nexus_api::client::LogQuery;
use nexus_api::conduits::{ArtifactRequest, LogChunkRequest, PollRequest, StartedRequest, Stream};
use nexus_model::directive::{FinishStatus, State};
use nexus_model::ids::DirectiveId;
use support::{Server, end, plain};

async fn started(server: &Server, daemon: &nexus_api::client::ConduitsClient) -> (DirectiveId, String) {
    let facility = server.facility().await;
    server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(claim.directive_id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    (claim.directive_id, claim.directive_token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_version_1_comes_to_this_version_whole() {
    let server = Server::start().await;
    let territory = server.enroll("one").await;
    let daemon = server.daemon(territory);
    let (ended, token) = started(&server, &daemon).await;
    let chunk = LogChunkRequest { stream: Stream::Stdout, seq: 0, bytes: base64::encode(b"zero"), truncated: false };
    daemon.log_chunk(ended, &token, &chunk).await.unwrap();
    daemon.finished(ended, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    let (live, live_token) = started(&server, &daemon).await;
    let server = server.restart_after(|data| {
        // The database as the first version of the program had it.
        let db = rusqlite::Connection::open(data.join("mothership.db")).unwrap();
        db.execute_batch(
            "DROP TABLE account_policy; ALTER TABLE work DROP COLUMN denied; DROP TABLE connection_approval; ALTER TABLE directive DROP COLUMN key_id; DROP TABLE approval; DROP INDEX work_awaits; ALTER TABLE work DROP COLUMN asks; DROP TABLE console_session; DROP TABLE audit_event; DROP TABLE audit_head; DROP INDEX work_facility; DROP TABLE artifact; DROP TABLE log_blob; DROP INDEX directive_rows; DROP INDEX directive_kept;
             ALTER TABLE directive DROP COLUMN kept; ALTER TABLE certificate DROP COLUMN replaces; UPDATE schema_version SET version = 1;",
        )
        .unwrap();
    });
    let server = server.await;
    assert_eq!(server.number("SELECT version FROM schema_version"), 7);
    assert_eq!(server.number("SELECT count(*) FROM sqlite_master WHERE name = 'work_facility'"), 1);
    let query = LogQuery { stream: Stream::Stdout, after_seq: -1, limit: None, attempt: None };
    assert_eq!(server.owner().log_chunks(ended, &query).await.unwrap().chunks.len(), 1);
    let daemon = server.daemon(territory);
    let blake3 = blake3::hash(b"").to_hex().to_string();
    let file = ArtifactRequest { name: "a".into(), size: 0, blake3, media_type: None };
    assert!(daemon.artifact(live, &live_token, &file).await.unwrap().complete);
    daemon.finished(live, &live_token, &end(FinishStatus::Failed)).await.unwrap();
    assert_eq!(server.owner().directive(live).await.unwrap().state, State::Failed);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_a_newer_program_is_refused_untouched() {
    let server = Server::start().await;
    let data = server.directory.path().join("data");
    let directory = server.stop_and_keep().await;
    let db = rusqlite::Connection::open(data.join("mothership.db")).unwrap();
    db.execute_batch("UPDATE schema_version SET version = 9, min_reader = 9; PRAGMA wal_checkpoint(TRUNCATE);")
        .unwrap();
    drop(db);
    let before = std::fs::read(data.join("mothership.db")).unwrap();
    let refused = support::try_run(&data).await.err().unwrap();
    assert_eq!(refused.code(), "store_newer");
    assert_eq!(std::fs::read(data.join("mothership.db")).unwrap(), before);
    drop(directory);
}
