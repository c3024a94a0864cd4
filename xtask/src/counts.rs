//! Numbers of tests that passed and failed, read from the output of the test programs.
//!
//! The numbers come from the output and are never computed from the list of steps: a suite that did not run adds
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

/// Tests that passed, failed or tried nothing, and what each promise of the specification may name as its evidence.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Passed, tests that said themselves that they tried nothing among them until [`Counts::held`].
    pub passed: u64,
    /// Number of tests that failed.
    pub failed: u64,
    /// Test functions that are ignored: parts that other tests start, and long ones.
    pub ignored: u64,
    /// Names of the test functions that ran, whatever came of it.
    pub ran: BTreeSet<String>,
    /// Names of the test functions that failed.
    pub failed_tests: BTreeSet<String>,
    /// Test programs that failed beside another one and passed alone, each with what had failed.
    pub passed_alone: Vec<String>,
    /// Vectors of the escape suite with an attack that was played to a verdict.
    pub vectors: BTreeSet<String>,
    /// Cases that ran in the virtual machine.
    pub cases: BTreeSet<String>,
    /// Test functions that said that they tried nothing here, with the reason.
    pub idle: BTreeMap<String, String>,
    /// Test functions that said that they tried a part only, with the reason.
    pub partial: BTreeMap<String, String>,
    /// Rows of the escape suite that were skipped: the vector, and the row with its reason.
    pub skipped_rows: Vec<(String, String)>,
    /// The reason why the virtual machine was not started.
    pub no_machine: Option<String>,
}

impl Counts {
    /// Adds what one line of output says, if it is a line of result.
    ///
    /// Understood are `test result: ok. 3 passed; 0 failed; …` of the Rust test harness, `3 passed, 0 failed, …` and the rows
    /// of the escape suite, `vm-case: ok NAME` of the virtual machine, and `skipped test NAME: REASON` (see
    /// `tests/support/skip.rs`), each at the start of a line. A test may start its own program again with a filter; the
    /// result of such a run is a part of that test.
    pub fn add_line(&mut self, line: &str) {
        let line = line.trim_end();
        let counted = match line.strip_prefix("test result: ") {
            Some(rest) if number_of(rest, "filtered out").is_some_and(|filtered| filtered > 0) => None,
            Some(rest) => rest.split_once(". ").map(|(_, counts)| counts),
            None => Some(line),
        };
        let counted = counted.unwrap_or_default();
        // Nothing is trimmed at its start: an inner run is shown indented.
        let mut parts = counted.split([';', ',']).map(str::trim_end);
        let passed = parts.next().and_then(|part| number_before(part, "passed"));
        let failed = parts.next().and_then(|part| number_before(part.trim_start(), "failed"));
        if let (Some(passed), Some(failed)) = (passed, failed) {
            self.passed += passed;
            self.failed += failed;
            self.ignored += number_of(counted, "ignored").unwrap_or_default();
        }
        if let Some((name, has_passed)) = test_that_ran(line) {
            self.ran.insert(name.to_owned());
            if !has_passed {
                self.failed_tests.insert(name.to_owned());
            }
        }
        self.add_row(line);
        self.add_case(line);
        for (start, into) in [("skipped test ", &mut self.idle), ("partial test ", &mut self.partial)] {
            if let Some((name, reason)) = line.strip_prefix(start).and_then(|rest| rest.split_once(": ")) {
                let name = name.rsplit("::").next().unwrap_or_default();
                into.insert(name.to_owned(), reason.to_owned());
                // On one processor this line tears the harness's own line of the test apart.
                self.ran.insert(name.to_owned());
            }
        }
    }

    /// Adds a row of the escape suite. Only attacks hold a promise; a harmless twin that works says nothing of a wall.
    fn add_row(&mut self, line: &str) {
        let Some((vector, rest)) = line.split_once(' ') else { return };
        let [letter, tens, ones] = vector.as_bytes() else { return };
        let is_vector = letter.is_ascii_uppercase() && tens.is_ascii_digit() && ones.is_ascii_digit();
        let kind = [" bad  ", " good "].into_iter().find(|kind| rest.contains(kind));
        let (true, Some(kind)) = (is_vector, kind) else { return };
        if let Some((row, reason)) = rest.split_once(" skip: ") {
            let name = row.split_once(kind).map_or(row, |(name, _)| name).trim();
            self.skipped_rows.push((vector.to_owned(), format!("{name}: {reason}")));
        } else if kind == " bad  " && (rest.ends_with(" pass") || rest.contains(" FAIL: ")) {
            self.vectors.insert(vector.to_owned());
        }
    }

    /// Adds a line of the virtual machine. A remark may stand behind a name, and a reason behind that of a failure.
    fn add_case(&mut self, line: &str) {
        if let Some(reason) = line.strip_prefix("skipped machine: ") {
            self.no_machine = Some(reason.to_owned());
        }
        let (count, rest) = match line.strip_prefix("vm-case: ").and_then(|said| said.split_once(' ')) {
            Some(("ok", rest)) => (&mut self.passed, rest),
            Some(("FAILED", rest)) => (&mut self.failed, rest),
            _ => return,
        };
        *count += 1;
        self.cases.extend(rest.split([' ', ':']).next().map(str::to_owned));
    }

    /// Adds what another program reported.
    pub fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.ran.extend(other.ran);
        self.failed_tests.extend(other.failed_tests);
        self.passed_alone.extend(other.passed_alone);
        self.vectors.extend(other.vectors);
        self.cases.extend(other.cases);
        self.idle.extend(other.idle);
        self.partial.extend(other.partial);
        self.skipped_rows.extend(other.skipped_rows);
        self.no_machine = self.no_machine.take().or(other.no_machine);
    }

    /// Tests that passed and tried something.
    pub fn held(&self) -> u64 {
        self.passed.saturating_sub(self.idle.len() as u64)
    }

    /// Returns the programs that passed only alone, for people: one line each and their number.
    pub fn only_alone(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.passed_alone.iter().map(|program| format!("passed alone: {program}")).collect();
        if !lines.is_empty() {
            lines.push(format!("passed alone: {} programs, which failed beside others", lines.len()));
        }
        lines
    }

    /// Returns the tests that were not tried, for people: one line each, and nothing where every test was tried.
    pub fn not_tried(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(reason) = &self.no_machine {
            lines.push(format!("skipped: the virtual machine: {reason}"));
        }
        lines.extend(self.idle.iter().map(|(name, reason)| format!("skipped: test {name}: {reason}")));
        lines.extend(self.skipped_rows.iter().map(|(vector, row)| format!("skipped: escape {vector} {row}")));
        lines.extend(self.partial.iter().map(|(name, reason)| format!("in part: test {name}: {reason}")));
        let (tests, rows) = (self.idle.len(), self.skipped_rows.len());
        if !lines.is_empty() || self.ignored > 0 {
            let ignored = self.ignored;
            let partial = self.partial.len();
            lines.push(format!("not tried: {tests} tests, {rows} rows; {partial} tests in part; {ignored} ignored"));
        }
        lines
    }

    /// The closing line. A step that failed without a failed test (a compiler's error, a missing package) counts as one
    /// failure, so that a command that failed never reports zero.
    pub fn closing_line(&self, failed_steps: u64) -> String {
        format!("{} passed, {} failed", self.held(), self.failed + failed_steps)
    }
}

/// Reads a line `test a_module::a_test ... ok`: the function, and `true` when it passed. Other text may stand before it: a
/// process that a test started may have printed half a line.
fn test_that_ran(line: &str) -> Option<(&str, bool)> {
    let (before, verdict) = line.rsplit_once(" ... ")?;
    // A test that should panic says so behind its name.
    let before = before.strip_suffix(" - should panic").unwrap_or(before);
    let (start, path) = before.rsplit_once(' ')?;
    let is_test = start.ends_with("test") && matches!(verdict, "ok" | "FAILED");
    path.rsplit("::").next().filter(|_| is_test).map(|name| (name, verdict == "ok"))
}

/// The number before `word` in one of the parts of a result.
fn number_of(result: &str, word: &str) -> Option<u64> {
    result.split([';', ',']).find_map(|part| number_before(part.trim(), word))
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
        assert_eq!(counts, Counts { passed: 44, failed: 3, ..Counts::default() });
    }

    #[test]
    fn cases_of_the_machine_are_counted_by_their_names() {
        let counts =
            count(&["vm-case: ok a", "vm-case: ok b (remark: slow)", "vm-case: FAILED c: why", "vm-case: end"]);
        let cases = BTreeSet::from(["a", "b", "c"].map(str::to_owned));
        assert_eq!(counts, Counts { passed: 2, failed: 1, cases, ..Counts::default() });
        let counts = count(&["skipped machine: no QEMU", "[1.0] vm-case: ok a"]);
        assert_eq!(counts, Counts { no_machine: Some("no QEMU".to_owned()), ..Counts::default() });
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
        assert_eq!(counts.failed_tests, BTreeSet::from(["another".to_owned()]));
    }

    #[test]
    fn the_reports_of_two_programs_are_added_up() {
        let lines = [
            "test a ... ok",
            "test b ... FAILED",
            "skipped test c: a reason",
            "partial test d: a reason",
            "A01  gaining capabilities             bad  gained        gained        eperm         eperm         pass",
            "A04  an old kernel                    bad  -             -             eperm         eperm         skip: no x32",
            "vm-case: ok a",
            "skipped machine: no QEMU",
            "test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ];
        let mut counts = Counts { passed_alone: vec!["x".to_owned()], ..count(&lines[..4]) };
        counts.merge(Counts { passed_alone: vec!["y".to_owned()], ..count(&lines[4..]) });
        let expected = Counts { passed_alone: vec!["x".to_owned(), "y".to_owned()], ..count(&lines) };
        assert_eq!(counts, expected);
        assert_eq!(counts.only_alone().len(), 3);
        assert!(count(&lines).only_alone().is_empty());
    }

    #[test]
    fn the_result_of_an_inner_run_is_not_added() {
        let counts = count(&[
            "test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.01s",
            "  test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "  5 passed, 0 failed, 0 skipped",
        ]);
        assert_eq!(counts, Counts { passed: 3, ignored: 2, ..Counts::default() });
    }

    #[test]
    fn a_test_that_tried_nothing_is_no_test_that_passed() {
        let counts = count(&[
            "skipped test a_module::needs_root: only root can mount",
            "test a_module::needs_root ... ok",
            "partial test needs_both: only root plays an ordinary user too",
            "test needs_both ... ok",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ]);
        assert_eq!(counts.closing_line(0), "1 passed, 0 failed");
        assert_eq!(
            counts.not_tried(),
            [
                "skipped: test needs_root: only root can mount",
                "in part: test needs_both: only root plays an ordinary user too",
                "not tried: 1 tests, 0 rows; 1 tests in part; 0 ignored",
            ]
        );
        assert!(Counts::default().not_tried().is_empty());
    }

    #[test]
    fn a_vector_ran_when_an_attack_of_it_came_to_a_verdict() {
        let counts = count(&[
            "A01  gaining capabilities             bad  gained        gained        eperm         eperm         pass",
            "A02  a hole that is open              bad  open          open          open          -             FAIL: Root answers open",
            "A03  a twin                           good fine          fine          fine          fine          pass",
            "A04  an old kernel                    bad  -             -             eperm         eperm         skip: no x32 here",
            "A04  another one of the same          bad  -             -             eperm         eperm         skip: no x32 here",
            "A05 tells something about pass",
            "  A06  indented                       bad  open          open          eperm         eperm         pass",
        ]);
        assert_eq!(counts.vectors, BTreeSet::from(["A01", "A02"].map(str::to_owned)));
        let row = |name: &str| ("A04".to_owned(), format!("{name}: no x32 here"));
        assert_eq!(counts.skipped_rows, [row("an old kernel"), row("another one of the same")]);
    }

    #[test]
    fn each_failed_step_without_a_failed_test_is_one_failure() {
        let counts = Counts { passed: 7, ..Counts::default() };
        assert_eq!(counts.closing_line(0), "7 passed, 0 failed");
        assert_eq!(counts.closing_line(2), "7 passed, 2 failed");
        assert_eq!(Counts { passed: 7, failed: 3, ..Counts::default() }.closing_line(1), "7 passed, 4 failed");
    }
}
