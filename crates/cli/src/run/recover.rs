//! Clears what runs left whose `nexus` was killed. Every command that starts a run does this first.

use super::record::{self, Content, Orphan, Record, Said};
use super::{alone, settle};
use crate::failure::Failure;
use crate::places::Places;
use nexus_driver::{Driver, Namespace};
use nexus_facility::{IoFailure, RecoverError, Stage, Workspace};
use nexus_model::RunId;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a dying sandbox may hold on to its layer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Recovers every run without a living owner: kills what is left, finishes or drops its changes.
///
/// What cannot be recovered stops a run in the same folder, whose files may be half old and half new; in any other
/// folder it is only told.
pub fn all(places: &Places, driver: &Namespace, concerning: Option<&Path>) -> Result<(), Failure> {
    let orphans = record::orphans(&places.runs).map_err(|error| failed(&error))?;
    for orphan in orphans {
        let folder = match &orphan.said {
            Said::Whole(content) => Some(content.workspace.as_path().to_owned()),
            Said::NothingYet | Said::Nonsense(_) => None,
        };
        let Err(error) = one(orphan, places, driver) else { continue };
        let touches =
            |here: &Path| folder.as_ref().is_none_or(|there| there.starts_with(here) || here.starts_with(there));
        if concerning.is_some_and(touches) {
            return Err(failed(&error));
        }
        super::print_failure(&failed(&error), false);
    }
    Ok(())
}

fn one(orphan: Orphan, places: &Places, driver: &Namespace) -> io::Result<()> {
    match &orphan.said {
        Said::Whole(content) => clear(content, places, driver)?,
        Said::NothingYet => {}
        Said::Nonsense(error) => unread(orphan.run, error, places)?,
    }
    orphan.remove()
}

/// A record that does not say in which folder its run was. Without a decision about its layer no folder was touched;
/// with one, any may be half old and half new, and somebody has to look.
fn unread(run: RunId, why: &serde_json::Error, places: &Places) -> io::Result<()> {
    let other = |error: &dyn std::error::Error| io::Error::other(settle::chain(error));
    let name = run.to_string();
    match nexus_facility::stage(&places.layers, &name).map_err(|error| other(&error))? {
        Stage::Undecided => nexus_facility::abandon(&places.layers, &name).map_err(|error| other(&error)),
        Stage::Gone | Stage::Parked => Ok(()),
        Stage::Decided(_) => {
            let path = Record::place(&places.runs, run);
            let what =
                "so the folder into which its changes were going is not known; nexus log names the folders of runs";
            Err(io::Error::other(format!("{} cannot be read ({why}), {what}", path.display())))
        }
    }
}

fn clear(content: &Content, places: &Places, driver: &Namespace) -> io::Result<()> {
    driver.destroy(&content.handle).map_err(io::Error::other)?;
    if !content.layered {
        return Ok(());
    }
    let run = content.handle.run_id.to_string();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match settle_layer(content, places, &run) {
            // A sandbox that is just being killed still holds the lock that its launcher had.
            Err(RecoverError::Busy { .. }) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            other => return other.map_err(|error| io::Error::other(settle::chain(&error))),
        }
    }
}

/// Brings the layer to its end in the folder that it belongs to, and in no other: a folder that took the name of the
/// workspace meanwhile gets nothing.
fn settle_layer(content: &Content, places: &Places, run: &str) -> Result<(), RecoverError> {
    let source = content.workspace.as_path();
    let io = |doing: &'static str, source: io::Error| {
        let path = content.workspace.clone();
        RecoverError::Io { run: run.to_owned(), source: IoFailure { doing, path, source } }
    };
    if content.folder.is_at(source).map_err(|error| io("look at", error))? {
        let _alone = alone::lock(places, content.folder).map_err(|error| io("lock", error))?;
        let workspace = Workspace::open(source).map_err(|source| RecoverError::Io { run: run.to_owned(), source })?;
        return nexus_facility::recover(&places.layers, run, &workspace).map(drop);
    }
    match nexus_facility::stage(&places.layers, run)? {
        Stage::Undecided => nexus_facility::abandon(&places.layers, run),
        Stage::Gone | Stage::Parked => Ok(()),
        Stage::Decided(_) => {
            let message = format!(
                "a commit of the run {run} was interrupted, and its folder {} was moved or replaced since",
                source.display()
            );
            let hint = format!(
                "put the folder back and use nexus changes accept --run {run} to finish it, or nexus changes reject --run {run}"
            );
            super::print_failure(&Failure::refused("moved", message, hint), false);
            Ok(())
        }
    }
}

fn failed(error: &io::Error) -> Failure {
    let message = format!("an earlier run was killed and could not be cleared up: {error}");
    Failure::refused("recover", message, "look at that first: its changes may be half applied")
}
