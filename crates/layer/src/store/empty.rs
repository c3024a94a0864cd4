//! Removes a layer that nothing was written to. Most runs end this way, so it is the fastest path.

use crate::beneath::{Doing as _, IoFailure, is_empty};
use crate::disk::upper::open_upper;
use crate::errors::DiscardError;
use crate::faults::Phase;
use crate::moves::leftover::Leftover;
use crate::store::layer::Layer;
use crate::store::pool::LayerPool;
use crate::store::removal::remove_layer;
use std::os::fd::AsFd as _;

impl Layer {
    /// Removes the layer if it has no changes, as after most runs. Returns `false` if there are changes, and changes
    /// nothing then. After an error, the layer may still be committed, parked or discarded. Does not read a layer in
    /// memory. Also returns the directory that could not be removed.
    pub fn end_if_empty(&self) -> Result<(bool, Option<Leftover>), DiscardError> {
        let failed = |source| DiscardError { run: self.run.clone(), source };
        let is_there = self.upper_fd.is_none() && self.is_empty().map_err(failed)?;
        let left = if is_there { self.remove_empty().map_err(failed)? } else { None };
        Ok((is_there, left))
    }

    fn is_empty(&self) -> Result<bool, IoFailure> {
        self.faults.check(Phase::ReadLayer).doing("read", b"upper")?;
        let upper = open_upper(&self.root).doing("open", b"upper")?;
        Ok(is_empty(upper.as_fd()).doing("list", b"upper")? && !self.is_top_changed()?)
    }

    fn remove_empty(&self) -> Result<Option<Leftover>, IoFailure> {
        if let Some(pool) = &self.pool {
            self.faults.check(Phase::Discard).doing("remove", b"")?;
            if pool.put(&self.layers, &self.root, &self.run).doing("put away", self.run.as_bytes())? {
                return Ok(None);
            }
        }
        remove_layer(&self.layers, &self.root, &self.run, &self.faults)
    }

    /// Runs [`LayerPool::tidy`] while a run waits for its sandbox.
    pub fn tidy_pool(&self, stop: &mut dyn FnMut() -> bool) -> Result<(), IoFailure> {
        self.pool.as_ref().map_or(Ok(()), |pool| pool.tidy(self.mode, stop))
    }

    /// Runs [`LayerPool::clear`] after a failure.
    pub fn clear_pool(&self) -> Result<(), IoFailure> {
        self.pool.as_ref().map_or(Ok(()), LayerPool::clear)
    }
}
