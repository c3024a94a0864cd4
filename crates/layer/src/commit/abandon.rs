//! Ends a layer without committing its changes: removes it, or moves it aside with its content.
//!
//! ```text
//!  no journal ─▶ abandon: mark, then remove        journal, journal.done ─▶ abandon refuses
//!                set_aside_undecided: one rename                           set_aside: one rename, nothing is removed
//! ```
//! The check for a decided commit runs under the layer's lock, because the layer's state may change between the caller's own
//! check and the removal. A layer with a journal may hold the only copy of files that the commit displaced.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, names, unlink_if_there};
use crate::errors::RecoverError;
use crate::faults::Faults;
use crate::journal::file::{SlotPlace, slots_in_workspace, sync_directory, write};
use crate::moves::leftover::{
    Leftover, found_aside, found_in_workspace, is_numbered, move_to_a_free_name, set_aside_in_workspace,
};
use crate::moves::rename_calls::Spot;
use crate::staging::stage::{keep_slots, remove_slots};
use crate::store::open_for_recovery::{HALF_ASIDE, is_decided, is_half_aside, locked};
use crate::store::removal::remove_layer;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Result of [`abandon`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abandoned {
    /// There was no such layer (any more).
    Nothing,
    /// The layer is gone, but for what could not be removed.
    Removed(Option<Leftover>),
}

/// Removes the layer `<layers_dir>/<run>` without reading it, unless a commit of it was decided. Calls `mark_gone`
/// first, under the layer's lock, so that a process that finds a partly removed layer does not take it for a parked
/// one.
pub fn abandon(
    layers_dir: &Path,
    run: &str,
    mark_gone: impl FnOnce() -> io::Result<()>,
) -> Result<Abandoned, RecoverError> {
    abandon_with(layers_dir, run, mark_gone, &Faults::default())
}

/// Runs [`abandon`] with faults, for tests.
pub fn abandon_with(
    layers_dir: &Path,
    run: &str,
    mark_gone: impl FnOnce() -> io::Result<()>,
    faults: &Faults,
) -> Result<Abandoned, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let (layers, Some(root)) = locked(layers_dir, run)? else { return Ok(Abandoned::Nothing) };
    if is_decided(&root).map_err(io)? {
        return Err(RecoverError::Decided { run: run.to_owned() });
    }
    mark_gone().doing("mark as gone", run.as_bytes()).map_err(io)?;
    sync_directory(&root, faults).map_err(io)?;
    remove_layer(&layers, &root, run, faults).map_err(io).map(Abandoned::Removed)
}

/// A layer that was moved aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// Its directory now.
    pub layer: PathBuf,
    /// The staging directory that the commit had in the workspace, under its name now.
    pub staging: Option<PathBuf>,
}

/// Moves the layer `<layers_dir>/<run>`, of which a commit was decided, to a new directory in `kept`, with the files
/// that the commit displaced. No command reads it there. A staging directory in `workspace` gets a name that no later
/// command touches. Returns `None` if there is no such layer.
pub fn set_aside(
    layers_dir: &Path,
    run: &str,
    kept: &Path,
    workspace: Option<&Workspace>,
) -> Result<Option<Aside>, RecoverError> {
    set_aside_with(layers_dir, run, kept, workspace, &Faults::default())
}

/// Runs [`set_aside`] with faults, for tests.
pub fn set_aside_with(
    layers_dir: &Path,
    run: &str,
    kept: &Path,
    workspace: Option<&Workspace>,
    faults: &Faults,
) -> Result<Option<Aside>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    // The lock is held to the end.
    let (layers, Some(root)) = locked(layers_dir, run)? else { return Ok(None) };
    if !is_decided(&root).map_err(io)? {
        return Ok(None);
    }
    // The layer leaves last: as long as it has its name, another try finds what is still to do.
    let staging = workspace.map(|base| set_staging_aside(&root, base, run, faults)).transpose().map_err(io)?.flatten();
    let layer = move_to(&layers, run, kept, faults).doing("set aside", run.as_bytes()).map_err(io)?;
    // It says nothing any more, and does no harm where it stays.
    unlink_if_there(root.fd(), HALF_ASIDE.as_bytes()).unwrap_or_default();
    Ok(Some(Aside { layer, staging }))
}

/// Moves the layer `<layers_dir>/<run>`, of which no commit was decided, to a new directory in `kept`, where no
/// command reads it. Returns `None` if there is no such layer.
pub fn set_aside_undecided(layers_dir: &Path, run: &str, kept: &Path) -> Result<Option<PathBuf>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    // The lock is held to the end.
    let (layers, Some(root)) = locked(layers_dir, run)? else { return Ok(None) };
    if is_decided(&root).map_err(io)? {
        return Err(RecoverError::Decided { run: run.to_owned() });
    }
    move_to(&layers, run, kept, &Faults::default()).doing("set aside", run.as_bytes()).map(Some).map_err(io)
}

/// Gives a staging directory in the workspace a name that no later command touches. Returns its place, also when an
/// earlier try did that.
fn set_staging_aside(
    root: &Workspace,
    base: &Workspace,
    run: &str,
    faults: &Faults,
) -> Result<Option<PathBuf>, IoFailure> {
    let name = slots_in_workspace(run);
    if base.stat(name.as_bytes()).doing("look at", name.as_bytes())?.is_none() {
        if !is_half_aside(root)? {
            return Ok(None);
        }
        return Ok(found_in_workspace(base, run).doing("list", b"")?.pop().map(|one| one.at.as_path().to_owned()));
    }
    faults.between_calls();
    write(root, HALF_ASIDE, &true, faults)?;
    sync_directory(root, faults)?;
    // What cannot be renamed stays under its own name.
    Ok(Some(set_aside_in_workspace(base, run, &name, faults).unwrap_or_else(|_| base.path().join(&name))))
}

fn move_to(layers: &Workspace, run: &str, kept: &Path, faults: &Faults) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(kept) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let all = Workspace::open(kept).map_err(|failure| failure.source)?;
    let name = move_to_a_free_name(Spot { dir: layers.fd(), name: run.as_bytes() }, &all, run, faults)?;
    for tree in [&all, layers] {
        sync_directory(tree, faults).map_err(|failure| failure.source)?;
    }
    Ok(kept.join(name))
}

/// Lists the layers of `run` that [`set_aside`] moved to `kept`. A command that was killed right after the move has
/// reported none of them.
pub fn found_set_aside(kept: &Path, run: &str) -> Result<Vec<PathBuf>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let all = match Workspace::open(kept) {
        Err(failure) if is_gone(&failure.source) => return Ok(Vec::new()),
        other => other.map_err(io)?,
    };
    let names = all.readable_dir(b"").and_then(|dir| names(dir.as_fd())).doing("list", b"").map_err(io)?;
    let mut found: Vec<_> = names.into_iter().filter(|name| is_numbered(name, run)).collect();
    found.sort();
    Ok(found.iter().map(|name| kept.join(OsStr::from_bytes(name))).collect())
}

/// Lists the entries that commits and rejects of `run` could not or must not remove, and therefore moved beside the
/// layers.
pub fn found_kept(layers_dir: &Path, run: &str) -> Result<Vec<PathBuf>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let layers = Workspace::open(layers_dir).map_err(io)?;
    let mut found = found_aside(&layers, run).doing("list", b".kept").map_err(io)?;
    found.sort();
    Ok(found)
}

/// Lists the staging directories of `run` that stay in `workspace`, under names that no command touches.
pub fn found_staging(run: &str, workspace: &Workspace) -> Result<Vec<Leftover>, RecoverError> {
    let found = found_in_workspace(workspace, run).doing("list", b"");
    found.map_err(|source| RecoverError::Io { run: run.to_owned(), source })
}

/// Removes the copies that an undecided commit of `run` left in the workspace. Returns the entries that stay: files
/// that a process may have written to, and files that an earlier commit could not remove.
pub fn clear_staging(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Vec<Leftover>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let kept = || found_in_workspace(workspace, run).doing("list", b"").map_err(io);
    let name = slots_in_workspace(run);
    if workspace.stat(name.as_bytes()).doing("look at", name.as_bytes()).map_err(io)?.is_none() {
        return kept();
    }
    // Held until they are gone: another commit of this layer makes its own.
    let (_, root) = locked(layers_dir, run)?;
    if let Some(root) = &root
        && is_decided(root).map_err(io)?
    {
        return Ok(Vec::new());
    }
    match &root {
        Some(root) => remove_slots(root, workspace, run, SlotPlace::Workspace, &Faults::default()),
        // What the layer said about it is gone, too.
        None => keep_slots(workspace, workspace, run, SlotPlace::Workspace, &Faults::default()),
    }
    .map_err(io)?;
    kept()
}
