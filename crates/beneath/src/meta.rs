//! The attributes of one entry, as the file system reports them.

use rustix::fs::{AtFlags, FileType, StatxAttributes, StatxFlags, StatxTimestamp, statx};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;

/// A time stamp of the file system: seconds and nanoseconds since 1970. Without a gap, since a layer has many of them.
#[repr(Rust, packed(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct FsTime {
    /// Seconds since 1970.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

impl FsTime {
    /// Earlier than all others.
    pub const MIN: Self = Self { sec: i64::MIN, nsec: 0 };
    /// Later than all others.
    pub const MAX: Self = Self { sec: i64::MAX, nsec: 999_999_999 };
}

impl From<StatxTimestamp> for FsTime {
    fn from(stamp: StatxTimestamp) -> Self {
        Self { sec: stamp.tv_sec, nsec: stamp.tv_nsec }
    }
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory, never a link to one.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket of the Unix domain.
    Socket,
    /// A character or block device.
    Device,
}

/// Identity of a file, which a rename does not change. An inode number alone is not enough: it is used again as soon as
/// its file is gone, and an action that runs twice (recovery) must not take the new file for the old one. The device
/// number is left out because it may be another one after a reboot; a tree is on one mount (`beneath`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// Inode number in its file system.
    pub ino: u64,
    /// Time of birth, where the file system keeps one.
    pub born: Option<FsTime>,
}

/// The attributes of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The type of the entry.
    pub kind: EntryType,
    /// Permission bits with setuid, setgid and sticky (`07777`).
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: FsTime,
    /// Last change of anything; cannot be set by a process.
    pub ctime: FsTime,
    /// Number of names.
    pub links: u32,
    /// Identity of the file.
    pub id: FileId,
    /// Device of the file system: (major, minor).
    pub dev: (u32, u32),
    /// A device node with the number 0:0.
    pub no_device: bool,
    /// Id of the mount through which it was seen: the number in mountinfo, which the kernel keeps in 32 bits.
    pub mount: u32,
    /// Append-only or immutable (chattr(1)): neither it nor an entry of it can be replaced.
    pub pinned: bool,
}

impl Meta {
    /// Overlay's mark for "this name is gone": a character device 0:0.
    #[must_use]
    pub fn is_whiteout(&self) -> bool {
        self.kind == EntryType::Device && self.no_device
    }
}

/// The inode number of a directory that Btrfs shows in a snapshot in place of a subvolume that was in the original. Nothing can be put
/// into it, no file system keeps it, and the kernel makes it again now and then, with the time of that moment.
const PLACEHOLDER: u64 = 2;
/// `f_type` of Btrfs.
const BTRFS: u64 = 0x9123_683e;

/// The attributes of `name` in `dir`; a link is not followed. An empty name is the directory itself. An entry that has no times of its
/// own has the earliest ones.
pub fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Meta> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let found = statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID)?;
    let kind = match FileType::from_raw_mode(u32::from(found.stx_mode)) {
        FileType::RegularFile => EntryType::File,
        FileType::Directory => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        FileType::Fifo => EntryType::Fifo,
        FileType::Socket => EntryType::Socket,
        _ => EntryType::Device,
    };
    let born = (found.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| found.stx_btime.into());
    let is_placeholder = kind == EntryType::Directory
        && (found.stx_ino, found.stx_nlink) == (PLACEHOLDER, 1)
        && rustix::fs::fstatfs(dir)?.f_type as u64 == BTRFS;
    let times = (found.stx_mtime.into(), found.stx_ctime.into(), born);
    let (mtime, ctime, born) = if is_placeholder { (FsTime::default(), FsTime::default(), None) } else { times };
    Ok(Meta {
        kind,
        mode: u32::from(found.stx_mode) & 0o7777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        mtime,
        ctime,
        links: found.stx_nlink,
        id: FileId { ino: found.stx_ino, born },
        dev: (found.stx_dev_major, found.stx_dev_minor),
        no_device: (found.stx_rdev_major, found.stx_rdev_minor) == (0, 0),
        mount: found.stx_mnt_id as u32,
        pinned: found.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND),
    })
}

/// As [`stat`]; `None` when there is no such entry.
pub fn stat_if_there(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Meta>> {
    match stat(dir, name) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
