//! Entries of kept trees by their paths, with further names of files read as files.

use crate::error::SnapshotError;
use crate::object::{Attributes, Content, Entry, Node, ObjectId};
use crate::store::Store;
use nexus_beneath::split;
use std::collections::BTreeSet;

/// An entry of a kept tree. A further name of a file has the content and the attributes of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The entry; never `Node::Same`.
    pub entry: Entry,
    /// The first name of the same file, of which this is a further one.
    pub first: Option<Vec<u8>>,
}

impl Found {
    /// Returns the content of a directory.
    pub(crate) fn inner(&self) -> Option<&Content> {
        match &self.entry.node {
            Node::Directory(content) => Some(content),
            _ => None,
        }
    }
}

/// Returns the content of a directory; `None` where it is none.
pub(crate) fn inner(found: Option<&Found>) -> Option<&Content> {
    found.and_then(Found::inner)
}

/// Returns the entries of a directory; none where there is no directory.
pub(crate) fn entries(store: &mut Store, content: Option<&Content>) -> Result<Vec<Entry>, SnapshotError> {
    content.map_or(Ok(Vec::new()), |content| Ok(store.directory(content)?.entries))
}

/// Returns the entry at a path of a tree, as it is kept.
fn raw(store: &mut Store, top: &ObjectId, path: &[u8]) -> Result<Option<Entry>, SnapshotError> {
    let mut at = store.top(top)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let Node::Directory(content) = &at.node else { return Ok(None) };
        let found = store.directory(content)?.entries.into_iter().find(|entry| entry.name == name);
        let Some(found) = found else { return Ok(None) };
        at = found;
    }
    Ok(Some(at))
}

/// Returns the first names of the files of a tree that have further ones.
pub(crate) fn firsts(store: &mut Store, top: &ObjectId) -> Result<BTreeSet<Vec<u8>>, SnapshotError> {
    let mut firsts = BTreeSet::new();
    let mut waiting = vec![store.top(top)?];
    while let Some(entry) = waiting.pop() {
        match entry.node {
            Node::Directory(content) => waiting.extend(entries(store, Some(&content))?),
            Node::Same(first) => {
                firsts.insert(first);
            }
            Node::File(_) | Node::Link(_) => {}
        }
    }
    Ok(firsts)
}

/// Reads an entry of the tree with this top so that a further name of a file is a file.
pub(crate) fn resolved(store: &mut Store, top: &ObjectId, entry: Entry) -> Result<Found, SnapshotError> {
    let Node::Same(first) = &entry.node else { return Ok(Found { entry, first: None }) };
    let first = first.clone();
    let of = raw(store, top, &first)?.filter(|of| matches!(of.node, Node::File(_)));
    let of = of.ok_or(SnapshotError::Form { id: *top })?;
    let entry = Entry { name: entry.name, attributes: of.attributes, node: of.node };
    Ok(Found { entry, first: Some(first) })
}

/// Returns the entry at a path of a tree.
pub(crate) fn lookup(store: &mut Store, top: &ObjectId, path: &[u8]) -> Result<Option<Found>, SnapshotError> {
    match raw(store, top, path)? {
        None => Ok(None),
        Some(entry) => Ok(Some(resolved(store, top, entry)?)),
    }
}

/// Returns content and attributes of the file at a path of a tree.
pub(crate) fn file_of(store: &mut Store, top: &ObjectId, path: &[u8]) -> Result<(Content, Attributes), SnapshotError> {
    match lookup(store, top, path)?.map(|found| found.entry) {
        Some(Entry { node: Node::File(content), attributes, .. }) => Ok((content, attributes)),
        _ => Err(SnapshotError::Form { id: *top }),
    }
}

/// Returns the entry at a path of a tree, with a further name of a file as a file; `None` where there is none.
pub fn file_at(store: &mut Store, top: &ObjectId, path: &[u8]) -> Result<Option<Entry>, SnapshotError> {
    Ok(lookup(store, top, path)?.map(|found| Entry { name: split(path).1.to_vec(), ..found.entry }))
}
