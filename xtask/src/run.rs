//! Runs a list of steps in order, some of them beside each other. A step that failed keeps only those from running that need it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::counts::Counts;
use crate::failure::Failure;
use crate::workspace::Workspace;

/// Number of steps that run beside each other, where their plan says so.
const BESIDE: usize = 2;

/// Action of a step.
pub enum Action {
    /// A function of this program.
    Check(fn(&Workspace) -> Result<(), Failure>),
    /// A function of this program that runs tests and counts them.
    Counted(fn(&Workspace, &mut Counts) -> Result<(), Failure>),
    /// A program, started in the root of the checkout.
    Program {
        /// The program and its arguments.
        words: Vec<String>,
        /// Environment on top of the caller's.
        env: &'static [(&'static str, &'static str)],
        /// Set when its output reports the number of tests that passed.
        counted: bool,
    },
}

/// One step of a plan.
pub struct Step {
    /// Shown in the progress lines and the table.
    pub name: &'static str,
    /// Advice for a person when it fails.
    pub advice: &'static str,
    /// Names of earlier steps without whose success this one would say nothing. A name that the plan lacks counts for
    /// nothing, so that one step serves several plans.
    pub needs: &'static [&'static str],
    /// Set when it runs beside the steps next to it in the plan for which this is set too. Its output is shown when it ends.
    pub beside: bool,
    /// Action of the step.
    pub action: Action,
}

/// The time at which the output of a program is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// As it comes.
    AtOnce,
    /// In one piece when the program has ended.
    AtTheEnd,
}

/// The outcome of one step of a plan.
#[derive(Debug)]
enum Outcome {
    /// The step succeeded.
    Done(Duration),
    /// The step failed.
    Failed(Duration, Failure),
    /// The step of this name, which it needs, failed or was not run.
    NotRun(&'static str),
}

impl Outcome {
    fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(..))
    }

    /// The line of the table behind the name of the step.
    fn columns(&self) -> String {
        match self {
            Self::Done(time) => format!("{:>8.1}  ok", time.as_secs_f64()),
            Self::Failed(time, _) => format!("{:>8.1}  FAILED", time.as_secs_f64()),
            Self::NotRun(needed) => format!("{:>8}  not run: it needs {needed}", "-"),
        }
    }
}

/// The steps of a plan that have ended, and all that they counted.
#[derive(Default)]
struct Plan {
    counts: Counts,
    outcomes: Vec<(&'static str, Outcome)>,
    /// Number of failed steps without a failed test.
    failed_steps: u64,
}

impl Plan {
    /// Runs one step, or several beside each other; the plan has `all` steps.
    fn play(&mut self, workspace: &Workspace, group: &[Step], all: usize) {
        let mut ready = VecDeque::new();
        let first = self.outcomes.len();
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        for (index, step) in group.iter().enumerate() {
            let place = format!("==> [{}/{all}] {}", first + index + 1, step.name);
            let needed = unmet(step, &self.outcomes);
            match needed {
                Some(needed) => println!("{place} is not run: it needs {needed}"),
                None => ready.push_back((index, place, step)),
            }
            outcomes.push(needed.map(Outcome::NotRun));
        }
        if let (1, Some((index, place, step))) = (ready.len(), ready.front()) {
            // What it counts comes on top: the last step of a plan compares all that was counted.
            let failed_before = self.counts.failed;
            let outcome = timed(workspace, (place.as_str(), *step), &mut self.counts, Output::AtOnce);
            self.failed_steps += u64::from(outcome.is_failed() && self.counts.failed == failed_before);
            outcomes[*index] = Some(outcome);
        } else {
            for (index, outcome, counts) in at_the_same_time(workspace, ready) {
                self.failed_steps += u64::from(outcome.is_failed() && counts.failed == 0);
                self.counts.merge(counts);
                outcomes[index] = Some(outcome);
            }
        }
        let names = group.iter().map(|step| step.name);
        self.outcomes.extend(names.zip(outcomes).filter_map(|(name, outcome)| Some((name, outcome?))));
    }
}

/// Runs steps beside each other, in the order of the list.
fn at_the_same_time(workspace: &Workspace, ready: VecDeque<(usize, String, &Step)>) -> Vec<(usize, Outcome, Counts)> {
    let lanes = BESIDE.min(ready.len());
    let (ready, ended) = (Mutex::new(ready), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                loop {
                    let next = ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((index, place, step)) = next else { break };
                    let mut counts = Counts::default();
                    let outcome = timed(workspace, (place.as_str(), step), &mut counts, Output::AtTheEnd);
                    ended.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome, counts));
                }
            });
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one step and prints its place in the plan before and after it.
fn timed(workspace: &Workspace, (place, step): (&str, &Step), counts: &mut Counts, output: Output) -> Outcome {
    println!("{place}");
    let began = Instant::now();
    let result = one(workspace, step, counts, output);
    let time = began.elapsed();
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    println!("{place} {verdict}, {:.1} s", time.as_secs_f64());
    match result {
        Ok(()) => Outcome::Done(time),
        Err(failure) => {
            // At once, since what follows may take minutes; and at the end, where it is looked for.
            println!("{failure}");
            Outcome::Failed(time, failure)
        }
    }
}

/// Runs `steps`, prints a table, and ends with the line `N passed, N failed`.
pub fn run(workspace: &Workspace, steps: &[Step]) -> Result<(), Failure> {
    let start = Instant::now();
    let mut plan = Plan::default();
    for group in steps.chunk_by(|one, other| one.beside && other.beside) {
        plan.play(workspace, group, steps.len());
    }
    let Plan { counts, outcomes, failed_steps } = plan;
    println!("\n{:<28} {:>8}  result", "step", "seconds");
    for (name, outcome) in &outcomes {
        println!("{name:<28} {}", outcome.columns());
    }
    println!("{:<28} {:>8.1}", "total", start.elapsed().as_secs_f64());
    let mut failures = Vec::new();
    for (name, outcome) in outcomes {
        if let Outcome::Failed(_, failure) = outcome {
            println!("\n{name}: {failure}");
            failures.push(failure);
        }
    }
    for line in counts.not_tried().into_iter().chain(counts.only_alone()) {
        println!("{line}");
    }
    println!("{}", counts.closing_line(failed_steps));
    // Nothing may follow the closing line.
    failures.into_iter().next().map_or(Ok(()), |failure| Err(failure.printed()))
}

/// The first step that `step` needs and that did not succeed.
fn unmet(step: &Step, outcomes: &[(&'static str, Outcome)]) -> Option<&'static str> {
    let succeeded =
        |needed: &str| outcomes.iter().all(|(name, outcome)| *name != needed || matches!(outcome, Outcome::Done(_)));
    step.needs.iter().copied().find(|needed| !succeeded(needed))
}

fn one(workspace: &Workspace, step: &Step, counts: &mut Counts, output: Output) -> Result<(), Failure> {
    let Action::Program { words, env, counted } = &step.action else {
        return match step.action {
            Action::Check(check) => check(workspace),
            Action::Counted(check) => check(workspace, counts),
            Action::Program { .. } => Ok(()),
        };
    };
    let (passed_before, failed_before) = (counts.passed, counts.failed);
    let skipped_before = counts.no_machine.is_some();
    let succeeded = program(workspace, words, env, counted.then_some(&mut *counts), output)
        .map_err(|error| Failure::new(format!("`{}` did not start: {error}", words.join(" ")), step.advice))?;
    let said_why = counts.no_machine.is_some() && !skipped_before;
    if *counted && succeeded && counts.passed == passed_before && !said_why {
        // An empty suite exits with 0; so would one whose form of result line we no longer understand.
        return Err(Failure::new(format!("`{}` reported no test that passed", words.join(" ")), step.advice));
    }
    // A test program that reports failures and yet exits 0 is not believed.
    if succeeded && counts.failed == failed_before {
        return Ok(());
    }
    Err(Failure::new(format!("`{}` failed", words.join(" ")), step.advice))
}

/// Runs one program to its end; its output goes to ours, and through `counts` on the way where that is asked for.
fn program(
    workspace: &Workspace,
    words: &[String],
    env: &[(&str, &str)],
    counts: Option<&mut Counts>,
    output: Output,
) -> std::io::Result<bool> {
    let (name, arguments) = words.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(name);
    command.args(arguments).envs(env.iter().copied()).current_dir(&workspace.root).stdin(Stdio::null());
    let Some(counts) = counts else {
        return Ok(command.status()?.success());
    };
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut held = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            // Not read as UTF-8 lines: the output of a hostile test case may hold any bytes.
            let text = String::from_utf8_lossy(&line);
            counts.add_line(&text);
            match output {
                Output::AtOnce => print!("{text}"),
                Output::AtTheEnd => held.push_str(&text),
            }
            line.clear();
        }
    }
    let status = child.wait()?;
    print!("{held}");
    Ok(status.success())
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
