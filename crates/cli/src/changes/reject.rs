//! `nexus changes reject`: the whole layer, or some paths of it.

use super::take_back::{TakenBack, take_back};
use super::{Pending, State, accept, paths, rejected, say, waiting};
use crate::failure::Failure;
use crate::run;
use nexus_layer::{Abandoned, RecoverError, Rules};
use nexus_model::RunId;
use nexus_runner::causes::chain;
use nexus_runner::recover::finish::{forget, is_live};
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::layers::clear_staging;
use nexus_runner::recover::retry::{is_busy, patiently};
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::note;
use nexus_runner::state::record::{Content, Record};
use std::path::PathBuf;

/// Rejects, and says what still waits.
pub fn command(run: Option<RunId>, set_aside: bool, named: &[PathBuf]) -> Result<String, Failure> {
    let places = crate::host::ready_state_dir()?;
    let interrupted = crate::recovery::interrupted(&places)?;
    let one = match (waiting::only_one(waiting::all(&places, &interrupted)?, run), run) {
        (Err(failure), Some(run)) if named.is_empty() => {
            return unknown(&places, run, set_aside, (&interrupted, failure));
        }
        (one, _) => one?,
    };
    let chosen = if named.is_empty() { None } else { paths::read(named, &one.workspace)? };
    let Some(chosen) = chosen else { return whole(&places, &one.interrupted(&places), set_aside) };
    if one.state == State::Interrupted {
        let message =
            format!("the commit of the run {} was interrupted and can only be taken back as a whole", one.run);
        return Err(Failure::usage("paths", message, "leave the paths out"));
    }
    let pending = Pending::of(places, one)?;
    let before = pending.changes()?;
    paths::must_stand_alone(&chosen, &before)?;
    let mut all = pending.rules.except.clone();
    all.extend(chosen);
    rejected::write(pending.layer.root(), &all)?;
    let pending = Pending { rules: Rules { except: all, ..pending.rules.clone() }, ..pending };
    let left = pending.finish()?;
    Ok(format!("rejected {}\n{}", count(before.len() - left), accept::waiting(left)))
}

/// Attempts of a reject to remove a layer about which other commands decide at the same time.
const TRIES: usize = 3;

/// Throws everything of a run away. What the caller saw of it may be over: each step looks again under the layer's
/// lock.
fn whole(places: &StateDir, of: &Interrupted, set_aside: bool) -> Result<String, Failure> {
    let run = &of.run;
    for _ in 0..TRIES {
        if let Some((path, folder)) = &of.directory {
            clear_staging(places, run, path, *folder, &crate::notices::print);
        }
        match remove(places, of)? {
            Removal::Removed => return Ok(String::new()),
            Removal::Nothing => break,
            Removal::Decided => {}
        }
        match take_back(places, of, set_aside)? {
            TakenBack::Back(text) => say(&text)?,
            TakenBack::Aside(text) => return Ok(text),
            TakenBack::Over => {}
        }
    }
    let message = format!("another command decided about the changes of the run {run} meanwhile");
    Err(Failure::refused("no_changes", message, "nexus changes list shows all that wait"))
}

/// Names the staging directories of the run that stay in its workspace.
fn tell_staging(of: &Interrupted) -> Result<(), String> {
    let directory = of.directory.as_ref().and_then(|(path, folder)| folder.open_at(path).ok());
    let found = directory.map_or(Ok(Vec::new()), |directory| nexus_layer::found_staging(&of.run, &directory));
    crate::notices::tell_leftovers(&found.map_err(|error| chain(&error))?);
    Ok(())
}

/// Result of [`remove`].
enum Removal {
    /// The layer is gone, which was said.
    Removed,
    /// The layer was not there any more.
    Nothing,
    /// A commit of it was decided, and nothing was done.
    Decided,
}

/// Removes a layer unread: also what could be neither committed nor parked.
fn remove(places: &StateDir, of: &Interrupted) -> Result<Removal, Failure> {
    let run = &of.run;
    let failed = |why: String| Failure::refused("discard", why, "");
    let layer = places.layers.join(run);
    let _held = run::hold_signals()?;
    let record = record(places, of);
    let abandon = || nexus_layer::abandon(&places.layers, run, || note::mark_gone(&layer));
    match patiently(abandon, is_busy) {
        Ok(Abandoned::Removed(left)) => crate::notices::tell_leftovers(left.iter()),
        other => {
            // Nothing was removed, and an interrupted commit keeps its own record.
            record.map_or(Ok(()), Record::remove).map_err(|error| failed(error.to_string()))?;
            return match other {
                Ok(_) => Ok(Removal::Nothing),
                Err(RecoverError::Decided { .. }) => Ok(Removal::Decided),
                Err(error) => Err(failed(chain(&error))),
            };
        }
    }
    tell_staging(of).map_err(failed)?;
    say(&format!("The changes of the run {run} are gone.\n"))?;
    // Without the record no later command names anything of this.
    forget(places, run).map_err(failed)?;
    Ok(Removal::Removed)
}

/// Records that the run is being rejected, so that a later command reports it after a kill. A reject makes room, so
/// it goes on without a record. `None` also where the run has one.
fn record(places: &StateDir, of: &Interrupted) -> Option<Record> {
    let run: RunId = of.run.parse().ok()?;
    let (workspace, folder) = of.directory.clone()?;
    if Record::place(&places.runs, run).try_exists().unwrap_or(true) {
        return None;
    }
    let content = Content {
        handle: nexus_driver::Handle::of_nothing(run),
        workspace: workspace.into(),
        directory: folder,
        layered: true,
        reviewing: true,
        rejecting: true,
    };
    Record::create(&places.runs, &content).ok()
}

/// A run of which nothing can be read but that has a layer: it is removed unread.
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
