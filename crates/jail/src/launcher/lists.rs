//! Opens directories whose names a sandbox of root may use and not list, so that it can list them again when its covers are there.
//!
//! A descriptor keeps the right to list that it was opened with (open(2)). A directory that has none is refused by the second search
//! if a name in it changes while the sandbox is set up.

use nexus_model::plan::{EnteredOnly, Plan};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::path::Path;

/// Directories that are opened: the launcher has 1,024 descriptors unless its limit was raised.
const MAX: usize = 128;

/// Opens the directories of a plan that its first search listed and that the command may only enter.
pub(super) fn open(plan: &Plan) -> Vec<OwnedFd> {
    let entered = plan.second_search.iter().flat_map(|search| &search.entered);
    entered.take(MAX).filter_map(|directory| open_one(plan, directory)).collect()
}

fn open_one(plan: &Plan, directory: &EnteredOnly) -> Option<OwnedFd> {
    let path = directory.path.as_path();
    let over = plan.binds.iter().filter(|bind| path.starts_with(bind.target.as_path()));
    let bind = over.max_by_key(|bind| bind.target.as_path().components().count())?;
    let below = path.strip_prefix(bind.target.as_path()).ok()?;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let source = crate::mounts::open_canonical(bind.source.as_path()).ok()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(source, below, flags, Mode::empty(), resolve).ok()
}
