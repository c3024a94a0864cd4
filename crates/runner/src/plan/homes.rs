//! Directories of tools that have inside the path that they have outside, so that builds inside and outside have the same
//! fingerprints. Pure.

use crate::request::{RunRequest, ToolHome};
use nexus_model::ByteText;
use std::path::Path;

/// The directories of a run, and those that are not private because something else lies there.
#[derive(Debug, Clone, Default)]
pub struct Homes {
    kept: Vec<ToolHome>,
    lost: Vec<ToolHome>,
}

impl Homes {
    /// Sorts the directories of a request. `inside` is the place of the workspace, and `binds` are those of what is shown.
    ///
    /// Such a directory may lie in a bind that a person asked for. Then a tool without a network reads there what is shown, and one with a
    /// network, which has to write, has its directory in HOME as if there were none outside.
    pub fn of(request: &RunRequest, inside: &Path, binds: &[&Path]) -> Self {
        let is_free = |home: &ToolHome| {
            let path = home.path.as_path();
            let meets_workspace = path.starts_with(inside) || inside.starts_with(path);
            !meets_workspace && (request.network.is_none() || !is_in(path, binds))
        };
        let (kept, lost) = request.tools.homes.iter().cloned().partition(is_free);
        Self { kept, lost }
    }

    /// Returns the path that a variable gives a directory.
    pub fn named(&self, variable: &str) -> Option<&Path> {
        self.kept.iter().find(|home| home.variable == variable).map(|home| home.path.as_path())
    }

    /// Reports whether a variable names a directory that a run does not have.
    pub fn lost(&self, name: &ByteText, value: &ByteText) -> bool {
        self.lost.iter().any(|home| name.as_os_str() == home.variable && value.as_path() == home.path)
    }

    /// Returns the places of the directories that are private: those in which no bind of a run lies at the place itself or above.
    pub fn private(&self, binds: &[&Path]) -> Vec<ByteText> {
        let free = self.kept.iter().filter(|home| !is_in(&home.path, binds));
        free.map(|home| ByteText::from(home.path.as_path())).collect()
    }
}

fn is_in(path: &Path, binds: &[&Path]) -> bool {
    binds.iter().any(|bind| path.starts_with(bind))
}
