//! The words in which a recovery is reported.

use crate::change_text::{self, unwatched_line};
use crate::recover::kept::left_out;
use nexus_layer::Recovered;
use std::path::Path;

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
