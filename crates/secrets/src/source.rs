//! The surroundings of providers: the process that asks for values, and the paths that it trusts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The process that asks for values.
pub struct Source<'a> {
    /// The variables of its environment, which programs get too.
    pub variables: &'a BTreeMap<OsString, OsString>,
    /// Its home directory.
    pub home: Option<&'a Path>,
    /// The directory that relative paths begin at.
    pub current: &'a Path,
    /// The workspace, from which nothing is read or started: commands of earlier runs wrote there.
    pub workspace: &'a Path,
    /// The time that a program has.
    pub within: Duration,
    /// Reports whether the caller still waits.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// A weakness of the place of a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Other users of the machine may read the file.
    #[error("{} can be read by other users of this machine (its mode is {mode:o})", path.display())]
    ReadByOthers {
        /// Path of the file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// Reports whether a path leads through the workspace: commands of earlier runs chose what is there.
pub(crate) fn leads_through(workspace: &Path, path: &Path) -> bool {
    let inside = |path: &Path| path.starts_with(workspace);
    path.ancestors().any(|above| inside(above) || above.canonicalize().is_ok_and(|real| inside(&real)))
}
