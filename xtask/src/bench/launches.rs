//! P3, P4 and P13: through the launcher process, in blocks that take turns with blocks of bubblewrap.

use super::launch_bench::{ask, number, numbers};
use super::options::{Options, P};
use super::place::Place;
use super::report::{Bound, Report};
use super::stats::{Sample, ms};
use super::tools::{self, NO_BWRAP, argv};
use super::{failed, say};
use crate::failure::Failure;
use std::path::Path;

/// Blocks, and launches in each at 100 rounds.
const BLOCKS: usize = 6;
const IN_BLOCK: usize = 50;
/// Heap of the daemon in MiB that a launch must not pay for.
const HEAP: usize = 256;
const PYTHON: &[&str] = &["/usr/bin/python3", "-c", "print(1)"];

/// One way through the launcher.
struct Way {
    mode: &'static str,
    heap: usize,
    /// `/bin/true` when empty.
    command: &'static [&'static str],
    sample: Sample,
    spawn: Sample,
    p99s: Sample,
    /// Set when the program cannot do it.
    unknown: Option<String>,
}

impl Way {
    fn new(mode: &'static str, heap: usize, command: &'static [&'static str]) -> Self {
        let (sample, spawn, p99s) = (Sample::default(), Sample::default(), Sample::default());
        Self { mode, heap, command, sample, spawn, p99s, unknown: None }
    }

    /// Its median and that of posix_spawn beside it, or why there is none.
    fn found(&self) -> Result<(f64, f64), &str> {
        let why = self.unknown.as_deref().unwrap_or("no samples");
        Ok((self.sample.median().ok_or(why)?, self.spawn.median().ok_or(why)?))
    }

    fn p99(&self) -> Option<f64> {
        // Of all samples when there are enough of them to have one, else the middle of the blocks' own.
        if self.sample.len() >= 100 { self.sample.percentile(99) } else { self.p99s.median() }
    }
}

/// Everything that goes through the launcher one by one.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    let mut ways = Vec::new();
    if options.wants(P::Launcher) {
        ways.extend([Way::new("fresh", 0, &[]), Way::new("pooled", 0, &[]), Way::new("fresh", HEAP, &[])]);
    }
    if options.wants(P::LiveExec) {
        ways.push(Way::new("live", 0, &[]));
    }
    if options.wants(P::Python) {
        ways.extend([Way::new("fresh", 0, PYTHON), Way::new("pooled", 0, PYTHON)]);
    }
    say("through the launcher");
    let in_block = (IN_BLOCK * options.rounds / 100).max(5);
    let bwrap = tools::bwrap(&argv(&["/bin/true"]));
    let (mut bwraps, mut pythons) = (Sample::default(), Sample::default());
    let Some(runner) = place.runners.first_mut() else { return Err(failed("nobody to measure as")) };
    for _ in 0..BLOCKS {
        for way in &mut ways {
            block(&place.launch_bench, way, in_block)?;
        }
        for _ in 0..in_block {
            if let Some(bwrap) = &bwrap {
                bwraps.push(runner.time(bwrap)?);
            }
            if options.wants(P::Python) {
                pythons.push(runner.time(&argv(PYTHON))?);
            }
        }
    }
    table(report, &ways, bwraps.median());
    judge_launches(report, &ways, bwraps.median());
    judge_python(report, &ways, pythons.median());
    Ok(())
}

fn block(program: &Path, way: &mut Way, runs: usize) -> Result<(), Failure> {
    if way.unknown.is_some() {
        return Ok(());
    }
    match ask(program, way.mode, 1, runs, way.heap, way.command)? {
        Err(reason) => way.unknown = Some(reason),
        Ok(answer) => {
            let one = |names: &[&str]| number(&answer, names).into_iter().collect::<Vec<_>>();
            let all = numbers(&answer, "samples_us").unwrap_or_else(|| one(&["median_us", "launch_us"]));
            if all.is_empty() {
                return Err(failed(&format!("launch_bench told no time in {answer}")));
            }
            way.sample.extend(all);
            way.spawn.extend(numbers(&answer, "spawn_samples_us").unwrap_or_else(|| one(&["spawn_us"])));
            way.p99s.extend(number(&answer, &["p99_us", "launch_p99_us"]));
        }
    }
    Ok(())
}

fn table(report: &mut Report, ways: &[Way], bwrap: Option<f64>) {
    let mut rows = Vec::new();
    for way in ways {
        let Ok((us, spawn)) = way.found() else { continue };
        let command = if way.command.is_empty() { "/bin/true" } else { "python3" };
        rows.push(vec![
            format!("{} {command}, daemon heap {} MiB", way.mode, way.heap),
            ms(us),
            way.p99().map_or_else(String::new, ms),
            ms(spawn),
            format!("{:.2}", us / spawn),
            bwrap.map_or("-".to_owned(), |bwrap| format!("{:.2}", us / bwrap)),
        ]);
    }
    let bwrap = bwrap.map_or_else(|| "without bwrap".to_owned(), |bwrap| format!("bwrap {}", ms(bwrap)));
    let title = format!("Through the launcher process, {BLOCKS} blocks in turn with {bwrap}");
    report.table(&title, &["", "median", "p99", "spawn", "x spawn", "x bwrap"], rows);
}

/// What a launch is held against: its mode, to posix_spawn, to bubblewrap, milliseconds over posix_spawn.
const LAUNCH_BOUNDS: &[(&str, f64, f64, f64)] = &[("fresh", 2.6, 0.50, 1.2), ("pooled", 1.9, 0.36, 0.65)];

fn judge_launches(report: &mut Report, ways: &[Way], bwrap: Option<f64>) {
    let find =
        |mode: &str, heap| ways.iter().find(|way| way.mode == mode && way.heap == heap && way.command.is_empty());
    for (mode, to_spawn, to_bwrap, over) in LAUNCH_BOUNDS {
        let Some(way) = find(mode, 0) else { continue };
        let what = format!("{mode} through the launcher");
        let found = way.found();
        let ratio = found.map(|(us, spawn)| (ms(us), us / spawn));
        report.hold(P::Launcher, &what, ratio, "x posix_spawn", Bound::AtMost(*to_spawn));
        let ratio = found.and_then(|(us, _)| Ok((ms(us), us / bwrap.ok_or(NO_BWRAP)?)));
        report.hold(P::Launcher, &what, ratio, "x bwrap", Bound::AtMost(*to_bwrap));
        let more = found.map(|(us, spawn)| (ms(us), (us - spawn) / 1000.0));
        report.hold(P::Launcher, &format!("{mode}, time over posix_spawn"), more, "ms", Bound::AtMost(*over));
        let p99 = found.and_then(|(us, _)| way.p99().map(|p99| (ms(p99), p99 / us)).ok_or("no samples"));
        report.hold(P::Launcher, &format!("{mode}, p99"), p99, "x own median", Bound::AtMost(3.0));
    }
    if let (Some(small), Some(large)) = (find("fresh", 0), find("fresh", HEAP)) {
        let what = format!("fresh with {HEAP} MiB of daemon heap");
        let ratio = small.found().and_then(|(small, _)| large.found().map(|(large, _)| (ms(large), large / small)));
        report.hold(P::Launcher, &what, ratio, "x small heap", Bound::AtMost(1.15));
    }
    if let Some(way) = find("live", 0) {
        let ratio = way.found().map(|(us, spawn)| (ms(us), us / spawn));
        let what = "one more command in a live sandbox";
        report.hold(P::LiveExec, what, ratio, "x posix_spawn", Bound::AtMost(1.35));
    }
}

fn judge_python(report: &mut Report, ways: &[Way], plain: Option<f64>) {
    let Some(plain) = plain else { return };
    for (mode, bound) in [("fresh", 1.3), ("pooled", 1.2)] {
        let Some(way) = ways.iter().find(|way| way.mode == mode && !way.command.is_empty()) else { continue };
        let what = format!("python3 print(1), {mode} through the launcher");
        let ratio = way.found().map(|(us, _)| (ms(us), us / plain));
        report.hold(P::Python, &what, ratio, "x plain", Bound::AtMost(bound));
    }
}
