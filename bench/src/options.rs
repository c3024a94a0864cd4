//! Options of `cargo xtask bench`.

use std::path::PathBuf;

/// Shown when the arguments cannot be understood.
pub const USAGE: &str = "cargo xtask bench [--only P1,P3,…] [--rounds N] [--idle N] [--gib N] [--json FILE] \
                         [--markdown] [--breakdown] [--anyway] [--built DIR]";

/// One row of the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum P {
    /// P1: a cold `nexus run`.
    Cold,
    /// P2: a run with an allowlist.
    Allowlist,
    /// P3: through the launcher process.
    Launcher,
    /// P4: one more command in a live sandbox.
    LiveExec,
    /// P5: runs in a second with several workers.
    Throughput,
    /// P6: memory of an idle sandbox.
    Idle,
    /// P7: output of a command.
    Drain,
    /// P8: the egress from inside.
    Egress,
    /// P9: lives of directives in a second, and how soon a waiting daemon has a new one.
    Fleet,
    /// P10: change set of a run.
    ChangeSets,
    /// P12: start of the program and its size.
    Version,
    /// P13: starting Python.
    Python,
    /// P14: a directive through `nexus up` beside a run.
    Directive,
}

const ALL: &[(&str, P)] = &[
    ("P1", P::Cold),
    ("P2", P::Allowlist),
    ("P3", P::Launcher),
    ("P4", P::LiveExec),
    ("P5", P::Throughput),
    ("P6", P::Idle),
    ("P7", P::Drain),
    ("P8", P::Egress),
    ("P9", P::Fleet),
    ("P10", P::ChangeSets),
    ("P12", P::Version),
    ("P13", P::Python),
    ("P14", P::Directive),
];

impl P {
    /// `P1` and so on.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(_, row)| *row == self).map_or("?", |(name, _)| name)
    }
}

/// Options of the command line.
#[derive(Debug)]
pub struct Options {
    only: Vec<P>,
    /// Rounds of each measure that is taken in turn.
    pub rounds: usize,
    /// Idle sandboxes that are started at once.
    pub idle: usize,
    /// GiB of output for P7.
    pub gib: u64,
    /// File to which the figures go as JSON.
    pub json: Option<PathBuf>,
    /// Prints the figures as Markdown.
    pub markdown: bool,
    /// Also count and time the system calls of a run.
    pub breakdown: bool,
    /// Measure although the machine is busy.
    pub anyway: bool,
    /// Directory with the programs to measure; absent means that they are built.
    pub built: Option<PathBuf>,
    /// The arguments as they were given, for the header.
    pub reported: Vec<String>,
}

impl Options {
    /// Reads the words behind `cargo xtask bench`.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            only: Vec::new(),
            rounds: 100,
            idle: 1000,
            gib: 4,
            json: None,
            markdown: false,
            breakdown: false,
            anyway: false,
            built: None,
            reported: words.to_vec(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--only" => options.only = value()?.split(',').map(row).collect::<Result<_, _>>()?,
                "--rounds" => options.rounds = number(value()?)?,
                "--idle" => options.idle = number(value()?)?,
                "--gib" => options.gib = number(value()?)? as u64,
                "--json" => options.json = Some(value()?.into()),
                "--markdown" => options.markdown = true,
                "--breakdown" => options.breakdown = true,
                "--anyway" => options.anyway = true,
                "--built" => options.built = Some(value()?.into()),
                other => return Err(format!("{other} is not known")),
            }
        }
        Ok(options)
    }

    /// Returns whether this row is measured.
    pub fn wants(&self, row: P) -> bool {
        self.only.is_empty() || self.only.contains(&row)
    }

    /// Returns the examples that the rows need beside `nexus`, each with its package.
    pub fn examples(&self) -> Vec<(&'static str, &'static str)> {
        let all: [(&[P], _); 3] = [
            (&[P::Launcher, P::LiveExec, P::Python], ("nexus-driver-namespace", "launch_bench")),
            (&[P::Allowlist, P::Egress], ("nexus-egress", "egress_bench")),
            (&[P::Fleet, P::Directive], ("nexus-mothership", "fleet_bench")),
        ];
        all.into_iter().filter(|(rows, _)| self.wants_any(rows)).map(|(_, example)| example).collect()
    }

    /// Returns whether one of these rows is measured.
    pub fn wants_any(&self, rows: &[P]) -> bool {
        rows.iter().any(|row| self.wants(*row))
    }
}

fn row(name: &str) -> Result<P, String> {
    let known = || ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, row)| *row)
        .ok_or(format!("no row {name}; there are {}", known()))
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text} is not a number of at least 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn without_arguments_every_row_is_measured() {
        let options = parse("").unwrap();
        assert!(ALL.iter().all(|(_, row)| options.wants(*row)));
    }

    #[test]
    fn only_the_rows_that_were_named_are_measured() {
        let options = parse("--only P1,P12 --rounds 7").unwrap();
        assert!(options.wants(P::Cold) && options.wants(P::Version) && !options.wants(P::Launcher));
        assert_eq!(options.rounds, 7);
    }

    #[test]
    fn a_row_builds_its_own_example_alone() {
        let names = |line: &str| parse(line).unwrap().examples().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(""), ["launch_bench", "egress_bench", "fleet_bench"]);
        assert_eq!(names("--only P9,P14"), ["fleet_bench"]);
        assert_eq!(names("--only P2"), ["egress_bench"]);
        assert!(names("--only P1,P7").is_empty());
    }

    #[test]
    fn what_is_misspelt_is_refused_and_not_ignored() {
        for line in ["--only P99", "--round 3", "--rounds", "--rounds 0", "--rounds x"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
