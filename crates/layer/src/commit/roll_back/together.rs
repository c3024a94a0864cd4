//! Finds the members of a commit unit that a rollback leaves as they are, because another process changed one member.

use super::undo::Back;
use crate::beneath::{Doing as _, IoFailure, is_gone, split};
use crate::faults::Comparison;
use crate::journal::file::{JOURNAL, Journal};
use crate::journal::step::{Origin, Put, Step};
use crate::journal::units::{Unit, Units, brings_index, others_of_one};
use crate::meta::{EntryType, FsTime, stat_if_there};
use crate::moves::rename_calls::Spot;
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;

impl Back<'_> {
    /// Notes the members of the units of which one cannot be put back.
    pub(super) fn find_what_stays(&mut self, journal: &Journal, started: FsTime) -> Result<(), IoFailure> {
        if !self.faults.compares(Comparison::Unit) {
            return Ok(());
        }
        let units = Units::find(self.steps, self.base, &[], false).doing("read", JOURNAL.as_bytes())?;
        let is_fresh = |paths: Vec<Vec<u8>>| {
            paths.iter().any(|path| {
                let found = self.base.stat(path).ok().flatten();
                found.is_some_and(|meta| journal.header.is_fresh(started, path, &meta))
            })
        };
        let mut alone = Vec::new();
        for (at, step) in self.steps.each().enumerate() {
            let step = step.doing("read", JOURNAL.as_bytes())?;
            if units.of(at).is_none() && is_fresh(others_of_one(&step)) {
                alone.extend(step.path().map(|path| path.0.clone()));
            }
        }
        let fresh: Vec<bool> = units.all().iter().map(|unit| is_fresh(unit.others())).collect();
        self.stays.extend(alone);
        for (unit, is_fresh) in units.all().iter().zip(fresh) {
            let mut is_changed = is_fresh;
            let mut indexes = HashSet::new();
            for (at, step) in &unit.members {
                self.at = *at;
                let path = step.path().map_or(&b""[..], |path| &path.0);
                let is_this = self.is_changed(step).doing("look at", path)?;
                if is_this && unit.git_dir.is_some() && brings_index(step) {
                    indexes.insert(path.to_vec());
                } else {
                    is_changed |= is_this;
                }
            }
            // An index that git wrote again since has the work of the run in it: it goes beside, and the refs go back.
            if !is_changed {
                self.indexes.extend(indexes);
            }
            if is_changed {
                self.stays.extend(unit.members.iter().filter_map(|(_, step)| step.path()).map(|path| path.0.clone()));
            }
        }
        self.units = units;
        Ok(())
    }

    /// Compares a database and its logs again, before one of them goes back.
    pub(super) fn look_again(&mut self) -> io::Result<()> {
        let units = std::mem::take(&mut self.units);
        if let Some(unit) = units.of(self.at).filter(|unit| unit.git_dir.is_none() && !self.stays_of(unit)) {
            let at = self.at;
            for (number, step) in &unit.members {
                self.at = *number;
                if self.is_changed(step)? {
                    self.stays
                        .extend(unit.members.iter().filter_map(|(_, step)| step.path()).map(|path| path.0.clone()));
                    break;
                }
            }
            self.at = at;
        }
        self.units = units;
        Ok(())
    }

    fn stays_of(&self, unit: &Unit) -> bool {
        unit.members.iter().filter_map(|(_, step)| step.path()).any(|path| self.stays.contains(&path.0))
    }

    /// Reports whether another process changed what a step brought, or took the place of what it took away.
    fn is_changed(&self, step: &Step) -> io::Result<bool> {
        let now = |path: &[u8]| match self.base.stat(path) {
            Err(error) if is_gone(&error) => Ok(None),
            other => other,
        };
        match step {
            Step::Take { at, old, slot, .. } => {
                let is_taken = |slots: &crate::beneath::Workspace| {
                    stat_if_there(slots.fd(), slot.to_string().as_bytes())
                        .map(|found| found.is_some_and(|found| found.id == old.id))
                };
                let now = now(&at.0)?;
                if now.as_ref().is_some_and(|now| now.id == old.id) {
                    return Ok(now.is_some_and(|now| !old.is_same_version(&now)));
                }
                Ok(self.slots.map_or(Ok(false), is_taken)? && now.is_some())
            }
            Step::Put(put) => {
                let Some(new) = put.new else { return Ok(false) };
                match now(&put.path.0)? {
                    // What the commit put into a directory that it made is not a change by another process.
                    Some(now) if now.id == new.id && self.is_made(put) && new.kind == EntryType::Directory => Ok(false),
                    Some(now) if now.id == new.id => {
                        let (parent, name) = split(&put.path.0);
                        let dir = self.base.dir_by_force(parent)?;
                        Ok(!self.is_as_put(put, &new, &now, Spot { dir: dir.as_fd(), name })?)
                    }
                    // An earlier pass put it back, and another process may have written to it since.
                    Some(now) if put.old.is_some_and(|old| old.id == now.id) => {
                        Ok(put.old.is_some_and(|old| !old.is_same_version(&now)))
                    }
                    _ => self.was_put(put),
                }
            }
            Step::Hold { .. } | Step::Strip { .. } | Step::SetDir(_) => Ok(false),
        }
    }

    /// Reports whether the entry of a step left its source.
    fn was_put(&self, put: &Put) -> io::Result<bool> {
        let found = match (&put.from, self.slots) {
            (Origin::Layer, _) => self.upper.stat(&put.path.0)?,
            (Origin::Slot(slot), Some(slots)) => stat_if_there(slots.fd(), slot.to_string().as_bytes())?,
            (Origin::Slot(_), None) => None,
        };
        Ok(put.new.is_some_and(|new| found.is_none_or(|found| found.id != new.id)))
    }
}
