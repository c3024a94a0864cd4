//! Exchanges an entry of the layer with one of the workspace, in one call or in three over a side name.

use super::Apply;
use super::stop::{Done, Keeping, Stop};
use crate::commit::apply::as_put::is_as_put;
use crate::entries::changes::Outside;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put};
use crate::meta::{stat, stat_if_there};
use crate::moves::rename_calls::{Exchanged, Moved, Spot, exchange, move_out, move_to_free};
use crate::places::side::Side;
use std::io;

/// The result of [`Apply::take_back`].
pub(super) enum Taken {
    /// Our version is back at its source, as it came.
    Ours,
    /// Our version is back at its source, and another process wrote to it while it was in the workspace.
    Written,
    /// Something else stood there: look again.
    Again,
}

impl<'a> Apply<'a> {
    pub(super) fn side(&self, put: &Put) -> io::Result<Side<'a>> {
        Side::of(&put.from, self.at, self.root, self.slots).ok_or_else(|| io::Error::other("no staging directory"))
    }

    pub(super) fn swap(&self, put: &Put, source: Spot<'_>, target: Spot<'_>, old: &Seen) -> Done {
        match exchange(source, target, self.faults).map_err(Stop::moving)? {
            Exchanged::Yes => Ok(()),
            Exchanged::Gone => Err(Stop::keep(Outside::Vanished)),
            Exchanged::Unsupported => self.swap_by_side(put, source, target, old),
        }
    }

    /// Exchanges two entries in three renames: the old version goes to a side name, ours comes, the old one takes our
    /// place. Goes on where an earlier pass was interrupted.
    pub(super) fn swap_by_side(&self, put: &Put, source: Spot<'_>, target: Spot<'_>, old: &Seen) -> Done {
        let side = self.side(put)?;
        let side = side.spot();
        if stat_if_there(side.dir, side.name)?.is_none_or(|meta| meta.id != old.id) {
            match move_out(target, side, self.faults).map_err(Stop::moving)? {
                Moved::Yes => {}
                Moved::Occupied => return Err(io::Error::other("a side name is taken").into()),
            }
        }
        self.faults.between_calls();
        match move_to_free(source, target, self.faults)? {
            Moved::Yes => {}
            Moved::Occupied => {
                // Another process made a new version in the gap: the older one goes beside it.
                return Err(Stop::KeepBack(Keeping {
                    outside: Outside::Changed,
                    beside: Some(self.put_beside(put, side)?),
                    detail: None,
                    in_layer: true,
                }));
            }
        }
        match move_out(side, source, self.faults)? {
            Moved::Yes => Ok(()),
            Moved::Occupied => Err(io::Error::other("the place of the new version is taken").into()),
        }
    }

    /// Takes our version out of the workspace again. What came out instead is put back, or beside.
    pub(super) fn take_back(&self, put: &Put, source: Spot<'_>, target: Spot<'_>, new: &Seen) -> io::Result<Taken> {
        match exchange(source, target, self.faults)? {
            Exchanged::Gone => return Ok(Taken::Again),
            Exchanged::Yes => {
                self.faults.between_calls();
                if stat(source.dir, source.name)?.id == new.id {
                    return self.as_taken(put, source, new);
                }
                // A newer version came out instead of ours: it goes back to its place.
                exchange(source, target, self.faults)?;
                return Ok(Taken::Again);
            }
            Exchanged::Unsupported => {}
        }
        let side = self.side(put)?;
        let side = side.spot();
        if move_out(target, side, self.faults)? == Moved::Occupied {
            return Err(io::Error::other("a side name is taken"));
        }
        self.faults.between_calls();
        if stat(side.dir, side.name)?.id != new.id {
            if move_to_free(side, target, self.faults)? == Moved::Occupied {
                self.put_beside(put, side)?;
            }
            return Ok(Taken::Again);
        }
        let back = move_to_free(source, target, self.faults)?;
        if back == Moved::Occupied {
            self.put_beside(put, source)?;
        }
        match move_out(side, source, self.faults)? {
            Moved::Yes => self.as_taken(put, source, new),
            Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
        }
    }

    /// Looks at our version after it was taken out of the workspace.
    pub(super) fn as_taken(&self, put: &Put, source: Spot<'_>, new: &Seen) -> io::Result<Taken> {
        let made = matches!(&put.from, Origin::Slot(slot) if !self.renamed.contains_key(slot));
        let now = stat(source.dir, source.name)?;
        let unchanged = is_as_put(put, made, (new, &now), source, self.base.leases())?;
        Ok(if unchanged { Taken::Ours } else { Taken::Written })
    }
}
