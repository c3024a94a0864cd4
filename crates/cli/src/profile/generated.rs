//! Small files that are shown inside instead of the host's: a git identity, settings of cargo without their secrets.
//!
//! They lie in the state directory under the hash of their content, so that equal runs share one and nothing has to be
//! cleared away. Their content is made from a list of what may be in it, so there is nothing secret to lose.

use crate::failure::Failure;
use crate::places::Places;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes the content unless it is there, and returns its place.
pub fn write(places: &Places, content: &[u8]) -> Result<PathBuf, Failure> {
    let folder = places.state.join("generated");
    let path = folder.join(blake3::hash(content).to_hex().as_str());
    put(&folder, &path, content).map_err(|error| {
        let message = format!("{} cannot be written: {error}", path.display());
        Failure::refused("state_dir", message, "make room there, or set NEXUS_STATE_DIR to another folder")
    })?;
    Ok(path)
}

fn put(folder: &Path, path: &Path, content: &[u8]) -> std::io::Result<()> {
    // The content, not only the name: a crash of the machine may have left a short file.
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let fresh = folder.join(format!(".{}", nexus_model::RunId::new()));
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&fresh)?;
    out.write_all(content)?;
    std::fs::rename(&fresh, path)
}
