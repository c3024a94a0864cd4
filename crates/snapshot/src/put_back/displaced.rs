//! Compares an entry that was displaced with the one of the tree that was kept before.

use super::seen::Seen;
use super::trees::{Found, lookup, resolved};
use crate::error::SnapshotError;
use crate::object::{Content, Entry, KeptObjects, Node, ObjectId};
use crate::scan::{Inspected, inspect};
use crate::store::{Store, entries_by};
use crate::writer::Writer;
use nexus_beneath::join;
use std::os::fd::BorrowedFd;

/// Returns what was read of the entry `name` of `dir` if it is the one that the kept tree has at `path`; else `None`. All of it may be
/// removed then, as long as it stays as it was read.
pub(super) fn kept(
    store: &mut Store,
    present: &ObjectId,
    path: &[u8],
    expected: &Entry,
    (dir, name): (BorrowedFd<'_>, &[u8]),
) -> Result<Option<Seen>, SnapshotError> {
    let mut writer = Writer::dry(store);
    let inspected = match inspect(dir, name, path, &mut writer) {
        Ok(inspected) => inspected,
        // It is still being written, or cannot be read: it stays.
        Err(SnapshotError::Changing { .. } | SnapshotError::Tree(_) | SnapshotError::TooLarge { .. }) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let new = writer.into_kept();
    let Inspected { entry: Some(mut entry), has_mount: false, seen } = inspected else { return Ok(None) };
    if matches!((&entry.node, &expected.node), (Node::Directory(_), Node::Directory(_))) {
        // An owner that was kept out of it had to open it up to move it.
        if entry.attributes.mode == expected.attributes.mode | 0o700 {
            entry.attributes.mode = expected.attributes.mode;
        }
    }
    let is_kept = Comparison { store, present, new: &new }.entry(path, expected, &entry)?;
    Ok(is_kept.then_some(seen))
}

struct Comparison<'a> {
    store: &'a mut Store,
    present: &'a ObjectId,
    new: &'a KeptObjects,
}

impl Comparison<'_> {
    fn entry(&mut self, path: &[u8], expected: &Entry, found: &Entry) -> Result<bool, SnapshotError> {
        let expected = resolved(self.store, self.present, expected.clone())?.entry;
        let found = match &found.node {
            // Its first name is below the same entry and is compared itself.
            Node::Same(first) => match lookup(self.store, self.present, first)? {
                Some(Found { entry, .. }) => entry,
                None => return Ok(false),
            },
            _ => found.clone(),
        };
        if expected.attributes != found.attributes {
            return Ok(false);
        }
        match (&expected.node, &found.node) {
            (Node::Directory(old), Node::Directory(new)) => self.directory(path, old, new),
            (one, other) => Ok(one == other),
        }
    }

    fn directory(&mut self, path: &[u8], expected: &Content, found: &Content) -> Result<bool, SnapshotError> {
        if expected == found {
            return Ok(true);
        }
        let expected = self.store.directory(expected)?.entries;
        let found = self.entries(found)?;
        if expected.len() != found.len() {
            return Ok(false);
        }
        for (old, new) in expected.iter().zip(&found) {
            if old.name != new.name || !self.entry(&join(path, &old.name), old, new)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entries(&mut self, content: &Content) -> Result<Vec<Entry>, SnapshotError> {
        entries_by(content, &mut |id| self.get(id))
    }

    fn get(&mut self, id: &ObjectId) -> Result<Vec<u8>, SnapshotError> {
        match self.new.get(id) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.store.get(id),
        }
    }
}
