//! Keeps the states of a workspace around a run.

use super::{failed, short};
use crate::args::RunArgs;
use crate::failure::{Failure, one_line};
use crate::notices::tell;
use crate::signals::{Pending, Signals};
use nexus_facility::checkpoints::{Checkpoints, FsTime, LiveRun, Most, SnapshotError, Subject};
use nexus_runner::plan::resolve::ResolvedRun;
use std::time::{Duration, Instant};

/// The most that a state reads unless a flag allows more.
const MAX_NEW: Most = Most { files: 100_000, bytes: 2 << 30, apparent: MAX_APPARENT };
/// The most with holes, of which nothing is read: each GiB is a few kilobytes in a state.
const MAX_APPARENT: u64 = 256 << 30;
/// Time after which a person hears that a state is being kept.
const SAID_AFTER: Duration = Duration::from_secs(1);
/// Entries that no state keeps and that are named after a run.
const MAX_NAMED: usize = 3;
/// Live runs of one directory whose states stay.
const KEPT: usize = 20;

/// Returns the most that a state reads: so many bytes, if a flag allows them, and any number of files then.
pub fn most(live_size: Option<u64>) -> Most {
    live_size.map_or(MAX_NEW, |bytes| Most { files: u64::MAX, bytes, apparent: bytes.max(MAX_APPARENT) })
}

/// A live run that is about to start.
pub struct Live {
    checkpoints: Checkpoints,
    record: LiveRun,
}

/// Refuses a run in a directory in which an undo was cut off: half of it is back.
pub fn refuse_unfinished(run: &ResolvedRun) -> Result<(), Failure> {
    let Some(checkpoints) = Checkpoints::open(&run.site.places.state).map_err(|error| failed(&error))? else {
        return Ok(());
    };
    match checkpoints.unfinished(&run.site.identity.name()).map_err(|error| failed(&error))? {
        None => Ok(()),
        Some(undo) => {
            let message = format!("an undo of the live run {} in this directory has not ended", undo.run);
            Err(Failure::refused(
                "undo_unfinished",
                message,
                format!(
                    "nexus changes undo --run {} goes on with it, and --abandon gives it up. Nothing was run.",
                    undo.run
                ),
            ))
        }
    }
}

/// Keeps the state of the workspace, if the run is a live one.
pub fn begin(args: &RunArgs, run: &ResolvedRun, signals: &Signals) -> Result<Option<Live>, Failure> {
    if !args.live {
        return Ok(None);
    }
    let checkpoints = Checkpoints::make(&run.site.places.state).map_err(|error| failed(&error))?;
    let subject = Subject {
        run: run.plan.run_id,
        workspace: run.plan.workspace.source.clone(),
        directory: run.site.identity.name(),
        command: run.plan.argv.clone(),
    };
    let mut teller =
        teller("before the run", args.quiet || args.json, signals.pending().map_err(|error| unheard(&error))?);
    let taken = checkpoints.take(subject, run.site.directory.fd(), Some(most(args.live_size)), &mut teller);
    let record = taken.map_err(|error| failed(&error))?;
    Ok(Some(Live { checkpoints, record }))
}

impl Live {
    /// Returns the hash of the state before the run.
    pub fn checkpoint(&self) -> &str {
        &self.record.checkpoint.tree
    }

    /// Removes the record of a run that did not start.
    pub fn forget(self) {
        if let Err(error) = self.checkpoints.forget(self.record.run) {
            tracing::debug!(code = error.code(), "the record of a run that did not start stays");
        }
    }

    /// Keeps the state that the run left, and forgets old runs.
    pub fn end(self, args: &RunArgs, run: &ResolvedRun, ended: FsTime, signals: &Signals) -> Result<(), Failure> {
        let is_quiet = args.quiet || args.json;
        let mut teller = teller("after the run", is_quiet, signals.pending().map_err(|error| unheard(&error))?);
        let most = Some(most(args.live_size));
        let ended = self.checkpoints.end(run.plan.run_id, run.site.directory.fd(), ended, most, &mut teller);
        let (record, unkept) = ended.map_err(|error| failed(&error))?;
        for one in unkept.iter().filter(|_| !is_quiet).take(MAX_NAMED) {
            let path = short(&String::from_utf8_lossy(&one.path));
            tell(&one_line(&format!(
                "{path} is not in the state after this run, and cannot be taken back: {}",
                one.why
            )));
        }
        self.forget_old();
        let is_changed = record.end.as_ref().is_some_and(|end| end.tree != record.checkpoint.tree);
        if is_changed && !is_quiet {
            tell(&one_line(&format!(
                "The state before this run is kept as {}: nexus changes show and diff show what changed, nexus changes undo takes it back.",
                record.checkpoint.short()
            )));
        }
        Ok(())
    }

    /// Removes the states of the oldest runs of this directory. What cannot be removed now goes later.
    fn forget_old(&self) {
        let Ok((all, _)) = self.checkpoints.runs() else { return };
        let mut is_forgotten = false;
        let of_here = all.iter().filter(|one| one.directory == self.record.directory);
        for old in of_here.skip(KEPT) {
            is_forgotten |= self.checkpoints.forget(old.run).is_ok();
        }
        if is_forgotten && let Err(error) = self.checkpoints.clean(&mut |_, _| {}) {
            tracing::debug!(code = error.code(), "objects of old states were not removed");
        }
    }
}

/// Says once that it takes long, and ends the work when a signal came that asks this process to end.
fn teller(when: &'static str, is_quiet: bool, signals: Pending) -> impl FnMut(u64, u64) -> Result<(), SnapshotError> {
    let (start, mut is_said) = (Instant::now(), is_quiet);
    move |entries, bytes| {
        if !is_said && start.elapsed() >= SAID_AFTER {
            is_said = true;
            let mib = bytes >> 20;
            tell(&format!("The state of the workspace {when} is being kept: {entries} entries, {mib} MiB so far."));
        }
        if signals.ending().is_some() { Err(SnapshotError::Stopped) } else { Ok(()) }
    }
}

fn unheard(error: &std::io::Error) -> Failure {
    let message = format!("signals cannot be waited for: {error}");
    Failure::refused("signals", message, "")
}
