//! Which folder a path meant: so that what was decided for one is never done to another that took its name.

use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A folder's inode and time of birth. Numbers of inodes are used again, and numbers of devices change with a reboot;
/// where a file system tells no birth, the device has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderId {
    inode: u64,
    born: Option<(i64, u32)>,
    device: Option<(u32, u32)>,
}

impl FolderId {
    /// Looks at a folder.
    pub fn of(path: &Path) -> io::Result<Self> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted)?;
        let told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let born = told.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
        let device = if told { None } else { Some((stat.stx_dev_major, stat.stx_dev_minor)) };
        Ok(Self { inode: stat.stx_ino, born, device })
    }

    /// Whether the path means this folder now. An error is not an answer: a disk that is not mounted comes back.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        match Self::of(path) {
            Ok(now) => Ok(now == *self),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A file name for it.
    pub fn name(&self) -> String {
        let (seconds, nanos) = self.born.unwrap_or_default();
        let (major, minor) = self.device.unwrap_or_default();
        format!("{:x}-{seconds:x}-{nanos:x}-{major:x}-{minor:x}", self.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_took_the_name_of_another_is_not_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        std::fs::create_dir(&path).unwrap();
        let id = FolderId::of(&path).unwrap();
        assert!(id.is_at(&path).unwrap());
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        assert!(!id.is_at(&path).unwrap());
        std::fs::create_dir(&path).unwrap();
        assert!(!id.is_at(&path).unwrap());
        assert!(id.is_at(&dir.path().join("away")).unwrap());
    }
}
