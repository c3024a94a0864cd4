//! Identifies a directory by what the file system says about it, not by its path.

use crate::Workspace;
use crate::meta::{FsTime, stat};
use serde::{Deserialize, Serialize};
use std::io;

/// Identifies a directory by its inode and its time of birth. The kernel reuses inode numbers, and a device number
/// changes with a reboot; the device counts only where a file system keeps no time of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    /// Inode number in its file system.
    pub ino: u64,
    /// Time of birth.
    pub born: Option<FsTime>,
    /// Device number (major, minor), where there is no time of birth.
    pub dev: Option<(u32, u32)>,
}

impl Workspace {
    /// Identifies the directory that the descriptor refers to. The path is not looked at again.
    pub fn identity(&self) -> io::Result<DirectoryIdentity> {
        let meta = stat(self.fd(), b"")?;
        let dev = if meta.id.born.is_some() { None } else { Some(meta.dev) };
        Ok(DirectoryIdentity { ino: meta.id.ino, born: meta.id.born, dev })
    }
}
