//! The decision about an entry, and what an entry does when it is committed. Pure.

use crate::meta::EntryType;
use crate::tree::{LayerTree, Lower, Node, Role};
use nexus_git::objects::is_shaped;

/// The decision about an entry: it changes nothing, is committed, or stays in the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Nothing,
    Commit,
    Park,
}

/// A directory with nothing of the workspace in it, or one from another place.
pub(crate) fn is_new_dir(tree: &LayerTree, at: usize) -> bool {
    let node = &tree.nodes[at];
    node.role == Role::Entry
        && node.meta.kind == EntryType::Directory
        && matches!(node.rare.lower, Lower::None | Lower::Moved(_) | Lower::Missing)
}

/// Reports whether committing `node` removes or replaces an entry of the workspace.
pub(crate) fn goes(node: &Node) -> bool {
    node.covers.is_some() && !node.claimed && !matches!(node.rare.lower, Lower::Merged(_))
}

/// Reports whether an entry is an object of git, or a file of a pack, that the workspace no longer has. Its name says its content,
/// whatever it was copied from.
pub(crate) fn is_whole_object(node: &Node) -> bool {
    node.covers.is_none() && is_shaped(&node.path.0)
}
