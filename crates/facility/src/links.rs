//! Finds the names of a changed file that the layer does not contain.
//!
//! With `index=on` overlay shows a changed file under all its names, also those that the run never touched. A commit brings
//! the new version to each of them, so it must know them; that is the only reason to look through a whole workspace, and
//! it is done only when a file with several names was changed and some of them are unknown.

use crate::beneath::{Doing as _, IoFailure, is_beneath, join, names};
use crate::meta::{EntryType, stat_if_there};
use crate::protected::Class;
use crate::tree::{Found, Group, LayerTree, Lower};
use crate::walk::Walk;
use nexus_model::ByteText;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;

/// Fills in [`Group::others`]. Protected names are left out: a file never changes under one of them by a write through
/// another name.
pub(crate) fn find_others(walk: &Walk<'_>, tree: &LayerTree, groups: &mut [Group]) -> Result<(), IoFailure> {
    let mut known: HashMap<u64, u32> = HashMap::new();
    let mut covered: HashSet<&[u8]> = HashSet::new();
    for found in tree.nodes.iter().filter_map(|node| node.covers.as_ref()) {
        *known.entry(found.meta.id.ino).or_default() += 1;
        covered.insert(&found.at.0);
    }
    let mut wanted: HashMap<u64, usize> = HashMap::new();
    for (number, group) in groups.iter().enumerate() {
        if let Some(anchor) = group.anchor.as_ref().filter(|_| !group.same)
            && anchor.meta.links > known.get(&anchor.meta.id.ino).copied().unwrap_or_default()
        {
            wanted.insert(anchor.meta.id.ino, number);
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let mut stack = vec![Vec::new()];
    while let Some(path) = stack.pop() {
        let dir = match walk.base.readable_dir(&path) {
            Ok(dir) => dir,
            // Another mount, or closed to us: what is in there has no name that we could write.
            Err(error) if is_out_of_reach(&error) => continue,
            Err(error) => return Err(error).doing("open", &path),
        };
        for name in names(dir.as_fd()).doing("list", &path)? {
            let at = join(&path, &name);
            let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", &at)? else { continue };
            if meta.kind == EntryType::Directory {
                stack.push(at);
                continue;
            }
            let Some(number) = wanted.get(&meta.id.ino).copied() else { continue };
            if covered.contains(at.as_slice()) || walk.rules.class(&place_of(tree, &at)) != Class::Plain {
                continue;
            }
            groups[number].others.push(Found { at: ByteText(at), meta });
        }
    }
    Ok(())
}

/// Where an entry would be after the renames of the layer.
fn place_of(tree: &LayerTree, at: &[u8]) -> Vec<u8> {
    let moved = tree.nodes.iter().filter_map(|node| match &node.lower {
        Lower::Moved(found) if is_beneath(at, &found.at.0) => Some((found.at.0.len(), &node.path.0)),
        _ => None,
    });
    match moved.max_by_key(|(length, _)| *length) {
        Some((length, to)) => join(to, at.get(length + 1..).unwrap_or_default()),
        None => at.to_vec(),
    }
}

fn is_out_of_reach(error: &io::Error) -> bool {
    let errno = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    error.kind() == io::ErrorKind::PermissionDenied || errno(Errno::XDEV) || crate::beneath::is_gone(error)
}
