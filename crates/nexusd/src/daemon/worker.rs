//! The life of one claim, on a thread of its own.

use super::context::Shared;
use super::ends::of_not_committed;
use super::upload::{self, Uploaded};
use crate::claims::{Note, Runs};
use crate::decide::admit::admit;
use crate::decide::allowed::is_allowed;
use crate::decide::outcome::{End, verdict};
use crate::lease;
use crate::live::{ActiveClaim, REPORTING};
use crate::report::{GivenUp, now, repeated, send_output};
use crate::run::attendant::{SIGKILL, SIGTERM};
use crate::run::control::Wanted;
use crate::run::engine::{Done, Job, explain};
use crate::run::output::{Output, Rest};
use crate::source::SourceError;
use crate::tape::Tape;
use data_encoding::BASE64;
use nexus_api::conduits::{ClaimedDirective, EventsRequest, FinishedRequest, LogChunkRequest, StartedRequest, Stream};
use nexus_api::events::EventBody;
use nexus_facility::Head;
use nexus_model::ExitReason;
use nexus_model::digest::Digest;
use nexus_model::directive::{Fence, OnLeaseLoss};
use nexus_policy::document::lower_limits;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Time that the output and the report of a directive have at a shutdown.
pub const REPORT_WITHIN: Duration = Duration::from_secs(5);
/// Longest time that the last output has before the end is reported, however much of it arrives.
const MAX_OUTPUT_WAIT: Duration = Duration::from_secs(120);
/// Time in which output that waits still is sent after the report of the end.
const LATE_OUTPUT_WITHIN: Duration = Duration::from_secs(300);

/// Number of a chunk of a daemon that does not know how many an earlier one has sent.
const AFTER_ALL: i64 = 1 << 40;
/// Time in which the events of a directive are sent again where no answer came.
const EVENTS_WITHIN: Duration = Duration::from_secs(60);

/// Starts the work on a claim. A claim that cannot be started becomes visible again at the control plane.
pub fn spawn(shared: &Arc<Shared>, claimed: ClaimedDirective, sent: Duration, ttl: u32) {
    let fence = claimed.fence.unwrap_or(Fence(0));
    let id = claimed.directive_id;
    let live = ActiveClaim::new(id, fence, claimed.directive_token.clone(), ttl, lease::end(sent, ttl)).map(Arc::new);
    let live = match live {
        Ok(live) => live,
        Err(error) => return shared.tell(&format!("directive {id}: it cannot be started: {error}")),
    };
    if !shared.table.insert(&live) {
        // An earlier claim of it is ending here. This one is not started, and comes back.
        return;
    }
    let (ours, theirs) = (Arc::clone(shared), Arc::clone(&live));
    let thread = std::thread::Builder::new().name("nexusd-work".to_owned()).spawn(move || {
        work(&ours, &theirs, &claimed);
        ours.table.remove(theirs.directive);
    });
    match thread {
        Ok(thread) => {
            let mut workers = shared.workers.lock().unwrap_or_else(PoisonError::into_inner);
            workers.retain(|one| !one.is_finished());
            workers.push(thread);
        }
        Err(error) => {
            shared.table.remove(id);
            shared.tell(&format!("directive {id}: no thread for it: {error}"));
        }
    }
}

fn work(shared: &Shared, live: &Arc<ActiveClaim>, claimed: &ClaimedDirective) {
    let clock = Instant::now();
    let runs = Runs::choose(claimed.spec.facility.repo_url.is_some());
    let requeues = claimed.spec.on_lease_loss == Some(OnLeaseLoss::Requeue);
    if !requeues {
        live.mark_last();
    }
    let mut note = Note { requeues, ..Note::new(live.directive, live.fence, &live.token(), runs) };
    // Before the control plane hears of a start: a daemon that dies now finds the note and reports the loss.
    if let Err(error) = shared.engine.claims.write(&note) {
        return shared.tell(&format!("directive {}: it cannot be noted: {error}", live.directive));
    }
    // A launcher that has died takes no directive with it that has not started: this claim comes back if there is none.
    if !has_launcher(shared) || !started(shared, live, claimed) {
        return forget(shared, &note);
    }
    let output = Output::default();
    std::thread::scope(|scope| {
        scope.spawn(|| send_output(&*shared.source, live, &output, &shared.stop));
        let mut done = done(shared, live, claimed, &output, runs, clock);
        output.close();
        let has_lapsed = live.check_lapse();
        if requeues && (live.was_unanswered() || (has_lapsed && is_cut_off(&done.end))) {
            // The launcher killed the sandbox: this is not an end of the directive, about which the control plane decides. A command that
            // had ended on its own before is reported, and the control plane takes the report or refuses it. Without an answer nothing was
            // committed, as if the lease had been lost before that end.
            live.lose();
        } else if has_lapsed && !requeues && !live.commits_changes() {
            // No other process can report that nothing of it is committed.
            done.end = lapsed(done.end);
        }
        live.enter(REPORTING);
        if matches!(done.end, End::Ran { .. }) {
            shared.health.proved();
        }
        // What the lease allowed to be committed is committed: the control plane takes the true end, or refuses it.
        if live.is_lost() && !live.commits_changes() && (requeues || !has_lapsed) {
            output.discard();
            return give_up(shared, live, note, "its claim is over, and nothing is reported");
        }
        output.settle(shared.settings().output_within, MAX_OUTPUT_WAIT);
        // The rest is sent behind the report, which names its length: the end of a directive waits for no output.
        let result = finished(live, &done, output.rest());
        if requeues && is_loss(&result) && !live.commits_changes() {
            output.discard();
            return give_up(shared, live, note, "it may run again when its lease is over");
        }
        note.token = live.token();
        note.result = Some(result);
        if let Err(error) = shared.engine.claims.write(&note) {
            shared.tell(&format!("directive {}: its end cannot be noted, and is only sent: {error}", live.directive));
        }
        let tape = finish_tape(live, done.tape, note.result.as_ref(), clock);
        deliver(shared, &note, Some(&tape));
        output.send_until(Instant::now() + LATE_OUTPUT_WITHIN);
    });
}

/// Leaves a claim that has no end of its own to the control plane. Where that may have heard of a commit it would wait for the end of that.
fn give_up(shared: &Shared, live: &ActiveClaim, mut note: Note, words: &str) {
    if !live.announced_in_vain() {
        shared.tell(&format!("directive {}: {words}", live.directive));
        return forget(shared, &note);
    }
    shared.tell(&format!("directive {}: nothing of it is committed, which is reported", live.directive));
    note.token = live.token();
    note.result = Some(of_not_committed());
    if let Err(error) = shared.engine.claims.write(&note) {
        shared.tell(&format!("directive {}: its end cannot be noted, and is only sent: {error}", live.directive));
    }
    deliver(shared, &note, None);
}

/// Reports whether the command did not come to an end of its own.
fn is_cut_off(end: &End) -> bool {
    matches!(end, End::Broke | End::PrepareFailed | End::Ran { reason: ExitReason::GuestLost, .. })
}

/// Returns the end of a directive that never runs again and whose lease ended before its changes were committed.
fn lapsed(end: End) -> End {
    match end {
        end if is_cut_off(&end) => End::LeaseLost,
        End::Ran { exit, reason: ExitReason::Exit, unsettled: true } => {
            End::Ran { exit, reason: ExitReason::LeaseLost, unsettled: true }
        }
        end => end,
    }
}

/// Reports whether there is a launcher process, after one that has died was replaced.
fn has_launcher(shared: &Shared) -> bool {
    match shared.engine.driver.revive() {
        Ok(was_started) => {
            if was_started {
                shared.tell("the launcher process had died and was started again");
            }
            true
        }
        Err(why) => {
            shared.tell(&format!("a claim goes back to the control plane: {why}"));
            false
        }
    }
}

/// Reports whether a result says that this territory lost the directive. A report would end one that its user wants to run again.
fn is_loss(result: &FinishedRequest) -> bool {
    result.reason.as_deref() == Some("lease_lost")
}

/// Adds the signal that was sent and the end.
fn finish_tape(live: &ActiveClaim, mut tape: Tape, result: Option<&FinishedRequest>, clock: Instant) -> Tape {
    let signal = |number, cause: &str| EventBody::Signal { number, cause: cause.to_owned() };
    match live.control.wanted() {
        Wanted::Nothing => {}
        Wanted::Cancel => tape.add(signal(SIGTERM, "canceled")),
        Wanted::ShutDown => tape.add(signal(SIGTERM, "shutdown")),
        Wanted::Kill => tape.add(signal(SIGKILL, "killed")),
    }
    if let Some(result) = result {
        tape.add(EventBody::Finished {
            status: result.status.state().name().to_owned(),
            exit_code: result.exit_code,
            reason: result.reason.clone(),
            ms: u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
    tape
}

/// Reports the start. `false` when the claim is over.
fn started(shared: &Shared, live: &ActiveClaim, claimed: &ClaimedDirective) -> bool {
    let request = StartedRequest {
        effective_capabilities_summary: serde_json::to_value(&claimed.spec.capabilities).ok(),
        sandbox_version: Some(format!("{}/{}", shared.engine.driver.name(), shared.settings().version)),
        nexus_version: Some(shared.settings().version.clone()),
        runtime_ref: Some(json!({ "type": shared.engine.driver.name() })),
        started_at: Some(now()),
    };
    let is_over = || live.left().is_zero() || live.control.wanted() != Wanted::Nothing;
    if is_over() {
        // The machine slept, or the poll waited for too long. The claim comes back sooner than one that was started.
        shared.tell(&format!("directive {}: its lease was over before it was started", live.directive));
        return false;
    }
    match repeated(&shared.stop, is_over, || shared.source.started(live.directive, &live.token(), &request)) {
        Ok(_) => {
            live.note_started();
            true
        }
        Err(GivenUp::Stopped) => false,
        Err(GivenUp::Refused { error, .. }) => {
            shared.tell(&format!("directive {}: its start was refused: {error}", live.directive));
            false
        }
    }
}

/// Runs the directive, or says why this territory does not.
fn done(
    shared: &Shared,
    live: &Arc<ActiveClaim>,
    claimed: &ClaimedDirective,
    output: &Output,
    runs: Runs,
    clock: Instant,
) -> Done {
    let policies = &shared.engine.egress.policies;
    // Evaluated at the creation already, perhaps under other documents.
    if let Err(refused) = is_allowed(policies, claimed) {
        explain(output, &refused);
        return Done::without_report(End::Refused);
    }
    let mut lowered = claimed.spec.clone();
    lower_limits(policies, &mut lowered);
    let spec = &lowered;
    match admit(spec, shared.settings().bounds) {
        Ok(admitted) => {
            let (source, beats) = (&shared.source, &shared.stop);
            let claimed = Digest::of_json(&claimed.spec);
            let job = Job { spec, admitted: &admitted, live, claimed, source, beats, output, runs };
            shared.engine.run(&job, clock)
        }
        Err(refused) => {
            explain(output, &format!("{refused} ({})", refused.code()));
            Done::without_report(End::Refused)
        }
    }
}

fn finished(live: &ActiveClaim, done: &Done, rest: [Rest; 2]) -> FinishedRequest {
    let is_stopped = live.control.wanted() == Wanted::ShutDown;
    let verdict = verdict(&done.end, live.is_canceled.load(Ordering::SeqCst), is_stopped);
    FinishedRequest {
        status: verdict.status,
        exit_code: verdict.exit_code,
        stdout_truncated: done.truncated[0] || rest[0].is_missing,
        stderr_truncated: done.truncated[1] || rest[1].is_missing,
        stdout_chunks: rest[0].chunks.filter(|_| !done.truncated[0]),
        stderr_chunks: rest[1].chunks.filter(|_| !done.truncated[1]),
        diff_truncated: done.diff.truncated,
        diff_base64: (!done.diff.bytes.is_empty()).then(|| BASE64.encode(&done.diff.bytes)),
        snapshot_before: snapshot(done.heads[0].as_ref()),
        snapshot_after: snapshot(done.heads[1].as_ref()),
        artifacts_manifest: done.kept.as_ref().and_then(|kept| serde_json::to_value(kept).ok()),
        finished_at: Some(now()),
        reason: Some(verdict.reason.to_owned()),
        receipt: done.receipt.clone(),
        timing: (!done.timing.is_null()).then(|| done.timing.clone()),
    }
}

/// Returns a snapshot as the wire has it. Contents are not part of it in this version.
fn snapshot(head: Option<&Head>) -> Option<Value> {
    head.map(|head| json!({ "head": head }))
}

/// Sends the report of an end until it is acknowledged, and then its events and the kept files. What is not acknowledged stays noted.
/// Events are lost with the daemon, or when the control plane is away for longer than a minute: the receipt states the facts.
///
/// Nothing but its own answer ends the repetition: a heartbeat calls a claim lost also when the directive is over because of a report
/// whose answer was lost.
pub fn deliver(shared: &Shared, note: &Note, tape: Option<&Tape>) {
    let Some(result) = &note.result else { return };
    let says = says_left_out(shared, note);
    // Where the end is not known yet, its followers read this before they hear of it.
    let is_said = says().is_ok();
    match repeated(&shared.stop, || false, || shared.source.finished(note.directive, &note.token, result)) {
        Ok(_) => {
            // The directive is over: its files take no place of another one.
            shared.table.remove(note.directive);
            // One connection that breaks loses no events; kept files wait for a bounded time alone.
            let until = Instant::now() + EVENTS_WITHIN;
            let is_late = || Instant::now() >= until;
            if !is_said {
                repeated(&shared.stop, is_late, &says).ok();
            }
            if let Some(tape) = tape {
                let request = EventsRequest { seq: 0, events: tape.values() };
                let sent =
                    repeated(&shared.stop, is_late, || shared.source.events(note.directive, &note.token, &request));
                if let Err(GivenUp::Refused { error, .. }) = sent {
                    shared.tell(&format!("directive {}: its events were refused: {error}", note.directive));
                }
            }
            let waits = shared.uploads.begin(note);
            if upload::run(shared, note) == Uploaded::Done {
                forget(shared, note);
            }
            drop(waits);
        }
        Err(GivenUp::Stopped) => {}
        Err(GivenUp::Refused { error, .. }) => {
            shared.tell(&format!("directive {}: the report of its end was refused: {error}", note.directive));
            forget(shared, note);
        }
    }
}

/// Returns the call that names, in the output of the directive, what its commit left out. Its daemon died, and with it the number of the next
/// chunk: this one comes behind all others.
fn says_left_out<'a>(shared: &'a Shared, note: &'a Note) -> impl Fn() -> Result<(), SourceError> + 'a {
    move || {
        let Some(left_out) = &note.left_out else { return Ok(()) };
        let line = format!("nexus: not everything was committed: {left_out}\n");
        let bytes = BASE64.encode(line.as_bytes());
        let request = LogChunkRequest { stream: Stream::Stderr, seq: AFTER_ALL, bytes, truncated: false };
        shared.source.log_chunk(note.directive, &note.token, &request)
    }
}

/// Forgets a claim and the copies of its kept files.
pub fn forget(shared: &Shared, note: &Note) {
    if let Err(error) = shared.engine.spool.forget(&note.name()) {
        shared.tell(&format!("directive {}: the copies of its kept files cannot be removed: {error}", note.directive));
    }
    if let Err(error) = shared.engine.claims.forget(note) {
        shared.tell(&format!("directive {}: its note cannot be removed: {error}", note.directive));
    }
}
