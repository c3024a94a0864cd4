//! The reasons for which objects of git are not verified, and the bounds of the work. Pure but for the clock.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

/// Bytes that are read and inflated for the objects of one layer.
const MAX_BYTES: u64 = 8 << 30;
/// Time for the objects of one layer.
const MAX_TIME: Duration = Duration::from_secs(30);
/// Bytes of inflated objects that are in memory at one time.
pub(crate) const MAX_HELD: u64 = 256 << 20;

/// The reason for which an object, or a pack, does not count as what its name says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// It is not what git writes.
    #[error("the object or pack is damaged")]
    Damaged,
    /// The content has another hash than the name says.
    #[error("the content has another hash")]
    Differs,
    /// Verifying it takes more bytes, memory or time than there are.
    #[error("the object or pack is too large")]
    TooLarge,
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The work that may still be done.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: Cell<u64>,
    end: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: Cell::new(MAX_BYTES), end: Instant::now() + MAX_TIME }
    }
}

impl Budget {
    /// Makes a budget of fewer bytes, for fuzzing and tests.
    pub(crate) fn of(bytes: u64) -> Self {
        Self { bytes: Cell::new(bytes), ..Self::default() }
    }

    /// Takes bytes that are about to be read or made.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Problem> {
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes.set(left.unwrap_or(0));
        if left.is_none() || Instant::now() > self.end {
            return Err(Problem::TooLarge);
        }
        Ok(())
    }
}
