//! The words in which a recovery is reported.

use crate::change_text::{self, unwatched_line};
use crate::recover::kept::{left_out, left_out_in_short};
use nexus_layer::Recovered;
use std::path::Path;

/// The end of an interrupted commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is in the directory.
    Finished,
    /// Some of it is not: the text names the first paths and counts the others.
    InPart(String),
    /// It was taken back: nothing of it is in the directory.
    TakenBack,
    /// There was nothing to finish: another command did it.
    Elsewhere,
}

/// A report about one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The end of the commit.
    pub ending: Outcome,
    /// A line for each of its results. The first one names its end, where there is anything to say.
    pub lines: Vec<String>,
}

/// Reports a recovery.
pub fn report_of(run: &str, path: &Path, recovered: &Recovered) -> RecoveryReport {
    let ending = match recovered {
        Recovered::RolledForward(_) => {
            left_out_in_short(run, path, recovered).map_or(Outcome::Finished, Outcome::InPart)
        }
        Recovered::TakenBack(_) | Recovered::Undecided | Recovered::Discarded(_) => Outcome::TakenBack,
        Recovered::Nothing | Recovered::Parked => Outcome::Elsewhere,
    };
    RecoveryReport { ending, lines: report_lines(run, path, recovered) }
}

/// Describes a recovery to the user, one line for each of its results.
pub fn report_lines(run: &str, path: &Path, recovered: &Recovered) -> Vec<String> {
    let Recovered::RolledForward(done) = recovered else { return Vec::new() };
    let mut lines = vec![format!("The interrupted commit of the run {run} into {} is finished now.", path.display())];
    lines.extend(done.committed.iter().map(|change| format!("committed {}", change_text::line(change))));
    lines.extend(left_out(run, path, recovered));
    lines.extend(unwatched_line(done.unwatched));
    lines.extend(done.left.iter().map(ToString::to_string));
    lines.extend(done.stashes.iter().map(ToString::to_string));
    lines
}
