//! Ends the sandboxes of runs whose `nexus` is gone, all of them at one time.
//!
//! ```text
//!  records without a living owner ─┬─ noted as left, and there ──────────────────────────────▶ lingers
//!                                  └─ SIGKILL, and one wait for all of them ─┬─ not gone ─▶ noted as left, lingers
//!                                                                            └─ gone ─────▶ cleared up
//! ```
//! The view of /proc does not decide: the first process that the record notes has to be gone. Where that cannot be known,
//! the sandbox counts as there.

use crate::causes::chain;
use crate::recover::error::{ClearError, Elsewhere};
use crate::recover::remains::Remains;
use crate::state::directory::StateDir;
use crate::state::first_process::{self, FirstProcess, Presence};
use crate::state::note;
use crate::state::record::{self, Orphan, Record, RecordState};
use nexus_driver::Handle;
use nexus_model::RunId;
use rustix::fd::AsFd;
use rustix::process::Pid;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that the kernel has to take the sandboxes of killed programs apart, all of them together.
const GONE_WITHIN: Duration = Duration::from_millis(500);

/// The sandboxes of runs whose `nexus` is gone.
pub struct Sandboxes {
    lingering: HashSet<RunId>,
    /// Runs of another pid namespace or machine.
    elsewhere: HashSet<RunId>,
    /// Runs of which the file that tells it cannot be read.
    unknown: HashMap<RunId, String>,
}

impl Sandboxes {
    /// Ends the sandboxes of the orphans, and waits once for all of them.
    pub fn end(places: &StateDir, driver: &dyn Remains, orphans: &[Orphan]) -> Result<Self, ClearError> {
        let mut found = Self { lingering: HashSet::new(), elsewhere: HashSet::new(), unknown: HashMap::new() };
        let mut others = Vec::new();
        for orphan in orphans {
            let left = first_process::presence(&places.runs, orphan.run).map(|left| left.unwrap_or(Presence::Gone));
            if found.takes(orphan.run, left) == Presence::Gone && may_have_one(orphan) {
                others.push(orphan);
            }
        }
        if others.is_empty() {
            return Ok(found);
        }
        let until = Instant::now() + GONE_WITHIN;
        let all: Vec<_> = others.iter().map(|orphan| (orphan.run, handle_of(orphan))).collect();
        let lingering = driver.end(&all, GONE_WITHIN).map_err(|error| ClearError::not_cleared(&chain(&error)))?;
        for one in lingering {
            // Later commands do not wait again. Where it cannot be noted, they do.
            let left = FirstProcess::of(one.process.as_fd()).ok().flatten();
            left.and_then(|left| left.write(&places.runs, one.run).ok());
            found.lingering.insert(one.run);
        }
        for orphan in others.into_iter().filter(|orphan| !found.lingering.contains(&orphan.run)).collect::<Vec<_>>() {
            match &orphan.first {
                Ok(None) => {}
                Ok(Some(first)) => {
                    if found.takes(orphan.run, first.presence(until)) == Presence::There {
                        first.write(&places.runs, orphan.run).ok();
                    }
                }
                Err(why) => drop(found.unknown.insert(orphan.run, why.clone())),
            }
        }
        Ok(found)
    }

    /// Notes what is known of the sandbox of a run. An error counts as not known.
    fn takes(&mut self, run: RunId, presence: io::Result<Presence>) -> Presence {
        match &presence {
            Ok(Presence::Gone) => {}
            Ok(Presence::There) => drop(self.lingering.insert(run)),
            Ok(Presence::Unknown) => drop(self.elsewhere.insert(run)),
            Err(error) => drop(self.unknown.insert(run, error.to_string())),
        }
        presence.unwrap_or(Presence::Unknown)
    }

    /// Reports whether the sandbox of a run is not gone, or not known to be.
    pub fn lingers(&self, run: RunId) -> Result<bool, String> {
        let lingers = self.lingering.contains(&run) || self.elsewhere.contains(&run);
        self.unknown.get(&run).map_or(Ok(lingers), |why| Err(why.clone()))
    }

    /// Describes a sandbox that is not gone, of a run with a layer.
    pub fn waits(&self, places: &StateDir, run: RunId) -> String {
        let waits = has_changes(places, run);
        if self.elsewhere.contains(&run) {
            let wait = if waits { " What the run left waits." } else { "" };
            let sandbox = elsewhere(places, run);
            return format!("{sandbox}.{wait} {}", sandbox.way_out());
        }
        let what = if waits { "What the run left waits until it is gone" } else { "Nothing of the run waits" };
        format!("The kernel still takes the sandbox of the run {run} apart. {what}.")
    }

    /// Refuses to work where a sandbox that is not gone may still write.
    pub fn refuse_beside(&self, places: &StateDir, run: RunId, directory: &Path) -> ClearError {
        let directory = directory.to_owned();
        if self.elsewhere.contains(&run) {
            return ClearError::ElsewhereDirect { sandbox: elsewhere(places, run), directory };
        }
        ClearError::LingersDirect { run, directory }
    }
}

/// Describes a sandbox that is not known here.
fn elsewhere(places: &StateDir, run: RunId) -> Elsewhere {
    let files = [first_process::place(&places.runs, run), Record::place(&places.runs, run)];
    let files = files.into_iter().filter(|file| file.exists()).collect();
    Elsewhere { run, files, waits: has_changes(places, run) }
}

/// Returns what is known of the sandbox of a run, whatever process holds its record: it is read without its lock. A
/// command that is stopped while it holds that lock is not a sign that the sandbox is gone.
pub fn presence(places: &StateDir, run: RunId) -> io::Result<Presence> {
    if let Some(left) = first_process::presence(&places.runs, run)? {
        return Ok(left);
    }
    match record::inspect(&places.runs, run)?.map_or(Ok(None), |record| record.first) {
        Ok(first) => first.map_or(Ok(Presence::Gone), |first| first.presence(Instant::now())),
        Err(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
    }
}

/// Reports whether the layer of a run is there and was not parked, though no process of the run is left.
pub fn is_unparked(places: &StateDir, run: RunId) -> io::Result<bool> {
    if record::inspect(&places.runs, run)?.is_none_or(|record| record.owner.is_some()) {
        return Ok(false);
    }
    Ok(presence(places, run)? == Presence::Gone && has_changes(places, run))
}

fn may_have_one(orphan: &Orphan) -> bool {
    match &orphan.state {
        RecordState::Empty => false,
        RecordState::Complete(content) => !content.handle.is_nothing(),
        RecordState::Corrupt => true,
    }
}

/// Returns the handle of a run; `None` where the record cannot be read.
fn handle_of(orphan: &Orphan) -> Option<&Handle> {
    match &orphan.state {
        RecordState::Complete(content) => Some(&content.handle),
        RecordState::Empty | RecordState::Corrupt => None,
    }
}

/// Reports whether a run has a layer that is not being removed.
fn has_changes(places: &StateDir, run: RunId) -> bool {
    let layer = places.layers.join(run.to_string());
    // Where nothing can be read, the changes are there until a command finds out.
    layer.try_exists().unwrap_or(true) && !note::is_going(&layer).unwrap_or(false)
}

/// Refuses to show or decide about the changes of a run whose sandbox is not gone.
pub fn refuse_left(places: &StateDir, run: Option<RunId>) -> Result<(), ClearError> {
    let Some(run) = run else { return Ok(()) };
    let presence = presence(places, run).map_err(|error| ClearError::not_cleared(&error))?;
    if presence == Presence::Gone || !has_changes(places, run) {
        return Ok(());
    }
    if presence == Presence::Unknown {
        return Err(ClearError::Elsewhere(elsewhere(places, run)));
    }
    let record = record::inspect(&places.runs, run).map_err(|error| ClearError::not_cleared(&error))?;
    if let Some(owner) = record.and_then(|record| record.owner) {
        return Err(ClearError::Held { run, owner: owner.map(Pid::as_raw_pid) });
    }
    Err(ClearError::Lingers { run })
}
