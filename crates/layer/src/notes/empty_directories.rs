//! Removes directories of a layer that hold nothing but overlay's marks.

use crate::beneath::{Workspace, join, names, split, unlink_if_there};
use crate::disk::remove::readable_by_force;
use crate::faults::Faults;
use crate::meta::{EntryType, stat_if_there};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd as _;

/// Removes a directory with the empty directories and overlay's marks in it. Returns whether it is gone. With any other
/// entry in it nothing is removed.
pub(crate) fn remove_empty(upper: &Workspace, path: &[u8], faults: &Faults) -> io::Result<bool> {
    let (mut stack, mut all, mut marks) = (vec![path.to_vec()], Vec::new(), Vec::new());
    while let Some(path) = stack.pop() {
        let dir = readable_by_force(upper, &path)?;
        for name in names(dir.as_fd())? {
            let Some(meta) = stat_if_there(dir.as_fd(), &name)? else { continue };
            if meta.kind == EntryType::Directory {
                stack.push(join(&path, &name));
            } else if meta.is_whiteout() {
                marks.push(join(&path, &name));
            } else {
                return Ok(false);
            }
        }
        all.push(path);
    }
    for path in &marks {
        faults.between_calls();
        let (parent, name) = split(path);
        unlink_if_there(upper.dir_by_force(parent)?.as_fd(), name)?;
    }
    for path in all.iter().rev() {
        faults.between_calls();
        let (parent, name) = split(path);
        match rustix::fs::unlinkat(upper.dir_by_force(parent)?, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
