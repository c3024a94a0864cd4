//! A layer: the folder of one run with the upper and work directories of its overlay, and its ways to end.
//!
//! ```text
//!  <layers>/<run>/          0700: nobody else reaches a setuid file that a hostile run might have managed to make
//!      upper/  work/        for mount(2)
//!      journal  journal.done  parked.json      see `journal`
//! ```
//! The folder is locked (flock) while somebody holds a [`Layer`], so that a recovery does not take a running one.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, is_empty};
use crate::changes::{Change, ChangeSet, Conflict};
use crate::copy::{Attrs, copy_tree};
use crate::faults::{Faults, Step};
use crate::finish::{Folders, remove_layer};
use crate::journal::{JOURNAL, Journal, PARKED, Parked, read, sync_folder, write};
use crate::meta::{EntryType, FsTime, stat};
use crate::plan::{Action, CommitPlan, plan, report};
use crate::protected::Rules;
use crate::recover::{open_index, roll_forward};
use crate::spare::{self, PROBE, Spares};
use crate::tree::LayerTree;
use crate::walk::{Walk, WalkError};
use crate::xattr;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

pub use crate::errors::{CommitError, CreateLayerError, DiscardError, OpenLayerError, ParkError, ReadLayerError};
pub use crate::marks::LayerMode;

/// Files that are synced one by one before the commit point; with more of them the whole file system is.
const SYNCED_ONE_BY_ONE: usize = 32;

/// What became of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitState {
    /// There was nothing in it; it is gone.
    Nothing,
    /// Everything but what is listed as parked is in the workspace. With nothing parked the layer is gone.
    Committed,
    /// Nothing is in the workspace, and the layer waits for a review.
    Parked,
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// What became of the layer.
    pub state: CommitState,
    /// What is in the workspace now. Sockets are marked `skipped`.
    pub changes: ChangeSet,
    /// What is not, and why.
    pub parked: Vec<Change>,
    /// What changed outside meanwhile; with any of these nothing was committed.
    pub conflicts: Vec<Conflict>,
}

/// One run's layer.
#[derive(Debug)]
pub struct Layer {
    path: PathBuf,
    pub(crate) run: String,
    pub(crate) layers: Workspace,
    pub(crate) root: Locked,
    pub(crate) mode: LayerMode,
    started: FsTime,
    ours: Vec<(ByteText, FsTime)>,
    pub(crate) upper_fd: Option<OwnedFd>,
    pub(crate) spares: Option<Spares>,
    pub(crate) faults: Faults,
}

/// Letters, digits, `-` and `_`: usable as a folder's name and in a temporary name.
pub(crate) fn is_run_id(run: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !run.is_empty() && run.len() <= 64 && run.bytes().all(fits)
}

/// A layer's folder that nobody else works with.
#[derive(Debug)]
pub(crate) struct Locked(Workspace);

impl Locked {
    /// `None` when somebody else has it.
    pub(crate) fn new(root: Workspace) -> io::Result<Option<Self>> {
        match rustix::fs::flock(root.fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(root))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::ops::Deref for Locked {
    type Target = Workspace;
    fn deref(&self) -> &Workspace {
        &self.0
    }
}

impl Drop for Locked {
    /// Explicitly, and not by closing: a process forked meanwhile has the descriptor until it executes its program,
    /// and would keep the lock that long. A failure leaves the lock to the last close.
    fn drop(&mut self) {
        rustix::fs::flock(self.0.fd(), FlockOperation::Unlock).ok();
    }
}

impl Layer {
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

    /// [`Self::create`] with folders made ahead, if there are any, and with faults, for tests.
    pub fn create_with(
        spares: Option<Spares>,
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
        let make = || -> Result<(Locked, FsTime), IoFailure> {
            faults.check(Step::CreateLayer).doing("make", run.as_bytes())?;
            if !spares.as_ref().is_some_and(|spares| spares.take(&layers, run, mode)) {
                spare::make(&layers, run, mode)?;
            }
            let root = Workspace::from_fd(layers.readable_dir(run.as_bytes()).doing("open", run.as_bytes())?);
            // Sets the ctime, which folders made ahead have from then.
            chmod(root.fd(), 0o700).doing("set the mode of", run.as_bytes())?;
            let started = stat(root.fd(), b"").doing("look at", run.as_bytes())?.ctime;
            // Another process may hold the folder's lock only by mistake.
            let root = Locked::new(root)
                .and_then(|locked| locked.ok_or_else(|| Errno::WOULDBLOCK.into()))
                .doing("lock", run.as_bytes())?;
            let like = stat(workspace.fd(), b"").doing("look at", b"")?;
            let (uid, gid) = (Uid::from_raw(like.uid), Gid::from_raw(like.gid));
            // By name: nobody but us has seen these folders yet.
            for (name, bits) in [("upper", like.mode & 0o1777), ("work", 0o700)] {
                if rustix::process::geteuid().is_root() {
                    rustix::fs::chownat(root.fd(), name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                        .doing("set the owner of", name.as_bytes())?;
                }
                rustix::fs::chmodat(root.fd(), name, Mode::from_raw_mode(bits), AtFlags::empty())
                    .doing("set the mode of", name.as_bytes())?;
            }
            Ok((root, started))
        };
        let (root, started) = make().map_err(io)?;
        let path = layers_dir.join(run);
        Ok(Self {
            path,
            run: run.to_owned(),
            layers,
            root,
            mode,
            started,
            ours: Vec::new(),
            upper_fd: None,
            spares,
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
        for file in [JOURNAL, crate::journal::DONE] {
            if root.stat(file.as_bytes()).doing("look at", file.as_bytes()).map_err(io)?.is_some() {
                return Err(OpenLayerError::Unfinished { run: name() });
            }
        }
        let Some(parked) = read::<Parked>(&root, PARKED).map_err(io)? else {
            return Err(OpenLayerError::NotParked { run: name() });
        };
        if parked.version != Journal::version() {
            return Err(OpenLayerError::Version { run: name(), version: parked.version });
        }
        let Parked { mode, started, ours, .. } = parked;
        let (path, faults) = (layers_dir.join(run), Faults::default());
        Ok(Self { path, run: name(), layers, root, mode, started, ours, upper_fd: None, spares: None, faults })
    }

    /// Reads the upper directory through this descriptor, not in the layer's folder: for a tmpfs that only a sandbox's
    /// mount namespace has. A commit first copies it into the folder.
    #[must_use]
    pub fn with_upper(mut self, upper: OwnedFd) -> Self {
        self.upper_fd = Some(upper);
        self
    }

    /// Lets a test make a later step fail.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The layer's folder.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// For the mount option `upperdir`.
    pub fn upper(&self) -> PathBuf {
        self.path.join("upper")
    }

    /// For the mount option `workdir`.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// When it was made, by the clock of the file system. What changes in the workspace later is a conflict.
    pub fn started(&self) -> FsTime {
        self.started
    }

    /// The run that it belongs to.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// What differs from the workspace. Changes nothing.
    pub fn changes(&self, workspace: &Workspace, rules: &Rules) -> Result<ChangeSet, ReadLayerError> {
        let Some(tree) = self.read(workspace, rules)? else { return Ok(ChangeSet::default()) };
        Ok(ChangeSet { changes: report(&tree, rules) })
    }

    /// Brings the changes to the workspace, as far as the rules allow. Nothing else may run in the layer any more.
    ///
    /// After [`CommitError::Read`] and [`CommitError::Prepare`] the layer is as before and may be parked.
    pub fn commit(&self, workspace: &Workspace, rules: &Rules) -> Result<Committed, CommitError> {
        let prepare = |source| CommitError::Prepare { run: self.run.clone(), source };
        let result = Committed {
            state: CommitState::Nothing,
            changes: ChangeSet::default(),
            parked: Vec::new(),
            conflicts: Vec::new(),
        };
        if let Some(upper) = &self.upper_fd {
            self.materialise(upper).map_err(prepare)?;
        }
        let Some(tree) = self.read_folder(workspace, rules)? else {
            remove_layer(&self.layers, &self.root, &self.run, &self.faults).map_err(prepare)?;
            return Ok(result);
        };
        self.faults.check(Step::PlanCommit).doing("plan", b"").map_err(prepare)?;
        self.carry_out(workspace, plan(&tree, rules))
    }

    /// Commits what was planned.
    pub(crate) fn carry_out(&self, workspace: &Workspace, plan: CommitPlan) -> Result<Committed, CommitError> {
        let prepare = |source| CommitError::Prepare { run: self.run.clone(), source };
        let CommitPlan { actions, committed, parked, keep, conflicts, rewritten } = plan;
        let changes = ChangeSet { changes: committed };
        let mut result = Committed { state: CommitState::Nothing, changes, parked, conflicts };
        if actions.is_empty() {
            if result.parked.is_empty() {
                remove_layer(&self.layers, &self.root, &self.run, &self.faults).map_err(prepare)?;
            } else {
                result.state = CommitState::Parked;
                self.write_parked(result.parked.clone()).map_err(prepare)?;
            }
            return Ok(result);
        }
        let journal = Journal {
            version: Journal::version(),
            run: self.run.clone(),
            mode: self.mode,
            actions,
            keep,
            parked: result.parked.clone(),
            rewritten,
            started: self.started,
            ours: self.ours.clone(),
        };
        self.decide(&journal).map_err(prepare)?;
        let interrupted = |source| CommitError::Interrupted { run: self.run.clone(), source };
        self.faults.check(Step::SyncJournal).doing("sync", b"").map_err(interrupted)?;
        sync_folder(&self.root).map_err(interrupted)?;
        let folders = Folders { layers: &self.layers, root: &self.root, base: workspace, run: &self.run };
        roll_forward(&folders, &journal, &self.faults).map_err(interrupted)?;
        result.state = CommitState::Committed;
        Ok(result)
    }

    /// Keeps the layer for a review and says what is in it.
    pub fn park(&self, workspace: &Workspace, rules: &Rules) -> Result<ChangeSet, ParkError> {
        let io = |source| ParkError::Io { run: self.run.clone(), source };
        if let Some(upper) = &self.upper_fd {
            self.materialise(upper).map_err(io)?;
        }
        let tree = self.read_folder(workspace, rules)?;
        let changes = tree.map_or_else(ChangeSet::default, |tree| ChangeSet { changes: report(&tree, rules) });
        self.write_parked(changes.changes.clone()).map_err(io)?;
        Ok(changes)
    }

    /// Removes the layer and everything in it.
    pub fn discard(self) -> Result<(), DiscardError> {
        remove_layer(&self.layers, &self.root, &self.run, &self.faults)
            .map_err(|source| DiscardError { run: self.run.clone(), source })
    }

    /// The commit point: before its rename nothing is decided, after it everything.
    fn decide(&self, journal: &Journal) -> Result<(), IoFailure> {
        self.faults.check(Step::SyncLayer).doing("sync", b"upper")?;
        self.sync_upper(journal)?;
        self.faults.check(Step::WriteJournal).doing("write", JOURNAL.as_bytes())?;
        write(&self.root, JOURNAL, journal)
    }

    /// The journal promises bytes that the disk must have by then.
    fn sync_upper(&self, journal: &Journal) -> Result<(), IoFailure> {
        let upper = Workspace::from_fd(self.root.readable_dir(b"upper").doing("open", b"upper")?);
        let everything = || rustix::fs::syncfs(upper.fd()).doing("sync", b"upper");
        let moves = |action: &&Action| matches!(action, Action::Move { .. } | Action::Overwrite { .. });
        if journal.actions.iter().filter(moves).count() > SYNCED_ONE_BY_ONE {
            return everything();
        }
        for action in &journal.actions {
            match action {
                Action::Move { path, .. } => match sync_file(&upper, &path.0) {
                    Ok(true) => {}
                    // A directory, or a mode that keeps us out: nothing may be opened up before the decision.
                    Ok(false) => return everything(),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return everything(),
                    Err(error) => return Err(error).doing("sync", &path.0),
                },
                Action::Overwrite { .. } => return everything(),
                _ => {}
            }
        }
        Ok(())
    }

    fn write_parked(&self, changes: Vec<Change>) -> Result<(), IoFailure> {
        self.faults.check(Step::Park).doing("park", b"")?;
        let parked = Parked {
            version: Journal::version(),
            mode: self.mode,
            started: self.started,
            ours: self.ours.clone(),
            changes: ChangeSet { changes },
        };
        write(&self.root, PARKED, &parked)?;
        sync_folder(&self.root)
    }

    fn materialise(&self, upper: &OwnedFd) -> Result<(), IoFailure> {
        self.faults.check(Step::Materialise).doing("copy", b"upper")?;
        let reopened =
            rustix::fs::openat(upper, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let from = Workspace::from_fd(reopened.doing("open", b"upper")?);
        // A first try may have been interrupted by an error.
        crate::remove::remove_tree(&self.root, b"upper").doing("remove", b"upper")?;
        rustix::fs::mkdirat(self.root.fd(), "upper", Mode::from_raw_mode(0o700)).doing("make", b"upper")?;
        let to = Workspace::from_fd(self.root.readable_dir(b"upper").doing("open", b"upper")?);
        copy_tree(&from, &to, Attrs::Layer(self.mode)).doing("copy", b"upper")
    }

    pub(crate) fn read(&self, workspace: &Workspace, rules: &Rules) -> Result<Option<LayerTree>, ReadLayerError> {
        match &self.upper_fd {
            None => self.read_folder(workspace, rules),
            Some(upper) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let upper = rustix::fs::openat(upper, ".", flags, Mode::empty()).doing("open", b"upper");
                let upper = upper.map_err(|source| ReadLayerError::Io { source })?;
                self.read_upper(&Workspace::from_fd(upper), None, workspace, rules)
            }
        }
    }

    fn read_folder(&self, workspace: &Workspace, rules: &Rules) -> Result<Option<LayerTree>, ReadLayerError> {
        let io = |source| ReadLayerError::Io { source };
        let upper = Workspace::from_fd(self.root.readable_dir(b"upper").doing("open", b"upper").map_err(io)?);
        self.read_upper(&upper, open_index(&self.root).map_err(io)?, workspace, rules)
    }

    fn read_upper(
        &self,
        upper: &Workspace,
        index: Option<Workspace>,
        base: &Workspace,
        rules: &Rules,
    ) -> Result<Option<LayerTree>, ReadLayerError> {
        let io = |source| ReadLayerError::Io { source };
        self.faults.check(Step::ReadLayer).doing("read", b"upper").map_err(io)?;
        // The way of most runs: one call shows that there is nothing.
        let again = upper.readable_dir(b"").doing("open", b"upper").map_err(io)?;
        if is_empty(again.as_fd()).doing("list", b"upper").map_err(io)? {
            return Ok(None);
        }
        if self.mode == LayerMode::Root {
            let seen = xattr::list(self.root.fd(), b"").doing("list the attributes of", b"").map_err(io)?;
            if !seen.iter().any(|name| name == PROBE) {
                return Err(ReadLayerError::Blind);
            }
        }
        let walk = Walk { upper, index, base, mode: self.mode, started: self.started, ours: &self.ours, rules };
        walk.read().map(Some).map_err(|error| match error {
            WalkError::Io(source) => ReadLayerError::Io { source },
            WalkError::Mark { path, source } => ReadLayerError::Marks { reason: format!("{path:?}: {source}") },
            other @ (WalkError::Twice { .. } | WalkError::Redirect { .. }) => {
                ReadLayerError::Marks { reason: other.to_string() }
            }
        })
    }
}

/// Syncs one file; `false` for a directory. Links and the like have no content of their own.
fn sync_file(upper: &Workspace, path: &[u8]) -> io::Result<bool> {
    let (parent, name) = crate::beneath::split(path);
    let dir = upper.dir(parent)?;
    match stat(dir.as_fd(), name)?.kind {
        EntryType::File => {
            rustix::fs::fdatasync(crate::beneath::open_file(dir.as_fd(), name, OFlags::RDONLY)?)?;
            Ok(true)
        }
        EntryType::Directory => Ok(false),
        EntryType::Symlink | EntryType::Fifo | EntryType::Socket | EntryType::Device => Ok(true),
    }
}
