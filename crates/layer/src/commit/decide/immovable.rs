//! Finds, before a commit is decided, the entries that the file system refuses to rename although layer and workspace are on one
//! mount.
//!
//! rename(2) fails with EXDEV also within a mount:
//! * between subvolumes of btrfs, which have different device numbers;
//! * into a directory of another project (ext4, XFS, f2fs) or with another encryption policy (fscrypt);
//! * for a directory that an overlay without `redirect_dir` has from a lower layer.
//!
//! ```text
//!  a directory of the workspace is apart from the layer  ─▶ the commit copies, as from another file system
//!  it is apart from the workspace's top too              ─▶ conflict: nothing is moved, and the directory is named
//!  a directory that has to leave its place cannot        ─▶ conflict: the same
//! ```
//! What is not found here, for instance a single file of another project, is found by a step. The commit is then taken
//! back, and the path of that step is the conflict.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, proc_path, split, unlink_if_there};
use crate::decide::plan::{CommitPlan, State};
use crate::entries::changes::{Conflict, Outside};
use crate::entries::tree::{LayerTree, Lower};
use crate::journal::file::SlotPlace;
use crate::journal::seen::Seen;
use crate::journal::step::{Put, Step};
use crate::meta::{EntryType, stat, stat_if_there};
use crate::moves::rename_calls::{Spot, move_to_free};
use crate::staging::stage::{StagingTrees, remove_slots, slots_at};
use nexus_model::ByteText;
use rustix::fs::{AtFlags, CWD, IFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Detail of a conflict: the directory of a change is apart from the workspace.
const APART: &str = "the file system moves nothing between it and the rest of the workspace (another subvolume, project or \
                     encryption policy)";
/// Detail of a conflict: a directory cannot leave its place.
const UNMOVABLE: &str =
    "the file system cannot move this directory (an overlay that has it from a lower layer, for instance)";

/// Marks a directory with an encryption policy (`FS_ENCRYPT_FL`), which rustix has no name for.
const ENCRYPTED: IFlags = IFlags::from_bits_retain(0x800);
/// The name in the layer's or the staging directory under which a file without a name is tried.
const TRIED: &[u8] = b"tried";

/// Tries moves between the workspace and the place where a commit stages, without moving anything.
pub(crate) struct Trial<'a> {
    stage: StagingTrees<'a>,
    /// The directory of all layers.
    layers: &'a Workspace,
    place: SlotPlace,
    /// The staging directory in the workspace, once it was needed.
    made: Option<OwnedFd>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(stage: StagingTrees<'a>, layers: &'a Workspace, place: SlotPlace) -> Self {
        Self { stage, layers, place, made: None }
    }

    /// Makes the staging directory, if the commit needs one in the workspace. It is never empty.
    fn begin(&mut self) -> Result<(), IoFailure> {
        if self.place == SlotPlace::Workspace && self.made.is_none() {
            self.made = Some(self.stage.make_directory(self.place)?);
        }
        Ok(())
    }

    /// Removes what was made.
    pub(crate) fn end(self) -> Result<(), IoFailure> {
        if self.made.is_none() {
            return Ok(());
        }
        let StagingTrees { root, base, run, faults, .. } = self.stage;
        remove_slots(root, base, run, self.place, faults).map(drop)
    }

    /// The directory that the workspace's are compared with.
    fn reference(&self) -> BorrowedFd<'a> {
        match self.place {
            SlotPlace::Layer => self.stage.root.fd(),
            SlotPlace::Workspace => self.stage.base.fd(),
        }
    }

    /// Lists those of some directories of the workspace that are apart from the place where the commit stages, but for what
    /// is in another one of them. One that cannot be read counts as not apart.
    fn apart<'p>(&mut self, all: &'p ActedIn) -> Result<Vec<&'p [u8]>, IoFailure> {
        let device = stat(self.reference(), b"").doing("look at", b"")?.dev;
        let bounds = bounds_of(self.reference());
        let mut found: Vec<&[u8]> = Vec::new();
        for (path, of_directory) in all {
            if !found.iter().any(|one| is_beneath(path, one))
                && (of_directory.is_some_and(|one| one != device) || self.is_bound(path, (device, bounds))?)
            {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Reports whether a directory has another device, project or encryption policy than the place with these properties.
    fn is_bound(&mut self, path: &[u8], (device, others): ((u32, u32), IFlags)) -> Result<bool, IoFailure> {
        let Ok(dir) = self.stage.base.readable_dir(path) else { return Ok(false) };
        if stat(dir.as_fd(), b"").doing("look at", path)?.dev != device {
            return Ok(true);
        }
        let own = bounds_of(dir.as_fd());
        match () {
            () if !others.contains(own) => Ok(true),
            () if others.is_empty() => Ok(false),
            () => self.refuses_a_file_of(dir.as_fd()),
        }
    }

    /// Reports whether a file which was made in a directory may have no name where the commit stages.
    fn refuses_a_file_of(&mut self, dir: BorrowedFd<'_>) -> Result<bool, IoFailure> {
        self.begin()?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(dir, ".", flags, Mode::from_raw_mode(0o600)) else { return Ok(false) };
        let to = self.made.as_ref().map_or(self.stage.root.fd(), OwnedFd::as_fd);
        let linked = rustix::fs::linkat(CWD, proc_path(file.as_fd()), to, TRIED, AtFlags::SYMLINK_FOLLOW);
        unlink_if_there(to, TRIED).doing("remove", TRIED)?;
        Ok(linked == Err(Errno::XDEV))
    }

    /// Returns the conflict for a step that has to move a directory which cannot be moved.
    pub(crate) fn refuses(&mut self, step: &Step) -> Result<Option<Conflict>, IoFailure> {
        let (at, old) = match step {
            Step::Take { at, old, .. } => (at, old),
            Step::Put(Put { path, old: Some(old), .. }) => (path, old),
            Step::Put(_) | Step::Hold { .. } | Step::Strip { .. } | Step::SetDir(_) => return Ok(None),
        };
        if old.kind != EntryType::Directory || !self.refuses_directory(&at.0, old)? {
            return Ok(None);
        }
        let conflict = Conflict::new(at.clone(), Outside::Blocked);
        Ok(Some(Conflict { detail: Some(UNMOVABLE.to_owned()), ..conflict }))
    }

    /// Asks for a rename over a directory that is not empty, which every file system refuses. One that would refuse the
    /// move says so first.
    fn refuses_directory(&mut self, path: &[u8], old: &Seen) -> Result<bool, IoFailure> {
        let (parent, name) = split(path);
        // In a renamed directory it has another place; the step itself looks then.
        let Ok(dir) = self.stage.base.dir(parent) else { return Ok(false) };
        let is_it = |dir: BorrowedFd<'_>| stat_if_there(dir, name).ok().flatten().is_some_and(|now| now.id == old.id);
        if !is_it(dir.as_fd()) {
            return Ok(false);
        }
        self.begin()?;
        let (tree, target) = match self.place {
            SlotPlace::Layer => (self.layers, self.stage.run.to_owned()),
            SlotPlace::Workspace => slots_at(self.stage.root, self.stage.base, self.stage.run, self.place),
        };
        let target = target.as_bytes();
        match rustix::fs::renameat(dir.as_fd(), name, tree.fd(), target) {
            Err(Errno::XDEV) => Ok(true),
            Err(_) => Ok(false),
            // Another process removed the layer or the staging directory in this moment.
            Ok(()) => {
                let (from, to) = (Spot { dir: tree.fd(), name: target }, Spot { dir: dir.as_fd(), name });
                move_to_free(from, to, self.stage.faults).doing("put back", path)?;
                Ok(false)
            }
        }
    }
}

/// Reads the properties by which a file system keeps directories apart. One that knows none has none.
fn bounds_of(dir: BorrowedFd<'_>) -> IFlags {
    let all = rustix::fs::ioctl_getflags(dir).unwrap_or(IFlags::empty());
    all & (IFlags::PROJECT_INHERIT | ENCRYPTED)
}

/// Directories of the workspace, with their devices as far as these were seen.
pub(crate) type ActedIn = BTreeMap<Vec<u8>, Option<(u32, u32)>>;

/// Lists the directories of the workspace that the steps of a plan take entries from or bring entries to.
pub(crate) fn acted_in(tree: &LayerTree, plan: &CommitPlan) -> ActedIn {
    let mut all = ActedIn::new();
    for (at, _) in plan.states.iter().flatten().enumerate().skip(1).filter(|(_, state)| **state == State::Commit) {
        let node = &tree.nodes[at];
        if let Lower::Merged(found) | Lower::Moved(found) = &tree.nodes[node.parent].rare.lower {
            all.insert(found.at.0.to_vec(), Some(found.meta.dev));
        }
        if let Lower::Moved(found) = &node.rare.lower {
            all.entry(split(&found.at.0).0.to_vec()).or_default();
        }
    }
    for other in tree.groups.iter().flat_map(|group| &group.others) {
        all.entry(split(&other.at.0).0.to_vec()).or_default();
    }
    all
}

/// Notes in the tree if the layer is apart from a directory that the plan acts in. Returns a conflict for each of these that
/// is apart from the workspace's top as well.
pub(crate) fn inspect<'a>(
    tree: &mut LayerTree,
    plan: &CommitPlan,
    trial: impl Fn(SlotPlace) -> Trial<'a>,
) -> Result<Vec<Conflict>, IoFailure> {
    let all = acted_in(tree, plan);
    let apart = |place| {
        let mut trial = trial(place);
        let found = trial.apart(&all);
        trial.end()?;
        found
    };
    if tree.same_mount && apart(SlotPlace::Layer)?.is_empty() {
        return Ok(Vec::new());
    }
    tree.same_mount = false;
    let conflict = |path: &[u8]| {
        let conflict = Conflict::new(ByteText(path.to_vec()), Outside::Blocked);
        Conflict { detail: Some(APART.to_owned()), ..conflict }
    };
    Ok(apart(SlotPlace::Workspace)?.into_iter().map(conflict).collect())
}
