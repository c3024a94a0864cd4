//! The names of the workspace's own path, by which its files are classified together with their names in it.

use super::git::Above;
use nexus_beneath::fold::fold;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Directories of agents in which they keep working trees: `.claude/worktrees/NAME`.
const AGENTS: &[&[u8]] = &[
    b".agents",
    b".augment",
    b".claude",
    b".cline",
    b".codex",
    b".cursor",
    b".gemini",
    b".kiro",
    b".opencode",
    b".qwen",
    b".roo",
    b".windsurf",
];

/// Returns the names of a real path, folded, by the directories on it. A repository without the name `.git` gets it,
/// and a working tree that an agent made for itself begins the path afresh.
pub(super) fn names(above: &[Above<'_>]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    for (directory, is_repository) in above.iter().copied().filter(|(one, _)| one.file_name().is_some()) {
        let name = directory.file_name().map(OsStr::as_bytes).unwrap_or_default();
        names.push(if is_repository { b".git".to_vec() } else { fold(name).into_owned() });
    }
    names.reverse();
    let is_tree = |three: &[Vec<u8>]| AGENTS.contains(&three[0].as_slice()) && three[1] == b"worktrees";
    if let Some(start) = names.windows(3).rposition(is_tree) {
        names.drain(..start + 3);
    }
    names
}

#[cfg(test)]
mod tests {
    use crate::leads::git::above;
    use std::path::Path;

    fn names(at: &Path) -> Vec<Vec<u8>> {
        super::names(&above(at).unwrap())
    }

    #[test]
    fn a_place_is_the_folded_names_of_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        for path in ["r/objects", "r/refs", "r/hooks/d", "Repo/.VSCode"] {
            std::fs::create_dir_all(base.join(path)).unwrap();
        }
        std::fs::write(base.join("r/HEAD"), "ref: refs/heads/main\n").unwrap();
        let after = |path: &str, skipped: usize| {
            let all = names(&base.join(path));
            all[all.len() - skipped..].iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(after("Repo/.VSCode", 2), ["repo", ".vscode"]);
        assert_eq!(after("r/hooks/d", 3), [".git", "hooks", "d"]);
        assert_eq!(after("r", 1), [".git"]);
        for (path, wanted) in [
            ("/h/p/.claude/worktrees/x", &[][..]),
            ("/h/.Codex/worktrees/x/src", &["src"]),
            ("/.git/worktrees/x", &[".git", "worktrees", "x"]),
        ] {
            let wanted: Vec<_> = wanted.iter().map(|name| name.as_bytes().to_vec()).collect();
            assert_eq!(names(Path::new(path)), wanted, "{path}");
        }
    }
}
