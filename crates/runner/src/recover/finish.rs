//! Finishes interrupted commits, in the very directory that each is for.

use crate::causes::chain;
use crate::notices::{Notice, Notify};
use crate::recover::interrupted::Interrupted;
use crate::recover::kept::kept_back;
use crate::recover::report::{Outcome, RecoveryReport, report_of};
use crate::recover::retry::{is_busy, patiently};
use crate::recover::sandboxes::presence;
use crate::state::commit_lock;
use crate::state::directory::StateDir;
use crate::state::first_process::Presence;
use crate::state::identity::OpenSameError;
use crate::state::note;
use crate::state::record::{self, Orphan};
use nexus_layer::{LayerStage, Recovered, Workspace};
use nexus_model::RunId;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// Reports what a command did. It is called before the command removes the record, by which the next command would
/// find the work.
pub type Report<'a> = &'a mut dyn FnMut(&RecoveryReport) -> Result<(), String>;

/// Reports each line as a notice.
pub fn as_notices(tell: Notify<'_>) -> impl FnMut(&RecoveryReport) -> Result<(), String> {
    move |done| {
        for line in &done.lines {
            tell(&Notice::Recovered(line.clone()));
        }
        Ok(())
    }
}

/// Finishes an interrupted commit in the very directory that it is for, and reports what was done.
pub fn finish(places: &StateDir, one: &Interrupted, report: Report<'_>) -> Result<(), FinishError> {
    let run = || one.run.clone();
    let Some((path, id)) = &one.directory else { return Err(FinishError::Unknown { run: run() }) };
    let away = |why| FinishError::Away { run: run(), path: path.clone(), why };
    let directory = id.open_at(path).map_err(away)?;
    let failed = |why: String| FinishError::Failed { run: run(), why };
    let _alone = commit_lock::lock(places, *id).map_err(|error| failed(error.to_string()))?;
    roll_forward(places, &one.run, (path, &directory), report).map_err(failed)
}

/// Finishes all other interrupted commits of a directory whose lock the caller holds.
pub fn finish_others(
    places: &StateDir,
    own: &str,
    path: &Path,
    directory: &Workspace,
    tell: Notify<'_>,
) -> Result<(), String> {
    let id = directory.identity().map_err(|error| error.to_string())?;
    for run in journals(places, id)?.iter().filter(|run| *run != own) {
        roll_forward(places, run, (path, directory), &mut as_notices(tell))
            .map_err(|why| format!("the commit of the run {run} was interrupted and cannot be finished: {why}"))?;
    }
    Ok(())
}

/// Lists the layers with a journal for this directory, but for those that were given up.
pub fn journals(places: &StateDir, id: nexus_layer::DirectoryIdentity) -> Result<Vec<String>, String> {
    // Two names for itself and none for a directory in it: most file systems show that without a list.
    if std::fs::metadata(&places.layers).map_err(|error| error.to_string())?.nlink() == 2 {
        return Ok(Vec::new());
    }
    let mut runs = nexus_layer::journals_of(&places.layers, id).map_err(|error| chain(&error))?;
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
    report: Report<'_>,
) -> Result<(), String> {
    let recover = || nexus_layer::recover(&places.layers, run, directory);
    let recovered = patiently(recover, is_busy).map_err(|error| chain(&error))?;
    if let Recovered::TakenBack(conflicts) = &recovered {
        let line = format!(
            "The commit of the run {run} into {} was being taken back and is now. Its changes wait \
             (nexus changes reject --run {run} removes them).",
            path.display()
        );
        let lines = [line].into_iter().chain(kept_back(run, path, conflicts)).collect();
        report(&RecoveryReport { ending: Outcome::TakenBack, lines })?;
        let stage = patiently(|| nexus_layer::stage(&places.layers, run), is_busy).map_err(|error| chain(&error))?;
        // Otherwise the record stays: by it the next command finds the changes and parks them.
        return if stage == LayerStage::Parked { forget(places, run) } else { Ok(()) };
    }
    report(&report_of(run, path, &recovered))?;
    forget(places, run)
}

/// Removes the record of a run whose layer was brought to an end, unless its sandbox is there: by the record a later
/// command removes what the sandbox has on the host. Of a sandbox elsewhere no command here can do that.
pub fn forget(places: &StateDir, run: &str) -> Result<(), String> {
    let Ok(id) = run.parse::<RunId>() else { return Ok(()) };
    if !matches!(presence(places, id), Ok(Presence::Gone | Presence::Unknown)) {
        return Ok(());
    }
    let orphan = record::orphan(&places.runs, id).map_err(|error| error.to_string())?;
    orphan.map_or(Ok(()), Orphan::remove).map_err(|error| error.to_string())
}

/// Reports whether a run has a record that its living process owns.
pub fn is_live(places: &StateDir, run: RunId) -> Result<bool, String> {
    let record = record::inspect(&places.runs, run).map_err(|error| error.to_string())?;
    Ok(record.is_some_and(|record| record.owner.is_some()))
}
