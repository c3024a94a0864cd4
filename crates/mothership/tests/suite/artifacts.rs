//! Kept files over HTTP: announced, sent in pieces, checked, read.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::{Server, end, other_account, plain};
use nexus_api::base64;
use nexus_api::client::{ClientError, MothershipClient};
use nexus_api::conduits::{ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, PollRequest, StartedRequest};
use nexus_model::directive::FinishStatus;
use nexus_model::ids::DirectiveId;

fn file(name: &str, content: &[u8]) -> ArtifactRequest {
    let blake3 = blake3::hash(content).to_hex().to_string();
    ArtifactRequest { name: name.to_owned(), size: content.len() as u64, blake3, media_type: Some("text/html".into()) }
}

fn piece(offset: u64, bytes: &[u8]) -> ArtifactChunkRequest {
    ArtifactChunkRequest { offset, bytes: base64::encode(bytes) }
}

fn refusal(result: Result<ArtifactAnswer, ClientError>) -> (Option<u16>, String) {
    let error = result.unwrap_err();
    (error.status(), error.code().to_owned())
}

/// A directive that runs, and its token.
async fn running(server: &Server, daemon: &nexus_api::client::ConduitsClient) -> (DirectiveId, String) {
    let facility = server.facility().await;
    server.owner().create_directive(facility, &plain("x"), None).await.unwrap();
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(claim.directive_id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    (claim.directive_id, claim.directive_token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_file_goes_on_after_a_restart_and_is_read_whole() {
    let server = Server::start().await;
    let territory = server.enroll("one").await;
    let daemon = server.daemon(territory);
    let (id, token) = running(&server, &daemon).await;
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    let made = daemon.artifact(id, &token, &file("out/page.html", &content)).await.unwrap();
    assert_eq!((made.offset, made.complete), (0, false));
    let artifact = made.artifact_id;
    let first = daemon.artifact_chunk(id, &token, &artifact, &piece(0, &content[..1_000_000])).await.unwrap();
    assert_eq!((first.offset, first.complete), (1_000_000, false));
    let again = daemon.artifact_chunk(id, &token, &artifact, &piece(0, &content[..1_000_000])).await;
    assert_eq!(refusal(again), (Some(409), "wrong_offset".into()));
    let unread = server.owner().artifact(id, &artifact, 0).await.unwrap_err();
    assert_eq!((unread.status(), unread.code()), (Some(409), "artifact_incomplete"));
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    // The end does not end the upload, and a restart of the server loses nothing of it.
    let server = server.restart().await;
    let daemon = server.daemon(territory);
    let known = daemon.artifact(id, &token, &file("out/page.html", &content)).await.unwrap();
    assert_eq!((known.offset, known.artifact_id.as_str()), (1_000_000, artifact.as_str()));
    daemon.artifact_chunk(id, &token, &artifact, &piece(1_000_000, &content[1_000_000..2_500_000])).await.unwrap();
    let last = daemon.artifact_chunk(id, &token, &artifact, &piece(2_500_000, &content[2_500_000..])).await.unwrap();
    assert!(last.complete && last.offset == 3_000_000);
    let empty = daemon.artifact(id, &token, &file("empty", b"")).await.unwrap();
    assert!(empty.complete, "a file without bytes needs no piece");
    let list = server.owner().artifacts(id).await.unwrap().artifacts;
    let names: Vec<_> = list.iter().map(|one| (one.name.as_str(), one.size, one.complete)).collect();
    assert_eq!(names, [("empty", 0, true), ("out/page.html", 3_000_000, true)]);
    let mut read = Vec::new();
    loop {
        let bytes = server.owner().artifact(id, &artifact, read.len() as u64).await.unwrap();
        if bytes.is_empty() {
            break;
        }
        read.extend(bytes);
    }
    assert!(read == content);
    let stranger = MothershipClient::new(&server.http(), &other_account(&server)).unwrap();
    assert_eq!(stranger.artifact(id, &artifact, 0).await.unwrap_err().status(), Some(404));
    assert_eq!(stranger.artifacts(id).await.unwrap_err().status(), Some(404));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_with_another_hash_are_never_a_kept_file() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    let (id, token) = running(&server, &daemon).await;
    let made = daemon.artifact(id, &token, &file("a", b"good")).await.unwrap();
    let bad = daemon.artifact_chunk(id, &token, &made.artifact_id, &piece(0, b"evil")).await;
    assert_eq!(refusal(bad), (Some(422), "hash_differs".into()));
    assert!(!server.owner().artifacts(id).await.unwrap().artifacts[0].complete);
    let long = daemon.artifact_chunk(id, &token, &made.artifact_id, &piece(0, b"good and more")).await;
    assert_eq!(refusal(long), (Some(409), "wrong_offset".into()));
    let good = daemon.artifact_chunk(id, &token, &made.artifact_id, &piece(0, b"good")).await.unwrap();
    assert!(good.complete, "it began afresh");
    let other = daemon.artifact(id, &token, &file("a", b"another")).await;
    assert_eq!(refusal(other), (Some(409), "report_differs".into()));
    let over = daemon.artifact_chunk(id, &token, &made.artifact_id, &piece(4, b"x")).await;
    assert_eq!(refusal(over).0, Some(409), "a whole file does not change");
    assert_eq!(server.owner().artifact(id, &made.artifact_id, 0).await.unwrap(), b"good");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_files_have_bounds_and_belong_to_their_claim() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    let (id, token) = running(&server, &daemon).await;
    let huge = ArtifactRequest { size: (1 << 30) + 1, ..file("huge", b"x") };
    assert_eq!(refusal(daemon.artifact(id, &token, &huge).await), (Some(422), "artifacts_too_large".into()));
    let half = ArtifactRequest { size: 1 << 29, ..file("half", b"x") };
    daemon.artifact(id, &token, &half).await.unwrap();
    let rest = ArtifactRequest { size: (1 << 29) + 1, ..file("rest", b"x") };
    assert_eq!(refusal(daemon.artifact(id, &token, &rest).await).0, Some(422), "announced files count");
    let unsafe_name = ArtifactRequest { name: "../a".into(), ..file("a", b"x") };
    assert_eq!(refusal(daemon.artifact(id, &token, &unsafe_name).await), (Some(422), "invalid_name".into()));
    let mine = daemon.artifact(id, &token, &file("mine", b"x")).await.unwrap().artifact_id;
    let (other, other_token) = running(&server, &daemon).await;
    let foreign = daemon.artifact_chunk(other, &other_token, &mine, &piece(0, b"x")).await;
    assert_eq!(refusal(foreign).0, Some(404), "a file of another directive");
    // Kept files are taken for a day after the end, and not longer.
    daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    daemon.artifact_chunk(id, &token, &mine, &piece(0, b"x")).await.unwrap();
    server.jump(24 * 3_600_000 + 1).await;
    let late = daemon.artifact(id, &token, &file("late", b"x")).await;
    assert_eq!(refusal(late).0, Some(409));
    server.stop().await;
}
