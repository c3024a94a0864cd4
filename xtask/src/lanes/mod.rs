//! The step `tests`: builds all test programs once and runs two at a time, and more while the processors are idle ([`room`]),
//! since most of them wait for time limits.
//!
//! [`schedule`] lists the programs that measure time or count what the whole machine has. They run alone after the others.
//! A program that failed beside another one runs again, alone. What passes then is counted as passed and named at the
//! end: a test that fails under load stays visible.

mod build;
mod program;
mod room;
mod schedule;
mod verdict;

use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::bounded;
use crate::counts::Counts;
use crate::failure::Failure;
use crate::workspace::Workspace;
use program::TestProgram;
use room::{Lanes, Room};
use verdict::Verdict;

/// Numbers of programs that run beside each other. Each has as many threads of its own as the test harness chooses.
const LANES: Lanes = Lanes { always: 2, most: 6 };

/// The variable that sets a fixed number of lanes.
const LANES_VARIABLE: &str = "NEXUS_TEST_LANES";
/// Largest number of lanes: with more, tests would only wait for a processor.
const MAX_LANES: usize = 8;

/// Time between two questions whether one more program may start.
const EVERY: Duration = Duration::from_millis(250);

/// Limit of time for one program. The slowest takes a quarter of it.
const LIMIT: Duration = Duration::from_secs(900);

/// Number of programs in the list of the slowest.
const SLOWEST: usize = 20;

/// Advice for each way in which the step fails.
const ADVICE: &str = "run `cargo test -p CRATE --test PROGRAM TEST` for the one that failed";

/// Builds the test programs of the workspace, with `feature`, and runs them.
pub fn run(workspace: &Workspace, feature: &str, counts: &mut Counts) -> Result<(), Failure> {
    let start = Instant::now();
    let lanes = lanes(std::env::var(LANES_VARIABLE).ok().as_deref())?;
    let programs = build::programs(workspace, feature)?;
    println!("tests: {} programs were built in {:.1} s", programs.len(), start.elapsed().as_secs_f64());
    let unknown = schedule::unknown(&programs);
    if !unknown.is_empty() {
        let what = format!("xtask/src/lanes/schedule.rs names programs that do not exist: {}", unknown.join(", "));
        return Err(Failure::new(what, "correct the names"));
    }
    run_all(programs, (lanes, LIMIT), counts)
}

/// Reads the number of lanes that a person set.
fn lanes(text: Option<&str>) -> Result<Lanes, Failure> {
    let Some(text) = text else { return Ok(LANES) };
    let number = text.parse().ok().filter(|number| (1..=MAX_LANES).contains(number));
    number.map(|number| Lanes { always: number, most: number }).ok_or_else(|| {
        Failure::new(format!("{LANES_VARIABLE}={text} is not a number of lanes"), format!("set 1 to {MAX_LANES}"))
    })
}

/// Runs each program beside others or alone, adds what it reported to `counts`, and prints its output when it ends.
fn run_all(programs: Vec<TestProgram>, (lanes, limit): (Lanes, Duration), counts: &mut Counts) -> Result<(), Failure> {
    let start = Instant::now();
    let mut report = Report::default();
    let (beside, alone) = schedule::split(programs);
    let mut again = Vec::new();
    let mut room = Room::new(lanes, room::WINDOW, room::processors);
    in_lanes(
        beside,
        limit,
        |running| room.has_place(running),
        |program, verdict| {
            report.print(&program, &verdict, "");
            if verdict.is_passed() { counts.merge(verdict.counts) } else { again.push((program, verdict)) }
        },
    );
    println!("tests: the programs that run beside each other took {:.1} s", start.elapsed().as_secs_f64());
    for program in alone {
        let verdict = one(&program, limit);
        report.print(&program, &verdict, ", alone");
        report.add(&program, verdict, counts);
    }
    for (program, first) in again {
        let verdict = one(&program, limit);
        report.print(&program, &verdict, ", again and alone");
        if verdict.is_passed() {
            counts.passed_alone.push(format!("{}: {}", program.label, first.reason()));
        }
        report.add(&program, verdict, counts);
    }
    report.print_slowest(start.elapsed());
    if counts.passed == 0 {
        // An empty suite is not a success; nor is one whose form of result line has changed.
        return Err(Failure::new("no test program reported a test that passed", ADVICE));
    }
    if report.failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("these test programs failed:\n  {}", report.failed.join("\n  ")), ADVICE))
}

/// Runs the programs in the order of the list, each as soon as `has_place` allows one more beside those that run, and calls
/// `ended` for each of them.
fn in_lanes(
    programs: Vec<TestProgram>,
    limit: Duration,
    mut has_place: impl FnMut(usize) -> bool,
    mut ended: impl FnMut(TestProgram, Verdict),
) {
    let mut waiting = VecDeque::from(programs);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let mut running = 0;
        loop {
            while !waiting.is_empty() && has_place(running) {
                let Some(program) = waiting.pop_front() else { break };
                let sender = sender.clone();
                scope.spawn(move || {
                    let verdict = one(&program, limit);
                    // The receiver lives until every program has ended.
                    drop(sender.send((program, verdict)));
                });
                running += 1;
            }
            if running == 0 {
                break;
            }
            if let Ok((program, verdict)) = receiver.recv_timeout(EVERY) {
                running -= 1;
                ended(program, verdict);
            }
        }
    });
}

fn one(program: &TestProgram, limit: Duration) -> Verdict {
    let start = Instant::now();
    let ended = bounded::run(&mut program.command(), "", limit);
    Verdict::of(ended, start.elapsed())
}

/// Programs that failed, and the time that each one took.
#[derive(Default)]
struct Report {
    failed: Vec<String>,
    times: Vec<(Duration, Duration, String)>,
}

impl Report {
    fn print(&mut self, program: &TestProgram, verdict: &Verdict, how: &str) {
        let (label, time, computed) = (&program.label, verdict.time, verdict.computed);
        let word = if verdict.is_passed() { "ok" } else { "FAILED" };
        let (seconds, busy) = (time.as_secs_f64(), computed.as_secs_f64());
        println!("\n--- {label}{how}: {word}, {seconds:.1} s, {busy:.1} s of them on a processor");
        println!("{}", verdict.output.trim_matches('\n'));
        self.times.push((time, computed, format!("{label}{how}")));
    }

    fn add(&mut self, program: &TestProgram, verdict: Verdict, counts: &mut Counts) {
        if !verdict.is_passed() {
            self.failed.push(format!("{}: {}", program.label, verdict.reason()));
        }
        counts.merge(verdict.counts);
    }

    fn print_slowest(&mut self, whole: Duration) {
        let sum: Duration = self.times.iter().map(|(time, ..)| *time).sum();
        let computed: Duration = self.times.iter().map(|(_, computed, _)| *computed).sum();
        let (sum, computed, whole) = (sum.as_secs_f64(), computed.as_secs_f64(), whole.as_secs_f64());
        println!(
            "\ntests: {} program runs of {sum:.1} s together, {computed:.1} s of them on a processor, took {whole:.1} s",
            self.times.len()
        );
        println!("tests: the slowest, with the time on a processor:");
        self.times.sort_by(|one, other| other.cmp(one));
        for (time, computed, label) in self.times.iter().take(SLOWEST) {
            println!("  {:>7.1} s {:>7.1} s  {label}", time.as_secs_f64(), computed.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests;
