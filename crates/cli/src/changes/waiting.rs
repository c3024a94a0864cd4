//! Lists the runs whose layers wait for a decision, and chooses one.

use crate::failure::{Failure, one_line};
use crate::receipt::utc;
use nexus_layer::going::GOING;
use nexus_layer::is_whole_copy;
use nexus_model::{ByteText, RunId};
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::sandboxes::is_unparked;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::DirectoryId;
use nexus_runner::state::note::{self, CutShort, RunNote};
use std::path::{Path, PathBuf};

/// A run whose layer waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The id of the run.
    pub run: String,
    /// The workspace of the run.
    pub workspace: PathBuf,
    /// The identity of the workspace.
    pub folder: DirectoryId,
    /// The command of the run.
    pub command: ByteText,
    /// Everything that is known of the run.
    pub note: RunNote,
    /// The state of the layer.
    pub state: State,
    /// Reports that the layer was in memory and that not all of it is on the disk.
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
}

impl State {
    /// Returns the state in one word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Going => "being_removed",
            Self::Unparked => "not_parked",
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
            folder: note.directory,
            command,
            note,
            state,
            is_part,
        }
    }

    /// Returns the run in the form that the commands of recovery take.
    pub fn interrupted(&self, places: &StateDir) -> Interrupted {
        Interrupted::new(places, self.run.clone(), Some((self.workspace.clone(), self.folder)))
    }

    /// Names the run with its start and its command.
    fn brief(&self) -> String {
        let when = started_ms(&self.run).map_or_else(String::new, |ms| format!("{}, ", utc(ms)));
        format!("{} ({when}{})", self.run, self.command.as_os_str().display())
    }
}

/// Returns the time in an id, which begins with the milliseconds since 1970.
fn started_ms(run: &str) -> Option<u64> {
    let digits: String = run.chars().filter(|letter| *letter != '-').take(12).collect();
    u64::from_str_radix(&digits, 16).ok()
}

/// Lists all runs whose layers wait, the latest first.
pub fn all(places: &StateDir, interrupted: &[Interrupted]) -> Result<Vec<Waiting>, Failure> {
    let failed =
        |error: std::io::Error| Failure::refused("state_dir", format!("{}: {error}", places.layers.display()), "");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&places.layers).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(run) = entry.file_name().into_string() else { continue };
        if run == GOING {
            continue;
        }
        let path = entry.path();
        let is_interrupted = interrupted.iter().any(|one| one.run == run);
        // A run that still goes has a record (what had none alive was cleared just now) and decides by itself. One that
        // ended between the two looks has taken its layer with it, or has left it to wait.
        let has_record = !is_interrupted && places.runs.join(&run).try_exists().map_err(failed)?;
        let is_unparked = match run.parse() {
            Ok(id) if has_record => is_unparked(places, id).map_err(failed)?,
            _ => false,
        };
        if (has_record && !is_unparked) || !path.try_exists().map_err(failed)? {
            continue;
        }
        let (note, state) = match (note::read(&path), note::read_gone(&path)) {
            (Ok(Some(note)), _) if is_interrupted => (note, State::Interrupted),
            (Ok(Some(note)), _) if is_unparked => (note, State::Unparked),
            (Ok(Some(note)), _) => (note, State::Waiting),
            (Ok(None), Ok(Some(note))) => (note, State::Going),
            (Ok(None), Ok(None)) => continue,
            (Err(error), _) | (Ok(None), Err(error)) => {
                crate::notices::tell(&one_line(&format!(
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

/// Returns the runs of the directory that the caller stands in, and that directory.
fn here(all: Vec<Waiting>) -> (PathBuf, Vec<Waiting>) {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    let found = all.into_iter().filter(|one| here.starts_with(&one.workspace)).collect();
    (here, found)
}

/// Returns the run that was named, or the only one that waits for the directory that the caller stands in. What is
/// decided must be what the caller has seen, so that with several of them one has to be named.
pub fn only_one(all: Vec<Waiting>, run: Option<RunId>) -> Result<Waiting, Failure> {
    if let Some(run) = run {
        return named(all, run);
    }
    let (here, mut found) = here(all);
    if found.len() > 1 {
        let list: Vec<_> = found.iter().map(Waiting::brief).collect();
        let message = format!("{} runs wait for {}: {}", list.len(), here.display(), list.join("; "));
        return Err(Failure::usage("run", message, "name one with --run ID"));
    }
    found.pop().ok_or_else(|| none(&here))
}

/// Returns the run that was named, or the latest one of the directory that the caller stands in. In that case prints
/// a line about the others.
pub fn latest(all: Vec<Waiting>, run: Option<RunId>) -> Result<Waiting, Failure> {
    if let Some(run) = run {
        return named(all, run);
    }
    let (here, found) = here(all);
    let mut found = found.into_iter();
    let latest = found.next().ok_or_else(|| none(&here))?;
    let others: Vec<_> = found.map(|one| one.brief()).collect();
    if !others.is_empty() {
        let what = if others.len() == 1 { "Another run waits" } else { "Other runs wait" };
        let line = format!("{what} for this directory: {}. --run ID chooses one.", others.join("; "));
        crate::notices::tell(&one_line(&line));
    }
    Ok(latest)
}

fn named(all: Vec<Waiting>, run: RunId) -> Result<Waiting, Failure> {
    all.into_iter().find(|one| one.run == run.to_string()).ok_or_else(|| {
        let message = format!("no changes of the run {run} wait for a decision");
        Failure::refused("no_changes", message, "nexus changes list shows all that wait")
    })
}

fn none(here: &Path) -> Failure {
    let message = format!("no changes of {} wait for a decision", here.display());
    Failure::refused("no_changes", message, "nexus changes list shows all that wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_when_its_run_started() {
        let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let ms = u128::from(started_ms(&RunId::new().to_string()).unwrap());
        assert!(ms >= before && ms < before + 60_000, "{ms} is not just after {before}");
    }
}
