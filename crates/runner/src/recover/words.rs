//! The words in which a recovery is reported.

use crate::change_text::{self, unwatched_line};
use crate::recover::kept::left_out;
use nexus_layer::Recovered;
use std::path::Path;

/// Begin of the line about a commit that a recovery finished.
const FINISHED: &str = "The interrupted commit of the run ";

/// Returns the line about a commit that a recovery finished; `None` when these lines say something else, as of a commit that was taken
/// back. The lines after it name each change.
#[must_use]
pub fn finished_line(lines: &[String]) -> Option<&String> {
    lines.first().filter(|line| line.starts_with(FINISHED))
}

/// Describes a recovery to the user, one line for each of its results.
pub fn report_lines(run: &str, path: &Path, recovered: &Recovered) -> Vec<String> {
    let Recovered::RolledForward(done) = recovered else { return Vec::new() };
    let mut lines = vec![format!("{FINISHED}{run} into {} is finished now.", path.display())];
    lines.extend(done.committed.iter().map(|change| format!("committed {}", change_text::line(change))));
    lines.extend(left_out(run, path, recovered));
    lines.extend(unwatched_line(done.unwatched));
    lines.extend(done.left.iter().map(ToString::to_string));
    lines.extend(done.stashes.iter().map(ToString::to_string));
    lines
}
