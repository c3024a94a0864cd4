//! Reports the claims of an earlier daemon, before any work is asked for.

use super::context::Shared;
use super::worker::deliver;
use crate::claims::Note;
use crate::decide::outcome::{End, verdict};
use crate::decide::reconcile::{Action, reconcile};
use crate::report::now;
use nexus_api::conduits::FinishedRequest;
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
        let found = match shared.engine.driver.inventory() {
            Ok(found) => found,
            Err(error) => {
                shared.tell(&format!("the sandboxes of this machine cannot be listed: {error}"));
                Vec::new()
            }
        };
        let mut waits = false;
        for action in reconcile(notes, &found) {
            match action {
                Action::Replay(note) => deliver(shared, &note, || false),
                Action::Lost(note) => lost(shared, note),
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

/// Reports a claim whose daemon died. The report is noted first: a second crash sends the same.
fn lost(shared: &Shared, mut note: Note) {
    note.result = Some(of_lost());
    if let Err(error) = shared.engine.claims.write(&note) {
        shared.tell(&format!("directive {}: its end cannot be noted: {error}", note.directive));
    }
    deliver(shared, &note, || false);
}

fn of_lost() -> FinishedRequest {
    let verdict = verdict(&End::LeaseLost, false, false);
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
