//! The outcome of one test program, read from its exit and its output.

use std::io;
use std::time::Duration;

use crate::bounded::Ended;
use crate::counts::Counts;

/// End of a test program, with all that it reported.
#[derive(Debug)]
pub struct Verdict {
    /// Numbers and names of the tests. A program that failed has at least one failure here.
    pub counts: Counts,
    /// Time that the program took.
    pub time: Duration,
    /// Time that it and the children that it waited for were on a processor.
    pub computed: Duration,
    /// Everything that it wrote.
    pub output: String,
    /// The reason why a program failed that names no failed test.
    broken: Option<String>,
}

impl Verdict {
    /// Reads the end of a program that took `time`.
    pub fn of(ended: io::Result<Ended>, time: Duration) -> Self {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let broken = Some(format!("it did not run: {error}"));
                let (computed, output) = (Duration::ZERO, String::new());
                return Self { counts: one_failure(), time, computed, output, broken };
            }
        };
        let mut counts = Counts::default();
        let mut has_result = false;
        for line in ended.stdout.lines() {
            has_result |= line.starts_with("test result: ");
            counts.add_line(line);
        }
        let mut broken = None;
        if counts.failed == 0 {
            // A program that reports failures and yet exits with 0 is not believed, nor is the contrary.
            broken = match (ended.timed_out, ended.code) {
                (true, _) => Some("it did not end in time".to_owned()),
                (false, Some(0)) if has_result => None,
                (false, Some(0)) => Some("it ended without a result".to_owned()),
                (false, Some(code)) => Some(format!("exit code {code}")),
                (false, None) => Some("it was killed by a signal".to_owned()),
            };
            counts.failed += u64::from(broken.is_some());
        }
        let output = if ended.stderr.is_empty() { ended.stdout } else { format!("{}\n{}", ended.stdout, ended.stderr) };
        Self { counts, time, computed: ended.computed, output, broken }
    }

    /// Returns whether every test passed.
    pub fn is_passed(&self) -> bool {
        self.counts.failed == 0
    }

    /// The names of the failed tests, or the reason why there are none.
    pub fn reason(&self) -> String {
        let names: Vec<&str> = self.counts.failed_tests.iter().map(String::as_str).collect();
        match &self.broken {
            Some(broken) => broken.clone(),
            None if names.is_empty() => format!("{} failed", self.counts.failed),
            None => names.join(", "),
        }
    }
}

fn one_failure() -> Counts {
    Counts { failed: 1, ..Counts::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(code: Option<i32>, stdout: &str) -> Verdict {
        let ended = Ended {
            code,
            timed_out: false,
            computed: Duration::ZERO,
            stdout: stdout.to_owned(),
            stderr: String::new(),
        };
        Verdict::of(Ok(ended), Duration::ZERO)
    }

    const PASSED: &str = "test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
    const FAILED: &str = "test a ... ok\ntest m::b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn a_program_passes_only_with_a_result_and_exit_code_zero() {
        assert!(verdict(Some(0), PASSED).is_passed());
        assert!(
            verdict(Some(0), "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n")
                .is_passed()
        );
        for (code, stdout, reason) in [
            (Some(0), "test a ... ok\n", "it ended without a result"),
            (Some(101), PASSED, "exit code 101"),
            (None, PASSED, "it was killed by a signal"),
            (Some(101), FAILED, "b"),
            (Some(0), FAILED, "b"),
        ] {
            let verdict = verdict(code, stdout);
            assert!(!verdict.is_passed(), "{stdout}");
            assert_eq!((verdict.reason().as_str(), verdict.counts.failed), (reason, 1), "{stdout}");
        }
    }

    #[test]
    fn a_program_that_does_not_start_or_end_has_failed() {
        let absent = Verdict::of(Err(io::ErrorKind::NotFound.into()), Duration::ZERO);
        assert!(!absent.is_passed() && absent.reason().starts_with("it did not run"));
        let ended = Ended {
            code: None,
            timed_out: true,
            computed: Duration::ZERO,
            stdout: PASSED.to_owned(),
            stderr: "x".to_owned(),
        };
        let slow = Verdict::of(Ok(ended), Duration::ZERO);
        assert!(!slow.is_passed() && slow.output.ends_with('x'));
        assert_eq!(slow.reason(), "it did not end in time");
    }
}
