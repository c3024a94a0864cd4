//! A layer: the directory of one run with the upper and work directories of its overlay, and its ways to end.
//!
//! ```text
//!  <layers>/<run>/          0700: no other user reaches a setuid file that a hostile run might have managed to make
//!      upper/  work/        for mount(2)
//!      journal  journal.done  parked.json      see `journal`
//! ```
//! The directory is locked (flock) while a process holds a [`Layer`], so that a recovery does not take a running one.

mod base_notes;
pub(crate) mod index_notes;
mod parking;
mod reading;

use crate::beneath::{DirectoryIdentity, Doing as _, IoFailure, Workspace, chmod};
use crate::disk::identity::Home;
use crate::disk::opened::close_again;
use crate::disk::started::{self, Clocks, Started};
use crate::disk::top_directory::Top;
use crate::disk::upper::{open_upper, reopen_upper};
use crate::entries::changes::{Change, ChangeSet, Conflict};
use crate::entries::tree::CommittedEntry;
use crate::faults::{Faults, Phase};
use crate::git::bases::BaseSurvey;
use crate::git::stash::Stash;
use crate::journal::file::{DONE, JOURNAL, PARKED, Parked, VERSION, read};
use crate::meta::FsTime;
use crate::moves::leftover::Leftover;
use crate::notes::returned::with_stamps_of_a_way_back;
use crate::read::index_at_start::IndexAtStart;
use crate::store::locked::{Locked, is_run_id};
use crate::store::pool::{self, LayerPool};
use crate::store::recorded::Recorded;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

pub use crate::entries::marks::LayerMode;
pub use crate::errors::{CommitError, CreateLayerError, DiscardError, OpenLayerError, ParkError, ReadLayerError};

/// State of a layer after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitState {
    /// The layer was empty and was removed.
    Nothing,
    /// The workspace has all changes but those that are listed as parked. Where none is parked the layer was removed.
    Committed,
    /// The workspace has none of the changes, and the layer waits for a review.
    Parked,
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// State of the layer.
    pub state: CommitState,
    /// The changes that are in the workspace now. Sockets are marked `skipped`.
    pub changes: ChangeSet,
    /// The changes that are not, with the reasons.
    pub parked: Vec<Change>,
    /// The paths that changed outside meanwhile. Found before the decision, nothing was committed; found after it,
    /// these paths alone were kept back.
    pub conflicts: Vec<Conflict>,
    /// Number of files that were replaced or deleted though no lease could show whether a process writes to them.
    pub unwatched: u64,
    /// Entries that were displaced, or are left of the layer, and could not be removed.
    pub left: Vec<Leftover>,
    /// Commits with uncommitted changes that git took out of the working tree in the run.
    pub stashes: Vec<Stash>,
}

impl Committed {
    pub(crate) fn nothing() -> Self {
        Self {
            state: CommitState::Nothing,
            changes: ChangeSet::default(),
            parked: Vec::new(),
            conflicts: Vec::new(),
            unwatched: 0,
            left: Vec::new(),
            stashes: Vec::new(),
        }
    }

    /// Adds commits that the plan named to those that the commit found.
    pub(crate) fn naming(mut self, planned: Vec<Stash>) -> Self {
        self.stashes = crate::last_copies::waiting_refs::once(planned.into_iter().chain(self.stashes)).collect();
        self
    }
}

/// One run's layer.
#[derive(Debug)]
pub struct Layer {
    pub(crate) path: PathBuf,
    pub(crate) run: String,
    pub(crate) layers: Workspace,
    pub(crate) root: Locked,
    pub(crate) mode: LayerMode,
    pub(crate) started: FsTime,
    pub(crate) clock: Option<Started>,
    pub(crate) top: Option<Top>,
    pub(crate) ours: Vec<CommittedEntry>,
    /// Sizes of the files of the layer when it was parked.
    pub(crate) recorded: Recorded,
    pub(crate) home: Option<Home>,
    pub(crate) upper_fd: Option<OwnedFd>,
    /// Set if no other user can reach the entries; see `separate`.
    pub(crate) unreached: AtomicBool,
    /// All of a layer in memory was copied to the layer's directory.
    pub(crate) copied: AtomicBool,
    /// The directory holds a part of a layer that was in memory.
    pub(crate) is_part: bool,
    pub(crate) pool: Option<LayerPool>,
    pub(crate) index_at_start: Option<IndexAtStart>,
    /// The look at the files as they were when the run began.
    pub(crate) bases: Option<BaseSurvey>,
    pub(crate) faults: Faults,
}

impl Layer {
    /// Names the workspace for the journal.
    pub fn set_home(&mut self, path: ByteText, id: DirectoryIdentity) {
        self.home = Some(Home { path, id });
    }

    /// Makes `<layers_dir>/<run>` with empty `upper` and `work` directories that have the owner and the mode of the
    /// workspace (overlay shows the upper directory's as the workspace's own).
    pub fn create(
        layers_dir: &Path,
        run: &str,
        workspace: &Workspace,
        mode: LayerMode,
    ) -> Result<Self, CreateLayerError> {
        Self::create_with(None, layers_dir, run, workspace, mode, Faults::default())
    }

    /// Runs [`Self::create`] with directories made ahead, if there are any, and with faults, for tests.
    pub fn create_with(
        pool: Option<LayerPool>,
        layers_dir: &Path,
        run: &str,
        workspace: &Workspace,
        mode: LayerMode,
        faults: Faults,
    ) -> Result<Self, CreateLayerError> {
        if !is_run_id(run) {
            return Err(CreateLayerError::RunId { run: run.to_owned() });
        }
        let io = |source| CreateLayerError::Io { run: run.to_owned(), source };
        let layers = Workspace::open(layers_dir).map_err(io)?;
        let make = || -> Result<(Locked, Started, Top), IoFailure> {
            faults.check(Phase::CreateLayer).doing("make", run.as_bytes())?;
            if !pool.as_ref().is_some_and(|pool| pool.take(&layers, run, mode)) {
                pool::make(&layers, run, mode)?;
            }
            let root = Workspace::from_fd(layers.readable_dir(run.as_bytes()).doing("open", run.as_bytes())?);
            let clock = started::measure(workspace, &root, run)?;
            // Another process may hold the directory's lock only by mistake.
            let root = Locked::new(root)
                .and_then(|locked| locked.ok_or_else(|| Errno::WOULDBLOCK.into()))
                .doing("lock", run.as_bytes())?;
            // By name: no other process has seen these directories yet.
            let upper = root.dir(b"upper").doing("open", b"upper")?;
            let top = crate::disk::top_directory::carry(mode, workspace, upper.as_fd())?;
            if rustix::process::geteuid().is_root() {
                let (uid, gid) = (Uid::from_raw(top.workspace.owner.0), Gid::from_raw(top.workspace.owner.1));
                rustix::fs::chownat(root.fd(), "work", Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                    .doing("set the owner of", b"work")?;
            }
            chmod(root.dir(b"work").doing("open", b"work")?.as_fd(), 0o700).doing("set the mode of", b"work")?;
            Ok((root, clock, top))
        };
        let (root, clock, top) = make().map_err(io)?;
        let path = layers_dir.join(run);
        Ok(Self {
            path,
            run: run.to_owned(),
            layers,
            root,
            mode,
            started: clock.last_older(),
            clock: Some(clock),
            top: Some(top),
            ours: Vec::new(),
            recorded: Recorded::default(),
            home: None,
            upper_fd: None,
            unreached: AtomicBool::new(false),
            copied: AtomicBool::new(false),
            is_part: false,
            pool,
            index_at_start: IndexAtStart::open(workspace),
            bases: None,
            faults,
        })
    }

    /// Opens a layer that was parked.
    pub fn open(layers_dir: &Path, run: &str) -> Result<Self, OpenLayerError> {
        let name = || run.to_owned();
        let io = |source| OpenLayerError::Io { run: run.to_owned(), source };
        if !is_run_id(run) {
            return Err(OpenLayerError::NotParked { run: name() });
        }
        let layers = Workspace::open(layers_dir).map_err(io)?;
        let root = match layers.readable_dir(run.as_bytes()) {
            Err(error) if crate::beneath::is_gone(&error) => return Err(OpenLayerError::NotParked { run: name() }),
            other => Workspace::from_fd(other.doing("open", run.as_bytes()).map_err(io)?),
        };
        let Some(root) = Locked::new(root).doing("lock", run.as_bytes()).map_err(io)? else {
            return Err(OpenLayerError::Busy { run: name() });
        };
        for file in [JOURNAL, DONE] {
            if root.stat(file.as_bytes()).doing("look at", file.as_bytes()).map_err(io)?.is_some() {
                return Err(OpenLayerError::Unfinished { run: name() });
            }
        }
        close_again(&root).map_err(io)?;
        let Some(parked) = read::<Parked<Recorded>>(&root, PARKED).map_err(io)? else {
            return Err(OpenLayerError::NotParked { run: name() });
        };
        if !(1..=VERSION).contains(&parked.version) {
            return Err(OpenLayerError::Version { run: name(), version: parked.version });
        }
        let Parked { mode, started, clock, top, ours, changes, unreached, .. } = parked;
        let ours = with_stamps_of_a_way_back(&root, ours).map_err(io)?;
        let (path, faults, recorded) = (layers_dir.join(run), Faults::default(), changes);
        let (home, upper_fd, pool) = (None, None, None);
        Ok(Self {
            path,
            run: name(),
            layers,
            root,
            mode,
            started,
            clock,
            top,
            ours,
            recorded,
            home,
            upper_fd,
            unreached: AtomicBool::new(unreached),
            copied: AtomicBool::new(false),
            is_part: false,
            pool,
            index_at_start: None,
            bases: None,
            faults,
        })
    }

    /// Reads the upper directory through this descriptor instead of the layer's directory: for a tmpfs that exists
    /// only in a sandbox's mount namespace. A commit first copies it into the layer's directory.
    #[must_use]
    pub fn with_upper(mut self, upper: OwnedFd) -> Self {
        // What cannot be found out counts as unchanged.
        self.top = self.top.and_then(|top| top.in_memory(upper.as_fd()).ok());
        self.upper_fd = Some(upper);
        self
    }

    /// Lets a test make a later step fail.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Returns the path of the layer's directory.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// Returns the directories of the layer that the workspace has too, for [`Rules::for_workspace`](crate::entries::protected::Rules::for_workspace).
    pub fn touched(&self, workspace: &Workspace) -> Result<Vec<Vec<u8>>, IoFailure> {
        let upper = match &self.upper_fd {
            None => open_upper(&self.root).doing("open", b"upper")?,
            Some(upper) => reopen_upper(upper).doing("open", b"upper")?,
        };
        nexus_git::leads::touched(&Workspace::from_fd(upper), workspace)
    }

    /// Returns the directory for the mount option `upperdir`.
    pub fn upper(&self) -> PathBuf {
        self.path.join("upper")
    }

    /// Returns the directory for the mount option `workdir`.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Returns the time at which the layer was made, by the clock of the workspace's file system. What changes in the
    /// workspace later is a conflict.
    pub fn started(&self) -> FsTime {
        self.started
    }

    /// Returns the clock of [`Self::started`]. `None` for a layer of an older version.
    pub fn clock(&self) -> Option<&Started> {
        self.clock.as_ref()
    }

    /// Returns the latest time stamp that is not a change from outside, as the clocks are now.
    fn threshold(&self) -> Result<FsTime, IoFailure> {
        let Some(clock) = &self.clock else { return Ok(self.started) };
        let now = Clocks::now().doing("read the clocks for", self.run.as_bytes())?;
        Ok(started::effective(clock, &now))
    }

    /// Returns the run that it belongs to.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Describes the git objects that the layer's refs need and that the layer lacks; `None` if it has them all.
    #[must_use]
    pub fn missing_copies(&self) -> Option<String> {
        crate::notes::uncopied::in_words(&self.root)
    }
}
