//! The directory with the output of one server's commands.

use nexus_model::RunId;
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of one server, which is locked while it lives.
pub struct OwnDirectory {
    /// The path of the directory.
    pub path: PathBuf,
    _lock: File,
}

impl OwnDirectory {
    /// Makes the directory, and removes those of servers that were killed.
    pub fn make(above: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(above) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        for entry in std::fs::read_dir(above)? {
            let path = entry?.path();
            // One that another server has locked, or is removing, stays.
            let is_free = |file: File| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            if File::open(&path).is_ok_and(is_free) {
                std::fs::remove_dir_all(&path).ok();
            }
        }
        for _ in 0..10 {
            let path = above.join(RunId::new().to_string());
            DirBuilder::new().mode(0o700).create(&path)?;
            // Between the two another server may take it for one that was left.
            let Ok(lock) = File::open(&path) else { continue };
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && path.exists() {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::Error::other("other servers remove it each time"))
    }

    /// Removes it, with all that is in it.
    pub fn remove(&self) {
        // The next server removes what is left.
        std::fs::remove_dir_all(&self.path).ok();
    }
}
