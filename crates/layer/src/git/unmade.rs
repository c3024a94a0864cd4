//! Holds back the deletion of `HEAD`, `objects` or `refs` of a git directory.
//!
//! Without them neither git nor the rules of the next run recognize the directory as a repository. Its hooks, and the programs that
//! these start, could then change without an accept until the user repairs the directory. Deleting the whole directory is allowed.

use crate::beneath::{IoFailure, split};
use crate::entries::tree::{LayerTree, Lower, Role, SharedPath, Verdict};
use crate::fold::fold;
use crate::read::git_dirs;
use crate::read::walk::{Walk, lower_path};
use std::collections::{HashMap, HashSet};

const WHY: &str = "takes away what makes a directory a git repository";

/// Parks the entries of repositories that go away or become something else.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
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
    // A directory that was renamed is classified where it comes to.
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
