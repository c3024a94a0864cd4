//! Finds the journals of a workspace.

use crate::beneath::{DirectoryIdentity, IoFailure, Workspace};
use crate::journal::file::home_of;
use std::io;
use std::path::Path;

/// Lists the layers with a journal for the directory `id`. A journal that cannot be read is not listed.
pub fn journals_of(layers_dir: &Path, id: DirectoryIdentity) -> Result<Vec<String>, IoFailure> {
    let layers = Workspace::open(layers_dir)?;
    let failed = |doing: &'static str, path: &Path, source: io::Error| IoFailure { doing, path: path.into(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(layers_dir).map_err(|error| failed("list", layers_dir, error))? {
        let entry = entry.map_err(|error| failed("list", layers_dir, error))?;
        let Ok(run) = entry.file_name().into_string() else { continue };
        let root = match layers.readable_dir(run.as_bytes()) {
            Err(error) if crate::beneath::is_gone(&error) => continue,
            other => Workspace::from_fd(other.map_err(|error| failed("open", &entry.path(), error))?),
        };
        // One that cannot be read is found by the note of its run.
        if home_of(&root).ok().flatten().is_some_and(|home| home.id == id) {
            found.push(run);
        }
    }
    Ok(found)
}
