//! Which `nexus.yaml` the user has read and agreed to: its hash, kept in the state directory under the workspace's path.
//!
//! ```text
//!  untrusted ── nexus trust ──▶ trusted ── one byte changes ──▶ untrusted
//!      ▲                            └── nexus untrust ─────────────┘
//! ```
//!
//! The pin lies outside the workspace, where no sandbox sees it. The path belongs to it: the same content in another
//! folder was never agreed to.

use super::workspace_file::WorkspaceFile;
use crate::failure::Failure;
use crate::places::Places;
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is kept.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    workspace: ByteText,
    hash: String,
}

fn place(places: &Places, workspace: &Path) -> PathBuf {
    let name = blake3::hash(workspace.as_os_str().as_bytes()).to_hex();
    places.state.join("trust").join(name.as_str())
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    let message = format!("{} cannot be used: {error}", path.display());
    Failure::refused("trust", message, "make room there, or remove it and say nexus trust again")
}

/// Whether exactly this content is trusted in this workspace.
pub fn is_trusted(places: &Places, workspace: &Path, file: &WorkspaceFile) -> Result<bool, Failure> {
    let path = place(places, workspace);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(false),
        Err(error) => return Err(failed(&path, &error)),
    };
    let pin: Pin = serde_json::from_slice(&bytes).map_err(|error| failed(&path, &error))?;
    Ok(pin.workspace == ByteText::from(workspace) && pin.hash == file.hash)
}

/// Trusts exactly this content from now on.
pub fn pin(places: &Places, workspace: &Path, file: &WorkspaceFile) -> Result<(), Failure> {
    let path = place(places, workspace);
    let write = || -> std::io::Result<()> {
        let folder = path.parent().ok_or(ErrorKind::InvalidInput)?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let text = serde_json::to_vec(&Pin { workspace: workspace.into(), hash: file.hash.clone() })?;
        // Whole or not at all: half a pin would stop every run here.
        let fresh = folder.join(format!(".{}", nexus_model::RunId::new()));
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        out.write_all(&text)?;
        out.sync_all()?;
        std::fs::rename(&fresh, &path)
    };
    write().map_err(|error| failed(&path, &error))
}

/// Trusts nothing here any more. Whether there was something.
pub fn unpin(places: &Places, workspace: &Path) -> Result<bool, Failure> {
    let path = place(places, workspace);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(failed(&path, &error)),
    }
}
