//! The protected names of a run: what a commit holds back. `direct` has those that a direct run covers.

use crate::causes::chain;
use crate::host::Host;
use crate::plan::git_host;
use crate::state::homes;
use nexus_layer::entries::protected::PatternError;
use nexus_layer::{IoFailure, Layer, Reach, Rules, Workspace};
use std::path::Path;

/// The protected names of a workspace cannot be found out.
#[derive(Debug, thiserror::Error)]
pub enum ProtectError {
    /// The layer cannot be read.
    #[error("the directories of the layer cannot be listed: {}", chain(source))]
    Layer {
        /// The answer of the system.
        source: IoFailure,
    },
    /// The other runs cannot be listed.
    #[error("the directories in which other runs wait cannot be listed: {source}")]
    Runs {
        /// The answer of the system.
        source: std::io::Error,
    },
    /// A name of the run is not a pattern. Names are checked when they are read, so that only a changed file of the state
    /// directory has one.
    #[error("{source}")]
    Name {
        /// The answer of the reader of patterns.
        source: PatternError,
    },
    /// The workspace cannot be read.
    #[error("the workspace's protected names cannot be found out: {}", chain(source))]
    Workspace {
        /// The answer of the system.
        source: IoFailure,
    },
}

impl ProtectError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "protect"
    }
}

/// Returns the rules of a commit of `layer` to the workspace at `path`, with the names that the run adds and
/// the directories in which other runs wait.
pub fn rules(
    host: &Host,
    more: &[String],
    layer: &Layer,
    workspace: &Workspace,
    path: &Path,
) -> Result<Rules, ProtectError> {
    let touched = layer.touched(workspace).map_err(|source| ProtectError::Layer { source })?;
    let rules = within(host, more, workspace, path, Reach::COMMIT, &touched)?;
    let homes = homes::others(layer, path).map_err(|source| ProtectError::Runs { source })?;
    Ok(Rules { homes, ..rules })
}

/// Returns the rules for what `reach` allows to look at, without a layer.
pub fn within(
    host: &Host,
    more: &[String],
    workspace: &Workspace,
    path: &Path,
    reach: Reach,
    touched: &[Vec<u8>],
) -> Result<Rules, ProtectError> {
    let rules = Rules::protecting(more).map_err(|source| ProtectError::Name { source })?;
    let host = git_host::find(host, path);
    rules.for_workspace(workspace, path, &host, reach, touched).map_err(|source| ProtectError::Workspace { source })
}
