//! Undoes a `Put` step: moves the entry out of the workspace, unless another process changed it, and restores the old version.

use super::undo::{Back, LOST};
use crate::beneath::split;
use crate::commit::apply::as_put::is_as_put;
use crate::entries::changes::{Conflict, Outside};
use crate::faults::Comparison;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put};
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use crate::moves::movable::make_movable;
use crate::moves::rename_calls::{Exchanged, Moved, Spot, exchange, move_out, move_to_free};
use crate::notes::returned;
use crate::read::git_dirs::may_be_repository;
use nexus_git::paths::git_dir_of_object;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

impl Back<'_> {
    pub(super) fn put(&mut self, put: &Put) -> io::Result<()> {
        let Some(new) = put.new else { return Ok(()) };
        let (parent, name) = split(&put.path.0);
        let slot_name;
        let (source_dir, source_name) = match &put.from {
            Origin::Layer => {
                let Some(dir) = self.upper.dir_by_force_if_there(parent)? else { return Ok(()) };
                (dir, name)
            }
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                let Some(slots) = self.slots else {
                    // Another process removed the staging directory, and with it what was displaced.
                    if self.base.stat(&put.path.0)?.is_some_and(|now| now.id == new.id) {
                        let detail = Some(LOST.to_owned());
                        self.conflicts.push(Conflict { detail, ..Conflict::new(put.path.clone(), Outside::Blocked) });
                    }
                    return Ok(());
                };
                (slots.dir(b"")?, slot_name.as_slice())
            }
        };
        let source = Spot { dir: source_dir.as_fd(), name: source_name };
        let side = self.side(put)?;
        let side = side.spot();
        let found = stat_if_there(source.dir, source.name)?;
        let at_source = found.as_ref().is_some_and(|meta| meta.id == new.id);
        let on_side = match stat_if_there(side.dir, side.name)? {
            // A withdrawal over the side was interrupted: the old version goes to its place, then ours to its own.
            Some(left) if left.id == new.id => {
                if let Some(found) = found {
                    self.bring(source, &put.path, found.mode)?;
                }
                if !self.is_as_put(put, &new, &left, side)? {
                    return self.hand_back(put, side);
                }
                return match move_out(side, source, self.faults)? {
                    Moved::Yes => Ok(()),
                    Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
                };
            }
            // What another process had put there in that moment goes back first.
            Some(left) if put.old.is_none_or(|old| old.id != left.id) => {
                self.bring(side, &put.path, left.mode)?;
                None
            }
            other => other,
        };
        if at_source && new.kind != EntryType::Directory {
            self.unlink(put, &new)?;
        }
        let withdrawn = found.as_ref().filter(|_| at_source);
        let is_edited = withdrawn.map_or(Ok(false), |found| self.was_edited(put, &new, found, source))?;
        if at_source && on_side.is_none() && !is_edited {
            return Ok(());
        }
        if !at_source {
            self.withdraw(put, &new, source, found.is_none())?;
        }
        // The old version: on the side when an exchange of three renames was interrupted, else at the source.
        if let Some(old) = &put.old
            && on_side.is_some()
        {
            self.bring(side, &put.path, old.mode)?;
            return if is_edited { self.hand_back(put, source) } else { Ok(()) };
        }
        if is_edited {
            return self.hand_back(put, source);
        }
        match stat_if_there(source.dir, source.name)? {
            Some(left) if left.id != new.id => {
                if self.indexes.contains(&put.path.0) {
                    self.put_index_beside(put)?;
                }
                self.bring(source, &put.path, left.mode)
            }
            _ => Ok(()),
        }
    }

    /// Puts the index that git made from that of the run beside its place.
    fn put_index_beside(&mut self, put: &Put) -> io::Result<()> {
        let (parent, name) = split(&put.path.0);
        let dir = self.base.dir_by_force(parent)?;
        if stat_if_there(dir.as_fd(), name)?.is_none() {
            return Ok(());
        }
        self.works_in(dir.as_fd())?;
        let beside = Some(self.beside.put(Spot { dir: dir.as_fd(), name }, &put.path.0)?);
        self.conflicts.push(Conflict { beside, ..Conflict::new(put.path.clone(), Outside::Changed) });
        Ok(())
    }

    /// Ends a put that was interrupted halfway. Without the flags of renameat2(2) a put may have stopped between its
    /// link and its unlink: our version is still at its source, and what has its name in the workspace is moved out and
    /// looked at.
    fn unlink(&mut self, put: &Put, new: &Seen) -> io::Result<()> {
        let (parent, name) = split(&put.path.0);
        let Some(dir) = self.base.dir_by_force_if_there(parent)? else { return Ok(()) };
        let target = Spot { dir: dir.as_fd(), name };
        let side = self.side(put)?.second();
        let side = side.spot();
        let is_ours = |meta: Option<Meta>| meta.is_some_and(|meta| meta.id == new.id);
        self.works_in(target.dir)?;
        if is_ours(stat_if_there(target.dir, target.name)?) && move_out(target, side, self.faults)? == Moved::Occupied {
            return Err(io::Error::other("a side name is taken"));
        }
        match stat_if_there(side.dir, side.name)? {
            Some(left) if left.id == new.id => crate::beneath::unlink_if_there(side.dir, side.name),
            Some(left) => self.bring(side, &put.path, left.mode),
            None => Ok(()),
        }
    }

    /// Takes our version out of the workspace, if it still is as we put it. Otherwise it stays, as what another process
    /// made of it.
    fn withdraw(&mut self, put: &Put, new: &Seen, source: Spot<'_>, is_free: bool) -> io::Result<()> {
        let (parent, name) = split(&put.path.0);
        let Some(dir) = self.base.dir_by_force_if_there(parent)? else { return Ok(()) };
        let target = Spot { dir: dir.as_fd(), name };
        let Some(now) = stat_if_there(target.dir, target.name)?.filter(|meta| meta.id == new.id) else { return Ok(()) };
        // Git may have removed its own copy of an object meanwhile, or made something from it. One too many does no harm.
        if git_dir_of_object(&put.path.0).is_some_and(|git_dir| may_be_repository(self.base, git_dir)) {
            return Ok(());
        }
        if self.stays.contains(&put.path.0) || !self.is_as_put(put, new, &now, target)? {
            if is_free {
                // With nothing to put back, the path itself is all there is to name.
                self.conflicts.push(Conflict::new(put.path.clone(), Outside::Changed));
            }
            return Ok(());
        }
        self.works_in(target.dir)?;
        make_movable(target.dir, target.name, &now)?;
        if is_free {
            return match move_out(target, source, self.faults)? {
                Moved::Yes => self.check_withdrawn(put, new, source),
                Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
            };
        }
        if let Some(old) = &put.old {
            returned::will(self.root, old.id);
        }
        match exchange(source, target, self.faults)? {
            Exchanged::Yes => {
                self.note_returned(put, target)?;
                self.faults.between_calls();
                let out = stat(source.dir, source.name)?;
                if out.id == new.id && self.is_as_put(put, new, &out, source)? {
                    return Ok(());
                }
                // Another version came out instead of ours: it goes back, and the old one beside it.
                match exchange(source, target, self.faults) {
                    Ok(Exchanged::Yes) => Ok(()),
                    // Its place is free by now, or cannot be reached.
                    Ok(Exchanged::Gone | Exchanged::Unsupported) | Err(_) => self.hand_back(put, source),
                }
            }
            Exchanged::Gone => Ok(()),
            Exchanged::Unsupported => {
                let side = self.side(put)?;
                let side = side.spot();
                if move_out(target, side, self.faults)? == Moved::Occupied {
                    return Err(io::Error::other("a side name is taken"));
                }
                let out = stat(side.dir, side.name)?;
                if out.id != new.id || !self.is_as_put(put, new, &out, side)? {
                    return self.bring(side, &put.path, out.mode);
                }
                self.bring(source, &put.path, put.old.map_or(out.mode, |old| old.mode))?;
                match move_out(side, source, self.faults)? {
                    Moved::Yes => Ok(()),
                    Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
                }
            }
        }
    }

    /// Notes a directory of the workspace whose times a move sets.
    pub(super) fn works_in(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        returned::will(self.root, stat(dir, b"")?.id);
        Ok(())
    }

    /// Notes the old version of a path that is at its place.
    pub(super) fn note_returned(&self, put: &Put, at: Spot<'_>) -> io::Result<()> {
        let now = stat_if_there(at.dir, at.name)?.filter(|now| put.old.is_some_and(|old| old.id == now.id));
        if let Some(now) = now {
            returned::did(self.root, &now);
        }
        Ok(())
    }

    /// Looks at what was taken out of a place that is free now.
    fn check_withdrawn(&mut self, put: &Put, new: &Seen, source: Spot<'_>) -> io::Result<()> {
        self.faults.between_calls();
        let out = stat(source.dir, source.name)?;
        if out.id == new.id && self.is_as_put(put, new, &out, source)? {
            return Ok(());
        }
        self.hand_back(put, source)
    }

    /// Brings a version that another process made to its path, or beside it, and names it.
    fn hand_back(&mut self, put: &Put, from: Spot<'_>) -> io::Result<()> {
        let (parent, name) = split(&put.path.0);
        let moved = match self.base.dir_by_force(parent) {
            Ok(dir) => move_to_free(from, Spot { dir: dir.as_fd(), name }, self.faults).unwrap_or(Moved::Occupied),
            Err(_) => Moved::Occupied,
        };
        let beside = match moved {
            Moved::Yes => None,
            Moved::Occupied => Some(self.beside.put(from, &put.path.0)?),
        };
        self.conflicts.push(Conflict { beside, ..Conflict::new(put.path.clone(), Outside::Changed) });
        Ok(())
    }

    /// Reports whether another process changed an entry that lies at its source: an interrupted pass may have withdrawn
    /// the entry without comparing it. An entry that was never put is as the journal says.
    fn was_edited(&self, put: &Put, new: &Seen, found: &Meta, source: Spot<'_>) -> io::Result<bool> {
        // A file that has its own name in the workspace may change there. A directory of which the journal does not say
        // what was in it is never withdrawn.
        if self.held.contains(&new.id) || (put.whole && put.inside.is_none()) {
            return Ok(false);
        }
        Ok(!self.is_as_put(put, new, found, source)?)
    }

    /// Reports whether an entry that the commit put is unchanged, and no process writes to it.
    pub(super) fn is_as_put(&self, put: &Put, new: &Seen, now: &Meta, at: Spot<'_>) -> io::Result<bool> {
        if !self.faults.compares(Comparison::AsPut) {
            return Ok(true);
        }
        is_as_put(put, self.is_made(put), (new, now), at, self.base.leases())
    }

    /// Reports whether a directory was made for this commit; otherwise it is one of the workspace's that was renamed.
    pub(super) fn is_made(&self, put: &Put) -> bool {
        let Origin::Slot(slot) = &put.from else { return false };
        !self.taken.contains(slot)
    }
}
