//! Opens a run that waits, for reading or deciding.

use crate::causes::chain;
use crate::host::Host;
use crate::notices::Notify;
use crate::plan::protect;
use crate::recover::finish::finish_others;
use crate::recover::interrupted::{Direction, Interrupted};
use crate::recover::remove::remove;
use crate::review::error::ReviewError;
use crate::review::rejected;
use crate::review::waiting::{State, Waiting};
use crate::settle::create::faults;
use crate::state::commit_lock::{self, CommitLock};
use crate::state::directory::StateDir;
use crate::state::identity::{self, OpenSameError};
use crate::state::note;
use crate::state::record::{Content, Record};
use nexus_driver::Handle;
use nexus_layer::{CommitError, Layer, OpenLayerError, Rules, Workspace};
use nexus_model::RunId;
use std::fmt::Display;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// A waiting run, opened for reading or deciding. No other process works with it meanwhile.
pub struct Pending {
    /// The state directory.
    pub places: StateDir,
    /// The run and what is known of it.
    pub one: Waiting,
    /// The layer of the run.
    pub layer: Layer,
    /// The directory on which the run worked.
    pub workspace: Workspace,
    /// The rules that choose every change that is neither rejected nor protected.
    pub rules: Rules,
    /// Set where the directory is away, and says why: the layer is compared with an empty one and can only be looked at.
    pub away: Option<OpenSameError>,
}

/// An empty directory in the state directory, with which the layer of a directory that is away is compared.
const EMPTY: &str = "empty";

impl Pending {
    /// Opens a run that waits for a decision, and the very directory that it worked on.
    pub fn of(host: &Host, places: StateDir, one: Waiting) -> Result<Self, ReviewError> {
        Self::open(host, places, one, false)
    }

    /// Opens a run that waits for reading, also where its directory is away.
    pub fn to_look_at(host: &Host, places: StateDir, one: Waiting) -> Result<Self, ReviewError> {
        Self::open(host, places, one, true)
    }

    fn open(host: &Host, places: StateDir, one: Waiting, may_be_away: bool) -> Result<Self, ReviewError> {
        let refused = |error: &dyn std::error::Error| ReviewError::Layer { why: chain(error) };
        let run = || one.run.clone();
        match one.state {
            State::Waiting => {}
            State::Interrupted => {
                let is_back = one.interrupted(&places).ending == Direction::Back;
                return Err(ReviewError::Interrupted { run: run(), is_back });
            }
            State::Unparked => return Err(ReviewError::Unparked { run: run() }),
            State::Going => return Err(ReviewError::Going { run: run() }),
            State::Busy => return Err(ReviewError::Busy { run: run() }),
        }
        let (workspace, path, away) = match one.directory.open_at(&one.workspace) {
            Ok(workspace) => (workspace, one.workspace.clone(), None),
            Err(why @ (OpenSameError::Gone | OpenSameError::Other)) if may_be_away => {
                let path = places.state.join(EMPTY);
                (empty(&path)?, path, Some(why))
            }
            Err(why) => {
                let files = places.layers.join(&one.run).join("upper");
                return Err(ReviewError::Moved { run: run(), workspace: one.workspace.clone(), why, files });
            }
        };
        let layer = match Layer::open(&places.layers, &one.run) {
            // Its run could not even read it; perhaps that is over.
            Err(OpenLayerError::NotParked { .. }) => {
                let origin = one.note.origin(&places.layers.join(&one.run)).map_err(|error| refused(&error))?;
                Layer::adopt(&places.layers, &one.run, &origin)
            }
            other => other,
        };
        let mut layer = layer.map_err(|error| refused(&error))?;
        let id = workspace.identity().map_err(|error| refused(&error))?;
        if one.is_part {
            layer.set_partial();
        }
        layer.set_faults(faults(host));
        layer.set_home(path.as_path().into(), id);
        // What is shown is what an accept finds: a layer that its run could not park may still be written.
        layer.part().map_err(|error| ReviewError::NoRoomToRead { why: chain(&error) })?;
        let rules = protect::rules(host, &one.note.protect, &layer, &workspace, &path)?;
        let rules = Rules { except: rejected::read(layer.root())?, ..rules };
        Ok(Self { places, one, layer, workspace, rules, away })
    }

    /// Returns all changes of the layer, also the rejected ones.
    pub fn everything(&self) -> Result<Vec<nexus_layer::Change>, ReviewError> {
        let set = self.layer.changes(&self.workspace, &self.rules);
        set.map(|set| set.changes).map_err(|error| ReviewError::Layer { why: chain(&error) })
    }

    /// Returns the changes that wait, without the rejected ones.
    pub fn changes(&self) -> Result<Vec<nexus_layer::Change>, ReviewError> {
        Ok(self.everything()?.into_iter().filter(|change| self.rules.is_chosen(&change.path.0)).collect())
    }

    /// Returns the conflicts that an accept of everything would find, protected changes included.
    pub fn conflicts(&self) -> Result<Vec<nexus_layer::Conflict>, ReviewError> {
        if self.away.is_some() {
            return Ok(Vec::new());
        }
        let rules = Rules { accept_protected: true, ..self.rules.clone() };
        let found = self.layer.conflicts(&self.workspace, &rules);
        found.map_err(|error| ReviewError::Layer { why: chain(&error) })
    }

    /// Locks the workspace for a commit, and finishes an interrupted commit to it first. Syncs the run's note to
    /// disk, so that the commit is found after a power failure.
    pub fn alone(&self, tell: Notify<'_>) -> Result<CommitLock, ReviewError> {
        let refused = |why: String| ReviewError::Lock { why };
        let alone = commit_lock::lock(&self.places, self.one.directory)
            .map_err(|error| refused(format!("the workspace cannot be locked: {error}")))?;
        let (run, path) = (&self.one.run, &self.one.workspace);
        finish_others(&self.places, run, path, &self.workspace, tell).map_err(refused)?;
        note::sync(self.layer.root()).map_err(|error| refused(format!("{}: {error}", self.layer.root().display())))?;
        Ok(alone)
    }

    /// Records that this command works on the run, so that a later command finishes the commit after a crash.
    pub fn record(&self) -> Result<Record, ReviewError> {
        let failed =
            |error: &dyn Display| ReviewError::Record { runs: self.places.runs.clone(), why: error.to_string() };
        let run: RunId = self.one.run.parse().map_err(|error| failed(&error))?;
        let content = Content {
            handle: Handle::of_nothing(run),
            workspace: self.one.workspace.clone().into(),
            directory: self.one.directory,
            layered: true,
            reviewing: true,
            rejecting: false,
        };
        let record = Record::create(&self.places.runs, &content).map_err(|error| failed(&error))?;
        record.sync().map_err(|error| failed(&error))?;
        Ok(record)
    }

    /// Returns how many changes still wait after a decision, and removes a layer in which none does.
    pub fn finish(self, tell: Notify<'_>) -> Result<usize, ReviewError> {
        if !self.layer.root().exists() {
            return Ok(0);
        }
        let left = self.changes()?.len();
        if left == 0 {
            remove(self.layer, tell).map_err(|why| ReviewError::Discard { why })?;
        }
        Ok(left)
    }

    /// Describes a failed commit to the user and to the process that keeps the record.
    pub fn commit_failed(&self, source: CommitError) -> ReviewError {
        let run = self.one.run.clone();
        let ending = Interrupted::new(&self.places, run.clone(), None).ending;
        ReviewError::Commit { run, ending, source }
    }
}

/// Opens an empty directory, and makes it where it is not there.
fn empty(path: &Path) -> Result<Workspace, ReviewError> {
    let failed = |source: io::Error| ReviewError::StateDir { path: path.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    if std::fs::read_dir(path).map_err(failed)?.next().is_some() {
        return Err(failed(io::Error::other("it is to be empty, and is not")));
    }
    identity::open(path).map_err(|error| failed(error.source))
}
