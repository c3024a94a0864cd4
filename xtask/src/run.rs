//! Runs a list of steps in order. A step that failed keeps only those from running that need it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::counts::Counts;
use crate::failure::Failure;
use crate::workspace::Workspace;

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
    /// Action of the step.
    pub action: Action,
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
    /// The line of the table behind the name of the step.
    fn columns(&self) -> String {
        match self {
            Self::Done(time) => format!("{:>8.1}  ok", time.as_secs_f64()),
            Self::Failed(time, _) => format!("{:>8.1}  FAILED", time.as_secs_f64()),
            Self::NotRun(needed) => format!("{:>8}  not run: it needs {needed}", "-"),
        }
    }
}

/// Runs `steps`, prints a table, and ends with the line `N passed, N failed`.
pub fn run(workspace: &Workspace, steps: &[Step]) -> Result<(), Failure> {
    let start = Instant::now();
    let mut counts = Counts::default();
    let mut outcomes: Vec<(&'static str, Outcome)> = Vec::new();
    let mut failed_steps = 0;
    for (index, step) in steps.iter().enumerate() {
        let place = format!("==> [{}/{}] {}", index + 1, steps.len(), step.name);
        if let Some(needed) = unmet(step, &outcomes) {
            println!("{place} is not run: it needs {needed}");
            outcomes.push((step.name, Outcome::NotRun(needed)));
            continue;
        }
        println!("{place}");
        let began = Instant::now();
        let failed_before = counts.failed;
        let result = one(workspace, step, &mut counts);
        let time = began.elapsed();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{place} {verdict}, {:.1} s", time.as_secs_f64());
        let outcome = match result {
            Ok(()) => Outcome::Done(time),
            Err(failure) => {
                // At once, since what follows may take minutes; and at the end, where it is looked for.
                println!("{failure}");
                failed_steps += u64::from(counts.failed == failed_before);
                Outcome::Failed(time, failure)
            }
        };
        outcomes.push((step.name, outcome));
    }
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

fn one(workspace: &Workspace, step: &Step, counts: &mut Counts) -> Result<(), Failure> {
    let Action::Program { words, env, counted } = &step.action else {
        return match step.action {
            Action::Check(check) => check(workspace),
            Action::Counted(check) => check(workspace, counts),
            Action::Program { .. } => Ok(()),
        };
    };
    let (passed_before, failed_before) = (counts.passed, counts.failed);
    let skipped_before = counts.no_machine.is_some();
    let succeeded = program(workspace, words, env, counted.then_some(&mut *counts))
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
) -> std::io::Result<bool> {
    let (name, arguments) = words.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(name);
    command.args(arguments).envs(env.iter().copied()).current_dir(&workspace.root).stdin(Stdio::null());
    let Some(counts) = counts else {
        return Ok(command.status()?.success());
    };
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            // Not read as UTF-8 lines: the output of a hostile test case may hold any bytes.
            let text = String::from_utf8_lossy(&line);
            counts.add_line(&text);
            print!("{text}");
            line.clear();
        }
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
