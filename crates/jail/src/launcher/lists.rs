//! Opens directories whose names a sandbox of root may use and not list, so that it can list them again when its covers are there.
//!
//! A descriptor keeps the right to list that it was opened with (open(2)). A directory that has none is refused by the second search
//! if a name in it changes while the sandbox is set up.

use crate::identity::Identity;
use nexus_model::plan::{EnteredOnly, Plan};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Directories that stay open at most.
const MAX: usize = 128;
/// Descriptors that the set-up may take beside those that are open when the last directory is opened. The smallest sandbox takes 50.
const RESERVE: u64 = 64;

/// Opens the directories of a plan that its first search listed and that the command may only enter, as far as the launcher has
/// descriptors to spare. `mounts` are those of the plan's binds.
pub(super) fn open(plan: &Plan, mounts: &[OwnedFd], identity: &Identity) -> Vec<OwnedFd> {
    let entered = plan.second_search.iter().flat_map(|search| &search.entered);
    let limit = getrlimit(Resource::Nofile).current;
    let opened = entered.filter_map(|directory| open_one(plan, mounts, identity, directory));
    opened.take(MAX).take_while(|directory| leaves_room(directory.as_raw_fd(), limit)).collect()
}

/// Reports whether the set-up has enough descriptors when this one stays open. The kernel gives the lowest free number.
fn leaves_room(number: i32, limit: Option<u64>) -> bool {
    limit.is_none_or(|limit| u64::try_from(number).is_ok_and(|number| number + RESERVE < limit))
}

fn open_one(plan: &Plan, mounts: &[OwnedFd], identity: &Identity, directory: &EnteredOnly) -> Option<OwnedFd> {
    let path = directory.path.as_path();
    let over = plan.binds.iter().zip(mounts).filter(|(bind, _)| path.starts_with(bind.target.as_path()));
    let (bind, mount) = over.max_by_key(|(bind, _)| bind.target.as_path().components().count())?;
    let below = path.strip_prefix(bind.target.as_path()).ok()?;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let source = crate::mounts::open_canonical(bind.source.as_path()).ok()?;
    let (outside, inside) = (rustix::fs::fstat(&source).ok()?.st_uid, rustix::fs::fstat(mount).ok()?.st_uid);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(source, below, flags, Mode::empty(), resolve).ok()?;
    let shown = Shown { outside, inside, user: identity.outer_uid };
    (!shown.is_listed_inside(&rustix::fs::fstat(&opened).ok()?)).then_some(opened)
}

/// The owner of what is bound, on the host and as the mount shows it, and the host's id of the user inside.
#[derive(Clone, Copy)]
struct Shown {
    outside: u32,
    inside: u32,
    user: u32,
}

impl Shown {
    /// Reports whether the command lists a directory by its own right: the mount shows the owner of what is bound as the user inside.
    /// A file system without maps of owners, such as overlayfs, shows nothing so.
    fn is_listed_inside(&self, directory: &Stat) -> bool {
        self.inside == self.user && directory.st_uid == self.outside && directory.st_mode & 0o500 == 0o500
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_listed_inside_where_its_owner_is_the_user_there() {
        let top = tempfile::tempdir().unwrap();
        let stat = |mode| {
            let mut stat = rustix::fs::stat(top.path()).unwrap();
            (stat.st_uid, stat.st_mode) = (7, mode);
            stat
        };
        let mapped = Shown { outside: 7, inside: 1000, user: 1000 };
        assert!(mapped.is_listed_inside(&stat(0o711)));
        assert!(!mapped.is_listed_inside(&stat(0o311)) && !mapped.is_listed_inside(&stat(0o411)));
        assert!(!Shown { outside: 8, ..mapped }.is_listed_inside(&stat(0o711)));
        assert!(!Shown { inside: 7, ..mapped }.is_listed_inside(&stat(0o711)), "nothing is mapped");
    }

    #[test]
    fn the_set_up_keeps_descriptors() {
        assert!(leaves_room(5, None) && leaves_room(5, Some(5 + RESERVE + 1)));
        assert!(!leaves_room(5, Some(5 + RESERVE)) && !leaves_room(5, Some(50)));
    }
}
