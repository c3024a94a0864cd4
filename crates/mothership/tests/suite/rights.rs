//! Every route of the table, with every kind of caller.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::{Server, end, other_account, plain};
use nexus_api::base64;
use nexus_api::client::{Http, ListQuery};
use nexus_api::conduits::{
    ArtifactChunkRequest, ArtifactRequest, FinishedRequest, PollRequest, StartedRequest, TERRITORY_HEADER,
};
use nexus_api::mothership::{ApproveRequest, CreateApiKey, Role};
use nexus_api::routes::{Access, CONDUITS, MOTHERSHIP, Method, Route, fill};
use nexus_model::directive::FinishStatus;
use std::time::Duration;

async fn status(http: &Http, route: &Route, ids: &[&str]) -> u16 {
    // Its object is looked for once the body is right.
    let body = if route.id == "createDirective" { &br#"{"command": "x"}"#[..] } else { b"{}" };
    let body = (route.method != Method::Get).then(|| body.to_vec());
    match http.fetch(route.method, &fill(route.path, ids), body, Duration::ZERO).await {
        Ok(reply) => reply.status,
        Err(error) => error.status().unwrap_or_else(|| panic!("{}: {error}", route.id)),
    }
}

/// Ids of existing objects, in the order in which the path names them.
fn ids_of<'a>(route: &Route, objects: &[(&str, &'a str)]) -> Vec<&'a str> {
    route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| objects.iter().find(|(known, _)| *known == name).unwrap().1)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_every_caller_without_rights() {
    let server = Server::start_with(crate::approvals::asks).await;
    let owner = server.owner();
    let mut keys = Vec::new();
    for role in Role::ALL {
        let made = owner.create_api_key(&CreateApiKey { role: *role, name: None }).await.unwrap();
        keys.push((*role, server.http().with_bearer(&made.api_key).unwrap()));
    }
    let facility = server.facility().await.to_string();
    let territory = server.enroll("one").await;
    let daemon = server.daemon(territory);
    // A directive with everything that one can have: an approval, a diff, a receipt, a kept file.
    let (_, agent) = keys.iter().find(|(role, _)| *role == Role::Agent).unwrap();
    let create = format!("/mothership/api/v1/facilities/{facility}/directives");
    agent.fetch(Method::Post, &create, Some(br#"{"command": "x"}"#.to_vec()), Duration::ZERO).await.unwrap();
    let approval = owner.approvals(true, &ListQuery::default()).await.unwrap().approvals.remove(0);
    owner.approve(approval.directive_id, &ApproveRequest::default()).await.unwrap();
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    let (directive, token) = (claim.directive_id, claim.directive_token.as_str());
    daemon.started(directive, token, &StartedRequest::default()).await.unwrap();
    let blake3 = blake3::hash(b"x").to_hex().to_string();
    let file = ArtifactRequest { name: "a".to_owned(), size: 1, blake3, media_type: None };
    let artifact = daemon.artifact(directive, token, &file).await.unwrap().artifact_id;
    let bytes = ArtifactChunkRequest { offset: 0, bytes: base64::encode(b"x") };
    daemon.artifact_chunk(directive, token, &artifact, &bytes).await.unwrap();
    let report = FinishedRequest {
        diff_base64: Some(base64::encode(b"+x\n")),
        receipt: Some(serde_json::json!({"r": 1})),
        ..end(FinishStatus::Succeeded)
    };
    daemon.finished(directive, token, &report).await.unwrap();
    let (directive, territory) = (directive.to_string(), territory.to_string());
    let key = owner.create_api_key(&CreateApiKey { role: Role::Viewer, name: None }).await.unwrap().api_key_id;
    let approval = approval.approval_id.to_string();
    let objects = [
        ("facility_id", facility.as_str()),
        ("territory_id", territory.as_str()),
        ("directive_id", directive.as_str()),
        ("artifact_id", artifact.as_str()),
        ("api_key_id", key.as_str()),
        ("approval_id", approval.as_str()),
    ];
    let plain_http = server.http();
    let bad_key = plain_http.with_bearer("nxk_wrong").unwrap();
    let other = plain_http.with_bearer(&other_account(&server)).unwrap();
    let as_daemon = plain_http.with_header(TERRITORY_HEADER, &territory).unwrap();
    let with_token = as_daemon.with_bearer(&claim.directive_token).unwrap();
    for route in CONDUITS.iter().chain(MOTHERSHIP) {
        let ids = ids_of(route, &objects);
        match route.access {
            Access::Public => assert_eq!(status(&plain_http, route, &ids).await, 200, "{}", route.id),
            Access::EnrollmentToken => assert_eq!(status(&plain_http, route, &ids).await, 422, "{}", route.id),
            Access::Territory | Access::Directive => {
                for caller in [&plain_http, &bad_key, &keys[3].1] {
                    assert_eq!(status(caller, route, &ids).await, 401, "{}", route.id);
                }
                if route.access == Access::Directive {
                    assert_eq!(status(&as_daemon, route, &ids).await, 401, "{}: no token", route.id);
                    let mut forged = claim.directive_token.clone();
                    forged.replace_range(forged.len() - 2.., "AA");
                    let caller = as_daemon.with_bearer(&forged).unwrap();
                    assert_eq!(status(&caller, route, &ids).await, 401, "{}: forged token", route.id);
                    let caller = as_daemon.with_bearer(&claim.directive_token).unwrap();
                    let elsewhere = nexus_model::ids::DirectiveId::new().to_string();
                    let mut other_ids = ids.clone();
                    other_ids[0] = &elsewhere;
                    assert_eq!(status(&caller, route, &other_ids).await, 403, "{}: another directive", route.id);
                }
            }
            Access::Roles(roles) => {
                assert_eq!(status(&plain_http, route, &ids).await, 401, "{}: no key", route.id);
                assert_eq!(status(&bad_key, route, &ids).await, 401, "{}: wrong key", route.id);
                // What a daemon proves itself with is nothing to the API of users.
                for caller in [&as_daemon, &with_token] {
                    assert_eq!(status(caller, route, &ids).await, 401, "{}: a territory", route.id);
                }
                for (role, caller) in keys.iter().filter(|(role, _)| !roles.contains(role)) {
                    assert_eq!(status(caller, route, &ids).await, 403, "{} as {role:?}", route.id);
                }
                // Each object is there: what another account is refused below exists.
                let read_only = route.method == Method::Get && !route.later;
                for (role, caller) in keys.iter().filter(|(role, _)| read_only && roles.contains(role)) {
                    assert_eq!(status(caller, route, &ids).await, 200, "{} as {role:?}", route.id);
                }
                if !ids.is_empty() || route.later {
                    assert_eq!(status(&other, route, &ids).await, 404, "{} of another account", route.id);
                }
            }
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_id_and_an_unknown_id_have_the_same_answer() {
    let server = Server::start().await;
    let facility = server.facility().await;
    let id = server.owner().create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let other = server.http().with_bearer(&other_account(&server)).unwrap();
    let body = |id: String| {
        let other = other.clone();
        async move {
            let path = format!("/mothership/api/v1/directives/{id}");
            match other.fetch(Method::Get, &path, None, Duration::ZERO).await.unwrap_err() {
                nexus_api::client::ClientError::Status { status, body, .. } => {
                    (status, body.error, body.code, body.detail, body.hint)
                }
                error => panic!("{error}"),
            }
        }
    };
    assert_eq!(body(id.to_string()).await, body(nexus_model::ids::DirectiveId::new().to_string()).await);
    assert_eq!(body(id.to_string()).await, body("not-an-id".to_owned()).await);
    let create = format!("/mothership/api/v1/facilities/{facility}/directives");
    let refused = other.fetch(Method::Post, &create, Some(br#"{"command":"x"}"#.to_vec()), Duration::ZERO).await;
    assert_eq!(refused.unwrap_err().status(), Some(404));
    server.stop().await;
}
