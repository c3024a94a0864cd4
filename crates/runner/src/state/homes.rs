//! Finds the directories in a workspace that other runs have as theirs. A commit that took one away would leave the changes of that run
//! with no directory to go to: an ordinary user's commit makes a new directory for a renamed one.

use crate::state::note;
use nexus_layer::Layer;
use nexus_layer::disk::going::GOING;
use nexus_layer::entries::protected::RunHome;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Lists the directories below the workspace at `path` in which other runs than that of `layer` work, or for which their changes wait.
pub fn others(layer: &Layer, path: &Path) -> io::Result<Vec<RunHome>> {
    let Some(layers) = layer.root().parent() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(layers)? {
        let entry = entry?;
        let Ok(run) = entry.file_name().into_string() else { continue };
        if run == layer.run() || run == GOING || run.starts_with('.') {
            continue;
        }
        // Other commands report a note that cannot be read. One that is being removed waits for nothing.
        let Ok(Some(note)) = note::read(&entry.path()) else { continue };
        let Ok(inside) = note.workspace.as_path().strip_prefix(path) else { continue };
        // Where another directory has the path by now, its changes have none already. What cannot be asked is kept.
        let is_theirs = !note.discards && !inside.as_os_str().is_empty();
        if is_theirs && note.directory.is_at(note.workspace.as_path()).unwrap_or(true) {
            found.push(RunHome { path: inside.as_os_str().as_bytes().to_vec().into(), run });
        }
    }
    found.sort_by(|one, other| one.run.cmp(&other.run));
    Ok(found)
}
