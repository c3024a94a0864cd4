//! The text that reports a rollback of a commit, or its failure.

use crate::failure::one_line;
use nexus_layer::Conflict;
use nexus_runner::review::take_back::Aside;
use std::path::Path;

/// Describes the directory after the commit was taken back, with the paths that were left as they are.
pub fn back(path: &Path, conflicts: &[Conflict]) -> String {
    let place = path.display();
    if conflicts.is_empty() {
        return one_line(&format!("The directory {place} is as it was before the commit.")) + "\n";
    }
    let mut text =
        one_line(&format!("The directory {place} is as it was before the commit, but for what changed in it since:"));
    for one in conflicts {
        let at = one.path.as_path().display();
        let line = match (&one.beside, &one.detail) {
            (Some(beside), _) => {
                format!("{at} is left as it is, and its other version is {}", beside.as_path().display())
            }
            (None, Some(detail)) => format!("{at} is left as it is: {detail}"),
            (None, None) => format!("{at} is left as it is"),
        };
        text.push_str("\n  ");
        text.push_str(&one_line(&line));
    }
    text + "\n"
}

/// Describes a layer that was moved out of the way.
pub fn aside(run: &str, aside: &Aside) -> String {
    let mut lines = vec![
        format!("The commit of the run {run} was interrupted and could not be taken back: {}.", aside.why),
        format!(
            "Nothing was removed. What the run left, and what the commit displaced, is in {}.",
            aside.layer.display()
        ),
    ];
    if let Some(staging) = &aside.staging {
        lines.push(format!("More of it is in {}.", staging.display()));
    }
    if let Some(path) = &aside.path {
        lines.push(format!("Files of {} may be those of the run.", path.display()));
        if !aside.is_there {
            lines.push(format!(
                "Where that directory is now, .nexus-tmp-{run} in it may have more of what was displaced."
            ));
        }
    }
    lines.push("Nexus is done with it; remove it when you do not need it any more.".to_owned());
    lines.iter().map(|line| one_line(line) + "\n").collect()
}
