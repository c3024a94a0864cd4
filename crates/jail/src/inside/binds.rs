//! Opens the binds of a sandbox and mounts them.

use crate::inside::birth::Identity;
use crate::inside::pins;
use crate::inside::rootfs::Root;
use crate::inside::workspace::mount_on_itself;
use crate::mount_targets::{self, below_root, show};
use crate::mounts::{self, NODEV, NOSUID};
use crate::request::Request;
use crate::steps::{AtStep, Step, StepError};
use nexus_model::plan::Access;
use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
            mount_targets::open_source(bind.source.as_path(), mounts::attributes(bind.access))
                .at(Step::OpenBinds, &show(bind.source.as_path()))
        })
        .collect()
}

/// Mounts the binds. The directories between a bind and what it lies in are pinned where the command may write there: it would
/// rename one of them, with the bind, and put another in its place, which the host has under the name of what was bound. So are
/// those above what is to be covered: their identities are returned.
pub(super) fn attach(request: &Request<'_>, root: &Root, binds: Vec<OwnedFd>) -> Result<BTreeSet<Identity>, StepError> {
    request.setup.faults.check(Step::MountBinds)?;
    let workspace = request.plan.workspace.target.as_path();
    let mut pairs: Vec<_> = request.plan.binds.iter().zip(binds).collect();
    // A directory before what lies inside it.
    pairs.sort_by(|a, b| a.0.target.0.cmp(&b.0.target.0));
    let mut done = vec![(workspace, Access::ReadWrite)];
    let mut pinned = BTreeSet::new();
    let above_covers = pins::find(request);
    let mut held = BTreeSet::new();
    for (bind, mount) in pairs {
        let target = bind.target.as_path();
        let name = show(target);
        if let Access::Device { major, minor } = bind.access {
            check_device(&mount, (major, minor), &name)?;
        }
        let outer =
            done.iter().filter(|(other, _)| target.starts_with(other)).max_by_key(|(other, _)| other.as_os_str().len());
        if let Some((outer, Access::ReadWrite)) = outer {
            for directory in between(outer, target) {
                if !pinned.contains(&directory) {
                    mount_on_itself(root.tree(), below_root(&directory), NOSUID | NODEV, Step::MountBinds)?;
                    pinned.insert(directory);
                }
            }
        }
        let place = if outer.is_some() {
            // Never make a mount point in a directory of the user.
            mounts::place(root.tree(), below_root(target))
        } else {
            root.place_for(below_root(target), mount_targets::is_dir(&mount).at(Step::MountBinds, &name)?)
        };
        mounts::attach(mount, place.at(Step::MountBinds, &name)?).at(Step::MountBinds, &name)?;
        if let Some(directories) = above_covers.get(target) {
            pins::hold(root, target, directories, &mut held).at(Step::MountBinds, &name)?;
        }
        done.push((target, bind.access));
    }
    Ok(held)
}

/// Refuses another device than the one that was allowed: that one was looked at by its path, before it was opened.
fn check_device(mount: &OwnedFd, allowed: (u32, u32), name: &str) -> Result<(), StepError> {
    let stat = rustix::fs::fstat(mount).at(Step::MountBinds, name)?;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if number == allowed => Ok(()),
        FileType::CharacterDevice => {
            let ((major, minor), (now_major, now_minor)) = (allowed, number);
            let message = format!("{name} is the device {now_major}:{now_minor} now, and {major}:{minor} was allowed");
            Err(StepError::new(Step::MountBinds, message))
        }
        _ => Err(StepError::new(Step::MountBinds, format!("{name} is not a character device any more"))),
    }
}

/// The directories below `outer` and above `inner`, those further up first.
fn between(outer: &Path, inner: &Path) -> Vec<PathBuf> {
    let above = inner.ancestors().skip(1).take_while(|directory| *directory != outer && directory.starts_with(outer));
    let mut found: Vec<_> = above.map(Path::to_owned).collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_between_two_mounts_are_found_from_above() {
        let found = |outer: &str, inner: &str| between(Path::new(outer), Path::new(inner));
        assert_eq!(found("/d", "/d/a/b/c"), [PathBuf::from("/d/a"), "/d/a/b".into()]);
        for (outer, inner) in [("/d", "/d/a"), ("/d", "/d"), ("/d/x", "/d/a/b")] {
            assert_eq!(found(outer, inner), Vec::<PathBuf>::new(), "{outer} {inner}");
        }
    }
}
