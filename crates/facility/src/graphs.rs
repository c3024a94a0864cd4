//! Leaves out the commit graphs of git that a run wrote.
//!
//! git believes a commit graph which tree a commit has: one that says something else hides changed files from `git status` and
//! `git diff`. It is a cache, without which git works, and which `git gc` makes again. So the workspace keeps its own, without asking
//! for an accept.

use crate::bare;
use crate::beneath::{IoFailure, split};
use crate::fold::fold;
use crate::git_refs::inside_git;
use crate::meta::EntryType;
use crate::tree::{LayerTree, Lower, Role, Verdict};
use crate::walk::{Walk, lower_path};

/// Says why a graph waits that cannot be left out.
const GRAPH: &str = "a commit graph of git, which can hide changes";
/// Says why a directory waits in which there may be graphs.
const MOVED: &str = "a directory that becomes a part of git's";

/// Leaves out the graphs of a layer, and holds back the directories that come to their places. `bare` are the directories that become
/// repositories without the name `.git`.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree, bare: &[usize]) -> Result<(), IoFailure> {
    let mut found = Vec::new();
    for (at, one) in tree.nodes.iter().enumerate().skip(1) {
        let is_open = one.role == Role::Entry && !matches!(one.rare.verdict, Some(Verdict::Park(_)));
        let Some(depth) = depth(&one.path.0).filter(|_| is_open) else { continue };
        let verdict = match (one.meta.kind, &one.rare.lower) {
            (EntryType::Directory, Lower::Moved(_)) => Verdict::Park(MOVED.to_owned()),
            (EntryType::File, _) if depth > 2 => {
                let covers_other = one.covers.as_ref().is_some_and(|old| old.meta.kind != EntryType::File);
                if covers_other || one.group().is_some() { Verdict::Park(GRAPH.to_owned()) } else { Verdict::LeaveOut }
            }
            _ => continue,
        };
        let mut top = at;
        for _ in 0..depth {
            top = tree.nodes[top].parent;
        }
        let is_of_git = inside_git(&one.path.0).is_some()
            || bare.contains(&top)
            || lower_path(&tree.nodes[top]).map_or(Ok(false), |base| bare::is_one(walk.base, base))?;
        if is_of_git {
            found.push((at, verdict));
        }
    }
    for (at, verdict) in found {
        tree.nodes[at].rare.verdict = Some(verdict);
    }
    Ok(())
}

/// Tells how far below its git directory a graph lies, or a directory on the way to the graphs.
fn depth(path: &[u8]) -> Option<usize> {
    let mut names = Vec::new();
    let mut rest = path;
    while names.len() < 4 && !rest.is_empty() {
        let (parent, name) = split(rest);
        names.push(fold(name));
        rest = parent;
    }
    let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [_, b"commit-graphs", b"info", b"objects"] => Some(4),
        [b"commit-graph" | b"commit-graphs", b"info", b"objects", ..] => Some(3),
        [b"info", b"objects", ..] => Some(2),
        [b"objects", ..] => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_known_by_their_places() {
        for (path, wanted) in [
            (".git/objects/info/commit-graph", Some(3)),
            (".git/modules/m/Objects/info/Commit-Graph", Some(3)),
            (".git/objects/info/commit-graphs/commit-graph-chain", Some(4)),
            (".git/objects/info/commit-graphs/graph-1.graph", Some(4)),
            ("objects/info/commit-graphs", Some(3)),
            ("a.git/objects/info", Some(2)),
            ("a.git/objects", Some(1)),
            (".git/objects/info/packs", None),
            (".git/info/commit-graph", None),
            ("commit-graph", None),
        ] {
            assert_eq!(depth(path.as_bytes()), wanted, "{path}");
        }
    }
}
