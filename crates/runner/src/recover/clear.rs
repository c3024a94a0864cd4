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

use crate::causes::chain;
use crate::notices::{Notice, Notify, tell_leftovers};
use crate::recover::error::ClearError;
use crate::recover::finish::{FinishError, as_notices, finish, journals};
use crate::recover::interrupted::{Interrupted, overlap};
use crate::recover::layers::{Parked, abandon, clear_staging, park, remove_going};
use crate::recover::remains::Remains;
use crate::recover::retry::{after_others, is_busy, patiently};
use crate::recover::sandboxes::Sandboxes;
use crate::recover::unsaid::{tell_kept, tell_over};
use crate::state::commit_lock;
use crate::state::directory::StateDir;
use crate::state::identity::DirectoryId;
use crate::state::note;
use crate::state::record::{self, Content, Orphan, RecordState};
use nexus_driver::{DestroyError, Handle};
use nexus_layer::{FsTime, Layer, LayerMode, LayerOrigin, LayerStage};
use nexus_model::RunId;
use std::path::{Path, PathBuf};

/// Remains of earlier runs that could not be cleared up without a decision or help of the user.
#[derive(Debug, Default)]
struct Found {
    /// Commits to finish.
    interrupted: Vec<Interrupted>,
    /// Runs that could not be cleared up, with their directory where it is known.
    failed: Vec<(Option<PathBuf>, ClearError)>,
}

/// Clears up what changes no workspace and names the rest, for commands that only read.
pub fn inspect(places: &StateDir, driver: &dyn Remains, tell: Notify<'_>) -> Result<Vec<Interrupted>, ClearError> {
    let found = interrupted(places, driver, tell)?;
    for one in &found {
        tell(&Notice::Recovered(one.text()));
    }
    Ok(found)
}

/// Clears up what changes no workspace, for commands that decide.
pub fn interrupted(places: &StateDir, driver: &dyn Remains, tell: Notify<'_>) -> Result<Vec<Interrupted>, ClearError> {
    let Found { interrupted, failed } = clear(places, driver, tell)?;
    remove_remains(places, tell).map_err(|error| ClearError::not_cleared(&error))?;
    for (_, error) in failed {
        tell(&Notice::NotCleared(error));
    }
    Ok(interrupted)
}

/// Recovers killed runs before a new run starts, and also finishes the interrupted commits of its directory. A commit
/// of this directory that cannot be finished stops the new run, because its files may be half old and half new; one
/// of another directory is only reported.
pub fn before_run(
    places: &StateDir,
    driver: &dyn Remains,
    here: &Path,
    id: nexus_layer::DirectoryIdentity,
    tell: Notify<'_>,
) -> Result<(), ClearError> {
    let mut found = clear(places, driver, tell)?;
    // A journal may have outlived its record.
    for run in journals(places, id).map_err(|error| ClearError::not_cleared(&error))? {
        let has_record = places.runs.join(&run).try_exists().map_err(|error| ClearError::not_cleared(&error))?;
        if !has_record {
            found.interrupted.push(Interrupted::new(places, run, Some((here.to_owned(), id.into()))));
        }
    }
    for (path, error) in found.failed {
        if path.is_some_and(|there| overlap(&there, here)) {
            return Err(error);
        }
        tell(&Notice::NotCleared(error));
    }
    for one in found.interrupted {
        if !one.touches(here, id.into()) {
            tell(&Notice::Recovered(one.text()));
            continue;
        }
        match finish(places, &one, &mut as_notices(tell)) {
            Ok(()) => {}
            // Another directory has the name of the one that is half-way.
            Err(error @ FinishError::Away { .. }) => tell(&Notice::Recovered(error.to_string())),
            Err(error) => return Err(ClearError::not_cleared(&error)),
        }
    }
    Ok(())
}

/// Clears up what changes no workspace, and collects the rest.
fn clear(places: &StateDir, driver: &dyn Remains, tell: Notify<'_>) -> Result<Found, ClearError> {
    // Its errors keep no command from its work: nothing of it is ever read.
    if let Err(error) = remove_going(places) {
        tell(&Notice::NotCleared(error));
    }
    // Of two commands at one time the second would take the records that the first has locked for those of live runs.
    let is_held = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    let alone = after_others(|| record::only_recovery(&places.runs), is_held).map_err(|error| {
        ClearError::not_cleared(&format!("another command recovers runs: {}: {error}", places.runs.display()))
    })?;
    let orphans = record::orphans(&places.runs).map_err(|error| ClearError::not_cleared(&error))?;
    let mut found = Found::default();
    if !orphans.is_empty() {
        commit_lock::sweep(places)
            .map_err(|error| ClearError::not_cleared(&format!("{}: {error}", places.locks.display())))?;
    }
    let taken_over = |orphan: std::io::Result<Orphan>| {
        orphan.map_err(|error| found.failed.push((None, ClearError::not_cleared(&error)))).ok()
    };
    let orphans: Vec<_> = orphans.into_iter().filter_map(taken_over).collect();
    let sandboxes = Sandboxes::end(places, driver, &orphans)?;
    for orphan in orphans {
        let path = match &orphan.state {
            RecordState::Complete(content) => Some(content.workspace.as_path().to_owned()),
            RecordState::Empty | RecordState::Corrupt => None,
        };
        match one(&orphan, places, (driver, &sandboxes), tell) {
            Ok(Cleared::All) => {
                if let Err(error) = orphan.remove() {
                    found.failed.push((path, ClearError::not_cleared(&error)));
                }
            }
            Ok(Cleared::But(interrupted)) => found.interrupted.push(interrupted),
            Ok(Cleared::Lingers) => match &orphan.state {
                RecordState::Complete(content) if !content.layered => {
                    let error = sandboxes.refuse_beside(places, orphan.run, content.workspace.as_path());
                    found.failed.push((path, error));
                }
                _ => tell(&Notice::Recovered(sandboxes.waits(places, orphan.run))),
            },
            // Nothing was decided, so the workspace is whole and no run has to wait.
            Ok(Cleared::NoRoom { why }) => found.failed.push((None, ClearError::NoRoom { run: orphan.run, why })),
            Ok(Cleared::Foreign(driver)) => {
                let record = record::Record::place(&places.runs, orphan.run);
                found.failed.push((path, ClearError::OtherDriver { run: orphan.run, driver, record }));
            }
            Err(why) => found.failed.push((path, ClearError::NotCleared { why })),
        }
    }
    drop(alone);
    Ok(found)
}

/// Removes what is left of layers whose removal was killed at its end. Such a layer has no record, which exists before
/// the layer does, is neither decided nor parked, and holds no change; its note may be one of the files that are left.
fn remove_remains(places: &StateDir, tell: Notify<'_>) -> Result<(), String> {
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
                Ok(left) => tell_leftovers(tell, left.iter()),
                Err(error) => tell(&Notice::NotCleared(ClearError::not_cleared(&chain(&error)))),
            },
            Err(error) => tell(&Notice::NotCleared(ClearError::not_cleared(&chain(&error)))),
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
fn one(
    orphan: &Orphan,
    places: &StateDir,
    (driver, sandboxes): (&dyn Remains, &Sandboxes),
    tell: Notify<'_>,
) -> Result<Cleared, String> {
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
        tell_kept(places, &run, recorded.as_ref(), tell)?;
        abandon(places, &run, tell)?;
        tell_over(&run, deciding, recorded.as_ref(), false, tell);
        return Ok(Cleared::All);
    }
    let stage = patiently(|| nexus_layer::stage(&places.layers, &run), is_busy).map_err(|error| chain(&error))?;
    if !matches!(stage, LayerStage::Decided(_)) {
        // The record goes after that: a command that was killed may have kept these files without naming them.
        tell_kept(places, &run, recorded.as_ref(), tell)?;
    }
    match stage {
        LayerStage::Parked => {
            if let Some((path, directory)) = &recorded {
                clear_staging(places, &run, path, *directory, tell);
            }
            tell_over(&run, deciding, recorded.as_ref(), true, tell);
            Ok(Cleared::All)
        }
        // Perhaps some of its directory is left.
        LayerStage::Gone => {
            abandon(places, &run, tell)?;
            tell_over(&run, deciding, recorded.as_ref(), false, tell);
            Ok(Cleared::All)
        }
        LayerStage::Undecided if deciding.is_some() => {
            // A removal takes the upper directory first.
            if !path.join("upper").exists() {
                tell_over(&run, deciding, recorded.as_ref(), false, tell);
            }
            Ok(Cleared::All)
        }
        LayerStage::Undecided => park(places, &run, tell).map(|parked| match parked {
            Parked::Done => Cleared::All,
            Parked::NoRoom { why } => Cleared::NoRoom { why },
        }),
        LayerStage::Decided(_) => {
            let noted =
                || note::read(&path).ok().flatten().map(|note| (note.workspace.as_path().to_owned(), note.directory));
            Ok(Cleared::But(Interrupted::new(places, run, recorded.or_else(noted))))
        }
    }
}

/// Removes what the sandbox of a run, which is gone, had on the host beside its layer.
fn clear_away(driver: &dyn Remains, handle: &Handle) -> Result<(), DestroyError> {
    if handle.is_nothing() { Ok(()) } else { driver.clear_away(handle) }
}

fn place_of(content: &Content) -> (PathBuf, DirectoryId) {
    (content.workspace.as_path().to_owned(), content.directory)
}
