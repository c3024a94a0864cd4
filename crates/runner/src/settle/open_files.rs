//! Lists files that other programs have open while a commit replaces them.

use nexus_layer::{Layer, Rules, Workspace, open_for_reading};
use nexus_model::ByteText;

/// Lists the files that a commit may replace and that programs have open for reading. A layer that cannot be read has
/// none here: the commit itself says why.
pub fn readers(layer: &Layer, workspace: &Workspace, rules: &Rules) -> Vec<ByteText> {
    let changes = layer.changes(workspace, rules).unwrap_or_default();
    open_for_reading(workspace, changes.changes.iter().map(|change| &change.path), nexus_driver_namespace::write_lease)
}
