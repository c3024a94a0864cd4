//! The commands of `docs/operations.md` for a backup and its restoration, on a server that runs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::base64;
use nexus_api::conduits::{ArtifactChunkRequest, ArtifactRequest, PollRequest, StartedRequest};
use nexus_model::directive::{FinishStatus, State};
use std::path::Path;
use std::process::Command;
use support::{Server, end, plain};

const PAGE: &str = include_str!("../../../docs/operations.md");

/// Runs the example of the page that holds these words.
fn run_example(words: &str, directory: &Path) {
    let example = PAGE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let example = example.into_iter().find(|example| example.contains(words)).unwrap();
    let output = Command::new("sh").arg("-ec").arg(example).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_has_everything_and_repeats_no_fence() {
    let server = Server::start().await;
    let territory = server.enroll("one").await;
    let daemon = server.daemon(territory);
    let facility = server.facility().await;
    let id = server.owner().create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    let blake3 = blake3::hash(b"kept").to_hex().to_string();
    let file = ArtifactRequest { name: "a".into(), size: 4, blake3, media_type: None };
    let artifact = daemon.artifact(id, &claim.directive_token, &file).await.unwrap().artifact_id;
    let piece = ArtifactChunkRequest { offset: 0, bytes: base64::encode(b"kept") };
    daemon.artifact_chunk(id, &claim.directive_token, &artifact, &piece).await.unwrap();
    daemon.finished(id, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    let waiting = server.owner().create_directive(facility, &plain("y"), None).await.unwrap().directive_id;
    std::fs::create_dir(server.directory.path().join("backup")).unwrap();
    run_example(".backup", server.directory.path());
    // What the backup does not know: the waiting directive was claimed.
    let after = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    assert_eq!(after.directive_id, waiting);
    let server = server.restart_after(|data| {
        let base = data.parent().unwrap();
        std::fs::rename(base.join("backup"), base.join("restored")).unwrap();
        run_example("epoch", base);
        std::fs::remove_dir_all(data).unwrap();
        std::fs::rename(base.join("restored"), data).unwrap();
    });
    let server = server.await;
    let daemon = server.daemon(territory);
    assert_eq!(server.owner().directive(id).await.unwrap().state, State::Succeeded);
    assert_eq!(server.owner().artifact(id, &artifact, 0).await.unwrap(), b"kept");
    let again = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    assert_eq!(again.directive_id, waiting);
    assert!(again.fence > after.fence, "{:?} after {:?}", again.fence, after.fence);
    let stale = daemon.started(waiting, &after.directive_token, &StartedRequest::default()).await.unwrap_err();
    assert_eq!((stale.status(), stale.code()), (Some(409), "stale_fence"));
    server.stop().await;
}
