//! `nexus changes reject`: the whole layer, or some paths of it.

use super::accepted_text::waiting as still_waiting;
use super::answer::write_answer;
use super::{back, choose, paths};
use crate::failure::{Failure, one_line};
use crate::notices::print;
use crate::signals;
use nexus_layer::Rules;
use nexus_model::RunId;
use nexus_runner::recover::finish::{forget, is_live};
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::layers::clear_staging;
use nexus_runner::review::discard::{Removal, discard, set_aside as set_aside_away};
use nexus_runner::review::error::ReviewError;
use nexus_runner::review::paths::must_stand_alone;
use nexus_runner::review::pending::Pending;
use nexus_runner::review::rejected;
use nexus_runner::review::take_back::{TakenBack, take_back};
use nexus_runner::review::waiting::{self, State, Waiting};
use nexus_runner::state::directory::StateDir;
use std::path::PathBuf;

/// Rejects changes, and prints what is still parked.
pub fn command(run: Option<RunId>, set_aside: bool, named: &[PathBuf]) -> Result<String, Failure> {
    let places = crate::host::ready_state_dir()?;
    let interrupted = crate::recovery::interrupted(&places)?;
    let one = match (choose::only_one(waiting::all(&places, &interrupted, &print)?, run), run) {
        (Err(failure), Some(run)) if named.is_empty() => {
            return unknown(&places, run, set_aside, (&interrupted, failure));
        }
        (one, _) => one?,
    };
    if one.state == State::Busy {
        return Err(ReviewError::Busy { run: one.run }.into());
    }
    let chosen = if named.is_empty() { None } else { paths::read(named, &one.workspace)? };
    let Some(chosen) = chosen else {
        return match keep(&places, &one)? {
            Some(text) => Ok(text),
            None => whole(&places, &one.interrupted(&places), set_aside),
        };
    };
    if one.state == State::Interrupted {
        let message =
            format!("the commit of the run {} was interrupted and can only be taken back as a whole", one.run);
        return Err(Failure::usage("paths", message, "leave the paths out"));
    }
    let pending = Pending::of(&crate::host::here(), places, one)?;
    let before = pending.changes()?;
    must_stand_alone(&chosen, &before)?;
    let mut all = pending.rules.except.clone();
    all.extend(chosen);
    rejected::write(pending.layer.root(), &all)?;
    let pending = Pending { rules: Rules { except: all, ..pending.rules.clone() }, ..pending };
    let left = pending.finish(&print)?;
    Ok(format!("rejected {}\n{}", count(before.len() - left), still_waiting(left)))
}

/// Keeps what the run left out of the way, if its directory is away: without it, no user has seen what that would change.
fn keep(places: &StateDir, one: &Waiting) -> Result<Option<String>, Failure> {
    let _held = signals::hold()?;
    let Some(kept) = set_aside_away(places, one)? else { return Ok(None) };
    forget(places, &one.run).map_err(|why| Failure::refused("discard", why, ""))?;
    let text = format!(
        "The directory {} is away, so the changes of the run {} were not removed: its files are in {}. Nexus is done with them; \
         remove them when you do not need them any more.",
        one.workspace.display(),
        one.run,
        kept.join("upper").display()
    );
    Ok(Some(one_line(&text) + "\n"))
}

/// Attempts of a reject to remove a layer about which other commands decide at the same time.
const TRIES: usize = 3;

/// Rejects all changes of a run. Its state may have changed since the caller read it, so that each step reads it again under the layer's
/// lock.
fn whole(places: &StateDir, of: &Interrupted, set_aside: bool) -> Result<String, Failure> {
    let run = &of.run;
    for _ in 0..TRIES {
        if let Some((path, id)) = &of.directory {
            clear_staging(places, run, path, *id, &print);
        }
        match remove(places, of)? {
            Removal::Removed => return Ok(String::new()),
            Removal::Nothing => break,
            Removal::Decided => {}
        }
        match take_back(places, of, set_aside, &signals::hold_any, &print)? {
            TakenBack::Back { path, conflicts } => write_answer(&back::back(&path, &conflicts))?,
            TakenBack::Aside(moved) => return Ok(back::aside(run, &moved)),
            TakenBack::Over => {}
        }
    }
    let message = format!("another command decided about the changes of the run {run} meanwhile");
    Err(Failure::refused("no_changes", message, "nexus changes list shows all that wait"))
}

/// Removes a layer unread, and says so.
fn remove(places: &StateDir, of: &Interrupted) -> Result<Removal, Failure> {
    let run = &of.run;
    let _held = signals::hold()?;
    let removal = discard(places, of, &print)?;
    if removal == Removal::Removed {
        write_answer(&format!("The changes of the run {run} are gone.\n"))?;
        // Without the record no later command names anything of this.
        forget(places, run).map_err(|why| Failure::refused("discard", why, ""))?;
    }
    Ok(removal)
}

/// Rejects a run whose record and layer cannot be read: the layer is removed unread.
fn unknown(
    places: &StateDir,
    run: RunId,
    set_aside: bool,
    (interrupted, failure): (&[Interrupted], Failure),
) -> Result<String, Failure> {
    let (layer, run_name) = (places.layers.join(run.to_string()), run.to_string());
    // A note that can be read names a run that is listed, unless something else of it cannot be read.
    if !layer.exists() || is_live(places, run).map_err(|why| Failure::refused("recover", why, ""))? {
        return Err(failure);
    }
    let known = interrupted.iter().find(|one| one.run == run_name).cloned();
    whole(places, &known.unwrap_or_else(|| Interrupted::new(places, run_name, None)), set_aside)
}

fn count(changes: usize) -> String {
    if changes == 1 { "1 change".to_owned() } else { format!("{changes} changes") }
}
