//! Policy documents of accounts: under those of the operator, tested before they count, and asked again at every claim.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::approvals::{code, key};
use crate::support::{Server, other_account, plain};
use nexus_api::client::{ConduitsClient, MothershipClient};
use nexus_api::conduits::{ClaimedDirective, PollRequest};
use nexus_api::mothership::{ApproveRequest, CreateDirective, PolicyList, PutPolicy, Role};
use nexus_model::directive::State;
use nexus_model::ids::DirectiveId;
use nexus_model::spec::DirectiveLimits;
use nexus_mothership::Config;
use nexus_policy::document::{LoadedPolicy, PolicySet};
use serde_json::{Value, json};
use std::time::Duration;

pub fn document(rest: &Value) -> PutPolicy {
    let mut all = json!({"policy": "nexus.policy/1", "id": "own", "level": "account"});
    all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    PutPolicy { document: Some(all.to_string()), ..PutPolicy::default() }
}

pub async fn put(by: &MothershipClient, rest: &Value) -> PolicyList {
    by.put_account_policy(&document(rest)).await.unwrap()
}

fn remove() -> PutPolicy {
    PutPolicy { remove: Some(true), ..PutPolicy::default() }
}

/// The operator lists two secrets, and no more memory than 4 GiB.
fn operator(config: &mut Config) {
    let text = "policy: nexus.policy/1\nid: house\nlevel: global\nlimits: {memory: 4G}\nsecrets: [ONE, TWO]\n";
    config.policies = PolicySet::build(vec![LoadedPolicy::read("/etc/house.yaml", text).unwrap()]).unwrap();
}

async fn polled(daemon: &ConduitsClient) -> Vec<ClaimedDirective> {
    let request = PollRequest { max_directives_to_claim: 5, ..PollRequest::default() };
    daemon.poll(&request).await.unwrap().directives
}

async fn until(server: &Server, id: DirectiveId, state: State) {
    for _ in 0..100 {
        if server.owner().directive(id).await.unwrap().state == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?} and not {state:?}", server.owner().directive(id).await.unwrap().state);
}

/// Creates a directive in a facility of its own.
async fn made(server: &Server, by: &MothershipClient, body: &CreateDirective) -> DirectiveId {
    by.create_directive(server.facility().await, body, None).await.unwrap().directive_id
}

async fn allowed(by: &MothershipClient, question: &str) -> (bool, Vec<String>) {
    let answer = by.effective_policy(Some(question)).await.unwrap().answer.unwrap();
    assert_eq!(answer.question, question);
    (answer.allowed, answer.forbidden_by)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_a_document_of_its_own_under_those_of_the_operator() {
    let server = Server::start_with(operator).await;
    let owner = server.owner();
    let other = MothershipClient::new(&server.http(), &other_account(&server)).unwrap();
    let before = owner.policies().await.unwrap();
    assert_eq!((before.documents.len(), before.account.generation, before.account.document.clone()), (1, 0, None));
    let rest = json!({
        "secrets": ["TWO", "THREE"], "limits": {"memory": "8G", "timeout": "10m"}, "commands": {"forbidden": ["rm *"]},
        "tests": {"match": ["run ls"], "not_match": ["run rm x"]},
    });
    let now = put(&owner, &rest).await;
    assert_ne!(now.generation, before.generation);
    let sources: Vec<&str> = now.documents.iter().map(|one| one.source.as_str()).collect();
    assert_eq!((sources, now.documents[1].tests), (vec!["/etc/house.yaml", "account@1"], 2));
    assert_eq!((now.account.generation, now.account.document.as_ref()), (1, document(&rest).document.as_ref()));
    assert!(now.account.applied_by.is_some() && now.account.applied_at.is_some());
    assert_eq!(put(&owner, &rest).await, now, "the same document changes nothing");
    // Each value names the document that decided it, and none is wider than the operator's.
    let effective = owner.effective_policy(None).await.unwrap();
    assert_eq!((effective.generation, &effective.answer), (now.generation, &None));
    let from = |what: &str| effective.values.iter().find(|one| one.what == what).map(|one| one.from.clone());
    assert_eq!(from("limit memory at most 4G"), Some("/etc/house.yaml:4:18".to_owned()));
    for own in ["limit timeout at most 10m", "secrets only TWO", "forbidden rm *"] {
        assert!(from(own).is_some_and(|from| from.starts_with("account@1:1:")), "{own}: {effective:#?}");
    }
    assert!(allowed(&owner, "secret TWO").await.0);
    let (is_allowed, by) = allowed(&owner, "secret THREE").await;
    assert!(!is_allowed && by.len() == 1, "the account listed it, and the operator did not: {by:?}");
    assert_eq!(code(owner.effective_policy(Some("what else")).await).0, 400);
    // It holds for what is created from now on, and for this account alone.
    let facility = server.facility().await;
    let (status, said) = code(owner.create_directive(facility, &plain("rm x"), None).await);
    assert_eq!((status, said.as_str()), (422, "policy"));
    let limits = DirectiveLimits { memory_mb: Some(8192), ..DirectiveLimits::default() };
    let large = CreateDirective { limits: Some(limits), ..plain("make") };
    assert_eq!(code(owner.create_directive(facility, &large, None).await), (422, "policy".to_owned()));
    owner.create_directive(facility, &plain("make"), None).await.unwrap();
    let others = other.policies().await.unwrap();
    assert_eq!((others.documents.len(), others.generation, others.account.generation), (1, before.generation, 0));
    assert!(allowed(&other, "secret ONE").await.0);
    // An agent neither reads nor changes it, and an operator of the fleet does not change it.
    let (agent, manager) = (key(&server, Role::Agent).await, key(&server, Role::Operator).await);
    assert_eq!(code(agent.policies().await).0, 403);
    manager.policies().await.unwrap();
    for by in [&agent, &manager] {
        assert_eq!(code(by.put_account_policy(&remove()).await).0, 403);
    }
    let server = server.restart().await;
    assert_eq!(server.owner().policies().await.unwrap().account, now.account, "it is stored");
    assert_eq!(server.owner().put_account_policy(&remove()).await.unwrap().account.generation, 2);
    assert!(server.owner().policies().await.unwrap().documents.is_empty());
    server.owner().create_directive(facility, &plain("rm x"), None).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_does_not_count_changes_nothing() {
    let server = Server::start_with(operator).await;
    let owner = server.owner();
    let first = put(&owner, &json!({"commands": {"forbidden": ["rm *"]}})).await;
    let with = |document: String| PutPolicy { document: Some(document), ..PutPolicy::default() };
    for (put, status, expected) in [
        (
            document(&json!({"tests": {"match": ["limit memory=8G"]}, "limits": {"memory": "1G"}})),
            422,
            "policy_document",
        ),
        (document(&json!({"unknown": 1})), 422, "policy_document"),
        (with("no document".to_owned()), 422, "policy_document"),
        (with(document(&json!({})).document.unwrap().replace("\"account\"", "\"global\"")), 422, "policy_level"),
        (document(&json!({"budgets": {"connections": 1}})), 422, "policy_not_held"),
        (document(&json!({"net": {"deny": ["a.test"]}})), 422, "policy_not_held"),
        (document(&json!({"description": "x".repeat(140_000)})), 422, "policy_document"),
        (PutPolicy::default(), 422, "invalid_field"),
        (PutPolicy { remove: Some(true), ..document(&json!({})) }, 422, "invalid_field"),
        (PutPolicy { if_generation: Some(2), ..document(&json!({})) }, 409, "policy_changed"),
        (PutPolicy { if_generation: Some(0), ..remove() }, 409, "policy_changed"),
    ] {
        assert_eq!(code(owner.put_account_policy(&put).await), (status, expected.to_owned()));
        assert_eq!(owner.policies().await.unwrap(), first);
    }
    assert!(!allowed(&owner, "run rm x").await.0, "the one before is in force");
    // Of changes at one time that have all seen the same generation, one is made.
    let changes = (0..8).map(|number| {
        let (owner, rest) = (owner.clone(), json!({"description": format!("{number}")}));
        let put = PutPolicy { if_generation: Some(1), ..document(&rest) };
        tokio::spawn(async move { owner.put_account_policy(&put).await })
    });
    let mut made = 0;
    for change in changes.collect::<Vec<_>>() {
        match change.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert_eq!(code::<()>(Err(error)), (409, "policy_changed".to_owned())),
        }
    }
    assert_eq!((made, owner.policies().await.unwrap().account.generation), (1, 2));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_held_against_the_document_of_its_moment() {
    let server = Server::start().await;
    let (daemon, owner) = (server.territory("one").await, server.owner());
    let (agent, second) = (key(&server, Role::Agent).await, key(&server, Role::Operator).await);
    let facility = server.facility().await;
    let create =
        async |command: &str| agent.create_directive(facility, &plain(command), None).await.unwrap().directive_id;
    let (forbidden, next) = (create("rm x").await, create("make").await);
    let list = put(&owner, &json!({"commands": {"forbidden": ["rm *"]}, "limits": {"memory": "1G"}})).await;
    assert!(polled(&daemon).await.is_empty(), "what is forbidden now does not start");
    until(&server, forbidden, State::Rejected).await;
    let ended = owner.directive(forbidden).await.unwrap();
    assert_eq!((ended.reason.as_deref(), ended.attempt), (Some("policy_denied"), 0));
    let events = owner.audit_events(None, 200).await.unwrap().events;
    let denied = events.iter().find(|event| event.action == "directive.deny").unwrap();
    assert_eq!(denied.object, format!("directive/{forbidden}"));
    assert_eq!(denied.detail["policies"], list.generation.to_string());
    assert!(denied.detail["why"].as_str().unwrap().contains("account@1:1:"), "{denied:?}");
    // The next one has the facility, and the limit of the policy in the place of none.
    let claims = polled(&daemon).await;
    assert_eq!(claims.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [next]);
    assert_eq!(claims[0].spec.limits.memory_mb, Some(1024));
    // An approval is asked for now: what did not ask is rejected, and one of two users is too few.
    let plain_one = made(&server, &agent, &plain("make")).await;
    put(&owner, &json!({"approval": {"exec": "needs_approval"}})).await;
    let approved = made(&server, &agent, &plain("make")).await;
    owner.approve(approved, &ApproveRequest::default()).await.unwrap();
    let both = made(&server, &agent, &plain("make")).await;
    owner.approve(both, &ApproveRequest::default()).await.unwrap();
    put(&owner, &json!({"approval": {"exec": "needs_approval", "quorum": 2}})).await;
    assert!(polled(&daemon).await.is_empty());
    for id in [plain_one, approved, both] {
        until(&server, id, State::Rejected).await;
        assert_eq!(owner.directive(id).await.unwrap().reason.as_deref(), Some("policy_denied"));
    }
    let used = owner.audit_events(None, 200).await.unwrap().events;
    assert!(!used.iter().any(|event| event.action == "approval.use"), "no use was spent");
    let two = made(&server, &agent, &plain("make")).await;
    for by in [&owner, &second] {
        by.approve(two, &ApproveRequest::default()).await.unwrap();
    }
    let claims = polled(&daemon).await;
    assert_eq!(claims.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [two]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_the_document_of_an_account_is_in_its_audit_chain() {
    let server = Server::start().await;
    let owner = server.owner();
    let first = put(&owner, &json!({"description": "one"})).await.account;
    let second = put(&owner, &json!({"description": "two"})).await.account;
    owner.put_account_policy(&remove()).await.unwrap();
    assert!(owner.put_account_policy(&document(&json!({"unknown": 1}))).await.is_err());
    let id = made(&server, &owner, &plain("make")).await;
    let mut events = owner.audit_events(None, 200).await.unwrap().events;
    events.reverse();
    let changes: Vec<_> = events.iter().filter(|event| event.action.starts_with("policy.")).collect();
    let said: Vec<_> = changes.iter().map(|event| (event.action.as_str(), event.object.as_str())).collect();
    let expected = [
        ("policy.apply", "policy/account@1"),
        ("policy.apply", "policy/account@2"),
        ("policy.remove", "policy/account@3"),
    ];
    assert_eq!(said, expected);
    assert_eq!(changes[1].detail["hash"], second.hash.unwrap().to_string());
    assert_eq!(changes[1].detail["before"], first.hash.unwrap().to_string());
    assert_eq!(changes[2].detail["hash"], Value::Null);
    assert!(changes.iter().all(|event| event.actor.id == first.applied_by), "{changes:?}");
    // A directive says under which documents it was accepted.
    let created = events.iter().find(|event| event.object == format!("directive/{id}")).unwrap();
    let generation = owner.policies().await.unwrap().generation;
    assert_eq!(created.detail["policies"], generation.to_string());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_document_that_does_not_count_any_more_lets_nothing_start_and_loses_nothing() {
    let server = Server::start().await;
    let (territory, owner) = (server.enroll("one").await, server.owner());
    let id = made(&server, &owner, &plain("make")).await;
    put(&owner, &json!({"commands": {"forbidden": ["rm *"]}})).await;
    // Another text than the one that was tested.
    server.change("UPDATE account_policy SET document = 'policy: nexus.policy/1\nid: own\nlevel: account\n'");
    let server = server.restart().await;
    let (daemon, owner) = (server.daemon(territory), server.owner());
    let broken = (503, "policy_broken".to_owned());
    assert_eq!(code(owner.create_directive(server.facility().await, &plain("make"), None).await), broken);
    assert_eq!(code(owner.policies().await), broken);
    assert_eq!(code(daemon.poll(&PollRequest::default()).await), broken);
    assert_eq!(owner.directive(id).await.unwrap().state, State::Queued);
    // An owner replaces it.
    put(&owner, &json!({"commands": {"forbidden": ["dd *"]}})).await;
    let claims = polled(&daemon).await;
    assert_eq!(claims.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [id]);
    server.stop().await;
}
