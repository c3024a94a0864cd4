//! Collects the names of all objects of a tree.

use crate::error::SnapshotError;
use crate::object::{Content, Node, ObjectId, ObjectIds};
use crate::store::Store;

/// Adds the names of all objects of the tree with this top. Directories and lists of pieces are read and checked; of the pieces of files only
/// their presence is checked. An object that the store does not have is an error.
pub fn reach(store: &mut Store, top: &ObjectId, found: &mut ObjectIds) -> Result<(), SnapshotError> {
    let entry = store.top(top)?;
    found.insert(*top);
    let Node::Directory(content) = entry.node else { return Err(SnapshotError::Form { id: *top }) };
    let mut waiting = vec![content];
    while let Some(content) = waiting.pop() {
        if !add(store, &content, found)? {
            continue;
        }
        for entry in store.directory(&content)?.entries {
            match entry.node {
                Node::Directory(inner) => waiting.push(inner),
                Node::File(content) => {
                    add(store, &content, found)?;
                }
                Node::Link(_) | Node::Same(_) => {}
            }
        }
    }
    Ok(())
}

/// Adds the objects of a content. Returns whether some of them were not in the set.
fn add(store: &mut Store, content: &Content, found: &mut ObjectIds) -> Result<bool, SnapshotError> {
    let mut is_new = false;
    if let Content::Many { list, .. } = content {
        is_new |= found.insert(*list);
        if !is_new {
            return Ok(false);
        }
    }
    for id in store.pieces(content)? {
        if !store.has(&id) {
            // Names the damaged pack.
            store.get(&id)?;
        }
        is_new |= found.insert(id);
    }
    Ok(is_new)
}

/// Reads every object of a tree and checks its hash. Returns the number of objects.
pub fn verify(store: &mut Store, top: &ObjectId) -> Result<u64, SnapshotError> {
    let mut found = ObjectIds::new();
    reach(store, top, &mut found)?;
    // In the order of the packs: a block is unpacked once.
    let ids = store.in_order(&found);
    for id in &ids {
        store.get(id)?;
    }
    Ok(ids.len() as u64)
}
