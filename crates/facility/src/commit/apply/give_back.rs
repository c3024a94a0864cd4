//! Undoes a step whose path another process changed: that version goes back, and both versions stay.

use super::side::Taken;
use super::stop::{Keeping, Stop};
use super::{Apply, make_movable, mark_of, strip_marks};
use crate::beneath::{chmod, pin, split};
use crate::changes::Outside;
use crate::commit::beside::put_beside;
use crate::commit::calls::{Moved, Spot, move_to_free};
use crate::commit::displaced::Quiet;
use crate::commit::ops::{Origin, Put};
use crate::commit::seen::Seen;
use crate::meta::{EntryType, stat, stat_if_there};
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

/// How often another process may replace an entry while a commit takes its own version back.
const CONTESTED: usize = 16;

impl Apply<'_> {
    pub(super) fn put_beside(&self, put: &Put, from: Spot<'_>) -> io::Result<ByteText> {
        put_beside(from, self.base, &put.path.0, &self.journal.header.run, self.faults)
    }

    /// Another process changed what was displaced: its version goes back, and ours stays in the layer.
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
        let kept = |beside, in_layer| Stop::Keep(Keeping { outside, beside, detail: None, in_layer });
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
                Taken::Again => {}
            }
        }
        // A newer version of another process stands there. Both stay.
        let beside = self.put_beside(put, source)?;
        Ok(kept(Some(beside), ours_in_layer))
    }

    /// A version of ours that only the slot has is put beside its place, since the layer cannot keep it.
    pub(super) fn keep_staged(&mut self, put: &Put, source: Spot<'_>, stop: Stop) -> io::Result<Stop> {
        let Stop::Keep(keeping) = stop else { return Ok(stop) };
        if !put.only_staged || keeping.beside.is_some() {
            return Ok(Stop::Keep(keeping));
        }
        strip_marks(source.dir, source.name, &put.strip)?;
        let beside = put_beside(source, self.base, &put.path.0, &self.journal.header.run, self.faults)?;
        Ok(Stop::Keep(Keeping { beside: Some(beside), in_layer: false, ..keeping }))
    }

    /// Brings a renamed directory, which has no version in the layer, from its slot back to its old place, or beside the
    /// new one. For a step that was kept back.
    pub(super) fn return_renamed(&mut self, put: &Put) -> io::Result<Option<ByteText>> {
        let Origin::Slot(slot) = put.from else { return Ok(None) };
        let (Some((at, old, mark)), Some(slots)) = (self.renamed.get(&slot).cloned(), self.slots) else {
            return Ok(None);
        };
        let slot_name = slot.to_string().into_bytes();
        let there = Spot { dir: slots.fd(), name: &slot_name };
        if stat_if_there(there.dir, there.name)?.is_none() {
            return Ok(None);
        }
        self.kept.extend(mark.map(mark_of));
        self.parents.last = None;
        let (parent, name) = split(&at.0);
        Self::restore_mode(there, &old)?;
        make_movable(there.dir, there.name, &stat(there.dir, there.name)?)?;
        let moved = match self.parents.get(parent) {
            Ok(dir) => {
                let back = Spot { dir, name };
                let moved = move_to_free(there, back, self.faults)?;
                if moved == Moved::Yes {
                    Self::restore_mode(back, &old)?;
                }
                moved
            }
            Err(_) => Moved::Occupied,
        };
        self.touch(parent);
        Ok(match moved {
            Moved::Yes => None,
            Moved::Occupied => Some(self.put_beside(put, there)?),
        })
    }

    /// A directory may have been opened up so that it could be moved.
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
