//! Identifies the directory that a path meant, so that what was decided for one directory is never done to another that
//! took its name.

use nexus_layer::{IoFailure, Workspace};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Holds the inode and the time of birth of a directory. Numbers of inodes are used again, and numbers of devices change with a reboot;
/// on a file system without times of birth, the device has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryId {
    inode: u64,
    born: Option<(i64, u32)>,
    device: Option<(u32, u32)>,
}

/// A path cannot be opened as the directory that was recorded.
#[derive(Debug, thiserror::Error)]
pub enum OpenSameError {
    /// The path leads nowhere.
    #[error("it is not there any more")]
    Gone,
    /// The path leads to another directory.
    #[error("it was moved or replaced since the run")]
    Other,
    /// The directory cannot be opened or identified.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl From<nexus_layer::DirectoryIdentity> for DirectoryId {
    fn from(id: nexus_layer::DirectoryIdentity) -> Self {
        Self { inode: id.ino, born: id.born.map(|born| (born.sec, born.nsec)), device: id.dev }
    }
}

impl DirectoryId {
    /// Identifies an open directory by its descriptor.
    pub fn of_open(directory: &Workspace) -> io::Result<Self> {
        directory.identity().map(Self::from)
    }

    /// Opens the directory at `path` if it is this one. The descriptor is what is compared, so that nothing can be
    /// swapped between the comparison and the use.
    pub fn open_at(&self, path: &Path) -> Result<Workspace, OpenSameError> {
        let directory = open(path).map_err(|error| match error.source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => OpenSameError::Gone,
            _ => OpenSameError::Io(error),
        })?;
        let found = Self::of_open(&directory).map_err(|source| {
            let path = path.into();
            OpenSameError::Io(IoFailure { doing: "identify", path, source })
        })?;
        if found == *self { Ok(directory) } else { Err(OpenSameError::Other) }
    }

    /// Identifies the directory at a path.
    fn of(path: &Path) -> io::Result<Self> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted)?;
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let born = has_birth.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
        let device = if has_birth { None } else { Some((stat.stx_dev_major, stat.stx_dev_minor)) };
        Ok(Self { inode: stat.stx_ino, born, device })
    }

    /// Reports whether the path means this directory now. An error is not an answer: a disk that is not mounted comes back.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        match Self::of(path) {
            Ok(now) => Ok(now == *self),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reports whether no other directory ever has this identity. Where a file system keeps no times of birth, a later one may get
    /// the same inode.
    pub fn is_unique(&self) -> bool {
        self.born.is_some()
    }

    /// Returns a file name for the directory.
    pub fn name(&self) -> String {
        let (seconds, nanos) = self.born.unwrap_or_default();
        let (major, minor) = self.device.unwrap_or_default();
        format!("{:x}-{seconds:x}-{nanos:x}-{major:x}-{minor:x}", self.inode)
    }
}

/// Opens a workspace so that a commit can find out which files a process writes to.
pub fn open(path: &Path) -> Result<Workspace, IoFailure> {
    Ok(Workspace::open(path)?.with_leases(nexus_driver_namespace::read_lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_has_the_identity_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        std::fs::create_dir(&path).unwrap();
        let id = DirectoryId::of(&path).unwrap();
        let open = id.open_at(&path).unwrap();
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        assert_eq!(DirectoryId::of_open(&open).unwrap(), id);
        assert!(matches!(id.open_at(&path), Err(OpenSameError::Gone)));
        std::os::unix::fs::symlink("away", &path).unwrap();
        assert!(id.open_at(&path).is_ok(), "a link to the very directory");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(id.open_at(&path), Err(OpenSameError::Other)));
    }

    #[test]
    fn a_directory_that_took_the_name_of_another_is_not_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        std::fs::create_dir(&path).unwrap();
        let id = DirectoryId::of(&path).unwrap();
        assert!(id.is_at(&path).unwrap());
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        assert!(!id.is_at(&path).unwrap());
        std::fs::create_dir(&path).unwrap();
        assert!(!id.is_at(&path).unwrap());
        assert!(id.is_at(&dir.path().join("away")).unwrap());
    }
}
