//! Says on a terminal how far work is that takes longer than a second.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Time after which something is said at all.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two lines.
const PAUSE: Duration = Duration::from_millis(200);

/// A line on standard error that is written over and over; nothing where that is not a terminal.
#[derive(Debug)]
pub struct Progress {
    doing: &'static str,
    expected: Option<u64>,
    start: Instant,
    next: Instant,
    is_shown: bool,
    is_terminal: bool,
}

impl Progress {
    /// Begins. `expected` is about the number of entries that there will be.
    pub fn new(doing: &'static str, expected: Option<u64>) -> Self {
        let start = Instant::now();
        let is_terminal = std::io::stderr().is_terminal();
        Self { doing, expected, start, next: start + QUIET, is_shown: false, is_terminal }
    }

    /// Hears the number of entries and bytes so far.
    pub fn tell(&mut self, entries: u64, bytes: u64) {
        let now = Instant::now();
        if !self.is_terminal || now < self.next {
            return;
        }
        self.next = now + PAUSE;
        self.is_shown = true;
        let line = line(self.doing, entries, bytes, self.expected, now - self.start);
        // A terminal that is gone hears nothing; the work goes on.
        write!(std::io::stderr(), "\r\u{1b}[K{line}").ok();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            write!(std::io::stderr(), "\r\u{1b}[K").ok();
        }
    }
}

fn line(doing: &str, entries: u64, bytes: u64, expected: Option<u64>, elapsed: Duration) -> String {
    let rate = entries as f64 / elapsed.as_secs_f64().max(0.001);
    let size = if bytes == 0 { String::new() } else { format!(", {} MiB", bytes >> 20) };
    let left = match expected.and_then(|expected| expected.checked_sub(entries)) {
        Some(left) if rate > 0.0 => format!(", about {} s left", (left as f64 / rate).ceil() as u64),
        _ => String::new(),
    };
    format!("{doing}: {entries} entries{size}, {} per second{left}", rate.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rate_and_the_rest_of_the_time() {
        let elapsed = Duration::from_secs(2);
        assert_eq!(
            line("Keeping", 1000, 5 << 20, Some(2000), elapsed),
            "Keeping: 1000 entries, 5 MiB, 500 per second, about 2 s left"
        );
        assert_eq!(line("Keeping", 1000, 0, None, elapsed), "Keeping: 1000 entries, 500 per second");
        assert_eq!(line("Keeping", 1000, 0, Some(10), elapsed), "Keeping: 1000 entries, 500 per second");
    }
}
