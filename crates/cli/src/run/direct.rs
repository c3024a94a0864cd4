//! Reports the changes of a direct run.

use nexus_layer::HeldIndex;
use nexus_model::ByteText;
use std::path::Path;

/// Names that a message lists.
const MAX_SHOWN: usize = 20;

/// Returns the line about protected names that came during a run.
pub fn appeared_line(appeared: &[ByteText]) -> String {
    let what = "protected names, links to them, work that git resumes, refs of git that stand for others, or directories that cannot \
         be looked through, came into the workspace or changed during this direct run, and programs on this machine may act on them";
    format!("{what}: {}. look at them, and remove what you did not want", some_of(appeared))
}

/// Returns the line about an index that git must not read.
pub fn held_line(held: &HeldIndex) -> String {
    let path = held.path.as_path().display();
    match &held.aside {
        Ok(aside) => format!(
            "{path} was moved to {}: the direct run left {}, and git would write by it. `git reset` makes a new one",
            aside.as_path().display(),
            held.why
        ),
        Err(error) => format!(
            "{path} is still there and could not be moved aside ({}): the direct run left {}, and git would write by it. Remove it \
             before git runs in that repository",
            error.source, held.why
        ),
    }
}

/// Returns the line about a run that was ended because a cover was gone. Only a direct run has covers in its workspace.
pub fn uncovered_line(path: &Path, is_direct: bool) -> String {
    if !is_direct {
        return format!(
            "The run was ended: a program outside of the sandbox replaced {}, which lies in a directory that the run shows, and \
             takes away what covered it. Run it again while no program saves or installs there, or leave that directory out: \
             --profile none for the tools of your PATH, without --ro or --rw for others.",
            path.display()
        );
    }
    format!(
        "The run was ended: {} is not found as it was, since a program outside of the sandbox replaced it or the command closed \
         a directory above it. Without its cover the command could have read or changed it. Run it again while no program saves \
         that file and the command leaves the directory open, or leave --direct out.",
        path.display()
    )
}

/// Lists the first names, and how many more there are.
pub fn some_of(all: &[ByteText]) -> String {
    let names: Vec<_> = all.iter().take(MAX_SHOWN).map(|name| name.as_path().display().to_string()).collect();
    match all.len().saturating_sub(MAX_SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more (--json lists them)", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_cover_is_explained_by_what_was_covered() {
        let path = Path::new("/home/a/.nvm/etc/npmrc");
        assert!(uncovered_line(path, true).contains("leave --direct out"));
        let of_tool = uncovered_line(path, false);
        assert!(of_tool.contains("--profile none") && !of_tool.contains("--direct"), "{of_tool}");
    }
}
