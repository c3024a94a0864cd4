//! Approvals of connections of directives that run: who may answer, what an answer lets be reached, and how often.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::approvals::{asks, asks_two, code, key};
use crate::policies::put;
use crate::support::{Server, end, plain};
use nexus_api::client::{ClientError, ConduitsClient, ListQuery, MothershipClient};
use nexus_api::conduits::{
    ClaimedDirective, ConnectionAnswer, ConnectionRequest, HeartbeatRequest, PollRequest, StartedRequest,
};
use nexus_api::mothership::{
    Approval, ApproveRequest, CancelRequest, ConnectionAsks, CreateDirective, RejectRequest, RequestedCapabilities,
    Role,
};
use nexus_model::approval::{ApprovalKind, ApprovalState};
use nexus_model::capability::{ASK, NetCapability, NetMode};
use nexus_model::directive::{FinishStatus, OnLeaseLoss, State};
use nexus_model::ids::DirectiveId;
use nexus_policy::document::{LoadedPolicy, PolicySet};
use serde_json::json;
use std::time::Duration;

fn asking() -> CreateDirective {
    let x_ext = [(ASK.to_owned(), 60.into())].into();
    let net = NetCapability { mode: NetMode::Allowlist, allow: Some(Vec::new()), x_ext, ..NetCapability::default() };
    let requested = RequestedCapabilities { net: Some(net), ..RequestedCapabilities::default() };
    CreateDirective { requested_capabilities: Some(requested), ..plain("make fetch") }
}

fn to(destination: &str, use_name: &str) -> ConnectionRequest {
    let (destination, use_name) = (destination.to_owned(), use_name.to_owned());
    ConnectionRequest { destination, program: None, use_name, wait_seconds: 60, gone: false }
}

/// A directive that runs on a territory of its own.
struct Running {
    daemon: ConduitsClient,
    id: DirectiveId,
    claim: ClaimedDirective,
}

impl Running {
    async fn of(server: &Server, by: &MothershipClient, body: &CreateDirective, name: &str) -> Self {
        let daemon = server.territory(name).await;
        let id = by.create_directive(server.facility().await, body, None).await.unwrap().directive_id;
        Self::claimed(daemon, id).await
    }

    async fn claimed(daemon: ConduitsClient, id: DirectiveId) -> Self {
        let mut claims = Vec::new();
        while claims.is_empty() {
            claims = daemon.poll(&PollRequest::default()).await.unwrap().directives;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let claim = claims.remove(0);
        assert_eq!(claim.directive_id, id);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        Self { daemon, id, claim }
    }

    async fn connect(&self, request: &ConnectionRequest) -> Result<ConnectionAnswer, ClientError> {
        self.daemon.connection(self.id, &self.claim.directive_token, request).await
    }

    /// Renews the lease after a jump of the clock.
    async fn beat(&self) {
        self.daemon.heartbeat(self.id, &self.claim.directive_token, &HeartbeatRequest::default()).await.unwrap();
    }

    /// The state of a connection, and whether it may be made.
    async fn state(&self, destination: &str, use_name: &str) -> (ApprovalState, bool) {
        let answer = self.connect(&to(destination, use_name)).await.unwrap();
        (answer.state, answer.allowed)
    }
}

async fn all(server: &Server) -> Vec<Approval> {
    server.owner().approvals(true, &ListQuery::default()).await.unwrap().approvals
}

async fn seen(server: &Server, answer: &ConnectionAnswer) -> Approval {
    server.owner().approval(answer.approval_id.unwrap()).await.unwrap()
}

fn yes(to: &ConnectionAnswer) -> ApproveRequest {
    ApproveRequest { approval_id: to.approval_id, ..ApproveRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_made_once_after_another_key_has_approved_exactly_it() {
    let server = Server::start().await;
    let (operator, agent, owner) =
        (key(&server, Role::Operator).await, key(&server, Role::Agent).await, server.owner());
    let run = Running::of(&server, &operator, &asking(), "one").await;
    let first = run.connect(&to("a.test:443", "c1")).await.unwrap();
    assert_eq!((first.state, first.allowed), (ApprovalState::Pending, false));
    assert_eq!(run.connect(&to("a.test:443", "c1")).await.unwrap().approval_id, first.approval_id, "a repetition");
    let shown = seen(&server, &first).await;
    assert_eq!((shown.kind, shown.directive_id, all(&server).await.len()), (ApprovalKind::Egress, run.id, 1));
    assert_eq!(owner.approvals(false, &ListQuery::default()).await.unwrap().approvals, std::slice::from_ref(&shown));
    let asks = ConnectionAsks::of(&shown).unwrap();
    assert_eq!((asks.connection.destination.as_str(), &asks.spec), ("a.test:443", &run.claim.spec));
    assert_eq!((Some(&asks.connection), Some(shown.subject)), (first.connection.as_ref(), first.subject));
    let wait = shown.expires_at.0 - shown.asked_at.0;
    assert_eq!(wait, 60_000, "as long as the connection waits");
    // Neither who asked, nor a role without the right, nor an answer to something else.
    assert_eq!(code(operator.approve(run.id, &yes(&first)).await), (403, "self_approval".to_owned()));
    assert_eq!(code(agent.approve(run.id, &yes(&first)).await), (403, "forbidden".to_owned()));
    let other = run.connect(&to("b.test:443", "c2")).await.unwrap();
    let wrong = ApproveRequest { subject: other.subject, ..yes(&first) };
    assert_eq!(code(owner.approve(run.id, &wrong).await), (409, "other_subject".to_owned()));
    assert_eq!(code(owner.approve(run.id, &ApproveRequest::default()).await), (409, "not_asked".to_owned()));
    assert_eq!(run.state("a.test:443", "c1").await, (ApprovalState::Pending, false));
    let right = ApproveRequest { subject: first.subject, comment: Some("fine".to_owned()), ..yes(&first) };
    assert_eq!(owner.approve(run.id, &right).await.unwrap().state, State::Running);
    let granted = run.connect(&to("a.test:443", "c1")).await.unwrap();
    assert!(granted.allowed && granted.state == ApprovalState::Used && granted.approved_by.len() == 1, "{granted:?}");
    // The answer got lost: the same connection has its use. Another one asks again, and so does another destination.
    assert!(run.connect(&to("a.test:443", "c1")).await.unwrap().allowed);
    assert_eq!(run.state("a.test:443", "c3").await, (ApprovalState::Pending, false));
    assert_eq!(run.state("a.test:80", "c4").await, (ApprovalState::Pending, false));
    assert_eq!((seen(&server, &first).await.uses_left, all(&server).await.len()), (0, 4));
    // A no holds to the end of the claim.
    let no = RejectRequest { approval_id: other.approval_id, comment: None };
    owner.reject(run.id, &no).await.unwrap();
    for use_name in ["c2", "c5"] {
        assert_eq!(run.state("b.test:443", use_name).await, (ApprovalState::Denied, false));
    }
    assert_eq!(owner.directive(run.id).await.unwrap().state, State::Running, "the directive goes on");
    // What is left ends with the directive.
    run.daemon.finished(run.id, &run.claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    assert!(owner.approvals(false, &ListQuery::default()).await.unwrap().approvals.is_empty());
    assert_eq!(all(&server).await.iter().filter(|one| one.state == ApprovalState::Withdrawn).count(), 2);
    let late = all(&server).await.into_iter().find(|one| one.state == ApprovalState::Withdrawn).unwrap();
    let late = ApproveRequest { approval_id: Some(late.approval_id), ..ApproveRequest::default() };
    assert_eq!(code(owner.approve(run.id, &late).await), (409, "approval_over".to_owned()));
    // Each step stands in the audit chain.
    let events = owner.audit_events(None, 200).await.unwrap().events;
    let object = format!("approval/{}", first.approval_id.unwrap());
    let mut steps: Vec<_> = events.iter().filter(|event| event.object == object).collect();
    steps.reverse();
    let actions: Vec<&str> = steps.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["approval.request", "approval.approve", "approval.use"]);
    assert!(
        steps
            .iter()
            .all(|event| event.detail["subject"] == shown.subject.to_string()
                && event.detail["destination"] == "a.test:443"),
        "{steps:#?}"
    );
    assert_eq!((steps[0].actor.kind.as_str(), steps[1].actor.kind.as_str()), ("territory", "api_key"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_connections_are_allowed_as_were_approved_when_many_ask_at_once() {
    let server = Server::start().await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let run = Running::of(&server, &agent, &asking(), "one").await;
    let first = run.connect(&to("a.test:443", "c0")).await.unwrap();
    owner.approve(run.id, &ApproveRequest { max_uses: Some(5), ..yes(&first) }).await.unwrap();
    // Each name twice: a repetition takes no second use.
    let tries = (0..20).chain(0..20).map(|number| {
        let (daemon, token, id) = (run.daemon.clone(), run.claim.directive_token.clone(), run.id);
        tokio::spawn(async move {
            let name = format!("c{number}");
            (daemon.connection(id, &token, &to("a.test:443", &name)).await.unwrap().allowed, name)
        })
    });
    let mut allowed = std::collections::BTreeSet::new();
    for one in tries.collect::<Vec<_>>() {
        let (may, name) = one.await.unwrap();
        if may {
            allowed.insert(name);
        }
    }
    assert_eq!(allowed.len(), 5);
    assert_eq!(seen(&server, &first).await.uses_left, 0);
    // For the whole directive: each connection, and only there.
    let whole = run.connect(&to("b.test:443", "d0")).await.unwrap();
    let scope = Some("directive".to_owned());
    owner.approve(run.id, &ApproveRequest { scope: scope.clone(), ..yes(&whole) }).await.unwrap();
    for number in 0..30 {
        assert_eq!(run.state("b.test:443", &format!("d{number}")).await, (ApprovalState::Granted, true));
    }
    assert_eq!(seen(&server, &whole).await.uses_left, 970);
    let start = ApproveRequest { scope, ..ApproveRequest::default() };
    assert_eq!(code(owner.approve(run.id, &start).await).0, 422, "a start has no such scope");
    // Another directive of the same key has nothing of it.
    let second = Running::of(&server, &agent, &asking(), "two").await;
    let other = second.connect(&to("b.test:443", "d0")).await.unwrap();
    assert_eq!((other.state, other.allowed), (ApprovalState::Pending, false));
    assert_eq!(code(owner.approve(second.id, &yes(&first)).await), (404, "not_found".to_owned()));
    // Nor does a territory that does not hold the directive.
    let foreign = second.daemon.connection(run.id, &run.claim.directive_token, &to("b.test:443", "d0")).await;
    assert!(matches!(code(foreign).0, 401 | 403));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_answers_about_a_connection_at_the_same_time_one_counts() {
    let server = Server::start().await;
    let agent = key(&server, Role::Agent).await;
    let run = Running::of(&server, &agent, &asking(), "one").await;
    let mut keys = Vec::new();
    for _ in 0..6 {
        keys.push(key(&server, Role::Operator).await);
    }
    for round in 0..4 {
        let destination = format!("r{round}.test:443");
        let asked = run.connect(&to(&destination, &format!("r{round}"))).await.unwrap();
        let answers = keys.iter().map(|one| {
            let (one, id, body) = (one.clone(), run.id, yes(&asked));
            tokio::spawn(async move { one.approve(id, &body).await })
        });
        let mut codes = Vec::new();
        for answer in answers.collect::<Vec<_>>() {
            codes.push(answer.await.unwrap().map_or_else(|error| code::<()>(Err(error)).1, |_| "yes".to_owned()));
        }
        codes.sort();
        let mut expected = vec!["approval_granted".to_owned(); 5];
        expected.push("yes".to_owned());
        assert_eq!(codes, expected);
        assert_eq!(seen(&server, &asked).await.approved_by.len(), 1);
        assert_eq!(run.state(&destination, &format!("r{round}")).await, (ApprovalState::Used, true));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_not_answered_in_time_is_refused_and_a_late_answer_opens_nothing() {
    let server = Server::start().await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let run = Running::of(&server, &agent, &asking(), "one").await;
    let unanswered = run.connect(&to("a.test:443", "c1")).await.unwrap();
    let unused = run.connect(&to("b.test:443", "c2")).await.unwrap();
    let short = ApproveRequest { expires_in: Some(5), ..yes(&unused) };
    owner.approve(run.id, &short).await.unwrap();
    server.jump(6_000).await;
    run.beat().await;
    assert_eq!(run.state("a.test:443", "c1").await.0, ApprovalState::Pending);
    let after = run.connect(&to("b.test:443", "c2")).await.unwrap();
    assert!(after.approval_id != unused.approval_id && !after.allowed, "an answer that was over asks anew: {after:?}");
    server.jump(55_000).await;
    run.beat().await;
    assert_eq!(code(owner.approve(run.id, &yes(&unanswered)).await), (409, "approval_over".to_owned()));
    for use_name in ["c1", "c3"] {
        assert_eq!(run.state("a.test:443", use_name).await, (ApprovalState::Expired, false));
    }
    // Time ends them without a call, too.
    let asked = run.connect(&to("d.test:443", "c4")).await.unwrap();
    server.jump(55_000).await;
    run.beat().await;
    server.jump(6_000).await;
    run.beat().await;
    let expired = "SELECT count(*) FROM connection_approval WHERE live";
    for _ in 0..100 {
        if server.number(expired) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((server.number(expired), seen(&server, &asked).await.state), (0, ApprovalState::Expired));
    // A request that the client left can be made again.
    let gone = ConnectionRequest { gone: true, ..to("e.test:443", "c5") };
    let left = run.connect(&to("e.test:443", "c5")).await.unwrap();
    assert_eq!(run.connect(&gone).await.unwrap().state, ApprovalState::Withdrawn);
    assert_eq!(code(owner.approve(run.id, &yes(&left)).await), (409, "approval_over".to_owned()));
    assert_eq!(run.state("e.test:443", "c6").await, (ApprovalState::Pending, false));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_a_lost_lease_end_what_waits_and_what_was_approved() {
    let server = Server::start().await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let run = Running::of(&server, &agent, &asking(), "one").await;
    let pending = run.connect(&to("a.test:443", "c1")).await.unwrap();
    let granted = run.connect(&to("b.test:443", "c2")).await.unwrap();
    owner.approve(run.id, &yes(&granted)).await.unwrap();
    agent.cancel(run.id, &CancelRequest::default()).await.unwrap();
    assert_eq!(code(owner.approve(run.id, &yes(&pending)).await), (409, "approval_over".to_owned()));
    for destination in ["a.test:443", "b.test:443", "c.test:443"] {
        assert_eq!(run.state(destination, "c2").await, (ApprovalState::Pending, false), "{destination}");
    }
    assert!(all(&server).await.iter().all(|one| one.state == ApprovalState::Withdrawn), "nobody is asked");
    // The next claim of a directive that runs again has nothing of the one before.
    let body = CreateDirective { on_lease_loss: Some(OnLeaseLoss::Requeue), ..asking() };
    let run = Running::of(&server, &agent, &body, "two").await;
    let whole = run.connect(&to("a.test:443", "c1")).await.unwrap();
    let scope = Some("directive".to_owned());
    owner.approve(run.id, &ApproveRequest { scope, ..yes(&whole) }).await.unwrap();
    assert_eq!(run.state("a.test:443", "c1").await, (ApprovalState::Granted, true));
    server.advance(72_000).await;
    for _ in 0..100 {
        if owner.directive(run.id).await.unwrap().state == State::Queued {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(seen(&server, &whole).await.state, ApprovalState::Withdrawn);
    let refused = run.connect(&to("a.test:443", "c2")).await;
    assert_eq!(code(refused).0, 409, "the claim is over");
    let Running { daemon, id, .. } = run;
    let again = Running::claimed(daemon, id).await;
    for use_name in ["c1", "c2"] {
        assert_eq!(again.state("a.test:443", use_name).await, (ApprovalState::Pending, false), "{use_name}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_while_a_connection_waits_loses_no_request_and_no_answer() {
    let server = Server::start().await;
    let agent = key(&server, Role::Agent).await;
    let mut run = Running::of(&server, &agent, &asking(), "one").await;
    let territory = run.connect(&to("a.test:443", "c1")).await.unwrap().connection.unwrap().territory_id;
    let server = server.restart().await;
    run.daemon = server.daemon(territory);
    let asked = run.connect(&to("a.test:443", "c1")).await.unwrap();
    assert_eq!((asked.state, all(&server).await.len()), (ApprovalState::Pending, 1));
    server.owner().approve(run.id, &yes(&asked)).await.unwrap();
    let server = server.restart().await;
    run.daemon = server.daemon(territory);
    assert_eq!(run.state("a.test:443", "c1").await, (ApprovalState::Used, true));
    let server = server.restart().await;
    run.daemon = server.daemon(territory);
    assert_eq!(run.state("a.test:443", "c1").await, (ApprovalState::Used, true), "the lost answer is repeated");
    assert_eq!(run.state("a.test:443", "c2").await, (ApprovalState::Pending, false), "the use was one");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_a_destination_in_one_spelling_and_a_directive_asks_a_bounded_number_of_times() {
    let server = Server::start().await;
    let agent = key(&server, Role::Agent).await;
    let run = Running::of(&server, &agent, &asking(), "one").await;
    let hostile = [
        "a.test",
        "A.test:443",
        "a.test:0443",
        "1.2.3.4:443",
        "[::1]:443",
        "a.test:443\n",
        "a.test:443 b.test:443",
        "",
        "*.test:443",
        "a.test.:443",
        "\u{202e}a.test:443",
        "a.test:443@/bin/sh",
        "<b>a</b>.test:443",
        "a.test:80-90",
    ];
    for destination in hostile {
        assert_eq!(code(run.connect(&to(destination, "c")).await).0, 422, "{destination:?}");
    }
    for program in ["curl", "/usr/bin/../curl", "/usr/bin/c\nurl", "/usr/bin/<b>", ""] {
        let request = ConnectionRequest { program: Some(program.to_owned()), ..to("a.test:443", "c") };
        assert_eq!(code(run.connect(&request).await).0, 422, "{program:?}");
    }
    for (use_name, wait_seconds) in [("", 1), ("a b", 1), ("c", 0), ("c", 3601)] {
        let request = ConnectionRequest { wait_seconds, ..to("a.test:443", use_name) };
        assert_eq!(code(run.connect(&request).await).0, 422, "{use_name:?} {wait_seconds}");
    }
    // For one program it is another request than for every one.
    let curl = ConnectionRequest { program: Some("/usr/bin/curl".to_owned()), ..to("a.test:443", "c1") };
    let curl = run.connect(&curl).await.unwrap();
    let any = run.connect(&to("a.test:443", "c2")).await.unwrap();
    assert!(curl.subject != any.subject && curl.approval_id != any.approval_id);
    // Sixteen wait at one time, and a hundred are asked in all.
    let mut asked = 2;
    for number in 0..20 {
        let destination = format!("open{number}.test:443");
        let answer = run.connect(&to(&destination, "o")).await.unwrap();
        asked += usize::from(answer.state == ApprovalState::Pending);
        assert!(answer.approval_id.is_some() || answer.state == ApprovalState::Denied);
    }
    assert_eq!(asked, 16);
    for number in 0..120 {
        let destination = format!("n{number}.test:443");
        let gone = ConnectionRequest { gone: true, ..to(&format!("open{number}.test:443"), "o") };
        run.connect(&gone).await.unwrap();
        run.connect(&to(&destination, "n")).await.unwrap();
        run.connect(&ConnectionRequest { gone: true, ..to(&destination, "n") }).await.unwrap();
    }
    assert_eq!(server.number("SELECT count(*) FROM connection_approval"), 100);
    // A directive that does not ask gets a no, and no user hears of it.
    let silent = Running::of(&server, &agent, &plain("make"), "two").await;
    let answer = silent.connect(&to("a.test:443", "c1")).await.unwrap();
    assert_eq!((answer.state, answer.approval_id, answer.allowed), (ApprovalState::Denied, None, false));
    // One that is created with a time out of its bounds is refused.
    for bad in [serde_json::json!(0), serde_json::json!(3601), serde_json::json!("60")] {
        let mut body = asking();
        body.requested_capabilities.as_mut().unwrap().net.as_mut().unwrap().x_ext = [(ASK.to_owned(), bad)].into();
        let refused = agent.create_directive(server.facility().await, &body, None).await;
        assert_eq!(code(refused), (422, "invalid_field".to_owned()));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_says_how_many_users_approve_a_connection_and_whether_one_is_asked() {
    let server = Server::start_with(asks_two).await;
    let (agent, second) = (key(&server, Role::Agent).await, key(&server, Role::Operator).await);
    let daemon = server.territory("one").await;
    let id = agent.create_directive(server.facility().await, &asking(), None).await.unwrap().directive_id;
    for one in [&server.owner(), &second] {
        one.approve(id, &ApproveRequest::default()).await.unwrap();
    }
    let run = Running::claimed(daemon, id).await;
    let asked = run.connect(&to("a.test:443", "c1")).await.unwrap();
    // The list has the approvals of starts and of connections.
    let kinds: Vec<ApprovalKind> = all(&server).await.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [ApprovalKind::Egress, ApprovalKind::Exec]);
    server.owner().approve(run.id, &yes(&asked)).await.unwrap();
    assert_eq!(code(server.owner().approve(run.id, &yes(&asked)).await), (409, "approved_already".to_owned()));
    assert_eq!(run.state("a.test:443", "c1").await, (ApprovalState::Pending, false), "one alone opens nothing");
    second.approve(run.id, &yes(&asked)).await.unwrap();
    let made = run.connect(&to("a.test:443", "c1")).await.unwrap();
    assert!(made.allowed && made.approved_by.len() == 2, "{made:?}");
    server.stop().await;
    let server = Server::start_with(|config| {
        let text =
            r#"{"policy": "nexus.policy/1", "id": "no", "level": "account", "approval": {"egress": "forbidden"}}"#;
        config.policies = PolicySet::build(vec![LoadedPolicy::read("no.yaml", text).unwrap()]).unwrap();
    })
    .await;
    let refused = server.owner().create_directive(server.facility().await, &asking(), None).await;
    assert_eq!(code(refused), (422, "policy".to_owned()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_held_against_the_policy_of_its_moment() {
    let server = Server::start().await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let run = Running::of(&server, &agent, &asking(), "one").await;
    let asked = run.connect(&to("a.c.test:443", "c1")).await.unwrap();
    owner.approve(run.id, &ApproveRequest { max_uses: Some(5), ..yes(&asked) }).await.unwrap();
    assert_eq!(run.state("a.c.test:443", "c1").await, (ApprovalState::Granted, true));
    // The account closes it: the answer opens nothing, and no user is asked about another closed one.
    put(&owner, &json!({"net": {"allow": ["*.c.test:443"], "deny": ["a.c.test"]}})).await;
    assert_eq!(run.state("a.c.test:443", "c2").await, (ApprovalState::Denied, false));
    assert_eq!(run.state("b.example:443", "c3").await, (ApprovalState::Denied, false));
    assert_eq!(run.state("b.c.test:443", "c4").await, (ApprovalState::Pending, false));
    put(&owner, &json!({"approval": {"egress": "forbidden"}})).await;
    assert_eq!(run.state("d.test:443", "c5").await, (ApprovalState::Denied, false));
    assert_eq!(all(&server).await.len(), 2, "the two that were asked about");
    put(&owner, &json!({"description": "nothing"})).await;
    assert_eq!(run.state("a.c.test:443", "c2").await, (ApprovalState::Granted, true));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_both_kinds_of_approvals_goes_on_page_by_page() {
    let server = Server::start_with(asks).await;
    let (agent, owner) = (key(&server, Role::Agent).await, server.owner());
    let daemon = server.territory("one").await;
    let id = agent.create_directive(server.facility().await, &asking(), None).await.unwrap().directive_id;
    owner.approve(id, &ApproveRequest::default()).await.unwrap();
    let run = Running::claimed(daemon, id).await;
    for number in 0..3 {
        run.connect(&to(&format!("a{number}.test:443"), "c")).await.unwrap();
        agent.create_directive(server.facility().await, &plain("make"), None).await.unwrap();
    }
    for (everything, count) in [(true, 7), (false, 6)] {
        let whole = owner.approvals(everything, &ListQuery::default()).await.unwrap().approvals;
        assert_eq!(whole.len(), count);
        let (mut pages, mut query) = (Vec::new(), ListQuery { cursor: None, limit: Some(2) });
        loop {
            let page = owner.approvals(everything, &query).await.unwrap();
            pages.extend(page.approvals);
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!(pages, whole);
    }
    server.stop().await;
}
