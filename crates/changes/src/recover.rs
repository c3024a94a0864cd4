//! `nexus changes recover`: finishes commits that were interrupted.

use crate::failure::{Failure, one_line};
use crate::signals;
use nexus_model::RunId;
use nexus_runner::recover::finish::{self, Report};
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::layers::remove_going_until;
use nexus_runner::recover::report::RecoveryReport;
use nexus_runner::state::directory::StateDir;

/// Finishes the interrupted commit of one run, or all of them, and prints the results. A commit that cannot be
/// finished does not stop the others.
pub fn command(run: Option<RunId>) -> Result<String, Failure> {
    let places = crate::host::ready_state_dir()?;
    let all = crate::recovery::interrupted(&places)?;
    let chosen: Vec<_> = match run {
        None => all,
        Some(run) => all.into_iter().filter(|one| one.run == run.to_string()).collect(),
    };
    let removed = if run.is_none() { remove_going_until(&places, &mut || false)? } else { 0 };
    if chosen.is_empty() {
        if removed > 0 {
            let runs = if removed == 1 { "one run".to_owned() } else { format!("{removed} runs") };
            return Ok(format!("Removed what was left of {runs}.\n"));
        }
        let of = run.map_or_else(String::new, |run| format!(" of the run {run}"));
        return Ok(format!("No commit{of} was interrupted.\n"));
    }
    let mut failures = Vec::new();
    for one in &chosen {
        failures.extend(finish(&places, one).err());
    }
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(String::new()) };
    failures.for_each(|failure| crate::notices::tell(&failure.text()));
    Err(first)
}

/// Finishes one interrupted commit and prints each completed step at once. If this command is killed before it has
/// printed a step, the next command finds the step in the record.
pub fn finish(places: &StateDir, one: &Interrupted) -> Result<(), Failure> {
    let mut report = |done: &RecoveryReport| {
        let text: String = done.lines.iter().map(|line| one_line(line) + "\n").collect();
        super::answer::write_answer(&text).map_err(|failure| failure.text())
    };
    finish_with(places, one, &mut report)
}

/// Runs [`finish()`] with another place for its report.
pub fn finish_with(places: &StateDir, one: &Interrupted, report: Report<'_>) -> Result<(), Failure> {
    let hint = format!("nexus changes recover --run {} tries again", one.run);
    let _held = signals::hold()?;
    finish::finish(places, one, report).map_err(|error| Failure::refused("recover", error.to_string(), hint))
}
