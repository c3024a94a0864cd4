//! Lines about a fault that lasts: each cause is reported once.

use std::collections::VecDeque;

/// Number of lines that are remembered. A cause with a number in its words would make many.
const MAX_LINES: usize = 16;

/// The lines since the calls last succeeded.
#[derive(Debug, Default)]
pub struct Reported {
    lines: VecDeque<String>,
}

impl Reported {
    /// Reports whether the line says something new, and remembers it. The same fault may show in turns in one way and in another.
    pub fn is_new(&mut self, line: &str) -> bool {
        if self.lines.iter().any(|known| known == line) {
            return false;
        }
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
        true
    }

    /// Forgets all of it: the fault is over, and the next one is reported again.
    pub fn clear(&mut self) {
        self.lines.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_shows_in_turns_is_reported_once_and_the_memory_is_bounded() {
        let mut reported = Reported::default();
        let says: Vec<bool> = ["canceled", "broken", "canceled", "broken"].map(|line| reported.is_new(line)).into();
        assert_eq!(says, [true, true, false, false]);
        reported.clear();
        assert!(reported.is_new("canceled"), "it came back");
        assert!((0..100).all(|number| reported.is_new(&format!("port {number}"))));
        assert_eq!(reported.lines.len(), MAX_LINES);
    }
}
