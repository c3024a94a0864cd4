//! Removes committed entries from a layer that stays parked in part.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, join, names, split, unlink_if_there};
use crate::disk::copy::make_whiteout;
use crate::disk::remove::{readable_by_force, remove_tree};
use crate::disk::xattr;
use crate::faults::Faults;
use crate::journal::file::INDEX_IN_PART;
use crate::journal::file::sync_directory;
use crate::journal::kept_entry::KeptEntry;
use crate::meta::{EntryType, stat, stat_if_there};
use crate::moves::leftover::{Leftover, set_aside};
use crate::moves::rename_calls::Spot;
use crate::notes::empty_directories::remove_empty;
use crate::notes::withdrawn::{WHY, is_marked};
use crate::places::commit_places::CommitPlaces;
use crate::places::commit_places::LayerDirectories;
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;

/// Removes what was committed from the layer, and keeps what waits. `left` is what may not be removed and was set
/// aside.
pub(crate) fn prune_layer(
    directories: &LayerDirectories<'_>,
    places: &CommitPlaces<'_>,
    (keep, keep_in_index): (&[KeptEntry], &[ByteText]),
    left: &mut Vec<Leftover>,
    faults: &Faults,
) -> Result<(), IoFailure> {
    let mut once = || {
        prune(directories, places, keep, left, faults)?;
        faults.between_calls();
        if keep_in_index.is_empty() {
            return remove_tree(directories.root, b"work").doing("remove", b"work");
        }
        prune_index(places.root, keep_in_index, faults)
    };
    // Most errors do not come twice.
    once().or_else(|_| once())
}

/// Removes everything from overlay's own directory but these files of its index, and notes that it lacks the
/// others.
fn prune_index(root: &Workspace, keep: &[ByteText], faults: &Faults) -> Result<(), IoFailure> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(root.fd(), INDEX_IN_PART, flags, Mode::from_raw_mode(0o600))
        .doing("make", INDEX_IN_PART.as_bytes())?;
    let work = root.readable_dir(b"work").doing("open", b"work")?;
    sync_directory(&Workspace::from_fd(work), faults)?;
    for (path, keeps) in [
        (&b"work"[..], &(|name: &[u8]| name == b"index" || name == b"part") as &dyn Fn(&[u8]) -> bool),
        (b"work/index", &|name: &[u8]| keep.iter().any(|one| one.0 == name)),
    ] {
        let dir = readable_by_force(root, path).doing("open", path)?;
        for name in names(dir.as_fd()).doing("list", path)?.into_iter().filter(|name| !keeps(name)) {
            faults.between_calls();
            let entry = join(path, &name);
            remove_tree(root, &entry).doing("remove", &entry)?;
        }
    }
    Ok(())
}

/// Removes everything from the upper directory but `keep` and the directories on the way to it.
fn prune(
    directories: &LayerDirectories<'_>,
    places: &CommitPlaces<'_>,
    keep: &[KeptEntry],
    left: &mut Vec<Leftover>,
    faults: &Faults,
) -> Result<(), IoFailure> {
    let upper = places.upper;
    let is_marked = is_marked(directories.root)?;
    let kept: HashMap<&[u8], &KeptEntry> = keep.iter().map(|one| (one.path.0.as_slice(), one)).collect();
    let mut on_the_way: HashSet<&[u8]> = HashSet::new();
    for one in keep {
        let mut path = split(&one.path.0).0;
        while !path.is_empty() && on_the_way.insert(path) {
            path = split(path).0;
        }
    }
    let mut stack: Vec<Vec<u8>> = vec![Vec::new()];
    let mut entered = Vec::new();
    while let Some(path) = stack.pop() {
        let dir = readable_by_force(upper, &path).doing("open", &path)?;
        for name in names(dir.as_fd()).doing("list", &path)? {
            let entry = crate::beneath::join(&path, &name);
            let kept = kept.get(entry.as_slice());
            if kept.is_some_and(|one| one.subtree) {
                continue;
            }
            if kept.is_none() && !on_the_way.contains(entry.as_slice()) {
                faults.between_calls();
                if is_marked {
                    left.extend(clear(directories, places, &entry, faults).doing("remove", &entry)?);
                } else {
                    remove_tree(upper, &entry).doing("remove", &entry)?;
                }
                continue;
            }
            let meta = stat(dir.as_fd(), &name).doing("look at", &entry)?;
            if meta.kind == EntryType::Directory {
                entered.push((entry.clone(), kept.copied()));
                stack.push(entry);
            }
        }
    }
    for one in keep.iter().filter(|one| one.whiteout) {
        let (parent, name) = split(&one.path.0);
        let dir = upper.dir(parent).doing("open", parent)?;
        if stat_if_there(dir.as_fd(), name).doing("look at", &one.path.0)?.is_none() {
            faults.between_calls();
            make_whiteout(dir.as_fd(), name).doing("mark as gone", &one.path.0)?;
        }
    }
    for (path, kept) in entered.iter().rev() {
        settle(upper, directories.base, path, *kept)?;
    }
    Ok(())
}

/// Makes a directory on the way continue the one in the workspace: it hides nothing and comes from nowhere, and its
/// mode is the committed one, or its own if that is still to be decided.
fn settle(upper: &Workspace, base: &Workspace, path: &[u8], kept: Option<&KeptEntry>) -> Result<(), IoFailure> {
    let dir = upper.dir_by_force(path).doing("open", path)?;
    for name in xattr::list(dir.as_fd(), b"").doing("list the attributes of", path)? {
        if name.ends_with(b".overlay.opaque") || name.ends_with(b".overlay.redirect") {
            xattr::remove(dir.as_fd(), b"", &name).doing("clean", path)?;
        }
    }
    let mode = if let Some(kept) = kept {
        // Its mode is a part of what waits; the journal has it as it was before a process opened the directory up.
        kept.mode
    } else {
        // Where the workspace's own directory cannot be looked at (another mount, closed to its owner), the mode stays.
        let found = base.stat(path).ok().flatten();
        found.filter(|meta| meta.kind == EntryType::Directory).map(|meta| meta.mode)
    };
    mode.map_or(Ok(()), |mode| chmod(dir.as_fd(), mode).doing("set the mode of", path))
}

/// Removes an entry of a layer to which a process may still write since a commit of it was taken back. Directories go
/// only while they are empty; files and the rest are set aside.
fn clear(
    directories: &LayerDirectories<'_>,
    places: &CommitPlaces<'_>,
    path: &[u8],
    faults: &Faults,
) -> io::Result<Option<Leftover>> {
    let (parent, name) = split(path);
    let dir = places.upper.dir_by_force(parent)?;
    let Some(meta) = stat_if_there(dir.as_fd(), name)? else { return Ok(None) };
    let is_gone = match meta.kind {
        EntryType::Directory => remove_empty(places.upper, path, faults)?,
        // It may have been saved since the layer was read.
        EntryType::File => false,
        _ => unlink_if_there(dir.as_fd(), name).map(|()| true)?,
    };
    if is_gone {
        return Ok(None);
    }
    let shown = String::from_utf8_lossy(name).into_owned();
    let place = set_aside(directories.layers, directories.run, Spot { dir: dir.as_fd(), name }, &shown, faults)?;
    Ok(Some(Leftover::new(&place, Some(&ByteText(path.to_vec())), WHY.to_owned())))
}
