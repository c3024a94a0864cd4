//! `nexus changes show`: a line for each change.

use super::Pending;
use super::waiting::Waiting;
use crate::failure::{Failure, one_line};
use nexus_facility::{Change, ChangeKind};
use nexus_model::{ByteText, RunId};
use nexus_runner::state::note::CutShort;
use serde::Serialize;
use std::fmt::Write as _;

/// The answer to `--json`.
#[derive(Serialize)]
struct Document<'a> {
    run_id: &'a str,
    command: &'a ByteText,
    changes: Vec<Change>,
    cut_short: Option<CutShort>,
}

/// Lists the changes of a run.
pub fn command(run: Option<RunId>, json: bool) -> Result<String, Failure> {
    let pending = Pending::to_look_at(run)?;
    let noted = pending.layer.note_shown();
    noted.map_err(|error| Failure::refused("layer", crate::run::chain(&error), ""))?;
    let changes = pending.changes()?;
    if json {
        let Waiting { run, command, note, .. } = &pending.one;
        let document = Document { run_id: run, command, changes, cut_short: note.cut_short };
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
        text.push_str(&one_line(&line(change)));
        text.push('\n');
    }
    Ok(text)
}

/// Describes a change in one line: what, where, how large, and what to look at.
pub fn line(change: &Change) -> String {
    let mark = match change.kind {
        ChangeKind::Added => "A",
        ChangeKind::Modified => "M",
        ChangeKind::Deleted => "D",
        ChangeKind::Mode => "P",
        ChangeKind::Type { .. } => "T",
        ChangeKind::Renamed { .. } => "R",
    };
    let mut text = format!("{mark} {}", change.path.as_path().display());
    let mut add = |part: std::fmt::Arguments<'_>| {
        // Writing into a String cannot fail.
        text.write_fmt(part).unwrap_or_default();
    };
    if let ChangeKind::Renamed { from } = &change.kind {
        add(format_args!(" (was {})", from.as_path().display()));
    }
    if change.size > 0 {
        add(format_args!("  {}", nexus_model::units::format_size(change.size)));
    }
    if let Some(why) = &change.protected {
        add(format_args!("  [parked: {why}]"));
    }
    if change.setuid {
        add(format_args!("  [setuid]"));
    }
    if change.new_executable {
        add(format_args!("  [executable]"));
    }
    if change.skipped {
        add(format_args!("  [left out]"));
    }
    text
}
