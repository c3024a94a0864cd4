//! Small files that are shown inside instead of the host's: a git identity, settings of cargo without their secrets.
//!
//! They lie in the state directory under the hash of their content, so that equal runs share one and nothing has to be
//! cleared away. Their content is made from a list of what may be in it, so there is nothing secret to lose.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {source}", path.display())]
pub struct WriteError {
    /// The path of the file.
    pub path: PathBuf,
    /// The answer of the system.
    pub source: std::io::Error,
}

impl WriteError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "state_dir"
    }
}

/// Writes the content below the state directory unless it is there, and returns its path.
pub fn write(state: &Path, content: &[u8]) -> Result<PathBuf, WriteError> {
    let directory = state.join("generated");
    let path = directory.join(blake3::hash(content).to_hex().as_str());
    match put(&directory, &path, content) {
        Ok(()) => Ok(path),
        Err(source) => Err(WriteError { path, source }),
    }
}

fn put(directory: &Path, path: &Path, content: &[u8]) -> std::io::Result<()> {
    // The content, not only the name: a crash of the machine may have left a short file.
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let fresh = directory.join(format!(".{}", nexus_model::RunId::new()));
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&fresh)?;
    out.write_all(content)?;
    std::fs::rename(&fresh, path)
}
