//! Opens directories whose names a sandbox of root may use and not list, so that it can list them again when its covers are there.
//!
//! A descriptor keeps the right to list that it was opened with (open(2)). A directory that has none is refused by the second search
//! if a name in it changes while the sandbox is set up.

use nexus_model::plan::{EnteredOnly, Plan};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Directories that stay open at most.
const MAX: u64 = 128;

/// Opens the directories of a plan that its first search listed and that the command may only enter, as far as the launcher has
/// descriptors to spare.
pub(super) fn open(plan: &Plan) -> Vec<OwnedFd> {
    let entered = plan.second_search.iter().flat_map(|search| &search.entered);
    // Each bind takes one, too.
    let free = |limit: u64| limit.saturating_sub(plan.binds.len() as u64) / 8;
    let max = getrlimit(Resource::Nofile).current.map_or(MAX, |limit| MAX.min(free(limit)));
    let opened = entered.filter_map(|directory| open_one(plan, directory));
    opened.take(usize::try_from(max).unwrap_or_default()).collect()
}

fn open_one(plan: &Plan, directory: &EnteredOnly) -> Option<OwnedFd> {
    let path = directory.path.as_path();
    let over = plan.binds.iter().filter(|bind| path.starts_with(bind.target.as_path()));
    let bind = over.max_by_key(|bind| bind.target.as_path().components().count())?;
    let below = path.strip_prefix(bind.target.as_path()).ok()?;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let source = crate::mounts::open_canonical(bind.source.as_path()).ok()?;
    let owner = rustix::fs::fstat(&source).ok()?.st_uid;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(source, below, flags, Mode::empty(), resolve).ok()?;
    (!is_listed_inside(&opened, owner)).then_some(opened)
}

/// Reports whether the command lists a directory by its own right: the owner of what is bound is the user inside.
fn is_listed_inside(directory: &OwnedFd, owner: u32) -> bool {
    rustix::fs::fstat(directory).is_ok_and(|stat| stat.st_uid == owner && stat.st_mode & 0o500 == 0o500)
}
