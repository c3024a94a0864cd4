//! Lists the objects that a layer has while a commit of it is carried out: those of a repository, and those of the repositories of
//! the same workspace that it borrows from.

use super::Apply;
use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, is_no_way, join, names, split};
use crate::journal::file::JOURNAL;
use crate::journal::step::Step;
use crate::meta::{EntryType, stat_if_there};
use nexus_git::objects::has_shape;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Entries of a layer that are looked at for directories of objects.
const MAX_ENTRIES: usize = 200_000;
/// Directories of objects in which something waits.
const MAX_DIRECTORIES: usize = 256;

/// The objects that a layer has.
#[derive(Default)]
pub(super) struct OfLayer {
    /// Those that the commit leaves there.
    pub(super) waiting: Vec<Vec<u8>>,
    /// Those that the workspace had when the commit was decided.
    pub(super) copies: Vec<Vec<u8>>,
}

impl Apply<'_> {
    /// Returns the objects that the layer still has in these directories of objects.
    pub(super) fn objects_of_layer<'b>(
        &self,
        directories: impl IntoIterator<Item = &'b Vec<u8>>,
    ) -> Result<OfLayer, IoFailure> {
        let keep: HashMap<&[u8], bool> =
            self.journal.header.keep.iter().map(|one| (one.path.0.as_slice(), one.subtree)).collect();
        let waits = |path: &[u8]| {
            let mut at = path;
            let mut waits = keep.contains_key(at);
            while !waits && !at.is_empty() {
                at = split(at).0;
                waits = keep.get(at).copied().unwrap_or_default();
            }
            waits
        };
        let mut found = OfLayer::default();
        for directory in directories {
            for path in objects_in(self.upper, directory)? {
                let list = if waits(&path) { &mut found.waiting } else { &mut found.copies };
                list.push(path);
            }
        }
        Ok(found)
    }

    /// Returns all directories of objects in which something waits; `None` where it would take too long to find them.
    pub(super) fn directories_with_objects(&self) -> Option<Vec<Vec<u8>>> {
        let (mut found, mut left) = (BTreeSet::new(), Vec::new());
        for keep in &self.journal.header.keep {
            if has_shape_of_object(&keep.path.0) {
                found.insert(split(split(&keep.path.0).0).0.to_vec());
            } else if keep.subtree {
                left.push(keep.path.0.clone());
            }
        }
        let mut looked_at = 0;
        while let Some(path) = left.pop() {
            let dir = match self.upper.readable_dir(&path) {
                Ok(dir) => dir,
                Err(error) if is_no_way(&error) => continue,
                Err(_) => return None,
            };
            for name in names(dir.as_fd()).ok()? {
                looked_at += 1;
                let at = join(&path, &name);
                match stat_if_there(dir.as_fd(), &name).ok()?.map(|meta| meta.kind) {
                    Some(EntryType::Directory) => left.push(at),
                    Some(EntryType::File) if has_shape_of_object(&at) => {
                        found.insert(split(&path).0.to_vec());
                    }
                    _ => {}
                }
            }
            if looked_at > MAX_ENTRIES {
                return None;
            }
        }
        (found.len() <= MAX_DIRECTORIES).then(|| found.into_iter().collect())
    }

    /// Returns the paths of the objects, packs and directories of them that the commit brings to these directories of objects, or
    /// with them.
    pub(super) fn brought_objects(&self, directories: &HashSet<Vec<u8>>) -> Result<HashSet<Vec<u8>>, IoFailure> {
        let is_around = |path: &[u8]| directories.iter().any(|one| is_beneath(one, path));
        let is_inside = |path: &[u8]| directories.iter().any(|one| is_beneath(path, one));
        let mut found = HashSet::new();
        for step in self.journal.steps.each() {
            if let Step::Put(put) = step.doing("read", JOURNAL.as_bytes())?
                && (is_inside(&put.path.0) || (put.whole && is_around(&put.path.0)))
            {
                found.insert(put.path.0);
            }
        }
        Ok(found)
    }
}

/// Reports whether only an object of git or a file of a pack has such a path, also in a directory that is not named `objects`.
fn has_shape_of_object(path: &[u8]) -> bool {
    let (parent, name) = split(path);
    has_shape(&[split(parent).1, name])
}

/// Returns the paths of the objects and packs in a directory of objects of a layer.
fn objects_in(upper: &Workspace, directory: &[u8]) -> Result<Vec<Vec<u8>>, IoFailure> {
    let mut found = Vec::new();
    let Ok(objects) = upper.readable_dir(directory) else { return Ok(found) };
    for first in names(objects.as_fd()).doing("list", directory)? {
        let at = join(directory, &first);
        let Ok(dir) = upper.readable_dir(&at) else { continue };
        for name in names(dir.as_fd()).doing("list", &at)? {
            let meta = stat_if_there(dir.as_fd(), &name).doing("look at", &at)?;
            if meta.is_some_and(|meta| meta.kind == EntryType::File) && has_shape(&[&first, &name]) {
                found.push(join(&at, &name));
            }
        }
    }
    Ok(found)
}
