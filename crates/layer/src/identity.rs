//! Identifies a directory by what the file system says about it, not by its path.

use crate::beneath::{IoFailure, Workspace};
use crate::commit::journal::home_of;
use crate::meta::{FsTime, stat};
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Identifies a directory by its inode and its time of birth. The kernel reuses inode numbers, and a device number
/// changes with a reboot; the device counts only where a file system keeps no time of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderId {
    /// Inode number in its file system.
    pub ino: u64,
    /// Time of birth.
    pub born: Option<FsTime>,
    /// Device number (major, minor), where there is no time of birth.
    pub dev: Option<(u32, u32)>,
}

/// The workspace of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Its path when the run started.
    pub path: ByteText,
    /// Identity of the directory at that path.
    pub id: FolderId,
}

impl Workspace {
    /// Identifies the directory that the descriptor refers to. The path is not looked at again.
    pub fn identity(&self) -> io::Result<FolderId> {
        let meta = stat(self.fd(), b"")?;
        let dev = if meta.id.born.is_some() { None } else { Some(meta.dev) };
        Ok(FolderId { ino: meta.id.ino, born: meta.id.born, dev })
    }
}

impl crate::Layer {
    /// Names the workspace for the journal.
    pub fn set_home(&mut self, path: ByteText, id: FolderId) {
        self.home = Some(Home { path, id });
    }
}

/// Lists the layers that hold a journal for the directory `id`. A journal that cannot be read names no directory.
pub fn journals_of(layers_dir: &Path, id: FolderId) -> Result<Vec<String>, IoFailure> {
    let layers = Workspace::open(layers_dir)?;
    let failed = |doing: &'static str, path: &Path, source: io::Error| IoFailure { doing, path: path.into(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(layers_dir).map_err(|error| failed("list", layers_dir, error))? {
        let entry = entry.map_err(|error| failed("list", layers_dir, error))?;
        let Ok(run) = entry.file_name().into_string() else { continue };
        let root = match layers.readable_dir(run.as_bytes()) {
            Err(error) if crate::beneath::is_gone(&error) => continue,
            other => Workspace::from_fd(other.map_err(|error| failed("open", &entry.path(), error))?),
        };
        // One that cannot be read is found by the note of its run.
        if home_of(&root).ok().flatten().is_some_and(|home| home.id == id) {
            found.push(run);
        }
    }
    Ok(found)
}
