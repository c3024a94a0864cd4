//! Reads the workspace's `nexus.yaml` as untrusted bytes that a stranger or an earlier run wrote.
//!
//! The file is opened below the workspace's descriptor and through no link, must be a plain file, and is read once,
//! with a bound; the bytes hashed for the trust are the bytes parsed. A command that changes the file during a run
//! changes nothing for that run.

use crate::document::{self, BrokenDocument};
use nexus_policy::profile::{Loaded, MAX_BYTES};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Name of the file in the top directory of a workspace.
pub const NAME: &str = "nexus.yaml";

/// The file as it was read.
#[derive(Debug)]
pub struct WorkspaceFile {
    /// Full path, for people.
    pub path: PathBuf,
    /// BLAKE3 hash of the bytes, in hexadecimal.
    pub hash: String,
    /// Parsed profile of the file.
    pub loaded: Loaded,
}

/// Error of a workspace file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceFileError {
    /// The file cannot be read.
    #[error("{} cannot be used: {reason}", path.display())]
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the refusal.
        reason: TextError,
    },
    /// The file cannot be understood.
    #[error(transparent)]
    Document(#[from] BrokenDocument),
}

impl WorkspaceFileError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "workspace_file",
            Self::Document(inner) => inner.code(),
        }
    }
}

/// Error of a file that is not readable as text.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The name is a symbolic link or leads through one.
    #[error("it is a symbolic link")]
    Link,
    /// The file is a directory, a FIFO or a device.
    #[error("it is not a plain file")]
    NotPlain,
    /// The file exceeds the size limit.
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLong,
    /// The file holds bytes that are not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The system reported an error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads the file of a workspace; `None` when the file does not exist.
pub fn read(workspace: &Path) -> Result<Option<WorkspaceFile>, WorkspaceFileError> {
    let path = workspace.join(NAME);
    let found = text_in(workspace, NAME);
    let Some(text) = found.map_err(|reason| WorkspaceFileError::Unusable { path: path.clone(), reason })? else {
        return Ok(None);
    };
    let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    let loaded = document::read(NAME, path.display().to_string(), &text)?;
    Ok(Some(WorkspaceFile { path, hash, loaded }))
}

/// Reads a file in the top directory of a workspace; `None` when it does not exist.
pub(crate) fn text_in(workspace: &Path, name: &str) -> Result<Option<String>, TextError> {
    match open(workspace, name) {
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP | Errno::XDEV) => Err(TextError::Link),
        Err(error) => Err(TextError::Io(error.into())),
        Ok(file) => plain_text(file).map(Some),
    }
}

/// Reads a file that may be a workspace's. Refuses a link as the last name, never waits, and bounds the length.
pub fn text_of(path: &Path) -> Result<String, TextError> {
    match rustix::fs::open(path, FLAGS, Mode::empty()) {
        Ok(file) => plain_text(File::from(file)),
        Err(Errno::LOOP) => Err(TextError::Link),
        Err(error) => Err(TextError::Io(error.into())),
    }
}

fn plain_text(file: File) -> Result<String, TextError> {
    let stat = rustix::fs::fstat(&file).map_err(std::io::Error::from)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(TextError::NotPlain);
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(TextError::TooLong);
    }
    String::from_utf8(bytes).map_err(|_| TextError::NotUtf8)
}

/// Without NONBLOCK a FIFO of that name would block the process for ever.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

fn open(workspace: &Path, name: &str) -> Result<File, Errno> {
    let directory = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let directory = rustix::fs::open(workspace, directory, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(directory, name, FLAGS, Mode::empty(), resolve).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(dir.path()).unwrap();
        (dir, path)
    }

    #[test]
    fn a_plain_file_is_read_and_a_missing_one_is_none() {
        let (_dir, path) = directory();
        assert!(read(&path).unwrap().is_none());
        std::fs::write(path.join(NAME), "changes: review\n").unwrap();
        let first = read(&path).unwrap().unwrap();
        std::fs::write(path.join(NAME), "changes: review\n\n").unwrap();
        assert_ne!(first.hash, read(&path).unwrap().unwrap().hash, "every byte counts");
    }

    #[test]
    fn a_named_file_is_read_as_carefully() {
        let (_dir, path) = directory();
        std::fs::write(path.join("plain"), "changes: review\n").unwrap();
        std::os::unix::fs::symlink("/dev/zero", path.join("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        std::fs::write(path.join("large"), "#".repeat(MAX_BYTES + 1)).unwrap();
        assert_eq!(text_of(&path.join("plain")).unwrap(), "changes: review\n");
        let refused = |name: &str| text_of(&path.join(name)).unwrap_err().to_string();
        assert!(refused("link").contains("symbolic link"));
        assert!(refused("fifo").contains("not a plain file") && text_of(Path::new("/dev/zero")).is_err());
        assert!(refused("large").contains("more than") && !refused("missing").is_empty());
    }

    #[test]
    fn links_fifos_directories_and_large_files_are_refused() {
        let refused = |make: &dyn Fn(&Path)| {
            let (_dir, path) = directory();
            make(&path.join(NAME));
            read(&path).unwrap_err().to_string()
        };
        let (_other, outside) = directory();
        std::fs::write(outside.join("x"), "changes: review\n").unwrap();
        let link = refused(&|path| std::os::unix::fs::symlink(outside.join("x"), path).unwrap());
        assert!(link.contains("symbolic link"), "{link}");
        let fifo = refused(&|path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        });
        assert!(fifo.contains("not a plain file"), "{fifo}");
        assert!(refused(&|path| std::fs::create_dir(path).unwrap()).contains("not a plain file"));
        let large = refused(&|path| std::fs::write(path, "#".repeat(MAX_BYTES + 1)).unwrap());
        assert!(large.contains("more than"), "{large}");
        assert!(refused(&|path| std::fs::write(path, [0xff, 0xfe]).unwrap()).contains("UTF-8"));
        assert!(refused(&|path| std::fs::write(path, "a: &a [b]\n").unwrap()).contains("nexus.yaml:"));
    }
}
