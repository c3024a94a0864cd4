//! Commits of an earlier daemon that cannot be finished now, as on a full disk: half of each is in its facility.
//!
//! ```text
//!  start: cannot be finished ─▶ facility locked, nothing reported ─▶ tried again every minute ─▶ finished ─▶ end noted ─▶ facility free, end sent
//! ```
//! Until then no directive works on half a commit, and the control plane says `commit_unknown`: no process knows more.

use super::context::Shared;
use super::error::DaemonError;
use super::{ends, replay};
use crate::claims::{Claims, Note};
use crate::upkeep::Unfinished;
use nexus_facility::{Facilities, Lock};
use nexus_model::RunId;
use nexus_runner::state::directory::StateDir;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A claim whose commit is not finished, with the facility in which it worked.
pub struct Held {
    note: Note,
    locks: Vec<Lock>,
}

/// Takes the facilities of these commits, before any work is asked for.
pub fn hold(left: &[Unfinished], claims: &Claims, facilities: &Facilities) -> Result<Vec<Held>, DaemonError> {
    let runs = runs(left);
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let (notes, _) = claims.all().map_err(DaemonError::Claims)?;
    let notes = notes.into_iter().filter(|note| is_of(note, &runs));
    notes.map(|note| Ok(Held { locks: facilities.hold_of_the_dead(note.directive)?, note })).collect()
}

/// Returns the names of the claims whose ends are not known.
pub fn names(held: &[Held]) -> BTreeSet<String> {
    held.iter().filter(|one| one.note.result.is_none()).map(|one| one.note.name()).collect()
}

/// Tries to finish the commits until none is left, or the daemon stops.
pub fn run(shared: &Arc<Shared>, places: &StateDir, left: Vec<Unfinished>, mut held: Vec<Held>) {
    let engine = &shared.engine;
    let mut reported: BTreeSet<String> = left.into_iter().map(|one| one.why).collect();
    while !shared.stop.wait(shared.settings().finish_every) {
        let mut committed = |run: RunId, left_out: Option<&str>| {
            // The notes are not read again here: others are being written.
            let found = held.iter_mut().find(|one| one.note.command == Some(run) && one.note.result.is_none());
            let Some(one) = found else { return Ok(()) };
            replay::add_commit(&engine.claims, &engine.facilities, &mut one.note, left_out)
        };
        let left = engine.upkeep.finish_again(places, &mut committed);
        for one in &left {
            if reported.insert(one.why.clone()) {
                shared.tell(&one.why);
            }
        }
        let runs = runs(&left);
        let (waiting, over): (Vec<_>, Vec<_>) = held.into_iter().partition(|one| is_of(&one.note, &runs));
        held = waiting;
        for Held { note, locks } in over {
            // The facility is free before the end is known: the next directive may come with the answer.
            drop(locks);
            if !shared.unfinished.contains(&note.name()) {
                continue;
            }
            // A commit that was taken back: nothing of it is in the facility.
            let note = if note.result.is_some() { note } else { replay::noted(shared, note, ends::of_lost()) };
            replay::hold(shared, &note);
            replay::send(shared, note);
        }
        if left.is_empty() {
            return;
        }
    }
}

fn runs(left: &[Unfinished]) -> BTreeSet<RunId> {
    left.iter().filter_map(|one| one.run).collect()
}

fn is_of(note: &Note, runs: &BTreeSet<RunId>) -> bool {
    note.runs.iter().any(|run| runs.contains(run))
}
