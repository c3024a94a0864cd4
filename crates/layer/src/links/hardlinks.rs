//! Decides which names of one file may stay names of one file.
//!
//! With `index=on` (root's layers) a write through one name of a file shows under all of them, and a commit repeats
//! that by writing the file of the workspace. It must not write a name that it would not be allowed to write alone:
//!
//! * a protected name: a link made in one run would let the next run write a git hook through it;
//! * a name in a git directory: an object or a branch, written through another name, has no entry in the layer that a
//!   rule could hold back. Objects alone may share a file (`git clone` within the workspace) while it is as it was;
//! * a name outside the workspace, which the number of names tells and no search finds.
//!
//! Such names part: each name in the layer becomes a file of its own, and the names outside the layer keep the old one.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, join, names, split};
use crate::entries::tie::Tie;
use crate::entries::tree::{Found, Group, LayerTree};
use crate::meta::{EntryType, FileId, stat, stat_if_there};
use crate::read::git_dirs;
use crate::read::git_dirs::has;
use crate::read::walk::{Walk, WalkError};
use nexus_git::objects::is_shaped;
use nexus_git::refs::inside_git;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Reports whether the file of the workspace may be written under all its names at once. A change without a name in the
/// layer is planned only when the user accepted it.
pub(crate) fn may_stay_one(group: &Group) -> bool {
    group.tie == Tie::Whole || group.members.is_empty()
}

/// Reports whether each name has to become a file of its own.
pub(crate) fn must_part(group: &Group) -> bool {
    group.tie == Tie::Protected
}

/// Fills in [`Group::tie`] and [`Group::others`]. Only when a file has more names than the layer shows is the workspace
/// searched for them.
pub(crate) fn tie(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), WalkError> {
    if tree.groups.is_empty() {
        return Ok(());
    }
    let known = known_names(tree);
    let missing = |(group, names): (&Group, &HashSet<Vec<u8>>)| {
        let anchor = group.anchor.as_ref()?;
        let all = usize::try_from(anchor.meta.links).is_ok_and(|links| names.len() >= links);
        (!all).then_some(anchor.meta.id)
    };
    let wanted: HashSet<FileId> = tree.groups.iter().zip(&known).filter_map(missing).collect();
    let found = if wanted.is_empty() { HashMap::new() } else { search(walk.base, &wanted)? };
    let mut repositories = Repositories { walk, known: HashMap::new() };
    for (number, mut names) in known.into_iter().enumerate() {
        let group = &tree.groups[number];
        let anchor = group.anchor.as_ref();
        let all = anchor.and_then(|anchor| found.get(&anchor.meta.id)).into_iter().flatten();
        let others: Vec<Found> = all.filter(|one| !names.contains(&*one.at.0)).cloned().collect();
        names.extend(others.iter().map(|one| one.at.0.to_vec()));
        let classified = |at: &usize| {
            let node = &tree.nodes[*at];
            node.rare.verdict.is_some() || walk.rules.class(&node.path.0).is_protected()
        };
        let mut is_protected = group.members.iter().any(classified);
        for name in &names {
            is_protected |= walk.rules.class(name).is_protected() || git_dirs::holds(walk.base, name)?;
        }
        let of_git = repositories.holds(tree, group, &names)?;
        let is_protected = is_protected || of_git == OfGit::Parts;
        let tie = Tie::of(anchor.map(|anchor| anchor.meta.links), names.len(), is_protected);
        let group = &mut tree.groups[number];
        group.same |= of_git == OfGit::Stays;
        (group.tie, group.others) = (tie, others);
    }
    Ok(())
}

/// The consequence of names in git directories for the names that share a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfGit {
    /// No name is in a git directory, or objects share the file and it is as it was.
    Free,
    /// The names part.
    Parts,
    /// All names are objects of the workspace, and the layer has none of them any more: the file stays as it is.
    Stays,
}

/// Finds git directories around names.
struct Repositories<'a> {
    walk: &'a Walk<'a>,
    /// Records for each directory that was inspected if it is one.
    known: HashMap<Vec<u8>, bool>,
}

impl Repositories<'_> {
    /// Decides for a group, of which `names` are in the workspace.
    fn holds(&mut self, tree: &LayerTree, group: &Group, names: &HashSet<Vec<u8>>) -> Result<OfGit, IoFailure> {
        let members = group.members.iter().map(|at| &*tree.nodes[*at].path.0);
        let all: HashSet<&[u8]> = names.iter().map(Vec::as_slice).chain(members).collect();
        if all.iter().all(|name| is_shaped(name)) {
            return Ok(match (&group.anchor, group.members.is_empty()) {
                (Some(_), true) => OfGit::Stays,
                (Some(_), false) if !group.same => OfGit::Parts,
                _ => OfGit::Free,
            });
        }
        for name in all {
            if is_shaped(name) || inside_git(name).is_some() || self.is_inside(name)? {
                return Ok(OfGit::Parts);
            }
        }
        Ok(OfGit::Free)
    }

    /// Reports whether a directory around a path is a git directory by its entries, those of the layer among them.
    fn is_inside(&mut self, path: &[u8]) -> Result<bool, IoFailure> {
        let mut at = path;
        while !at.is_empty() {
            at = split(at).0;
            let is_one = match self.known.get(at) {
                Some(is_one) => *is_one,
                None => self.is_one(at)?,
            };
            self.known.insert(at.to_vec(), is_one);
            if is_one {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_one(&self, directory: &[u8]) -> Result<bool, IoFailure> {
        let is_there = |name| Ok(has(self.walk.base, directory, name)? || has(self.walk.upper, directory, name)?);
        Ok(is_there(b"HEAD")? && (is_there(b"objects")? || is_there(b"commondir")?))
    }
}

/// For each group the names in the workspace that the layer shows.
fn known_names(tree: &LayerTree) -> Vec<HashSet<Vec<u8>>> {
    let mut groups: HashMap<FileId, HashSet<Vec<u8>>> = HashMap::new();
    for anchor in tree.groups.iter().filter_map(|group| group.anchor.as_ref()) {
        groups.entry(anchor.meta.id).or_default().insert(anchor.at.0.to_vec());
    }
    for found in tree.nodes.iter().filter_map(|node| node.covers.as_deref()) {
        if let Some(names) = groups.get_mut(&found.meta.id) {
            names.insert(found.at.0.to_vec());
        }
    }
    let names_of = |group: &Group| group.anchor.as_ref().and_then(|anchor| groups.get(&anchor.meta.id)).cloned();
    tree.groups.iter().map(|group| names_of(group).unwrap_or_default()).collect()
}

/// Finds all names of some files in the workspace. A directory on another device, as a subvolume is, has files of its own with
/// the same numbers, and those of a snapshot are as old.
fn search(base: &Workspace, wanted: &HashSet<FileId>) -> Result<HashMap<FileId, Vec<Found>>, IoFailure> {
    let mut found: HashMap<FileId, Vec<Found>> = HashMap::new();
    let device = stat(base.fd(), b"").doing("look at", b"")?.dev;
    let mut stack = vec![Vec::new()];
    while let Some(at) = stack.pop() {
        let dir = match base.readable_dir(&at) {
            Ok(dir) => dir,
            // Gone meanwhile, another mount, or closed to this user: names there stay unknown, and the names part.
            Err(error) if is_gone(&error) || is_closed(&error) => continue,
            Err(error) => return Err(error).doing("open", &at),
        };
        for name in names(dir.as_fd()).doing("list", &at)? {
            let path = join(&at, &name);
            let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", &path)? else { continue };
            if meta.kind == EntryType::Directory {
                if meta.dev == device {
                    stack.push(path);
                }
            } else if wanted.contains(&meta.id) {
                found.entry(meta.id).or_default().push(Found { at: path.into(), meta });
            }
        }
    }
    Ok(found)
}

fn is_closed(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::ACCESS, Errno::PERM, Errno::XDEV, Errno::LOOP]
        .iter()
        .any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_file_only_when_all_are_known_and_free() {
        for (links, found, is_protected, wanted) in [
            (None, 0, false, Tie::Whole),
            (None, 0, true, Tie::Protected),
            (Some(2), 2, false, Tie::Whole),
            (Some(3), 2, false, Tie::Unknown),
            (Some(2), 2, true, Tie::Protected),
            (Some(3), 2, true, Tie::Protected),
        ] {
            assert_eq!(Tie::of(links, found, is_protected), wanted, "{links:?} {found} {is_protected}");
        }
    }
}
