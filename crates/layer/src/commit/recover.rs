//! Recovers layers after a crash: completes or rolls back each interrupted commit.
//!
//! ```text
//!  journal, journal.done ─▶ recover: on to the new version      roll_back: back to the old one (journal only)
//!  journal, journal.back ─▶ both: back to the old one
//!  parked.json           ─▶ left alone                          no journal: undecided, for the caller to park
//! ```
//! Both obey the rules of a first commit: a path that another process changed meanwhile is kept back.

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::commit::forward::{CommitFinished, finish_done, outcome_of, roll_forward};
use crate::commit::roll_back::reverse;
use crate::disk::identity::Home;
use crate::disk::upper::is_bare;
use crate::entries::changes::Conflict;
use crate::faults::Faults;
use crate::journal::file::{DONE, JOURNAL, PARKED, SlotPlace, home_of};
use crate::moves::leftover::Leftover;
use crate::places::commit_places::LayerDirectories;
use crate::staging::stage::remove_slots;
use crate::store::open_for_recovery::{is_decided, is_going_back, known, locked};
use crate::store::removal::{GONE, remove_layer};
use std::path::Path;

pub use crate::errors::RecoverError;

/// State in which a recovery found a layer, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// The layer does not exist (any more).
    Nothing,
    /// A decided commit was brought to its end.
    RolledForward(Box<CommitFinished>),
    /// A commit that was being taken back when `nexus` was killed is taken back now, but for what these conflicts name.
    /// The layer is undecided, or waits for a review as it did before the commit.
    TakenBack(Vec<Conflict>),
    /// No commit was decided: the workspace is the old version. The layer is not empty and was left alone.
    Undecided,
    /// No commit was decided and the layer was empty. It was removed, but for what could not be removed.
    Discarded(Option<Leftover>),
    /// The layer waits for a review and was left alone.
    Parked,
}

/// Completes or rolls back the commit of the layer `<layers_dir>/<run>`; see [`Recovered`].
pub fn recover(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Recovered, RecoverError> {
    recover_with(layers_dir, run, workspace, &Faults::default())
}

/// Runs [`recover`] with faults, for tests.
pub fn recover_with(
    layers_dir: &Path,
    run: &str,
    workspace: &Workspace,
    faults: &Faults,
) -> Result<Recovered, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let (layers, Some(root)) = locked(layers_dir, run)? else { return Ok(Recovered::Nothing) };
    let directories = LayerDirectories { layers: &layers, root: &root, base: workspace, run };
    if let Some(journal) = known(&root, DONE, run, workspace)? {
        let mut outcome = outcome_of(&root).map_err(io)?;
        finish_done(&directories, &journal, &mut outcome, faults).map_err(io)?;
        return Ok(Recovered::RolledForward(Box::new(CommitFinished::new(journal, outcome))));
    }
    if let Some(journal) = known(&root, JOURNAL, run, workspace)? {
        if is_going_back(&root).map_err(io)? {
            return Ok(Recovered::TakenBack(reverse(&root, workspace, &journal, faults).map_err(io)?));
        }
        let outcome = roll_forward(&directories, &journal, faults, true).map_err(io)?;
        return Ok(Recovered::RolledForward(Box::new(CommitFinished::new(journal, outcome))));
    }
    // Copies that were made for a commit which was never decided.
    remove_slots(&root, workspace, run, SlotPlace::Workspace, faults).map_err(io)?;
    if root.stat(PARKED.as_bytes()).doing("look at", PARKED.as_bytes()).map_err(io)?.is_some() {
        return Ok(Recovered::Parked);
    }
    let removed = root.stat(GONE.as_bytes()).doing("look at", GONE.as_bytes()).map_err(io)?.is_some();
    if !removed && !is_bare(&root).map_err(io)? {
        return Ok(Recovered::Undecided);
    }
    Ok(Recovered::Discarded(remove_layer(&layers, &root, run, faults).map_err(io)?))
}

/// The stage that a layer has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerStage {
    /// The layer does not exist (any more), or is being removed.
    Gone,
    /// The run was killed before a commit was decided.
    Undecided,
    /// It waits for a review.
    Parked,
    /// A commit was decided and not finished. Holds its workspace, if the journal can be read.
    Decided(Option<Home>),
}

/// Returns the stage that the layer `<layers_dir>/<run>` has reached. Changes nothing.
pub fn stage(layers_dir: &Path, run: &str) -> Result<LayerStage, RecoverError> {
    let (_, Some(root)) = locked(layers_dir, run)? else { return Ok(LayerStage::Gone) };
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let has = |name: &str| Ok(root.stat(name.as_bytes()).doing("look at", name.as_bytes()).map_err(io)?.is_some());
    Ok(match () {
        () if is_decided(&root).map_err(io)? => LayerStage::Decided(home_of(&root).unwrap_or_default()),
        () if has(PARKED)? => LayerStage::Parked,
        () if has(GONE)? => LayerStage::Gone,
        () => LayerStage::Undecided,
    })
}
