//! Reads where mounts lie below the root of a sandbox, and what is mounted at a place.

use crate::mounts;
use nexus_model::mount_table::MountTable;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use std::io::{self, Read as _};
use std::path::Path;

/// Reads the table from the `/proc` of the root.
pub fn read(root: &OwnedFd) -> io::Result<MountTable> {
    let proc = mounts::place(root, Path::new("proc"))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&proc, c"self/mountinfo", flags, Mode::empty())?;
    // Most tables fit, and are read in one call: the kernel says no size.
    let mut text = Vec::with_capacity(16 << 10);
    std::fs::File::from(file).read_to_end(&mut text)?;
    Ok(MountTable::parse_below(mount_id(root)?, &text))
}

/// Returns the number of the mount through which a file was opened.
pub fn mount_id(file: impl AsFd) -> io::Result<u64> {
    Ok(about(file)?.stx_mnt_id)
}

/// Returns the kind of a file, as far as it can be found out at once.
pub fn kind(file: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(about(file)?.stx_mode.into()))
}

/// Looks at a file without a question to its file system: a server of FUSE or NFS may never answer it.
fn about(file: impl AsFd) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(file, c"", flags, StatxFlags::MNT_ID | StatxFlags::TYPE)?)
}
