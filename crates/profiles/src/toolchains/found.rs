//! Collection of everything that toolchains and package clients need inside.

use super::host::{ToolHost, can};
use nexus_policy::profile::{Origin, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Read-only bind of a host path or a made file that a toolchain needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBind {
    /// Source of the bind.
    pub source: FoundSource,
    /// Path inside the sandbox.
    pub target: PathBuf,
    /// Description of the bind for the user.
    pub why: &'static str,
    /// Origin of the request for the toolchain.
    pub from: Origin,
}

impl FoundBind {
    /// Reports whether a path of the host is shown at its own place.
    pub(super) fn is_own_place(&self) -> bool {
        matches!(&self.source, FoundSource::Path(source) if *source == self.target)
    }
}

/// Source of a bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundSource {
    /// Path of the host.
    Path(PathBuf),
    /// File that Nexus makes with this content.
    Made(Vec<u8>),
}

/// Directory of a tool that keeps its path of outside: what the tool builds in a workspace holds the paths of what it was built
/// from, and with other ones a build after a run, or a run after a build, would compile everything again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundHome {
    /// Variable that names the directory to the tool.
    pub variable: &'static str,
    /// Its path, outside and inside. What is there inside is private and empty but for what binds show in it.
    pub path: PathBuf,
}

/// Everything that the toolchains need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Files and directories to show inside.
    pub binds: Vec<FoundBind>,
    /// Directories to put in front of PATH.
    pub path: Vec<Sourced<PathBuf>>,
    /// Variables inside, by name.
    pub env: BTreeMap<String, Sourced<OsString>>,
    /// Directories of tools that keep their paths.
    pub homes: Vec<FoundHome>,
    /// Messages for the user: tools that were not found, paths that stay read-only.
    pub notes: Vec<String>,
}

impl Found {
    /// Reports whether an executable program exists inside at this path.
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
