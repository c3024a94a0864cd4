//! Keeps back the deletion of a renamed file's old name if its new name was kept back: the old name would be the last copy in
//! the workspace.

use super::Apply;
use crate::beneath::{Doing as _, IoFailure, split};
use crate::entries::changes::{Conflict, Outside};
use crate::entries::tree::CommittedEntry;
use crate::journal::file::{JOURNAL, KeptBack};
use crate::journal::seen::Seen;
use crate::journal::step::{EVERYTHING, Origin, Put, Slot, Step};
use crate::meta::{Meta, stat, stat_if_there};
use crate::moves::movable::make_movable;
use crate::moves::rename_calls::{Moved, Spot, move_to_free};
use crate::notes::returned;
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

impl Apply<'_> {
    /// Notes the steps that wait for one that was kept back.
    pub(super) fn wait(&mut self, step: &Step, in_layer: bool) {
        if let Step::Put(put) = step
            && in_layer
        {
            self.awaited.extend(put.sources.iter().cloned());
        }
    }

    /// Reports whether a step takes away an entry from which one that was kept back was made.
    pub(super) fn is_awaited(&self, step: &Step) -> bool {
        if self.awaited.is_empty() || step.displaces().is_none() {
            return false;
        }
        let is_named = |path: &ByteText| self.awaited.contains(path);
        step.path().is_some_and(is_named) || self.awaited.iter().any(|path| path.0 == EVERYTHING)
    }

    /// Reports whether an earlier pass carried out a step that takes something away.
    pub(super) fn is_carried_out(&self, step: &Step) -> bool {
        match step {
            Step::Take { old, slot, .. } => self.is_in_slot(*slot, old),
            Step::Put(put) => put.old.is_some_and(|old| self.is_displaced(self.at, put, &old)),
            Step::Hold { .. } | Step::Strip { .. } | Step::SetDir(_) => false,
        }
    }

    /// Undoes the steps that were carried out before the one that they wait for was kept back.
    pub(super) fn return_sources(&mut self) -> Result<(), IoFailure> {
        if self.awaited.is_empty() {
            return Ok(());
        }
        let journal = self.journal;
        for (at, step) in journal.steps.each().enumerate() {
            self.at = at;
            let step = step.doing("read", JOURNAL.as_bytes())?;
            let Some(path) = step.path().filter(|path| self.is_awaited(&step) && !self.is_kept(&path.0)) else {
                continue;
            };
            let kept = match &step {
                Step::Take { at, old, slot, .. } => self.return_taken(at, old, *slot),
                Step::Put(put) => self.keep_displaced(put),
                Step::Hold { .. } | Step::Strip { .. } | Step::SetDir(_) => Ok(None),
            };
            if let Some(kept) = kept.doing("put back", &path.0)? {
                self.kept_paths.insert(kept.path.0.clone());
                self.kept.push(kept);
            }
        }
        Ok(())
    }

    /// Brings what was taken out back to its place, or beside it.
    pub(super) fn return_taken(&mut self, at: &ByteText, old: &Seen, slot: Slot) -> io::Result<Option<KeptBack>> {
        let Some(slots) = self.slots.filter(|_| self.is_in_slot(slot, old)) else { return Ok(None) };
        let slot_name = slot.to_string().into_bytes();
        let there = Spot { dir: slots.fd(), name: &slot_name };
        make_movable(there.dir, there.name, &stat(there.dir, there.name)?)?;
        self.parents.last = None;
        let (parent, name) = split(&at.0);
        let moved = match self.enter(parent) {
            // Where the old place cannot be reached, a place beside it may be.
            Ok(()) => move_to_free(there, Spot { dir: self.parents.get(parent)?, name }, self.faults)
                .unwrap_or(Moved::Occupied),
            Err(_) => Moved::Occupied,
        };
        self.touch(parent);
        let mut kept = KeptBack { path: at.clone(), conflict: None, in_layer: true, subtree: false, arrived: false };
        if moved == Moved::Occupied {
            Self::restore_mode(there, old)?;
            let beside = Some(self.beside.put(there, &at.0)?);
            kept.conflict = Some(Conflict { beside, ..Conflict::new(at.clone(), Outside::Changed) });
            return Ok(Some(kept));
        }
        let back = Spot { dir: self.parents.get(parent)?, name };
        Self::restore_mode(back, old)?;
        if let Some(now) = stat_if_there(back.dir, back.name)?
            && (now.id, now.mode, now.mtime) == (old.id, old.mode, old.mtime)
        {
            // The moves set its ctime, which is not a change by another process for a later accept.
            self.returned_to(at, &now);
        }
        Ok(Some(kept))
    }

    /// Notes an entry that is back at its place as it was.
    pub(super) fn returned_to(&mut self, at: &ByteText, now: &Meta) {
        self.returned.push(CommittedEntry::new(at, now));
        returned::did(self.root, now);
    }

    /// Puts what was displaced beside its place, where the run's version stays.
    pub(super) fn keep_displaced(&mut self, put: &Put) -> io::Result<Option<KeptBack>> {
        let Some(old) = put.old.filter(|old| self.is_displaced(self.at, put, old)) else { return Ok(None) };
        let (parent, name) = split(&put.path.0);
        let slot_name;
        let (dir, name) = match &put.from {
            Origin::Layer => (super::own_fd(self.layer_parents.get(parent)?)?, name),
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                (super::own_fd(self.slots()?.fd())?, slot_name.as_slice())
            }
        };
        let from = Spot { dir: dir.as_fd(), name };
        Self::restore_mode(from, &old)?;
        let path = put.path.clone();
        let beside = Some(self.put_beside(put, from)?);
        let conflict = Some(Conflict { beside, ..Conflict::new(path.clone(), Outside::Changed) });
        Ok(Some(KeptBack { path, conflict, in_layer: false, subtree: false, arrived: true }))
    }
}
