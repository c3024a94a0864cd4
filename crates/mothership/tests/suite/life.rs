//! The life of a directive over HTTP, by the client of `nexus_api`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::{Server, end, plain};
use nexus_api::base64;
use nexus_api::client::{ClientError, ConduitsClient, ListQuery, LogQuery, MothershipClient, TerritoryIdentity};
use nexus_api::conduits::{
    FinishedRequest, HeartbeatRequest, LogChunkRequest, PollRequest, StartedRequest, Stream, TerritoryHeartbeatRequest,
    Verdict,
};
use nexus_api::mothership::{CancelRequest, CreateApiKey, CreateDirective, CreateEnrollmentToken, Role};
use nexus_model::directive::{FinishStatus, State};
use nexus_model::spec::DirectiveLimits;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_directive_runs_from_creation_to_its_end() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    let made = users.create_directive(facility, &plain("echo hi"), None).await.unwrap();
    assert_eq!(made.state, State::Queued);
    let polled = daemon.poll(&PollRequest::default()).await.unwrap();
    let claim = &polled.directives[0];
    assert_eq!((claim.directive_id, claim.spec.command.as_str()), (made.directive_id, "echo hi"));
    assert_eq!(claim.spec.limits, DirectiveLimits::default());
    let (id, token) = (claim.directive_id, claim.directive_token.as_str());
    let early = LogChunkRequest { stream: Stream::Stdout, seq: 0, bytes: base64::encode(b"x"), truncated: false };
    assert_eq!(daemon.log_chunk(id, token, &early).await.unwrap_err().status(), Some(409), "it is not started");
    let started = daemon.started(id, token, &StartedRequest::default()).await.unwrap();
    assert!(!started.duplicate && started.state == State::Running);
    assert!(daemon.started(id, token, &StartedRequest::default()).await.unwrap().duplicate);
    for (seq, text) in [(1, "b"), (0, "a"), (2, "c")] {
        let chunk =
            LogChunkRequest { stream: Stream::Stdout, seq, bytes: base64::encode(text.as_bytes()), truncated: false };
        let stored = daemon.log_chunk(id, token, &chunk).await.unwrap();
        assert!(stored.stored && !stored.duplicate && stored.accepted_bytes == 1);
        assert!(daemon.log_chunk(id, token, &chunk).await.unwrap().duplicate);
    }
    let other = LogChunkRequest { stream: Stream::Stdout, seq: 1, bytes: base64::encode(b"z"), truncated: false };
    assert_eq!(daemon.log_chunk(id, token, &other).await.unwrap_err().status(), Some(409));
    let beat = daemon.heartbeat(id, token, &HeartbeatRequest::default()).await.unwrap();
    assert!(beat.lease_renewed && !beat.cancel_requested);
    let report = FinishedRequest {
        diff_base64: Some(base64::encode(b"+x\n")),
        receipt: Some(serde_json::json!({"r": 1})),
        ..end(FinishStatus::Succeeded)
    };
    let done = daemon.finished(id, &beat.directive_token, &report).await.unwrap();
    assert!(!done.duplicate && done.final_state == State::Succeeded);
    assert!(daemon.finished(id, token, &report).await.unwrap().duplicate);
    let differs = FinishedRequest { exit_code: Some(7), ..report.clone() };
    assert_eq!(daemon.finished(id, token, &differs).await.unwrap_err().status(), Some(409));
    let seen = users.directive(id).await.unwrap();
    assert_eq!((seen.state, seen.exit_code, seen.attempt), (State::Succeeded, Some(0), 1));
    assert!(!seen.stdout_truncated && seen.has_diff && seen.has_receipt);
    let query = LogQuery { stream: Stream::Stdout, after_seq: -1, limit: None, attempt: None };
    let log = users.log_chunks(id, &query).await.unwrap();
    let text: Vec<u8> = log.chunks.iter().flat_map(|chunk| base64::decode(&chunk.bytes_base64).unwrap()).collect();
    assert_eq!((text.as_slice(), log.next_after_seq), (b"abc".as_slice(), 2));
    assert_eq!(users.diff(id).await.unwrap(), b"+x\n");
    assert_eq!(users.receipt(id).await.unwrap(), serde_json::json!({"r": 1}));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_facility_runs_one_directive_at_a_time() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    let first = users.create_directive(facility, &plain("1"), None).await.unwrap();
    let second = users.create_directive(facility, &plain("2"), None).await.unwrap();
    let poll = PollRequest { max_directives_to_claim: 5, ..PollRequest::default() };
    let claims = daemon.poll(&poll).await.unwrap().directives;
    assert_eq!(claims.iter().map(|claim| claim.directive_id).collect::<Vec<_>>(), [first.directive_id]);
    let waits = users.directive(second.directive_id).await.unwrap().queued_because.unwrap();
    assert_eq!(waits, "Another directive uses the facility.");
    daemon.started(first.directive_id, &claims[0].directive_token, &StartedRequest::default()).await.unwrap();
    daemon.finished(first.directive_id, &claims[0].directive_token, &end(FinishStatus::Failed)).await.unwrap();
    // The files lie where the first directive ran.
    let elsewhere = server.territory("two").await;
    assert!(elsewhere.poll(&poll).await.unwrap().directives.is_empty());
    assert_eq!(daemon.poll(&poll).await.unwrap().directives[0].directive_id, second.directive_id);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_poll_is_woken_by_a_new_directive() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let mut waited = Vec::new();
    for _ in 0..3 {
        let facility = server.facility().await;
        let poll = daemon.clone();
        let waiting =
            tokio::spawn(
                async move { poll.poll(&PollRequest { wait_seconds: Some(20), ..PollRequest::default() }).await },
            );
        // The timer of the poll goes off a second after its first look: 700 ms after the creation.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let created = Instant::now();
        users.create_directive(facility, &plain("x"), None).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().directives.len(), 1);
        waited.push(created.elapsed());
    }
    assert!(waited.iter().any(|time| *time < Duration::from_millis(400)), "only timers woke the polls: {waited:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_the_daemon_and_is_stored_as_reported() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    let waits = users.create_directive(facility, &plain("1"), None).await.unwrap().directive_id;
    let ended = users.cancel(waits, &CancelRequest::default()).await.unwrap();
    assert_eq!(ended.state, State::Canceled);
    assert_eq!(users.cancel(waits, &CancelRequest::default()).await.unwrap_err().status(), Some(409));
    users.create_directive(facility, &plain("2"), None).await.unwrap();
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(claim.directive_id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    let asked = users.cancel(claim.directive_id, &CancelRequest::default()).await.unwrap();
    assert!(asked.cancel_requested && asked.state == State::Running);
    let beats = serde_json::json!({"directives": [
        {"directive_id": claim.directive_id, "fence": claim.fence},
        {"directive_id": waits, "fence": 1}
    ]});
    let request: TerritoryHeartbeatRequest = serde_json::from_value(beats).unwrap();
    let verdicts = daemon.territory_heartbeat(&request).await.unwrap().directives.unwrap();
    assert_eq!(verdicts.iter().map(|verdict| verdict.verdict).collect::<Vec<_>>(), [Verdict::Cancel, Verdict::Lost]);
    let done = daemon.finished(claim.directive_id, &claim.directive_token, &end(FinishStatus::Canceled)).await.unwrap();
    assert_eq!(done.final_state, State::Canceled);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_creates_one_directive() {
    let server = Server::start().await;
    let users = server.owner();
    let facility = server.facility().await;
    let mut calls = Vec::new();
    for _ in 0..50 {
        let users = users.clone();
        calls.push(tokio::spawn(async move { users.create_directive(facility, &plain("x"), Some("key")).await }));
    }
    let mut ids = std::collections::BTreeSet::new();
    for call in calls {
        ids.insert(call.await.unwrap().unwrap().directive_id);
    }
    assert_eq!(ids.len(), 1);
    let other = users.create_directive(facility, &plain("y"), Some("key")).await.unwrap_err();
    assert_eq!((other.status(), other.code()), (Some(409), "idempotency_key_reused"));
    assert_eq!(users.directives(None, &ListQuery::default()).await.unwrap().directives.len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_lead_a_reader_to_the_end_and_go_on_after_a_break() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    let id = users.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let mut stream = users.events(id, None).await.unwrap();
    let mut states = vec![state_of(&stream.next().await.unwrap().unwrap())];
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    while states.last() != Some(&State::Running) {
        states.push(state_of(&stream.next().await.unwrap().unwrap()));
    }
    drop(stream);
    daemon.finished(id, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    let mut stream = users.events(id, Some("1-3".parse().unwrap())).await.unwrap();
    let last = stream.next().await.unwrap().unwrap();
    assert_eq!(state_of(&last), State::Succeeded);
    assert_eq!(stream.next().await.unwrap(), None, "the stream ends with the directive");
    let mut ahead = users.events(id, Some("9-9".parse().unwrap())).await.unwrap();
    assert_eq!(ahead.next().await.unwrap().unwrap().event, "reset");
    server.stop().await;
}

fn state_of(event: &nexus_api::client::SseEvent) -> State {
    serde_json::from_str::<nexus_api::mothership::DirectiveEvent>(&event.data).unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_a_poll_is_repeated_by_its_name() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    users.create_directive(facility, &plain("x"), None).await.unwrap();
    let poll = PollRequest { poll_id: Some("p1".to_owned()), ..PollRequest::default() };
    let first = daemon.poll(&poll).await.unwrap().directives;
    let again = daemon.poll(&poll).await.unwrap().directives;
    assert_eq!((first[0].directive_id, first[0].fence), (again[0].directive_id, again[0].fence));
    let other = PollRequest { poll_id: Some("p2".to_owned()), ..PollRequest::default() };
    assert!(daemon.poll(&other).await.unwrap().directives.is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_not_started_is_taken_back() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    users.create_directive(facility, &plain("x"), None).await.unwrap();
    let first = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    server.advance(9_000).await;
    let again = poll_until(&daemon).await;
    assert!(again.fence > first.fence && again.attempt == Some(2));
    let late = daemon.started(first.directive_id, &first.directive_token, &StartedRequest::default()).await;
    assert_eq!(
        (late.as_ref().unwrap_err().status(), late.unwrap_err().code().to_owned()),
        (Some(409), "stale_fence".to_owned())
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_ends_or_repeats_a_directive() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    let again = serde_json::json!({"command": "x", "on_lease_loss": "requeue"});
    let again: CreateDirective = serde_json::from_value(again).unwrap();
    let id = users.create_directive(facility, &again, None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    let chunk = LogChunkRequest { stream: Stream::Stdout, seq: 0, bytes: base64::encode(b"first"), truncated: false };
    daemon.log_chunk(id, &claim.directive_token, &chunk).await.unwrap();
    server.advance(72_000).await;
    let second = poll_until(&daemon).await;
    assert_eq!(second.attempt, Some(2));
    daemon.started(id, &second.directive_token, &StartedRequest::default()).await.unwrap();
    let chunk = LogChunkRequest { bytes: base64::encode(b"second"), ..chunk };
    assert!(
        !daemon.log_chunk(id, &second.directive_token, &chunk).await.unwrap().duplicate,
        "each attempt has its own log"
    );
    let stale = daemon.finished(id, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap_err();
    assert_eq!((stale.status(), stale.code()), (Some(409), "stale_fence"));
    let stale = daemon.heartbeat(id, &claim.directive_token, &HeartbeatRequest::default()).await.unwrap_err();
    assert_eq!((stale.status(), stale.code()), (Some(409), "stale_fence"), "it renews no lease of a later claim");
    let mut request = plain("y");
    request.on_lease_loss = None;
    let other = server.facility().await;
    let lost = users.create_directive(other, &request, None).await.unwrap().directive_id;
    let poll = PollRequest { max_directives_to_claim: 5, ..PollRequest::default() };
    let claim = daemon.poll(&poll).await.unwrap().directives.remove(0);
    daemon.started(lost, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    server.advance(72_000).await;
    let seen = server.until_over(lost).await;
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Failed, Some("commit_unknown")), "it may be committed");
    // Its holder was away, and tells now what became of it.
    assert!(!daemon.finished(lost, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap().duplicate);
    let seen = users.directive(lost).await.unwrap();
    assert_eq!((seen.state, seen.reason, seen.exit_code), (State::Succeeded, None, Some(0)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_claim_that_was_taken_back_during_its_commit_is_what_its_holder_reports() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let id = users.create_directive(server.facility().await, &plain("x"), None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    let token = &claim.directive_token;
    daemon.started(id, token, &StartedRequest::default()).await.unwrap();
    let settling = serde_json::json!({"progress": {"phase": "settling"}});
    daemon.heartbeat(id, token, &serde_json::from_value(settling).unwrap()).await.unwrap();
    server.advance(72_000).await;
    let seen = server.until_over(id).await;
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Failed, Some("commit_unknown")), "it may be committed");
    let other = server.territory("two").await;
    assert_eq!(other.finished(id, token, &end(FinishStatus::Succeeded)).await.unwrap_err().status(), Some(403));
    let report = end(FinishStatus::Succeeded);
    assert!(!daemon.finished(id, token, &report).await.unwrap().duplicate);
    let seen = users.directive(id).await.unwrap();
    assert_eq!((seen.state, seen.exit_code), (State::Succeeded, Some(0)));
    // From here on it is an end like any other.
    assert!(daemon.finished(id, token, &report).await.unwrap().duplicate);
    let differs = daemon.finished(id, token, &end(FinishStatus::Failed)).await.unwrap_err();
    assert_eq!((differs.status(), differs.code()), (Some(409), "report_differs"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_end_is_taken_for_a_day_and_not_of_a_claim_that_asks_for_its_commit() {
    let server = Server::start_with(|config| config.token_ms = 10 * 24 * 3_600_000).await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let started = async || {
        let id = users.create_directive(server.facility().await, &plain("x"), None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        (id, claim.directive_token)
    };
    let (old, young, asks) = (started().await, started().await, started().await);
    server.advance(72_000).await;
    for (id, _) in [&old, &young, &asks] {
        assert_eq!(server.until_over(*id).await.reason.as_deref(), Some("commit_unknown"));
    }
    // What an earlier version of the server wrote.
    server.change("UPDATE directive SET reason = 'lease_lost' WHERE reason = 'commit_unknown'");
    let specs = "UPDATE directive SET spec = replace(spec, '\"command\":\"x\"', '\"command\":\"x\",\"on_lease_loss\":\"requeue\"')";
    server.change(&format!("{specs} WHERE id = {{{}}}", asks.0.to_string().replace('-', "")));
    let report = end(FinishStatus::Succeeded);
    assert!(!daemon.finished(young.0, &young.1, &report).await.unwrap().duplicate);
    assert_eq!(users.directive(young.0).await.unwrap().state, State::Succeeded);
    let refused = daemon.finished(asks.0, &asks.1, &report).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(409), "directive_over"), "nothing of it was committed");
    server.jump(24 * 3_600_000).await;
    let refused = daemon.finished(old.0, &old.1, &report).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(409), "directive_over"), "a day has passed");
    server.stop().await;
}

/// Output, events and files of a claim whose territory was away for longer than its lease.
#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_territory_has_to_tell_is_taken_when_it_comes_back_within_a_day() {
    // The token of a claim ends long before the day.
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let mut claims = Vec::new();
    for _ in 0..3 {
        let id = users.create_directive(server.facility().await, &plain("x"), None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        claims.push((id, claim.directive_token));
    }
    let chunk = |seq, text: &str| LogChunkRequest {
        stream: Stream::Stdout,
        seq,
        bytes: base64::encode(text.as_bytes()),
        truncated: false,
    };
    daemon.log_chunk(claims[0].0, &claims[0].1, &chunk(0, "before ")).await.unwrap();
    // The user asks for the end of the last one, which no daemon confirms.
    users.cancel(claims[2].0, &CancelRequest::default()).await.unwrap();
    server.advance(72_000).await;
    for ((id, _), (state, reason)) in claims.iter().zip([
        (State::Failed, "commit_unknown"),
        (State::Failed, "commit_unknown"),
        (State::Canceled, "unconfirmed"),
    ]) {
        let seen = server.until_over(*id).await;
        assert_eq!((seen.state, seen.reason.as_deref()), (state, Some(reason)));
    }
    server.jump(23 * 3_600_000).await;
    let (id, token) = &claims[0];
    let other = server.territory("two").await;
    assert_eq!(other.log_chunk(*id, token, &chunk(1, "x")).await.unwrap_err().status(), Some(403));
    // The piece that is behind the report is named by it.
    daemon.log_chunk(*id, token, &chunk(1, "during ")).await.unwrap();
    let report = FinishedRequest {
        stdout_truncated: true,
        stdout_chunks: Some(3),
        diff_base64: Some(base64::encode(b"+x\n")),
        receipt: Some(serde_json::json!({"r": 1})),
        exit_code: Some(3),
        reason: Some("exit".to_owned()),
        ..end(FinishStatus::Failed)
    };
    assert!(!daemon.finished(*id, token, &report).await.unwrap().duplicate);
    assert!(users.directive(*id).await.unwrap().stdout_truncated, "one chunk is on its way");
    // The day of output and files begins with the report.
    server.jump(2 * 3_600_000).await;
    assert!(!daemon.log_chunk(*id, token, &chunk(2, "after")).await.unwrap().duplicate);
    let events = serde_json::json!({"seq": 0, "events": [{"type": "x"}]});
    daemon.events(*id, token, &serde_json::from_value(events).unwrap()).await.unwrap();
    let bytes = b"kept";
    let kept =
        serde_json::json!({"name": "out", "size": bytes.len(), "blake3": blake3::hash(bytes).to_hex().to_string()});
    let announced = daemon.artifact(*id, token, &serde_json::from_value(kept).unwrap()).await.unwrap();
    let piece = serde_json::json!({"offset": 0, "bytes": base64::encode(bytes)});
    let piece = serde_json::from_value(piece).unwrap();
    assert!(daemon.artifact_chunk(*id, token, &announced.artifact_id, &piece).await.unwrap().complete);
    let seen = users.directive(*id).await.unwrap();
    assert_eq!((seen.state, seen.exit_code, seen.reason.as_deref()), (State::Failed, Some(3), Some("exit")));
    assert!(!seen.stdout_truncated && seen.has_diff && seen.has_receipt, "{seen:?}");
    let query = LogQuery { stream: Stream::Stdout, after_seq: -1, limit: None, attempt: None };
    let log = users.log_chunks(*id, &query).await.unwrap();
    let text: Vec<u8> = log.chunks.iter().flat_map(|chunk| base64::decode(&chunk.bytes_base64).unwrap()).collect();
    assert_eq!((text.as_slice(), log.stdout_truncated), (&b"before during after"[..], false));
    // It is too late for the second one.
    let (late, token) = &claims[1];
    let refused = daemon.log_chunk(*late, token, &chunk(0, "x")).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(409), "directive_over"));
    server.stop().await;
}

/// A user asks for the end while the territory is away: what it has committed meanwhile is said.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_directive_that_was_canceled_while_its_territory_was_away_is_what_that_reports() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let id = users.create_directive(server.facility().await, &plain("x"), None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    let token = &claim.directive_token;
    daemon.started(id, token, &StartedRequest::default()).await.unwrap();
    users.cancel(id, &CancelRequest::default()).await.unwrap();
    server.advance(72_000).await;
    let seen = server.until_over(id).await;
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Canceled, Some("unconfirmed")));
    let mut stream = users.events(id, None).await.unwrap();
    assert!(stream.next().await.unwrap().unwrap().data.contains("unconfirmed"));
    assert!(!daemon.finished(id, token, &end(FinishStatus::Succeeded)).await.unwrap().duplicate);
    assert!(stream.next().await.unwrap().unwrap().data.contains("succeeded"), "who listens hears of it");
    assert!(stream.next().await.unwrap().is_none());
    assert_eq!(users.directive(id).await.unwrap().state, State::Succeeded);
    assert!(daemon.finished(id, token, &end(FinishStatus::Succeeded)).await.unwrap().duplicate);
    let differs = daemon.finished(id, token, &end(FinishStatus::Canceled)).await.unwrap_err();
    assert_eq!((differs.status(), differs.code()), (Some(409), "report_differs"));
    server.stop().await;
}

/// Chunks that arrive at one time after the end are all counted.
#[tokio::test(flavor = "multi_thread")]
async fn late_chunks_that_arrive_at_one_time_are_all_counted() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let small = serde_json::json!({"command": "x", "limits": {"max_output_bytes": 100}});
    let small: CreateDirective = serde_json::from_value(small).unwrap();
    let id = users.create_directive(server.facility().await, &small, None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    let token = claim.directive_token;
    daemon.started(id, &token, &StartedRequest::default()).await.unwrap();
    let report = FinishedRequest { stdout_truncated: true, stdout_chunks: Some(40), ..end(FinishStatus::Succeeded) };
    daemon.finished(id, &token, &report).await.unwrap();
    let mut sent = Vec::new();
    for seq in 0..40 {
        let (daemon, token) = (daemon.clone(), token.clone());
        sent.push(tokio::spawn(async move {
            let chunk = LogChunkRequest { stream: Stream::Stdout, seq, bytes: base64::encode(b"x"), truncated: false };
            daemon.log_chunk(id, &token, &chunk).await.unwrap()
        }));
    }
    for one in sent {
        assert!(one.await.unwrap().stored);
    }
    assert!(!users.directive(id).await.unwrap().stdout_truncated, "all of them are there");
    // The bound of output holds after the end, too.
    let mut stored = Vec::new();
    for (seq, count) in [(0, 50), (1, 11), (2, 10)] {
        let bytes = base64::encode(&vec![b'x'; count]);
        let chunk = LogChunkRequest { stream: Stream::Stderr, seq, bytes, truncated: false };
        stored.push(daemon.log_chunk(id, &token, &chunk).await.unwrap().stored);
    }
    assert_eq!(stored, [true, false, true], "of 100 bytes");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_hears_of_the_end_that_comes_late() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let started = async || {
        let id = users.create_directive(server.facility().await, &plain("x"), None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        (id, claim.directive_token)
    };
    let ((id, token), (silent, _)) = (started().await, started().await);
    server.advance(72_000).await;
    let mut streams = Vec::new();
    for id in [id, silent] {
        assert_eq!(server.until_over(id).await.reason.as_deref(), Some("commit_unknown"));
        let mut stream = users.events(id, None).await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().data.contains("commit_unknown"));
        streams.push(stream);
    }
    let early = tokio::time::timeout(Duration::from_millis(1_500), streams[0].next()).await;
    assert!(early.is_err(), "the stream goes on: {early:?}");
    daemon.finished(id, &token, &end(FinishStatus::Failed)).await.unwrap();
    let event = streams[0].next().await.unwrap().unwrap();
    assert_eq!(event.event, "state");
    assert!(!event.data.contains("commit_unknown"), "{}", event.data);
    assert!(streams[0].next().await.unwrap().is_none(), "now it is over");
    // No report came for a day.
    server.jump(24 * 3_600_000).await;
    let over = tokio::time::timeout(Duration::from_secs(5), streams[1].next()).await.unwrap().unwrap();
    assert_eq!(over, None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discarded_end_is_not_unknown_and_no_stream_waits_for_a_revoked_holder() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let territory = users.territories().await.unwrap().territories[0].territory_id;
    let started = async |changes: &str| {
        let request = serde_json::json!({"command": "x", "changes": changes});
        let request: CreateDirective = serde_json::from_value(request).unwrap();
        let id = users.create_directive(server.facility().await, &request, None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        (id, claim.directive_token)
    };
    let ((discards, token), (commits, _)) = (started("discard").await, started("commit").await);
    server.advance(72_000).await;
    assert_eq!(server.until_over(discards).await.reason.as_deref(), Some("lease_lost"), "nothing of it is committed");
    assert_eq!(server.until_over(commits).await.reason.as_deref(), Some("commit_unknown"));
    let (mut known, mut unknown) =
        (users.events(discards, None).await.unwrap(), users.events(commits, None).await.unwrap());
    assert!(known.next().await.unwrap().is_some() && unknown.next().await.unwrap().is_some());
    let soon = Duration::from_secs(5);
    assert_eq!(tokio::time::timeout(soon, known.next()).await.unwrap().unwrap(), None, "its end is known");
    // Its holder may say how the command ended all the same.
    daemon.finished(discards, &token, &end(FinishStatus::Succeeded)).await.unwrap();
    assert_eq!(users.directive(discards).await.unwrap().state, State::Succeeded);
    let early = tokio::time::timeout(Duration::from_millis(1_500), unknown.next()).await;
    assert!(early.is_err(), "its holder may come back: {early:?}");
    users.revoke(territory).await.unwrap();
    assert_eq!(tokio::time::timeout(soon, unknown.next()).await.unwrap().unwrap(), None, "nobody can report any more");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_is_longer_than_a_directive_may_take_is_no_overrun() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let territory = users.territories().await.unwrap().territories[0].territory_id;
    let mut claims = Vec::new();
    for on_loss in ["requeue", "fail"] {
        let request = serde_json::json!({"command": "x", "timeout_seconds": 60, "on_lease_loss": on_loss});
        let request: CreateDirective = serde_json::from_value(request).unwrap();
        let id = users.create_directive(server.facility().await, &request, None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        claims.push((id, claim.directive_token));
    }
    let server = server.restart_after_an_outage(3_600_000).await;
    server.advance(72_000).await;
    let (users, daemon) = (server.owner(), server.daemon(territory));
    let (once, token) = &claims[1];
    assert_eq!(server.until_over(*once).await.reason.as_deref(), Some("commit_unknown"));
    assert_eq!(users.directive(claims[0].0).await.unwrap().state, State::Queued, "it runs again");
    daemon.finished(*once, token, &end(FinishStatus::Succeeded)).await.unwrap();
    assert_eq!(users.directive(*once).await.unwrap().state, State::Succeeded);
    server.stop().await;
}

/// A heartbeat that names this phase.
fn in_phase(phase: &str) -> HeartbeatRequest {
    serde_json::from_value(serde_json::json!({"progress": {"phase": phase}})).unwrap()
}

fn not_committed() -> FinishedRequest {
    FinishedRequest { reason: Some("not_committed".to_owned()), exit_code: None, ..end(FinishStatus::Failed) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_announced_and_did_not_happen_is_reported_and_the_directive_runs_again() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let announced = async || {
        let request = serde_json::json!({"command": "x", "on_lease_loss": "requeue"});
        let request: CreateDirective = serde_json::from_value(request).unwrap();
        let id = users.create_directive(server.facility().await, &request, None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        daemon.heartbeat(id, &claim.directive_token, &in_phase("settling")).await.unwrap();
        (id, claim.directive_token)
    };
    // The holder is back before a user could read an end.
    let (id, token) = announced().await;
    let told = daemon.finished(id, &token, &not_committed()).await.unwrap();
    assert_eq!((told.final_state, told.duplicate), (State::Queued, false));
    let again = daemon.finished(id, &token, &not_committed()).await.unwrap_err();
    assert_eq!((again.status(), again.code()), (Some(409), "wrong_state"), "a lost answer changes nothing");
    let second = poll_until(&daemon).await;
    assert_eq!((second.directive_id, second.attempt), (id, Some(2)));
    let stale = daemon.finished(id, &token, &not_committed()).await.unwrap_err();
    assert_eq!((stale.status(), stale.code()), (Some(409), "stale_fence"));
    daemon.started(id, &second.directive_token, &StartedRequest::default()).await.unwrap();
    daemon.finished(id, &second.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    assert_eq!(users.directive(id).await.unwrap().state, State::Succeeded);
    // A user who read this end may have run the work again.
    let (id, token) = announced().await;
    server.advance(72_000).await;
    assert_eq!(server.until_over(id).await.reason.as_deref(), Some("commit_unknown"));
    let told = daemon.finished(id, &token, &not_committed()).await.unwrap();
    assert_eq!((told.final_state, told.duplicate), (State::Failed, false));
    let seen = users.directive(id).await.unwrap();
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Failed, Some("lease_lost")));
    assert!(daemon.finished(id, &token, &not_committed()).await.unwrap().duplicate);
    let differs = daemon.finished(id, &token, &end(FinishStatus::Succeeded)).await.unwrap_err();
    assert_eq!((differs.status(), differs.code()), (Some(409), "report_differs"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_end_is_being_reported_is_not_timed_out() {
    let server = Server::start_with(|config| config.token_ms = 10 * 24 * 3_600_000).await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let territory = users.territories().await.unwrap().territories[0].territory_id;
    let mut claims = Vec::new();
    for phase in ["reporting", "settling", "running"] {
        let request = serde_json::json!({"command": "x", "timeout_seconds": 60});
        let request: CreateDirective = serde_json::from_value(request).unwrap();
        let id = users.create_directive(server.facility().await, &request, None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        claims.push((id, claim.directive_token, phase));
    }
    // No report could arrive until all limits were over. The first ones after that get no answer either.
    let server = server.restart_after_an_outage(3_600_000).await;
    let daemon = server.daemon(territory);
    for _ in 0..4 {
        for (id, token, phase) in &claims {
            let beat = daemon.heartbeat(*id, token, &in_phase(phase)).await;
            assert!(beat.is_ok() || *phase == "running", "{phase}: {beat:?}");
        }
        server.advance(40_000).await;
    }
    assert_eq!(server.until_over(claims[2].0).await.state, State::TimedOut, "its command may still run");
    for (id, token, phase) in &claims[..2] {
        let told = daemon.finished(*id, token, &end(FinishStatus::Succeeded)).await;
        assert_eq!(told.unwrap().final_state, State::Succeeded, "{phase}");
    }
    server.stop().await;
}

async fn poll_until(daemon: &ConduitsClient) -> nexus_api::conduits::ClaimedDirective {
    for _ in 0..100 {
        let mut claims = daemon.poll(&PollRequest::default()).await.unwrap().directives;
        if !claims.is_empty() {
            return claims.remove(0);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no directive became ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_output_is_shown_after_the_end() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    let id = users.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    let chunk = |seq| LogChunkRequest { stream: Stream::Stderr, seq, bytes: base64::encode(b"x"), truncated: false };
    daemon.log_chunk(id, &claim.directive_token, &chunk(1)).await.unwrap();
    daemon.finished(id, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    let seen = users.directive(id).await.unwrap();
    assert!(seen.stderr_truncated && !seen.stdout_truncated);
    daemon.log_chunk(id, &claim.directive_token, &chunk(0)).await.unwrap();
    assert!(!users.directive(id).await.unwrap().stderr_truncated, "a late chunk fills the gap");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_knows_everything_and_its_keys() {
    let server = Server::start().await;
    let facility = server.facility().await;
    let daemon_id = server.enroll("one").await;
    let id = server.owner().create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let daemon = server.daemon(daemon_id);
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    let server = server.restart().await;
    let daemon = server.daemon(daemon_id);
    daemon.finished(id, &claim.directive_token, &end(FinishStatus::Succeeded)).await.unwrap();
    assert_eq!(server.owner().directive(id).await.unwrap().state, State::Succeeded);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_territory_is_refused_on_an_open_connection() {
    let server = Server::start().await;
    let id = server.enroll("one").await;
    let daemon = server.daemon(id);
    daemon.territory_heartbeat(&TerritoryHeartbeatRequest::default()).await.unwrap();
    server.owner().revoke(id).await.unwrap();
    let refused = daemon.territory_heartbeat(&TerritoryHeartbeatRequest::default()).await.unwrap_err();
    assert_eq!(refused.status(), Some(401));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_facility_on_a_revoked_territory_takes_no_directives() {
    let server = Server::start().await;
    let (users, id) = (server.owner(), server.enroll("one").await);
    let (daemon, facility) = (server.daemon(id), server.facility().await);
    let key = Some("first");
    let first = users.create_directive(facility, &plain("x"), key).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(first, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    users.drain(id).await.unwrap();
    let waits = users.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    users.revoke(id).await.unwrap();
    let refused = users.create_directive(facility, &plain("x"), Some("second")).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(409), "territory_gone"));
    // The refused call has taken no key, and a repeated one has its answer.
    let again = users.create_directive(facility, &plain("x"), Some("second")).await.unwrap_err();
    assert_eq!(again.code(), "territory_gone");
    assert_eq!(users.create_directive(facility, &plain("x"), key).await.unwrap().directive_id, first);
    // What waits already says why, and can be canceled.
    users.cancel(waits, &CancelRequest::default()).await.unwrap();
    assert_eq!(users.directive(waits).await.unwrap().state, State::Canceled);
    let elsewhere = server.facility().await;
    assert_eq!(users.create_directive(elsewhere, &plain("x"), None).await.unwrap().state, State::Queued);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_page_by_cursors_that_only_their_account_can_use() {
    let server = Server::start().await;
    let users = server.owner();
    let facility = server.facility().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, users.create_directive(facility, &plain("x"), None).await.unwrap().directive_id);
    }
    let (mut seen, mut page) = (Vec::new(), ListQuery { cursor: None, limit: Some(2) });
    loop {
        let found = users.directives(Some(facility), &page).await.unwrap();
        seen.extend(found.directives.iter().map(|directive| directive.directive_id));
        match found.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    let cursor = users
        .directives(Some(facility), &ListQuery { cursor: None, limit: Some(2) })
        .await
        .unwrap()
        .next_cursor
        .unwrap();
    let wrong = ListQuery { cursor: Some(cursor.clone()), limit: None };
    assert_eq!(users.directives(None, &wrong).await.unwrap_err().status(), Some(400), "a cursor of another list");
    let changed =
        ListQuery { cursor: Some(cursor.replace(|letter: char| letter.is_ascii_lowercase(), "A")), limit: None };
    assert_eq!(users.directives(Some(facility), &changed).await.unwrap_err().status(), Some(400));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_key_creates_directives_and_nothing_else() {
    let server = Server::start().await;
    let facility = server.facility().await;
    let key = server.owner().create_api_key(&CreateApiKey { role: Role::Agent, name: None }).await.unwrap();
    let agent = MothershipClient::new(&server.http(), &key.api_key).unwrap();
    agent.create_directive(facility, &plain("x"), None).await.unwrap();
    let refused = |result: Result<(), ClientError>| assert_eq!(result.unwrap_err().status(), Some(403));
    refused(agent.territories().await.map(drop));
    refused(agent.api_keys().await.map(drop));
    refused(agent.create_enrollment_token(&CreateEnrollmentToken::default()).await.map(drop));
    server.owner().delete_api_key(&key.api_key_id).await.unwrap();
    assert_eq!(agent.directives(None, &ListQuery::default()).await.unwrap_err().status(), Some(401));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_territory_without_an_identity_is_refused() {
    let server = Server::start().await;
    let stranger = ConduitsClient::new(&server.http(), &TerritoryIdentity::Certificate).unwrap();
    assert_eq!(stranger.poll(&PollRequest::default()).await.unwrap_err().status(), Some(401));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_takes_the_ends_that_daemons_kept() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let (first, second) = (server.facility().await, server.facility().await);
    let mut claims = Vec::new();
    for facility in [first, second] {
        let id = users.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        claims.push((id, claim.directive_token));
    }
    // Longer than a lease: no daemon could renew one.
    let server = server.restart_after_an_outage(300_000).await;
    let territory = server.owner().territories().await.unwrap().territories[0].territory_id;
    let (users, daemon) = (server.owner(), server.daemon(territory));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (id, token) = &claims[0];
    assert_eq!(users.directive(*id).await.unwrap().state, State::Running, "no lease ended while no server ran");
    daemon.finished(*id, token, &end(FinishStatus::Succeeded)).await.unwrap();
    assert_eq!(users.directive(*id).await.unwrap().state, State::Succeeded);
    // A daemon that does not come back loses what it had.
    let (id, _) = &claims[1];
    server.advance(72_000).await;
    let lost = server.until_over(*id).await;
    assert_eq!((lost.state, lost.reason.as_deref()), (State::Failed, Some("commit_unknown")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_of_the_wall_clock_ends_no_lease_and_keeps_none() {
    let server = Server::start().await;
    let (users, daemon) = (server.owner(), server.territory("one").await);
    let facility = server.facility().await;
    let id = users.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
    let mut token = claim.directive_token;
    for jump in [3_600_000, -7_200_000, 7_200_000, -3_600_000, 300_000, -300_000] {
        server.move_wall_clock(jump).await;
        assert_eq!(users.directive(id).await.unwrap().state, State::Running, "after a jump of {jump} ms");
        let beat = daemon.heartbeat(id, &token, &serde_json::from_str("{}").unwrap()).await.unwrap();
        assert!(beat.lease_renewed, "after a jump of {jump} ms");
        token = beat.directive_token;
    }
    // The lease still ends when its time has passed by the clock that no person sets, also when the wall clock was set back.
    server.move_wall_clock(-3_600_000).await;
    server.advance(72_000).await;
    let lost = server.until_over(id).await;
    assert_eq!((lost.state, lost.reason.as_deref()), (State::Failed, Some("commit_unknown")));
    server.stop().await;
}
