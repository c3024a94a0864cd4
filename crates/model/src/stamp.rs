//! Time stamps of files, as the kernel sets them at a change.

use std::time::Duration;

/// A time stamp of a file, in seconds and nanoseconds since 1970.
pub type Stamp = (i64, u32);

/// A change within this time of another one may have the same time stamp: the clock of the stamps goes on with each tick of the kernel,
/// which is at most 10 ms.
pub const GRAIN: Duration = Duration::from_millis(12);
/// The same on a file system that keeps no part of a second, as ext4 with inodes of 128 bytes, or only each other one, as FAT.
const GRAIN_OF_SECONDS: Duration = Duration::from_millis(2012);

/// Reports whether the next change may have the same time stamp as the one at `changed`.
#[must_use]
pub fn is_recent(changed: Stamp, now: Stamp) -> bool {
    let age = (i128::from(now.0) - i128::from(changed.0)) * 1_000_000_000 + i128::from(now.1) - i128::from(changed.1);
    let grain = if changed.1 == 0 { GRAIN_OF_SECONDS } else { GRAIN };
    age <= grain.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_without_a_part_of_a_second_is_recent_for_two_seconds() {
        for (changed, now, recent) in [
            ((10, 5_000_000), (10, 17_000_000), true),
            ((10, 5_000_000), (10, 17_000_001), false),
            ((10, 0), (10, 900_000_000), true),
            ((10, 0), (12, 12_000_000), true),
            ((10, 0), (12, 12_000_001), false),
            ((10, 5), (9, 0), true),
        ] {
            assert_eq!(is_recent(changed, now), recent, "{changed:?} {now:?}");
        }
    }
}
