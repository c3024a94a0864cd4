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
mod locked;
mod reading;
mod taken_back;

pub(crate) use self::locked::Locked;
use crate::bases::BaseSurvey;
use crate::beneath::{Doing as _, FolderId, IoFailure, Workspace, chmod, is_other_mount};
use crate::changes::{Change, ChangeSet, Conflict};
use crate::commit::decide::Needs;
use crate::commit::finish::{Folders, remove_layer};
use crate::commit::journal::{
    DONE, JOURNAL, NEW, PARKED, Parked, ParkedChanges, SlotPlace, VERSION, read, sync_directory, write,
};
use crate::commit::leftover::Leftover;
use crate::commit::recover::{Finished, go_on, roll_forward};
use crate::commit::stage::remove_slots;
use crate::commit::steps::IN_MEMORY;
use crate::faults::{Comparison, Faults, Step};
use crate::identity::Home;
use crate::index_at_start::IndexAtStart;
use crate::layer::index_notes::write_notes;
use crate::meta::{EntryType, FsTime, stat};
use crate::opened::close_again;
use crate::origin::with_stamps_of_a_way_back;
use crate::plan::{CommitPlan, park_all, plan, report};
use crate::protected::Rules;
use crate::recorded::Recorded;
use crate::report::Report;
use crate::spare::{self, Spares};
use crate::started::{self, Clocks, Started};
use crate::stash::Stash;
use crate::sync::sync_tree;
use crate::top::Top;
use crate::tree::{LayerTree, Own, Role};
use crate::upper::{open_upper, reopen_upper};
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::io::Errno;
use serde::Serialize;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

pub use crate::errors::{CommitError, CreateLayerError, DiscardError, OpenLayerError, ParkError, ReadLayerError};
pub use crate::marks::LayerMode;

/// State of a layer after a commit.
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
        self.stashes = crate::waiting_refs::once(planned.into_iter().chain(self.stashes)).collect();
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
    pub(crate) ours: Vec<Own>,
    /// Sizes of the files of the layer when it was parked.
    pub(crate) recorded: Recorded,
    pub(crate) home: Option<Home>,
    pub(crate) upper_fd: Option<OwnedFd>,
    /// Set if no other user can reach the entries; see `part`.
    pub(crate) unreached: AtomicBool,
    /// All of a layer in memory was copied to the layer's directory.
    pub(crate) copied: AtomicBool,
    /// The directory holds a part of a layer that was in memory.
    pub(crate) is_part: bool,
    pub(crate) spares: Option<Spares>,
    pub(crate) index_at_start: Option<IndexAtStart>,
    /// The look at the files as they were when the run began.
    pub(crate) bases: Option<BaseSurvey>,
    pub(crate) faults: Faults,
}

/// Reports whether a text is a run id: letters, digits, `-` and `_`, usable as the name of a directory and in a
/// temporary name.
pub(crate) fn is_run_id(run: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !run.is_empty() && run.len() <= 64 && run.bytes().all(fits)
}

impl Layer {
    /// Names the workspace for the journal.
    pub fn set_home(&mut self, path: ByteText, id: FolderId) {
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
        let make = || -> Result<(Locked, Started, Top), IoFailure> {
            faults.check(Step::CreateLayer).doing("make", run.as_bytes())?;
            if !spares.as_ref().is_some_and(|spares| spares.take(&layers, run, mode)) {
                spare::make(&layers, run, mode)?;
            }
            let root = Workspace::from_fd(layers.readable_dir(run.as_bytes()).doing("open", run.as_bytes())?);
            // Sets the ctime, which folders made ahead have from then.
            chmod(root.fd(), 0o700).doing("set the mode of", run.as_bytes())?;
            let made = stat(root.fd(), b"").doing("look at", run.as_bytes())?;
            let clock = started::measure(workspace, &made, run)?;
            // Another process may hold the directory's lock only by mistake.
            let root = Locked::new(root)
                .and_then(|locked| locked.ok_or_else(|| Errno::WOULDBLOCK.into()))
                .doing("lock", run.as_bytes())?;
            // By name: no other process has seen these directories yet.
            let upper = root.dir(b"upper").doing("open", b"upper")?;
            let top = crate::top::carry(mode, workspace, upper.as_fd())?;
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
            started: clock.time,
            clock: Some(clock),
            top: Some(top),
            ours: Vec::new(),
            recorded: Recorded::default(),
            home: None,
            upper_fd: None,
            unreached: AtomicBool::new(false),
            copied: AtomicBool::new(false),
            is_part: false,
            spares,
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
        let (home, upper_fd, spares) = (None, None, None);
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
            spares,
            index_at_start: None,
            bases: None,
            faults,
        })
    }

    /// Reads the upper directory through this descriptor, not in the layer's directory: for a tmpfs that only a
    /// sandbox's mount namespace has. A commit first copies it into that directory.
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

    /// Returns the directories of the layer that the workspace has too, for [`Rules::for_workspace`].
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

    /// Lists the changes of the layer against the workspace. Changes nothing.
    pub fn changes(&self, workspace: &Workspace, rules: &Rules) -> Result<ChangeSet, ReadLayerError> {
        let Some(tree) = self.read(workspace, rules)? else { return Ok(ChangeSet::default()) };
        Ok(ChangeSet { changes: report(&tree, rules) })
    }

    /// Lists the conflicts that a commit under these rules would find now, but for files that are open elsewhere and what the
    /// file system will not move. Changes nothing.
    pub fn conflicts(&self, workspace: &Workspace, rules: &Rules) -> Result<Vec<Conflict>, ReadLayerError> {
        let Some(tree) = self.read(workspace, rules)? else { return Ok(Vec::new()) };
        Ok(plan(&tree, rules).conflicts)
    }

    /// Brings the changes to the workspace, as far as the rules allow. Nothing else may run in the layer any more.
    ///
    /// After [`CommitError::Read`], [`CommitError::Damaged`], [`CommitError::Altered`] and [`CommitError::Prepare`] the
    /// layer is as before and may be parked.
    pub fn commit(&self, workspace: &Workspace, rules: &Rules) -> Result<Committed, CommitError> {
        let prepare = |source| CommitError::Prepare { run: self.run.clone(), source };
        self.make_own().map_err(prepare)?;
        // First, because it may take seconds: what changes in the workspace meanwhile is seen by the reading.
        self.sync_upper().map_err(prepare)?;
        let Some(mut tree) = self.read_folder(workspace, rules)? else {
            let left = remove_layer(&self.layers, &self.root, &self.run, &self.faults).map_err(prepare)?;
            return Ok(Committed { left: left.into_iter().collect(), ..Committed::nothing() });
        };
        self.check_whole(&tree)?;
        self.faults.check(Step::PlanCommit).doing("plan", b"").map_err(prepare)?;
        let mut plan = plan(&tree, rules);
        self.note_copies(workspace, &tree, &mut plan).map_err(prepare)?;
        let stashes = self.note_stashes(workspace, &tree, &mut plan).map_err(prepare)?;
        let asks_for_writers = self.faults.compares(Comparison::OpenElsewhere);
        let needs = self.survey(workspace, &mut tree, (rules, &plan), asks_for_writers).map_err(prepare)?;
        if needs.in_the_way.is_empty() {
            let done = self.carry_out(workspace, tree, rules, plan, &needs)?;
            return Ok(done.naming(stashes));
        }
        let nothing = park_all(&tree, needs.in_the_way);
        self.carry_out(workspace, tree, rules, nothing, &Needs::default())
    }

    /// Refuses a damaged layer. A parked layer whose files have other sizes than when it was parked was damaged, by a
    /// power cut for instance.
    pub(crate) fn check_whole(&self, tree: &LayerTree) -> Result<(), CommitError> {
        for node in tree.nodes.iter().filter(|node| node.role == Role::Entry && node.meta.kind == EntryType::File) {
            if self.recorded.size(&node.path.0).is_some_and(|size| size != node.meta.size) {
                return Err(CommitError::Damaged { run: self.run.clone(), path: node.path.text() });
            }
        }
        self.check_unaltered(tree)
    }

    /// Commits what was planned.
    pub(crate) fn carry_out(
        &self,
        workspace: &Workspace,
        tree: LayerTree,
        rules: &Rules,
        plan: CommitPlan,
        needs: &Needs,
    ) -> Result<Committed, CommitError> {
        let prepare = |source| CommitError::Prepare { run: self.run.clone(), source };
        if needs.steps == 0 {
            let CommitPlan { committed, parked, conflicts, .. } = plan;
            let changes = ChangeSet { changes: committed.lines(&tree, rules).collect() };
            let mut result = Committed { changes, conflicts, ..Committed::nothing() };
            if parked.len() == 0 {
                result.left.extend(remove_layer(&self.layers, &self.root, &self.run, &self.faults).map_err(prepare)?);
            } else {
                result.state = CommitState::Parked;
                result.parked = self.write_parked(workspace, tree, rules, &parked).map_err(prepare)?;
            }
            return Ok(result);
        }
        let slots = if tree.same_mount { SlotPlace::Layer } else { SlotPlace::Workspace };
        let journal = match self.decide(workspace, tree, rules, plan, needs) {
            Ok(journal) => journal,
            Err(source) => {
                // Nothing was decided. What was staged goes, if it can; the next try clears it otherwise.
                remove_slots(&self.root, workspace, &self.run, slots, &self.faults).ok();
                crate::beneath::unlink_if_there(self.root.fd(), NEW.as_bytes()).ok();
                return Err(prepare(source));
            }
        };
        let interrupted = |source| CommitError::Interrupted { run: self.run.clone(), source };
        self.faults.check(Step::SyncJournal).doing("sync", b"").map_err(interrupted)?;
        sync_directory(&self.root, &self.faults).map_err(interrupted)?;
        let folders = Folders { layers: &self.layers, root: &self.root, base: workspace, run: &self.run };
        let outcome = match roll_forward(&folders, &journal, &self.faults, false) {
            Ok(outcome) => outcome,
            Err(failure) if is_other_mount(&failure.source) && self.is_half_way().map_err(interrupted)? => {
                return self.take_back(workspace, rules, &journal, failure);
            }
            // Every step may be repeated, and most errors do not come twice.
            Err(_) => go_on(&folders, &journal, &self.faults).map_err(interrupted)?,
        };
        let Finished { committed, parked, conflicts, unwatched, left, stashes } = Finished::new(journal, outcome);
        let state = if committed.is_empty() { CommitState::Parked } else { CommitState::Committed };
        let changes = ChangeSet { changes: committed };
        Ok(Committed { state, changes, parked, conflicts, unwatched, left, stashes })
    }

    /// Keeps the layer for a review and says what is in it.
    pub fn park(&self, workspace: &Workspace, rules: &Rules) -> Result<ChangeSet, ParkError> {
        let io = |source| ParkError::Io { run: self.run.clone(), source };
        self.make_own().map_err(io)?;
        // Copies of an earlier try to commit.
        remove_slots(&self.root, workspace, &self.run, SlotPlace::Workspace, &self.faults).map_err(io)?;
        self.sync_upper().map_err(io)?;
        let changes = match self.read_folder(workspace, rules)? {
            Some(tree) => {
                let everything = Report::everything(&tree);
                self.write_parked(workspace, tree, rules, &everything)
            }
            None => self.park_as(Vec::<Change>::new()).map(|()| Vec::new()),
        };
        Ok(ChangeSet { changes: changes.map_err(io)? })
    }

    /// Removes the layer and everything in it. Returns what could not be removed.
    pub fn discard(self) -> Result<Option<Leftover>, DiscardError> {
        remove_layer(&self.layers, &self.root, &self.run, &self.faults)
            .map_err(|source| DiscardError { run: self.run.clone(), source })
    }

    /// Syncs the upper directory: a decision on the layer must be able to rely on its bytes after a power cut.
    fn sync_upper(&self) -> Result<(), IoFailure> {
        self.faults.check(Step::SyncLayer).doing("sync", b"upper")?;
        let upper = Workspace::from_fd(open_upper(&self.root).doing("open", b"upper")?);
        sync_tree(&upper, &self.faults)?;
        self.mark_whole()?;
        sync_directory(&self.root, &self.faults)
    }

    /// Reports that the layer lacks copies of git objects which its refs need; `None` where it has them all.
    #[must_use]
    pub fn missing_copies(&self) -> Option<String> {
        crate::commit::uncopied::in_words(&self.root)
    }

    /// Parks the layer with these changes, and returns them.
    fn write_parked(
        &self,
        workspace: &Workspace,
        tree: LayerTree,
        rules: &Rules,
        report: &Report,
    ) -> Result<Vec<Change>, IoFailure> {
        write_notes(&self.root, &tree, &self.faults)?;
        self.write_bases(workspace, &tree)?;
        self.park_as(report.written(&tree, rules))?;
        if report.len() <= IN_MEMORY {
            return Ok(report.lines(&tree, rules).collect());
        }
        // Not both in memory.
        drop(tree);
        let parked = read::<Parked>(&self.root, PARKED)?;
        parked
            .map(|parked| parked.changes.changes)
            .ok_or_else(|| io::Error::other("it is gone"))
            .doing("read", PARKED.as_bytes())
    }

    fn park_as(&self, changes: impl Serialize) -> Result<(), IoFailure> {
        self.faults.check(Step::Park).doing("park", b"")?;
        let parked = Parked {
            version: VERSION,
            mode: self.mode,
            started: self.started,
            clock: self.clock.clone(),
            top: self.top.clone(),
            ours: self.ours.clone(),
            changes: ParkedChanges { changes },
            unreached: true,
        };
        write(&self.root, PARKED, &parked, &self.faults)?;
        sync_directory(&self.root, &self.faults)?;
        // The layer's own name, which was made with the run.
        sync_directory(&self.layers, &self.faults)
    }

    /// Brings the layer to its directory, where no other user can reach it.
    fn make_own(&self) -> Result<(), IoFailure> {
        match &self.upper_fd {
            None => self.part_folder(),
            Some(upper) => self.copy_from_memory(upper),
        }
    }
}
