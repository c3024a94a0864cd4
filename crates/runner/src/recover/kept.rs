//! Names the paths that a commit kept back after it was decided.

use nexus_layer::{Conflict, Recovered};
use std::path::Path;

/// Number of paths in the short text.
const NAMED: usize = 3;

/// Names the paths that a finished commit did not apply, because they changed outside after the decision.
pub fn left_out(run: &str, directory: &Path, recovered: &Recovered) -> Option<String> {
    let Recovered::RolledForward(done) = recovered else { return None };
    kept_back(run, directory, &done.conflicts)
}

/// The same in few words, for a log and for a user far away: the first paths, and the number of the others.
pub fn left_out_in_short(run: &str, directory: &Path, recovered: &Recovered) -> Option<String> {
    let Recovered::RolledForward(done) = recovered else { return None };
    in_short(run, directory, &done.conflicts)
}

fn in_short(run: &str, directory: &Path, conflicts: &[Conflict]) -> Option<String> {
    let (first, more) = conflicts.split_at(conflicts.len().min(NAMED));
    let text = kept_back(run, directory, first)?;
    Some(if more.is_empty() { text } else { format!("{text}; and {} more", more.len()) })
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

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_layer::Outside;
    use nexus_model::ByteText;

    #[test]
    fn the_short_text_names_three_paths_and_counts_the_others() {
        let names = ["a", "b", "c", "d", "e"];
        let conflicts = names.map(|name| Conflict::new(ByteText::from(name), Outside::Changed));
        let short = |count: usize| in_short("r", Path::new("/w"), &conflicts[..count]);
        assert_eq!(short(0), None);
        assert_eq!(short(3), kept_back("r", Path::new("/w"), &conflicts[..3]));
        let text = short(5).unwrap();
        assert!(text.contains(": a, b, c (") && text.ends_with("; and 2 more"), "{text}");
    }
}
