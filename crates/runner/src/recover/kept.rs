//! Names the paths that a commit kept back after it was decided.

use nexus_layer::{Conflict, Recovered};
use std::path::Path;

/// Names the paths that a finished commit did not apply, because they changed outside after the decision.
pub fn left_out(run: &str, directory: &Path, recovered: &Recovered) -> Option<String> {
    let Recovered::RolledForward(done) = recovered else { return None };
    kept_back(run, directory, &done.conflicts)
}

/// Names the paths that a commit kept back after it was decided, and where the versions are.
pub fn kept_back(run: &str, directory: &Path, conflicts: &[Conflict]) -> Option<String> {
    let (moved, stayed): (Vec<_>, Vec<_>) = conflicts.iter().partition(|conflict| conflict.beside.is_some());
    let (explained, stayed): (Vec<_>, Vec<_>) = stayed.into_iter().partition(|conflict| conflict.detail.is_some());
    let mut text = Vec::new();
    if !stayed.is_empty() {
        let paths: Vec<_> = stayed.iter().map(|one| one.path.as_path().display().to_string()).collect();
        text.push(format!(
            "changed in {} since the decision and left as they are: {} (nexus changes show --run {run})",
            directory.display(),
            paths.join(", ")
        ));
    }
    for one in explained {
        let (path, why) = (directory.join(one.path.as_path()), one.detail.as_deref().unwrap_or_default());
        text.push(format!("{} is left as it is: {why}", path.display()));
    }
    for one in moved {
        let beside = one.beside.as_ref().map(|path| path.as_path().display().to_string()).unwrap_or_default();
        text.push(format!("{} changed meanwhile, and its other version is {beside}", one.path.as_path().display()));
    }
    (!text.is_empty()).then(|| text.join("; "))
}
