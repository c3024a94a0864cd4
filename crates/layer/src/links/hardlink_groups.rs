//! Groups the entries of a layer that are hard links to one file.
//!
//! With `index=on` (root's layers) a file of the workspace that has several names is copied up once, and all its names
//! show the copy, also those that the layer does not contain. A commit must write to that file in place; a
//! replacement would separate the names. If the run deleted every name that the layer has, the copy still exists in overlay's index.

use crate::beneath::{Doing as _, IoFailure, Workspace, names, split};
use crate::disk::xattr;
use crate::entries::marks::{LayerMode, Marks, Origin, attr, read};
use crate::entries::tie::Tie;
use crate::entries::tree::{Found, Group, LayerTree, Role, Source};
use crate::meta::{EntryType, Meta, stat};
use crate::read::compare::same_bytes;
use crate::read::walk::{Walk, WalkError, origin_inode};
use nexus_model::ByteText;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd as _;

/// A copy in overlay's index and the inode that it was copied from.
struct Indexed {
    name: ByteText,
    meta: Meta,
    origin: u64,
}

fn indexed(walk: &Walk<'_>) -> Result<Vec<Indexed>, WalkError> {
    let Some(index) = &walk.index else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    // A descriptor of its own: reading a directory moves its position.
    let listed = index.readable_dir(b"").doing("open", b"index")?;
    for name in names(listed.as_fd()).doing("list", b"index")? {
        let meta = stat(index.fd(), &name).doing("look at", &name)?;
        // Whiteouts (no name is left) and directories are of no interest here.
        if matches!(meta.kind, EntryType::Directory | EntryType::Device) {
            continue;
        }
        let mut marks = Marks::default();
        for one in xattr::list(index.fd(), &name).doing("list the attributes of", &name)? {
            if attr(walk.mode, &one) == crate::entries::marks::Attr::Mark {
                let value = xattr::get(index.fd(), &name, &one).doing("read an attribute of", &name)?;
                read(walk.mode, walk.lower, &one, &value, &mut marks)
                    .map_err(|source| WalkError::Mark { path: ByteText(name.clone()), source })?;
            }
        }
        if let Some(Origin::Inode(origin)) = marks.origin {
            found.push(Indexed { name: ByteText(name), meta, origin });
        }
    }
    Ok(found)
}

/// The inodes of the workspace whose copies are in the index.
pub(crate) fn index_origins(walk: &Walk<'_>) -> Result<Vec<u64>, WalkError> {
    Ok(indexed(walk)?.into_iter().map(|one| one.origin).collect())
}

/// Fills in [`LayerTree::groups`].
pub(crate) fn group(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), WalkError> {
    let anchor = |origin: Option<u64>, kind: EntryType| -> Option<Found> {
        let found = tree.by_inode(origin?)?;
        let shared = walk.mode == LayerMode::Root && found.meta.links > 1 && found.meta.kind == kind;
        shared.then(|| found.clone())
    };
    let mut by_inode: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, one) in tree.nodes.iter().enumerate() {
        let is_named = one.role == Role::Entry && one.meta.kind != EntryType::Directory;
        // Most files have one name and stand for a file with one name.
        if is_named && (one.meta.links > 1 || anchor(origin_inode(one), one.meta.kind).is_some()) {
            by_inode.entry(one.meta.id.ino).or_default().push(at);
        }
    }
    let mut groups = Vec::new();
    for members in by_inode.values() {
        let first = &tree.nodes[members[0]];
        let anchor = anchor(origin_inode(first), first.meta.kind);
        if members.len() > 1 || anchor.is_some() {
            let source = Source::Upper(first.path.text());
            groups.push(Group {
                members: members.clone(),
                anchor,
                source,
                meta: first.meta.clone(),
                others: Vec::new(),
                same: false,
                tie: Tie::default(),
                waits: false,
            });
        }
    }
    for one in indexed(walk)? {
        if by_inode.contains_key(&one.meta.id.ino) {
            continue;
        }
        if let Some(anchor) = anchor(Some(one.origin), one.meta.kind) {
            let source = Source::Index(one.name);
            let waits = !walk.rules.is_chosen(&anchor.at.0);
            groups.push(Group {
                members: Vec::new(),
                anchor: Some(anchor),
                source,
                meta: one.meta,
                others: Vec::new(),
                same: false,
                tie: Tie::default(),
                waits,
            });
        }
    }
    let mut of: HashMap<usize, usize> = HashMap::new();
    for (number, group) in groups.iter_mut().enumerate() {
        of.extend(group.members.iter().map(|member| (*member, number)));
        group.same = is_same(walk, group)?;
    }
    for (member, number) in of {
        tree.nodes[member].rare.group = Some(number);
    }
    tree.groups = groups;
    Ok(())
}

/// Reports whether the copy still equals the file in the workspace.
fn is_same(walk: &Walk<'_>, group: &Group) -> Result<bool, IoFailure> {
    let Some(anchor) = &group.anchor else { return Ok(false) };
    let (new, old) = (&group.meta, &anchor.meta);
    match new.kind {
        EntryType::File => {}
        EntryType::Symlink => return Ok(true),
        _ => return Ok((new.mode, new.uid, new.gid) == (old.mode, old.uid, old.gid)),
    }
    let equal = (new.size, new.mode, new.uid, new.gid, new.mtime) == (old.size, old.mode, old.uid, old.gid, old.mtime);
    if !equal || new.size > crate::read::compare::MAX_COMPARED {
        return Ok(false);
    }
    let dir = |tree: &Workspace, path: &[u8]| tree.dir(split(path).0).doing("open", path);
    let old_dir = dir(walk.base, &anchor.at.0)?;
    let old_name = split(&anchor.at.0).1;
    let (new_dir, path) = match (&group.source, &walk.index) {
        (Source::Upper(path), _) => (dir(walk.upper, &path.0)?, path),
        (Source::Index(name), Some(index)) => (dir(index, &name.0)?, name),
        (Source::Index(_), None) => return Ok(false),
    };
    let new_name = split(&path.0).1;
    // Attributes may differ too; writing them again costs little.
    Ok(xattr_free(new_dir.as_fd(), new_name, walk.mode).doing("list the attributes of", &path.0)?
        && xattr_free(old_dir.as_fd(), old_name, walk.mode).doing("list the attributes of", &anchor.at.0)?
        && same_bytes(new_dir.as_fd(), old_dir.as_fd(), new_name, old_name).doing("compare", &path.0)?)
}

fn xattr_free(dir: std::os::fd::BorrowedFd<'_>, name: &[u8], mode: LayerMode) -> std::io::Result<bool> {
    use crate::entries::marks::Attr;
    Ok(xattr::list(dir, name)?.iter().all(|one| matches!(attr(mode, one), Attr::Mark | Attr::Leave)))
}
