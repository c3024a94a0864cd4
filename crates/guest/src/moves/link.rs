//! Hard links of git to files of the layer below.
//!
//! The overlay of an ordinary user copies such a file to the layer when it is linked, and the new name then has another
//! inode number than the file had before. `git clone` of a local repository compares the two and ends: it takes the file for
//! one that was exchanged meanwhile. To another file system it copies instead, and so it does after EXDEV.

use super::filter;
use super::listener::Answer;
use super::place::Place;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

pub(super) fn link(old: &Place, new: &Place, flags: u32) -> Answer {
    let follow = flags & libc::AT_SYMLINK_FOLLOW as u32 != 0;
    let inode = |place: &Place, flags| statx(&place.directory, place.name(), flags, StatxFlags::INO);
    let Ok(before) = inode(old, if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }) else {
        return Answer::GoOn;
    };
    match filter::link(old, new, flags) {
        Err(errno) => Answer::Failed(errno.raw_os_error()),
        Ok(()) => match inode(new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(after) if after.stx_ino != before.stx_ino => {
                match rustix::fs::unlinkat(&new.directory, new.name(), AtFlags::empty()) {
                    Ok(()) => Answer::Failed(Errno::XDEV.raw_os_error()),
                    Err(errno) => Answer::Failed(errno.raw_os_error()),
                }
            }
            Ok(_) | Err(_) => Answer::Done,
        },
    }
}
