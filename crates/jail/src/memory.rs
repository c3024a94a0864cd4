//! A layer in memory: a tmpfs whose upper directory makes new files as the workspace's own directory does.

use crate::mounts::{self, NODEV, NOSUID};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use std::io;

/// New files take the group of a directory with this bit.
const SETGID: u32 = 0o2000;
/// Holds the access list of new files.
const DEFAULT_ACL: &str = "system.posix_acl_default";
/// The kernel's bound for the value of an attribute.
const MAX_VALUE: usize = 65_536;

/// Makes a tmpfs of so many bytes, with an inode for every 4 KiB.
pub fn filesystem(bytes: u64) -> io::Result<OwnedFd> {
    let (size, inodes) = (bytes.to_string(), (bytes / 4096).max(64).to_string());
    let options = [("size", size.as_str()), ("nr_inodes", inodes.as_str()), ("mode", "0755")];
    mounts::new_filesystem("tmpfs", &options, (NOSUID | NODEV) as u32)
}

/// Makes `upper` and `work` in it. `workspace` is the workspace's directory without a map of owners. Root gives both the
/// workspace's owner, who is all that the map of the layer knows.
pub fn make_directories(layer: &OwnedFd, workspace: impl AsFd, by_root: bool) -> io::Result<()> {
    let like = rustix::fs::fstat(&workspace)?;
    for name in ["upper", "work"] {
        rustix::fs::mkdirat(layer, name, Mode::from_raw_mode(0o755))?;
        if by_root {
            let (uid, gid) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
            rustix::fs::chownat(layer, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    let upper = mounts::place(layer, "upper".as_ref())?;
    let (path, like_path) = (mounts::fd_path(&upper), mounts::fd_path(&workspace));
    let mut list = vec![0; MAX_VALUE];
    match rustix::fs::getxattr(&like_path, DEFAULT_ACL, &mut list[..]) {
        Ok(length) => rustix::fs::setxattr(&path, DEFAULT_ACL, &list[..length], XattrFlags::empty())?,
        Err(Errno::NODATA | Errno::NOTSUP) => {}
        Err(error) => return Err(error.into()),
    }
    let mut mode = like.st_mode & 0o3777;
    if rustix::fs::fstat(&upper)?.st_gid != like.st_gid {
        // The bit would hand on another group than the workspace's.
        mode &= !SETGID;
    }
    Ok(rustix::fs::chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty())?)
}
