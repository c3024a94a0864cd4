//! Approvals of directives: who may answer, what an answer lets start, and how often.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::{Server, end, plain};
use nexus_api::client::{ClientError, ConduitsClient, ListQuery, MothershipClient};
use nexus_api::conduits::{ClaimedDirective, PollRequest, StartedRequest};
use nexus_api::mothership::{
    Approval, ApproveRequest, CancelRequest, CreateApiKey, CreateDirective, CreateFacility, FacilityKind,
    RejectRequest, Role,
};
use nexus_model::approval::ApprovalState;
use nexus_model::directive::{FinishStatus, OnLeaseLoss, State};
use nexus_model::ids::{DirectiveId, FacilityId};
use nexus_mothership::Config;
use nexus_policy::document::{LoadedPolicy, PolicySet};
use std::time::Duration;

/// Every command needs an approval.
pub fn asks(config: &mut Config) {
    let text =
        r#"{"policy": "nexus.policy/1", "id": "asks", "level": "account", "approval": {"exec": "needs_approval"}}"#;
    config.policies = PolicySet::build(vec![LoadedPolicy::read("asks.yaml", text).unwrap()]).unwrap();
}

pub async fn key(server: &Server, role: Role) -> MothershipClient {
    let made = server.owner().create_api_key(&CreateApiKey { role, name: None }).await.unwrap();
    MothershipClient::new(&server.http(), &made.api_key).unwrap()
}

async fn asked(server: &Server, by: &MothershipClient, facility: FacilityId, body: &CreateDirective) -> DirectiveId {
    let made = by.create_directive(facility, body, None).await.unwrap();
    assert_eq!(made.state, State::AwaitingApproval);
    assert_eq!(server.owner().directive(made.directive_id).await.unwrap().state, State::AwaitingApproval);
    made.directive_id
}

async fn approval(server: &Server, id: DirectiveId) -> Approval {
    let all = server.owner().approvals(true, &ListQuery::default()).await.unwrap().approvals;
    all.into_iter().find(|one| one.directive_id == id).unwrap()
}

async fn polled(daemon: &ConduitsClient) -> Vec<ClaimedDirective> {
    let request = PollRequest { max_directives_to_claim: 5, ..PollRequest::default() };
    daemon.poll(&request).await.unwrap().directives
}

pub fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (u16, String) {
    match answer.unwrap_err() {
        ClientError::Status { status, body, .. } => (status, body.code),
        error => panic!("{error}"),
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_directive_is_claimed_only_after_another_key_has_approved_exactly_it() {
    let server = Server::start_with(asks).await;
    let (daemon, facility, owner) = (server.territory("one").await, server.facility().await, server.owner());
    let (agent, operator) = (key(&server, Role::Agent).await, key(&server, Role::Operator).await);
    let body = CreateDirective { cwd: Some("src".to_owned()), ..plain("make it's") };
    let id = asked(&server, &operator, facility, &body).await;
    assert!(polled(&daemon).await.is_empty(), "nobody has approved it");
    let seen = approval(&server, id).await;
    assert_eq!((seen.state, seen.uses_left, seen.approved_by.len()), (ApprovalState::Pending, 1, 0));
    assert_eq!((&seen.asks["spec"]["command"], &seen.asks["spec"]["cwd"]), (&"make it's".into(), &"src".into()));
    assert!(seen.reasons[0].starts_with("a policy asks for it (asks.yaml:"), "{:?}", seen.reasons);
    assert_eq!(owner.approval(seen.approval_id).await.unwrap(), seen);
    // Neither who asked, nor a role without the right, nor an answer to something else.
    let yes = ApproveRequest::default();
    assert_eq!(code(operator.approve(id, &yes).await), (403, "self_approval".to_owned()));
    assert_eq!(code(agent.approve(id, &yes).await), (403, "forbidden".to_owned()));
    let other = asked(&server, &agent, facility, &body).await;
    let wrong = ApproveRequest { subject: Some(approval(&server, other).await.subject), ..yes.clone() };
    assert_eq!(code(owner.approve(id, &wrong).await), (409, "other_subject".to_owned()));
    let always = ApproveRequest { scope: Some("always".to_owned()), ..yes.clone() };
    assert_eq!(code(owner.approve(id, &always).await).0, 422);
    assert!(polled(&daemon).await.is_empty());
    let right = ApproveRequest { subject: Some(seen.subject), comment: Some("looks fine".to_owned()), ..yes.clone() };
    assert_eq!(owner.approve(id, &right).await.unwrap().state, State::Queued);
    assert_eq!(code(owner.approve(id, &yes).await), (409, "approval_granted".to_owned()));
    let claims = polled(&daemon).await;
    assert_eq!(claims.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [id], "not the other one");
    let used = claims[0].approval.as_ref().unwrap();
    assert!(used.approval_id == seen.approval_id && used.is_for(&claims[0].spec));
    let mut changed = claims[0].spec.clone();
    changed.command.push(' ');
    assert!(!used.is_for(&changed));
    let after = approval(&server, id).await;
    assert_eq!((after.state, after.uses_left, after.comment.as_deref()), (ApprovalState::Used, 0, Some("looks fine")));
    daemon.started(id, &claims[0].directive_token, &StartedRequest::default()).await.unwrap();
    daemon.finished(id, &claims[0].directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    // Each step stands in the audit chain, with what it was about.
    let events = owner.audit_events(None, 200).await.unwrap().events;
    let object = format!("approval/{}", seen.approval_id);
    let mut steps: Vec<_> = events.iter().filter(|event| event.object == object).collect();
    steps.reverse();
    let actions: Vec<&str> = steps.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["approval.request", "approval.approve", "approval.use"]);
    assert!(steps.iter().all(|event| event.detail["subject"] == seen.subject.to_string()), "{steps:#?}");
    assert_eq!((steps[0].actor.kind.as_str(), steps[2].actor.kind.as_str()), ("api_key", "territory"));
    // A refusal ends the directive, and the facility is given to no directive.
    assert_eq!(owner.reject(other, &RejectRequest::default()).await.unwrap().state, State::Rejected);
    let refused = owner.directive(other).await.unwrap();
    assert_eq!((refused.state, refused.reason.as_deref()), (State::Rejected, Some("approval_rejected")));
    assert_eq!(code(owner.approve(other, &yes).await), (409, "approval_over".to_owned()));
    assert!(owner.approvals(false, &ListQuery::default()).await.unwrap().approvals.is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_answers_at_the_same_time_one_counts() {
    let server = Server::start_with(asks).await;
    let agent = key(&server, Role::Agent).await;
    let facility = server.facility().await;
    let mut keys = Vec::new();
    for _ in 0..6 {
        keys.push(key(&server, Role::Operator).await);
    }
    for _ in 0..5 {
        let id = asked(&server, &agent, facility, &plain("make")).await;
        let answers = keys.iter().map(|one| {
            let one = one.clone();
            tokio::spawn(async move { one.approve(id, &ApproveRequest::default()).await })
        });
        let mut codes = Vec::new();
        for answer in answers.collect::<Vec<_>>() {
            codes.push(answer.await.unwrap().map_or_else(|error| code::<()>(Err(error)).1, |_| "yes".to_owned()));
        }
        codes.sort();
        let mut expected = vec!["approval_granted".to_owned(); 5];
        expected.push("yes".to_owned());
        assert_eq!(codes, expected);
        assert_eq!(approval(&server, id).await.approved_by.len(), 1);
        // One says yes and one says no: the approval and the directive agree about which came last.
        let id = asked(&server, &agent, facility, &plain("make")).await;
        let (yes, no) = (keys[0].clone(), keys[1].clone());
        let yes = tokio::spawn(async move { yes.approve(id, &ApproveRequest::default()).await.is_ok() });
        let no = tokio::spawn(async move { no.reject(id, &RejectRequest::default()).await.is_ok() });
        let (_, no) = (yes.await.unwrap(), no.await.unwrap());
        assert!(no, "an approval that was not used can be taken back");
        let (seen, directive) = (approval(&server, id).await, server.owner().directive(id).await.unwrap());
        assert_eq!((seen.state, directive.state), (ApprovalState::Denied, State::Rejected));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_is_not_answered_or_not_used_in_time_ends_its_directive() {
    let server = Server::start_with(|config| {
        asks(config);
        config.approval_ms = 60_000;
    })
    .await;
    let (agent, owner, facility) = (key(&server, Role::Agent).await, server.owner(), server.facility().await);
    let unanswered = asked(&server, &agent, facility, &plain("make")).await;
    let unused = asked(&server, &agent, facility, &plain("make")).await;
    let sooner = asked(&server, &agent, facility, &plain("make")).await;
    owner.approve(unused, &ApproveRequest::default()).await.unwrap();
    let short = ApproveRequest { expires_in: Some(5), ..ApproveRequest::default() };
    owner.approve(sooner, &short).await.unwrap();
    // The first in the queue of the facility is not claimed and goes; the next one gets the facility.
    server.jump(6_000).await;
    until(&server, sooner, State::Rejected).await;
    assert_eq!(owner.directive(unused).await.unwrap().state, State::Queued);
    server.jump(55_000).await;
    for id in [unanswered, unused] {
        until(&server, id, State::Rejected).await;
        assert_eq!(owner.directive(id).await.unwrap().reason.as_deref(), Some("approval_expired"));
        assert_eq!(code(owner.approve(id, &ApproveRequest::default()).await), (409, "approval_over".to_owned()));
        assert_eq!(approval(&server, id).await.state, ApprovalState::Expired);
    }
    assert!(polled(&server.territory("one").await).await.is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_lets_nothing_else_start_and_nowhere_else() {
    let server = Server::start_with(asks).await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let daemon = server.territory("one").await;
    let there = server.enroll("two").await;
    let body: CreateDirective = serde_json::from_value(serde_json::json!({
        "command": "make one", "cwd": "src", "requested_capabilities": {"env": {"WORD": "first"}},
    }))
    .unwrap();
    // What is stored is changed behind the server's back, after the answer.
    for (from, to) in
        [("make one", "make two"), ("\"src\"", "\"etc\""), ("\"first\"", "\"other\""), ("\"none\"", "\"unrestricted\"")]
    {
        let id = asked(&server, &agent, server.facility().await, &body).await;
        owner.approve(id, &ApproveRequest::default()).await.unwrap();
        server.change(&format!("UPDATE directive SET spec = replace(spec, '{from}', '{to}')"));
        assert!(polled(&daemon).await.is_empty(), "{from} became {to}");
        until(&server, id, State::Rejected).await;
        let seen = owner.directive(id).await.unwrap();
        assert_eq!((seen.reason.as_deref(), seen.started_at), (Some("approval_void"), None), "{from}");
        assert_eq!(approval(&server, id).await.state, ApprovalState::Withdrawn, "{from}");
    }
    // Approved for the machine that has the files, and offered to another one.
    let new = CreateFacility {
        kind: FacilityKind::Empty,
        name: None,
        repo_url: None,
        territory_id: Some(there),
        retention_policy: None,
    };
    let pinned = owner.create_facility(&new).await.unwrap().facility_id;
    let id = asked(&server, &agent, pinned, &body).await;
    assert_eq!(approval(&server, id).await.asks["territory_id"], there.to_string());
    owner.approve(id, &ApproveRequest::default()).await.unwrap();
    server.change("UPDATE work SET pin = {00000000000000000000000000000000}");
    assert!(polled(&daemon).await.is_empty(), "on another machine");
    until(&server, id, State::Rejected).await;
    // The same command again is another directive, with a request of its own.
    let facility = server.facility().await;
    let first = asked(&server, &agent, facility, &body).await;
    owner.approve(first, &ApproveRequest::default()).await.unwrap();
    let second = asked(&server, &agent, facility, &body).await;
    let claims = polled(&daemon).await;
    assert_eq!(claims.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [first]);
    assert_eq!(owner.directive(second).await.unwrap().state, State::AwaitingApproval);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_start_takes_a_use_and_a_claim_that_never_started_takes_none() {
    let server = Server::start_with(asks).await;
    let (agent, owner, daemon) = (key(&server, Role::Agent).await, server.owner(), server.territory("one").await);
    let body = CreateDirective { on_lease_loss: Some(OnLeaseLoss::Requeue), ..plain("make") };
    let id = asked(&server, &agent, server.facility().await, &body).await;
    assert_eq!(approval(&server, id).await.max_uses, 3);
    owner.approve(id, &ApproveRequest { max_uses: Some(2), ..ApproveRequest::default() }).await.unwrap();
    assert_eq!(polled(&daemon).await.len(), 1);
    assert_eq!(approval(&server, id).await.uses_left, 1);
    // The answer got lost: the claim comes back, and its use stands for the next one.
    server.advance(9_000).await;
    until(&server, id, State::Queued).await;
    for left in [1, 0] {
        let mut claims = Vec::new();
        while claims.is_empty() {
            claims = polled(&daemon).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(approval(&server, id).await.uses_left, left);
        daemon.started(id, &claims[0].directive_token, &StartedRequest::default()).await.unwrap();
        server.advance(72_000).await;
    }
    let over = server.until_over(id).await;
    assert_eq!(
        (over.state, over.reason.as_deref()),
        (State::Failed, Some("lease_lost")),
        "a third start was not allowed"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_approvals_that_wait_goes_on_page_by_page() {
    let server = Server::start_with(asks).await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(asked(&server, &agent, server.facility().await, &plain("make")).await);
    }
    // Of two that end at one time the id decides.
    server.change("UPDATE approval SET expires_at = (SELECT max(expires_at) FROM approval)");
    for all in [false, true] {
        let (mut query, mut found, mut pages) = (ListQuery { cursor: None, limit: Some(2) }, Vec::new(), 0);
        loop {
            let page = owner.approvals(all, &query).await.unwrap();
            found.extend(page.approvals.into_iter().map(|one| one.directive_id));
            pages += 1;
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        found.sort_unstable();
        made.sort_unstable();
        assert_eq!((&found, pages), (&made, 3), "all {all}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_of_the_wall_clock_ends_no_approval_and_keeps_none() {
    let server = Server::start_with(asks).await;
    let (agent, owner, daemon) = (key(&server, Role::Agent).await, server.owner(), server.territory("one").await);
    let pending = asked(&server, &agent, server.facility().await, &plain("make")).await;
    let granted = asked(&server, &agent, server.facility().await, &plain("make")).await;
    owner.approve(granted, &ApproveRequest::default()).await.unwrap();
    let ends = |seen: nexus_api::mothership::Approval| seen.expires_at.0;
    let before = ends(approval(&server, pending).await);
    server.move_wall_clock(40 * 86_400_000).await;
    assert_eq!(owner.directive(pending).await.unwrap().state, State::AwaitingApproval);
    assert_eq!(owner.directive(granted).await.unwrap().state, State::Queued);
    // A jump is measured to some milliseconds.
    let moved = async |by: i64| (ends(approval(&server, pending).await) - before - by).abs() < 2_000;
    assert!(moved(40 * 86_400_000).await, "it has moved with the clock");
    server.move_wall_clock(-40 * 86_400_000 - 3_600_000).await;
    assert!(moved(-3_600_000).await, "and no hour is given");
    assert_eq!(polled(&daemon).await.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [granted]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_begins_after_a_jump_of_the_clock_is_not_moved_by_it() {
    let server = Server::start_with(|config| {
        asks(config);
        config.reap_every = Duration::from_millis(1_500);
    })
    .await;
    let (agent, owner, daemon) = (key(&server, Role::Agent).await, server.owner(), server.territory("one").await);
    let short: CreateDirective = serde_json::from_value(serde_json::json!({
        "command": "x", "timeout_seconds": 60, "queue_timeout_seconds": 3_000,
        "requirements": {"labels": {"nowhere": "yes"}},
    }))
    .unwrap();
    for by in [-3_600_000, 3_600_000] {
        let before = approval(&server, asked(&server, &agent, server.facility().await, &plain("before")).await).await;
        server.set_wall_clock(by);
        // The server has not looked at its clock since.
        let pending = asked(&server, &agent, server.facility().await, &plain("pending")).await;
        let ends = approval(&server, pending).await.expires_at;
        let queued = asked(&server, &agent, server.facility().await, &short).await;
        let id = asked(&server, &agent, server.facility().await, &plain("run")).await;
        for id in [queued, id] {
            owner.approve(id, &ApproveRequest::default()).await.unwrap();
        }
        let claim = polled(&daemon).await.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let moved = approval(&server, before.directive_id).await.expires_at.0 - before.expires_at.0;
        assert!((moved - by).abs() < 5_000, "what was asked before moves with the clock: {moved}");
        assert_eq!(approval(&server, pending).await.expires_at, ends, "{by}");
        let lease = "SELECT count(*) FROM work WHERE abs(lease_until - started_at) < 600000";
        assert_eq!(server.number(lease), 1, "its lease has the new time already: {by}");
        let beat = serde_json::from_str("{}").unwrap();
        let beat = daemon.heartbeat(id, &claim.directive_token, &beat).await.unwrap();
        assert!(!beat.cancel_requested, "its limits are not over: {by}");
        daemon.finished(id, &beat.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
        let waits = "SELECT count(*) FROM work w JOIN directive d ON d.id = w.directive_id
                       WHERE abs(w.queue_until - d.created_at - 3000000) < 60000";
        assert_eq!(server.number(waits), 1, "it waits as long as it may: {by}");
        owner.cancel(queued, &CancelRequest::default()).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uses_are_exact_when_many_claim_at_once() {
    let server = Server::start_with(asks).await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let mut daemons = Vec::new();
    for name in ["a", "b", "c", "d"] {
        daemons.push(server.territory(name).await);
    }
    let mut ids = Vec::new();
    for _ in 0..8 {
        let id = asked(&server, &agent, server.facility().await, &plain("make")).await;
        owner.approve(id, &ApproveRequest::default()).await.unwrap();
        ids.push(id);
    }
    let polls = (0..12).map(|at| {
        let daemon = daemons[at % daemons.len()].clone();
        tokio::spawn(async move { polled(&daemon).await })
    });
    let mut claimed = Vec::new();
    for poll in polls.collect::<Vec<_>>() {
        claimed.extend(poll.await.unwrap().into_iter().map(|claim| claim.directive_id));
    }
    claimed.sort();
    ids.sort();
    assert_eq!(claimed, ids, "each was claimed once");
    let all = owner.approvals(true, &ListQuery { limit: Some(200), cursor: None }).await.unwrap().approvals;
    assert!(all.iter().all(|one| (one.state, one.uses_left) == (ApprovalState::Used, 0)), "{all:#?}");
    let events = owner.audit_events(None, 200).await.unwrap().events;
    assert_eq!(events.iter().filter(|event| event.action == "approval.use").count(), ids.len());
    server.stop().await;
}

/// Every command needs an approval by two users.
pub fn asks_two(config: &mut Config) {
    let text = r#"{"policy": "nexus.policy/1", "id": "asks", "level": "account", "approval": {"exec": "needs_approval", "quorum": 2}}"#;
    config.policies = PolicySet::build(vec![LoadedPolicy::read("asks.yaml", text).unwrap()]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directive_that_two_users_must_approve_starts_after_the_second_alone() {
    let server = Server::start_with(asks_two).await;
    let daemon = server.enroll("one").await;
    let operator = key(&server, Role::Operator).await;
    let (facility, yes) = (server.facility().await, ApproveRequest::default());
    let id = asked(&server, &operator, facility, &plain("make")).await;
    assert_eq!(approval(&server, id).await.quorum, 2);
    assert_eq!(code(operator.approve(id, &yes).await), (403, "self_approval".to_owned()));
    // The first takes away, and does not open anything.
    let less = ApproveRequest { expires_in: Some(600), ..yes.clone() };
    let before = approval(&server, id).await.expires_at;
    assert_eq!(server.owner().approve(id, &less).await.unwrap().state, State::AwaitingApproval);
    assert_eq!(code(server.owner().approve(id, &yes).await), (409, "approved_already".to_owned()));
    // A no of the second ends what the first has approved.
    let second = key(&server, Role::Operator).await;
    let refused = asked(&server, &operator, server.facility().await, &plain("make")).await;
    server.owner().approve(refused, &yes).await.unwrap();
    assert_eq!(second.reject(refused, &RejectRequest::default()).await.unwrap().state, State::Rejected);
    let server = server.restart().await;
    let half = approval(&server, id).await;
    assert_eq!((half.state, half.approved_by.len()), (ApprovalState::Pending, 1), "a server that ends loses no answer");
    assert!(half.expires_at < before);
    assert!(polled(&server.daemon(daemon)).await.is_empty(), "one alone lets nothing start");
    let second = key(&server, Role::Operator).await;
    assert_eq!(second.approve(id, &yes).await.unwrap().state, State::Queued, "the request keeps its number of users");
    let claims = polled(&server.daemon(daemon)).await;
    assert_eq!(claims.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [id]);
    assert_eq!(claims[0].approval.as_ref().unwrap().approvers, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_answers_at_once_two_count_where_two_are_wanted() {
    let server = Server::start_with(asks_two).await;
    let agent = key(&server, Role::Agent).await;
    let mut keys = Vec::new();
    for _ in 0..5 {
        keys.push(key(&server, Role::Operator).await);
    }
    for _ in 0..4 {
        let id = asked(&server, &agent, server.facility().await, &plain("make")).await;
        // Each key twice: a user counts once.
        let answers = keys.iter().chain(&keys).map(|one| {
            let one = one.clone();
            tokio::spawn(async move { one.approve(id, &ApproveRequest::default()).await })
        });
        let mut said_yes = 0;
        for answer in answers.collect::<Vec<_>>() {
            match answer.await.unwrap() {
                Ok(_) => said_yes += 1,
                Err(error) => {
                    let code = code::<()>(Err(error)).1;
                    assert!(["approval_granted", "approved_already"].contains(&code.as_str()), "{code}");
                }
            }
        }
        let seen = approval(&server, id).await;
        assert_eq!((said_yes, seen.approved_by.len(), seen.state), (2, 2, ApprovalState::Granted));
        assert_ne!(seen.approved_by[0], seen.approved_by[1]);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_answer_that_comes_too_late_lets_nothing_start() {
    let server = Server::start_with(|config| {
        asks_two(config);
        config.approval_ms = 60_000;
    })
    .await;
    let (agent, second) = (key(&server, Role::Agent).await, key(&server, Role::Operator).await);
    let id = asked(&server, &agent, server.facility().await, &plain("make")).await;
    let first = server.owner().approve(id, &ApproveRequest::default()).await.unwrap();
    assert_eq!(first.state, State::AwaitingApproval);
    server.jump(61_000).await;
    assert_eq!(code(second.approve(id, &ApproveRequest::default()).await), (409, "approval_over".to_owned()));
    until(&server, id, State::Rejected).await;
    assert_eq!(server.owner().directive(id).await.unwrap().reason.as_deref(), Some("approval_expired"));
    assert!(polled(&server.territory("one").await).await.is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_between_an_approval_and_its_use_loses_neither() {
    let server = Server::start_with(asks).await;
    let (agent, daemon_id) = (key(&server, Role::Agent).await, server.enroll("one").await);
    let id = asked(&server, &agent, server.facility().await, &plain("make")).await;
    server.owner().approve(id, &ApproveRequest::default()).await.unwrap();
    let server = server.restart().await;
    assert_eq!(approval(&server, id).await.state, ApprovalState::Granted);
    let named = PollRequest { poll_id: Some("one".to_owned()), ..PollRequest::default() };
    let first = server.daemon(daemon_id).poll(&named).await.unwrap().directives;
    assert_eq!(first.len(), 1);
    let server = server.restart().await;
    let again = server.daemon(daemon_id).poll(&named).await.unwrap().directives;
    assert_eq!((again.len(), &again[0].approval), (1, &first[0].approval), "the lost answer is repeated");
    assert!(again[0].approval.as_ref().unwrap().is_for(&again[0].spec));
    assert_eq!(approval(&server, id).await.uses_left, 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directive_that_is_canceled_takes_its_request_back() {
    let server = Server::start_with(asks).await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let facility = server.facility().await;
    let id = asked(&server, &agent, facility, &plain("make")).await;
    agent.cancel(id, &CancelRequest::default()).await.unwrap();
    assert_eq!(approval(&server, id).await.state, ApprovalState::Withdrawn);
    assert_eq!(code(owner.approve(id, &ApproveRequest::default()).await), (409, "approval_over".to_owned()));
    assert_eq!(owner.directive(id).await.unwrap().state, State::Canceled);
    // What no policy asks about has nothing to answer.
    let free = Server::start().await;
    let id = free.owner().create_directive(free.facility().await, &plain("make"), None).await.unwrap().directive_id;
    assert_eq!(code(free.owner().approve(id, &ApproveRequest::default()).await), (409, "not_asked".to_owned()));
    free.stop().await;
    server.stop().await;
}
