//! The reasons for which objects of git are not verified, and the bounds of the work. Pure but for the clock.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

/// Bytes that are read and inflated for one pack or loose object, and for all objects of a layer.
const MAX_BYTES_OF_ONE: u64 = 8 << 30;
const MAX_BYTES: u64 = 24 << 30;
/// Time for one pack or loose object, and for all objects of a layer.
const MAX_TIME_OF_ONE: Duration = Duration::from_secs(30);
const MAX_TIME: Duration = Duration::from_secs(90);
/// Bytes that are in memory at one time for a pack: its index, the table of its objects, and inflated objects.
pub const MAX_HELD: u64 = 256 << 20;

/// The reason for which an object, or a pack, does not count as what its name says.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It is not what git writes.
    #[error("the object or pack is damaged")]
    Damaged,
    /// The content has another hash than the name says.
    #[error("the content has another hash")]
    Differs,
    /// Verifying it takes more than there is.
    #[error("the bound of {0:?} is reached")]
    Exceeds(Bound),
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A bound of the work, which was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Number of objects of a pack.
    Objects,
    /// Memory for an index, or for objects with deltas on them.
    Memory,
    /// Bytes of one pack or loose object.
    Bytes,
    /// Bytes of all objects of a layer.
    BytesOfAll,
    /// Time for one pack or loose object.
    Time,
    /// Time for all objects of a layer.
    TimeOfAll,
}

/// The work that may still be done for a layer, and for one pack or loose object of it.
#[derive(Debug)]
pub struct Budget {
    bytes: Cell<u64>,
    end: Instant,
    bytes_of_one: Cell<u64>,
    end_of_one: Cell<Instant>,
    /// The bounds that count where those of the current one are reached.
    bounds: Cell<(Bound, Bound)>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(MAX_BYTES)
    }
}

impl Budget {
    /// Makes a budget of fewer bytes, for fuzzing and tests.
    pub fn of(bytes: u64) -> Self {
        let now = Instant::now();
        let budget = Self {
            bytes: Cell::new(bytes),
            end: now + MAX_TIME,
            bytes_of_one: Cell::new(0),
            end_of_one: Cell::new(now),
            bounds: Cell::new((Bound::Bytes, Bound::Time)),
        };
        budget.begin();
        budget
    }

    /// Begins with the next pack or loose object. It gets at most half of what is left, so that smaller ones behind it
    /// can be verified whatever its size.
    pub fn begin(&self) {
        self.begin_at(Instant::now());
    }

    fn begin_at(&self, now: Instant) {
        let (bytes, time) = (self.bytes.get() / 2, self.end.saturating_duration_since(now) / 2);
        self.bytes_of_one.set(bytes.min(MAX_BYTES_OF_ONE));
        self.end_of_one.set(now + time.min(MAX_TIME_OF_ONE));
        let of_bytes = if bytes < MAX_BYTES_OF_ONE { Bound::BytesOfAll } else { Bound::Bytes };
        let of_time = if time < MAX_TIME_OF_ONE { Bound::TimeOfAll } else { Bound::Time };
        self.bounds.set((of_bytes, of_time));
    }

    /// Takes bytes that are about to be read or made.
    pub fn take(&self, bytes: u64) -> Result<(), Problem> {
        self.take_at(bytes, Instant::now())
    }

    fn take_at(&self, bytes: u64, now: Instant) -> Result<(), Problem> {
        let (of_bytes, of_time) = self.bounds.get();
        let left = self.bytes_of_one.get().checked_sub(bytes).ok_or(Problem::Exceeds(of_bytes))?;
        if now > self.end_of_one.get() {
            return Err(Problem::Exceeds(of_time));
        }
        self.bytes_of_one.set(left);
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceeded(result: &Result<(), Problem>) -> Option<Bound> {
        match result {
            Err(Problem::Exceeds(bound)) => Some(*bound),
            _ => None,
        }
    }

    #[test]
    fn a_large_pack_leaves_something_for_the_next_one() {
        let budget = Budget::default();
        for wanted in [Bound::Bytes, Bound::Bytes, Bound::BytesOfAll, Bound::BytesOfAll] {
            let mut last = budget.take(1 << 20);
            while last.is_ok() {
                last = budget.take(1 << 20);
            }
            assert_eq!(exceeded(&last), Some(wanted));
            budget.begin();
            assert!(budget.take(1 << 20).is_ok());
        }
    }

    #[test]
    fn the_time_of_a_slow_pack_is_not_that_of_the_next_one() {
        let budget = Budget::default();
        let start = budget.end.checked_sub(MAX_TIME).unwrap();
        let at = |seconds| start + Duration::from_secs(seconds);
        budget.begin_at(start);
        let mut starting = 0;
        for (length, wanted) in [(30, Bound::Time), (30, Bound::Time), (15, Bound::TimeOfAll), (7, Bound::TimeOfAll)] {
            assert!(budget.take_at(1, at(starting + length)).is_ok(), "{starting}");
            assert_eq!(exceeded(&budget.take_at(1, at(starting + length + 1))), Some(wanted), "{starting}");
            starting += length;
            budget.begin_at(at(starting));
        }
        budget.begin_at(at(91));
        assert_eq!(exceeded(&budget.take_at(1, at(92))), Some(Bound::TimeOfAll));
    }
}
