//! Moves entries out of the workspace into slots, and makes hard links to its files there.

use super::Apply;
use super::stop::{Done, Keeping, NO_SLOTS, Stop};
use crate::beneath::split;
use crate::entries::changes::Outside;
use crate::faults::Comparison;
use crate::journal::seen::Seen;
use crate::journal::step::Slot;
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use crate::moves::movable::make_movable;
use crate::moves::rename_calls::{Moved, Spot, move_out, move_to_free};
use crate::places::quiet::Quiet;
use rustix::fs::AtFlags;
use std::io;

impl Apply<'_> {
    pub(super) fn hold(&mut self, at: &[u8], old: &Seen, slot: Slot) -> Done {
        let name = slot.to_string().into_bytes();
        // Otherwise the later step looks whether the further name arrived.
        let Some(slots) = self.slots else { return Ok(()) };
        let found = stat_if_there(slots.fd(), &name)?;
        if found.as_ref().is_none_or(|meta| meta.id != old.id) && self.was_brought(slot, old, found.as_ref())? {
            return Ok(());
        }
        match found {
            Some(meta) if meta.id == old.id => return Ok(()),
            // An interrupted pass linked another process's file: it goes back, or its further name goes.
            Some(meta) if meta.links == 1 => {
                return Err(self.return_foreign(Spot { dir: slots.fd(), name: &name }, at, &meta)?);
            }
            Some(_) => crate::beneath::unlink_if_there(slots.fd(), &name)?,
            None => {}
        }
        let (parent, file) = split(at);
        let dir = self.parents.get(parent).map_err(Stop::blocked)?;
        let now = stat_if_there(dir, file)?.ok_or_else(|| Stop::keep(Outside::Vanished))?;
        let own = self.own.get(&now.id).copied();
        let untouched = old.is_untouched(&now, own) || (self.again && old.is_same_version(&now));
        if !untouched {
            return Err(Stop::keep(Outside::Changed));
        }
        self.faults.between_calls();
        rustix::fs::linkat(dir, file, slots.fd(), &*name, AtFlags::empty()).map_err(|e| Stop::moving(e.into()))?;
        self.faults.between_calls();
        let linked = stat(slots.fd(), &name)?;
        if linked.id != old.id {
            // Another file took the name since the look: only this further name of it goes again.
            rustix::fs::unlinkat(slots.fd(), &*name, AtFlags::empty()).map_err(io::Error::from)?;
            return Err(Stop::keep(Outside::Changed));
        }
        self.own.insert(linked.id, linked.ctime);
        Ok(())
    }

    pub(super) fn take(&mut self, at: &[u8], old: &Seen, slot: Slot, renamed: bool) -> Done {
        let slot_name = slot.to_string().into_bytes();
        let Some(slots) = self.slots else { return self.take_nowhere(at, old, renamed) };
        let there = Spot { dir: slots.fd(), name: &slot_name };
        let found = stat_if_there(there.dir, there.name)?;
        let mut taken = found.as_ref().is_some_and(|meta| meta.id == old.id);
        if let Some(found) = found.filter(|_| !taken) {
            if renamed && self.was_brought(slot, old, Some(&found))? {
                self.touch(split(at).0);
                return Ok(());
            }
            // An interrupted pass took out what another process had put there in that moment.
            return Err(self.return_foreign(there, at, &found)?);
        }
        let (parent, name) = split(at);
        match self.enter(parent) {
            Ok(()) => {}
            // Taken before the interruption, from a directory that is elsewhere by now.
            Err(Stop::KeepBack(_)) if taken => return Ok(()),
            // Perhaps it is at its new place already: the later step looks.
            Err(Stop::KeepBack(_)) if renamed && self.again => return Ok(()),
            // Its directory is gone, and it with it.
            Err(Stop::KeepBack(Keeping { outside: Outside::Vanished, .. })) if !renamed => return Ok(()),
            Err(stop) => return Err(stop),
        }
        if taken
            && old.kind != EntryType::Directory
            && stat_if_there(self.parents.get(parent)?, name)?.is_some_and(|meta| meta.id == old.id)
        {
            // Without the flags of renameat2(2): a taking back stopped between its link and its unlink.
            crate::beneath::unlink_if_there(there.dir, there.name)?;
            taken = false;
        }
        let mut lease = None;
        if !taken {
            let dir = self.parents.get(parent)?;
            let Some(now) = stat_if_there(dir, name)? else {
                // Another process deleted it too.
                return if renamed && !self.again { Err(Stop::keep(Outside::Vanished)) } else { Ok(()) };
            };
            if renamed && self.again && now.id != old.id {
                return Ok(());
            }
            if old.kind == EntryType::File {
                lease = self.lease(parent, name)?;
            }
            self.faults.between_calls();
            let dir = self.parents.get(parent)?;
            let now = stat_if_there(dir, name)?.unwrap_or(now);
            if self.faults.compares(Comparison::BeforeTake) && !self.is_untouched(old, &now) {
                return Err(Stop::keep(Outside::Changed));
            }
            let dir = self.parents.get(parent)?;
            make_movable(dir, name, &now).map_err(Stop::blocked)?;
            match move_out(Spot { dir, name }, there, self.faults).map_err(Stop::moving)? {
                Moved::Yes => {}
                Moved::Occupied => return Err(io::Error::other("a slot of the staging directory is taken").into()),
            }
            if now.kind == EntryType::Directory {
                self.parents.last = None;
            }
        }
        self.faults.between_calls();
        let out = stat(there.dir, there.name)?;
        let quiet = if renamed {
            if out.id == old.id { Quiet::Yes } else { Quiet::No }
        } else {
            self.is_quiet(old, slots, &slot_name, &out, lease.is_some())?
        };
        drop(lease);
        self.touch(parent);
        if quiet == Quiet::Yes || !self.faults.compares(Comparison::AfterTake) {
            self.left(at, old, &out);
            self.remember(&out);
            return Ok(());
        }
        Self::restore_mode(there, old)?;
        let back = Spot { dir: self.parents.get(parent).map_err(Stop::Io)?, name };
        let beside = match move_to_free(there, back, self.faults)? {
            Moved::Yes => None,
            Moved::Occupied => Some(self.beside.put(there, at)?),
        };
        let outside = if quiet == Quiet::Written { Outside::Open } else { Outside::Changed };
        Err(Stop::KeepBack(Keeping { outside, beside, detail: None, in_layer: true }))
    }

    /// Ends a step that takes an entry out after another process removed the staging directory. What is still at its
    /// place stays there; the rest was taken out before.
    fn take_nowhere(&mut self, at: &[u8], old: &Seen, renamed: bool) -> Done {
        let (parent, name) = split(at);
        let now = match self.enter(parent) {
            Ok(()) => stat_if_there(self.parents.get(parent)?, name)?,
            Err(Stop::KeepBack(_)) => None,
            Err(stop) => return Err(stop),
        };
        match now {
            Some(now) if now.id == old.id || !renamed => Err(Stop::KeepBack(Keeping {
                outside: Outside::Blocked,
                beside: None,
                detail: Some(NO_SLOTS.to_owned()),
                in_layer: true,
            })),
            _ => Ok(()),
        }
    }

    /// Puts an entry of another process back where it was, or beside.
    fn return_foreign(&mut self, there: Spot<'_>, at: &[u8], found: &Meta) -> Result<Stop, Stop> {
        let (parent, name) = split(at);
        let moved = match self.parents.get(parent) {
            Ok(dir) => move_to_free(there, Spot { dir, name }, self.faults)?,
            Err(_) => Moved::Occupied,
        };
        if found.kind == EntryType::Directory {
            self.parents.last = None;
        }
        let beside = match moved {
            Moved::Yes => None,
            Moved::Occupied => Some(self.beside.put(there, at)?),
        };
        self.touch(parent);
        Ok(Stop::KeepBack(Keeping { outside: Outside::Changed, beside, detail: None, in_layer: true }))
    }
}
