//! Covers what the command must not reach in what is shown to it.

use crate::inside::rootfs::Root;
use crate::leave_out::{Wall, stands};
use crate::mounts::{self, Depth, NODEV, NOSUID, RDONLY};
use crate::places::{self, below_root, show};
use crate::request::Request;
use crate::steps::{AtStep, Step, StepError};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Covers paths of the workspace with an empty file or directory that no process inside may open. The cover is
/// read-only, so that its owner, who is the user inside, cannot give himself the right.
pub(super) fn hide_paths(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    for own in hidden(request) {
        let target = below_root(&own);
        match cover(root, target) {
            // Another directory was bound over the one that has it. A bind of the workspace's own is refused.
            Err(error) if is_absent(&error) && binds_over(request, &own) > 0 => {}
            covered => covered.at(Step::HidePaths, &show(target))?,
        }
    }
    Ok(())
}

/// Covers sockets in binds in the same way: a mount that cannot be written does not keep anybody from connecting.
pub(super) fn cover_sockets(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    for path in &request.plan.covered {
        // What is hidden is covered anyway.
        if hidden(request).any(|hidden| path.as_path().starts_with(hidden)) {
            continue;
        }
        let target = below_root(path.as_path());
        match cover(root, target) {
            // Gone since the launcher looked, or another bind lies over the directory that has it. A run beside this one that
            // renames it meanwhile, in a directory that both may write, takes it out of reach of the cover (THREAT_MODEL).
            Err(error) if is_absent(&error) => {}
            covered => covered.at(Step::HidePaths, &show(target))?,
        }
    }
    Ok(())
}

fn hidden<'a>(request: &'a Request<'_>) -> impl Iterator<Item = PathBuf> + 'a {
    request.plan.hidden.iter().map(|path| request.plan.workspace.target.as_path().join(path.as_path()))
}

/// Returns the number of binds that lie over a path.
fn binds_over(request: &Request<'_>, path: &Path) -> usize {
    request.plan.binds.iter().filter(|bind| path.starts_with(bind.target.as_path())).count()
}

/// Reports whether nothing is at a path, or something else than a directory on the way to it.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || [Errno::NOTDIR, Errno::LOOP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

pub(super) fn make(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    request.setup.faults.check(Step::HidePaths)?;
    let at = |error: io::Error, path: &Path| StepError::os(Step::HidePaths, error, show(path));
    for (name, is_dir) in COVERS {
        let name = Path::new(name);
        places::ensure_place(root.own(), name, is_dir).map_err(|error| at(error, name))?;
        rustix::fs::chmodat(root.own(), name, Mode::empty(), AtFlags::empty())
            .map_err(|error| at(error.into(), name))?;
    }
    Ok(())
}

/// The covers stay where they are attached; their names would only raise questions.
pub(super) fn remove(root: &Root) -> Result<(), StepError> {
    let at = |error: io::Error, path: &Path| StepError::os(Step::HidePaths, error, show(path));
    for (name, is_dir) in COVERS {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(root.own(), name, flags).map_err(|error| at(error.into(), Path::new(name)))?;
    }
    Ok(())
}

/// An empty file and an empty directory, with the names that they have while they are attached.
const COVERS: [(&str, bool); 2] = [("hidden-file", false), ("hidden-folder", true)];

fn cover(root: &Root, target: &Path) -> io::Result<()> {
    let place = mounts::place(root.tree(), target)?;
    let (name, _) = COVERS[usize::from(places::is_dir(&place)?)];
    let copy = mounts::open_tree_at(root.own(), Path::new(name))?;
    let read_only = if stands(Wall::HiddenCovers) { RDONLY } else { 0 };
    mounts::set_attributes(&copy, read_only | NOSUID | NODEV, Depth::One)?;
    mounts::attach(copy, place)
}
