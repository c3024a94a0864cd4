//! P5: runs of `/bin/true` in a second with several workers at once.

use super::launch_bench::{ask, number};
use super::options::{Options, P};
use super::place::Place;
use super::report::{Bound, Report};
use super::stats::Sample;
use super::tools::{self, NO_BWRAP, argv};
use super::{failed, say};
use crate::failure::Failure;

const WORKERS: &[usize] = &[1, 2, 8];
const ROUNDS: usize = 3;
/// Modes of the launcher, and what each must reach of bubblewrap's rate with most workers.
const MODES: &[(&str, f64)] = &[("fresh", 1.9), ("pooled", 3.2), ("live", 4.8)];

/// One line: who, how it is run, and a rate for each number of workers.
struct Line {
    name: String,
    how: How,
    rates: Vec<Sample>,
    /// Set when it cannot be measured.
    unknown: Option<String>,
}

enum How {
    Command(Vec<String>),
    Launcher(&'static str),
}

impl Line {
    fn new(name: &str, how: How) -> Self {
        Self { name: name.to_owned(), how, rates: vec![Sample::default(); WORKERS.len()], unknown: None }
    }

    fn most_workers(&self) -> Option<f64> {
        self.rates.last()?.median()
    }
}

/// All of them in turn; the middle one of three rounds counts.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    say("runs in a second");
    let runs = (2 * options.rounds).max(20);
    let command = |words: &[&str]| How::Command(argv(words));
    let mut lines = vec![
        Line::new("posix_spawn", command(&["/bin/true"])),
        Line::new("nexus run", command(&[&place.nexus, "run", "--", "/bin/true"])),
        Line::new("nexus run --direct", command(&[&place.nexus, "run", "--direct", "--", "/bin/true"])),
    ];
    lines.extend(tools::bwrap(&argv(&["/bin/true"])).map(|words| Line::new("bwrap", How::Command(words))));
    lines.extend(MODES.iter().map(|(mode, _)| Line::new(&format!("launcher, {mode}"), How::Launcher(mode))));
    let Some(runner) = place.runners.first_mut() else { return Err(failed("nobody to measure as")) };
    for _ in 0..ROUNDS {
        for (column, &workers) in WORKERS.iter().enumerate() {
            for line in lines.iter_mut().filter(|line| line.unknown.is_none()) {
                let rate = match &line.how {
                    How::Command(words) => Ok(runner.per_second(words, (runs / workers).max(4), workers)?),
                    How::Launcher(mode) => ask(&place.launch_bench, mode, workers, runs, 0, &[])?.and_then(|answer| {
                        number(&answer, &["per_second"]).ok_or("launch_bench tells no runs in a second".to_owned())
                    }),
                };
                match rate {
                    Ok(rate) => line.rates[column].push(rate),
                    Err(reason) => line.unknown = Some(reason),
                }
            }
        }
    }
    table(report, &lines);
    judge(report, &lines);
    Ok(())
}

fn table(report: &mut Report, lines: &[Line]) {
    let rows = lines.iter().map(|line| {
        let rates = line.rates.iter().map(|cell| cell.median().map_or("-".to_owned(), |rate| format!("{rate:.0}")));
        [line.name.clone()].into_iter().chain(rates).collect()
    });
    let title = format!("Runs of /bin/true in a second, {ROUNDS} rounds in turn, medians");
    report.table(&title, &["", "1 worker", "2 workers", "8 workers"], rows.collect());
}

fn judge(report: &mut Report, lines: &[Line]) {
    let bwrap = lines.iter().find(|line| line.name == "bwrap").and_then(Line::most_workers);
    for (mode, bound) in MODES {
        let Some(line) = lines.iter().find(|line| matches!(line.how, How::Launcher(known) if known == *mode)) else {
            continue;
        };
        let found = match (line.most_workers(), bwrap) {
            (Some(rate), Some(bwrap)) => Ok((format!("{rate:.0}/s"), rate / bwrap)),
            (None, _) => Err(line.unknown.as_deref().unwrap_or("no samples")),
            (_, None) => Err(NO_BWRAP),
        };
        report.hold(P::Throughput, &format!("{mode}, 8 workers"), found, "x bwrap", Bound::AtLeast(*bound));
    }
}
