//! Clears what runs left whose `nexus` was killed. Every command that starts a run does this first.

use super::record::{self, Content, Orphan};
use super::settle;
use crate::failure::Failure;
use crate::places::Places;
use nexus_driver::{Driver, Namespace};
use nexus_facility::{RecoverError, Workspace};
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
        let folder = orphan.content.as_ref().map(|content| content.workspace.as_path().to_owned());
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
    if let Some(content) = &orphan.content {
        clear(content, places, driver)?;
    }
    orphan.remove()
}

fn clear(content: &Content, places: &Places, driver: &Namespace) -> io::Result<()> {
    driver.destroy(&content.handle).map_err(io::Error::other)?;
    if !content.layered {
        return Ok(());
    }
    let run = content.handle.run_id.to_string();
    let source = content.workspace.as_path();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let recovered = match Workspace::open(source) {
            Ok(workspace) => {
                let _alone = settle::lock(source)?;
                nexus_facility::recover(&places.layers, &run, &workspace)
            }
            // A workspace that is gone has nothing to be finished, and its layer nowhere to go.
            Err(_) if !source.exists() => return remove_orphan(places, &run),
            Err(error) => return Err(io::Error::other(settle::chain(&error))),
        };
        match recovered {
            Ok(_) => return Ok(()),
            // A sandbox that is just being killed still holds the lock that its launcher had.
            Err(RecoverError::Busy { .. }) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(io::Error::other(settle::chain(&error))),
        }
    }
}

fn remove_orphan(places: &Places, run: &str) -> io::Result<()> {
    let layers = Workspace::open(&places.layers).map_err(|error| io::Error::other(settle::chain(&error)))?;
    nexus_facility::recover(&places.layers, run, &layers)
        .map(drop)
        .map_err(|error| io::Error::other(settle::chain(&error)))
}

fn failed(error: &io::Error) -> Failure {
    let message = format!("an earlier run was killed and could not be cleared up: {error}");
    Failure::refused("recover", message, "look at that first: its changes may be half applied")
}
