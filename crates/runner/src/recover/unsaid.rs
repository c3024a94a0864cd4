//! Reports what a command did and kept that was killed before it could report that itself.

use crate::causes::chain;
use crate::notices::{Notice, Notify, tell_leftovers};
use crate::recover::kept::kept_back;
use crate::recover::retry::{is_busy, patiently};
use crate::state::directory::StateDir;
use crate::state::identity::DirectoryId;
use std::path::{Path, PathBuf};

/// The directory of layers that were set aside, in the state directory.
pub const KEPT: &str = "kept";

/// The directory of what could not or must not be removed, in the directory of the layers.
const BESIDE_LAYERS: &str = ".kept";

/// Names what earlier commands kept of a run under names that no command touches.
pub fn tell_kept(
    places: &StateDir,
    run: &str,
    recorded: Option<&(PathBuf, DirectoryId)>,
    tell: Notify<'_>,
) -> Result<(), String> {
    let report = |line: String| tell(&Notice::Recovered(line));
    let asides = nexus_layer::found_set_aside(&places.state.join(KEPT), run).map_err(|error| chain(&error))?;
    for layer in asides {
        report(format!("What the interrupted commit of the run {run} displaced is in {}.", layer.display()));
    }
    for kept in nexus_layer::found_kept(&places.layers, run).map_err(|error| chain(&error))? {
        report(format!(
            "Files that a command kept of the run {run} are in {}: they may be the only copy of something. Remove them when \
             you do not need them any more.",
            kept.display()
        ));
    }
    let directory = recorded.and_then(|(path, id)| Some((path, id.open_at(path).ok()?)));
    if let Some((path, directory)) = &directory {
        let found = || nexus_layer::found_beside(&places.layers, run, directory);
        let beside = patiently(found, is_busy).map_err(|error| chain(&error))?;
        if let Some(line) = kept_back(run, path, &beside) {
            report(line);
        }
    }
    let staging = directory.map_or(Ok(Vec::new()), |(_, directory)| nexus_layer::found_staging(run, &directory));
    tell_leftovers(tell, &staging.map_err(|error| chain(&error))?);
    Ok(())
}

/// Reports how far a killed accept or reject came that had ended its work, as far as the layer tells. `rejecting`:
/// `None` for a run. `waits`: changes of the run wait.
pub fn tell_over(
    run: &str,
    rejecting: Option<bool>,
    recorded: Option<&(PathBuf, DirectoryId)>,
    waits: bool,
    tell: Notify<'_>,
) {
    let (Some(rejecting), Some((path, _))) = (rejecting, recorded) else { return };
    tell(&Notice::Recovered(over(run, rejecting, path, waits)));
}

/// Describes what a killed accept or reject did. Pure.
fn over(run: &str, rejecting: bool, path: &Path, waits: bool) -> String {
    let path = path.display();
    match (rejecting, waits) {
        (true, false) => {
            format!("A nexus changes reject of the run {run} was killed at its end. The changes of the run are gone.")
        }
        (true, true) => format!(
            "A nexus changes reject of the run {run} was killed before it removed anything. nexus changes show --run {run} \
             shows what waits."
        ),
        (false, false) => format!(
            "A nexus changes accept of the run {run} was killed at its end. What it accepted is in {path}, and nothing of the \
             run waits any more."
        ),
        (false, true) => format!(
            "A nexus changes accept of the run {run} was killed. What it had accepted, if anything, is in {path}; nexus changes \
             show --run {run} shows what waits."
        ),
    }
}

/// Lists everything that commands kept in the state directory and no command removes.
pub fn kept_files(places: &StateDir) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for run in list(&places.layers.join(BESIDE_LAYERS))? {
        found.extend(list(&run)?);
    }
    found.extend(list(&places.state.join(KEPT))?);
    Ok(found)
}

fn list(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let mut found = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::over;
    use std::path::Path;

    #[test]
    fn what_a_killed_command_did_is_said_as_it_is() {
        let of = |rejecting, waits| over("7", rejecting, Path::new("/w"), waits);
        assert!(of(true, false).contains("gone") && of(true, true).contains("before it removed anything"));
        assert!(of(false, false).contains("in /w, and nothing") && of(false, true).contains("show --run 7"));
    }
}
