//! A fleet is moved from SQLite into PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::base64;
use nexus_api::client::{ClientConfig, ConduitsClient, Http, LogQuery, MothershipClient, TerritoryIdentity};
use nexus_api::conduits::{
    ArtifactChunkRequest, ArtifactRequest, FinishedRequest, LogChunkRequest, PollRequest, StartedRequest, Stream,
};
use nexus_api::mothership::{CreateDirective, CreateEnrollmentToken};
use nexus_model::directive::{FinishStatus, State};
use nexus_model::ids::TerritoryId;
use nexus_mothership::{
    Config, Database, Listener, Running, ServeError, StoreError, TerritoryAuth, move_to_postgres, serve,
};
use std::path::Path;
use support::{Server, cluster, end, plain, provider};
use tokio::net::TcpListener;

async fn try_serve(data: &Path, database: Option<&str>) -> Result<Running, ServeError> {
    let mut config = Config::new(data);
    config.territory_auth = TerritoryAuth::Header;
    config.database = database.map(|url| Database::read(url, provider()).unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await
}

fn http(running: &Running) -> Http {
    Http::new(ClientConfig::new(&running.api_url)).unwrap()
}

async fn move_to(data: &Path, url: &str) -> Result<u64, StoreError> {
    let (data, database) = (data.to_owned(), Database::read(url, provider()).unwrap());
    tokio::task::spawn_blocking(move || move_to_postgres(&data, &database, 0)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_moves_into_postgresql_whole_and_repeats_no_fence() {
    let server = Server::start().await;
    let (territory, key) = (server.enroll("one").await, server.key.clone());
    let (daemon, owner) = (server.daemon(territory), server.owner());
    let facility = server.facility().await;
    let first = owner.create_directive(facility, &plain("x"), Some("name")).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    let token = &claim.directive_token;
    daemon.started(first, token, &StartedRequest::default()).await.unwrap();
    let chunk =
        LogChunkRequest { stream: Stream::Stdout, seq: 0, bytes: base64::encode(b"out\0put"), truncated: false };
    daemon.log_chunk(first, token, &chunk).await.unwrap();
    let blake3 = blake3::hash(b"kept").to_hex().to_string();
    let file = ArtifactRequest { name: "a".into(), size: 4, blake3, media_type: None };
    let artifact = daemon.artifact(first, token, &file).await.unwrap().artifact_id;
    let piece = ArtifactChunkRequest { offset: 0, bytes: base64::encode(b"kept") };
    daemon.artifact_chunk(first, token, &artifact, &piece).await.unwrap();
    let report = FinishedRequest {
        diff_base64: Some(base64::encode(b"+x\n")),
        receipt: Some(serde_json::json!({"r": 1})),
        ..end(FinishStatus::Succeeded)
    };
    daemon.finished(first, token, &report).await.unwrap();
    let waiting = owner.create_directive(facility, &plain("y"), None).await.unwrap().directive_id;
    let unused = owner.create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token;
    let before = owner.directive(first).await.unwrap();
    let (data, url) = (server.directory.path().join("data"), cluster::shared().url(&cluster::shared().database()));

    let running = move_to(&data, &url).await.unwrap_err();
    assert!(running.to_string().contains("a control plane uses it"), "{running}");
    let used = Server::start().await;
    let directory = server.stop_and_keep().await;
    let rows = move_to(&data, &url).await.unwrap();
    assert!(rows > 10, "{rows}");

    // The database before is not opened again, and nothing is moved twice or onto another fleet.
    assert_eq!(try_serve(&data, None).await.err().unwrap().code(), "store_moved");
    assert_eq!(move_to(&data, &url).await.unwrap_err().code(), "store_moved");
    let other = used.stop_and_keep().await;
    let full = move_to(&other.path().join("data"), &url).await.unwrap_err();
    assert!(full.to_string().contains("holds a fleet already"), "{full}");
    assert!(try_serve(&other.path().join("data"), None).await.is_ok(), "what was refused can be used as before");
    let none = move_to(directory.path(), &url).await.unwrap_err();
    assert_eq!(none.code(), "store_directory", "{none}");

    let running = try_serve(&data, Some(&url)).await.unwrap();
    assert!(running.first_key.is_none(), "the account is there");
    let owner = MothershipClient::new(&http(&running), &key).unwrap();
    assert_eq!(owner.directive(first).await.unwrap(), before);
    assert_eq!(owner.create_directive(facility, &plain("x"), Some("name")).await.unwrap().directive_id, first);
    assert_eq!(owner.artifact(first, &artifact, 0).await.unwrap(), b"kept");
    assert_eq!(owner.diff(first).await.unwrap(), b"+x\n");
    assert_eq!(owner.receipt(first).await.unwrap(), serde_json::json!({"r": 1}));
    let query = LogQuery { stream: Stream::Stdout, after_seq: -1, limit: None, attempt: None };
    let log = owner.log_chunks(first, &query).await.unwrap().chunks;
    assert_eq!(base64::decode(&log[0].bytes_base64).unwrap(), b"out\0put");
    let daemon = ConduitsClient::new(&http(&running), &TerritoryIdentity::Header(territory)).unwrap();
    let next = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    assert_eq!(next.directive_id, waiting);
    assert!(next.fence > claim.fence && next.fence.unwrap().0 >= 1 << 32, "a new epoch: {:?}", next.fence);
    daemon.started(waiting, &next.directive_token, &StartedRequest::default()).await.unwrap();
    daemon.finished(waiting, &next.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    assert_eq!(owner.directive(waiting).await.unwrap().state, State::Succeeded);
    // Numbers that the database gives out go on.
    let labeled: CreateDirective =
        serde_json::from_value(serde_json::json!({"command": "z", "requirements": {"labels": {"zone": "b"}}})).unwrap();
    owner.create_directive(facility, &labeled, None).await.unwrap();
    let second: TerritoryId = enroll(&running, &unused).await;
    assert_ne!(second, territory);
    running.stop();
    running.stopped().await;
}

async fn enroll(running: &Running, token: &str) -> TerritoryId {
    let anyone = ConduitsClient::new(&http(running), &TerritoryIdentity::Certificate).unwrap();
    let request = serde_json::from_value(serde_json::json!({ "enroll_token": token })).unwrap();
    anyone.enroll(&request).await.unwrap().territory_id
}
