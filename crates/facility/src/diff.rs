//! The changes of a directive as one diff within a bound.

use nexus_layer::review::diff::{DiffOptions, RenderOptions};
use nexus_layer::{Layer, Rules, Workspace};

/// Largest diff unless a directive says otherwise, in bytes.
pub const DEFAULT_MAX: usize = 1 << 20;

/// A diff that `git apply` accepts unless it was cut.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// Holds the text of the diff.
    pub bytes: Vec<u8>,
    /// True if the middle or a part of it is missing.
    pub truncated: bool,
}

/// Compares a layer with its workspace. Of a diff over `max` bytes the head and the tail stay.
pub fn of_layer(layer: &Layer, workspace: &Workspace, rules: &Rules, max: usize) -> Result<Diff, String> {
    let diff = layer.diff(workspace, rules, &DiffOptions::default()).map_err(|error| error.to_string())?;
    let rendered = diff.render(&RenderOptions { max_bytes: max, ..RenderOptions::default() });
    Ok(Diff { bytes: rendered.bytes, truncated: rendered.truncated })
}
