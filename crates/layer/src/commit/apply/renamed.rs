//! Tracks the directories that a commit renames: they exist in the workspace or a slot, never in the layer.

use crate::journal::file::KeptBack;
use crate::journal::seen::Seen;
use crate::journal::step::{Slot, Step};
use crate::meta::FileId;
use nexus_model::ByteText;
use std::collections::HashMap;

/// The old place of a renamed directory, the directory, and overlay's mark there.
pub(super) type Renamed = (ByteText, Seen, Option<ByteText>);

/// By slot: the place that a later step brings its entry to, and the identity of what stood there.
pub(super) type Brought = HashMap<Slot, (ByteText, Option<FileId>)>;

/// The result of `Apply::return_renamed`.
#[derive(Debug)]
pub(super) enum Returned {
    /// The step brings no renamed directory.
    NotRenamed,
    /// The renamed directory is at its old place, or was never taken from it.
    Home,
    /// It lies beside its new place.
    Beside(ByteText),
}

/// Returns the renamed directory that a step moves, with its slot.
pub(super) fn renamed(step: &Step) -> Option<(Slot, Renamed)> {
    match step {
        Step::Take { at, old, slot, renamed: true, whiteout } => Some((*slot, (at.clone(), *old, whiteout.clone()))),
        _ => None,
    }
}

/// Returns the mark at the old place of a renamed directory, which stays with it.
pub(super) fn whiteout_of(path: ByteText) -> KeptBack {
    KeptBack { path, conflict: None, in_layer: true, subtree: false, arrived: false }
}
