//! Files that a caller asks for: everything that the command prints, or the receipt.
//!
//! The file has no name until the run is over, so that a run that is refused leaves an existing file as it was, and one
//! that is killed leaves nothing. It may not lie in the workspace: a command may have put a link there that leads out.

use nexus_model::RunId;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Error: the place that was named takes no such file.
#[derive(Debug, thiserror::Error)]
#[error("{asked} {}: {why}", path.display())]
pub struct FullOutputError {
    /// The words with which the caller asked for the file.
    pub asked: String,
    /// The path that was named.
    pub path: PathBuf,
    /// The reason why it takes no such file.
    pub why: String,
}

impl FullOutputError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        "full_output"
    }
}

/// A file that is being written.
pub struct FullOutput {
    /// The file without a name that receives the bytes.
    pub file: File,
    directory: OwnedFd,
    name: OsString,
    temporary: String,
}

impl FullOutput {
    /// Looks at the place and makes a file without a name there. `asked` is how the caller asked for it.
    pub fn create(asked: &str, path: &Path, workspace: &Path, run: RunId) -> Result<Self, FullOutputError> {
        let refuse = |why: String| FullOutputError { asked: asked.to_owned(), path: path.to_owned(), why };
        let name = path.file_name().ok_or_else(|| refuse("no file name".to_owned()))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = std::fs::canonicalize(parent).map_err(|error| refuse(error.to_string()))?;
        if parent.starts_with(workspace) {
            return Err(refuse("it lies in the workspace, where a command may have put a link".to_owned()));
        }
        match std::fs::symlink_metadata(parent.join(&name)) {
            Ok(meta) if !meta.is_file() => return Err(refuse("it is not a regular file".to_owned())),
            _ => {}
        }
        let open = || -> io::Result<Self> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::open(&parent, flags, Mode::empty())?;
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&directory, c".", flags, Mode::from_raw_mode(0o666))?;
            Ok(Self { file: file.into(), directory, name, temporary: format!(".nexus{asked}-{run}") })
        };
        open().map_err(|error| refuse(error.to_string()))
    }

    /// Gives the file its name, in place of an older one.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_data()?;
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, unnamed, &self.directory, &self.temporary, AtFlags::SYMLINK_FOLLOW)?;
        Ok(rustix::fs::renameat(&self.directory, &self.temporary, &self.directory, &self.name)?)
    }
}
