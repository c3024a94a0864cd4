//! Records the `nexus.yaml` files that the user has read and agreed to: a hash, kept in the state directory under the
//! workspace's path.
//!
//! ```text
//!  untrusted ── nexus trust ──▶ trusted ── one byte changes ──▶ untrusted
//!      ▲                            └── nexus untrust ─────────────┘
//! ```
//!
//! The pin lies outside the workspace, where no sandbox sees it. The path belongs to it: the same content in another
//! directory was never agreed to. A directory that others can enter, or a pin that another user wrote, is refused: a
//! user who could put a pin there would agree in this user's name.

use crate::state::directory::StateDir;
use nexus_model::ByteText;
use nexus_receipt::DirectoryError;
use nexus_receipt::store::files;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Content of a pin.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    workspace: ByteText,
    hash: String,
}

/// Maximum length of a pin in bytes: it is a path and a hash.
const MAX_BYTES: u64 = 64 << 10;

fn directory(places: &StateDir) -> PathBuf {
    places.state.join("trust")
}

fn name(workspace: &Path) -> String {
    blake3::hash(workspace.as_os_str().as_bytes()).to_hex().to_string()
}

/// Error: what is trusted cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A pin, or the directory of the pins, cannot be used.
    #[error("{} cannot be used: {why}", path.display())]
    Unusable {
        /// The path of the pin or the directory.
        path: PathBuf,
        /// The reason why it cannot be used.
        why: String,
    },
    /// Another user can enter the directory of the pins.
    #[error("{source}")]
    Unsafe {
        /// The path of the directory.
        path: PathBuf,
        /// The reason why it is not safe.
        source: DirectoryError,
    },
}

impl TrustError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        "trust"
    }
}

fn failed(path: &Path, why: &dyn std::fmt::Display) -> TrustError {
    TrustError::Unusable { path: path.to_owned(), why: why.to_string() }
}

fn unsafe_directory(path: &Path, source: DirectoryError) -> TrustError {
    TrustError::Unsafe { path: path.to_owned(), source }
}

/// Opens the directory of the pins, if there is one; fails if another user can enter it.
fn opened(path: &Path) -> Result<Option<OwnedFd>, TrustError> {
    files::existing_directory(path).map_err(|error| unsafe_directory(path, error))
}

/// Reports whether exactly the content with this hash is trusted in this workspace.
pub fn is_trusted(places: &StateDir, workspace: &Path, hash: &str) -> Result<bool, TrustError> {
    let (at, name) = (directory(places), name(workspace));
    let path = at.join(&name);
    let Some(directory) = opened(&at)? else { return Ok(false) };
    let Some(bytes) = read(&directory, &path, &name)? else { return Ok(false) };
    let pin: Pin = serde_json::from_slice(&bytes).map_err(|error| failed(&path, &error))?;
    Ok(pin.workspace == ByteText::from(workspace) && pin.hash == hash)
}

/// Reads a pin that only the caller can have written; the checks are made on the open file that is read.
fn read(directory: impl AsFd, path: &Path, name: &str) -> Result<Option<Vec<u8>>, TrustError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(failed(path, &"it is a symbolic link")),
        Err(error) => return Err(failed(path, &error)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| failed(path, &error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(failed(path, &"it is not a plain file"));
    }
    let (uid, mode) = (stat.st_uid, stat.st_mode & 0o7777);
    if uid != rustix::process::geteuid().as_raw() || mode & 0o022 != 0 {
        let why = format!("another user can have written it (owner {uid}, mode {mode:03o}), so it trusts nothing");
        return Err(failed(path, &why));
    }
    let mut bytes = Vec::new();
    File::from(file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    Ok(Some(bytes))
}

/// Trusts exactly the content with this hash from now on.
pub fn pin(places: &StateDir, workspace: &Path, hash: &str) -> Result<(), TrustError> {
    let (at, name) = (directory(places), name(workspace));
    let directory = files::directory(&at).map_err(|error| unsafe_directory(&at, error))?;
    let path = at.join(&name);
    let pin = Pin { workspace: workspace.into(), hash: hash.to_owned() };
    let text = serde_json::to_vec(&pin).map_err(|error| failed(&path, &error))?;
    // Whole or not at all: half a pin would stop every run here.
    files::replace(&directory, &name, &text).map_err(|error| failed(&path, &error))
}

/// Trusts nothing in this workspace any more. Returns whether something was trusted.
pub fn unpin(places: &StateDir, workspace: &Path) -> Result<bool, TrustError> {
    let (at, name) = (directory(places), name(workspace));
    let Some(directory) = opened(&at)? else { return Ok(false) };
    match rustix::fs::unlinkat(&directory, &name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(failed(&at.join(&name), &error)),
    }
}
