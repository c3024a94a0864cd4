//! Holds back mode changes that take the owner's access to a git directory, or to a directory that contains one.
//!
//! A later commit reads which files git's configuration and hooks refer to (`leads`). It cannot read a closed directory, so a
//! helper program of a hook in it could change without an accept.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, is_other_mount, join, names, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::fold::fold;
use crate::meta::{EntryType, stat_if_there};
use crate::read::access::is_closed;
use crate::read::walk::{Walk, lower_path};
use std::os::fd::AsFd as _;

/// The owner's bits that reading a directory takes.
const OPEN: u32 = 0o500;
/// Entries that are looked at below one directory.
const MAX_ENTRIES: usize = 200_000;

const OF_GIT: &str = "closes a directory of git, or one on the way to a protected name, to its owner";
const HOLDS: &str = "closes a directory with something protected in it to its owner";

/// Parks the directories that a layer closes and that must wait for a decision.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    for at in 0..tree.nodes.len() {
        let node = &tree.nodes[at];
        if !closes(node) || matches!(node.rare.verdict, Some(Verdict::Park(_))) {
            continue;
        }
        let why = match (walk.rules.class(&node.path.0), lower_path(node)) {
            (Class::Plain, None) => None,
            (Class::Plain, Some(base)) => holds_protected(walk, base)?.then_some(HOLDS),
            _ => Some(OF_GIT),
        };
        if let Some(why) = why {
            tree.nodes[at].rare.verdict = Some(Verdict::Park(why.to_owned()));
        }
    }
    Ok(())
}

/// Reports whether an entry is a directory whose owner loses the right to list or to enter it.
fn closes(node: &Node) -> bool {
    let old = match &node.rare.lower {
        Lower::Merged(found) | Lower::Moved(found) => found.meta.mode,
        Lower::None | Lower::Missing => OPEN,
    };
    node.role == Role::Entry && node.meta.kind == EntryType::Directory && old & !node.meta.mode & OPEN != 0
}

/// Reports whether a directory of the workspace lies in a bare repository, is one, or has a repository or a protected
/// name in it.
fn holds_protected(walk: &Walk<'_>, top: &[u8]) -> Result<bool, IoFailure> {
    let mut around = top;
    while !around.is_empty() {
        around = split(around).0;
        if crate::read::git_dirs::is_one(walk.base, around)? {
            return Ok(true);
        }
    }
    let (mut stack, mut left) = (vec![top.to_vec()], MAX_ENTRIES);
    while let Some(at) = stack.pop() {
        if crate::read::git_dirs::is_one(walk.base, &at)? {
            return Ok(true);
        }
        let Some(found) = list(walk.base, &at)? else { continue };
        // What is too large to be looked through may hold anything.
        let Some(less) = left.checked_sub(found.len()) else { return Ok(true) };
        left = less;
        for (name, kind) in found {
            let path = join(&at, &name);
            let is_protected = walk.rules.class(&path).is_protected();
            if is_protected || fold(&name).as_ref() == b".git" {
                return Ok(true);
            }
            if kind == EntryType::Directory {
                stack.push(path);
            }
        }
    }
    Ok(false)
}

/// Names with what they are.
type Entries = Vec<(Vec<u8>, EntryType)>;

/// Lists the entries of a directory. `None` when it is gone, another mount, or closed already: what it hid was hidden
/// before.
fn list(base: &Workspace, at: &[u8]) -> Result<Option<Entries>, IoFailure> {
    let dir = match base.readable_dir(at) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) || is_other_mount(&error) || is_closed(&error) => return Ok(None),
        Err(error) => return Err(error).doing("open", at),
    };
    let mut found = Vec::new();
    for name in names(dir.as_fd()).doing("list", at)? {
        match stat_if_there(dir.as_fd(), &name) {
            Ok(Some(meta)) => found.push((name, meta.kind)),
            Ok(None) => {}
            // It can be listed and not entered: the names count all the same.
            Err(error) if is_closed(&error) => found.push((name, EntryType::File)),
            Err(error) => return Err(error).doing("look at", &join(at, &name)),
        }
    }
    Ok(Some(found))
}
