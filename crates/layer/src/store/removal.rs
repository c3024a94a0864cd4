//! Removes a layer with everything in it, or sets it aside if something in it has to stay.

use crate::beneath::{Doing as _, IoFailure, Workspace, unlink_if_there};
use crate::disk::going;
use crate::disk::remove::{remove_name, remove_tree, remove_tree_until};
use crate::faults::{Faults, Phase};
use crate::journal::file::PARKED;
use crate::moves::leftover::{Leftover, set_aside};
use crate::moves::rename_calls::Spot;
use crate::notes::only_copies::{self, Stays};
use crate::notes::withdrawn::{WHY, is_marked, remove_what_is_empty};
use rustix::io::Errno;
use std::path::PathBuf;

/// The name of an upper directory that is being removed.
pub(crate) const GONE: &str = "gone";

/// Removes a layer. The note that it is parked goes first: what is left after a crash must not look like a review. What
/// cannot be removed is set aside and returned, and so is a layer to which a process may still write. What takes too
/// long is left to [`going`].
pub(crate) fn remove_layer(
    layers: &Workspace,
    root: &Workspace,
    run: &str,
    faults: &Faults,
) -> Result<Option<Leftover>, IoFailure> {
    faults.check(Phase::Discard).doing("remove", b"")?;
    let why = match only_copies::why_it_stays(root)? {
        // An error about it is not a reason to remove anything.
        None if is_marked(root)? && !remove_what_is_empty(root, faults).unwrap_or(false) => Some(Stays::because(WHY)),
        why => why,
    };
    if let Some(why) = why {
        faults.between_calls();
        let place = set_layer_aside(layers, root, run, faults)?;
        return Ok(Some(Leftover::new(&place, None, why.text(&place))));
    }
    let Err(failure) = remove_all(layers, root, run, faults).or_else(|_| remove_all(layers, root, run, faults)) else {
        return Ok(None);
    };
    // An error about the directory of all layers is not one about this layer.
    let Ok(place) = set_layer_aside(layers, root, run, faults) else { return Err(failure) };
    Ok(Some(Leftover::new(&place, None, because(&failure))))
}

fn remove_all(layers: &Workspace, root: &Workspace, run: &str, faults: &Faults) -> Result<(), IoFailure> {
    remove_name(root, PARKED).doing("remove", PARKED.as_bytes())?;
    // From this rename on it is a layer that goes away, and no half of it is ever taken for a whole one.
    match rustix::fs::renameat(root.fd(), "upper", root.fd(), GONE) {
        Ok(()) | Err(Errno::NOENT) => {}
        // An earlier removal was interrupted by an error.
        Err(Errno::NOTEMPTY | Errno::EXIST) => remove_tree(root, b"upper").doing("remove", b"upper")?,
        Err(error) => return Err(error).doing("remove", b"upper"),
    }
    let mut time_is_up = going::time_is_up();
    for directory in [GONE.as_bytes(), b"work"] {
        faults.between_calls();
        if !remove_tree_until(root, directory, &mut time_is_up).doing("remove", directory)? {
            faults.between_calls();
            return going::put(layers, run).doing("move away", run.as_bytes());
        }
    }
    faults.between_calls();
    remove_tree(layers, run.as_bytes()).doing("remove", run.as_bytes())
}

/// Moves a whole layer away, so that its name is free and no part of it is taken for a change that waits.
pub(crate) fn set_layer_aside(
    layers: &Workspace,
    root: &Workspace,
    run: &str,
    faults: &Faults,
) -> Result<PathBuf, IoFailure> {
    unlink_if_there(root.fd(), PARKED.as_bytes()).doing("remove", PARKED.as_bytes())?;
    let from = Spot { dir: layers.fd(), name: run.as_bytes() };
    set_aside(layers, run, from, "layer", faults).doing("set aside", run.as_bytes())
}

/// Writes an error in one line.
pub(crate) fn because(failure: &IoFailure) -> String {
    format!("{failure}: {}", failure.source)
}
