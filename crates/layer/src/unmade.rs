//! Holds back what takes an entry away that makes a directory a git repository.
//!
//! Without `HEAD`, `objects` or `refs` a directory is not a repository, neither for git nor for the rules of the next
//! run: its hooks, and what these start, could change unasked until the user repairs it. The whole directory may go.

use crate::beneath::{IoFailure, split};
use crate::fold::fold;
use crate::git_dirs;
use crate::tree::{LayerTree, Lower, Role, SharedPath, Verdict};
use crate::walk::{Walk, lower_path};
use std::collections::{HashMap, HashSet};

const WHY: &str = "takes away what makes a directory a git repository";

/// Parks the entries of repositories that go away or become something else.
pub(crate) fn judge(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut known: HashMap<usize, bool> = HashMap::new();
    let mut moved: HashSet<SharedPath> = HashSet::new();
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        let Some(old) = &node.covers else { continue };
        let goes = node.role != Role::Entry || node.meta.kind != old.meta.kind;
        if !goes
            || !git_dirs::is_maker(&fold(split(&node.path.0).1))
            || matches!(node.rare.verdict, Some(Verdict::Park(_)))
        {
            continue;
        }
        let was_one = match (known.get(&node.parent), lower_path(&tree.nodes[node.parent])) {
            (Some(was_one), _) => *was_one,
            (None, None) => false,
            (None, Some(base)) => git_dirs::is_one(walk.base, base)?,
        };
        known.insert(node.parent, was_one);
        if was_one && node.claimed {
            moved.insert(old.at.clone());
        } else if was_one {
            tree.nodes[at].rare.verdict = Some(Verdict::Park(WHY.to_owned()));
        }
    }
    // A directory that was renamed is judged where it comes to.
    for node in tree.nodes.iter_mut().skip(1) {
        if let Lower::Moved(found) = &node.rare.lower
            && moved.contains(&found.at)
            && !matches!(node.rare.verdict, Some(Verdict::Park(_)))
        {
            node.rare.verdict = Some(Verdict::Park(WHY.to_owned()));
        }
    }
    Ok(())
}
