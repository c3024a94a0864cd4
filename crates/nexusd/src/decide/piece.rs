//! Decides how large the next piece of a kept file is: as large as the link carries it in the time that a call has.

use nexus_api::retry::{Outcome, SLOW_BODY};
use std::time::Duration;

/// Largest piece, in bytes.
const MAX_PIECE: u64 = 1 << 20;
/// Smallest piece, in bytes: a link of 1 kB/s carries it.
const MIN_PIECE: u64 = 16 << 10;
/// Time of a piece after which the next one may be twice as large.
const QUICK: Duration = Duration::from_secs(5);

/// Size of the pieces of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceSize(u64);

impl Default for PieceSize {
    fn default() -> Self {
        Self(MAX_PIECE)
    }
}

impl PieceSize {
    /// Returns the number of bytes of the next piece, of so many that are left.
    #[must_use]
    pub fn of(self, rest: u64) -> usize {
        usize::try_from(self.0.min(rest)).unwrap_or(0)
    }

    /// A piece was taken, after this time.
    pub fn taken(&mut self, after: Duration) {
        if after <= QUICK {
            self.0 = (self.0 * 2).min(MAX_PIECE);
        }
    }

    /// A piece did not arrive. Where the time may have been too short, the next one is a quarter of it.
    pub fn failed(&mut self, outcome: Outcome) {
        if matches!(outcome, Outcome::NoAnswer | Outcome::Status { status: SLOW_BODY, .. }) {
            self.0 = (self.0 / 4).max(MIN_PIECE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Outcome {
        Outcome::Status { status, retry_after: None }
    }

    #[test]
    fn a_piece_that_the_link_does_not_carry_becomes_smaller_and_a_quick_one_larger() {
        let mut size = PieceSize::default();
        assert_eq!((size.of(u64::MAX), size.of(10)), (1 << 20, 10));
        size.failed(Outcome::NoAnswer);
        size.failed(status(408));
        assert_eq!(size.of(u64::MAX), 1 << 16);
        // The server is busy or refuses: a smaller piece helps nothing.
        for other in [409, 429, 503, 507] {
            size.failed(status(other));
        }
        assert_eq!(size.of(u64::MAX), 1 << 16);
        size.taken(QUICK * 2);
        assert_eq!(size.of(u64::MAX), 1 << 16, "a larger one would take too long");
        size.taken(QUICK);
        assert_eq!(size.of(u64::MAX), 1 << 17);
        for _ in 0..50 {
            size.failed(Outcome::NoAnswer);
        }
        assert_eq!(size.of(u64::MAX), MIN_PIECE as usize);
        for _ in 0..50 {
            size.taken(Duration::ZERO);
        }
        assert_eq!(size, PieceSize::default());
    }
}
