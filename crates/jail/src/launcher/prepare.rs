//! Opens the parts of the host that a sandbox gets, before the clone: the workspace with its layer, the binds.
//!
//! Root does it because only root can map file owners and have the full overlay; a launcher process, because its children
//! never see the host. Otherwise the child does it. All of it is detached mounts: descriptors, attached nowhere.

use crate::inside::image;
use crate::launcher::idmap::{Map, Maps, Others};
use crate::launcher::lists;
use crate::launcher::overlay_compat;
use crate::launcher::state::LauncherState;
use crate::memory;
use crate::mount_targets::{open_source, show};
use crate::mounts::{self, Depth, NODEV, NOSUID};
use crate::overlay;
use crate::overlay_watch;
use crate::request::{Prepared, Request};
use crate::steps::{AtStep, Step, StepError};
use nexus_model::plan::{Access, Writes};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::Path;

/// Opens what this launcher opens.
pub fn prepare(
    request: &Request<'_>,
    kept: &mut LauncherState,
    watch: Option<&OwnedFd>,
) -> Result<Prepared, StepError> {
    if !request.setup.identity.by_root && !kept.serves(request.plan) {
        return Ok(Prepared::default());
    }
    let faults = request.setup.faults;
    let mut host = Host { maps: &mut kept.maps, request };
    let workspace = &request.plan.workspace;
    let source = workspace.source.as_path();
    host.check(Step::IdMappedMounts)?;
    let others =
        if matches!(workspace.writes, Writes::Direct { .. }) { Others::Invalid } else { Others::LauncherState };
    let (lower, owner) = host.mount(source, None, others, NOSUID | NODEV).at(Step::IdMappedMounts, &show(source))?;
    let numbers = overlay::numbers(&lower);
    let (mount, upper, deferred) = match &workspace.writes {
        Writes::Direct { .. } => (lower, None, Vec::new()),
        Writes::Layer { root } => {
            let root = root.as_path();
            let layer = host.mount(root, Some(owner), others, NOSUID | NODEV);
            let (layer, _) = layer.at(Step::IdMappedMounts, &show(root))?;
            (overlaid(request, &lower, &layer, root)?, None, vec![lower, layer])
        }
        Writes::MemoryLayer { bytes } => {
            faults.check(Step::MountLayer)?;
            let (layer, upper) = host.memory_layer(*bytes, owner).at(Step::MountLayer, "a layer in memory")?;
            // Any directory but the workspace's will do as the place of a file system that has none.
            (overlaid(request, &lower, &layer, Path::new("/dev"))?, Some(upper), vec![lower, layer])
        }
    };
    if !matches!(workspace.writes, Writes::Direct { .. }) {
        overlay_watch::watch(watch, &mount);
    }
    let mut binds = Vec::with_capacity(request.plan.binds.len());
    for bind in &request.plan.binds {
        let attributes = mounts::attributes(bind.access);
        let path = bind.source.as_path();
        if bind.access.is_device() {
            // With its own owner: a device of root is not the command's.
            binds.push(open_source(path, attributes).at(Step::IdMappedMounts, &show(path))?);
            continue;
        }
        // What cannot be written needs no map of its own, which takes a process to make: that of the workspace does.
        let others = if bind.access == Access::ReadOnly { others } else { Others::Invalid };
        let mount = match host.mount(path, None, others, attributes) {
            // A file system that cannot map owners may still be looked at.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && bind.access == Access::ReadOnly => {
                open_source(path, attributes)
            }
            other => other.map(|(mount, _)| mount),
        };
        binds.push(mount.at(Step::IdMappedMounts, &show(path))?);
    }
    let image = request.plan.image.as_ref().map(|image| image.path.as_path());
    // With the owners of the host, who are the overflow user inside: it is only read.
    let image = image.map(|path| open_source(path, image::attributes()).at(Step::IdMappedMounts, &show(path)));
    let image = image.transpose()?;
    let identity = &request.setup.identity;
    let lists = if identity.by_root { lists::open(request.plan, &binds, identity) } else { Vec::new() };
    Ok(Prepared { workspace: Some(mount), numbers, binds: Some(binds), image, upper, deferred, lists })
}

fn overlaid(request: &Request<'_>, lower: &OwnedFd, layer: &OwnedFd, layer_place: &Path) -> Result<OwnedFd, StepError> {
    request.setup.faults.check(Step::RootOverlay)?;
    let open = |name: &str| mounts::place(layer, Path::new(name)).at(Step::RootOverlay, name);
    let (upper, work) = (open("upper")?, open("work")?);
    let parts = overlay::Parts { lower, upper: &upper, work: &work };
    let mount = || {
        if request.setup.identity.by_root {
            overlay::as_root(&parts, &request.setup.identity)
        } else {
            overlay::in_user_namespace(&parts)
        }
    };
    let refused = || io::Error::from_raw_os_error(libc::EINVAL);
    let detached = request.setup.faults.check(Step::DetachedLayers).map_err(|_| refused()).and_then(|()| mount());
    let mounted = match detached {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let places = [(lower, request.plan.workspace.source.as_path()), (layer, layer_place)];
            overlay_compat::mount_apart(&places, mount)
        }
        other => other,
    };
    mounted.at(Step::RootOverlay, "the overlay of the workspace")
}

/// The host's side of a launch.
struct Host<'a> {
    maps: &'a mut Maps,
    request: &'a Request<'a>,
}

/// uid and gid of a file.
type Owner = (u32, u32);

impl Host<'_> {
    fn check(&self, step: Step) -> Result<(), StepError> {
        self.request.setup.faults.check(step)
    }

    /// A host path with its owner, or another given one, shown as the sandbox's user. Also tells who owns the path.
    fn mount(
        &mut self,
        path: &Path,
        shown: Option<Owner>,
        others: Others,
        attributes: u64,
    ) -> io::Result<(OwnedFd, Owner)> {
        let place = mounts::open_canonical(path)?;
        let stat = rustix::fs::fstat(&place)?;
        let owner = (stat.st_uid, stat.st_gid);
        let mount = if self.request.setup.identity.by_root {
            let userns = self.namespace(shown.unwrap_or(owner), others)?;
            mounts::open_tree_mapped(place, userns.as_fd(), attributes, Depth::Recursive)?
        } else {
            mounts::open_tree_fd(place, attributes, Depth::Recursive)?
        };
        Ok((mount, owner))
    }

    fn namespace(&mut self, from: Owner, others: Others) -> io::Result<&OwnedFd> {
        let identity = &self.request.setup.identity;
        // Travels inside the io::Error, so that `at` of the caller keeps the step that really failed.
        self.request.setup.faults.check(Step::IdMapNamespace).map_err(io::Error::other)?;
        let to = (identity.outer_uid, identity.outer_gid);
        let made = self.maps.namespace(Map { from, to, others });
        made.at(Step::IdMapNamespace, "a user namespace that maps file owners").map_err(io::Error::other)
    }

    fn memory_layer(&mut self, bytes: u64, owner: Owner) -> io::Result<(OwnedFd, OwnedFd)> {
        let plain = memory::filesystem(bytes)?;
        let by_root = self.request.setup.identity.by_root;
        let workspace = mounts::open_canonical(self.request.plan.workspace.source.as_path())?;
        memory::make_directories(&plain, &workspace, by_root)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let upper = rustix::fs::openat(&plain, c"upper", flags, Mode::empty())?;
        if !by_root {
            return Ok((plain, upper));
        }
        // A mount that has an opened directory cannot get a map: this one is new, and the map comes before any use.
        let userns = self.namespace(owner, Others::LauncherState)?;
        let mapped = mounts::open_tree_mapped(&plain, userns, NOSUID | NODEV, Depth::One)?;
        Ok((mapped, upper))
    }
}
