//! Shows a command the control groups that limit it.

use crate::cgroup::Group;
use crate::inside::rootfs::Root;
use crate::mount_targets::{self, show};
use crate::mounts::{self, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::request::Request;
use crate::steps::{AtStep, Step, StepError};
use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The control groups of this run as read-only mounts, each with its place inside. On a template the host's paths are gone,
/// and limits cannot be seen inside.
pub(super) fn open(request: &Request<'_>) -> Result<Vec<(PathBuf, OwnedFd)>, StepError> {
    request.setup.faults.check(Step::ShowLimits)?;
    let shown = request.group.map_or_else(Vec::new, Group::shown);
    let open = |(source, name): (&Path, &str)| {
        let mount =
            mount_targets::open_source(source, RDONLY | NOSUID | NODEV | NOEXEC).at(Step::ShowLimits, &show(source))?;
        Ok((Path::new("sys/fs/cgroup").join(name), mount))
    };
    shown.into_iter().map(open).collect()
}

/// Programs that size themselves look for their limits there. Nothing else of `/sys` is shown.
pub(super) fn attach(root: &Root, limits: Vec<(PathBuf, OwnedFd)>) -> Result<(), StepError> {
    for (target, mount) in limits {
        let place = root.place_for(&target, true).at(Step::ShowLimits, &show(&target))?;
        mounts::attach(mount, place).at(Step::ShowLimits, &show(&target))?;
    }
    Ok(())
}
