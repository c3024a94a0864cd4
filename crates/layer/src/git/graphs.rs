//! Leaves out the commit graphs and multi-pack indexes of git that a run wrote.
//!
//! git trusts a commit graph about which tree a commit has: a forged one hides changed files from `git status` and `git diff`. The
//! graph is only a cache, which `git gc` rebuilds, so the workspace keeps its own and the user is not asked. The same holds for a
//! multi-pack index, by which git finds an object in a pack: a forged one replaces the content of an object.

use crate::beneath::{IoFailure, split};
use crate::entries::tree::{LayerTree, Lower, Role, Verdict};
use crate::fold::fold;
use crate::meta::EntryType;
use crate::read::git_dirs;
use crate::read::walk::{Walk, lower_path};
use nexus_git::refs::inside_git;

/// Says why a graph waits that cannot be left out.
const GRAPH: &str = "a commit graph or multi-pack index of git, which can hide changes";
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
                let is_shared = one.group().is_some();
                // `git clone` within the workspace shares the file with the new repository.
                if is_shared && is_below_packs(&one.path.0) && lower_path(&tree.nodes[above(tree, at, depth)]).is_none()
                {
                    continue;
                }
                if covers_other || is_shared { Verdict::Park(GRAPH.to_owned()) } else { Verdict::LeaveOut }
            }
            _ => continue,
        };
        let top = above(tree, at, depth);
        let is_of_git = inside_git(&one.path.0).is_some()
            || bare.contains(&top)
            || lower_path(&tree.nodes[top]).map_or(Ok(false), |base| git_dirs::is_one(walk.base, base))?;
        if is_of_git {
            found.push((at, verdict));
        }
    }
    for (at, verdict) in found {
        tree.nodes[at].rare.verdict = Some(verdict);
    }
    Ok(())
}

/// Returns the directory so many levels above an entry.
fn above(tree: &LayerTree, at: usize, levels: usize) -> usize {
    (0..levels).fold(at, |at, _| tree.nodes[at].parent)
}

/// Tells whether a path is that of a multi-pack index: it lies among the packs.
fn is_below_packs(path: &[u8]) -> bool {
    let (parent, name) = split(path);
    fold(name).starts_with(MULTI) || fold(split(parent).1).starts_with(MULTI)
}

/// The beginning of the names of multi-pack indexes, their bitmaps, and the directory of those that are split.
const MULTI: &[u8] = b"multi-pack-index";

/// Tells how far below its git directory a graph or a multi-pack index lies, or a directory on the way to these and to objects.
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
        [_, b"commit-graphs", b"info", b"objects"] | [_, b"multi-pack-index.d", b"pack", b"objects"] => Some(4),
        [b"commit-graph" | b"commit-graphs", b"info", b"objects", ..] => Some(3),
        [multi, b"pack", b"objects", ..] if multi.starts_with(MULTI) => Some(3),
        [b"info" | b"pack", b"objects", ..] => Some(2),
        [two, b"objects", ..] if two.len() == 2 && two.iter().all(u8::is_ascii_hexdigit) => Some(2),
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
            (".git/objects/pack/multi-pack-index", Some(3)),
            (".git/objects/pack/Multi-Pack-Index-12.bitmap", Some(3)),
            ("b.git/objects/pack/multi-pack-index.d", Some(3)),
            ("b.git/objects/pack/multi-pack-index.d/multi-pack-index-chain", Some(4)),
            (".git/objects/pack", Some(2)),
            (".git/objects/ab", Some(2)),
            (".git/objects/pack/pack-1.idx", None),
            (".git/objects/ab/cd", None),
            ("pack/multi-pack-index", None),
            ("a.git/objects", Some(1)),
            (".git/objects/info/packs", None),
            (".git/info/commit-graph", None),
            ("commit-graph", None),
        ] {
            assert_eq!(depth(path.as_bytes()), wanted, "{path}");
        }
    }
}
