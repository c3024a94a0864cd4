//! Looks at what is mounted over files in binds, as a container engine mounts its socket over an empty file. A directory that has such
//! a file lists the kind of the file below the mount, so that a search by directories alone misses it.

use crate::inside::answers::{is_denied, is_endpoint, is_gone, moved};
use crate::mount_table::{MountTable, mount_id};
use crate::mounts;
use crate::places::{below_root, show};
use crate::steps::{AtStep as _, Step, StepError};
use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Readings of the table, and the time between two.
const READINGS: u32 = 24;
const BETWEEN: Duration = Duration::from_millis(2);

/// Checks each wanted mount by `check`. When another program renames the file below a mount, the mount goes with it: so the table is
/// read until each mount is where it says.
pub(super) fn check_each(
    root: &OwnedFd,
    is_wanted: &dyn Fn(&Path) -> bool,
    check: &dyn Fn(&OwnedFd, &Path) -> Result<(), StepError>,
) -> Result<(), StepError> {
    let mut last = PathBuf::new();
    for _ in 0..READINGS {
        let table = MountTable::read(root).at(Step::HidePaths, "/proc/self/mountinfo")?;
        let mut is_sure = true;
        for (path, id) in table.below(Path::new("/")).into_iter().filter(|(path, _)| is_wanted(path)) {
            let is_there = match mounts::place(root, below_root(path)) {
                Ok(place) if mount_id(&place).at(Step::HidePaths, &show(path))? == id => {
                    check(&place, path)?;
                    true
                }
                Ok(_) => false,
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
        if is_sure {
            return Ok(());
        }
        std::thread::sleep(BETWEEN);
    }
    Err(moved(&last))
}

/// Covers each socket that is mounted over a file below a closed directory, and each named pipe where `with_pipes` says so.
pub(super) fn cover_below(
    root: &OwnedFd,
    table: &MountTable,
    directory: &Path,
    with_pipes: bool,
    cover: &dyn Fn(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    for (path, _) in table.below(directory) {
        let place = match mounts::place(root, below_root(path)) {
            Err(error) if is_gone(&error) || is_denied(&error) => continue,
            place => place?,
        };
        let stat = rustix::fs::fstat(&place)?;
        let is_pipe = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
        if is_endpoint(&stat) && (with_pipes || !is_pipe) {
            cover(&place)?;
        }
    }
    Ok(())
}
