//! Holds back the deletion of loose ref files if the layer's `packed-refs` is not committed with them.
//!
//! `git pack-refs` and `git gc` write refs into `packed-refs` and delete the loose files. If `packed-refs` is rejected, not selected or
//! held back, those deletions alone would delete branches, or reset them to the values in an older `packed-refs`.

use crate::beneath::{is_beneath, join, split};
use crate::entries::protected::Rules;
use crate::entries::tree::{LayerTree, Role};
use crate::entries::verdict::is_nothing;
use crate::fold::fold;
use crate::git::halves::{park_for_good, would_commit};

/// Says that the removal of a ref waits.
const NEEDS_PACKED: &str =
    "goes away with a new packed-refs of its git directory, which waits or was rejected: accept both, or reject both";

/// Lets no accept remove refs without the `packed-refs` of the same run.
pub(crate) fn hold_back(rules: &Rules, tree: &mut LayerTree) {
    let is_kept = |at: &usize| {
        let node = &tree.nodes[*at];
        let is_packed = node.role == Role::Entry && fold(split(&node.path.0).1).as_ref() == b"packed-refs";
        is_packed && !is_nothing(tree, node) && !would_commit(rules, node)
    };
    let kept = (1..tree.nodes.len()).filter(is_kept);
    let refs: Vec<Vec<u8>> = kept.map(|at| join(split(&tree.nodes[at].path.0).0, b"refs")).collect();
    if refs.is_empty() {
        return;
    }
    for node in tree.nodes.iter_mut().skip(1).filter(|node| node.role != Role::Entry) {
        if refs.iter().any(|refs| is_beneath(&node.path.0, refs)) {
            park_for_good(rules, node, NEEDS_PACKED);
        }
    }
}
