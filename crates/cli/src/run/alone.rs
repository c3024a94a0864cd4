//! One commit at a time on a workspace.
//!
//! The lock is a file in the state directory, which nobody else can open: a lock on the workspace itself could be held
//! by anybody who can read the folder, also by a command inside, for as long as they like.

use super::folder::FolderId;
use crate::places::Places;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long another commit may take before this one gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds the lock as long as it lives.
#[derive(Debug)]
pub struct Alone {
    path: PathBuf,
    _file: File,
}

/// Waits for the others.
pub fn lock(places: &Places, folder: FolderId) -> io::Result<Alone> {
    let path = places.locks.join(folder.name());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Whoever had it before has taken the file away with it.
            Ok(()) if is_at(&file, &path)? => return Ok(Alone { path, _file: file }),
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another commit to this folder does not end"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_at(file: &File, path: &std::path::Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(now) => Ok(now.ino() == file.metadata()?.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for Alone {
    /// Removed while the lock is held, so that nobody can hold a file that has no name. If that fails, an empty file
    /// stays, which the next one uses.
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}
