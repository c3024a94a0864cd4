//! Discards the modification and deletion of git objects in a layer.
//!
//! A run that deletes objects (`git gc`, `git prune`, `git repack -d`) knows the references of its own view alone: some of its
//! references may wait, others may have been made on the host meanwhile, and a further working tree that the run did not see has
//! a HEAD and an index of its own. Objects have their content's name and are only ever added to, so that a deletion is left out:
//! the next `git gc` on the host removes what no reference needs.
//!
//! The content of an object never changes either. What a run writes in the place of one is damaged (`sed -i` over all files), or the
//! same object in another form (`git repack -f`), so that it is left out, too. New objects come. The same goes for a shared index
//! (`sharedindex.SUM`): the index that names it may stay or wait, and git removes what no index names.

use crate::beneath::IoFailure;
use crate::entries::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::fold::fold;
use crate::meta::EntryType;
use crate::read::git_dirs;
use crate::read::walk::Walk;
use nexus_git::objects::{has_shape, is_of_lfs, is_shared_index};
use std::collections::HashMap;

/// Says why an entry waits that cannot be left out.
const CHANGED: &str = "takes the place of what git never changes";
/// Says why a directory waits that was renamed.
const MOVED: &str = "takes objects of git away from their place";

/// Leaves out what a layer changes or deletes of the objects of the workspace. A directory in the place of a file, another entry
/// in the place of a directory, and a directory that was renamed wait: there may be new objects behind it.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut known: HashMap<Vec<u8>, bool> = HashMap::new();
    let mut found = Vec::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let is_held = matches!(node.rare.verdict, Some(Verdict::Park(_)));
        if let Some((old, verdict)) = change(node)
            && !(is_held && matches!(verdict, Verdict::Park(_)))
            && is_object(walk, old, &mut known)?
        {
            found.push((at, verdict));
        }
    }
    for (at, verdict) in found {
        tree.nodes[at].rare.verdict = Some(verdict);
    }
    Ok(())
}

/// Returns the entry of the workspace that is no longer what it was, and what comes of the change if that is an object.
fn change(node: &Node) -> Option<(&[u8], Verdict)> {
    let wait = |why: &str| Verdict::Park(why.to_owned());
    if let Lower::Moved(from) = &node.rare.lower {
        return Some((&from.at.0, wait(MOVED)));
    }
    let old = node.covers.as_ref()?;
    let is_directory = |kind| kind == EntryType::Directory;
    let fits = is_directory(node.meta.kind) == is_directory(old.meta.kind);
    let verdict = match node.role {
        Role::Whiteout | Role::Implied => Verdict::LeaveOut,
        // `git clone` within the workspace gives the file one more name.
        Role::Entry if node.group().is_some() && node.same_content => return None,
        Role::Entry if fits && node.group().is_none() => Verdict::LeaveOut,
        Role::Entry => wait(CHANGED),
    };
    Some((&old.at.0, verdict))
}

/// Tells whether a path of the workspace is that of an object, a file beside one, a directory of them, or a shared index.
fn is_object(walk: &Walk<'_>, path: &[u8], known: &mut HashMap<Vec<u8>, bool>) -> Result<bool, IoFailure> {
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(fold).collect();
    let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
    if names.last().is_some_and(|name| is_shared_index(name)) {
        return Ok(true);
    }
    let mut begin = 0;
    for (at, name) in path.split(|byte| *byte == b'/').enumerate() {
        let (git_dir, below) = (path[..begin].strip_suffix(b"/").unwrap_or(b""), &names[at + 1..]);
        begin += name.len() + 1;
        if names[at] != b"objects" || below.first().is_none_or(|first| *first == b"info") {
            continue;
        }
        if has_shape(below) || (at > 0 && names[at - 1] == b".git") || is_of_lfs(&names[..at], below) {
            return Ok(true);
        }
        let is_one = match known.get(git_dir) {
            Some(is_one) => *is_one,
            None => git_dirs::is_one(walk.base, git_dir)?,
        };
        known.insert(git_dir.to_vec(), is_one);
        if is_one {
            return Ok(true);
        }
    }
    Ok(false)
}
