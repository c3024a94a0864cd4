//! P3, P4 and P13: one launch after the other through the launcher process.

use crate::announce;
use crate::failure::Failure;
use crate::launch_bench::{Answer, figure, rows, with_heap};
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::stats::{Sample, ms};
use serde_json::Value;

/// Heap of the daemon in MiB that a launch must not pay for.
const HEAP: usize = 256;
/// Blocks with a small and with a large heap, in turn.
const BLOCKS: usize = 6;
const PYTHON: &[&str] = &["/usr/bin/python3", "-c", "print(1)"];
/// Bounds of a launch: its mode, its ratio to posix_spawn and to bubblewrap, its milliseconds over posix_spawn.
const BOUNDS: &[(&str, f64, f64, f64)] = &[("fresh", 2.6, 0.50, 1.2), ("pooled", 1.9, 0.36, 0.65)];

/// Everything that goes through the launcher one by one.
pub fn measure(options: &Options, place: &Place, report: &mut Report) -> Result<(), Failure> {
    announce("through the launcher");
    if options.wants_any(&[P::Launcher, P::LiveExec]) {
        let answer = rows(&place.launch_bench, options.rounds * 3, 0, &[])?;
        table(report, "/bin/true", &answer);
        if options.wants(P::Launcher) {
            evaluate_launches(report, &answer);
        }
        if options.wants(P::LiveExec) {
            let ratio = found(&answer, "live", "posix_spawn").map(|(us, to)| (ms(us), us / to));
            let what = "one more command in a live sandbox";
            report.hold(P::LiveExec, what, ratio, "x posix_spawn", Bound::AtMost(1.35));
        }
    }
    if options.wants(P::Launcher) {
        heaps(options, place, report)?;
    }
    if options.wants(P::Python) {
        let answer = rows(&place.launch_bench, options.rounds, 0, PYTHON)?;
        table(report, "python3 -c 'print(1)'", &answer);
        for (mode, bound) in [("fresh", 1.3), ("pooled", 1.2)] {
            let what = format!("python3 print(1), {mode} through the launcher");
            let ratio = found(&answer, mode, "posix_spawn").map(|(us, to)| (ms(us), us / to));
            report.hold(P::Python, &what, ratio, "x plain", Bound::AtMost(bound));
        }
    }
    Ok(())
}

/// The medians of two modes.
fn found(answer: &Answer, mode: &str, to: &str) -> Result<(f64, f64), String> {
    let lines = answer.as_ref().map_err(Clone::clone)?;
    let median =
        |mode: &str| figure(lines, mode, 1, "median_us").ok_or(format!("launch_bench printed nothing about {mode}"));
    Ok((median(mode)?, median(to)?))
}

fn table(report: &mut Report, command: &str, answer: &Answer) {
    let Ok(lines) = answer else { return };
    let median = |line: &Value| line["median_us"].as_f64();
    let of = |mode: &str| figure(lines, mode, 1, "median_us");
    let mut all = Vec::new();
    for line in lines {
        let (Some(mode), Some(us)) = (line["mode"].as_str(), median(line)) else { continue };
        let ratio = |to: Option<f64>| to.map_or("-".to_owned(), |to| format!("{:.2}", us / to));
        let p99 = line["p99_us"].as_f64().map_or_else(String::new, ms);
        all.push(vec![mode.to_owned(), ms(us), p99, ratio(of("posix_spawn")), ratio(of("bwrap"))]);
    }
    let title = format!("`{command}` through the launcher process, in turn");
    report.table(&title, &["", "median", "p99", "x posix_spawn", "x bwrap"], all);
}

fn evaluate_launches(report: &mut Report, answer: &Answer) {
    for (mode, to_spawn, to_bwrap, over) in BOUNDS {
        let what = format!("{mode} through the launcher");
        let spawn = found(answer, mode, "posix_spawn");
        let bwrap = found(answer, mode, "bwrap").map(|(us, to)| (ms(us), us / to));
        let p99 = spawn.clone().and_then(|(us, _)| {
            let lines = answer.as_ref().map_err(Clone::clone)?;
            let p99 = figure(lines, mode, 1, "p99_us").ok_or("launch_bench printed no p99".to_owned())?;
            Ok((ms(p99), p99 / us))
        });
        let ratio = spawn.clone().map(|(us, to)| (ms(us), us / to));
        let more = spawn.map(|(us, to)| (ms(us), (us - to) / 1000.0));
        for (what, found, unit, bound) in [
            (what.clone(), ratio, "x posix_spawn", *to_spawn),
            (what, bwrap, "x bwrap", *to_bwrap),
            (format!("{mode}, time over posix_spawn"), more, "ms", *over),
            (format!("{mode}, p99"), p99, "x own median", 3.0),
        ] {
            report.hold(P::Launcher, &what, found, unit, Bound::AtMost(bound));
        }
    }
}

/// The same launches by a user with a small and with a large heap.
fn heaps(options: &Options, place: &Place, report: &mut Report) -> Result<(), Failure> {
    let runs = (options.rounds / 2).max(5);
    let (mut small, mut large) = (Sample::default(), Sample::default());
    let mut unknown = None;
    for _ in 0..BLOCKS {
        for (heap, sample) in [(0, &mut small), (HEAP, &mut large)] {
            let answer = with_heap(&place.launch_bench, runs, heap)?;
            match answer.map(|lines| lines.first().and_then(|line| line["launch_us"].as_f64())) {
                Ok(Some(us)) => sample.push(us),
                Ok(None) => unknown = Some("launch_bench printed no time".to_owned()),
                Err(reason) => unknown = Some(reason),
            }
        }
    }
    let found = match (unknown.as_deref(), small.median(), large.median()) {
        (None, Some(small), Some(large)) => Ok((ms(large), large / small)),
        (why, ..) => Err(why.unwrap_or("no samples").to_owned()),
    };
    let what = format!("fresh with {HEAP} MiB of daemon heap");
    report.hold(P::Launcher, &what, found, "x small heap", Bound::AtMost(1.15));
    Ok(())
}
