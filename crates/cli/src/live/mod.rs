//! `--live`: the state of the workspace is kept before the command and after it, and `nexus changes` brings it back.
//!
//! * `run`: keeps the states around a run.
//! * `changes`: `nexus changes` for live runs.

pub mod changes;
mod differences;
mod opened;
pub mod run;
mod undo;

use crate::failure::Failure;
use nexus_facility::checkpoints::CheckpointError;

/// Longest path in a message, in letters.
const MAX_SHOWN: usize = 240;

/// Cuts the middle of a text out that is too long to be read.
fn short(text: &str) -> String {
    if text.chars().count() <= MAX_SHOWN {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX_SHOWN / 2).collect();
    let end: Vec<char> = text.chars().rev().take(MAX_SHOWN / 3).collect();
    format!("{start} […] {}", end.iter().rev().collect::<String>())
}

/// Adds the advice to an error.
fn failed(error: &CheckpointError) -> Failure {
    let hint = match error.code() {
        "snapshot_busy" => "Try again when the other command has ended.",
        "snapshot_too_much" => {
            "--live-size SIZE, of a run or of nexus changes undo, allows so many bytes and any number of files; a layer, without --live, reads none of them."
        }
        "snapshot_too_large" => "Move the file elsewhere first.",
        "snapshot_changing" => "Try again when nothing writes there.",
        "checkpoint_end" => {
            "Nothing was changed. nexus changes show lists what differs; nexus changes undo --overwrite takes all of it back, and keeps the present state."
        }
        "checkpoint_unknown" | "checkpoint_state" => {
            "nexus changes list names the runs, and nexus changes show --json their states."
        }
        "unchanged" => "Name paths as nexus changes show prints them.",
        _ => "",
    };
    // A path in it can have many thousand letters, before the cause.
    let text = error.to_string();
    let text = if text.len() > 4 * MAX_SHOWN { short(&text) } else { text };
    Failure::refused(error.code(), text, hint)
}
