//! Kept files over HTTP: announced, sent in pieces, checked, read.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::{Server, end, other_account, plain};
use nexus_api::base64;
use nexus_api::client::{ClientError, MothershipClient};
use nexus_api::conduits::{ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, PollRequest, StartedRequest};
use nexus_api::routes::Method;
use nexus_model::directive::FinishStatus;
use nexus_model::ids::DirectiveId;
use std::path::PathBuf;
use std::time::Duration;

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

/// Place of a kept file; `None` where the files are in a bucket. One file of the account is there already.
fn place(server: &Server, artifact: &str) -> Option<PathBuf> {
    let blobs = std::fs::read_dir(server.directory.path().join("data/blobs")).ok()?;
    let account = blobs.map(|entry| entry.unwrap().path()).find(|path| path.is_dir())?;
    Some(account.join(artifact))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_is_written_when_no_other_call_writes_the_file() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    let (id, token) = running(&server, &daemon).await;
    let artifact = daemon.artifact(id, &token, &file("a", b"goodgood")).await.unwrap().artifact_id;
    daemon.artifact_chunk(id, &token, &artifact, &piece(0, b"good")).await.unwrap();
    let Some(place) = place(&server, &artifact) else { return server.stop().await };
    // Another call has the turn, and is at the place that this one wants.
    let other = std::fs::OpenOptions::new().write(true).open(&place).unwrap();
    other.lock().unwrap();
    let (ours, of_ours, piece_of_ours) = (daemon.clone(), artifact.clone(), piece(4, b"evil"));
    let call = tokio::spawn(async move { ours.artifact_chunk(id, &token, &of_ours, &piece_of_ours).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!call.is_finished() && std::fs::read(&place).unwrap() == b"good", "it waits, and has written nothing");
    drop(other);
    assert_eq!(refusal(call.await.unwrap()), (Some(422), "hash_differs".into()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_pieces_at_one_place_only_announced_bytes_are_kept() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    for round in 0..40 {
        let (id, token) = running(&server, &daemon).await;
        let artifact = daemon.artifact(id, &token, &file("a", b"good")).await.unwrap().artifact_id;
        let calls: Vec<_> = (0..6)
            .map(|number| {
                let (daemon, token, artifact) = (daemon.clone(), token.clone(), artifact.clone());
                let bytes = if number == round % 6 { b"good" } else { b"evil" };
                tokio::spawn(async move { daemon.artifact_chunk(id, &token, &artifact, &piece(0, bytes)).await })
            })
            .collect();
        let mut is_complete = false;
        for call in calls {
            is_complete |= call.await.unwrap().is_ok_and(|answer| answer.complete);
        }
        assert!(is_complete, "round {round}: the good piece was taken");
        assert_eq!(server.owner().artifact(id, &artifact, 0).await.unwrap(), b"good", "round {round}");
        daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_is_not_ready() {
    let server = Server::start().await;
    let daemon = server.territory("one").await;
    let (id, token) = running(&server, &daemon).await;
    let one = daemon.artifact(id, &token, &file("one", b"x")).await.unwrap().artifact_id;
    daemon.artifact_chunk(id, &token, &one, &piece(0, b"x")).await.unwrap();
    let other = daemon.artifact(id, &token, &file("other", b"x")).await.unwrap().artifact_id;
    let Some(place) = place(&server, &other) else { return server.stop().await };
    let ready = || async {
        match server.http().fetch(Method::Get, "/readyz", None, Duration::ZERO).await {
            Ok(_) => None,
            Err(error) => Some((error.status(), error.code().to_owned())),
        }
    };
    assert_eq!(ready().await, None);
    // A write there says that no space is left.
    std::os::unix::fs::symlink("/dev/full", place).unwrap();
    let full = daemon.artifact_chunk(id, &token, &other, &piece(0, b"x")).await;
    assert_eq!(refusal(full), (Some(507), "store_full".into()));
    assert_eq!(ready().await, Some((Some(503), "store_full".into())));
    server.advance(99_000).await;
    assert_eq!(ready().await, None, "nothing was refused for a while");
    server.stop().await;
}
