//! How many tests passed and failed, read from what the test programs print.
//!
//! The numbers come from the output and are never computed from the list of steps: a suite that did not run adds
//! nothing.

use std::collections::BTreeSet;

/// Tests that passed and failed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Names of the test functions that ran, whatever came of it.
    pub ran: BTreeSet<String>,
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
        self.ran.extend(test_that_ran(line).map(str::to_owned));
    }

    /// The closing line. A step that failed without a failed test (a compiler's error, a missing package) counts as one
    /// failure, so that a command that failed never reports zero.
    pub fn closing_line(&self, failed_steps: u64) -> String {
        format!("{} passed, {} failed", self.passed, self.failed + failed_steps)
    }
}

/// The function in a line `test a_module::a_test ... ok`. Other text may stand before it: a process that a test started
/// may have printed half a line.
fn test_that_ran(line: &str) -> Option<&str> {
    let (before, verdict) = line.rsplit_once(" ... ")?;
    // A test that should panic says so behind its name.
    let before = before.strip_suffix(" - should panic").unwrap_or(before);
    let (start, path) = before.rsplit_once(' ')?;
    let is_test = start.ends_with("test") && matches!(verdict, "ok" | "FAILED");
    path.rsplit("::").next().filter(|_| is_test)
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
        assert_eq!(counts, Counts { passed: 44, failed: 3, ran: BTreeSet::new() });
    }

    #[test]
    fn lines_that_only_talk_about_results_do_not_count() {
        let counts = count(&["a test ran", "we saw 3 passed, 0 failed", "3 passed", "test result: ok", ""]);
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn the_names_of_the_tests_that_ran_are_kept() {
        let counts = count(&[
            "test a_test ... ok",
            "half a line of a childtest a_module::tests::another ... FAILED",
            "test panics_in_a_test - should panic ... ok",
            "test src/lib.rs - Item (line 3) ... ok",
            "test it_is_slow ... ignored, slow",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "  inner: test of something else",
        ]);
        assert_eq!(counts.ran, BTreeSet::from(["a_test", "another", "panics_in_a_test"].map(str::to_owned)));
    }

    #[test]
    fn each_failed_step_without_a_failed_test_is_one_failure() {
        let counts = Counts { passed: 7, ..Counts::default() };
        assert_eq!(counts.closing_line(0), "7 passed, 0 failed");
        assert_eq!(counts.closing_line(2), "7 passed, 2 failed");
        assert_eq!(Counts { passed: 7, failed: 3, ..Counts::default() }.closing_line(1), "7 passed, 4 failed");
    }
}
