//! The entries of a directory that moves, as the kernel shows them.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt as _;

/// Most directories in one another. Each holds two descriptors while it is worked on.
pub(super) const MAX_DEPTH: usize = 128;

/// Asks for the subvolume (`STATX_SUBVOL`, Linux 6.10). Older kernels ignore it, and do not set it in the answer.
const SUBVOLUME: StatxFlags = StatxFlags::from_bits_retain(0x8000);

/// Names of the entries of a directory.
pub(super) fn names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(CStr::to_bytes(name).to_vec());
        }
    }
    Ok(names)
}

pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

pub(super) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

pub(super) fn entry(directory: &OwnedFd, name: &[u8]) -> Result<Statx, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID | SUBVOLUME;
    statx(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW, wanted)
}

pub(super) fn is_directory(found: &Statx) -> bool {
    FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory
}

/// Hash of facts that differ for another file, and stay the same when a file gets one more name.
pub(super) fn facts(found: &Statx) -> u64 {
    let device = (found.stx_dev_major, found.stx_dev_minor);
    hash((device, found.stx_ino, found.stx_size, found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec, found.stx_mode))
}

/// Returns the subvolume of an entry, where its file system has some and the kernel reports it.
pub(super) fn subvolume(found: &Statx) -> Option<u64> {
    StatxFlags::from_bits_retain(found.stx_mask).contains(SUBVOLUME).then_some(found.stx_subvol)
}

pub(super) fn directory(above: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, OsStr::from_bytes(name), flags, Mode::empty())
}
