//! Opens the workspace of a sandbox and mounts it: directly, or as a layer over it.

use crate::inside::rootfs::Root;
use crate::mount_targets::{self, below_root, show};
use crate::mounts::{self, Depth, NODEV, NOSUID, RDONLY};
use crate::request::Request;
use crate::steps::{AtStep, Step, StepError};
use crate::{memory, overlay, overlay_watch};
use nexus_channel::frames::GuestFrame;
use nexus_model::ByteText;
use nexus_model::moving::Numbers;
use nexus_model::plan::Writes;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The workspace as it was opened.
pub(super) enum Workspace {
    /// Ready to be attached.
    Mount(OwnedFd),
    /// Directories of a user's overlay, and the watch on it.
    Lower { lower: OwnedFd, layer: Option<(OwnedFd, OwnedFd)>, watch: Option<OwnedFd> },
}

impl Workspace {
    /// Returns what tells the files of the directory below apart; `None` where this process has not opened it.
    pub(super) fn numbers(&self) -> Option<Numbers> {
        match self {
            Self::Mount(_) => None,
            Self::Lower { lower, .. } => Some(overlay::numbers(lower)),
        }
    }
}

pub(super) fn open(
    request: &Request<'_>,
    ready: Option<OwnedFd>,
    watch: Option<OwnedFd>,
) -> Result<Workspace, StepError> {
    request.setup.faults.check(Step::OpenWorkspace)?;
    if let Some(mount) = ready {
        return Ok(Workspace::Mount(mount));
    }
    let workspace = &request.plan.workspace;
    let source = workspace.source.as_path();
    let at = |error: io::Error| StepError::os(Step::OpenWorkspace, error, show(source));
    match &workspace.writes {
        Writes::Direct { .. } => mount_targets::open_source(source, NOSUID | NODEV).map(Workspace::Mount).map_err(at),
        Writes::MemoryLayer { .. } => {
            // The layer is still to be made.
            Ok(Workspace::Lower { lower: mounts::open_canonical(source).map_err(at)?, layer: None, watch })
        }
        Writes::Layer { root } => {
            let lower = mounts::open_canonical(source).map_err(at)?;
            let layer = mounts::open_canonical(root.as_path()).map_err(at)?;
            let open = |name: &str| mounts::place(&layer, Path::new(name));
            let layer = Some((open("upper").map_err(at)?, open("work").map_err(at)?));
            Ok(Workspace::Lower { lower, layer, watch })
        }
    }
}

pub(super) fn attach(
    request: &Request<'_>,
    root: &Root,
    workspace: Workspace,
    channel: &OwnedFd,
) -> Result<(), StepError> {
    let faults = request.setup.faults;
    let target = request.plan.workspace.target.as_path();
    let mut memory = None;
    let mount = match workspace {
        Workspace::Mount(mount) => mount,
        Workspace::Lower { lower, layer, watch } => {
            let (upper, work) = match layer {
                Some(directories) => directories,
                None => memory.insert(MemoryLayer::make(request, root.own(), &lower)?).directories()?,
            };
            let parts = overlay::Parts { lower: &lower, upper: &upper, work: &work };
            faults.check(Step::MountWorkspace)?;
            let mount = overlay::in_user_namespace(&parts).at(Step::MountWorkspace, "the overlay of the workspace")?;
            overlay_watch::watch(watch.as_ref(), &mount);
            if memory.is_some() {
                faults.check(Step::SendLayer)?;
                let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let upper = rustix::fs::openat(&upper, c".", readable, Mode::empty()).at(Step::SendLayer, "upper")?;
                (request.setup.report)(channel, &GuestFrame::Layer, &[upper.as_fd()]).at(Step::SendLayer, "channel")?;
            }
            mount
        }
    };
    faults.check(Step::MountWorkspace)?;
    let place = root.place_for(below_root(target), true).at(Step::MountWorkspace, &show(target))?;
    mounts::attach(mount, place).at(Step::MountWorkspace, &show(target))?;
    if let Some(memory) = memory {
        memory.hide(root.own())?;
    }
    if let Writes::Direct { protected } = &request.plan.workspace.writes {
        let covered: Vec<&Path> = protected.iter().chain(&request.plan.hidden).map(ByteText::as_path).collect();
        if !covered.is_empty() {
            faults.check(Step::ProtectNames)?;
        }
        // Each directory above a covered name once, those further up first: no process renames one away and puts another in
        // its place.
        let above = |path: &&'_ Path| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
        let pinned: BTreeSet<PathBuf> = covered.iter().flat_map(above).filter(|one| *one != Path::new("")).collect();
        for directory in pinned {
            mount_on_itself(root.tree(), &below_root(target).join(directory), NOSUID | NODEV, Step::ProtectNames)?;
        }
        for name in protected {
            mount_on_itself(
                root.tree(),
                &below_root(target).join(name.as_path()),
                RDONLY | NOSUID | NODEV,
                Step::ProtectNames,
            )?;
        }
    }
    Ok(())
}

/// A layer on a tmpfs of its own inside the sandbox: its size is a hard limit that needs no rights.
struct MemoryLayer(OwnedFd);

const LAYER_PLACE: &str = "layer";

impl MemoryLayer {
    fn make(request: &Request<'_>, root: &OwnedFd, workspace: &OwnedFd) -> Result<Self, StepError> {
        request.setup.faults.check(Step::MountLayer)?;
        let Writes::MemoryLayer { bytes } = &request.plan.workspace.writes else {
            return Err(StepError::new(Step::MountLayer, "no layer in memory was planned"));
        };
        let make = || -> io::Result<OwnedFd> {
            let mount = memory::filesystem(*bytes)?;
            mounts::attach(&mount, mount_targets::ensure_place(root, Path::new(LAYER_PLACE), true)?)?;
            memory::make_directories(&mount, workspace, false)?;
            Ok(mount)
        };
        make().at(Step::MountLayer, "a layer in memory").map(Self)
    }

    fn directories(&self) -> Result<(OwnedFd, OwnedFd), StepError> {
        let open = |name: &str| mounts::place(&self.0, Path::new(name)).at(Step::MountLayer, name);
        Ok((open("upper")?, open("work")?))
    }

    /// The overlay keeps it; the command must not see it.
    fn hide(self, root: &OwnedFd) -> Result<(), StepError> {
        let hide = || -> io::Result<()> {
            rustix::mount::unmount(mounts::fd_path(&self.0), rustix::mount::UnmountFlags::DETACH)?;
            drop(self);
            Ok(rustix::fs::unlinkat(root, LAYER_PLACE, AtFlags::REMOVEDIR)?)
        };
        hide().at(Step::MountLayer, "hiding the layer in memory")
    }
}

/// Mounts an existing path of a directly written workspace or of a bind on itself, read-only or to pin it: what is mounted on cannot be
/// renamed or removed. A symbolic link is mounted on itself as well, and leads where it did.
pub(super) fn mount_on_itself(root: &OwnedFd, path: &Path, attributes: u64, step: Step) -> Result<(), StepError> {
    let one = || -> io::Result<()> {
        let place = mounts::place(root, path)?;
        let copy = mounts::open_tree_fd(&place, attributes, Depth::Recursive)?;
        mounts::attach(copy, place)
    };
    one().at(step, &show(path))
}
