//! Undoes a step on a path that another process changed: restores that process's version and keeps the run's version too.

use super::Apply;
use super::renamed::{Returned, whiteout_of};
use super::side::Taken;
use super::stop::{Keeping, Stop};
use crate::beneath::{chmod, pin, split};
use crate::entries::changes::Outside;
use crate::entries::tree::CommittedEntry;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put};
use crate::meta::{EntryType, stat, stat_if_there};
use crate::moves::movable::{make_movable, strip_marks};
use crate::moves::rename_calls::{Moved, Spot, move_to_free};
use crate::notes::returned;
use crate::places::quiet::Quiet;
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

/// Number of times that another process may replace an entry while a commit takes its own version back.
const CONTESTED: usize = 16;

impl Apply<'_> {
    pub(super) fn put_beside(&self, put: &Put, from: Spot<'_>) -> io::Result<ByteText> {
        self.beside.put(from, &put.path.0)
    }

    /// Gives back a displaced entry that another process changed: its version goes back, and ours stays in the layer.
    pub(super) fn give_back(
        &mut self,
        put: &Put,
        (source, target): (Spot<'_>, Spot<'_>),
        (new, old): (&Seen, &Seen),
        quiet: Quiet,
    ) -> Result<Stop, Stop> {
        Self::restore_mode(source, old)?;
        let outside = if quiet == Quiet::Written { Outside::Open } else { Outside::Changed };
        let ours_in_layer = matches!(put.from, Origin::Slot(_)) && !put.only_staged;
        let kept = |beside, in_layer| Stop::KeepBack(Keeping { outside, beside, detail: None, in_layer });
        for _ in 0..CONTESTED {
            let Some(now) = stat_if_there(target.dir, target.name)? else {
                // Another process removed our version: its own older one goes back.
                match move_to_free(source, target, self.faults)? {
                    Moved::Yes => return Ok(kept(None, ours_in_layer)),
                    Moved::Occupied => continue,
                }
            };
            if now.id != new.id {
                break;
            }
            match self.take_back(put, source, target, new)? {
                Taken::Ours => return Ok(self.keep_staged(put, source, kept(None, true))?),
                Taken::Written => break,
                Taken::Again => {}
            }
        }
        // A newer version of another process stands there, or it wrote to ours. Both stay.
        let beside = self.put_beside(put, source)?;
        Ok(kept(Some(beside), ours_in_layer))
    }

    /// Puts a version of ours that only the slot has beside its place, since the layer cannot keep it.
    pub(super) fn keep_staged(&mut self, put: &Put, source: Spot<'_>, stop: Stop) -> io::Result<Stop> {
        let Stop::KeepBack(keeping) = stop else { return Ok(stop) };
        if !put.only_staged || keeping.beside.is_some() {
            return Ok(Stop::KeepBack(keeping));
        }
        strip_marks(source.dir, source.name, &put.strip)?;
        let beside = self.put_beside(put, source)?;
        Ok(Stop::KeepBack(Keeping { beside: Some(beside), in_layer: false, ..keeping }))
    }

    /// Brings a renamed directory, which has no version in the layer, from its slot back to its old place, or beside
    /// the new one. For a step that was kept back: the layer's entry and overlay's mark at the old place stay with it.
    pub(super) fn return_renamed(&mut self, put: &Put) -> io::Result<Returned> {
        let Origin::Slot(slot) = put.from else { return Ok(Returned::NotRenamed) };
        let Some((at, old, whiteout)) = self.renamed.get(&slot).cloned() else { return Ok(Returned::NotRenamed) };
        self.kept.extend(whiteout.map(whiteout_of));
        let Some(slots) = self.slots else { return Ok(Returned::Home) };
        let slot_name = slot.to_string().into_bytes();
        let there = Spot { dir: slots.fd(), name: &slot_name };
        // Anything else in the slot is what the step displaced, and stays there until the end of the commit.
        if stat_if_there(there.dir, there.name)?.is_none_or(|found| found.id != old.id) {
            return Ok(Returned::Home);
        }
        self.parents.last = None;
        let (parent, name) = split(&at.0);
        Self::restore_mode(there, &old)?;
        make_movable(there.dir, there.name, &stat(there.dir, there.name)?)?;
        let moved = match self.parents.get(parent) {
            // Where the old place cannot be reached, a place beside the new one may be.
            Ok(dir) => move_to_free(there, Spot { dir, name }, self.faults).unwrap_or(Moved::Occupied),
            Err(_) => Moved::Occupied,
        };
        self.touch(parent);
        if moved == Moved::Occupied {
            return Ok(Returned::Beside(self.put_beside(put, there)?));
        }
        let back = Spot { dir: self.parents.get(parent)?, name };
        Self::restore_mode(back, &old)?;
        if let Some(now) = stat_if_there(back.dir, back.name)?
            && (now.id, now.mode, now.mtime) == (old.id, old.mode, old.mtime)
        {
            // The moves set its ctime, which is not a change by another process for a later accept.
            self.returned.push(CommittedEntry::new(&at, &now));
            returned::did(self.root, &now);
        }
        Ok(Returned::Home)
    }

    /// Restores the mode of a displaced directory, which may have been opened up so that it could be moved.
    pub(super) fn restore_mode(at: Spot<'_>, old: &Seen) -> io::Result<()> {
        if old.kind == EntryType::Directory
            && let Some(meta) = stat_if_there(at.dir, at.name)?
            && meta.id == old.id
            && meta.mode == old.mode | 0o700
            && meta.mode != old.mode
        {
            chmod(pin(at.dir, at.name)?.as_fd(), old.mode)?;
        }
        Ok(())
    }
}
