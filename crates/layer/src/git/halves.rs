//! Refuses halves of what git takes for damaged without the rest.
//!
//! ```text
//!  DIR/.git  names  R/.git/worktrees/NAME      without it no command of git works in DIR, and the repository around
//!                                              DIR takes the files in it for its own
//!  R/.git/shallow with fewer lines, or gone    without the objects of the fetch git finds commits without parents
//! ```

use crate::beneath::{IoFailure, is_beneath, join, split};
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::entries::verdict::hold;
use crate::fold::fold;
use crate::git::further_trees::place_named;
use crate::git::git_rules::Version;
use crate::git::nested::is_git;
use crate::meta::EntryType;
use crate::read::walk::Walk;
use std::collections::HashMap;

/// Says that a working tree waits for its git directory.
const NEEDS_GIT_DIR: &str =
    "needs its git directory (worktrees/NAME), of which a part waits or was rejected: accept that directory first";
/// Says that a file `shallow` waits for the objects with the history that it no longer ends.
pub(crate) const NEEDS_OBJECTS: &str =
    "needs the objects of the same fetch, of which some wait or were rejected: accept them first";
/// Files of `worktrees/NAME` without which it is not a git directory.
const MAKERS: &[&[u8]] = &[b"HEAD", b"commondir", b"gitdir"];

/// Parks the working trees of a layer whose git directories do not come with them.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut by_path: HashMap<&[u8], usize> = HashMap::new();
    let mut found = Vec::new();
    for node in tree.nodes.iter().skip(1).filter(|node| is_new_file(node) && is_git(&node.path.0)) {
        let place = split(&node.path.0).0;
        let Version::Bytes(text) = walk.version(walk.upper, &node.path.0, &Class::GitRoot)? else { continue };
        let own = place_named(walk.base, place, &text);
        let Some(own) = own.filter(|own| fold(split(split(own).0).1).as_ref() == b"worktrees") else { continue };
        if by_path.is_empty() {
            by_path = tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
        }
        let parts = MAKERS.iter().filter_map(|name| by_path.get(join(&own, name).as_slice()));
        if parts.into_iter().any(|at| !would_commit(walk.rules, &tree.nodes[*at])) {
            found.push(node.parent);
        }
    }
    for top in found {
        let is_new = top != 0 && tree.nodes[top].rare.lower == Lower::None;
        let path = tree.nodes[top].path.clone();
        let beneath = |at: &usize| is_beneath(&tree.nodes[*at].path.0, &path.0);
        let held: Vec<usize> = if is_new { vec![top] } else { (1..tree.nodes.len()).filter(beneath).collect() };
        for at in held {
            park_for_good(walk.rules, &mut tree.nodes[at], NEEDS_GIT_DIR);
        }
    }
    Ok(())
}

fn is_new_file(node: &Node) -> bool {
    node.role == Role::Entry && node.meta.kind == EntryType::File && node.covers.is_none()
}

/// Reports whether the rules commit an entry, by this entry alone.
pub(crate) fn would_commit(rules: &Rules, node: &Node) -> bool {
    rules.is_chosen(&node.path.0) && hold(node, rules).is_none_or(|hold| hold.is_accepted(rules, node))
}

/// Parks an entry that the rules would commit, so that no accept commits it.
pub(crate) fn park_for_good(rules: &Rules, node: &mut Node, why: &str) {
    if would_commit(rules, node) {
        node.rare.verdict = Some(Verdict::Park(why.to_owned()));
        node.rare.in_unit = true;
    }
}
