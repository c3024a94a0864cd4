//! Result of one run of a target, read from the output of libFuzzer.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Result of one target.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the target.
    pub target: String,
    /// Inputs that were tried.
    pub executions: u64,
    /// Places in the code that were reached, and how many there are.
    pub covered: (u64, u64),
    /// Set when the target ended otherwise than by its time.
    pub failed: bool,
    /// The input that broke it.
    pub crash: Option<PathBuf>,
    /// Lines that describe a failure.
    said: Vec<String>,
    /// All that was said.
    log: PathBuf,
}

impl Report {
    /// Reads what was printed. A run that cannot show that it tried and reached anything has failed, whatever it says.
    pub fn read(target: &str, text: &str, success: bool, log: &Path) -> Self {
        let executions = number_behind(text, "stat::number_of_executed_units:").unwrap_or_else(|| last_count(text));
        let covered = text.lines().filter_map(|line| number_behind(line, " cov: ")).max().unwrap_or(0);
        let all = number_behind(text, "Loaded 1 modules   (").unwrap_or(0);
        let crash = text
            .lines()
            .find_map(|line| line.split_once("Test unit written to "))
            .map(|(_, path)| PathBuf::from(path.trim()));
        let failed = !success || crash.is_some() || executions == 0 || covered == 0;
        let said = text
            .lines()
            .skip_while(|line| !line.contains("panicked at") && !line.contains("ERROR: libFuzzer"))
            .take_while(|line| !line.starts_with("stack backtrace"))
            .take(6)
            .map(str::to_owned)
            .collect();
        Self { target: target.to_owned(), executions, covered: (covered, all), failed, crash, said, log: log.into() }
    }

    /// One line about it.
    pub fn line(&self) -> String {
        let crashes = if self.failed { "CRASHED" } else { "no crash" };
        let (covered, all) = self.covered;
        format!("  {:<14} {:>12} executions  {covered:>6} of {all:>6} places  {crashes}", self.target, self.executions)
    }

    /// Describes the failure, and a command that shows it again.
    pub fn describe(&self, built: &Path) -> String {
        let mut text = format!("{}:", self.target);
        for line in &self.said {
            let _written = write!(text, "\n    {line}");
        }
        let program = built.join(&self.target);
        let again = match &self.crash {
            Some(crash) => format!("replay: {} {}", program.display(), crash.display()),
            None => "it left no input".to_owned(),
        };
        let _written = write!(text, "\n  {again}\n  all it said: {}", self.log.display());
        text
    }
}

/// All of them, one a line.
pub fn table(reports: &[Report]) -> String {
    let lines: Vec<String> = reports.iter().map(Report::line).collect();
    lines.join("\n")
}

fn number_behind(text: &str, label: &str) -> Option<u64> {
    let (_, behind) = text.split_once(label)?;
    let digits: String = behind.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The count at the start of the last line that has one; a crash leaves no other.
fn last_count(text: &str) -> u64 {
    text.lines().rev().find_map(|line| number_behind(line.strip_prefix('#')?, "")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "INFO: Loaded 1 modules   (1550 inline 8-bit counters): 1550 [0x1, 0x2), \n\
                         #21\tINITED cov: 477 ft: 847 corp: 20/1229b exec/s: 0 rss: 27Mb\n\
                         #69200\tDONE   cov: 651 ft: 2114 corp: 612/33Kb lim: 128 exec/s: 23066 rss: 28Mb\n\
                         stat::number_of_executed_units: 69200\n";
    const CRASH: &str = "INFO: Loaded 1 modules   (1550 inline 8-bit counters): 1550 [0x1, 0x2), \n\
                         #21\tINITED cov: 477 ft: 847 corp: 20/1229b exec/s: 0 rss: 27Mb\n\
                         thread '<unnamed>' (1) panicked at src/dns.rs:21:9:\nit is another name\nstack backtrace:\n   0: x\n\
                         artifact_prefix='/t/'; Test unit written to /t/crash-01\n";

    fn read(text: &str, success: bool) -> Report {
        Report::read("dns", text, success, Path::new("/log"))
    }

    #[test]
    fn a_clean_run_says_how_much_was_tried_and_reached() {
        let report = read(CLEAN, true);
        assert_eq!((report.executions, report.covered, report.failed), (69200, (651, 1550), false));
    }

    #[test]
    fn a_crash_is_reported_with_its_input_and_how_to_replay_it() {
        let report = read(CRASH, false);
        assert_eq!((report.executions, report.failed), (21, true));
        let reported = report.describe(Path::new("/built"));
        assert!(reported.contains("src/dns.rs:21:9:\n    it is another name\n"), "{reported}");
        assert!(reported.contains("replay: /built/dns /t/crash-01\n"), "{reported}");
        assert!(!reported.contains("0: x"), "{reported}");
    }

    #[test]
    fn a_run_that_tried_or_reached_nothing_has_failed() {
        assert!(read("", true).failed);
        assert!(read(&CLEAN.replace("cov: 477", "").replace("cov: 651", ""), true).failed);
        assert!(read(CLEAN, false).failed);
    }
}
