//! Files that appear whole or not at all, in directories that only their owner can enter.

use crate::form::StreamDigest;
use nexus_model::{Digest, RunId};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Reason why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Others can enter it.
    #[error("{} is not a directory that only you can enter (owner {uid}, mode {mode:03o})", path.display())]
    Open {
        /// The path of the directory.
        path: PathBuf,
        /// The user id of its owner.
        uid: u32,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// A system call failed.
    #[error("the directory {} cannot be used: {source}", path.display())]
    Io {
        /// The path of the directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl DirectoryError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Open { .. } | Self::Io { .. } => "receipt_key",
        }
    }
}

const PRIVATE: Mode = Mode::from_raw_mode(0o600);
/// Names of files on their way to their real name.
const HIDDEN: &str = ".new-";

/// Opens a directory that belongs to the caller alone, and makes it if it is missing.
pub fn directory(path: &Path) -> Result<OwnedFd, DirectoryError> {
    let io = |error: Errno| DirectoryError::Io { path: path.to_owned(), source: error.into() };
    if let Some(directory) = existing_directory(path)? {
        return Ok(directory);
    }
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        // Another run makes it at the same time.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(io(error)),
    }
    existing_directory(path)?.ok_or_else(|| io(Errno::NOENT))
}

/// Opens a directory that belongs to the caller alone, through no link; `None` if it does not exist.
pub fn existing_directory(path: &Path) -> Result<Option<OwnedFd>, DirectoryError> {
    let io = |error: Errno| DirectoryError::Io { path: path.to_owned(), source: error.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(io)?,
    };
    let stat = rustix::fs::fstat(&directory).map_err(io)?;
    let (uid, mode) = (stat.st_uid, stat.st_mode & 0o7777);
    if uid != rustix::process::geteuid().as_raw() || mode & 0o077 != 0 {
        return Err(DirectoryError::Open { path: path.to_owned(), uid, mode });
    }
    Ok(Some(directory))
}

/// Writes a file under a name that is free; `false` when it is taken. With `durable` its content is on the disk before
/// it has the name.
pub fn write_new(directory: impl AsFd, name: &str, content: &[u8], durable: bool) -> io::Result<bool> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let linked = match rustix::fs::openat(&directory, c".", flags, PRIVATE) {
        Ok(file) => {
            let file = File::from(file);
            fill(&file, content, durable)?;
            let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, unnamed, &directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        // A file system without nameless files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let hidden = make_hidden(&directory, content, durable)?;
            let linked = rustix::fs::linkat(&directory, &hidden, &directory, name, AtFlags::empty());
            remove(&directory, &hidden)?;
            linked
        }
        Err(error) => Err(error),
    };
    match linked {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a file by another one, which is on the disk before it has the name.
pub fn replace(directory: impl AsFd, name: &str, content: &[u8]) -> io::Result<()> {
    let hidden = make_hidden(&directory, content, true)?;
    match rustix::fs::renameat(&directory, &hidden, &directory, name) {
        Ok(()) => Ok(()),
        Err(error) => {
            remove(&directory, &hidden)?;
            Err(error.into())
        }
    }
}

fn make_hidden(directory: impl AsFd, content: &[u8], durable: bool) -> io::Result<String> {
    let hidden = format!("{HIDDEN}{}", RunId::new());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(&directory, &*hidden, flags, PRIVATE)?);
    match fill(&file, content, durable) {
        Ok(()) => Ok(hidden),
        Err(error) => {
            remove(&directory, &hidden)?;
            Err(error)
        }
    }
}

fn fill(mut file: &File, content: &[u8], durable: bool) -> io::Result<()> {
    file.write_all(content)?;
    if durable { file.sync_all() } else { Ok(()) }
}

/// Writes the directory's entries to the disk.
pub fn sync(directory: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(directory)?)
}

/// Removes a file; a file that is gone already is fine.
pub fn remove(directory: impl AsFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a regular file of a bounded size.
pub fn read(directory: impl AsFd, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    let mut content = Vec::new();
    file.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// Opens a file that the caller named. A regular file, or what a descriptor of the caller's own leads to: a pipe or a
/// device of any other name would be waited for or read without end.
pub fn open_named(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let own = path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd");
    if own { File::open(path) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")) }
}

/// Returns the length and the hash of a file that the caller named.
pub fn digest(path: &Path) -> io::Result<StreamDigest> {
    let mut file = open_named(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(StreamDigest { bytes, hash: Digest::finished(&hasher) }),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the names in a directory that are UTF-8 text, without files that have not got their real name yet.
pub fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    Ok(all_names(directory)?.into_iter().filter(|name| !name.starts_with('.')).collect())
}

/// Names of files that never got their real name.
pub fn hidden(directory: impl AsFd) -> io::Result<Vec<String>> {
    Ok(all_names(directory)?.into_iter().filter(|name| name.starts_with(HIDDEN)).collect())
}

fn all_names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        if let Ok(name) = entry?.file_name().to_str() {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}
