//! The decision about an entry or a group of names, and what it does when it is committed. Pure.

use crate::entries::tree::{Group, LayerTree, Lower, Node, Role};
use crate::links::hardlinks;
use crate::meta::EntryType;
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

/// Reports whether a group becomes the new version of a file with several names. When one of its names is held back it
/// does not: the file may be a protected one, and a link made in an earlier run must not be a way to write it.
pub(crate) fn writes_shared(tree: &LayerTree, states: &[State], group: &Group) -> bool {
    let own = |at: &usize| group.anchor.as_ref().map(|anchor| anchor.meta.id) == tree.covered_id(*at);
    group.anchor.is_some()
        && !group.waits
        && hardlinks::may_stay_one(group)
        && group.members.iter().all(|at| states[*at] == State::Commit || (states[*at] == State::Nothing && own(at)))
        && (!group.same || group.members.iter().any(|at| states[*at] == State::Commit))
}
