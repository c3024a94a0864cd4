//! Finds what another process did to the workspace while the run worked, beyond changed time stamps. Pure.
//!
//! A directory that was moved away and replaced by another one leaves the time stamps of the entries in it alone.
//! Root's layers know the inode that each directory continues (overlay's origin mark). An ordinary user's layers do
//! not, since the kernel does not let that user decode file handles; there the directory's own time stamps tell: a
//! directory that was moved has a ctime later than the run's start and an earlier mtime, one that was only filled has a
//! later mtime. A directory in a directory whose own ctime is older was not moved, whatever its times are: a process
//! set its mode. A directory that was moved and then filled is not distinguished from one that was only filled, and one
//! whose mode or times a process set is taken for a moved one. A commit therefore sets no time back that another run could
//! take for that ([`crate::journal::dir_times`]).

use crate::decide::state::{State, is_whole_object};
use crate::entries::changes::Outside;
use crate::entries::marks::{LayerMode, Origin};
use crate::entries::tree::{Found, LayerTree, Lower, Node, Role, SharedPath};
use crate::meta::{EntryType, Meta};
use nexus_model::ByteText;
use std::collections::HashSet;

/// Lists the directories of the workspace that were replaced or mounted over, of those that lead to something that is
/// committed.
pub(crate) fn replaced(tree: &LayerTree, states: &[State]) -> Vec<(ByteText, Outside)> {
    let mut leads = vec![false; tree.nodes.len()];
    for at in (1..tree.nodes.len()).rev() {
        leads[at] |= states[at] == State::Commit;
        leads[tree.nodes[at].parent] |= leads[at];
    }
    let replaced = |(at, node): (usize, &Node)| {
        let (Lower::Merged(found) | Lower::Moved(found)) = &node.rare.lower else { return None };
        if at == 0 || !leads[at] {
            return None;
        }
        let outside = match tree.mount {
            Some(mount) if mount != found.meta.mount => Outside::Blocked,
            _ if is_replaced(tree, node, &found.meta, &found.at) && may_have_been_moved(tree, node) => {
                Outside::Replaced
            }
            _ => return None,
        };
        Some((found.at.text(), outside))
    };
    tree.nodes.iter().enumerate().filter_map(replaced).collect()
}

/// Reports whether another process may have put an entry to its place: names came to, or left, the directory that it is
/// in. A chmod of the entry alone changes its own ctime only.
fn may_have_been_moved(tree: &LayerTree, node: &Node) -> bool {
    let is_unchanged = |parent: &Found| !tree.is_fresh(parent);
    let is_known = tree.mode == LayerMode::User && node.marks.origin == Some(Origin::Unknown);
    !(is_known && matches!(&tree.nodes[node.parent].rare.lower, Lower::Merged(parent) if is_unchanged(parent)))
}

fn is_replaced(tree: &LayerTree, node: &Node, now: &Meta, at: &SharedPath) -> bool {
    match node.marks.origin {
        Some(Origin::Inode(ino)) => ino != now.id.ino,
        Some(Origin::Unknown) => {
            let moved = now.mtime <= tree.started && tree.is_fresh(&Found { at: at.clone(), meta: now.clone() });
            moved || now.id.born.is_some_and(|born| born > tree.started && !tree.is_own(at, now))
        }
        // The run made it. Where a directory came to its name, all in that one counts as changed (`arrival`).
        None => false,
    }
}

/// Lists the entries of an ordinary user's layer that were copied from a file which is gone now. A name that the layer
/// itself took away accounts for one of them, a directory that it took away for any number.
pub(crate) fn vanished(tree: &LayerTree, states: &[State]) -> Vec<(ByteText, Outside)> {
    let covering: HashSet<u64> =
        tree.nodes.iter().filter(|node| node.covers.is_some()).map(|node| node.meta.id.ino).collect();
    let copied = |node: &Node| {
        node.role == Role::Entry
            && node.meta.kind == EntryType::File
            && node.marks.origin == Some(Origin::Unknown)
            && node.covers.is_none()
            && !is_whole_object(node)
            && !covering.contains(&node.meta.id.ino)
    };
    let mut left: Vec<(usize, u64)> = Vec::new();
    let mut seen = HashSet::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1).filter(|(_, node)| copied(node)) {
        if seen.insert(node.meta.id.ino) {
            left.push((at, node.meta.id.ino));
        }
    }
    let mut taken = 0;
    for node in &tree.nodes {
        let Some(found) = &node.covers else { continue };
        let goes = node.role != Role::Entry || node.meta.kind != found.meta.kind || node.marks.origin.is_none();
        match found.meta.kind {
            EntryType::Directory if goes && !node.claimed => return Vec::new(),
            EntryType::File if goes => taken += 1,
            _ => {}
        }
    }
    if left.len() <= taken {
        return Vec::new();
    }
    let committed = left.into_iter().filter(|(at, _)| states[*at] == State::Commit);
    committed.map(|(at, _)| (tree.nodes[at].path.text(), Outside::Vanished)).collect()
}
