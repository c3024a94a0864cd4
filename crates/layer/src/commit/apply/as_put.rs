//! Checks that an entry in the workspace is still the one that a commit put there.
//!
//! A rollback makes this check before it removes the commit's version. If another process changed the entry since the commit
//! wrote it (possibly hours ago, if the commit was interrupted), the entry stays in the workspace and is reported.

use crate::beneath::{LeaseCall, Workspace, is_empty};
use crate::journal::directory_content::DirectoryContent;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put};
use crate::meta::{EntryType, Meta};
use crate::moves::rename_calls::Spot;
use crate::places::quiet::{Quiet, quiet_inside};
use crate::places::writers::{Compared, compare};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd as _;

/// Reports whether the entry at `at`, which `put` brought as `new` and which is `now`, is unchanged, and no process writes to it.
/// A file is compared again under a lease, since `now` is from before it. `made` says that it is a directory that was made for the
/// commit, and none of the workspace that was renamed.
pub(crate) fn is_as_put(
    put: &Put,
    made: bool,
    (new, now): (&Seen, &Meta),
    at: Spot<'_>,
    leases: Option<LeaseCall>,
) -> io::Result<bool> {
    if !new.is_same_version(now) {
        return Ok(false);
    }
    match new.kind {
        EntryType::File => Ok(compare(leases, at.dir, at.name, new)? == Compared::Same),
        EntryType::Directory => {
            let dir = rustix::fs::openat(
                at.dir,
                at.name,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            );
            let tree = match dir {
                Ok(dir) => Workspace::from_fd(dir),
                // Its mode keeps its owner out, and so it kept out any process of that owner.
                Err(Errno::ACCESS) => return Ok(true),
                Err(error) => return Err(error.into()),
            };
            if put.whole {
                return is_whole(put, &tree, now.mtime == new.mtime, leases);
            }
            if made && matches!(put.from, Origin::Slot(_)) && put.old.is_none_or(|old| old.id != new.id) {
                // A directory that we made: what we put in it is out again by now.
                return is_empty(tree.readable_dir(b"")?.as_fd());
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

/// Reports whether a directory holds exactly what the layer had in it, and no process writes to a file of it. A journal of an older
/// version does not say, so that the directory stays.
fn is_whole(put: &Put, tree: &Workspace, same_names: bool, leases: Option<LeaseCall>) -> io::Result<bool> {
    let Some(inside) = put.inside.as_ref().filter(|_| same_names) else { return Ok(false) };
    let found = RefCell::new(DirectoryContent::default());
    let changed = |_: &Meta, _: &[u8], meta: &Meta| {
        found.borrow_mut().count(meta);
        inside.is_late(meta)
    };
    let quiet = quiet_inside(tree, b"", leases, &changed, &|_| ())?;
    Ok(quiet == Quiet::Yes && inside.is_same(&found.borrow()))
}
