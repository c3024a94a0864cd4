//! Ends of layers whose run is gone: parked, removed, or removed bit by bit.

use crate::causes::chain;
use crate::notices::{Notice, Notify, tell_leftovers};
use crate::recover::error::ClearError;
use crate::recover::remove::remove;
use crate::recover::retry::{is_busy, patiently};
use crate::recover::unsaid::KEPT;
use crate::state::directory::StateDir;
use crate::state::identity::DirectoryId;
use crate::state::note::{self, CutShort};
use nexus_layer::disk::going::Going;
use nexus_layer::{
    Abandoned, FsTime, Layer, LayerMode, LayerOrigin, OpenLayerError, RecoverError, Rules, is_whole_copy,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// Result of [`park`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parked {
    /// The layer waits for a review, or it is gone because nothing of it is to wait.
    Done,
    /// The disk is full. The layer is as it was, and a later command parks it.
    NoRoom {
        /// The error, with the path to which it belongs.
        why: String,
    },
}

/// Parks the changes that a killed run had written, and reports that. A layer that was being removed is removed
/// completely.
pub fn park(places: &StateDir, run: &str, notify: Notify<'_>) -> Result<Parked, String> {
    let tell = |line: String| notify(&Notice::Recovered(line));
    let path = places.layers.join(run);
    let io = |error: std::io::Error| format!("{}: {error}", path.display());
    let read = note::read(&path);
    let why = read.as_ref().err().map(|error| format!(" ({error})")).unwrap_or_default();
    let note = read.ok().flatten();
    let origin = match &note {
        Some(note) => note.origin(&path).map_err(io)?,
        None => LayerOrigin::guessed(LayerMode::User, FsTime::default()),
    };
    let adopt = || Layer::adopt(&places.layers, run, &origin);
    let mut layer =
        patiently(adopt, |error| matches!(error, OpenLayerError::Busy { .. })).map_err(|error| chain(&error))?;
    let is_part = note.as_ref().is_some_and(|note| note.in_memory) && !is_whole_copy(&path).map_err(io)?;
    if is_part {
        layer.set_partial();
    }
    if layer.is_bare().map_err(|error| chain(&error))? {
        if note.is_some_and(|note| note.in_memory) {
            tell(format!("The run {run} was killed. What it had written was in memory (--disk) and is gone."));
        }
        return remove(layer, notify).map(|()| Parked::Done);
    }
    let Some(mut note) = note else {
        // Nothing was decided, so no workspace is half old and half new: no run has to wait for this.
        tell(format!(
            "The run {run} was killed, and what is known of it cannot be read{why}. Its files are in {}; \
             nexus changes reject --run {run} removes them.",
            layer.upper().display()
        ));
        return Ok(Parked::Done);
    };
    let why = if is_part { CutShort::Partial } else { note.cut_by_kill() };
    if why == CutShort::Rebooted {
        // No process of that time is left.
        layer.set_unreached();
    }
    note.cut_short = Some(why);
    match note.write(&path).and_then(|()| note::sync(&path)) {
        Err(error) if is_no_room(&error) && note.discards => {
            remove(layer, notify)?;
            tell(format!("The run {run} was killed. Its changes were to be discarded and are: the disk is full."));
            return Ok(Parked::Done);
        }
        Err(error) if is_no_room(&error) => return Ok(Parked::NoRoom { why: io(error) }),
        other => other.map_err(io)?,
    }
    // A review reads the layer again: a failure now refuses nothing.
    let parked = note.directory.open_at(note.workspace.as_path()).ok();
    let parked = parked.and_then(|directory| layer.park(&directory, &Rules::default()).ok());
    if parked.is_some_and(|changes| changes.is_empty()) {
        return remove(layer, notify).map(|()| Parked::Done);
    }
    let show = format!("nexus changes show --run {run}");
    match why {
        CutShort::Left => tell(format!("The sandbox of the run {run} is gone now; its changes are parked: {show}.")),
        CutShort::Killed => tell(format!("The run {run} was killed; its changes are parked: {show}.")),
        CutShort::Rebooted | CutShort::Unknown | CutShort::Partial => {
            tell(format!("The run {run} was killed; its changes are parked: {show}. But {}.", why.text()));
        }
    }
    Ok(Parked::Done)
}

/// Reports whether a disk or a quota is full.
fn is_no_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Time that each command spends on layers that are going away.
const ON_GOING: Duration = Duration::from_millis(200);

/// Removes part of the layers in `going`, which take long to remove.
pub fn remove_going(places: &StateDir) -> Result<(), ClearError> {
    let end = Instant::now() + ON_GOING;
    remove_going_until(places, &mut || Instant::now() >= end).map(drop)
}

/// Removes layers in `going` until `stop` returns true. Returns how many layers there were.
pub fn remove_going_until(places: &StateDir, stop: &mut dyn FnMut() -> bool) -> Result<usize, ClearError> {
    let failed = |error| ClearError::not_cleared(&chain(&error));
    let Some(going) = Going::open(&places.layers).map_err(failed)? else { return Ok(0) };
    let count = going.count().map_err(failed)?;
    if count > 0 {
        going.remove(stop).map_err(failed)?;
    }
    Ok(count)
}

/// Removes the rest of a layer, and reports entries that cannot be removed.
pub fn abandon(places: &StateDir, run: &str, tell: Notify<'_>) -> Result<(), String> {
    let abandon = || nexus_layer::abandon(&places.layers, run, || Ok(()));
    match patiently(abandon, is_busy) {
        Ok(Abandoned::Removed(left)) => tell_leftovers(tell, left.iter()),
        Ok(Abandoned::Nothing) => {}
        // A reject by an older version was interrupted before it had taken the commit back.
        Err(RecoverError::Decided { .. }) => {
            let set_aside = || nexus_layer::set_aside(&places.layers, run, &places.state.join(KEPT), None);
            if let Some(aside) = patiently(set_aside, is_busy).map_err(|error| chain(&error))? {
                tell(&Notice::Recovered(format!(
                    "What the interrupted commit of the run {run} displaced is in {}.",
                    aside.layer.display()
                )));
            }
        }
        Err(error) => return Err(chain(&error)),
    }
    Ok(())
}

/// Removes the copies that a killed accept made in the workspace, if the workspace still exists.
pub fn clear_staging(places: &StateDir, run: &str, path: &Path, id: DirectoryId, tell: Notify<'_>) {
    let Ok(directory) = id.open_at(path) else { return };
    match nexus_layer::clear_staging(&places.layers, run, &directory) {
        Ok(kept) => tell_leftovers(tell, kept.iter()),
        Err(error) => {
            let (path, why) = (path.display(), chain(&error));
            tell(&Notice::Recovered(format!("Copies of the run {run} could not be removed from {path}: {why}.")));
        }
    }
}
