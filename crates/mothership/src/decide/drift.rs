//! Jumps of the wall clock.

/// Wall clock and boot clock, read together, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Time by which the store dates everything.
    pub wall: i64,
    /// Time since the machine started, suspension included.
    pub boot: i64,
}

/// Comparison of two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// Both clocks went on alike.
    None,
    /// The wall clock jumped by so much; leases move with it.
    Jumped(i64),
    /// No reading was made for so long that daemons could not report either.
    Outage,
}

/// Difference that does not count as a jump.
const TOLERANCE_MS: i64 = 5_000;
/// Time without a reading after which no lease is taken away for one life of a lease.
const OUTAGE_MS: i64 = 15_000;

/// Compares two readings that were made one after the other.
#[must_use]
pub fn drift(before: Reading, now: Reading) -> Drift {
    let by_boot = now.boot - before.boot;
    let jump = (now.wall - before.wall) - by_boot;
    if jump.abs() > TOLERANCE_MS {
        Drift::Jumped(jump)
    } else if by_boot > OUTAGE_MS {
        Drift::Outage
    } else {
        Drift::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_differs_from_time_that_passed() {
        let before = Reading { wall: 1_000_000, boot: 500 };
        let after = |wall: i64, boot: i64| drift(before, Reading { wall: 1_000_000 + wall, boot: 500 + boot });
        assert_eq!(after(1_000, 1_000), Drift::None);
        assert_eq!(after(5_500, 1_000), Drift::None);
        assert_eq!(after(61_000, 1_000), Drift::Jumped(60_000));
        assert_eq!(after(-3_599_000, 1_000), Drift::Jumped(-3_600_000));
        assert_eq!(after(60_000, 60_000), Drift::Outage);
    }
}
