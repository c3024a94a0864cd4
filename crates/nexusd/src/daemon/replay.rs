//! Reports the claims of an earlier daemon, before any work is asked for.

use super::context::Shared;
use super::worker::{deliver, forget};
use crate::claims::Note;
use crate::decide::outcome::{End, Verdict, verdict};
use crate::decide::reconcile::{Action, reconcile};
use crate::report::now;
use crate::run::engine::read_receipt;
use nexus_api::conduits::FinishedRequest;
use nexus_model::RunId;
use nexus_runner::recover::signed::{SignedEnd, signed_end};
use nexus_runner::state::directory::StateDir;
use serde_json::json;
use std::time::Duration;

/// Time between two looks at a sandbox that is not gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reports every claim of an earlier daemon. Returns when all are acknowledged, or the daemon stops.
pub fn run(shared: &Shared) {
    loop {
        let (notes, damaged) = match shared.engine.claims.all() {
            Ok(found) => found,
            Err(error) => {
                shared.tell(&format!("the notes about claims cannot be read: {error}"));
                return;
            }
        };
        for line in damaged {
            shared.tell(&format!("a note about a claim cannot be used and stays: {line}"));
        }
        let names = notes.iter().map(Note::name).collect();
        if let Err(error) = shared.engine.spool.sweep(&names) {
            shared.tell(&format!("copies of kept files that no note names cannot be removed: {error}"));
        }
        let found = match shared.engine.driver.inventory() {
            Ok(found) => found,
            Err(error) => {
                shared.tell(&format!("the sandboxes of this machine cannot be listed: {error}"));
                Vec::new()
            }
        };
        let mut waits = false;
        for action in reconcile(notes, &found, |run| signed(shared, run)) {
            match action {
                Action::Replay(note) => deliver(shared, &note, None, || false),
                Action::Ended(note, end) => report(shared, note, of_signed(&end)),
                Action::Lost(note) => report(shared, note, of_lost()),
                Action::Expires(note) => {
                    shared.tell(&format!(
                        "directive {}: its daemon died; it may run again when its lease is over",
                        note.directive
                    ));
                    forget(shared, &note);
                }
                Action::Wait { note, what } => {
                    waits = true;
                    shared.tell(&format!("directive {}: {what} of an earlier daemon is not gone", note.directive));
                }
            }
        }
        if !waits || shared.stop.wait(LOOK_EVERY) {
            return;
        }
    }
}

/// Reads the receipt of a run of an earlier daemon. One that cannot be used says nothing of the end.
fn signed(shared: &Shared, run: RunId) -> Option<SignedEnd> {
    let places = match StateDir::find(&shared.engine.host).and_then(|found| found.ensure(&shared.engine.host)) {
        Ok(places) => places,
        Err(error) => {
            shared.tell(&format!("the receipts of earlier runs cannot be read: {error}"));
            return None;
        }
    };
    signed_end(&places, run).unwrap_or_else(|error| {
        shared.tell(&error.to_string());
        None
    })
}

/// Reports a claim whose daemon died. The report is noted first: a second crash sends the same.
fn report(shared: &Shared, mut note: Note, result: FinishedRequest) {
    note.result = Some(result);
    if let Err(error) = shared.engine.claims.write(&note) {
        shared.tell(&format!("directive {}: its end cannot be noted: {error}", note.directive));
    }
    deliver(shared, &note, None, || false);
}

/// The end as the receipt states it. The rest of the output and the diff were in the memory of the daemon that died.
fn of_signed(end: &SignedEnd) -> FinishedRequest {
    let ran = End::Ran { exit: end.exit, reason: end.reason, unsettled: end.unsettled };
    FinishedRequest {
        diff_truncated: true,
        receipt: read_receipt(&end.path),
        timing: Some(json!({ "duration_ms": end.duration_ms })),
        ..of_verdict(&verdict(&ran, false, false))
    }
}

fn of_lost() -> FinishedRequest {
    of_verdict(&verdict(&End::LeaseLost, false, false))
}

fn of_verdict(verdict: &Verdict) -> FinishedRequest {
    FinishedRequest {
        status: verdict.status,
        exit_code: verdict.exit_code,
        stdout_truncated: true,
        stderr_truncated: true,
        diff_truncated: false,
        diff_base64: None,
        snapshot_before: None,
        snapshot_after: None,
        artifacts_manifest: None,
        finished_at: Some(now()),
        reason: Some(verdict.reason.to_owned()),
        receipt: None,
        timing: None,
    }
}
