//! Lists the runs whose layers wait for a decision.

use crate::notices::{Notice, Notify};
use crate::recover::interrupted::Interrupted;
use crate::recover::sandboxes::is_unparked;
use crate::review::error::ReviewError;
use crate::state::directory::StateDir;
use crate::state::identity::DirectoryId;
use crate::state::note::{self, CutShort, RunNote};
use crate::state::record;
use nexus_layer::disk::going::GOING;
use nexus_layer::is_whole_copy;
use nexus_model::ByteText;
use std::path::PathBuf;

/// A run whose layer waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The id of the run.
    pub run: String,
    /// The workspace of the run.
    pub workspace: PathBuf,
    /// The identity of the workspace.
    pub directory: DirectoryId,
    /// The command of the run.
    pub command: ByteText,
    /// Everything that is known of the run.
    pub note: RunNote,
    /// The state of the layer.
    pub state: State,
    /// True if the layer was in memory and not all of it is on the disk.
    pub is_part: bool,
}

/// State of a layer that waits, or whose commit or removal was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The layer waits for a decision.
    Waiting,
    /// The commit of the layer was interrupted.
    Interrupted,
    /// The layer was being thrown away.
    Going,
    /// The run was killed, and there was no room to park its layer.
    Unparked,
    /// Another command decides about the layer at this moment.
    Busy,
}

impl State {
    /// Returns the state in one word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Going => "being_removed",
            Self::Unparked => "not_parked",
            Self::Busy => "busy",
        }
    }
}

impl Waiting {
    fn new(run: String, mut note: RunNote, state: State, is_part: bool) -> Self {
        if is_part {
            note.cut_short = Some(CutShort::Partial);
        }
        let words: Vec<&[u8]> = note.argv.iter().map(|word| word.0.as_slice()).collect();
        let command = words.join(&b" "[..]).into();
        Self {
            run,
            workspace: note.workspace.as_path().to_owned(),
            directory: note.directory,
            command,
            note,
            state,
            is_part,
        }
    }

    /// Returns the run in the form that the commands of recovery take.
    pub fn interrupted(&self, places: &StateDir) -> Interrupted {
        Interrupted::new(places, self.run.clone(), Some((self.workspace.clone(), self.directory)))
    }
}

/// Returns the time of the start of a run by its id, which begins with the milliseconds since 1970.
pub fn started_ms(run: &str) -> Option<u64> {
    let digits: String = run.chars().filter(|letter| *letter != '-').take(12).collect();
    u64::from_str_radix(&digits, 16).ok()
}

/// Lists all runs whose layers wait, the latest first.
pub fn all(places: &StateDir, interrupted: &[Interrupted], tell: Notify<'_>) -> Result<Vec<Waiting>, ReviewError> {
    let failed = |source: std::io::Error| ReviewError::StateDir { path: places.layers.clone(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&places.layers).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(run) = entry.file_name().into_string() else { continue };
        if run == GOING {
            continue;
        }
        let path = entry.path();
        let is_interrupted = interrupted.iter().any(|one| one.run == run);
        // A run that still goes has a record (what had none alive was cleared just now) and decides on its own. One that
        // ended between the two looks has taken its layer with it, or has left it to wait.
        let has_record = !is_interrupted && places.runs.join(&run).try_exists().map_err(failed)?;
        let is_unparked = match run.parse() {
            Ok(id) if has_record => is_unparked(places, id).map_err(failed)?,
            _ => false,
        };
        let is_busy = has_record && !is_unparked && is_reviewed(places, &run).map_err(failed)?;
        if (has_record && !is_unparked && !is_busy) || !path.try_exists().map_err(failed)? {
            continue;
        }
        let (note, state) = match (note::read(&path), note::read_gone(&path)) {
            (Ok(Some(note)), _) if is_interrupted => (note, State::Interrupted),
            (Ok(Some(note)), _) if is_unparked => (note, State::Unparked),
            (Ok(Some(note)), _) if is_busy => (note, State::Busy),
            (Ok(Some(note)), _) => (note, State::Waiting),
            (Ok(None), Ok(Some(note))) => (note, State::Going),
            (Ok(None), Ok(None)) => continue,
            (Err(error), _) | (Ok(None), Err(error)) => {
                tell(&Notice::Recovered(format!(
                    "What is known of the run {run} cannot be read: {error}. Its files are in {}; nexus changes reject \
                     --run {run} removes them.",
                    path.join("upper").display()
                )));
                continue;
            }
        };
        // Only what waits has to be whole: a commit that was decided is read by its journal.
        let is_part = state == State::Waiting && note.in_memory && !is_whole_copy(&path).map_err(failed)?;
        found.push(Waiting::new(run, note, state, is_part));
    }
    // Ids are ordered by time.
    found.sort_by(|a, b| b.run.cmp(&a.run));
    Ok(found)
}

/// Reports whether a command that lives decides about the layer of a run.
fn is_reviewed(places: &StateDir, run: &str) -> std::io::Result<bool> {
    let Ok(run) = run.parse() else { return Ok(false) };
    let record = record::inspect(&places.runs, run)?;
    Ok(record.is_some_and(|record| record.reviewing && record.owner.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::RunId;

    #[test]
    fn an_id_tells_when_its_run_started() {
        let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let ms = u128::from(started_ms(&RunId::new().to_string()).unwrap());
        assert!(ms >= before && ms < before + 60_000, "{ms} is not just after {before}");
    }
}
