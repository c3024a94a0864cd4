//! The step `tests`: builds all test programs once and runs two at a time, since most of them wait for time limits.
//!
//! [`schedule`] lists the programs that measure time or count what the whole machine has. They run alone after the others.
//! A program that failed beside another one runs again, alone. What passes then is counted as passed and named at the
//! end: a test that fails under load stays visible.

mod build;
mod program;
mod schedule;
mod verdict;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::bounded;
use crate::counts::Counts;
use crate::failure::Failure;
use crate::workspace::Workspace;
use program::TestProgram;
use verdict::Verdict;

/// Number of programs that run beside each other. Each has as many threads of its own as the test harness chooses.
const LANES: usize = 2;

/// The variable that sets another number of lanes.
const LANES_VARIABLE: &str = "NEXUS_TEST_LANES";
/// Largest number of lanes: with more, tests would only wait for a processor.
const MAX_LANES: usize = 8;

/// Limit of time for one program. The slowest takes a quarter of it.
const LIMIT: Duration = Duration::from_secs(900);

/// Number of programs in the list of the slowest.
const SLOWEST: usize = 10;

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
fn lanes(text: Option<&str>) -> Result<usize, Failure> {
    let Some(text) = text else { return Ok(LANES) };
    let number = text.parse().ok().filter(|number| (1..=MAX_LANES).contains(number));
    number.ok_or_else(|| {
        Failure::new(format!("{LANES_VARIABLE}={text} is not a number of lanes"), format!("set 1 to {MAX_LANES}"))
    })
}

/// Runs each program beside others or alone, adds what it reported to `counts`, and prints its output when it ends.
fn run_all(programs: Vec<TestProgram>, (lanes, limit): (usize, Duration), counts: &mut Counts) -> Result<(), Failure> {
    let start = Instant::now();
    let mut report = Report::default();
    let (beside, alone) = schedule::split(programs);
    let mut again = Vec::new();
    in_lanes(beside, (lanes, limit), |program, verdict| {
        report.print(&program, &verdict, "");
        if verdict.is_passed() { counts.merge(verdict.counts) } else { again.push((program, verdict)) }
    });
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

/// Runs the programs in as many threads as there are lanes, in the order of the list, and calls `ended` for each of them.
fn in_lanes(
    programs: Vec<TestProgram>,
    (lanes, limit): (usize, Duration),
    mut ended: impl FnMut(TestProgram, Verdict),
) {
    let waiting = Mutex::new(VecDeque::from(programs));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let (sender, waiting) = (sender.clone(), &waiting);
            scope.spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(program) = next else { break };
                    let verdict = one(&program, limit);
                    if sender.send((program, verdict)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (program, verdict) in receiver {
            ended(program, verdict);
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
    times: Vec<(Duration, String)>,
}

impl Report {
    fn print(&mut self, program: &TestProgram, verdict: &Verdict, how: &str) {
        let (label, time) = (&program.label, verdict.time);
        let word = if verdict.is_passed() { "ok" } else { "FAILED" };
        println!("\n--- {label}{how}: {word}, {:.1} s", time.as_secs_f64());
        println!("{}", verdict.output.trim_matches('\n'));
        self.times.push((time, format!("{label}{how}")));
    }

    fn add(&mut self, program: &TestProgram, verdict: Verdict, counts: &mut Counts) {
        if !verdict.is_passed() {
            self.failed.push(format!("{}: {}", program.label, verdict.reason()));
        }
        counts.merge(verdict.counts);
    }

    fn print_slowest(&mut self, whole: Duration) {
        let sum: Duration = self.times.iter().map(|(time, _)| *time).sum();
        let (sum, whole) = (sum.as_secs_f64(), whole.as_secs_f64());
        println!("\ntests: {} program runs of {sum:.1} s together took {whole:.1} s; the slowest:", self.times.len());
        self.times.sort_by(|one, other| other.cmp(one));
        for (time, label) in self.times.iter().take(SLOWEST) {
            println!("  {:>7.1} s  {label}", time.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests;
