//! Clears up after runs whose `nexus` was killed. `run`, `changes`, `ps` and `rm` do this first.
//!
//! ```text
//!  records without a living owner ─▶ kill what is left ─┬─ nothing written       ─▶ layer removed
//!                                                       ├─ written, undecided    ─▶ parked, and said
//!                                                       ├─ commit interrupted    ─▶ named; finished only by a command
//!                                                       │                           that may change that directory
//!                                                       └─ not gone ─▶ passed over; a direct one stops runs in its
//!                                                                      directory
//! ```
//! Commands that only read never change a workspace, and what cannot be cleared up stops runs in its own directory
//! alone.

mod finish;
mod layers;
mod retry;
mod sandboxes;
mod words;

pub use finish::{FinishError, Say, finish, finish_others, forget, is_live, say_aside};
pub use layers::{Parked, clear_staging, park, remove, remove_going_until};
pub use nexus_runner::recover::interrupted::{Direction, Interrupted};
pub use nexus_runner::recover::kept::kept_back;
pub use retry::{is_busy, patiently};
pub use sandboxes::{is_unparked, refuse_left};
pub use words::report_lines;

use super::unsaid::{tell_kept, tell_over};
use crate::failure::Failure;
use crate::notices::tell;
use crate::notices::tell_leftovers;
use finish::journals;
use layers::{abandon, remove_going};
use nexus_driver::{DestroyError, Handle};
use nexus_driver_namespace::Namespace;
use nexus_layer::{FsTime, Layer, LayerMode, LayerOrigin, Stage};
use nexus_model::RunId;
use nexus_runner::causes::chain;
use nexus_runner::recover::interrupted::overlap;
use nexus_runner::state::commit_lock;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::DirectoryId;
use nexus_runner::state::note;
use nexus_runner::state::record::{self, Content, Orphan, RecordState};
use retry::{after_others, no_room, refused};
use sandboxes::Sandboxes;
use std::path::{Path, PathBuf};

/// Remains of earlier runs that could not be cleared up without a decision or help of the user.
#[derive(Debug, Default)]
pub struct Found {
    /// Commits to finish.
    pub interrupted: Vec<Interrupted>,
    /// Runs that could not be cleared up, with their directory where it is known.
    failed: Vec<(Option<PathBuf>, Failure)>,
}

/// Clears up what changes no workspace and names the rest, for commands that only read.
pub fn look(places: &StateDir, driver: &Namespace) -> Result<Vec<Interrupted>, Failure> {
    let found = interrupted(places, driver)?;
    for one in &found {
        tell(&one.text());
    }
    Ok(found)
}

/// Clears up what changes no workspace, for commands that decide.
pub fn interrupted(places: &StateDir, driver: &Namespace) -> Result<Vec<Interrupted>, Failure> {
    let found = clear(places, driver)?;
    remove_remains(places).map_err(|why| refused(&why))?;
    for (_, failure) in &found.failed {
        tell(&failure.text());
    }
    Ok(found.interrupted)
}

/// Clears up for a run that is about to start: also finishes the interrupted commits of its directory. What cannot be
/// ended there stops the run, since its files may be half old and half new; elsewhere it is only named.
pub fn before_run(
    places: &StateDir,
    driver: &Namespace,
    here: &Path,
    id: nexus_layer::FolderId,
) -> Result<(), Failure> {
    let mut found = clear(places, driver)?;
    // A journal may have outlived its record.
    for run in journals(places, id).map_err(|why| refused(&why))? {
        let has_record = places.runs.join(&run).try_exists().map_err(|error| refused(&error.to_string()))?;
        if !has_record {
            found.interrupted.push(Interrupted::new(places, run, Some((here.to_owned(), id.into()))));
        }
    }
    for (path, failure) in found.failed {
        if path.is_some_and(|there| overlap(&there, here)) {
            return Err(failure);
        }
        tell(&failure.text());
    }
    for one in found.interrupted {
        if !one.touches(here, id.into()) {
            tell(&one.text());
            continue;
        }
        match finish(places, &one, &mut say_aside) {
            Ok(()) => {}
            // Another directory has the name of the one that is half-way.
            Err(error @ FinishError::Away { .. }) => tell(&error.to_string()),
            Err(error) => return Err(refused(&error.to_string())),
        }
    }
    Ok(())
}

/// Clears up what changes no workspace, and collects the rest.
fn clear(places: &StateDir, driver: &Namespace) -> Result<Found, Failure> {
    // Its errors keep no command from its work: nothing of it is ever read.
    if let Err(failure) = remove_going(places) {
        tell(&failure.text());
    }
    // Of two commands at one time the second would take the records that the first has locked for those of live runs.
    let is_held = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    let alone = after_others(|| record::only_recovery(&places.runs), is_held)
        .map_err(|error| refused(&format!("another command recovers runs: {}: {error}", places.runs.display())))?;
    let orphans = record::orphans(&places.runs).map_err(|error| refused(&error.to_string()))?;
    let mut found = Found::default();
    if !orphans.is_empty() {
        commit_lock::sweep(places).map_err(|error| refused(&format!("{}: {error}", places.locks.display())))?;
    }
    let taken_over = |orphan: std::io::Result<Orphan>| {
        orphan.map_err(|error| found.failed.push((None, refused(&error.to_string())))).ok()
    };
    let orphans: Vec<_> = orphans.into_iter().filter_map(taken_over).collect();
    let sandboxes = Sandboxes::end(places, driver, &orphans)?;
    for orphan in orphans {
        let path = match &orphan.state {
            RecordState::Complete(content) => Some(content.workspace.as_path().to_owned()),
            RecordState::Empty | RecordState::Corrupt => None,
        };
        match one(&orphan, places, (driver, &sandboxes)) {
            Ok(Cleared::All) => {
                if let Err(error) = orphan.remove() {
                    found.failed.push((path, refused(&error.to_string())));
                }
            }
            Ok(Cleared::But(interrupted)) => found.interrupted.push(interrupted),
            Ok(Cleared::Lingers) => match &orphan.state {
                RecordState::Complete(content) if !content.layered => {
                    let failure = sandboxes.refuse_beside(places, orphan.run, content.workspace.as_path());
                    found.failed.push((path, failure));
                }
                _ => tell(&sandboxes.waits(places, orphan.run)),
            },
            // Nothing was decided, so the workspace is whole and no run has to wait.
            Ok(Cleared::NoRoom { why }) => found.failed.push((None, no_room(orphan.run, &why))),
            Ok(Cleared::Foreign(driver)) => {
                found.failed.push((path, sandboxes::of_another_driver(places, orphan.run, &driver)));
            }
            Err(why) => found.failed.push((path, refused(&why))),
        }
    }
    drop(alone);
    Ok(found)
}

/// Removes what is left of layers whose removal was killed at its end. Such a layer has no record, which exists before
/// the layer does, is neither decided nor parked, and holds no change; its note may be one of the files that are left.
fn remove_remains(places: &StateDir) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", places.layers.display());
    for entry in std::fs::read_dir(&places.layers).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let Some(run) = path.file_name().and_then(|name| name.to_str()?.parse::<RunId>().ok()) else { continue };
        let record = record::Record::place(&places.runs, run);
        if record.try_exists().map_err(|error| format!("{}: {error}", record.display()))? {
            continue;
        }
        let origin = LayerOrigin::guessed(LayerMode::User, FsTime::default());
        // In use by another command, which removes it.
        let Ok(layer) = Layer::adopt(&places.layers, &run.to_string(), &origin) else { continue };
        // The others are recovered although one layer cannot be read.
        match layer.is_bare() {
            Ok(false) => {}
            Ok(true) => match layer.discard() {
                Ok(left) => tell_leftovers(left.iter()),
                Err(error) => tell(&refused(&chain(&error)).text()),
            },
            Err(error) => tell(&refused(&chain(&error)).text()),
        }
    }
    Ok(())
}

/// Result of clearing up one run.
enum Cleared {
    /// The run is cleared up, and nothing needs its record any more.
    All,
    /// A commit has to be finished.
    But(Interrupted),
    /// The sandbox of the run was killed and is not gone.
    Lingers,
    /// The disk is full, so that the layer is neither parked nor gone.
    NoRoom {
        /// The error of the disk.
        why: String,
    },
    /// The sandbox is one of another driver, and nothing was done.
    Foreign(String),
}

/// Clears one run up.
fn one(orphan: &Orphan, places: &StateDir, (driver, sandboxes): (&Namespace, &Sandboxes)) -> Result<Cleared, String> {
    let run = orphan.run.to_string();
    // Whatever the record says: nothing of a sandbox that may be there is looked at.
    if sandboxes.lingers(orphan.run)? {
        return Ok(Cleared::Lingers);
    }
    let (deciding, recorded) = match &orphan.state {
        RecordState::Empty => return Ok(Cleared::All),
        RecordState::Complete(content) => {
            match clear_away(driver, &content.handle) {
                Ok(()) if !content.layered => return Ok(Cleared::All),
                Ok(()) => (content.reviewing.then_some(content.rejecting), Some(place_of(content))),
                // Damaged: as little is known as of a record that cannot be read.
                Err(DestroyError::Handle { .. }) => (None, None),
                Err(DestroyError::WrongDriver { found, .. }) => return Ok(Cleared::Foreign(found)),
                Err(error) => return Err(chain(&error)),
            }
        }
        RecordState::Corrupt => (None, None),
    };
    let path = places.layers.join(&run);
    if note::is_going(&path).map_err(|error| format!("{}: {error}", path.display()))? {
        tell_kept(places, &run, recorded.as_ref())?;
        abandon(places, &run)?;
        tell_over(&run, deciding, recorded.as_ref(), false);
        return Ok(Cleared::All);
    }
    let stage = patiently(|| nexus_layer::stage(&places.layers, &run), is_busy).map_err(|error| chain(&error))?;
    if !matches!(stage, Stage::Decided(_)) {
        // The record goes after that: a command that was killed may have kept these files without naming them.
        tell_kept(places, &run, recorded.as_ref())?;
    }
    match stage {
        Stage::Parked => {
            if let Some((path, directory)) = &recorded {
                clear_staging(places, &run, path, *directory);
            }
            tell_over(&run, deciding, recorded.as_ref(), true);
            Ok(Cleared::All)
        }
        // Perhaps some of its directory is left.
        Stage::Gone => {
            abandon(places, &run)?;
            tell_over(&run, deciding, recorded.as_ref(), false);
            Ok(Cleared::All)
        }
        Stage::Undecided if deciding.is_some() => {
            // A removal takes the upper directory first.
            if !path.join("upper").exists() {
                tell_over(&run, deciding, recorded.as_ref(), false);
            }
            Ok(Cleared::All)
        }
        Stage::Undecided => park(places, &run).map(|parked| match parked {
            Parked::Done => Cleared::All,
            Parked::NoRoom { why } => Cleared::NoRoom { why },
        }),
        Stage::Decided(_) => {
            let noted =
                || note::read(&path).ok().flatten().map(|note| (note.workspace.as_path().to_owned(), note.directory));
            Ok(Cleared::But(Interrupted::new(places, run, recorded.or_else(noted))))
        }
    }
}

/// Removes what the sandbox of a run, which is gone, had on the host beside its layer.
fn clear_away(driver: &Namespace, handle: &Handle) -> Result<(), DestroyError> {
    if handle.is_nothing() { Ok(()) } else { driver.clear_away(handle) }
}

fn place_of(content: &Content) -> (PathBuf, DirectoryId) {
    (content.workspace.as_path().to_owned(), content.directory)
}
