//! Collects what is led to, and holds what the search needs of the host.

use super::resolve::{Route, Top};
use crate::class::Class;
use crate::names::{Names, Pattern};
use nexus_beneath::{Doing as _, IoFailure, join as join_names};
use std::collections::HashSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The directories of a user and the configurations of git that hold in every repository.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Home directories of the users whose programs work in the workspace.
    pub homes: Vec<PathBuf>,
    /// git's configurations of these users and of the system.
    pub git_configurations: Vec<PathBuf>,
    /// Places from which Nexus reads its own configuration and that of package clients, whether there is something or not.
    pub configurations: Vec<PathBuf>,
}

/// Bounds of the search of the workspace for links and repositories, the nearest and the oldest directories first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Directories that are listed.
    pub directories: usize,
    /// Entries that are looked at.
    pub entries: usize,
}

impl Reach {
    /// For a commit.
    pub const COMMIT: Self = Self { directories: 2000, entries: 100_000 };
    /// For a run without a layer, whose protected names are those of the top directory.
    pub const TOP: Self = Self { directories: 64, entries: 4096 };
}

/// Paths that a workspace may have protected this way; no user writes a configuration that names more.
const MAX_PATHS: usize = 4096;

/// Collects what is led to.
pub(super) struct Leads<'a> {
    pub(super) top: Top<'a>,
    pub(super) host: &'a Host,
    pub(super) known: HashSet<Vec<u8>>,
    /// Paths of the workspace.
    pub(super) found: Vec<Pattern>,
    /// Paths relative to whatever repository is worked in.
    pub(super) everywhere: Vec<Pattern>,
    /// The reason to protect all of the workspace, if there is one.
    pub(super) everything: Option<String>,
    /// A configuration has `git push` go to the upstream of a branch, whatever its name.
    pub(super) pushes_to_upstream: bool,
    /// Directories that `core.hooksPath` names, each with the directory in which git starts their hooks.
    pub(super) hooks: Vec<(PathBuf, PathBuf)>,
    /// Directories of hooks that git starts in every repository, also in one that a run makes.
    pub(super) hooks_of_all: Vec<PathBuf>,
}

impl Leads<'_> {
    /// Follows an absolute path.
    pub(super) fn follow(&self, path: &Path) -> Result<Route, IoFailure> {
        self.top.follow(path).doing("follow", path.as_os_str().as_bytes())
    }

    /// Protects the links on a way and its end, and keeps the directories before a `..` on it from becoming links. With
    /// `around` also a workspace that lies in what it leads to.
    pub(super) fn protect(&mut self, way: &Route, why: &str, around: bool) -> Result<(), IoFailure> {
        for real in way.links.iter().chain([&way.end]) {
            match self.top.inside(real) {
                Some([]) | None => {}
                Some(path) => self.add(path, why)?,
            }
        }
        for real in &way.turns {
            match self.top.inside(real) {
                Some([]) | None => {}
                // No entry has that name, so that nothing in the directory waits; it alone has to stay a directory.
                Some(path) => self.add(&join_names(path, b".."), why)?,
            }
        }
        if around && self.top.path.starts_with(&way.end) {
            self.everything.get_or_insert_with(|| why.to_owned());
        }
        Ok(())
    }

    pub(super) fn add(&mut self, path: &[u8], why: &str) -> Result<(), IoFailure> {
        if self.known.insert(path.to_vec()) {
            self.is_room(path)?;
            self.found.push(Pattern::of_directory(path, why));
        }
        Ok(())
    }

    /// Protects a relative path wherever it is.
    pub(super) fn add_everywhere(&mut self, path: &[u8], why: &str) -> Result<(), IoFailure> {
        self.push_everywhere(Pattern::anywhere(path, why), path)
    }

    /// Protects a relative path that programs start in whatever repository is worked in.
    pub(super) fn add_of_any_repository(&mut self, path: &[u8], why: &str) -> Result<(), IoFailure> {
        self.push_everywhere(Pattern::of_any_repository(path, why), path)
    }

    fn push_everywhere(&mut self, pattern: Pattern, path: &[u8]) -> Result<(), IoFailure> {
        if !self.everywhere.contains(&pattern) {
            self.is_room(path)?;
            self.everywhere.push(pattern);
        }
        Ok(())
    }

    fn is_room(&self, path: &[u8]) -> Result<(), IoFailure> {
        if self.found.len() + self.everywhere.len() < MAX_PATHS {
            return Ok(());
        }
        Err(std::io::Error::other("more paths are named than can be protected")).doing("protect", path)
    }
}

/// Joins bytes to a path.
pub(super) fn join(at: &Path, rest: &[u8]) -> PathBuf {
    at.join(std::ffi::OsString::from_vec(rest.to_vec()))
}

/// Reports whether the names of `protected` protect a path itself, beyond refusing a link there.
pub(super) fn is_listed(protected: &Names, path: &[u8]) -> bool {
    !matches!(protected.class(path), Class::Plain | Class::NoLink)
}

/// The default names, for directories other than the workspace.
pub(super) fn standard() -> Names {
    Names::standard()
}
