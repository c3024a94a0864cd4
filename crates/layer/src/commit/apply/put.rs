//! Brings entries to their places in the workspace.

use super::side::Taken;
use super::stop::{Done, Keeping, NO_SLOTS, Stop};
use super::{Apply, own_fd};
use crate::beneath::{chmod, is_gone, pin, split};
use crate::entries::changes::Outside;
use crate::faults::Comparison;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put};
use crate::meta::{EntryType, Meta, stat_if_there};
use crate::moves::movable::{make_movable, strip_marks};
use crate::moves::rename_calls::{Moved, Spot, move_out, move_to_free};
use crate::places::quiet::Quiet;
use crate::places::writers::Writers;
use std::io;
use std::os::fd::AsFd as _;

impl Apply<'_> {
    pub(super) fn put(&mut self, put: &Put) -> Done {
        let path: &[u8] = &put.path.0;
        let new = put.new.ok_or_else(|| io::Error::other("a step without an entry"))?;
        if let Origin::Slot(slot) = &put.from
            && self.dead_slots.contains(slot)
        {
            return Err(Stop::keep(Outside::Vanished));
        }
        let (parent, name) = split(path);
        if let Err(stop) = self.enter(parent) {
            return Err(self.without_target(put, &new, stop)?);
        }
        if matches!(put.from, Origin::Slot(_)) && self.slots.is_none() {
            let now = stat_if_there(self.parents.get(parent)?, name)?;
            // Another process removed the staging directory. What had arrived has; the rest stays in the layer.
            return match now {
                Some(now) if now.id == new.id => Ok(()),
                _ => Err(Stop::KeepBack(Keeping {
                    outside: Outside::Blocked,
                    beside: None,
                    detail: Some(NO_SLOTS.to_owned()),
                    in_layer: !put.only_staged,
                })),
            };
        }
        // Descriptors of their own: opening one directory must not close the other.
        let target_dir = own_fd(self.parents.get(parent)?)?;
        let target = Spot { dir: target_dir.as_fd(), name };
        let slot_name;
        let (source_dir, source_name, source_tree, source_path) = match &put.from {
            Origin::Layer => match self.layer_parents.get(parent) {
                Ok(dir) => (own_fd(dir)?, name, self.upper, path.to_vec()),
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            },
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                let slots = self.slots()?;
                (own_fd(slots.fd())?, slot_name.as_slice(), slots, slot_name.clone())
            }
        };
        let source = Spot { dir: source_dir.as_fd(), name: source_name };
        let found = stat_if_there(source.dir, source.name)?;
        let now = stat_if_there(target.dir, target.name)?;
        let is_new = |meta: &Option<Meta>| meta.as_ref().is_some_and(|meta| meta.id == new.id);
        let side = self.side(put)?;
        let side = side.spot();
        let on_side = if self.again { stat_if_there(side.dir, side.name)? } else { None };
        let is_old = |meta: &Meta| put.old.is_some_and(|old| old.id == meta.id);
        let mut lease = None;
        if let Some(left) = on_side.as_ref().filter(|meta| !is_old(meta)) {
            return Err(self.resume_taking_back(put, (side, left), (source, found.as_ref()), target)?);
        }
        if let (Some(old), Some(_)) = (&put.old, &on_side) {
            // An exchange by the side was interrupted.
            if is_new(&found) {
                self.swap_by_side(put, source, target, old)?;
            } else if move_out(side, source, self.faults)? == Moved::Occupied {
                return Err(io::Error::other("the place of the new version is taken").into());
            }
        } else if !is_new(&found) {
            if !is_new(&now) {
                // Put before the interruption, and replaced or removed by another process since.
                let beside = self.beside.found(path).map_err(|failure| failure.source)?;
                return match beside {
                    // What the source has is compared when it is removed.
                    Some(_) if found.is_none() => Err(Stop::KeepBack(Keeping {
                        outside: Outside::Changed,
                        beside,
                        detail: None,
                        in_layer: false,
                    })),
                    _ if found.is_none() && !self.again => {
                        Err(io::Error::new(io::ErrorKind::NotFound, "an entry of the layer is gone").into())
                    }
                    // A renamed directory that another process moved elsewhere before or after.
                    _ if new.kind == EntryType::Directory => Err(Stop::keep(Outside::Vanished)),
                    _ => Ok(()),
                };
            }
        } else if put.old.is_none() {
            // Where both are one file, a link was not yet followed by its unlink.
            if now.is_some() && !is_new(&now) {
                return Err(self.keep_staged(put, source, Stop::keep(Outside::Changed))?);
            }
            Self::ready(put, source, found.as_ref())?;
            match move_to_free(source, target, self.faults) {
                Ok(Moved::Yes) => {}
                Ok(Moved::Occupied) => return Err(self.keep_staged(put, source, Stop::keep(Outside::Changed))?),
                Err(error) => return Err(self.keep_staged(put, source, Stop::moving(error))?),
            }
        } else if let Some(old) = &put.old {
            match self.check(parent, name, old, now) {
                Ok(held) => lease = held,
                Err(stop) => return Err(self.keep_staged(put, source, stop)?),
            }
            Self::ready(put, source, found.as_ref())?;
            if let Err(stop) = self.swap(put, source, target, old) {
                return Err(self.keep_staged(put, source, stop)?);
            }
        }
        self.touch(parent);
        if new.kind == EntryType::Directory || put.old.is_some_and(|old| old.kind == EntryType::Directory) {
            self.parents.last = None;
            self.layer_parents.last = None;
        }
        self.faults.between_calls();
        if new.links > 1
            && let Some(meta) = stat_if_there(target.dir, target.name)?.filter(|meta| new.is_same_version(meta))
        {
            // Its move set the ctime of all its names, and one of them may lie in what it displaced.
            self.own.insert(meta.id, meta.ctime);
        }
        if let Some(old) = &put.old {
            let out = stat_if_there(source.dir, source.name)?;
            let quiet = match &out {
                // Only the second pass finds nothing: it was removed after the journal was marked done.
                None => Quiet::Yes,
                Some(out) => self.is_quiet(old, source_tree, &source_path, out, lease.is_some())?,
            };
            drop(lease);
            if quiet != Quiet::Yes && self.faults.compares(Comparison::AfterPut) {
                return Err(self.give_back(put, (source, target), (&new, old), quiet)?);
            }
            if let Some(out) = &out {
                self.left(path, old, out);
                self.remember(out);
            }
        }
        if let Some(meta) = stat_if_there(target.dir, target.name)?.filter(|meta| new.is_same_version(meta)) {
            self.own.insert(meta.id, meta.ctime);
            if let Some(written) = self.written.get_mut(path) {
                *written = Some(meta);
            }
        }
        Ok(())
    }

    /// Goes on where a taking back over the side was interrupted. The side has our version, or one that another process
    /// had put in its place in that moment; the path is kept back.
    fn resume_taking_back(
        &mut self,
        put: &Put,
        (side, left): (Spot<'_>, &Meta),
        (source, found): (Spot<'_>, Option<&Meta>),
        target: Spot<'_>,
    ) -> Result<Stop, Stop> {
        let is_ours = |meta: &Meta| put.new.is_some_and(|new| new.id == meta.id);
        let mut beside = None;
        let first = if is_ours(left) { source } else { side };
        if (!is_ours(left) || found.is_some()) && move_to_free(first, target, self.faults)? == Moved::Occupied {
            beside = Some(self.put_beside(put, first)?);
        }
        let mut in_layer = true;
        if is_ours(left) {
            if move_out(side, source, self.faults)? == Moved::Occupied {
                return Err(io::Error::other("the place of the new version is taken").into());
            }
            if let Some(new) = &put.new
                && matches!(self.as_taken(put, source, new)?, Taken::Written)
            {
                in_layer = matches!(put.from, Origin::Slot(_)) && !put.only_staged;
                beside = Some(self.put_beside(put, source)?);
            }
        } else if !found.is_some_and(is_ours) {
            // Our version was replaced or removed. What it had displaced goes beside the newer one.
            in_layer = matches!(put.from, Origin::Slot(_)) && !put.only_staged;
            if found.is_some() {
                beside = Some(self.put_beside(put, source)?);
            }
        }
        let stop = Stop::KeepBack(Keeping { outside: Outside::Changed, beside, detail: None, in_layer });
        Ok(if in_layer { self.keep_staged(put, source, stop)? } else { stop })
    }

    /// Handles a step whose directory in the workspace was replaced: an interrupted pass may have displaced something
    /// from it, which is then no version of ours.
    pub(super) fn without_target(&mut self, put: &Put, new: &Seen, stop: Stop) -> Result<Stop, Stop> {
        let Stop::KeepBack(keeping) = stop else { return Err(stop) };
        let (parent, name) = split(&put.path.0);
        let slot_name;
        let (dir, name) = match &put.from {
            Origin::Layer => match self.layer_parents.get(parent) {
                Ok(dir) => (own_fd(dir)?, name),
                Err(_) => return Ok(Stop::KeepBack(keeping)),
            },
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                let Some(slots) = self.slots else { return Ok(Stop::KeepBack(keeping)) };
                (own_fd(slots.fd())?, slot_name.as_slice())
            }
        };
        let source = Spot { dir: dir.as_fd(), name };
        let side = self.side(put)?;
        let side = side.spot();
        match stat_if_there(side.dir, side.name)? {
            Some(left) if left.id == new.id => {
                if stat_if_there(source.dir, source.name)?.is_some() {
                    self.put_beside(put, source)?;
                }
                if move_out(side, source, self.faults)? == Moved::Occupied {
                    return Err(io::Error::other("the place of the new version is taken").into());
                }
                if matches!(self.as_taken(put, source, new)?, Taken::Written) {
                    self.put_beside(put, source)?;
                }
            }
            Some(_) => {
                self.put_beside(put, side)?;
            }
            None => {}
        }
        let in_layer = matches!(put.from, Origin::Slot(_)) && !put.only_staged;
        match stat_if_there(source.dir, source.name)? {
            Some(found) if found.id == new.id => Ok(self.keep_staged(put, source, Stop::KeepBack(keeping))?),
            Some(_) => {
                let beside = Some(self.put_beside(put, source)?);
                Ok(Stop::KeepBack(Keeping { beside, in_layer, ..keeping }))
            }
            None => Ok(Stop::KeepBack(Keeping { in_layer, ..keeping })),
        }
    }

    /// Compares what is about to be displaced, with a lease on it from before the look.
    fn check(&mut self, parent: &[u8], name: &[u8], old: &Seen, now: Option<Meta>) -> Result<Option<Writers>, Stop> {
        let Some(first) = now else { return Err(Stop::keep(Outside::Vanished)) };
        let mut lease = None;
        if first.kind == EntryType::File && first.id == old.id {
            lease = self.lease(parent, name)?;
        }
        self.faults.between_calls();
        let dir = self.parents.get(parent)?;
        let now = stat_if_there(dir, name)?.ok_or_else(|| Stop::keep(Outside::Vanished))?;
        if self.faults.compares(Comparison::BeforePut) && !self.is_untouched(old, &now) {
            return Err(Stop::keep(Outside::Changed));
        }
        let dir = self.parents.get(parent)?;
        make_movable(dir, name, &now).map_err(Stop::blocked)?;
        Ok(lease)
    }

    /// Gives the source the form that it has in the workspace.
    fn ready(put: &Put, source: Spot<'_>, found: Option<&Meta>) -> io::Result<()> {
        if let (Some(mode), Some(found)) = (put.mode, found)
            && found.mode != mode
        {
            // A crash left it opened up.
            chmod(pin(source.dir, source.name)?.as_fd(), mode)?;
        }
        strip_marks(source.dir, source.name, &put.strip)
    }
}
