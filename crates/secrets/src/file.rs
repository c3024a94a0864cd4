//! The provider `file`: the content of a file of the host, byte for byte.

use crate::source::{Source, Warning, leads_through};
use crate::value::MAX_BYTES;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Permission bits by which others than the owner read a file.
const READ_BY_OTHERS: u32 = 0o044;

/// A file gives no value.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path begins with `~`, and the caller has no home directory.
    #[error("{} begins at a home directory, and HOME is not set", path.display())]
    NoHome {
        /// The path as it was written.
        path: PathBuf,
    },
    /// The file lies in the workspace, or the path leads through it.
    #[error("{} leads into the workspace, where a command could have put or replaced it", path.display())]
    InWorkspace {
        /// Path of the file.
        path: PathBuf,
    },
    /// The path names something else than a file.
    #[error("{} is not a file", path.display())]
    NotFile {
        /// Path of the file.
        path: PathBuf,
    },
    /// The system refused it.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
}

pub(crate) fn read(path: &Path, source: &Source<'_>) -> Result<(Zeroizing<Vec<u8>>, Option<Warning>), FileError> {
    let path = match path.strip_prefix("~") {
        Ok(rest) => source.home.ok_or_else(|| FileError::NoHome { path: path.to_owned() })?.join(rest),
        Err(_) => source.current.join(path),
    };
    if leads_through(source.workspace, &path) {
        return Err(FileError::InWorkspace { path });
    }
    let failed = |error: Errno| FileError::Io { path: path.clone(), source: error.into() };
    // A named pipe would make the open wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileError::NotFile { path });
    }
    // One byte more than may come, so that a longer file is noticed; never grown, so that no copy stays in freed memory.
    let mut bytes = Zeroizing::new(vec![0; MAX_BYTES + 1]);
    let mut length = 0;
    while length < bytes.len() {
        match rustix::io::read(&file, &mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    bytes.truncate(length);
    let mode = stat.st_mode & 0o777;
    let warning = (mode & READ_BY_OTHERS != 0).then(|| Warning::ReadByOthers { path: path.clone(), mode });
    Ok((bytes, warning))
}
