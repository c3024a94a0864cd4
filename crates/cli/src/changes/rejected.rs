//! Which paths of a layer were rejected: a list beside it. They stay in the layer's folder until the layer goes, but are
//! never shown or committed again.

use crate::failure::Failure;
use nexus_model::ByteText;
use std::io;
use std::path::Path;

const FILE: &str = "rejected.json";

/// The list; empty when there is none.
pub fn read(layer: &Path) -> Result<Vec<ByteText>, Failure> {
    match std::fs::read(layer.join(FILE)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(&io::Error::other(error))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(&error)),
    }
}

/// Writes the list so that after a crash it is the old or the new one.
pub fn write(layer: &Path, paths: &[ByteText]) -> Result<(), Failure> {
    let new = layer.join(format!("{FILE}.new"));
    let written = serde_json::to_vec(paths)
        .map_err(io::Error::other)
        .and_then(|bytes| std::fs::write(&new, bytes))
        .and_then(|()| std::fs::File::open(&new)?.sync_all())
        .and_then(|()| std::fs::rename(&new, layer.join(FILE)));
    written.map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Failure {
    Failure::refused("rejected", format!("the list of rejected paths cannot be used: {error}"), "is the disk full?")
}
