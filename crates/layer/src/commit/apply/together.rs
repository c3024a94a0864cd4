//! Keeps back all members of a commit unit when one of them is kept back, whether or not other members were applied already.

use super::{Apply, own_fd};
use crate::beneath::{Doing as _, IoFailure, is_gone, split};
use crate::commit::apply::as_put::is_as_put;
use crate::commit::apply::needs::{Look, brings_around};
use crate::commit::apply::side::Taken;
use crate::databases::sqlite_files::is_of_database;
use crate::entries::changes::{Conflict, Outside};
use crate::faults::Comparison;
use crate::journal::file::KeptBack;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put, Slot, Step};
use crate::journal::units::{self, Allows, Cause, State, others_of_one};
use crate::meta::{EntryType, Meta, stat_if_there};
use crate::moves::movable::strip_marks;
use crate::moves::rename_calls::{Moved, Spot, move_out, move_to_free};
use crate::places::writers::{Writers, writers};
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

impl Apply<'_> {
    /// Decides before a step whether its unit may come. Returns the reason where this step is the one that may not.
    pub(super) fn unit_of_step(&mut self, step: &Step) -> Result<Allows, IoFailure> {
        let at = self.at;
        let Some(unit) = self.units.of(at) else {
            let of_database = |path: &ByteText| is_of_database(&[self.base, self.upper], &path.0);
            let is_fresh = self.is_any_fresh(&others_of_one(step)) && step.path().is_some_and(of_database);
            let is_changed = is_fresh && self.faults.compares(Comparison::Unit);
            return Ok(if is_changed { Allows::Changed(Cause::new(at, Outside::Changed)) } else { Allows::Comes });
        };
        // Another process may write a log once the old one went: a database is compared before each of its steps.
        let is_database = unit.git_dir.is_none();
        if unit.state == State::Unchecked || (unit.state == State::Whole && is_database) {
            let (members, others, git_dir) = (unit.members.clone(), unit.others(), unit.git_dir.clone());
            let is_fresh = self.is_any_fresh(&others);
            let mut state = if is_fresh { State::Broken(Cause::new(at, Outside::Changed)) } else { State::Whole };
            // What is in a whole new repository is compared as without a unit.
            let is_around = |step: &Step| git_dir.as_ref().is_some_and(|git_dir| brings_around(step, git_dir));
            for (number, step) in members.iter().filter(|(_, step)| !is_around(step)) {
                let path = step.path().map_or(&b""[..], |path| &path.0);
                if let Some(outside) = self.changed(*number, step).doing("look at", path)? {
                    // A step that was carried out is not named any more.
                    state = State::Broken(Cause::new(at.max(*number), outside));
                    break;
                }
            }
            if let (State::Whole, Some(git_dir)) = (state, git_dir) {
                let hidden = self.hides_packed(&git_dir, &members).or_else(|| self.deleted_meanwhile(&members));
                let cause = if hidden.is_some() { hidden } else { self.lost_objects(&git_dir, &members, Look::First)? };
                state = cause.map_or(state, State::Broken);
            }
            let compares = self.faults.compares(Comparison::Unit);
            self.units.set(at, if compares { state } else { State::Whole });
        }
        Ok(match self.units.of(at).map(|unit| unit.state) {
            Some(State::Broken(cause)) if cause.number == at => Allows::Changed(cause),
            Some(State::Broken(..)) => Allows::Broken,
            _ => Allows::Comes,
        })
    }

    /// Reports how the workspace differs from what a step was planned for, or from what an earlier pass made of it.
    fn changed(&mut self, number: usize, step: &Step) -> io::Result<Option<Outside>> {
        let (path, old) = match step {
            Step::Put(put) => (&put.path.0, put.old),
            Step::Take { at, old, .. } => (&at.0, Some(*old)),
            Step::Hold { .. } | Step::Strip { .. } | Step::SetDir(_) => return Ok(None),
        };
        let now = match self.base.stat(path) {
            Err(error) if is_gone(&error) => None,
            // The step itself reports what is in its way.
            Err(_) => return Ok(Some(Outside::Blocked)),
            Ok(now) => now,
        };
        let brought = if let Step::Put(put) = step { put.new.map(|new| (put, new)) } else { None };
        Ok(match (now, old) {
            (Some(now), _) if brought.is_some_and(|(_, new)| new.id == now.id) => {
                let is_whole = brought.is_none_or(|(put, new)| self.is_still_as_put(put, &new, &now).unwrap_or(false));
                (!is_whole).then_some(Outside::Changed)
            }
            (Some(now), Some(old)) if self.is_untouched(&old, &now) => {
                self.is_written(path, &now)?.then_some(Outside::Open)
            }
            (Some(_), _) => Some(Outside::Changed),
            (None, Some(old)) if brought.is_some() => {
                let was_put = brought.is_some_and(|(put, _)| self.is_displaced(number, put, &old));
                Some(if was_put { Outside::Changed } else { Outside::Vanished })
            }
            // Taken by an earlier pass, or deleted by another process too; not brought yet.
            (None, _) => None,
        })
    }

    /// Reports whether one of these files has content and changed since the start.
    fn is_any_fresh(&self, paths: &[Vec<u8>]) -> bool {
        let header = &self.journal.header;
        let is_fresh = |path: &Vec<u8>| match self.base.stat(path) {
            Ok(Some(meta)) => header.is_fresh(self.started, path, &meta),
            // A file that cannot be inspected is not a log that SQLite could read.
            Ok(None) | Err(_) => false,
        };
        paths.iter().any(is_fresh)
    }

    fn is_written(&mut self, path: &[u8], now: &Meta) -> io::Result<bool> {
        if now.kind != EntryType::File {
            return Ok(false);
        }
        let (parent, name) = split(path);
        let leases = self.base.leases();
        let dir = self.parents.get(parent)?;
        Ok(matches!(writers(leases, dir, name)?, Writers::Some))
    }

    fn is_still_as_put(&mut self, put: &Put, new: &Seen, now: &Meta) -> io::Result<bool> {
        let (parent, name) = split(&put.path.0);
        let made = matches!(&put.from, Origin::Slot(slot) if !self.renamed.contains_key(slot));
        // What an earlier pass put into a directory that it made is not a change by another process.
        if made && new.kind == EntryType::Directory {
            return Ok(true);
        }
        let leases = self.base.leases();
        let dir = own_fd(self.parents.get(parent)?)?;
        is_as_put(put, made, (new, now), Spot { dir: dir.as_fd(), name }, leases)
    }

    /// Brings back what came of the units of which a later step was kept back.
    pub(super) fn return_units(&mut self) -> Result<(), IoFailure> {
        for unit in self.units.take_broken() {
            // A log goes back only to its database, and the other way round.
            let is_apart = unit.git_dir.is_none() && self.is_apart(&unit)?;
            for (at, step) in unit.members.iter().rev() {
                self.at = *at;
                let Some(path) = step.path().filter(|path| !self.kept_paths.contains(&path.0)) else { continue };
                let kept = match step {
                    Step::Take { at, old, slot, .. } if is_apart => self.keep_taken(at, old, *slot),
                    Step::Take { at, old, slot, .. } => self.return_taken(at, old, *slot),
                    Step::Put(put) if is_apart => self.keep_displaced(put),
                    Step::Put(put) => self.return_put(put),
                    Step::Hold { .. } | Step::Strip { .. } | Step::SetDir(_) => Ok(None),
                };
                if let Some(mut kept) = kept.doing("put back", &path.0)? {
                    if let State::Broken(cause) = unit.state
                        && cause.number == *at
                        && kept.conflict.is_none()
                    {
                        // It had come before the reason was found.
                        let detail = cause.detail.map(str::to_owned);
                        kept.conflict = Some(Conflict { detail, ..Conflict::new(path.clone(), cause.outside) });
                    }
                    self.kept_paths.insert(kept.path.0.clone());
                    self.kept.push(kept);
                }
            }
        }
        Ok(())
    }

    /// Reports whether a member is neither as it was nor as the commit brought it.
    fn is_apart(&mut self, unit: &units::Unit) -> Result<bool, IoFailure> {
        for (number, step) in &unit.members {
            let path = step.path().map_or(&b""[..], |path| &path.0);
            // A program that has it open has not changed it.
            if self.changed(*number, step).doing("look at", path)?.is_some_and(|outside| outside != Outside::Open) {
                return Ok(true);
            }
        }
        Ok(self.is_any_fresh(&unit.others()))
    }

    /// Puts what was taken out beside its place.
    fn keep_taken(&mut self, at: &ByteText, old: &Seen, slot: Slot) -> io::Result<Option<KeptBack>> {
        let Some(slots) = self.slots.filter(|_| self.is_in_slot(slot, old)) else { return Ok(None) };
        let slot_name = slot.to_string().into_bytes();
        let there = Spot { dir: slots.fd(), name: &slot_name };
        Self::restore_mode(there, old)?;
        let beside = Some(self.beside.put(there, &at.0)?);
        let conflict = Some(Conflict { beside, ..Conflict::new(at.clone(), Outside::Changed) });
        Ok(Some(KeptBack { path: at.clone(), conflict, in_layer: false, subtree: false, arrived: true }))
    }

    /// Takes what a step brought out of the workspace again, and puts back what it displaced. Where another process changed it
    /// meanwhile, both versions stay.
    fn return_put(&mut self, put: &Put) -> io::Result<Option<KeptBack>> {
        let Some(new) = put.new else { return Ok(None) };
        let (parent, name) = split(&put.path.0);
        if self.parents.get(parent).is_err() {
            return self.keep_displaced(put);
        }
        let target_dir = own_fd(self.parents.get(parent)?)?;
        let target = Spot { dir: target_dir.as_fd(), name };
        let Some(now) = stat_if_there(target.dir, target.name)?.filter(|now| now.id == new.id) else {
            return self.keep_displaced(put);
        };
        let slot_name;
        let (source_dir, source_name) = match &put.from {
            Origin::Layer => (own_fd(self.layer_parents.get(parent)?)?, name),
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                (own_fd(self.slots()?.fd())?, slot_name.as_slice())
            }
        };
        let source = Spot { dir: source_dir.as_fd(), name: source_name };
        if new.kind == EntryType::Directory {
            (self.parents.last, self.layer_parents.last) = (None, None);
        }
        let in_layer = !put.only_staged;
        let home = KeptBack { path: put.path.clone(), conflict: None, in_layer, subtree: is_dir(&new), arrived: false };
        let made = matches!(&put.from, Origin::Slot(slot) if !self.renamed.contains_key(slot));
        if !is_as_put(put, made, (&new, &now), target, self.base.leases())? {
            return self.keep_displaced(put);
        }
        self.touch(parent);
        let Some(old) = put.old.filter(|old| self.is_displaced(self.at, put, old)) else {
            if put.old.is_some() || move_out(target, source, self.faults)? == Moved::Occupied {
                return Ok(None);
            }
            if matches!(self.as_taken(put, source, &new)?, Taken::Ours) {
                return self.staged_beside(put, source, home).map(Some);
            }
            let beside = match move_to_free(source, target, self.faults)? {
                Moved::Yes => None,
                Moved::Occupied => Some(self.put_beside(put, source)?),
            };
            let conflict = Some(Conflict { beside, ..Conflict::new(put.path.clone(), Outside::Changed) });
            return Ok(Some(KeptBack { conflict, in_layer: false, arrived: true, ..home }));
        };
        match self.take_back(put, source, target, &new)? {
            Taken::Ours => {
                Self::restore_mode(target, &old)?;
                if let Some(now) = stat_if_there(target.dir, target.name)?
                    && (now.id, now.mode, now.mtime) == (old.id, old.mode, old.mtime)
                {
                    // The moves set its ctime, which is not a change by another process for a later accept.
                    self.returned_to(&put.path, &now);
                }
                self.staged_beside(put, source, home).map(Some)
            }
            // Another process wrote to ours: the old version is at its place, and ours goes beside it.
            Taken::Written => {
                let beside = Some(self.put_beside(put, source)?);
                let conflict = Some(Conflict { beside, ..Conflict::new(put.path.clone(), Outside::Changed) });
                let in_layer = in_layer && matches!(put.from, Origin::Slot(_));
                Ok(Some(KeptBack { conflict, in_layer, ..home }))
            }
            Taken::Again => self.keep_displaced(put),
        }
    }

    /// Names the place of a version that only the slot has.
    fn staged_beside(&self, put: &Put, source: Spot<'_>, home: KeptBack) -> io::Result<KeptBack> {
        if !put.only_staged {
            return Ok(home);
        }
        strip_marks(source.dir, source.name, &put.strip)?;
        let beside = self.put_beside(put, source)?;
        let conflict = Some(Conflict { beside: Some(beside), ..Conflict::new(put.path.clone(), Outside::Changed) });
        Ok(KeptBack { conflict, ..home })
    }
}

fn is_dir(new: &Seen) -> bool {
    new.kind == EntryType::Directory
}
