//! Tells whether the commits that a layer names have their trees, files and parents, and whether its branches name commits.

use super::objects::Trees;
use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::fold::fold;
use crate::git::shallow::words;
use nexus_git::commits::place;
use nexus_git::index::lengths::lengths_by as id_lengths;
use nexus_git::packs::history::{History, Missing, Reach};
use nexus_git::small::read_small;
use std::collections::HashSet;
use std::os::fd::AsFd as _;

/// A flaw of the objects that a layer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// A commit has no tree, file or parent.
    Commit,
    /// An index has files without content.
    Index,
    /// A branch names no commit.
    Branch,
}

impl Wrong {
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Commit => "a commit of the run needs git objects that are neither here nor in the run (see git fsck)",
            Self::Index => "an index names files that git has neither here nor in the run",
            Self::Branch => "a branch names something else than a commit",
        }
    }
}

/// The objects that the new files of a git directory name.
#[derive(Default)]
pub(super) struct Named {
    pub(super) all: Vec<Vec<u8>>,
    /// Those of branches and of `HEAD`.
    pub(super) branches: Vec<Vec<u8>>,
    /// Files that an index has and the one of before does not have, as bytes.
    pub(super) files: HashSet<Vec<u8>>,
}

/// Returns what is wrong with the objects that a layer names. `trees` has the git directory in the layer and in the workspace.
pub(super) fn wrong(trees: Trees<'_>, named: &Named) -> Result<Option<Wrong>, IoFailure> {
    let [layer, base] = trees;
    let Some(mut history) = History::of(&[base, layer], id_lengths, true)? else { return Ok(None) };
    if named.branches.iter().any(|id| history.is_other_than_commit(id)) {
        return Ok(Some(Wrong::Branch));
    }
    let mut ends = shallow(base)?;
    ends.extend(shallow(layer)?);
    let ends: HashSet<&[u8]> = words(&ends).collect();
    let starts: Vec<&[u8]> = named.all.iter().map(Vec::as_slice).collect();
    let is_of_layer = |is_of_layer: bool, _: &[u8]| is_of_layer;
    if history.needs(&starts, &ends, &is_of_layer, Missing::Nowhere) == Reach::Broken {
        return Ok(Some(Wrong::Commit));
    }
    Ok((history.has_each(&named.files, Missing::Nowhere) == Reach::Broken).then_some(Wrong::Index))
}

/// Reads the file that says where the history of a git directory ends.
fn shallow((tree, git_dir): (&Workspace, &[u8])) -> Result<Vec<u8>, IoFailure> {
    match tree.dir(git_dir).and_then(|dir| read_small(dir.as_fd(), b"shallow")) {
        Ok(text) => Ok([&text.unwrap_or_default()[..], b"\n"].concat()),
        Err(error) if is_no_way(&error) => Ok(Vec::new()),
        // A mark of overlay says that it is gone.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(Vec::new()),
        Err(error) => Err(error).doing("read", git_dir),
    }
}

/// Reports whether a file is a branch or a `HEAD`.
pub(super) fn names_branch(path: &[u8]) -> bool {
    place(path).is_some_and(|place| {
        let inside = fold(place.inside);
        inside.as_ref() == b"head" || inside.starts_with(b"refs/heads/")
    })
}
