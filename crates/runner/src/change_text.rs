//! One-line descriptions of changes and conflicts.

use crate::held_text;
use nexus_layer::{Change, ChangeKind, Conflict, Outside};
use std::fmt::Write as _;

/// Describes a change in one line: what, where, how large, and what to look at.
pub fn line(change: &Change) -> String {
    let letter = match change.kind {
        ChangeKind::Added => "A",
        ChangeKind::Modified => "M",
        ChangeKind::Deleted => "D",
        ChangeKind::Mode => "P",
        ChangeKind::Type { .. } => "T",
        ChangeKind::Renamed { .. } => "R",
    };
    let mut text = format!("{letter} {}", change.path.as_path().display());
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
        add(format_args!("  [parked: {}]", held_text::reason(why)));
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

/// Describes what happened to a path in conflict, and where its other version is.
pub fn happened(conflict: &Conflict) -> String {
    let what = match conflict.outside {
        Outside::Changed => "changed outside",
        Outside::Vanished => "was removed outside",
        Outside::Replaced => "was replaced outside by another directory, or its mode or times were set",
        Outside::Open => "is open for writing in another program",
        Outside::Blocked => "cannot be changed",
    };
    let detail = conflict.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let beside = conflict.beside.as_ref().map(|path| format!("; the other version is {}", path.as_path().display()));
    format!("{what}{detail}{}", beside.unwrap_or_default())
}

/// Reports the number of files for which the kernel could not tell whether a program was writing to them. `None` when
/// there was no such file.
pub fn unwatched_line(files: u64) -> Option<String> {
    let what = match files {
        0 => return None,
        1 => "1 file was".to_owned(),
        more => format!("{more} files were"),
    };
    Some(format!(
        "{what} replaced or deleted although nothing here tells whether a program was writing: the file system or the \
         owner of the files allows no lease. Look at what else was running."
    ))
}
