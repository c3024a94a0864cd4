//! Looks at what a commit took out of the workspace, and removes it when the commit is done.
//!
//! A file that a process still has open for writing, or whose content changed after the run started, is never removed:
//! it goes back to the workspace, beside its old name.

use crate::beneath::{Doing as _, IoFailure, LeaseCall, Workspace, chmod, is_gone, join, names, split};
use crate::changes::{Conflict, Outside};
use crate::commit::apply::Rooms;
use crate::commit::beside::{found_beside, put_beside};
use crate::commit::calls::Spot;
use crate::commit::journal::{Journal, KeptBack, Outcome};
use crate::commit::ops::{Op, Origin, Put};
use crate::commit::seen::Seen;
use crate::commit::writers::{Writers, writers};
use crate::faults::Faults;
use crate::meta::{EntryType, FileId, FsTime, Meta, stat, stat_if_there};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
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
    /// It is not there.
    Gone,
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
    outcome: &Outcome,
    kept: &HashSet<&[u8]>,
    faults: &Faults,
) -> Result<Vec<KeptBack>, IoFailure> {
    let shared: HashSet<FileId> =
        journal.ops.iter().filter_map(Op::displaces).filter(|old| old.links > 1).map(|old| old.id).collect();
    let left_at: HashMap<&[u8], FsTime> = outcome.left_at.iter().map(|(path, at)| (path.0.as_slice(), *at)).collect();
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
        let new = match op {
            Op::Put(put) => put.new.map(|new| new.id),
            _ => None,
        };
        faults.action();
        // A process with the directory open may still add to it, so that everything younger than the move is its own.
        let since = left_at.get(path.0.as_slice()).copied().unwrap_or(rooms.started);
        let is_late = |meta: &Meta| meta.ctime >= since && (!shared.contains(&meta.id) || meta.mtime >= since);
        let quiet = remove_one(tree, at, (old, new), rooms, &is_late).doing("remove", at)?;
        let beside = match quiet {
            Quiet::Gone => found_beside(rooms.base, &path.0, &journal.header.run).doing("look at", &path.0)?,
            Quiet::Yes => None,
            Quiet::No | Quiet::Written => {
                let (parent, name) = split(at);
                let dir = tree.dir_by_force(parent).doing("open", parent)?;
                let spot = Spot { dir: dir.as_fd(), name };
                let run = &journal.header.run;
                Some(put_beside(spot, rooms.base, &path.0, run, faults).doing("put beside", &path.0)?)
            }
        };
        let Some(beside) = beside else { continue };
        let outside = if quiet == Quiet::Written { Outside::Open } else { Outside::Changed };
        let conflict = Some(Conflict { path: path.clone(), outside, beside: Some(beside), detail: None });
        rescued.push(KeptBack { path: path.clone(), conflict, in_layer: false, subtree: false, arrived: true });
    }
    Ok(rescued)
}

fn remove_one(
    tree: &Workspace,
    at: &[u8],
    (old, new): (&Seen, Option<FileId>),
    rooms: &Rooms<'_>,
    is_late: &dyn Fn(&Meta) -> bool,
) -> io::Result<Quiet> {
    let leases = rooms.base.leases();
    let (parent, name) = split(at);
    let dir = match tree.dir_by_force(parent) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) => return Ok(Quiet::Gone),
        Err(error) => return Err(error),
    };
    let Some(now) = stat_if_there(dir.as_fd(), name)? else { return Ok(Quiet::Gone) };
    if now.id != old.id {
        // Our own entry goes with the layer. Anything else came out of the workspace in a crash, and is not ours.
        return Ok(if new == Some(now.id) { Quiet::Yes } else { Quiet::No });
    }
    if old.kind == EntryType::Directory {
        let quiet = quiet_inside(tree, at, leases, is_late)?;
        return if quiet == Quiet::Yes { remove_seen(tree, at, leases, is_late) } else { Ok(quiet) };
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

/// Removes a displaced directory entry by entry, and stops at the first one that came late.
fn remove_seen(
    tree: &Workspace,
    top: &[u8],
    leases: Option<LeaseCall>,
    is_late: &dyn Fn(&Meta) -> bool,
) -> io::Result<Quiet> {
    let mut stack = vec![(top.to_vec(), false)];
    while let Some((path, emptied)) = stack.pop() {
        let (parent, name) = split(&path);
        if emptied {
            let parent = tree.dir_by_force(parent)?;
            match rustix::fs::unlinkat(parent.as_fd(), name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => continue,
                // Something came while it was emptied.
                Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Quiet::No),
                Err(error) => return Err(error.into()),
            }
        }
        let dir = crate::remove::readable_by_force(tree, &path)?;
        stack.push((path.clone(), true));
        for name in names(dir.as_fd())? {
            let Some(meta) = stat_if_there(dir.as_fd(), &name)? else { continue };
            if meta.kind == EntryType::Directory {
                stack.push((join(&path, &name), false));
                continue;
            }
            if is_late(&meta) {
                return Ok(Quiet::No);
            }
            let lease = if meta.kind == EntryType::File { Some(writers(leases, dir.as_fd(), &name)) } else { None };
            if matches!(lease, Some(Writers::Some)) {
                return Ok(Quiet::Written);
            }
            rustix::fs::unlinkat(dir.as_fd(), &*name, AtFlags::empty())?;
        }
    }
    Ok(Quiet::Yes)
}
