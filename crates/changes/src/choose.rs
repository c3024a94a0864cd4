//! Selects the parked run that a command applies to.

use crate::failure::{Failure, one_line};
use crate::notices::print;
use crate::utc::utc;
use nexus_model::RunId;
use nexus_runner::recover::sandboxes::refuse_left;
use nexus_runner::review::pending::Pending;
use nexus_runner::review::waiting::{self, Waiting, started_ms};
use std::path::{Path, PathBuf};

/// Names the run with its start and its command.
pub(super) fn brief(one: &Waiting) -> String {
    let when = started_ms(&one.run).map_or_else(String::new, |ms| format!("{}, ", utc(ms)));
    format!("{} ({when}{})", one.run, one.command.as_os_str().display())
}

/// Returns the runs of the directory that the caller stands in, and that directory.
pub(super) fn here(all: Vec<Waiting>) -> (PathBuf, Vec<Waiting>) {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    let found = all.into_iter().filter(|one| here.starts_with(&one.workspace)).collect();
    (here, found)
}

/// Returns the run that was named, or the only one that waits for the directory that the caller stands in. What is
/// decided must be what the caller has seen, so that with several of them one has to be named.
pub fn only_one(all: Vec<Waiting>, run: Option<RunId>) -> Result<Waiting, Failure> {
    if let Some(run) = run {
        return named(all, run);
    }
    let (here, mut found) = here(all);
    if found.len() > 1 {
        let list: Vec<_> = found.iter().map(brief).collect();
        let message = format!("{} runs wait for {}: {}", list.len(), here.display(), list.join("; "));
        return Err(Failure::usage("run", message, "name one with --run ID, or with the start of it"));
    }
    found.pop().ok_or_else(|| none(&here))
}

/// Returns the run that was named, or the latest one of the directory that the caller stands in. In that case prints
/// a line about the others.
fn latest(all: Vec<Waiting>, run: Option<RunId>) -> Result<Waiting, Failure> {
    if let Some(run) = run {
        return named(all, run);
    }
    let (here, found) = here(all);
    let mut found = found.into_iter();
    let latest = found.next().ok_or_else(|| none(&here))?;
    let others: Vec<_> = found.map(|one| brief(&one)).collect();
    if !others.is_empty() {
        let what = if others.len() == 1 { "Another run waits" } else { "Other runs wait" };
        let line = format!("{what} for this directory: {}. --run ID chooses one.", others.join("; "));
        crate::notices::tell(&one_line(&line));
    }
    Ok(latest)
}

fn named(all: Vec<Waiting>, run: RunId) -> Result<Waiting, Failure> {
    all.into_iter().find(|one| one.run == run.to_string()).ok_or_else(|| {
        let message = format!("no changes of the run {run} wait for a decision");
        Failure::refused("no_changes", message, "nexus changes list shows all that wait")
    })
}

pub(super) fn none(here: &Path) -> Failure {
    let message = format!("no changes of {} wait for a decision", here.display());
    Failure::refused("no_changes", message, "nexus changes list shows all that wait")
}

/// Opens the run that was named, or the latest one of the directory that the caller stands in, for reading.
pub fn to_look_at(run: Option<RunId>) -> Result<Pending, Failure> {
    let places = crate::host::ready_state_dir()?;
    refuse_left(&places, run)?;
    let interrupted = crate::recovery::inspect(&places)?;
    refuse_left(&places, run)?;
    let one = latest(waiting::all(&places, &interrupted, &print)?, run)?;
    let pending = Pending::to_look_at(&crate::host::here(), places, one)?;
    if let Some(why) = &pending.away {
        let (workspace, files) = (pending.one.workspace.display(), pending.layer.upper());
        crate::notices::tell(&one_line(&format!(
            "The directory {workspace} of this run cannot take its changes: {why}. All that the run wrote is shown as new; it is in {}.",
            files.display()
        )));
    }
    Ok(pending)
}
