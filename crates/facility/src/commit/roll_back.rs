//! Takes a half-applied commit back: the steps of its journal in reverse order.
//!
//! Nothing that a commit displaced is gone before its journal is marked done, so the old version is whole. A path that
//! another process changed since keeps that process's version; what stood there before goes beside it.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, split};
use crate::changes::{Conflict, Outside};
use crate::commit::apply::{apply_dir_state, make_movable};
use crate::commit::beside::put_beside;
use crate::commit::calls::{Exchanged, Moved, Spot, exchange, move_to_free};
use crate::commit::journal::{DONE, JOURNAL, Journal, sync_directory};
use crate::commit::ops::{Op, Origin, Put, SetDir, Slot};
use crate::commit::recover::{RecoverError, known, locked};
use crate::commit::stage::{open_slots, remove_slots};
use crate::faults::Faults;
use crate::meta::{EntryType, stat, stat_if_there};
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

/// Takes the half-applied commit of `<layers_dir>/<run>` back and returns what could not be put where it was. The layer
/// is undecided afterwards. Without a journal there is nothing to do.
pub fn roll_back(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Vec<Conflict>, RecoverError> {
    roll_back_with(layers_dir, run, workspace, &Faults::default())
}

/// [`roll_back`] with faults, for tests.
pub fn roll_back_with(
    layers_dir: &Path,
    run: &str,
    workspace: &Workspace,
    faults: &Faults,
) -> Result<Vec<Conflict>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let (_, Some(root)) = locked(layers_dir, run)? else { return Ok(Vec::new()) };
    if root.stat(DONE.as_bytes()).doing("look at", DONE.as_bytes()).map_err(io)?.is_some() {
        return Err(RecoverError::Applied { run: run.to_owned() });
    }
    let Some(journal) = known(&root, JOURNAL, run, workspace)? else { return Ok(Vec::new()) };
    reverse(&root, workspace, &journal, faults).map_err(io)
}

/// Reverses what was applied of a journal and takes the decision away.
pub(crate) fn reverse(
    root: &Workspace,
    base: &Workspace,
    journal: &Journal,
    faults: &Faults,
) -> Result<Vec<Conflict>, IoFailure> {
    let upper = Workspace::from_fd(root.readable_dir(b"upper").doing("open", b"upper")?);
    let slots = open_slots(root, base, &journal.header.run, journal.header.slots)?;
    let mut back = Back { base, upper: &upper, slots: slots.as_ref(), journal, faults, conflicts: Vec::new() };
    for op in journal.ops.iter().rev() {
        faults.action();
        let path = op.path().map_or(&b""[..], |path| &path.0);
        back.one(op).doing("put back", path)?;
    }
    let conflicts = back.conflicts;
    faults.sync(|| Ok(rustix::fs::syncfs(base.fd())?)).doing("sync", b"")?;
    crate::beneath::unlink_if_there(root.fd(), JOURNAL.as_bytes()).doing("remove", JOURNAL.as_bytes())?;
    sync_directory(root, faults)?;
    remove_slots(root, base, &journal.header.run, journal.header.slots, faults)?;
    Ok(conflicts)
}

struct Back<'a> {
    base: &'a Workspace,
    upper: &'a Workspace,
    slots: Option<&'a Workspace>,
    journal: &'a Journal,
    faults: &'a Faults,
    conflicts: Vec<Conflict>,
}

impl Back<'_> {
    fn one(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::SetDir(set) => self.set_dir(set),
            Op::Put(put) => self.put(put),
            Op::Take { at, old, slot, .. } => {
                let Some(slots) = self.slots else { return Ok(()) };
                let name = slot.to_string().into_bytes();
                let from = Spot { dir: slots.fd(), name: &name };
                if stat_if_there(from.dir, from.name)?.is_none_or(|meta| meta.id != old.id) {
                    return Ok(());
                }
                self.bring(from, at, old.mode)
            }
            Op::Hold { slot, old, .. } => self.release(*slot, old.id),
            Op::Strip { .. } => Ok(()),
        }
    }

    /// Removes the further name of a file that is still at its own.
    fn release(&self, slot: Slot, id: crate::meta::FileId) -> io::Result<()> {
        let Some(slots) = self.slots else { return Ok(()) };
        let name = slot.to_string().into_bytes();
        match stat_if_there(slots.fd(), &name)? {
            Some(meta) if meta.id == id && meta.links > 1 => crate::beneath::unlink_if_there(slots.fd(), &name),
            _ => Ok(()),
        }
    }

    /// Brings an old entry to its place, or beside it.
    fn bring(&mut self, from: Spot<'_>, path: &ByteText, mode: u32) -> io::Result<()> {
        let (parent, name) = split(&path.0);
        let moved = match self.base.dir_by_force(parent) {
            Ok(dir) => {
                let moved = move_to_free(from, Spot { dir: dir.as_fd(), name }, self.faults)?;
                if moved == Moved::Yes {
                    let now = stat(dir.as_fd(), name)?;
                    if now.kind == EntryType::Directory && now.mode != mode {
                        crate::beneath::chmod(crate::beneath::pin(dir.as_fd(), name)?.as_fd(), mode)?;
                    }
                }
                moved
            }
            Err(error) if is_gone(&error) => Moved::Occupied,
            Err(error) => return Err(error),
        };
        if moved == Moved::Occupied {
            let beside = put_beside(from, self.base, &path.0, &self.journal.header.run, self.faults)?;
            let conflict = Conflict { beside: Some(beside), ..Conflict::new(path.clone(), Outside::Changed) };
            self.conflicts.push(conflict);
        }
        Ok(())
    }

    fn put(&mut self, put: &Put) -> io::Result<()> {
        let Some(new) = put.new else { return Ok(()) };
        let (parent, name) = split(&put.path.0);
        let slot_name;
        let (source_dir, source_name) = match &put.from {
            Origin::Layer => match self.upper.dir_by_force(parent) {
                Ok(dir) => (dir, name),
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error),
            },
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                let Some(slots) = self.slots else { return Ok(()) };
                (slots.dir(b"")?, slot_name.as_slice())
            }
        };
        let source = Spot { dir: source_dir.as_fd(), name: source_name };
        let found = stat_if_there(source.dir, source.name)?;
        if found.as_ref().is_some_and(|meta| meta.id == new.id) {
            return Ok(());
        }
        let target_dir = match self.base.dir_by_force(parent) {
            Ok(dir) => Some(dir),
            Err(error) if is_gone(&error) => None,
            Err(error) => return Err(error),
        };
        let displaced = put.old.filter(|old| found.as_ref().is_some_and(|meta| meta.id == old.id));
        if let Some(dir) = &target_dir {
            let target = Spot { dir: dir.as_fd(), name };
            if let Some(now) = stat_if_there(target.dir, target.name)?.filter(|meta| meta.id == new.id) {
                make_movable(target.dir, target.name, &now)?;
                if displaced.is_some() && exchange(source, target, self.faults)? == Exchanged::Yes {
                    if stat(source.dir, source.name)?.id == new.id {
                        return Ok(());
                    }
                    // A newer version came out instead of ours: it goes back, and the old one beside it.
                    exchange(source, target, self.faults)?;
                }
                if displaced.is_none() {
                    return match move_to_free(target, source, self.faults)? {
                        Moved::Yes => Ok(()),
                        Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
                    };
                }
            }
        }
        match displaced {
            Some(old) => self.bring(source, &put.path, old.mode),
            None => Ok(()),
        }
    }

    fn set_dir(&self, set: &SetDir) -> io::Result<()> {
        let dir = match self.base.dir_by_force(&set.path.0) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let now = stat(dir.as_fd(), b"")?;
        if set.id != Some(now.id) {
            return Ok(());
        }
        let Some(was) = &set.was else { return apply_dir_state(dir.as_fd(), set, &now) };
        let (mode, uid, gid) = (was.mode, was.uid, was.gid);
        let before = SetDir { mode, uid, gid, mtime: Some(was.mtime), attrs: Some(was.attrs.clone()), ..set.clone() };
        apply_dir_state(dir.as_fd(), &before, &now)
    }
}
