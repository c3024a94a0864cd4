//! The end of a layer that nothing was written to: the way of most runs, and so the shortest one.

use crate::beneath::{Doing as _, IoFailure, is_empty};
use crate::commit::finish::remove_layer;
use crate::commit::leftover::Leftover;
use crate::errors::DiscardError;
use crate::faults::Step;
use crate::layer::Layer;
use crate::spare::Spares;
use crate::upper::open_upper;
use std::os::fd::AsFd as _;

impl Layer {
    /// Ends the layer if there is nothing in it: the way of most runs. `false` when there is, and then nothing is done;
    /// after an error, too, the layer may still be committed, parked or discarded. A layer in memory is not looked at.
    /// Also returns what could not be removed.
    pub fn end_if_empty(&self) -> Result<(bool, Option<Leftover>), DiscardError> {
        let failed = |source| DiscardError { run: self.run.clone(), source };
        let is_there = self.upper_fd.is_none() && self.is_empty().map_err(failed)?;
        let left = if is_there { self.remove_empty().map_err(failed)? } else { None };
        Ok((is_there, left))
    }

    fn is_empty(&self) -> Result<bool, IoFailure> {
        self.faults.check(Step::ReadLayer).doing("read", b"upper")?;
        let upper = open_upper(&self.root).doing("open", b"upper")?;
        Ok(is_empty(upper.as_fd()).doing("list", b"upper")? && !self.is_top_changed()?)
    }

    fn remove_empty(&self) -> Result<Option<Leftover>, IoFailure> {
        if let Some(spares) = &self.spares {
            self.faults.check(Step::Discard).doing("remove", b"")?;
            if spares.put(&self.layers, &self.root, &self.run).doing("put away", self.run.as_bytes())? {
                return Ok(None);
            }
        }
        remove_layer(&self.layers, &self.root, &self.run, &self.faults)
    }

    /// Runs [`Spares::tidy`], for the time in which a run waits.
    pub fn tidy_spares(&self, stop: &mut dyn FnMut() -> bool) -> Result<(), IoFailure> {
        self.spares.as_ref().map_or(Ok(()), |spares| spares.tidy(self.mode, stop))
    }

    /// Runs [`Spares::clear`], after a failure.
    pub fn clear_spares(&self) -> Result<(), IoFailure> {
        self.spares.as_ref().map_or(Ok(()), Spares::clear)
    }
}
