//! Keeps the notes about indexes of the workspace in the directory of a layer.

use crate::beneath::IoFailure;
use crate::entries::index_notes::IndexNote;
use crate::entries::tree::LayerTree;
use crate::faults::Faults;
use crate::journal::file;
use crate::store::locked::Locked;

/// The file of a layer's directory with the notes.
pub(crate) const INDEXES: &str = "indexes.json";

/// Reads the notes of a layer. Notes that cannot be read are none: a change of the index is a conflict then.
pub(crate) fn notes(root: &Locked) -> Vec<IndexNote> {
    file::read(root, INDEXES).ok().flatten().unwrap_or_default()
}

/// Writes the notes of a layer that is parked, unless it has them.
pub(crate) fn write_notes(root: &Locked, tree: &LayerTree, faults: &Faults) -> Result<(), IoFailure> {
    if tree.indexes.is_empty() || tree.indexes == notes(root) {
        return Ok(());
    }
    file::write(root, INDEXES, &tree.indexes, faults)
}
