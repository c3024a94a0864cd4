//! Looks at what a commit took out of the workspace, and removes it when the commit is done.
//!
//! A file that a process still has open for writing, or whose content changed after the run started, is never removed:
//! it goes back to the workspace, beside its old name.

use crate::beneath::{Doing as _, IoFailure, LeaseCall, Workspace, chmod, is_gone, join, names, split};
use crate::changes::{Conflict, Outside};
use crate::commit::apply::Rooms;
use crate::commit::beside::put_beside;
use crate::commit::calls::Spot;
use crate::commit::journal::{Journal, KeptBack};
use crate::commit::ops::{Op, Origin, Put};
use crate::commit::seen::Seen;
use crate::commit::writers::{Writers, writers};
use crate::faults::Faults;
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use crate::remove::remove_tree;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;

/// Whether a displaced entry may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// Nothing happened to it.
    Yes,
    /// It changed.
    No,
    /// A process has a file of it open for writing.
    Written,
}

/// Looks through a displaced directory for an entry that `changed` names, or that a process writes to.
pub(crate) fn quiet_inside(
    tree: &Workspace,
    top: &[u8],
    leases: Option<LeaseCall>,
    changed: &dyn Fn(&Meta) -> bool,
) -> io::Result<Quiet> {
    let mut opened: Vec<(Vec<u8>, u32)> = Vec::new();
    let result = look_inside(tree, top, leases, changed, &mut opened);
    for (path, mode) in opened.iter().rev() {
        let dir = tree.dir(path)?;
        chmod(dir.as_fd(), *mode)?;
    }
    result
}

fn look_inside(
    tree: &Workspace,
    top: &[u8],
    leases: Option<LeaseCall>,
    changed: &dyn Fn(&Meta) -> bool,
    opened: &mut Vec<(Vec<u8>, u32)>,
) -> io::Result<Quiet> {
    let mut stack = vec![top.to_vec()];
    while let Some(path) = stack.pop() {
        let dir = match tree.readable_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if let Some(meta) = tree.stat(&path)? {
                    opened.push((path.clone(), meta.mode));
                }
                tree.dir_by_force(&path)?;
                tree.readable_dir(&path)?
            }
            // A mount point: nothing below it may be removed.
            Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => return Ok(Quiet::No),
            other => other?,
        };
        for name in names(dir.as_fd())? {
            let Some(meta) = stat_if_there(dir.as_fd(), &name)? else { return Ok(Quiet::No) };
            if changed(&meta) {
                return Ok(Quiet::No);
            }
            match meta.kind {
                EntryType::Directory => stack.push(join(&path, &name)),
                EntryType::File if matches!(writers(leases, dir.as_fd(), &name), Writers::Some) => {
                    return Ok(Quiet::Written);
                }
                _ => {}
            }
        }
    }
    Ok(Quiet::Yes)
}

/// Removes everything that a finished commit displaced. Returns what had to be kept beside its old name.
pub(crate) fn remove_displaced(
    rooms: &Rooms<'_>,
    journal: &Journal,
    kept: &HashSet<&[u8]>,
    faults: &Faults,
) -> Result<Vec<KeptBack>, IoFailure> {
    let mut rescued = Vec::new();
    for op in &journal.ops {
        let Some(old) = op.displaces() else { continue };
        let Some(path) = op.path().filter(|path| !kept.contains(path.0.as_slice())) else { continue };
        let slot_name;
        let (tree, at) = match op {
            Op::Take { slot, .. } | Op::Put(Put { from: Origin::Slot(slot), .. }) => {
                slot_name = slot.to_string().into_bytes();
                let Some(slots) = rooms.slots else { continue };
                (slots, slot_name.as_slice())
            }
            _ => (rooms.upper, path.0.as_slice()),
        };
        faults.action();
        let quiet = remove_one(tree, at, old, rooms).doing("remove", at)?;
        if quiet == Quiet::Yes {
            continue;
        }
        let (parent, name) = split(at);
        let dir = tree.dir_by_force(parent).doing("open", parent)?;
        let spot = Spot { dir: dir.as_fd(), name };
        let beside = put_beside(spot, rooms.base, &path.0, &journal.header.run, faults).doing("put beside", &path.0)?;
        let outside = if quiet == Quiet::Written { Outside::Open } else { Outside::Changed };
        let conflict = Some(Conflict { path: path.clone(), outside, beside: Some(beside), detail: None });
        rescued.push(KeptBack { path: path.clone(), conflict, in_layer: false, subtree: false });
    }
    Ok(rescued)
}

fn remove_one(tree: &Workspace, at: &[u8], old: &Seen, rooms: &Rooms<'_>) -> io::Result<Quiet> {
    let (leases, started) = (rooms.base.leases(), rooms.started);
    let (parent, name) = split(at);
    let dir = match tree.dir_by_force(parent) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) => return Ok(Quiet::Yes),
        Err(error) => return Err(error),
    };
    let Some(now) = stat_if_there(dir.as_fd(), name)? else { return Ok(Quiet::Yes) };
    if now.id != old.id {
        // Not what was displaced: an entry of the layer itself, which goes with the layer.
        return Ok(Quiet::Yes);
    }
    if old.kind == EntryType::Directory {
        let changed = |meta: &Meta| meta.kind != EntryType::Directory && meta.mtime > started && meta.ctime > started;
        let quiet = quiet_inside(tree, at, leases, &changed)?;
        if quiet == Quiet::Yes {
            remove_tree(tree, at)?;
        }
        return Ok(quiet);
    }
    let lease = if old.kind == EntryType::File { Some(writers(leases, dir.as_fd(), name)) } else { None };
    if matches!(lease, Some(Writers::Some)) {
        return Ok(Quiet::Written);
    }
    if !old.is_same_version(&stat(dir.as_fd(), name)?) {
        return Ok(Quiet::No);
    }
    rustix::fs::unlinkat(dir.as_fd(), name, AtFlags::empty())?;
    drop(lease);
    Ok(Quiet::Yes)
}
