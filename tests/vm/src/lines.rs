//! Lines that the machine writes to its serial port, and their meaning.

use crate::failure::Failure;
use std::collections::BTreeSet;

/// The beginning of each line that counts; everything else is the kernel's or a command's.
pub const MARK: &str = "vm-case:";

/// Results that were read from the lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Cases that passed.
    pub passed: u64,
    /// Cases that failed.
    pub failed: u64,
    /// Names of those, with the reason.
    pub names: Vec<String>,
    /// Names of all cases that ran.
    pub ran: BTreeSet<String>,
    /// Set when the machine came to the end of its list.
    pub complete: bool,
}

impl Verdict {
    /// Takes one line.
    pub fn add(&mut self, line: &str) {
        let Some(said) = line.trim().strip_prefix(MARK) else { return };
        match said.trim().split_once(' ').unwrap_or((said.trim(), "")) {
            ("ok", rest) => {
                self.passed += 1;
                // A remark may stand behind the name.
                self.ran.extend(rest.split(' ').next().map(str::to_owned));
            }
            ("FAILED", rest) => {
                self.failed += 1;
                self.names.push(rest.to_owned());
                self.ran.extend(rest.split(':').next().map(str::to_owned));
            }
            ("end", _) => self.complete = true,
            _ => {}
        }
    }

    /// Good only if as many cases passed as there are: a machine that stops early is a failure.
    pub fn evaluate(&self, wanted: usize) -> Result<(), Failure> {
        if self.failed == 0 && self.complete && self.passed == wanted as u64 {
            return Ok(());
        }
        let what = match (self.names.is_empty(), self.complete) {
            (false, _) => self.names.join("\n"),
            (true, false) => format!("the machine stopped after {} of {wanted} cases", self.passed),
            (true, true) => format!("{} of {wanted} cases passed, and none is said to have failed", self.passed),
        };
        Err(Failure::new(what, "read the lines of the virtual machine above"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Verdict {
        let mut verdict = Verdict::default();
        text.lines().for_each(|line| verdict.add(line));
        verdict
    }

    #[test]
    fn all_cases_must_pass_and_the_end_must_be_reached() {
        assert!(heard("vm-case: ok a\nvm-case: ok b\r\nvm-case: end\n").evaluate(2).is_ok());
        assert!(heard("vm-case: ok a\nvm-case: ok b\n").evaluate(2).is_err());
        assert!(heard("vm-case: ok a\nvm-case: end\n").evaluate(2).is_err());
        assert!(heard("").evaluate(0).is_err());
    }

    #[test]
    fn a_case_that_failed_is_named() {
        let failure = heard("vm-case: FAILED b: why\nvm-case: ok a\nvm-case: end\n").evaluate(2).unwrap_err();
        assert!(failure.what.contains("b: why"), "{failure}");
    }

    #[test]
    fn the_names_of_the_cases_that_ran_are_kept() {
        let said = "vm-case: ok a\nvm-case: ok b (remark: slow)\r\nvm-case: FAILED c: why: so\nvm-case: end\n";
        assert_eq!(heard(said).ran, BTreeSet::from(["a", "b", "c"].map(str::to_owned)));
    }

    #[test]
    fn what_the_kernel_says_is_no_verdict() {
        assert_eq!(heard("[1.0] vm-case: ok a\nok a\n"), Verdict::default());
    }
}
