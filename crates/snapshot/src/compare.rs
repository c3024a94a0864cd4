//! Compares two kept trees. A directory that has the same content in both is not read.

use crate::error::SnapshotError;
use crate::object::{Attributes, Content, Entry, KeptObjects, Node, ObjectId, read_top};
use crate::store::{Store, entries_by};
use nexus_beneath::join;
use std::cmp::Ordering;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the later tree has the entry.
    Added,
    /// Its content differs.
    Modified,
    /// Only the earlier tree has the entry.
    Deleted,
    /// Its type differs.
    Type,
    /// Its mode, owner or extended attributes differ, and its content does not.
    Attributes,
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Path below the tree.
    pub path: Vec<u8>,
    /// The kind of the difference.
    pub kind: ChangeKind,
    /// True for a directory: of the later tree, where both trees have the path.
    pub is_directory: bool,
    /// Bytes in the earlier tree.
    pub old_size: u64,
    /// Bytes in the later tree.
    pub new_size: u64,
}

struct Comparison<'a> {
    store: &'a mut Store,
    /// Directories that are not in the store.
    kept: &'a KeptObjects,
    changes: Vec<Change>,
}

/// Compares two trees by their tops. `kept` has objects that are not in the store (`Writer::into_kept`).
pub fn compare(
    store: &mut Store,
    old: &ObjectId,
    new: &ObjectId,
    kept: &KeptObjects,
) -> Result<Vec<Change>, SnapshotError> {
    let mut comparison = Comparison { store, kept, changes: Vec::new() };
    if old == new {
        return Ok(Vec::new());
    }
    let (old, new) = (comparison.top(old)?, comparison.top(new)?);
    if differ(&old.attributes, &new.attributes) {
        comparison.note(b"", ChangeKind::Attributes, Some(&old), Some(&new));
    }
    if let (Node::Directory(old), Node::Directory(new)) = (&old.node, &new.node) {
        comparison.directories(Some(old), Some(new), b"")?;
    }
    Ok(comparison.changes)
}

impl Comparison<'_> {
    fn get(&mut self, id: &ObjectId) -> Result<Vec<u8>, SnapshotError> {
        match self.kept.get(id) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.store.get(id),
        }
    }

    fn top(&mut self, id: &ObjectId) -> Result<Entry, SnapshotError> {
        read_top(&self.get(id)?).ok_or(SnapshotError::Form { id: *id })
    }

    fn entries(&mut self, content: Option<&Content>) -> Result<Vec<Entry>, SnapshotError> {
        content.map_or(Ok(Vec::new()), |content| entries_by(content, &mut |id| self.get(id)))
    }

    fn directories(&mut self, old: Option<&Content>, new: Option<&Content>, path: &[u8]) -> Result<(), SnapshotError> {
        if old == new {
            return Ok(());
        }
        let mut old = self.entries(old)?.into_iter().peekable();
        let mut new = self.entries(new)?.into_iter().peekable();
        loop {
            let ordering = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.name.cmp(&new.name),
            };
            let before = if ordering == Ordering::Greater { None } else { old.next() };
            let after = if ordering == Ordering::Less { None } else { new.next() };
            let name = before.as_ref().or(after.as_ref()).map(|entry| entry.name.clone()).unwrap_or_default();
            self.entry(before.as_ref(), after.as_ref(), &join(path, &name))?;
        }
    }

    fn entry(&mut self, old: Option<&Entry>, new: Option<&Entry>, path: &[u8]) -> Result<(), SnapshotError> {
        match (old, new) {
            (Some(before), Some(after)) => match (&before.node, &after.node) {
                (Node::Directory(one), Node::Directory(other)) => {
                    if differ(&before.attributes, &after.attributes) {
                        self.note(path, ChangeKind::Attributes, old, new);
                    }
                    return self.directories(Some(one), Some(other), path);
                }
                // A file that became one more name of another one counts as modified.
                (Node::File(_) | Node::Same(_), Node::File(_) | Node::Same(_)) | (Node::Link(_), Node::Link(_)) => {
                    if before.node != after.node {
                        self.note(path, ChangeKind::Modified, old, new);
                    } else if differ(&before.attributes, &after.attributes) {
                        self.note(path, ChangeKind::Attributes, old, new);
                    }
                    return Ok(());
                }
                _ => self.note(path, ChangeKind::Type, old, new),
            },
            (Some(_), None) => self.note(path, ChangeKind::Deleted, old, None),
            (None, _) => self.note(path, ChangeKind::Added, None, new),
        }
        self.directories(inner(old), inner(new), path)
    }

    fn note(&mut self, path: &[u8], kind: ChangeKind, old: Option<&Entry>, new: Option<&Entry>) {
        self.changes.push(Change {
            path: path.to_vec(),
            kind,
            is_directory: new.or(old).is_some_and(|entry| matches!(entry.node, Node::Directory(_))),
            old_size: old.map_or(0, size),
            new_size: new.map_or(0, size),
        });
    }
}

fn inner(entry: Option<&Entry>) -> Option<&Content> {
    match entry.map(|entry| &entry.node) {
        Some(Node::Directory(content)) => Some(content),
        _ => None,
    }
}

fn size(entry: &Entry) -> u64 {
    match &entry.node {
        Node::File(content) => content.size(),
        Node::Link(target) => target.len() as u64,
        Node::Directory(_) | Node::Same(_) => 0,
    }
}

/// Compares all attributes but the time of change.
fn differ(one: &Attributes, other: &Attributes) -> bool {
    (one.mode, one.uid, one.gid) != (other.mode, other.uid, other.gid) || one.extended != other.extended
}
