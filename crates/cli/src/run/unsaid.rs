//! Says what a command did and kept that was killed before it could say so.

use super::recover::{Direction, Interrupted, is_busy, kept_back, patiently};
use crate::failure::one_line;
use crate::notices::tell;
use crate::notices::tell_leftovers;
use nexus_runner::causes::chain;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::DirectoryId;
use std::path::{Path, PathBuf};

/// The directory of layers that were set aside, in the state directory.
pub const KEPT: &str = "kept";

/// The directory of what could not or must not be removed, in the directory of the layers.
const BESIDE_LAYERS: &str = ".kept";

/// Names what earlier commands kept of a run under names that no command touches.
pub fn tell_kept(places: &StateDir, run: &str, recorded: Option<&(PathBuf, DirectoryId)>) -> Result<(), String> {
    let asides = nexus_layer::found_set_aside(&places.state.join(KEPT), run).map_err(|error| chain(&error))?;
    for layer in asides {
        tell(&format!("What the interrupted commit of the run {run} displaced is in {}.", layer.display()));
    }
    for kept in nexus_layer::found_kept(&places.layers, run).map_err(|error| chain(&error))? {
        tell(&format!(
            "Files that a command kept of the run {run} are in {}: they may be the only copy of something. Remove them when \
             you do not need them any more.",
            kept.display()
        ));
    }
    let directory = recorded.and_then(|(path, folder)| Some((path, folder.open_at(path).ok()?)));
    if let Some((path, directory)) = &directory {
        let found = || nexus_layer::found_beside(&places.layers, run, directory);
        let beside = patiently(found, is_busy).map_err(|error| chain(&error))?;
        if let Some(line) = kept_back(run, path, &beside) {
            tell(&line);
        }
    }
    let staging = directory.map_or(Ok(Vec::new()), |(_, directory)| nexus_layer::found_staging(run, &directory));
    tell_leftovers(&staging.map_err(|error| chain(&error))?);
    Ok(())
}

/// Says how far a killed accept or reject came that had ended its work, as far as the layer tells. `rejecting`:
/// `None` for a run. `waits`: changes of the run wait.
pub fn tell_over(run: &str, rejecting: Option<bool>, recorded: Option<&(PathBuf, DirectoryId)>, waits: bool) {
    let (Some(rejecting), Some((path, _))) = (rejecting, recorded) else { return };
    tell(&over(run, rejecting, path, waits));
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

/// Says what to do about a commit that stopped half-way, by how far it is.
pub fn go_on(places: &StateDir, run: &str) -> String {
    advice(run, Interrupted::new(places, run.to_owned(), None).ending)
}

/// Returns the advice for a commit that cannot go on now. Pure.
pub fn advice(run: &str, ending: Direction) -> String {
    let (recover, reject) = (format!("nexus changes recover --run {run}"), format!("nexus changes reject --run {run}"));
    let then = match ending {
        Direction::Open => format!("{recover} finishes the commit, and {reject} takes it back"),
        Direction::Back => format!("{recover} and {reject} both go on with taking the commit back"),
        Direction::Forward => {
            format!("{recover} finishes the commit. All of it is applied, and nothing can take it back")
        }
    };
    format!("fix that (is the disk full?), then {then}")
}

/// Lines that name everything that commands kept in the state directory and no command removes.
pub fn kept_lines(places: &StateDir) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for run in list(&places.layers.join(BESIDE_LAYERS))? {
        found.extend(list(&run)?);
    }
    found.extend(list(&places.state.join(KEPT))?);
    let line = |path: PathBuf| {
        one_line(&format!(
            "Files that an earlier command kept are in {}. Remove them when nobody needs them.",
            path.display()
        ))
    };
    Ok(found.into_iter().map(line).collect())
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
    use super::{Direction, advice, over};
    use std::path::Path;

    #[test]
    fn advice_names_only_commands_that_do_what_it_says() {
        let of = |ending| advice("7", ending);
        assert!(
            of(Direction::Open).contains("recover --run 7 finishes")
                && of(Direction::Open).contains("reject --run 7 takes")
        );
        assert!(!of(Direction::Back).contains("finishes") && of(Direction::Back).contains("reject --run 7 both go on"));
        assert!(
            of(Direction::Forward).contains("recover --run 7 finishes") && !of(Direction::Forward).contains("reject")
        );
    }

    #[test]
    fn what_a_killed_command_did_is_said_as_it_is() {
        let of = |rejecting, waits| over("7", rejecting, Path::new("/w"), waits);
        assert!(of(true, false).contains("gone") && of(true, true).contains("before it removed anything"));
        assert!(of(false, false).contains("in /w, and nothing") && of(false, true).contains("show --run 7"));
    }
}
