//! Undoes a step whose path another process changed: that version goes back, and both versions stay.

use super::side::Taken;
use super::stop::{Keeping, Stop};
use super::{Apply, strip_marks};
use crate::beneath::{chmod, pin};
use crate::changes::Outside;
use crate::commit::beside::put_beside;
use crate::commit::calls::{Moved, Spot, move_to_free};
use crate::commit::displaced::Quiet;
use crate::commit::ops::{Origin, Put};
use crate::commit::seen::Seen;
use crate::meta::{EntryType, stat_if_there};
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
