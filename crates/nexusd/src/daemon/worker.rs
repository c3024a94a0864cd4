//! The life of one claim, on a thread of its own.

use super::context::Shared;
use crate::claims::Note;
use crate::decide::admit::admit;
use crate::decide::outcome::{End, verdict};
use crate::lease;
use crate::live::{Live, REPORTING};
use crate::report::{GivenUp, now, repeated, send_output};
use crate::run::control::Wanted;
use crate::run::engine::{Done, Job, explain};
use crate::run::output::Output;
use data_encoding::BASE64;
use nexus_api::conduits::{ClaimedDirective, FinishedRequest, StartedRequest};
use nexus_facility::diff::Diff;
use nexus_model::directive::Fence;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Time that the output and the report of a directive have at a shutdown.
pub const REPORT_WITHIN: Duration = Duration::from_secs(5);
/// Time that the last output has before the end is reported.
const OUTPUT_WITHIN: Duration = Duration::from_secs(30);

/// Starts the work on a claim. A claim that cannot be started becomes visible again at the control plane.
pub fn spawn(shared: &Arc<Shared>, claimed: ClaimedDirective, sent: Duration, ttl: u32) {
    let fence = claimed.fence.unwrap_or(Fence(0));
    let id = claimed.directive_id;
    let live = Live::new(id, fence, claimed.directive_token.clone(), ttl, lease::end(sent, ttl)).map(Arc::new);
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

fn work(shared: &Shared, live: &Live, claimed: &ClaimedDirective) {
    let clock = Instant::now();
    let mut note = Note::new(live.directive, live.fence, &live.token());
    // Before the control plane hears of a start: a daemon that dies now finds the note and reports the loss.
    if let Err(error) = shared.engine.claims.write(&note) {
        return shared.tell(&format!("directive {}: it cannot be noted: {error}", live.directive));
    }
    if !started(shared, live, claimed) {
        return forget(shared, &note);
    }
    let output = Output::default();
    let (done, has_gap) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send_output(&*shared.source, live, &output, &shared.stop));
        let done = done(shared, live, claimed, &output, &mut note, clock);
        output.close();
        live.enter(REPORTING);
        let within = if live.is_lost() { Duration::ZERO } else { OUTPUT_WITHIN.min(live.left()) };
        if !output.is_sent_within(within) {
            output.discard();
        }
        (done, sender.join().unwrap_or([true; 2]))
    });
    if matches!(done.end, End::Ran { .. }) {
        shared.health.proved();
    }
    if live.is_lost() {
        shared.tell(&format!("directive {}: its claim is over, and nothing is reported", live.directive));
        return forget(shared, &note);
    }
    note.token = live.token();
    note.result = Some(finished(live, &done, has_gap));
    if let Err(error) = shared.engine.claims.write(&note) {
        shared.tell(&format!("directive {}: its end cannot be noted, and is only sent: {error}", live.directive));
    }
    deliver(shared, &note, || live.is_lost());
}

/// Reports the start. `false` when the claim is over.
fn started(shared: &Shared, live: &Live, claimed: &ClaimedDirective) -> bool {
    let request = StartedRequest {
        effective_capabilities_summary: serde_json::to_value(&claimed.spec.capabilities).ok(),
        sandbox_version: Some(format!("{}/{}", shared.engine.driver.name(), shared.settings.version)),
        nexus_version: Some(shared.settings.version.clone()),
        runtime_ref: Some(json!({ "type": shared.engine.driver.name() })),
        started_at: Some(now()),
    };
    let is_over = || live.left().is_zero() || live.control.wanted() != Wanted::Nothing;
    match repeated(&shared.stop, is_over, || shared.source.started(live.directive, &live.token(), &request)) {
        Ok(_) => {
            live.has_started();
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
    live: &Live,
    claimed: &ClaimedDirective,
    output: &Output,
    note: &mut Note,
    clock: Instant,
) -> Done {
    let spec = &claimed.spec;
    match admit(spec, shared.settings.bounds) {
        Ok(admitted) => {
            let job = Job { spec, admitted: &admitted, live, source: &*shared.source, output };
            shared.engine.run(&job, note, clock)
        }
        Err(refused) => {
            explain(output, &format!("{refused} ({})", refused.code()));
            Done { end: End::Refused, diff: Diff::default(), receipt: None, timing: Value::Null, truncated: [false; 2] }
        }
    }
}

fn finished(live: &Live, done: &Done, has_gap: [bool; 2]) -> FinishedRequest {
    let is_stopped = live.control.wanted() == Wanted::ShutDown;
    let verdict = verdict(&done.end, live.is_canceled.load(Ordering::SeqCst), is_stopped);
    FinishedRequest {
        status: verdict.status,
        exit_code: verdict.exit_code,
        stdout_truncated: done.truncated[0] || has_gap[0],
        stderr_truncated: done.truncated[1] || has_gap[1],
        diff_truncated: done.diff.truncated,
        diff_base64: (!done.diff.bytes.is_empty()).then(|| BASE64.encode(&done.diff.bytes)),
        snapshot_before: None,
        snapshot_after: None,
        artifacts_manifest: None,
        finished_at: Some(now()),
        reason: Some(verdict.reason.to_owned()),
        receipt: done.receipt.clone(),
        timing: (!done.timing.is_null()).then(|| done.timing.clone()),
    }
}

/// Sends the report of an end until it is acknowledged. What is not stays noted.
pub fn deliver(shared: &Shared, note: &Note, is_over: impl Fn() -> bool) {
    let Some(result) = &note.result else { return };
    match repeated(&shared.stop, is_over, || shared.source.finished(note.directive, &note.token, result)) {
        Ok(_) => forget(shared, note),
        Err(GivenUp::Stopped) => {}
        Err(GivenUp::Refused { error, .. }) => {
            shared.tell(&format!("directive {}: the report of its end was refused: {error}", note.directive));
            forget(shared, note);
        }
    }
}

fn forget(shared: &Shared, note: &Note) {
    if let Err(error) = shared.engine.claims.forget(note) {
        shared.tell(&format!("directive {}: its note cannot be removed: {error}", note.directive));
    }
}
