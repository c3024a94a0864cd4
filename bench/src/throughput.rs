//! P5: runs of `/bin/true` in a second with several workers at once.

use crate::failure::Failure;
use crate::launch_bench::{figure, rows};
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::stats::Sample;
use crate::tools::argv;
use crate::{announce, failed};

const WORKERS: &[usize] = &[1, 2, 8];
const ROUNDS: usize = 3;
/// Modes of the launcher, and what each must reach of bubblewrap's rate with most workers.
const BOUNDS: &[(&str, f64)] = &[("fresh", 1.9), ("pooled", 3.2), ("live", 4.8)];
/// Seconds for which each mode runs.
const SECONDS: usize = 2;

/// One line of the table: a rate for each number of workers.
struct Line {
    name: &'static str,
    how: How,
    rates: Vec<Sample>,
}

enum How {
    /// A whole program, started by the timer.
    Program(Vec<String>),
    /// A mode of launch_bench.
    Mode(&'static str),
}

impl Line {
    fn new(name: &'static str, how: How) -> Self {
        Self { name, how, rates: vec![Sample::default(); WORKERS.len()] }
    }

    fn most_workers(&self) -> Option<f64> {
        self.rates.last()?.median()
    }
}

/// All of them in turn; the middle one of three rounds counts.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    announce("runs in a second");
    let runs = (2 * options.rounds).max(20);
    let mut lines = vec![
        Line::new("nexus run", How::Program(argv(&[&place.nexus, "run", "--", "/bin/true"]))),
        Line::new("nexus run --direct", How::Program(argv(&[&place.nexus, "run", "--direct", "--", "/bin/true"]))),
        Line::new("posix_spawn", How::Mode("posix_spawn")),
        Line::new("bwrap", How::Mode("bwrap")),
        Line::new("launcher, fresh", How::Mode("fresh")),
        Line::new("launcher, pooled", How::Mode("pooled")),
        Line::new("launcher, live", How::Mode("live")),
    ];
    let mut unknown = None;
    let Some(runner) = place.runners.first_mut() else { return Err(failed("there is no identity to measure as")) };
    for _ in 0..ROUNDS {
        for line in &mut lines {
            let How::Program(words) = &line.how else { continue };
            for (&workers, sample) in WORKERS.iter().zip(&mut line.rates) {
                sample.push(runner.per_second(words, (runs / workers).max(4), workers)?);
            }
        }
        match rows(&place.launch_bench, 1, SECONDS, &[])? {
            Err(reason) => unknown = Some(reason),
            Ok(reported) => {
                for line in &mut lines {
                    let How::Mode(mode) = line.how else { continue };
                    for (&workers, sample) in WORKERS.iter().zip(&mut line.rates) {
                        sample.extend(figure(&reported, mode, workers, "runs_per_s"));
                    }
                }
            }
        }
    }
    table(report, &lines);
    evaluate(report, &lines, unknown.as_deref());
    Ok(())
}

fn table(report: &mut Report, lines: &[Line]) {
    let rows = lines.iter().map(|line| {
        let rates = line.rates.iter().map(|cell| cell.median().map_or("-".to_owned(), |rate| format!("{rate:.0}")));
        [line.name.to_owned()].into_iter().chain(rates).collect()
    });
    let title = format!("Runs of /bin/true in a second, {ROUNDS} rounds in turn, medians");
    report.table(&title, &["", "1 worker", "2 workers", "8 workers"], rows.collect());
}

fn evaluate(report: &mut Report, lines: &[Line], unknown: Option<&str>) {
    let rate =
        |wanted: &str| lines.iter().find(|line| matches!(line.how, How::Mode(mode) if mode == wanted))?.most_workers();
    for (mode, bound) in BOUNDS {
        let found = match (rate(mode), rate("bwrap")) {
            (Some(rate), Some(bwrap)) => Ok((format!("{rate:.0}/s"), rate / bwrap)),
            _ => Err(unknown.unwrap_or("launch_bench printed no rate of it or of bwrap").to_owned()),
        };
        report.hold(P::Throughput, &format!("{mode}, 8 workers"), found, "x bwrap", Bound::AtLeast(*bound));
    }
}
