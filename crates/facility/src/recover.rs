//! After a crash: brings each layer to one of its ends.

use crate::apply::Apply;
use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::faults::{Faults, Step};
use crate::finish::{Folders, finish, remove_layer};
use crate::journal::{DONE, JOURNAL, Journal, PARKED, read, sync_folder};
use crate::layer::{Locked, is_run_id};
use std::path::Path;

/// What was found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// There is no such layer (any more).
    Nothing,
    /// A decided commit was brought to its end: the workspace is the new version.
    RolledForward,
    /// No commit was decided: the workspace is the old version, and the layer is gone.
    Discarded,
    /// The layer waits for a review and was left alone.
    Parked,
}

/// Why a layer could not be recovered. It is unchanged or further on its way, and the call may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// Not the name of a run.
    #[error("{run:?} is no run id")]
    RunId {
        /// The name.
        run: String,
    },
    /// Somebody works with the layer.
    #[error("the layer {run} is in use")]
    Busy {
        /// Its run.
        run: String,
    },
    /// The journal is of another version of this program.
    #[error("the journal of {run} has the unknown version {version}")]
    Version {
        /// Its run.
        run: String,
        /// The version found.
        version: u32,
    },
    /// A call failed.
    #[error("cannot recover the layer of {run}")]
    Io {
        /// Its run.
        run: String,
        /// The call.
        source: IoFailure,
    },
}

/// Brings the layer `<layers_dir>/<run>` to its end; see [`Recovered`]. A conflict is not looked for again: the commit
/// was decided before the crash.
pub fn recover(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Recovered, RecoverError> {
    recover_with(layers_dir, run, workspace, &Faults::default())
}

/// [`recover`] with faults, for tests.
pub fn recover_with(
    layers_dir: &Path,
    run: &str,
    workspace: &Workspace,
    faults: &Faults,
) -> Result<Recovered, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let (layers, Some(root)) = locked(layers_dir, run)? else { return Ok(Recovered::Nothing) };
    let folders = Folders { layers: &layers, root: &root, base: workspace, run };
    let known = |journal: &Journal| {
        let known = journal.is_known() && journal.run == run;
        known.then_some(()).ok_or_else(|| RecoverError::Version { run: run.to_owned(), version: journal.version })
    };
    if let Some(journal) = read::<Journal>(&root, DONE).map_err(io)? {
        known(&journal)?;
        finish(&folders, &journal, faults).map_err(io)?;
        return Ok(Recovered::RolledForward);
    }
    if let Some(journal) = read::<Journal>(&root, JOURNAL).map_err(io)? {
        known(&journal)?;
        roll_forward(&folders, &journal, faults).map_err(io)?;
        return Ok(Recovered::RolledForward);
    }
    if root.stat(PARKED.as_bytes()).doing("look at", PARKED.as_bytes()).map_err(io)?.is_some() {
        return Ok(Recovered::Parked);
    }
    remove_layer(&layers, &root, run, faults).map_err(io)?;
    Ok(Recovered::Discarded)
}

/// How far a layer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// There is none (any more).
    Gone,
    /// Nothing was decided: its run was killed.
    Undecided,
    /// It waits for a review.
    Parked,
    /// A commit was decided and not finished.
    Decided,
}

/// Looks how far the layer `<layers_dir>/<run>` came. Changes nothing.
pub fn stage(layers_dir: &Path, run: &str) -> Result<Stage, RecoverError> {
    let (_, Some(root)) = locked(layers_dir, run)? else { return Ok(Stage::Gone) };
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let has = |name: &str| Ok(root.stat(name.as_bytes()).doing("look at", name.as_bytes()).map_err(io)?.is_some());
    Ok(match () {
        () if has(JOURNAL)? || has(DONE)? => Stage::Decided,
        () if has(PARKED)? => Stage::Parked,
        () => Stage::Undecided,
    })
}

/// Removes the layer `<layers_dir>/<run>` and does nothing else, whatever was decided about it.
pub fn abandon(layers_dir: &Path, run: &str) -> Result<(), RecoverError> {
    let (layers, Some(root)) = locked(layers_dir, run)? else { return Ok(()) };
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    // The decision goes first: a half-removed layer must not be rolled forward.
    for name in [JOURNAL, DONE] {
        crate::beneath::unlink_if_there(root.fd(), name.as_bytes()).doing("remove", name.as_bytes()).map_err(io)?;
    }
    remove_layer(&layers, &root, run, &Faults::default()).map_err(io)
}

/// The layers' folder and, if it is there, the layer's, which nobody else works with.
fn locked(layers_dir: &Path, run: &str) -> Result<(Workspace, Option<Locked>), RecoverError> {
    if !is_run_id(run) {
        return Err(RecoverError::RunId { run: run.to_owned() });
    }
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let layers = Workspace::open(layers_dir).map_err(io)?;
    if layers.stat(run.as_bytes()).doing("look at", run.as_bytes()).map_err(io)?.is_none() {
        return Ok((layers, None));
    }
    let root = Workspace::from_fd(layers.readable_dir(run.as_bytes()).doing("open", run.as_bytes()).map_err(io)?);
    match Locked::new(root).doing("lock", run.as_bytes()).map_err(io)? {
        Some(root) => Ok((layers, Some(root))),
        None => Err(RecoverError::Busy { run: run.to_owned() }),
    }
}

/// Everything after the commit point.
pub(crate) fn roll_forward(folders: &Folders<'_>, journal: &Journal, faults: &Faults) -> Result<(), IoFailure> {
    let upper = Workspace::from_fd(folders.root.readable_dir(b"upper").doing("open", b"upper")?);
    let index = open_index(folders.root)?;
    faults.check(Step::Apply).doing("apply", b"")?;
    let mut apply = Apply::new(folders.base, &upper, index.as_ref(), journal, faults);
    apply.run()?;
    faults.check(Step::SyncWorkspace).doing("sync", b"")?;
    apply.sync()?;
    faults.check(Step::MarkDone).doing("mark done", b"")?;
    rustix::fs::renameat(folders.root.fd(), JOURNAL, folders.root.fd(), DONE).doing("rename", JOURNAL.as_bytes())?;
    sync_folder(folders.root)?;
    finish(folders, journal, faults)
}

/// Overlay's index, which exists in root's layers once a file with several names was copied up.
pub(crate) fn open_index(root: &Workspace) -> Result<Option<Workspace>, IoFailure> {
    match root.readable_dir(b"work/index") {
        Ok(dir) => Ok(Some(Workspace::from_fd(dir))),
        Err(error) if crate::beneath::is_gone(&error) => Ok(None),
        Err(error) => Err(error).doing("open", b"work/index"),
    }
}
