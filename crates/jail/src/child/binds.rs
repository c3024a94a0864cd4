//! Opens the binds of a sandbox and mounts them.

use super::Request;
use crate::leave_out::{Wall, stands};
use crate::mounts::{self, NODEV, NOSUID, RDONLY};
use crate::places::{self, below_root, show};
use crate::rootfs::Root;
use crate::steps::{AtStep, Step, StepError};
use nexus_model::plan::Access;
use rustix::fd::OwnedFd;
use std::path::Path;

pub(super) fn open(request: &Request<'_>, ready: Option<Vec<OwnedFd>>) -> Result<Vec<OwnedFd>, StepError> {
    request.setup.faults.check(Step::OpenBinds)?;
    if let Some(binds) = ready {
        return Ok(binds);
    }
    request
        .plan
        .binds
        .iter()
        .map(|bind| {
            places::open_source(bind.source.as_path(), attributes(bind.access))
                .at(Step::OpenBinds, &show(bind.source.as_path()))
        })
        .collect()
}

/// What a bound path may never be, whoever binds it.
pub fn attributes(access: Access) -> u64 {
    match access {
        Access::ReadOnly if !stands(Wall::ReadOnlyBinds) => NOSUID | NODEV,
        Access::ReadOnly => RDONLY | NOSUID | NODEV,
        Access::ReadWrite => NOSUID | NODEV,
    }
}

pub(super) fn attach(request: &Request<'_>, root: &Root, binds: Vec<OwnedFd>) -> Result<(), StepError> {
    request.setup.faults.check(Step::MountBinds)?;
    let workspace = request.plan.workspace.target.as_path();
    let mut pairs: Vec<_> = request.plan.binds.iter().zip(binds).collect();
    // A folder before what lies inside it.
    pairs.sort_by(|a, b| a.0.target.0.cmp(&b.0.target.0));
    let mut done: Vec<&Path> = vec![workspace];
    for (bind, mount) in pairs {
        let target = bind.target.as_path();
        let name = show(target);
        let inside_another = done.iter().any(|other| target.starts_with(other));
        let place = if inside_another {
            // Never make a mount point in a folder of the user.
            mounts::place(root.tree(), below_root(target))
        } else {
            root.place_for(below_root(target), places::is_dir(&mount).at(Step::MountBinds, &name)?)
        };
        mounts::attach(mount, place.at(Step::MountBinds, &name)?).at(Step::MountBinds, &name)?;
        done.push(target);
    }
    Ok(())
}
