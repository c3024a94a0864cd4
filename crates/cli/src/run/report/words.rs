//! The names and lines that make up the text report of a run.

use crate::failure::one_line;
use nexus_layer::meta::EntryType;
use nexus_layer::{Change, ChangeKind, WITH_REPOSITORY};
use nexus_runner::held_text;
use std::path::Path;

/// Changes in a summary.
pub(super) const MAX_SHOWN: usize = 20;

/// Text for stderr: each line says whose it is, and none holds what a command put into a name.
#[derive(Default)]
pub(super) struct Lines(pub String);

impl Lines {
    pub fn add(&mut self, line: &str) {
        self.0.push_str("nexus: ");
        self.0.push_str(&one_line(line));
        self.0.push('\n');
    }
}

/// Protected entries as people know them.
fn parked_name(change: &Change) -> String {
    let kind = match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Renamed { .. } => "renamed",
        ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Type { .. } => "changed",
    };
    let why = change.protected.as_deref().unwrap_or(if change.setuid { "setuid" } else { kind });
    format!("{} ({})", change.path.as_path().display(), held_text::reason(why))
}

/// Tells whether a directory waits for this reason with all that is in it.
fn is_of_repository(why: &str) -> bool {
    why.contains("repository")
}

/// Names the first `most` changes that wait. What is in a new directory that waits as a whole needs no name of its own.
pub(super) fn parked_names(parked: &[Change], most: usize) -> String {
    let mut whole: Option<(&Path, Option<&str>)> = None;
    let mut shown: Vec<&Change> = Vec::new();
    for change in parked {
        let path = change.path.as_path();
        let why = change.protected.as_deref();
        let is_said = whole.is_some_and(|(whole, of)| {
            path.starts_with(whole) && (why.is_none() || (why == of && of.is_some_and(is_of_repository)))
        });
        // The line of the repository says it for all.
        let is_with = why.is_some_and(|why| why.starts_with(WITH_REPOSITORY));
        if (is_said || is_with) && !change.setuid {
            continue;
        }
        let is_new = matches!(change.kind, ChangeKind::Added | ChangeKind::Type { .. });
        let is_whole = change.file_type == EntryType::Directory && is_new;
        if is_whole && why.is_some() {
            whole = Some((path, why));
        }
        shown.push(change);
    }
    let names = shown.iter().take(most).map(|change| parked_name(change)).collect::<Vec<_>>().join(", ");
    let more = shown.len().saturating_sub(most);
    if more == 0 { names } else { format!("{names} and {more} more") }
}
