//! Files, directories and locks of the store.

use crate::error::{At as _, ImageError};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which another process may hold a lock of the store that is held for a moment only.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes a directory for this user alone, if it is missing.
pub fn make_dir(path: &Path) -> Result<(), ImageError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other.at("make", path),
    }
}

/// Writes a file that is not there yet, to the disk.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).at("make", path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).at("write", path)
}

/// Opens a file that serves as a lock.
pub fn lock_file(path: &Path) -> Result<File, ImageError> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).at("open", path)
}

/// Takes a lock that no other process holds.
pub fn locked(file: &File, how: FlockOperation, path: &Path) -> Result<(), ImageError> {
    match rustix::fs::flock(file, how) {
        Err(Errno::AGAIN) => Err(ImageError::Busy),
        other => other.at("lock", path),
    }
}

/// Takes a lock that other processes hold for a moment only.
pub fn wait_for(file: &File, how: FlockOperation, path: &Path) -> Result<(), ImageError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match locked(file, how, path) {
            Err(ImageError::Busy) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
}

/// Lists a directory.
pub fn entries(dir: &Path) -> Result<Vec<(String, PathBuf)>, ImageError> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).at("list", dir)? {
        let entry = entry.at("list", dir)?;
        all.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    Ok(all)
}

/// Reports whether a path is as young as an import that has just started.
pub fn is_young(path: &Path) -> bool {
    let age = std::fs::symlink_metadata(path).and_then(|about| about.modified()).map(|time| time.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age < LOCK_TIMEOUT))
}
