//! `nexus changes show`: a line for each change.

use super::accepted_text::AROUND_CONFLICTS;
use super::choose::to_look_at;
use crate::change_text;
use crate::failure::{Failure, one_line};
use nexus_layer::{Change, Conflict};
use nexus_model::{ByteText, RunId};
use nexus_runner::review::waiting::Waiting;
use nexus_runner::state::note::CutShort;
use serde::Serialize;

/// The answer to `--json`.
#[derive(Serialize)]
struct Document<'a> {
    run_id: &'a str,
    command: &'a ByteText,
    changes: Vec<Change>,
    conflicts: Vec<Conflict>,
    cut_short: Option<CutShort>,
    /// The directory of the run is away, so that everything is shown as new.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    away: bool,
}

/// Lists the changes of a run.
pub fn command(run: Option<RunId>, json: bool) -> Result<String, Failure> {
    let pending = to_look_at(run)?;
    let noted = pending.layer.note_shown();
    noted.map_err(|error| Failure::refused("layer", nexus_runner::causes::chain(&error), ""))?;
    let changes = pending.changes()?;
    if let Some(line) = pending.layer.missing_copies() {
        crate::notices::tell(&line);
    }
    let conflicts = pending.conflicts()?;
    if json {
        let Waiting { run, command, note, .. } = &pending.one;
        let (cut_short, away) = (note.cut_short, pending.away.is_some());
        let document = Document { run_id: run, command, changes, conflicts, cut_short, away };
        let written = serde_json::to_string(&document).map(|text| text + "\n");
        return written.map_err(|error| Failure::refused("output", error.to_string(), ""));
    }
    let mut text =
        one_line(&format!("run {} of {}", pending.one.run, pending.one.command.as_os_str().display())) + "\n";
    if let Some(cut) = pending.one.note.cut_short {
        text.push_str(cut.text());
        text.push('\n');
    }
    for change in &changes {
        let conflict = conflicts.iter().find(|conflict| conflict.path == change.path);
        let conflict_note = conflict.map(|conflict| format!("  [conflict: {}]", change_text::happened(conflict)));
        text.push_str(&one_line(&(change_text::line(change) + &conflict_note.unwrap_or_default())));
        text.push('\n');
    }
    for conflict in conflicts.iter().filter(|conflict| !changes.iter().any(|change| change.path == conflict.path)) {
        let path = conflict.path.as_path().display();
        text.push_str(&one_line(&format!("conflict: {path} {}", change_text::happened(conflict))));
        text.push('\n');
    }
    if !conflicts.is_empty() {
        text.push_str(AROUND_CONFLICTS);
        text.push_str(".\n");
    }
    Ok(text)
}
