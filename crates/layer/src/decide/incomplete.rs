//! Holds back the changes that cannot be accepted from a layer that was saved only in part.
//!
//! A partly saved layer has complete files, but not all of them. A deletion may have been one half of a rename whose other half is
//! missing: then the workspace has the only copy.
//!
//! ```text
//!  deletions, opaque directories, renames       not read (`walk`)
//!  another kind of entry                        held
//!  a file over another file                     held, unless it is an edit of that very file, or equal
//!  mode and attributes of a directory           held: the copy may have ended before it set them
//!  below a git directory                        held, but for objects
//! ```

use crate::beneath::{IoFailure, split};
use crate::entries::tree::{Found, LayerTree, Lower, Node, Role};
use crate::fold::fold;
use crate::meta::EntryType;
use crate::read::git_dirs;
use crate::read::walk::{Walk, lower_path, origin_inode};
use nexus_git::objects::{has_shape, is_hex};
use std::collections::HashSet;

/// Says why an entry of another kind waits.
const OTHER_KIND: &str = "only a part of the run's changes was saved, and what stands here may be nowhere else";
/// Says why a file waits that is not an edit of the one at its place.
const OTHER_FILE: &str =
    "only a part of the run's changes was saved, and the run may have moved what stands here to a file that is missing";
/// Says why the attributes of a directory wait.
const DIRECTORY: &str = "only a part of the run's changes was saved, perhaps without the mode of this directory";
/// Says why an entry of a git directory waits.
const GIT: &str = "only a part of the run's changes was saved, and objects that git needs may be missing";

/// Removes from the entries of a part what the marks of overlay say about other places.
pub(crate) fn forget_marks(nodes: &mut [Node]) {
    for node in nodes {
        if node.role == Role::Whiteout {
            // It covers nothing, so that it changes nothing.
            (node.covers, node.claimed) = (None, false);
        } else if node.covers.is_none() && node.meta.kind != EntryType::Directory {
            // The deletion of the file that overlay copied was not saved: the copy is a new file.
            node.marks.origin = None;
        }
    }
}

/// Marks each entry of a part that no accept may bring. `bare` are the directories that become repositories without the name
/// `.git`.
pub(crate) fn hold(walk: &Walk<'_>, tree: &mut LayerTree, bare: &[usize]) -> Result<(), IoFailure> {
    let packs = packs(tree);
    let mut inside = vec![None; tree.nodes.len()];
    let mut found = Vec::new();
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        inside[at] = if is_git_directory(walk, node, bare.contains(&at))? { Some(at) } else { inside[node.parent] };
        let is_of_git = inside[at].is_some_and(|top| !may_come(node, &tree.nodes[top].path.0, &packs));
        let why = if is_of_git { Some(GIT) } else { takes_away(node) };
        found.extend(why.map(|why| (at, why)));
    }
    for (at, why) in found {
        tree.nodes[at].rare.never = Some(why);
    }
    Ok(())
}

/// Reports whether an entry is a git directory, or stands in the place of one: a file `.git` names one.
fn is_git_directory(walk: &Walk<'_>, node: &Node, is_new: bool) -> Result<bool, IoFailure> {
    if is_new || fold(split(&node.path.0).1).as_ref() == b".git" {
        return Ok(true);
    }
    match &node.rare.lower {
        Lower::Merged(_) => lower_path(node).map_or(Ok(false), |base| git_dirs::is_one(walk.base, base)),
        Lower::None | Lower::Moved(_) | Lower::Missing => Ok(false),
    }
}

/// Returns the paths of packs in the layer, without their endings, that have both files which git needs.
fn packs(tree: &LayerTree) -> HashSet<Vec<u8>> {
    let with = |ending: &'static [u8]| {
        tree.nodes
            .iter()
            .filter(|node| node.role == Role::Entry && node.meta.kind == EntryType::File)
            .filter_map(move |node| node.path.0.strip_suffix(ending).map(<[u8]>::to_vec))
    };
    let indexes: HashSet<Vec<u8>> = with(b".idx").collect();
    // Objects that such a pack needs may be elsewhere by intention.
    let promised: HashSet<Vec<u8>> = with(b".promisor").collect();
    with(b".pack").filter(|pack| indexes.contains(pack) && !promised.contains(pack)).collect()
}

/// Reports whether an entry below the git directory `top` is an object, a pack with its index, or a directory for them.
fn may_come(node: &Node, top: &[u8], packs: &HashSet<Vec<u8>>) -> bool {
    let path = &node.path.0;
    let names: Vec<_> = path.get(top.len() + 1..).unwrap_or_default().split(|byte| *byte == b'/').map(fold).collect();
    let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
    let Some(objects) = names.iter().position(|name| *name == b"objects") else { return false };
    // A branch may be named so.
    if names[..objects].iter().any(|name| matches!(*name, b"refs" | b"logs")) {
        return false;
    }
    match (&names[objects + 1..], node.meta.kind) {
        ([] | [b"pack"], EntryType::Directory) => true,
        ([two], EntryType::Directory) => two.len() == 2 && is_hex(two),
        (below @ [b"pack", _], EntryType::File) => {
            let stem = path.strip_suffix(b".pack").or_else(|| path.strip_suffix(b".idx"));
            has_shape(below) && stem.is_some_and(|stem| packs.contains(stem))
        }
        (below, EntryType::File) => has_shape(below),
        _ => false,
    }
}

/// Says why no accept may bring an entry that takes something away from the workspace.
fn takes_away(node: &Node) -> Option<&'static str> {
    if node.role != Role::Entry {
        return None;
    }
    if matches!(node.rare.lower, Lower::Merged(_)) {
        return Some(DIRECTORY);
    }
    let old = node.covers.as_ref()?;
    if old.meta.kind != node.meta.kind {
        return Some(OTHER_KIND);
    }
    let is_equal = node.same_content && node.same_attrs;
    (!is_equal && !is_edit(node, old)).then_some(OTHER_FILE)
}

/// Reports whether overlay's mark makes an entry a new version of the very file that it covers. A mark without a name, as overlay
/// writes it for an ordinary user, does not.
fn is_edit(node: &Node, old: &Found) -> bool {
    origin_inode(node) == Some(old.meta.id.ino)
}
