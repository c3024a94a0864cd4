//! Looks at what is mounted over files in binds, as a container engine mounts its socket over an empty file. A directory that has such
//! a file lists the kind of the file below the mount, so that a search by directories alone misses it.

use crate::inside::answers::{is_denied, is_gone, moved};
use crate::mount_table::{self, kind, mount_id};
use crate::mounts;
use crate::places::{below_root, show};
use crate::steps::{AtStep as _, Step, StepError};
use nexus_model::mount_table::{Mount, MountTable};
use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Readings of the table, and the time between two.
const READINGS: u32 = 24;
const BETWEEN: Duration = Duration::from_millis(2);

/// Mounts that were looked at while a path led to them, and are neither sockets nor named pipes, by their numbers.
#[derive(Debug, Default)]
pub(super) struct LookedAt(BTreeSet<u64>);

/// A place at which the table has a mount.
enum Found {
    /// A socket or named pipe of the mount.
    Endpoint(FileType),
    /// Something else, or nothing that any process reaches.
    Other,
    /// The mount is at another place by now.
    AnotherMount,
}

/// Looks at a place without a question to its file system.
fn endpoint(place: &OwnedFd, id: u64) -> io::Result<Found> {
    let found = mount_id(place).and_then(|present| Ok((present == id, kind(place)?)));
    match found {
        Ok((true, kind @ (FileType::Socket | FileType::Fifo))) => Ok(Found::Endpoint(kind)),
        Ok((true, _)) => Ok(Found::Other),
        Ok((false, _)) => Ok(Found::AnotherMount),
        // FUSE of another user, whom it lets in alone, or without its server: the command gets the same answer.
        Err(error) if is_denied(&error) || error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            Ok(Found::Other)
        }
        Err(error) => Err(error),
    }
}

/// Checks each wanted mount by `check`. When another program renames the file below a mount, the mount goes with it: so the table is
/// read until each mount is where it says.
///
/// A mount that lies below a cover is reached when it comes out of there with its file: so it has a cover of its own, or was looked at
/// before.
pub(super) fn check_each(
    root: &OwnedFd,
    is_cover: &dyn Fn(&Mount) -> bool,
    mut looked_at: LookedAt,
    is_wanted: &dyn Fn(&Path) -> bool,
    check: &dyn Fn(&OwnedFd, &Path) -> Result<(), StepError>,
) -> Result<(), StepError> {
    let mut last = PathBuf::new();
    for _ in 0..READINGS {
        let table = mount_table::read(root).at(Step::HidePaths, "/proc/self/mountinfo")?;
        let mut is_sure = true;
        for mount in table.below(Path::new("/")).into_iter().filter(|mount| is_wanted(&mount.at)) {
            let (path, id) = (mount.at.as_path(), mount.id);
            let is_there = match mounts::place(root, below_root(path)) {
                Ok(place) => match endpoint(&place, id) {
                    Ok(Found::Endpoint(_)) => {
                        check(&place, path)?;
                        true
                    }
                    Ok(Found::Other) => {
                        looked_at.0.insert(id);
                        true
                    }
                    Ok(Found::AnotherMount) => false,
                    Err(error) => return Err(StepError::os(Step::HidePaths, error, show(path))),
                },
                // The command has no more rights than this process.
                Err(error) if is_denied(&error) => true,
                Err(error) if is_gone(&error) => false,
                Err(error) => return Err(StepError::os(Step::HidePaths, error, show(path))),
            };
            if !is_there {
                is_sure = false;
                path.clone_into(&mut last);
            }
        }
        for mount in table.hidden_by(is_cover).into_iter().filter(|mount| is_wanted(&mount.at)) {
            let is_covered = table.on_top_of(mount).is_some_and(is_cover);
            if !is_covered && !looked_at.0.contains(&mount.id) {
                is_sure = false;
                mount.at.clone_into(&mut last);
            }
        }
        if is_sure {
            return Ok(());
        }
        std::thread::sleep(BETWEEN);
    }
    Err(moved(&last))
}

/// The mounts below a closed directory.
pub(super) struct Below<'a> {
    pub(super) table: &'a MountTable,
    pub(super) directory: &'a Path,
    /// Named pipes are covered as well.
    pub(super) with_pipes: bool,
}

/// Covers each socket that is mounted over a file below a closed directory.
pub(super) fn cover_below(
    root: &OwnedFd,
    below: &Below<'_>,
    looked_at: &mut LookedAt,
    cover: &dyn Fn(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    for mount in below.table.below(below.directory) {
        let (path, id) = (mount.at.as_path(), mount.id);
        let place = match mounts::place(root, below_root(path)) {
            Err(error) if is_gone(&error) => continue,
            // The command reaches it no more than this process, and like all that lies in a closed directory of another user it comes
            // out by an act of that user alone.
            Err(error) if is_denied(&error) => {
                looked_at.0.insert(id);
                continue;
            }
            place => place?,
        };
        // Another mount that has come to the place is covered as well.
        let (mount, kind) = match endpoint(&place, id)? {
            Found::Endpoint(kind) => (id, Some(kind)),
            Found::AnotherMount => (mount_id(&place)?, Some(kind(&place)?)),
            Found::Other => (id, None),
        };
        if kind == Some(FileType::Socket) || (kind == Some(FileType::Fifo) && below.with_pipes) {
            cover(&place)?;
        } else {
            looked_at.0.insert(mount);
        }
    }
    Ok(())
}
