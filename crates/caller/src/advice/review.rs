//! Gives the errors of a review their advice.

use crate::advice::go_on::advice as commit_advice;
use crate::failure::{Failure, one_line};
use nexus_layer::CommitError;
use nexus_runner::review::error::ReviewError;
use nexus_runner::review::paths::PathError;
use std::path::Path;

impl From<ReviewError> for Failure {
    fn from(error: ReviewError) -> Self {
        let error = match error {
            ReviewError::Protect(error) => return error.into(),
            other => other,
        };
        let hint = match &error {
            // The advice of the first was given above.
            ReviewError::Protect(_)
            | ReviewError::StateDir { .. }
            | ReviewError::Layer { .. }
            | ReviewError::Discard { .. } => String::new(),
            ReviewError::NoRoomToRead { .. } => "make room in the state directory".to_owned(),
            ReviewError::Interrupted { run, is_back } => {
                let what = if *is_back { "goes on with taking it back" } else { "finishes it" };
                format!("nexus changes recover --run {run} {what}")
            }
            ReviewError::Unparked { run } => format!(
                "make room on the disk of the state directory: the next command parks them. nexus changes reject --run {run} \
                 removes them, which makes room"
            ),
            ReviewError::Busy { .. } => {
                "try it again when that command has ended: nexus changes list shows what waits then".to_owned()
            }
            ReviewError::Going { run } => format!("nexus changes reject --run {run} removes the rest"),
            ReviewError::Moved { run, files, .. } => one_line(&format!(
                "put the directory back. Or look at the changes (nexus changes diff --run {run}), copy the files to another directory, by its \
                 absolute path DIR (cd {} && find . -type f -exec cp --parents -t DIR {{}} +), and close the run: nexus changes reject --run {run}",
                in_shell(files)
            )),
            ReviewError::Rejected { .. } => "is the disk full?".to_owned(),
            ReviewError::Lock { .. } => "nothing was changed".to_owned(),
            ReviewError::Record { .. } => "make room there".to_owned(),
            ReviewError::Commit { run, ending, source } => match source {
                CommitError::Interrupted { .. } => commit_advice(run, *ending),
                CommitError::Altered { .. } => {
                    format!("nothing was changed. Look at the changes again: nexus changes show --run {run}")
                }
                CommitError::Read(_)
                | CommitError::Damaged { .. }
                | CommitError::Prepare { .. }
                | CommitError::TakenBack { .. } => "nothing was changed".to_owned(),
            },
            ReviewError::CopyStays { copy, .. } => {
                one_line(&format!("{} is a copy of a file that is still at its place: remove it", copy.display()))
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

/// Writes a path as a word of a shell.
fn in_shell(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        let hint = match &error {
            PathError::Together { whole, .. } => format!("nothing was changed; name {}, or nothing", whole.display()),
            PathError::Unknown { .. } => "nexus changes show lists what waits".to_owned(),
        };
        Self::usage(error.code(), error.to_string(), hint)
    }
}
