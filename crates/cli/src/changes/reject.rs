//! `nexus changes reject`: the whole layer, or some paths of it.

use super::{Pending, State, Waiting, accept, paths, rejected, waiting};
use crate::failure::Failure;
use crate::places::Places;
use crate::run::{self, OpenSameError, chain};
use nexus_facility::{RecoverError, Rules};
use nexus_model::RunId;
use std::path::PathBuf;

/// Rejects, and says what still waits.
pub fn command(run: Option<RunId>, named: &[PathBuf]) -> Result<String, Failure> {
    let places = Places::find()?.ensure()?;
    let interrupted = run::recover::interrupted(&places, &run::driver())?;
    let one = match (waiting::only_one(waiting::all(&places, &interrupted)?, run), run) {
        (Err(failure), Some(run)) if named.is_empty() => return unknown(&places, run, failure),
        (one, _) => one?,
    };
    let chosen = if named.is_empty() { None } else { paths::read(named, &one.workspace)? };
    let Some(chosen) = chosen else { return whole(&places, &one) };
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

fn whole(places: &Places, one: &Waiting) -> Result<String, Failure> {
    let note = if one.state == State::Interrupted { take_back(places, one)? } else { String::new() };
    run::recover::clear_staging(places, &one.run, &one.workspace, one.folder);
    remove(places, &one.run)?;
    Ok(format!("The changes of the run {} are gone.\n{note}", one.run))
}

/// Removes a layer unread: also what could be neither committed nor parked.
fn remove(places: &Places, run: &str) -> Result<(), Failure> {
    let failed = |why: String| Failure::refused("discard", why, "");
    // First: a layer that is removed in part must not look like one that waits.
    run::mark_gone(&places.layers.join(run)).map_err(|error| failed(error.to_string()))?;
    let left = nexus_facility::abandon(&places.layers, run).map_err(|error| failed(chain(&error)))?;
    run::tell_leftovers(left.iter());
    run::recover::forget(places, run).map_err(failed)
}

/// Takes an interrupted commit back, where its directory is there. Returns what there is to say about it.
fn take_back(places: &Places, one: &Waiting) -> Result<String, Failure> {
    let refused = |why: String| {
        let message = format!("the interrupted commit of the run {} cannot be taken back: {why}", one.run);
        let hint = format!("nothing was changed; nexus changes recover --run {} finishes it", one.run);
        Failure::refused("recover", message, hint)
    };
    let place = one.workspace.display();
    let directory = match one.folder.open_at(&one.workspace) {
        Ok(directory) => directory,
        Err(why @ (OpenSameError::Gone | OpenSameError::Other)) => {
            return Ok(format!(
                "The directory {place} could not be brought back to what it was: {why}. Where it is now, some of its \
                 files may be those of the run, and names that begin with .nexus-tmp may be left in it.\n"
            ));
        }
        Err(OpenSameError::Io(error)) => return Err(refused(chain(&error))),
    };
    let _alone = run::lock(places, one.folder).map_err(|error| refused(error.to_string()))?;
    match nexus_facility::roll_back(&places.layers, &one.run, &directory) {
        Ok(conflicts) => {
            let kept = run::recover::kept_back(&one.run, &one.workspace, &conflicts);
            let kept = kept.map(|text| format!("But {text}.\n")).unwrap_or_default();
            Ok(format!("The directory {place} is as it was before the commit.\n{kept}"))
        }
        Err(RecoverError::Applied { .. }) => match nexus_facility::recover(&places.layers, &one.run, &directory) {
            Ok(_) => Err(refused("it had been applied already, and is finished now".to_owned())),
            Err(error) if is_unreadable(&error) => Ok(half(&place.to_string(), &chain(&error))),
            Err(error) => Err(refused(chain(&error))),
        },
        Err(error) if is_unreadable(&error) => Ok(half(&place.to_string(), &chain(&error))),
        Err(RecoverError::Version { version, .. }) => Ok(format!(
            "The commit was interrupted under another version of Nexus (journal version {version}) and stays as it is: some \
             files of {place} may be those of the run, and names that begin with .nexus-tmp may be left in it.\n"
        )),
        Err(error) => Err(refused(chain(&error))),
    }
}

/// Whether a journal says nothing that could be followed.
fn is_unreadable(error: &RecoverError) -> bool {
    let RecoverError::Io { source, .. } = error else { return false };
    let is_decision = ["journal", "journal.done", "outcome"].iter().any(|name| source.path.0 == name.as_bytes());
    // An error of the system may be gone at the next try.
    let is_content = source.source.raw_os_error().is_none_or(|errno| errno == rustix::io::Errno::LOOP.raw_os_error());
    is_decision && is_content
}

fn half(place: &str, why: &str) -> String {
    format!(
        "The commit was interrupted and what it had decided cannot be read ({why}): some files of {place} may be those of \
         the run, and names that begin with .nexus-tmp may be left in it.\n"
    )
}

/// A run of which nothing can be read but that has a layer: it is removed unread.
fn unknown(places: &Places, run: RunId, failure: Failure) -> Result<String, Failure> {
    let (layer, name) = (places.layers.join(run.to_string()), run.to_string());
    // A note that can be read names a run that is listed, unless something else of it cannot be read.
    if !layer.exists() || run::recover::is_live(places, run).map_err(|why| Failure::refused("recover", why, ""))? {
        return Err(failure);
    }
    remove(places, &name)?;
    Ok(format!("The changes of the run {name} are gone.\n"))
}

fn count(changes: usize) -> String {
    if changes == 1 { "1 change".to_owned() } else { format!("{changes} changes") }
}
