//! Removes the layer of a run unread, or moves it out of the way where its directory is away.

use crate::causes::chain;
use crate::notices::{Notify, tell_leftovers};
use crate::recover::interrupted::Interrupted;
use crate::recover::retry::{is_busy, patiently};
use crate::recover::unsaid::KEPT;
use crate::review::error::ReviewError;
use crate::review::waiting::{State, Waiting};
use crate::state::directory::StateDir;
use crate::state::identity::OpenSameError;
use crate::state::note;
use crate::state::record::{Content, Record};
use nexus_driver::Handle;
use nexus_layer::{Abandoned, RecoverError};
use nexus_model::RunId;
use std::path::PathBuf;

/// Result of [`discard`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The layer is gone. The caller reports that, and then has the record forgotten: without the record no later command
    /// reports anything of this.
    Removed,
    /// The layer was not there any more.
    Nothing,
    /// A commit of the layer was decided, and nothing was done.
    Decided,
}

/// Removes a layer unread: also what could be neither committed nor parked. The caller holds off signals.
pub fn discard(places: &StateDir, of: &Interrupted, tell: Notify<'_>) -> Result<Removal, ReviewError> {
    let run = &of.run;
    let failed = |why: String| ReviewError::Discard { why };
    let layer = places.layers.join(run);
    let record = record(places, of);
    let abandon = || nexus_layer::abandon(&places.layers, run, || note::mark_gone(&layer));
    match patiently(abandon, is_busy) {
        Ok(Abandoned::Removed(left)) => tell_leftovers(tell, left.iter()),
        other => {
            // Nothing was removed, and an interrupted commit keeps its own record.
            record.map_or(Ok(()), Record::remove).map_err(|error| failed(error.to_string()))?;
            return match other {
                Ok(_) => Ok(Removal::Nothing),
                Err(RecoverError::Decided { .. }) => Ok(Removal::Decided),
                Err(error) => Err(failed(chain(&error))),
            };
        }
    }
    tell_staging(of, tell).map_err(failed)?;
    Ok(Removal::Removed)
}

/// Moves a layer that waits out of the way of all commands, where its directory is away, and returns its new place. By then it may be
/// the only copy of what the run made: another run may have taken the directory away with its commit, unasked.
/// `None`: the directory is there, or nothing waits any more.
pub fn set_aside(places: &StateDir, one: &Waiting) -> Result<Option<PathBuf>, ReviewError> {
    let is_away = || {
        let found = one.directory.open_at(&one.workspace);
        matches!(found, Err(OpenSameError::Gone | OpenSameError::Other))
    };
    if one.state != State::Waiting || !is_away() {
        return Ok(None);
    }
    let set_aside = || nexus_layer::set_aside_undecided(&places.layers, &one.run, &places.state.join(KEPT));
    match patiently(set_aside, is_busy) {
        Err(RecoverError::Decided { .. }) => Ok(None),
        other => other.map_err(|error| ReviewError::Discard { why: chain(&error) }),
    }
}

/// Reports the staging directories of the run that stay in its workspace.
fn tell_staging(of: &Interrupted, tell: Notify<'_>) -> Result<(), String> {
    let directory = of.directory.as_ref().and_then(|(path, id)| id.open_at(path).ok());
    let found = directory.map_or(Ok(Vec::new()), |directory| nexus_layer::found_staging(&of.run, &directory));
    tell_leftovers(tell, &found.map_err(|error| chain(&error))?);
    Ok(())
}

/// Records that the run is being rejected, so that a later command reports it after a kill. A reject makes room, so
/// it goes on without a record. `None` also where the run has one.
fn record(places: &StateDir, of: &Interrupted) -> Option<Record> {
    let run: RunId = of.run.parse().ok()?;
    let (workspace, directory) = of.directory.clone()?;
    if Record::place(&places.runs, run).try_exists().unwrap_or(true) {
        return None;
    }
    let content = Content {
        handle: Handle::of_nothing(run),
        workspace: workspace.into(),
        directory,
        layered: true,
        reviewing: true,
        rejecting: true,
    };
    Record::create(&places.runs, &content).ok()
}
