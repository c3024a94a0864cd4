//! `nexus changes recover`: finishes commits that were interrupted.

use crate::failure::{Failure, one_line};
use crate::places::Places;
use crate::run;
use crate::run::recover::Interrupted;
use nexus_model::RunId;

/// Finishes the interrupted commit of one run, or all of them, and says what was done. One that cannot be finished keeps
/// no other from being finished.
pub fn command(run: Option<RunId>) -> Result<String, Failure> {
    let places = Places::find()?.ensure()?;
    let all = run::recover::interrupted(&places, &run::driver())?;
    let chosen: Vec<_> = match run {
        None => all,
        Some(run) => all.into_iter().filter(|one| one.run == run.to_string()).collect(),
    };
    if chosen.is_empty() {
        let of = run.map_or_else(String::new, |run| format!(" of the run {run}"));
        return Ok(format!("No commit{of} was interrupted.\n"));
    }
    let mut text = String::new();
    let mut failures = Vec::new();
    for one in &chosen {
        match finish(&places, one) {
            Ok(told) => text.push_str(&told),
            Err(failure) => failures.push(failure),
        }
    }
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(text) };
    // The answer is a failure; what was finished all the same is told before it.
    text.lines().for_each(run::tell);
    failures.for_each(|failure| run::tell(&failure.text()));
    Err(first)
}

/// Finishes one interrupted commit.
pub fn finish(places: &Places, one: &Interrupted) -> Result<String, Failure> {
    let hint = format!("nexus changes recover --run {} tries again", one.run);
    let _held = run::hold_signals()?;
    let told =
        run::recover::finish(places, one).map_err(|error| Failure::refused("recover", error.to_string(), hint))?;
    Ok(told.iter().map(|line| one_line(line) + "\n").collect())
}
