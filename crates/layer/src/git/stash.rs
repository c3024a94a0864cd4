//! A git commit that may hold uncommitted changes that git removed from a working tree (`git stash`).

use nexus_model::ByteText;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Stashes that one command names.
pub(crate) const NAMED: usize = 5;

/// A file of a git directory that names, or may name, a commit with uncommitted changes from a working tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stash {
    /// The file of the git directory that names the commit, or named it.
    pub path: ByteText,
    /// The kind of the commit, and its object id.
    pub holds: Holds,
    /// The directory of the run in which the objects of the commit are, where the workspace does not have them.
    #[serde(skip)]
    pub objects: Option<PathBuf>,
}

/// The content of a file that names commits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// A stash, by its object id.
    Stash(String),
    /// Another commit, by its object id.
    Commit(String),
    /// The content is not read: a table of refs, a ref that stands for another one, a large file.
    Unread,
}

impl Stash {
    pub(crate) fn new(path: &[u8], holds: Holds) -> Self {
        Self { path: ByteText(path.to_vec()), holds, objects: None }
    }

    /// Returns the object id of the commit; `None` for a file that is not read.
    #[must_use]
    pub fn commit(&self) -> Option<&str> {
        match &self.holds {
            Holds::Stash(commit) | Holds::Commit(commit) => Some(commit),
            Holds::Unread => None,
        }
    }
}

impl std::fmt::Display for Stash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.as_path().display();
        match &self.holds {
            Holds::Stash(commit) => write!(
                f,
                "The run says in {path} that git took uncommitted changes out of the working tree into the commit \
                 {commit}. If some of yours are missing: git stash show -p --include-untracked {commit} shows all that \
                 it has, and git stash apply {commit} brings all of that back"
            )?,
            Holds::Commit(commit) => write!(
                f,
                "Only {path} of the run names the commit {commit}, and uncommitted changes of yours may be in it. If \
                 some are missing: git show {commit} shows what it has, and git restore --source={commit} FILE brings \
                 a file back"
            )?,
            Holds::Unread => write!(
                f,
                "Nexus cannot read which commits {path} of the run names, and uncommitted changes of yours may be in \
                 one of them. If some are missing: git fsck --lost-found lists the commits that no ref names"
            )?,
        }
        let Some(objects) = &self.objects else { return Ok(()) };
        let objects = objects.display();
        write!(f, ". git has the objects for that while the variable GIT_ALTERNATE_OBJECT_DIRECTORIES names {objects}")
    }
}
