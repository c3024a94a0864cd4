//! Files of git that a git on the host holds at the moment.
//!
//! git writes `index.lock`, then renames it to `index`. A commit that replaces `index` or a branch while the lock is
//! there would be overwritten by that rename, or the branch would no longer fit the index.

use crate::beneath::{Doing as _, IoFailure, is_gone, split};
use crate::entries::tree::{LayerTree, Role};
use crate::fold::fold;
use crate::meta::stat_if_there;
use crate::read::walk::{LastDir, Walk};
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};

/// Returns the lock files by which a git would hold the file at `path`, relative to the workspace. Empty for files that
/// git does not lock. Pure.
pub(crate) fn locks_of(path: &[u8]) -> Vec<Vec<u8>> {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let Some(git) = names.iter().rposition(|name| fold(name).as_ref() == b".git") else { return Vec::new() };
    let own = || [path, b".lock"].concat();
    let index = || [&names[..=git].join(&b'/'), &b"/index.lock"[..]].concat();
    match &names[git + 1..] {
        [] => Vec::new(),
        inside if inside.last().is_some_and(|name| name.ends_with(b".lock")) => Vec::new(),
        [b"index"] => vec![index()],
        [b"HEAD" | b"packed-refs"] | [b"refs", _, ..] => vec![index(), own()],
        [b"config" | b"shallow"] => vec![own()],
        _ => Vec::new(),
    }
}

/// Fills in [`LayerTree::locks`].
pub(crate) fn find(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut seen: HashMap<Vec<u8>, bool> = HashMap::new();
    let mut dirs = LastDir::new(walk.base);
    for at in 1..tree.nodes.len() {
        for lock in locks_of(&tree.nodes[at].path.0) {
            let is_there = if let Some(known) = seen.get(&lock) {
                *known
            } else {
                let found = is_there(&mut dirs, &lock)?;
                seen.insert(lock.clone(), found);
                found
            };
            if is_there {
                tree.locks.insert(at, ByteText(lock));
            }
        }
    }
    if tree.locks.is_empty() {
        return Ok(());
    }
    // A run that removed the lock has seen it: it was older than the run, or its removal is a conflict on its own.
    let removed: HashSet<&[u8]> =
        tree.nodes.iter().filter(|node| node.role != Role::Entry).map(|node| &*node.path.0).collect();
    tree.locks.retain(|_, lock| !removed.contains(lock.0.as_slice()));
    Ok(())
}

fn is_there(dirs: &mut LastDir<'_>, lock: &[u8]) -> Result<bool, IoFailure> {
    let (parent, name) = split(lock);
    match dirs.get(parent) {
        Ok(dir) => match stat_if_there(dir, name) {
            // git makes no lock whose name is too long for the file system.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()) => Ok(false),
            other => Ok(other.doing("look at", lock)?.is_some()),
        },
        // A new or moved git directory, or a link: no git of the host works in it at this place.
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Ok(false),
        Err(error) => Err(error).doing("open", parent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(path: &str) -> Vec<String> {
        locks_of(path.as_bytes()).into_iter().map(|lock| String::from_utf8(lock).unwrap()).collect()
    }

    #[test]
    fn the_index_and_the_branches_have_locks() {
        assert_eq!(locks(".git/index"), [".git/index.lock"]);
        assert_eq!(locks("a/.git/HEAD"), ["a/.git/index.lock", "a/.git/HEAD.lock"]);
        assert_eq!(locks(".git/refs/heads/x"), [".git/index.lock", ".git/refs/heads/x.lock"]);
        assert_eq!(locks(".git/config"), [".git/config.lock"]);
        for path in [".git", ".git/index.lock", ".git/objects/ab/cd", "index", "src/HEAD", ".git/refs"] {
            assert_eq!(locks(path), [""; 0], "{path}");
        }
    }
}
