//! Reports the claims of an earlier daemon, before any work is asked for.

use super::beat;
use super::context::Shared;
use super::ends::{of_commit, of_lost, of_not_committed, of_signed};
use super::worker::{deliver, forget};
use crate::claims::{Claims, Note};
use crate::decide::reconcile::{Action, reconcile};
use crate::lease;
use crate::live::{ActiveClaim, REPORTING};
use nexus_api::conduits::FinishedRequest;
use nexus_facility::Facilities;
use nexus_model::RunId;
use nexus_runner::recover::signed::{SignedEnd, signed_end};
use nexus_runner::state::directory::StateDir;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks at a sandbox that is not gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time in which no work is asked for because ends are not acknowledged.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Seconds that a heartbeat gives a claim that has ended, for the daemon's own count.
const REPLAY_TTL: u32 = 60;

/// Reports every claim of an earlier daemon, each on a thread of its own, with heartbeats for all of them. Returns when all ends are
/// acknowledged, or no more work may wait for them, or the daemon stops. Kept files are uploaded beside the polls.
pub fn run(shared: &Arc<Shared>) {
    let mut sent = BTreeSet::new();
    loop {
        let (mut notes, damaged) = match shared.engine.claims.all() {
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
        // The end of a claim whose commit cannot be finished now is not known.
        notes.retain(|note| !sent.contains(&note.name()) && !shared.unfinished.contains(&note.name()));
        let (mut waits, mut ended) = (false, Vec::new());
        for action in reconcile(notes, &found, |run| signed(shared, run)) {
            match action {
                Action::Replay(note) => ended.push(note),
                Action::Ended(note, end) => ended.push(noted(shared, note, of_signed(&end))),
                Action::Lost(note) => ended.push(noted(shared, note, of_lost())),
                Action::NotCommitted(note) => ended.push(noted(shared, note, of_not_committed())),
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
        // In the table before the first call: the heartbeats name all of them, so that no lease ends while others are reported.
        for note in &ended {
            sent.insert(note.name());
            hold(shared, note);
        }
        if !ended.is_empty() {
            beat::once(shared).ok();
        }
        for note in ended {
            send(shared, note);
        }
        if !waits {
            break;
        }
        if shared.stop.wait(LOOK_EVERY) {
            return;
        }
    }
    // One report that gets no answer takes a place of the territory, as it would without a restart, and holds up no other work.
    let until = Instant::now() + ENDS_WITHIN;
    while Instant::now() < until && !shared.stop.is_set() && !shared.table.wait_below(1, LOOK_EVERY) {}
}

/// Puts a claim that has ended among the claims of this daemon.
pub fn hold(shared: &Shared, note: &Note) {
    let until = lease::end(lease::boot_time(), REPLAY_TTL);
    match ActiveClaim::new(note.directive, note.fence, note.token.clone(), REPLAY_TTL, until) {
        Ok(live) => {
            live.enter(REPORTING);
            live.note_started();
            shared.table.insert(&Arc::new(live));
        }
        // Without heartbeats its report is sent all the same.
        Err(error) => shared.tell(&format!("directive {}: no heartbeats for it: {error}", note.directive)),
    }
}

/// Sends the report of a claim, and then its kept files, on a thread.
pub fn send(shared: &Arc<Shared>, note: Note) {
    let (ours, directive) = (Arc::clone(shared), note.directive);
    let thread = std::thread::Builder::new().name("nexusd-replay".to_owned()).spawn(move || {
        deliver(&ours, &note, None);
        ours.table.remove(note.directive);
    });
    match thread {
        Ok(thread) => shared.workers.lock().unwrap_or_else(PoisonError::into_inner).push(thread),
        Err(error) => {
            shared.table.remove(directive);
            shared.tell(&format!("directive {directive}: no thread for its report, which stays noted: {error}"));
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

/// Notes the report of a claim whose daemon died, before it is sent: a second crash sends the same.
pub fn noted(shared: &Shared, mut note: Note, result: FinishedRequest) -> Note {
    note.result = Some(result);
    if let Err(error) = shared.engine.claims.write(&note) {
        shared.tell(&format!("directive {}: its end cannot be noted: {error}", note.directive));
    }
    note
}

/// Notes the report of the claim whose commit an earlier daemon began and the recovery finished, and that its facility never has it again.
/// `left_out` names what of it is not where the directive wanted it.
pub fn note_commit(claims: &Claims, facilities: &Facilities, run: RunId, left_out: Option<&str>) -> Result<(), String> {
    let (notes, _) = claims.all().map_err(|error| format!("the end of the run {run} cannot be noted: {error}"))?;
    match notes.into_iter().find(|note| note.command == Some(run) && note.result.is_none()) {
        Some(mut note) => add_commit(claims, facilities, &mut note, left_out),
        // Another run than that of a directive, or its end is known.
        None => Ok(()),
    }
}

/// Notes the report of a claim whose commit is over.
pub fn add_commit(
    claims: &Claims,
    facilities: &Facilities,
    note: &mut Note,
    left_out: Option<&str>,
) -> Result<(), String> {
    let directive = note.directive;
    let kept = facilities.end_of_the_dead(directive);
    kept.map_err(|error| format!("the end of directive {directive} cannot be noted in its facility: {error}"))?;
    let result = Some(of_commit(note.ended, left_out.is_some()));
    let noted = Note { result, left_out: left_out.map(str::to_owned), ..note.clone() };
    claims.write(&noted).map_err(|error| format!("the end of directive {directive} cannot be noted: {error}"))?;
    *note = noted;
    Ok(())
}
