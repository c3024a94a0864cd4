//! How many tests passed and failed, read from what the test programs print.
//!
//! The numbers come from the output and are never computed from the list of steps: a suite that did not run adds
//! nothing.

/// Tests that passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
}

impl Counts {
    /// Adds what one line of output says, if it is a line of result.
    ///
    /// Understood are `test result: ok. 3 passed; 0 failed; …` of the Rust test harness and `3 passed, 0 failed, …` of
    /// the escape suite, each at the start of a line.
    pub fn add_line(&mut self, line: &str) {
        let line = line.trim();
        let counted = match line.strip_prefix("test result: ") {
            Some(rest) => rest.split_once(". ").map(|(_, counts)| counts),
            None => Some(line),
        };
        let mut parts = counted.unwrap_or_default().split([';', ',']).map(str::trim);
        let passed = parts.next().and_then(|part| number_before(part, "passed"));
        let failed = parts.next().and_then(|part| number_before(part, "failed"));
        if let (Some(passed), Some(failed)) = (passed, failed) {
            self.passed += passed;
            self.failed += failed;
        }
    }

    /// The closing line. A command that failed never reports zero failures: a step that is no test counts as one.
    pub fn closing_line(self, all_went_well: bool) -> String {
        let failed = if all_went_well { self.failed } else { self.failed.max(1) };
        format!("{} passed, {failed} failed", self.passed)
    }
}

fn number_before(part: &str, word: &str) -> Option<u64> {
    part.strip_suffix(word)?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lines: &[&str]) -> Counts {
        let mut counts = Counts::default();
        for line in lines {
            counts.add_line(line);
        }
        counts
    }

    #[test]
    fn the_results_of_all_test_programs_are_added_up() {
        let counts = count(&[
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "40 passed, 1 failed, 2 skipped",
        ]);
        assert_eq!(counts, Counts { passed: 44, failed: 3 });
    }

    #[test]
    fn lines_that_only_talk_about_results_do_not_count() {
        let counts = count(&["test a_test ... ok", "we saw 3 passed, 0 failed", "3 passed", "test result: ok", ""]);
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn the_closing_line_shows_a_failed_step_even_if_no_test_failed() {
        let counts = Counts { passed: 7, failed: 0 };
        assert_eq!(counts.closing_line(true), "7 passed, 0 failed");
        assert_eq!(counts.closing_line(false), "7 passed, 1 failed");
        assert_eq!(Counts { passed: 7, failed: 3 }.closing_line(false), "7 passed, 3 failed");
    }
}
