//! Opens and locks a layer that no other process uses, and reads which decision was recorded for it.

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::errors::RecoverError;
use crate::journal::file::{BACK, DONE, FoundJournal, JOURNAL, Journal, read_journal};
use crate::meta::stat;
use crate::store::locked::{Locked, is_run_id};
use std::path::Path;

/// Says in a layer's directory that it is being set aside. Its staging directory may have left already, so that the
/// commit can be neither finished nor taken back.
pub(crate) const HALF_ASIDE: &str = "journal.aside";

/// Opens the directory of all layers and, if it is there, the layer's, which no other process works with.
pub(crate) fn locked(layers_dir: &Path, run: &str) -> Result<(Workspace, Option<Locked>), RecoverError> {
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
        // The process that had the lock before may have removed the layer or moved it away.
        Some(root) => match layers.stat(run.as_bytes()).doing("look at", run.as_bytes()).map_err(io)? {
            Some(there) if there.id == stat(root.fd(), b"").doing("look at", run.as_bytes()).map_err(io)?.id => {
                Ok((layers, Some(root)))
            }
            Some(_) => Err(RecoverError::Busy { run: run.to_owned() }),
            None => Ok((layers, None)),
        },
        None => Err(RecoverError::Busy { run: run.to_owned() }),
    }
}

/// Reads the journal of this name, if there is one and it is for this run and this workspace.
pub(crate) fn known(
    root: &Workspace,
    name: &str,
    run: &str,
    workspace: &Workspace,
) -> Result<Option<Journal>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let foreign = |found: String| RecoverError::Foreign { run: run.to_owned(), found };
    if is_half_aside(root).map_err(io)? {
        return Err(RecoverError::HalfAside { run: run.to_owned() });
    }
    match read_journal(root, name).map_err(io)? {
        FoundJournal::None => Ok(None),
        FoundJournal::Version(version) => Err(RecoverError::Version { run: run.to_owned(), version }),
        FoundJournal::Known(journal) if journal.header.run != run => {
            Err(foreign(format!("the run {}", journal.header.run)))
        }
        FoundJournal::Known(journal) => {
            let here = workspace.identity().doing("look at", b"").map_err(io)?;
            if here != journal.header.home.id {
                return Err(foreign(format!("another directory ({})", journal.header.home.path.as_path().display())));
            }
            Ok(Some(*journal))
        }
    }
}

/// Reports whether a commit of the layer was decided and not finished.
pub(crate) fn is_decided(root: &Workspace) -> Result<bool, IoFailure> {
    for name in [JOURNAL, DONE] {
        if root.stat(name.as_bytes()).doing("look at", name.as_bytes())?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reports whether a commit is being taken back.
pub(crate) fn is_going_back(root: &Workspace) -> Result<bool, IoFailure> {
    Ok(root.stat(BACK.as_bytes()).doing("look at", BACK.as_bytes())?.is_some())
}

/// Reports whether a process started to set the layer aside.
pub(crate) fn is_half_aside(root: &Workspace) -> Result<bool, IoFailure> {
    Ok(root.stat(HALF_ASIDE.as_bytes()).doing("look at", HALF_ASIDE.as_bytes())?.is_some())
}
