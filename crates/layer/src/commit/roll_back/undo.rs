//! Undoes the steps of a commit one by one, and restores the modes of directories that it had to make accessible.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, is_gone, split, widen};
use crate::entries::changes::{Conflict, Outside};
use crate::entries::tree::CommittedEntry;
use crate::faults::Faults;
use crate::journal::dir_attrs::{AttrState, apply_dir_state, found};
use crate::journal::file::JOURNAL;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put, SetDir, Slot, Step};
use crate::journal::step_reader::Steps;
use crate::journal::units::Units;
use crate::meta::{EntryType, FileId, stat, stat_if_there};
use crate::moves::beside::Beside;
use crate::moves::rename_calls::{Moved, Spot, move_to_free};
use crate::notes::returned;
use crate::places::side::Side;
use nexus_model::ByteText;
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;

/// Reason for which a path is not as it was.
pub(super) const LOST: &str = "the staging directory is gone, and the old version with it";

/// Number of times that a step is tried while other processes remove what it works on.
const TRIES: u32 = 5;

/// A commit on its way back.
pub(super) struct Back<'a> {
    pub(super) root: &'a Workspace,
    pub(super) base: &'a Workspace,
    pub(super) upper: &'a Workspace,
    pub(super) slots: Option<&'a Workspace>,
    pub(super) steps: &'a Steps,
    /// The slots of what left the workspace.
    pub(super) taken: HashSet<Slot>,
    /// Files of the workspace that have further names in slots.
    pub(super) held: HashSet<FileId>,
    pub(super) faults: &'a Faults,
    pub(super) beside: Beside<'a>,
    /// The number of the step.
    pub(super) at: usize,
    /// An earlier pass had undone every step.
    pub(super) cleared: bool,
    pub(super) conflicts: Vec<Conflict>,
    /// Paths that stay as they are, since one that goes with them was changed.
    pub(super) stays: HashSet<Vec<u8>>,
    /// Steps that go back together or not at all.
    pub(super) units: Units,
    /// Indexes that git wrote again since, in whose places the old ones go.
    pub(super) indexes: HashSet<Vec<u8>>,
}

impl<'a> Back<'a> {
    pub(super) fn side(&self, put: &Put) -> io::Result<Side<'a>> {
        Side::of(&put.from, self.at, self.root, self.slots).ok_or_else(|| io::Error::other("no staging directory"))
    }

    pub(super) fn all(&mut self) -> Result<(), IoFailure> {
        for step in self.steps.each_back().doing("read", JOURNAL.as_bytes())? {
            let (at, step) = step.doing("read", JOURNAL.as_bytes())?;
            self.at = at;
            self.faults.between_calls();
            let path = step.path().map_or(&b""[..], |path| &path.0);
            self.look_again().doing("look at", path)?;
            self.one_or_again(&step).doing("put back", path)?;
        }
        Ok(())
    }

    /// Takes a step back, and again when another process removed the entry between two calls: each step begins by
    /// looking at what is there.
    fn one_or_again(&mut self, step: &Step) -> io::Result<()> {
        for _ in 1..TRIES {
            match self.one(step) {
                Err(error) if is_gone(&error) => {}
                ended => return ended,
            }
        }
        self.one(step)
    }

    /// Closes the directories that this or an interrupted pass opened up, the deepest first, and notes the time stamps
    /// that they got.
    pub(super) fn close(&self, ours: &mut Vec<CommittedEntry>) -> Result<(), IoFailure> {
        for step in self.steps.each() {
            let Step::SetDir(set) = step.doing("read", JOURNAL.as_bytes())? else { continue };
            let path = &set.path;
            // Otherwise another process removed, closed or mounted over it.
            let Ok(dir) = self.base.dir(&path.0) else { continue };
            let now = stat(dir.as_fd(), b"").doing("look at", &path.0)?;
            let mode = set.was.as_ref().map_or(set.mode, |was| was.mode);
            if set.id != Some(now.id) {
                continue;
            }
            if now.mode != mode && now.mode == mode | 0o700 {
                self.faults.between_calls();
                crate::beneath::chmod(dir.as_fd(), mode).doing("set the mode of", &path.0)?;
            }
            let now = stat(dir.as_fd(), b"").doing("look at", &path.0)?;
            if now.mode == mode {
                ours.push(CommittedEntry::new(path, &now));
            }
        }
        Ok(())
    }

    fn one(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::SetDir(set) => self.set_dir(set),
            Step::Put(put) => self.put(put),
            Step::Take { at, old, slot, .. } => {
                let Some(slots) = self.slots else { return self.name_lost(at, old, *slot) };
                let name = slot.to_string().into_bytes();
                let from = Spot { dir: slots.fd(), name: &name };
                // Also what another process had put there in the moment of the move.
                match stat_if_there(from.dir, from.name)? {
                    Some(found) if found.id == old.id => self.bring(from, at, old.mode),
                    Some(found) => self.bring(from, at, found.mode),
                    None => Ok(()),
                }
            }
            Step::Hold { at, slot, old } => self.release(at, *slot, old.id),
            Step::Strip { .. } => Ok(()),
        }
    }

    /// Names the entries of a staging directory that another process removed.
    fn name_lost(&mut self, at: &ByteText, old: &Seen, slot: Slot) -> io::Result<()> {
        if self.cleared || self.base.stat(&at.0)?.is_some_and(|now| now.id == old.id) {
            return Ok(());
        }
        for step in self.steps.each() {
            // A renamed directory that has arrived is named there.
            if let Step::Put(put) = step?
                && put.from == Origin::Slot(slot)
                && self.base.stat(&put.path.0)?.is_some_and(|now| now.id == old.id)
            {
                return Ok(());
            }
        }
        let beside = self.beside.found(&at.0).map_err(|failure| failure.source)?;
        let detail = beside.is_none().then(|| LOST.to_owned());
        self.conflicts.push(Conflict { beside, detail, ..Conflict::new(at.clone(), Outside::Blocked) });
        Ok(())
    }

    /// Removes the further name of a file that is still at its own.
    fn release(&mut self, at: &ByteText, slot: Slot, id: FileId) -> io::Result<()> {
        let Some(slots) = self.slots else { return Ok(()) };
        let name = slot.to_string().into_bytes();
        match stat_if_there(slots.fd(), &name)? {
            Some(meta) if meta.id == id && meta.links > 1 => {
                returned::will(self.root, id);
                crate::beneath::unlink_if_there(slots.fd(), &name)?;
                if let Some(now) = self.base.stat(&at.0)?.filter(|now| now.id == id) {
                    returned::did(self.root, &now);
                }
                Ok(())
            }
            // It is its only name by now.
            Some(meta) => self.bring(Spot { dir: slots.fd(), name: &name }, at, meta.mode),
            None => Ok(()),
        }
    }

    /// Brings an old entry to its place, or beside it.
    pub(super) fn bring(&mut self, from: Spot<'_>, path: &ByteText, mode: u32) -> io::Result<()> {
        let (parent, name) = split(&path.0);
        let moved = match self.base.dir_by_force(parent) {
            _ if self.stays.contains(&path.0) => Moved::Occupied,
            Ok(dir) => {
                self.works_in(dir.as_fd())?;
                returned::will(self.root, stat(from.dir, from.name)?.id);
                let moved = move_to_free(from, Spot { dir: dir.as_fd(), name }, self.faults)?;
                if moved == Moved::Yes {
                    let now = stat(dir.as_fd(), name)?;
                    if now.kind == EntryType::Directory && now.mode != mode {
                        crate::beneath::chmod(crate::beneath::pin(dir.as_fd(), name)?.as_fd(), mode)?;
                    }
                    returned::did(self.root, &now);
                }
                moved
            }
            Err(error) if is_gone(&error) => Moved::Occupied,
            Err(error) => return Err(error),
        };
        if moved == Moved::Occupied {
            let beside = self.beside.put(from, &path.0)?;
            let conflict = Conflict { beside: Some(beside), ..Conflict::new(path.clone(), Outside::Changed) };
            self.conflicts.push(conflict);
        }
        Ok(())
    }

    fn set_dir(&mut self, set: &SetDir) -> io::Result<()> {
        // The directory itself is not opened up: its mode tells whether another process changed it.
        let dir = match self.base.dir_by_force(split(&set.path.0).0).and_then(|_| self.base.dir(&set.path.0)) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let now = stat(dir.as_fd(), b"")?;
        if set.id != Some(now.id) {
            return Ok(());
        }
        match (found(dir.as_fd(), set, &now, true)?, &set.was) {
            (AttrState::Opened, _) => chmod(dir.as_fd(), set.mode),
            (AttrState::Known, Some(was)) => {
                let mtime = (Some(now.mtime) == set.mtime).then_some(was.mtime);
                let (mode, uid, gid) = (was.mode, was.uid, was.gid);
                widen(dir.as_fd())?;
                let before = SetDir { mode, uid, gid, mtime, attrs: Some(was.attrs.clone()), ..set.clone() };
                apply_dir_state(dir.as_fd(), &before, &now)
            }
            (AttrState::Foreign, Some(_)) => {
                self.conflicts.push(Conflict::new(set.path.clone(), Outside::Changed));
                Ok(())
            }
            // A directory that the commit made goes with its own step.
            (AttrState::Known | AttrState::Foreign, None) => Ok(()),
        }
    }
}
