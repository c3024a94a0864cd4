//! The number of programs beside each other: a fixed one always, and more while the processors are idle.
//!
//! Most test programs wait: for time limits, for leases, for a disk. A fixed number of them leaves the processors idle for more
//! than half of the time, or has them fight for a processor in the programs that compute.

use std::time::{Duration, Instant};

/// Share of the time of all processors that must be idle before one more program starts.
const IDLE: f64 = 0.35;

/// Time over which the processors are watched. It begins again with each start, so that it shows what the last program takes.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Bounds of the number of programs beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    /// So many run whatever the processors do.
    pub always: usize,
    /// So many run at most.
    pub most: usize,
}

/// Time that the processors of a machine have spent, added up, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    /// Without work, or waiting for a disk.
    pub idle: u64,
    /// In every way.
    pub all: u64,
}

/// Decides when one more program starts.
pub struct Room<R> {
    lanes: Lanes,
    window: Duration,
    read: R,
    since: Instant,
    before: Option<Ticks>,
}

impl<R: FnMut() -> Option<Ticks>> Room<R> {
    /// Reads the processors with `read`, over `window` at a time. Those that cannot be read count as busy.
    pub fn new(lanes: Lanes, window: Duration, mut read: R) -> Self {
        let before = read();
        Self { lanes, window, read, since: Instant::now(), before }
    }

    /// Returns whether one more program starts beside `running` ones.
    pub fn has_place(&mut self, running: usize) -> bool {
        if running < self.lanes.always {
            self.measure();
            return true;
        }
        // The beginning of a window shows little.
        running < self.lanes.most
            && self.since.elapsed() >= self.window
            && self.measure().is_some_and(|idle| idle >= IDLE)
    }

    /// The idle share of the time since the last measurement.
    fn measure(&mut self) -> Option<f64> {
        let (before, now) = (self.before, (self.read)());
        (self.before, self.since) = (now, Instant::now());
        idle_share(before?, now?)
    }
}

/// The idle share of the time between two measurements; `None` when no tick lies between them.
fn idle_share(before: Ticks, now: Ticks) -> Option<f64> {
    let all = now.all.checked_sub(before.all).filter(|all| *all > 0)?;
    // The kernel may take ticks of waiting back (proc_stat(5)).
    Some(now.idle.saturating_sub(before.idle) as f64 / all as f64)
}

/// Reads what the processors have spent since the machine started.
pub fn processors() -> Option<Ticks> {
    ticks(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Reads the first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal. The time of
/// guests, behind them, is a part of user and nice.
fn ticks(text: &str) -> Option<Ticks> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let numbers: Vec<u64> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    (numbers.len() == 8).then(|| Ticks { idle: numbers[3] + numbers[4], all: numbers.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANES: Lanes = Lanes { always: 2, most: 4 };

    /// Room on a machine that spends `idle` of each 100 ticks without work.
    fn room(idle: u64) -> Room<impl FnMut() -> Option<Ticks>> {
        let mut looks = 0;
        Room::new(LANES, Duration::ZERO, move || {
            looks += 1;
            Some(Ticks { idle: looks * idle, all: looks * 100 })
        })
    }

    #[test]
    fn more_programs_run_only_while_the_processors_are_idle() {
        for idle in [0, 34, 35, 100] {
            let mut room = room(idle);
            let places = [0, 1, 2, 3, 4, 5].map(|running| room.has_place(running));
            assert_eq!(places, [true, true, idle >= 35, idle >= 35, false, false], "{idle}");
        }
    }

    #[test]
    fn processors_that_cannot_be_read_count_as_busy() {
        let mut room = Room::new(LANES, Duration::ZERO, || None);
        assert_eq!([0, 1, 2, 3].map(|running| room.has_place(running)), [true, true, false, false]);
    }

    #[test]
    fn each_start_is_seen_for_a_whole_window_before_the_next_one() {
        let mut looks = 0;
        let idle = move || {
            looks += 1;
            Some(Ticks { idle: looks, all: looks })
        };
        let mut room = Room::new(LANES, Duration::from_secs(3600), idle);
        assert!(!room.has_place(2), "the window has only begun");
        room.window = Duration::ZERO;
        assert!(room.has_place(2));
        room.window = Duration::from_secs(3600);
        assert!(!room.has_place(3), "the program before is not seen yet");
    }

    #[test]
    fn the_share_is_of_the_time_between_two_measurements() {
        let at = |idle, all| Ticks { idle, all };
        assert_eq!(idle_share(at(100, 200), at(130, 300)), Some(0.3));
        assert_eq!(idle_share(at(100, 200), at(90, 300)), Some(0.0));
        assert_eq!(idle_share(at(100, 200), at(100, 200)), None);
    }

    #[test]
    fn waiting_for_a_disk_is_idle_and_the_time_of_guests_counts_once() {
        assert_eq!(ticks("cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 1 2\n"), Some(Ticks { idle: 24, all: 255 }));
        for text in ["", "cpu  1 2 3\n", "cpu0 1 2 4 8 16 32 64 128\n", "cpu  1 2 4 x 16 32 64 128\n"] {
            assert_eq!(ticks(text), None, "{text}");
        }
        assert!(processors().is_some());
    }
}
