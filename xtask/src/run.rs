//! Runs a list of steps in order and stops at the first that fails.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::counts::Counts;
use crate::failure::Failure;
use crate::workspace::Workspace;

/// What a step does.
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
        /// Whether its output tells how many tests passed.
        counted: bool,
    },
}

/// One step of a plan.
pub struct Step {
    /// Shown in the progress lines and the table.
    pub name: &'static str,
    /// What to do when it fails.
    pub advice: &'static str,
    /// What it does.
    pub action: Action,
}

/// Runs `steps`, prints a table, and ends with the line `N passed, N failed`.
pub fn run(workspace: &Workspace, steps: &[Step]) -> Result<(), Failure> {
    let start = Instant::now();
    let mut counts = Counts::default();
    let mut times: Vec<(&str, Duration, &str)> = Vec::new();
    let mut outcome = Ok(());
    for (index, step) in steps.iter().enumerate() {
        println!("==> [{}/{}] {}", index + 1, steps.len(), step.name);
        let begun = Instant::now();
        outcome = one(workspace, step, &mut counts);
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("==> [{}/{}] {} {verdict}, {:.1} s", index + 1, steps.len(), step.name, begun.elapsed().as_secs_f64());
        times.push((step.name, begun.elapsed(), verdict));
        if outcome.is_err() {
            break;
        }
    }
    println!("\n{:<28} {:>8}  result", "step", "seconds");
    for (name, time, verdict) in &times {
        println!("{name:<28} {:>8.1}  {verdict}", time.as_secs_f64());
    }
    for step in steps.iter().skip(times.len()) {
        println!("{:<28} {:>8}  not run", step.name, "-");
    }
    println!("{:<28} {:>8.1}", "total", start.elapsed().as_secs_f64());
    if let Err(failure) = &outcome {
        println!("\n{failure}");
    }
    println!("{}", counts.closing_line(outcome.is_ok()));
    // Nothing may follow the closing line.
    outcome.map_err(Failure::told)
}

fn one(workspace: &Workspace, step: &Step, counts: &mut Counts) -> Result<(), Failure> {
    let Action::Program { words, env, counted } = &step.action else {
        return match step.action {
            Action::Check(check) => check(workspace),
            Action::Counted(check) => check(workspace, counts),
            Action::Program { .. } => Ok(()),
        };
    };
    let before = *counts;
    let succeeded = program(workspace, words, env, counted.then_some(&mut *counts))
        .map_err(|error| Failure::new(format!("`{}` did not start: {error}", words.join(" ")), step.advice))?;
    if *counted && succeeded && counts.passed == before.passed {
        // An empty suite exits with 0; so would one whose form of result line we no longer understand.
        return Err(Failure::new(format!("`{}` reported no test that passed", words.join(" ")), step.advice));
    }
    // A test program that reports failures and yet exits 0 is not believed.
    if succeeded && counts.failed == before.failed {
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
