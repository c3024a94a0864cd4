//! Symbolic refs: a branch that stands for another one is pushed as that. Pure.

use crate::fold::fold;

/// Why a symbolic ref is held back.
pub(crate) const SYMBOLIC: &str = "a branch or tag of git that stands for another one";

/// Returns the names below `refs` of a path in a git directory, folded; `None` for what is no ref. The path begins behind the name
/// of the git directory.
pub(crate) fn ref_names(inside: &[u8]) -> Option<Vec<Vec<u8>>> {
    let names: Vec<Vec<u8>> = inside.split(|byte| *byte == b'/').map(|name| fold(name).into_owned()).collect();
    // Of a submodule or of a repository in this one, too.
    let at = names.iter().position(|name| name == b"refs")?;
    let below = names.get(at + 1..).unwrap_or_default();
    (!below.is_empty()).then(|| below.to_vec())
}

/// Returns the part of a path behind the first `.git` in it.
pub(crate) fn inside_git(path: &[u8]) -> Option<&[u8]> {
    let mut start = 0;
    for name in path.split(|byte| *byte == b'/') {
        let end = start + name.len();
        if fold(name).as_ref() == b".git" {
            return path.get(end + 1..);
        }
        start = end + 1;
    }
    None
}

/// Tells whether the file of a ref names another ref. Where the default branch of a remote is (`refs/remotes/R/HEAD`), git
/// itself writes such a file, which names a branch of the same remote.
pub(crate) fn is_symbolic(below_refs: &[Vec<u8>], text: &[u8]) -> bool {
    let Some(target) = text.strip_prefix(b"ref:").map(<[u8]>::trim_ascii) else { return false };
    let [remotes, remote @ .., head] = below_refs else { return true };
    let is_head = remotes == b"remotes" && !remote.is_empty() && head == b"head";
    // The names of the path are folded, and the target is not.
    let target: Vec<Vec<u8>> = target.split(|byte| *byte == b'/').map(|name| fold(name).into_owned()).collect();
    let own = [&[b"refs".to_vec(), remotes.clone()], remote].concat();
    !(is_head && target.len() > own.len() && target.starts_with(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbolic_ref_is_told_from_a_branch() {
        for (path, text, wanted) in [
            (".git/refs/heads/feat", "ref: refs/heads/main\n", true),
            ("a/.GIT/Refs/heads/x/y", "ref:refs/heads/main", true),
            (".git/refs/stash", "ref: refs/heads/main\n", true),
            (".git/modules/sub/refs/tags/v1", "ref: refs/heads/main\n", true),
            (".git/refs/remotes/origin/main", "ref: refs/heads/main\n", true),
            (".git/refs/remotes/origin/HEAD", "ref: refs/heads/main\n", true),
            (".git/refs/remotes/origin/HEAD", "ref: refs/remotes/up/main\n", true),
            (".git/refs/remotes/origin/HEAD", "ref: refs/remotes/origin/main\n", false),
            (".git/refs/remotes/Up/HEAD", "ref: refs/remotes/Up/main\n", false),
            (".git/refs/remotes/HEAD", "ref: refs/remotes/origin/main\n", true),
            (".git/refs/heads/feat", "0123456789012345678901234567890123456789\n", false),
        ] {
            let names = ref_names(inside_git(path.as_bytes()).unwrap()).unwrap();
            assert_eq!(is_symbolic(&names, text.as_bytes()), wanted, "{path} {text}");
        }
        for path in [".git/HEAD", ".git/worktrees/w/HEAD", ".git/refs"] {
            assert_eq!(ref_names(inside_git(path.as_bytes()).unwrap()), None, "{path}");
        }
        assert_eq!(inside_git(b"refs/heads/x"), None);
    }
}
