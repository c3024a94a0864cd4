//! Everything that toolchains and package clients need inside.

use super::host::{ToolHost, can};
use nexus_policy::profile::{Origin, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A host path that a toolchain needs, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBind {
    /// On the host.
    pub source: FoundSource,
    /// Inside.
    pub target: PathBuf,
    /// What it is.
    pub why: &'static str,
    /// Who asked for the toolchain.
    pub from: Origin,
}

/// Where what is shown comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundSource {
    /// A path of the host.
    Path(PathBuf),
    /// A file that Nexus makes with this content.
    Made(Vec<u8>),
}

/// Everything that the toolchains need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Paths.
    pub binds: Vec<FoundBind>,
    /// Folders in front of PATH.
    pub path: Vec<Sourced<PathBuf>>,
    /// Variables.
    pub env: BTreeMap<String, Sourced<OsString>>,
    /// What the user should know: what was not found, what stays read-only.
    pub notes: Vec<String>,
}

impl Found {
    /// Reports whether a program is there inside at this place.
    pub(super) fn shows(&self, place: &Path, host: &ToolHost) -> bool {
        let is_program = |path: &Path| path.is_file() && can(path, rustix::fs::Access::EXEC_OK);
        place.starts_with(&host.workspace) && is_program(place)
            || self.binds.iter().any(|bind| match (&bind.source, place.strip_prefix(&bind.target)) {
                (FoundSource::Path(source), Ok(rest)) if rest.as_os_str().is_empty() => is_program(source),
                (FoundSource::Path(source), Ok(rest)) => is_program(&source.join(rest)),
                _ => false,
            })
    }
}
