//! Clears up after runs whose `nexus` was killed. `run`, `changes`, `ps` and `rm` do this first.
//!
//! ```text
//!  record without a living owner ─▶ kill what is left ─┬─ nothing written       ─▶ layer removed
//!                                                      ├─ written, undecided    ─▶ parked, and said
//!                                                      └─ commit interrupted    ─▶ named; finished only by a command
//!                                                                                  that may change that directory
//!      └─ its sandbox was left and is not gone ─▶ passed over; a direct one stops runs in its directory
//! ```
//! Commands that only read never change a workspace, and what cannot be cleared up stops runs in its own directory
//! alone.

use super::open_files::unwatched_line;
use super::settle::tell_leftovers;
use super::unsaid::{KEPT, tell_kept, tell_over};
use super::{chain, tell};
use crate::failure::Failure;
use nexus_driver::{DestroyError, Driver, Handle};
use nexus_driver_namespace::Namespace;
use nexus_facility::going::Going;
use nexus_facility::{
    Abandoned, Conflict, FsTime, Layer, LayerMode, LayerOrigin, OpenLayerError, RecoverError, Recovered, Rules, Stage,
    Workspace, is_whole_copy,
};
use nexus_model::RunId;
use nexus_runner::state::commit_lock;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::{DirectoryId, OpenSameError};
use nexus_runner::state::left;
use nexus_runner::state::note::{self, CutShort};
use nexus_runner::state::record::{self, Content, Orphan, RecordState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which a dying sandbox may hold on to its layer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A commit that was decided and not finished, and whose `nexus` is gone.
#[derive(Debug, Clone)]
pub struct Interrupted {
    /// The id of the run.
    pub run: String,
    /// The directory that the commit is for, where that is known.
    pub directory: Option<(PathBuf, DirectoryId)>,
    /// The way in which the commit can end.
    pub ending: Ending,
}

/// The way in which an interrupted commit can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A command finishes the commit or takes it back.
    Open,
    /// A reject or an error has started to take the commit back, so that nothing can finish it.
    Back,
    /// All of the commit was applied, so that nothing can take it back.
    Forward,
}

impl Interrupted {
    /// An interrupted commit of a layer of `places`.
    pub fn new(places: &StateDir, run: String, directory: Option<(PathBuf, DirectoryId)>) -> Self {
        let ending = match () {
            () if nexus_facility::is_being_taken_back(&places.layers, &run) => Ending::Back,
            () if nexus_facility::is_applied(&places.layers, &run) => Ending::Forward,
            () => Ending::Open,
        };
        Self { run, directory, ending }
    }

    /// Says what is known of it and what to do.
    pub fn text(&self) -> String {
        let Self { run, directory, ending } = self;
        let place =
            directory.as_ref().map_or("an unknown directory".to_owned(), |(path, _)| path.display().to_string());
        match ending {
            Ending::Back => format!(
                "The commit of the run {run} into {place} was interrupted while it was being taken back. \
                 nexus changes recover --run {run} and nexus changes reject --run {run} both go on with that."
            ),
            Ending::Forward => format!(
                "The commit of the run {run} into {place} was interrupted after all of it was applied. \
                 nexus changes recover --run {run} finishes it; it can no longer be taken back."
            ),
            Ending::Open => format!(
                "The commit of the run {run} into {place} was interrupted. \
                 nexus changes recover --run {run} finishes it, and nexus changes reject --run {run} takes it back."
            ),
        }
    }

    fn touches(&self, here: &Path, id: DirectoryId) -> bool {
        self.directory.as_ref().is_some_and(|(there, folder)| *folder == id || overlap(there, here))
    }
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

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
    id: nexus_facility::FolderId,
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
    let orphans = record::orphans(&places.runs).map_err(|error| refused(&error.to_string()))?;
    let mut found = Found::default();
    if !orphans.is_empty() {
        commit_lock::sweep(places).map_err(|error| refused(&format!("{}: {error}", places.locks.display())))?;
    }
    for orphan in orphans {
        let orphan = match orphan {
            Ok(orphan) => orphan,
            Err(error) => {
                found.failed.push((None, refused(&error.to_string())));
                continue;
            }
        };
        let path = match &orphan.state {
            RecordState::Complete(content) => Some(content.workspace.as_path().to_owned()),
            RecordState::Empty | RecordState::Corrupt => None,
        };
        match one(&orphan, places, driver) {
            Ok(Cleared::All) => {
                if let Err(error) = orphan.remove() {
                    found.failed.push((path, refused(&error.to_string())));
                }
            }
            Ok(Cleared::But(interrupted)) => found.interrupted.push(interrupted),
            Ok(Cleared::Lingers) => tell(&format!(
                "The kernel still takes the sandbox of the run {} apart. What the run left waits until it is gone.",
                orphan.run
            )),
            Err(why) => found.failed.push((path, refused(&why))),
        }
    }
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
        // One layer that cannot be read keeps nobody from the others.
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
}

/// Clears one run up.
fn one(orphan: &Orphan, places: &StateDir, driver: &Namespace) -> Result<Cleared, String> {
    let run = orphan.run.to_string();
    // Whatever the record says: nothing of a sandbox that may be there is looked at.
    if left::is_there(&places.runs, orphan.run).map_err(|error| error.to_string())? {
        let is_direct = matches!(&orphan.state, RecordState::Complete(content) if !content.layered);
        // It may still write to the directory itself: no other run works there meanwhile.
        return if is_direct {
            Err(format!("the kernel still takes the sandbox of the run {run} apart, which wrote here directly"))
        } else {
            Ok(Cleared::Lingers)
        };
    }
    let (deciding, recorded) = match &orphan.state {
        RecordState::Empty => return Ok(Cleared::All),
        RecordState::Complete(content) => {
            match destroy(driver, &content.handle) {
                Ok(()) if !content.layered => return Ok(Cleared::All),
                Ok(()) => (content.reviewing.then_some(content.rejecting), Some(place_of(content))),
                // Damaged: as little is known as of a record that cannot be read.
                Err(DestroyError::Handle { .. }) => (None, None),
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
    let stage = patiently(|| nexus_facility::stage(&places.layers, &run), is_busy).map_err(|error| chain(&error))?;
    if !matches!(stage, Stage::Decided(_)) {
        // The record goes after that: a command that was killed may have kept these files and named them to nobody.
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
        Stage::Undecided => park(places, &run).map(|()| Cleared::All),
        Stage::Decided(_) => {
            let noted =
                || note::read(&path).ok().flatten().map(|note| (note.workspace.as_path().to_owned(), note.directory));
            Ok(Cleared::But(Interrupted::new(places, run, recorded.or_else(noted))))
        }
    }
}

/// Ends the sandbox of a run, and removes what it has on the host beside its layer.
fn destroy(driver: &Namespace, handle: &Handle) -> Result<(), DestroyError> {
    if handle.is_nothing() { Ok(()) } else { driver.destroy(handle) }
}

/// Removes what is left of a layer, and names what cannot be removed.
fn abandon(places: &StateDir, run: &str) -> Result<(), String> {
    let abandon = || nexus_facility::abandon(&places.layers, run, || Ok(()));
    match patiently(abandon, is_busy) {
        Ok(Abandoned::Removed(left)) => tell_leftovers(left.iter()),
        Ok(Abandoned::Nothing) => {}
        // A reject by an older version was interrupted before it had taken the commit back.
        Err(RecoverError::Decided { .. }) => {
            let set_aside = || nexus_facility::set_aside(&places.layers, run, &places.state.join(KEPT), None);
            if let Some(aside) = patiently(set_aside, is_busy).map_err(|error| chain(&error))? {
                tell(&format!(
                    "What the interrupted commit of the run {run} displaced is in {}.",
                    aside.layer.display()
                ));
            }
        }
        Err(error) => return Err(chain(&error)),
    }
    Ok(())
}

/// Removes what a killed accept had copied into the workspace, where that is there.
pub fn clear_staging(places: &StateDir, run: &str, path: &Path, folder: DirectoryId) {
    let Ok(directory) = folder.open_at(path) else { return };
    match nexus_facility::clear_staging(&places.layers, run, &directory) {
        Ok(kept) => tell_leftovers(kept.iter()),
        Err(error) => {
            tell(&format!("Copies of the run {run} could not be removed from {}: {}.", path.display(), chain(&error)));
        }
    }
}

fn place_of(content: &Content) -> (PathBuf, DirectoryId) {
    (content.workspace.as_path().to_owned(), content.directory)
}

/// Reports whether the error says that another process works with the layer.
pub fn is_busy(error: &RecoverError) -> bool {
    matches!(error, RecoverError::Busy { .. })
}

/// Repeats what a sandbox that is just being killed may still hold up.
pub fn patiently<T, E>(mut act: impl FnMut() -> Result<T, E>, is_busy: impl Fn(&E) -> bool) -> Result<T, E> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match act() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// Keeps what a killed run had written, and says so. What it had not written, or what was being removed, goes.
pub fn park(places: &StateDir, run: &str) -> Result<(), String> {
    let path = places.layers.join(run);
    let io = |error: std::io::Error| format!("{}: {error}", path.display());
    let read = note::read(&path);
    let why = read.as_ref().err().map(|error| format!(" ({error})")).unwrap_or_default();
    let note = read.ok().flatten();
    let origin = match &note {
        Some(note) => note.origin(&path).map_err(io)?,
        None => LayerOrigin::guessed(LayerMode::User, FsTime::default()),
    };
    let adopt = || Layer::adopt(&places.layers, run, &origin);
    let mut layer =
        patiently(adopt, |error| matches!(error, OpenLayerError::Busy { .. })).map_err(|error| chain(&error))?;
    let is_part = note.as_ref().is_some_and(|note| note.in_memory) && !is_whole_copy(&path).map_err(io)?;
    if is_part {
        layer.set_partial();
    }
    if layer.is_bare().map_err(|error| chain(&error))? {
        if note.is_some_and(|note| note.in_memory) {
            tell(&format!("The run {run} was killed. What it had written was in memory (--disk) and is gone."));
        }
        return remove(layer);
    }
    let Some(mut note) = note else {
        // Nothing was decided, so no workspace is half old and half new: no run has to wait for this.
        tell(&format!(
            "The run {run} was killed, and what is known of it cannot be read{why}. Its files are in {}; \
             nexus changes reject --run {run} removes them.",
            layer.upper().display()
        ));
        return Ok(());
    };
    let why = if is_part { CutShort::Partial } else { note.cut_by_kill() };
    if why == CutShort::Rebooted {
        // No process of that time is left.
        layer.set_unreached();
    }
    note.cut_short = Some(why);
    note.write(&path).and_then(|()| note::sync(&path)).map_err(io)?;
    // A review reads the layer again: not being able to do so now is no reason to refuse anything.
    let parked = note.directory.open_at(note.workspace.as_path()).ok();
    let parked = parked.and_then(|directory| layer.park(&directory, &Rules::default()).ok());
    if parked.is_some_and(|changes| changes.is_empty()) {
        return remove(layer);
    }
    let look = format!("nexus changes show --run {run}");
    match why {
        CutShort::Left => tell(&format!("The sandbox of the run {run} is gone now; its changes are parked: {look}.")),
        CutShort::Killed => tell(&format!("The run {run} was killed; its changes are parked: {look}.")),
        CutShort::Rebooted | CutShort::Partial => {
            tell(&format!("The run {run} was killed; its changes are parked: {look}. But {}.", why.text()));
        }
    }
    Ok(())
}

/// Removes a layer so that no part of it is ever taken for the whole.
pub fn remove(layer: Layer) -> Result<(), String> {
    note::mark_gone(layer.root()).map_err(|error| format!("{}: {error}", layer.root().display()))?;
    let layers = layer.root().parent().map(Path::to_owned);
    let left = layer.discard().map_err(|error| chain(&error))?;
    tell_leftovers(left.iter());
    // An error says that again when the next command removes the rest.
    let going = layers.and_then(|layers| Going::open(&layers).ok().flatten());
    if going.is_some_and(|going| going.count().is_ok_and(|count| count > 0)) {
        tell(
            "What the run wrote takes long to remove: later commands remove the rest, and nexus changes recover all of it.",
        );
    }
    Ok(())
}

/// Time that each command spends on layers that are going away.
const ON_GOING: Duration = Duration::from_millis(200);

/// Removes a part of what is left of layers that take long to remove.
fn remove_going(places: &StateDir) -> Result<(), Failure> {
    let end = Instant::now() + ON_GOING;
    remove_going_until(places, &mut || Instant::now() >= end).map(drop)
}

/// Removes what is left of layers that take long to remove, until `stop`. Returns how many there were.
pub fn remove_going_until(places: &StateDir, stop: &mut dyn FnMut() -> bool) -> Result<usize, Failure> {
    let failed = |error| refused(&chain(&error));
    let Some(going) = Going::open(&places.layers).map_err(failed)? else { return Ok(0) };
    let count = going.count().map_err(failed)?;
    if count > 0 {
        going.remove(stop).map_err(failed)?;
    }
    Ok(count)
}

/// Error: an interrupted commit was not finished.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    /// The directory is not where it was.
    #[error(
        "The commit of the run {run} into {path} was interrupted, and that directory cannot be used: {why}. \
         Put the directory back, and nexus changes recover --run {run} finishes the commit", path = path.display()
    )]
    Away {
        /// The id of the run.
        run: String,
        /// The path of the directory.
        path: PathBuf,
        /// The reason why the directory cannot be used.
        why: OpenSameError,
    },
    /// The directory of the commit is unknown.
    #[error(
        "the commit of the run {run} was interrupted, and its record cannot be read, so that its directory is not known; \
         nexus log names the directories of runs"
    )]
    Unknown {
        /// The id of the run.
        run: String,
    },
    /// A call failed.
    #[error("the interrupted commit of the run {run} cannot be finished: {why}")]
    Failed {
        /// The id of the run.
        run: String,
        /// The error of the call.
        why: String,
    },
}

/// Says what a command did, before the record goes by which the next command finds it.
pub type Say<'a> = &'a mut dyn FnMut(&[String]) -> Result<(), String>;

/// Says it on standard error.
#[expect(clippy::unnecessary_wraps, reason = "it is one of several ways to say it")]
pub fn say_aside(lines: &[String]) -> Result<(), String> {
    for line in lines {
        tell(line);
    }
    Ok(())
}

/// Finishes an interrupted commit in the very directory that it is for, and says what was done.
pub fn finish(places: &StateDir, one: &Interrupted, say: Say<'_>) -> Result<(), FinishError> {
    let run = || one.run.clone();
    let Some((path, id)) = &one.directory else { return Err(FinishError::Unknown { run: run() }) };
    let away = |why| FinishError::Away { run: run(), path: path.clone(), why };
    let directory = id.open_at(path).map_err(away)?;
    let failed = |why: String| FinishError::Failed { run: run(), why };
    let _alone = commit_lock::lock(places, *id).map_err(|error| failed(error.to_string()))?;
    roll_forward(places, &one.run, (path, &directory), say).map_err(failed)
}

/// Finishes all other interrupted commits of a directory whose lock the caller holds.
pub fn finish_others(places: &StateDir, own: &str, path: &Path, directory: &Workspace) -> Result<(), String> {
    let id = directory.identity().map_err(|error| error.to_string())?;
    for run in journals(places, id)?.iter().filter(|run| *run != own) {
        roll_forward(places, run, (path, directory), &mut say_aside)
            .map_err(|why| format!("the commit of the run {run} was interrupted and cannot be finished: {why}"))?;
    }
    Ok(())
}

/// Lists the layers with a journal for this directory, but for those that were given up.
fn journals(places: &StateDir, id: nexus_facility::FolderId) -> Result<Vec<String>, String> {
    // Two names for itself and none for a directory in it: most file systems say so without a list.
    if std::fs::metadata(&places.layers).map_err(|error| error.to_string())?.nlink() == 2 {
        return Ok(Vec::new());
    }
    let mut runs = nexus_facility::journals_of(&places.layers, id).map_err(|error| chain(&error))?;
    // A journal that cannot be read stops runs in the directory of its note, and in no other.
    for entry in std::fs::read_dir(&places.layers).map_err(|error| error.to_string())? {
        let Ok(run) = entry.map_err(|error| error.to_string())?.file_name().into_string() else { continue };
        let path = places.layers.join(&run);
        let is_decided = ["journal", "journal.done"].iter().any(|name| path.join(name).exists());
        if is_decided
            && !runs.contains(&run)
            && note::read(&path).ok().flatten().is_some_and(|note| note.directory == id.into())
        {
            runs.push(run);
        }
    }
    let mut waiting = Vec::new();
    for run in runs {
        let layer = places.layers.join(&run);
        if !note::is_going(&layer).map_err(|error| format!("{}: {error}", layer.display()))? {
            waiting.push(run);
        }
    }
    Ok(waiting)
}

fn roll_forward(
    places: &StateDir,
    run: &str,
    (path, directory): (&Path, &Workspace),
    say: Say<'_>,
) -> Result<(), String> {
    let recover = || nexus_facility::recover(&places.layers, run, directory);
    let recovered = patiently(recover, is_busy).map_err(|error| chain(&error))?;
    if let Recovered::TakenBack(conflicts) = &recovered {
        let line = format!(
            "The commit of the run {run} into {} was being taken back and is now. Its changes wait \
             (nexus changes reject --run {run} removes them).",
            path.display()
        );
        let lines: Vec<_> = [line].into_iter().chain(kept_back(run, path, conflicts)).collect();
        say(&lines)?;
        let stage = patiently(|| nexus_facility::stage(&places.layers, run), is_busy).map_err(|error| chain(&error))?;
        // Otherwise the record stays: by it the next command finds the changes and parks them.
        return if stage == Stage::Parked { forget(places, run) } else { Ok(()) };
    }
    say(&told(run, path, &recovered))?;
    forget(places, run)
}

/// Removes the record of a run whose layer was brought to an end.
pub fn forget(places: &StateDir, run: &str) -> Result<(), String> {
    let Ok(id) = run.parse::<RunId>() else { return Ok(()) };
    let orphan = record::orphan(&places.runs, id).map_err(|error| error.to_string())?;
    orphan.map_or(Ok(()), Orphan::remove).map_err(|error| error.to_string())
}

/// Reports whether a run has a record that its living process owns.
pub fn is_live(places: &StateDir, run: RunId) -> Result<bool, String> {
    let failed = |error: std::io::Error| error.to_string();
    let has_record = record::Record::place(&places.runs, run).try_exists().map_err(failed)?;
    Ok(has_record && record::orphan(&places.runs, run).map_err(failed)?.is_none())
}

/// Describes a recovery to the user, one line for each of its results.
pub fn told(run: &str, path: &Path, recovered: &Recovered) -> Vec<String> {
    let Recovered::RolledForward(done) = recovered else { return Vec::new() };
    let mut lines = vec![format!("The interrupted commit of the run {run} into {} is finished now.", path.display())];
    lines.extend(done.committed.iter().map(|change| format!("committed {}", crate::changes::line(change))));
    lines.extend(left_out(run, path, recovered));
    lines.extend(unwatched_line(done.unwatched));
    lines.extend(done.left.iter().map(ToString::to_string));
    lines
}

/// Names the paths that a finished commit did not apply, because they changed outside after the decision.
pub fn left_out(run: &str, directory: &Path, recovered: &Recovered) -> Option<String> {
    let Recovered::RolledForward(done) = recovered else { return None };
    kept_back(run, directory, &done.conflicts)
}

/// Names the paths that a commit kept back after it was decided, and where the versions are.
pub fn kept_back(run: &str, directory: &Path, conflicts: &[Conflict]) -> Option<String> {
    let (moved, stayed): (Vec<_>, Vec<_>) = conflicts.iter().partition(|conflict| conflict.beside.is_some());
    let (explained, stayed): (Vec<_>, Vec<_>) = stayed.into_iter().partition(|conflict| conflict.detail.is_some());
    let mut text = Vec::new();
    if !stayed.is_empty() {
        let paths: Vec<_> = stayed.iter().map(|one| one.path.as_path().display().to_string()).collect();
        text.push(format!(
            "changed in {} since the decision and left as they are: {} (nexus changes show --run {run})",
            directory.display(),
            paths.join(", ")
        ));
    }
    for one in explained {
        let (path, why) = (directory.join(one.path.as_path()), one.detail.as_deref().unwrap_or_default());
        text.push(format!("{} is left as it is: {why}", path.display()));
    }
    for one in moved {
        let beside = one.beside.as_ref().map(|path| path.as_path().display().to_string()).unwrap_or_default();
        text.push(format!("{} changed meanwhile, and its other version is {beside}", one.path.as_path().display()));
    }
    (!text.is_empty()).then(|| text.join("; "))
}

fn refused(why: &str) -> Failure {
    let message = format!("an earlier run was killed and could not be cleared up: {why}");
    Failure::refused("recover", message, "look at that first: its changes may be half applied")
}
