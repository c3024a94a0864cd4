//! The refs of a git directory, distinguished by their names and classified by what they say. Pure.
//!
//! A branch that stands for another one is pushed as that. `HEAD` names the branch of the next commit, and the `HEAD`
//! of a remote the branch that a new one begins at.

use nexus_beneath::fold::fold;
use std::collections::HashSet;

/// Reason for which a symbolic ref is held back.
pub const SYMBOLIC: &str = "a branch or tag of git that stands for another one";
/// Reason for which a `HEAD` is held back.
pub const HEAD: &str = "a HEAD of git that names no branch and no commit";
/// Reason for which a change of the default branch of a remote is held back.
pub const OF_REMOTE: &str = "changes the branch that git takes for the default one of a remote";
/// Reason for which a change of refs in tables is held back.
pub const TABLES: &str = "refs of git in tables, which Nexus does not read";

/// git writes far shorter ones.
const MAX_HEAD: usize = 4096;

/// A file of a git directory that holds refs.
#[derive(Debug, PartialEq, Eq)]
pub enum RefFile {
    /// One ref, with its names below `refs`.
    One(Vec<Vec<u8>>),
    /// The `HEAD` of a working tree.
    Head,
    /// Refs in the form `reftable`.
    Table {
        /// Number of names that the path has below the git directory.
        depth: usize,
    },
}

/// Directories of a git directory that hold no other repository.
const OWN: &[&[u8]] = &[b"logs", b"objects", b"lfs", b"rr-cache", b"hooks", b"info"];

/// Tells what a path in a git directory, which begins behind the name of that, is to the refs; `None` where it holds
/// none.
pub fn ref_file(inside: &[u8]) -> Option<RefFile> {
    let names: Vec<Vec<u8>> = inside
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .map(|name| fold(name).into_owned())
        .collect();
    let is = |at: usize, wanted: &[u8]| names.get(at).is_some_and(|name| name == wanted);
    // Of a submodule or of a repository in this one, too.
    if let Some(at) = names.iter().position(|name| name == b"refs") {
        let below = names.get(at + 1..).unwrap_or_default();
        return (!below.is_empty()).then(|| RefFile::One(below.to_vec()));
    }
    if names.first().is_none_or(|first| OWN.contains(&first.as_slice())) {
        return None;
    }
    if let Some(at) = names.iter().position(|name| name == b"reftable") {
        return Some(RefFile::Table { depth: names.len() - at });
    }
    let last = names.len() - 1;
    // A working tree or a submodule may have the name `logs`.
    let is_log =
        last > 0 && is(last - 1, b"logs") && !(last > 1 && (is(last - 2, b"modules") || is(last - 2, b"worktrees")));
    (is(last, b"head") && !is_log).then_some(RefFile::Head)
}

/// Returns the part of a path behind the first `.git` in it.
pub fn inside_git(path: &[u8]) -> Option<&[u8]> {
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

/// Tells whether the file of a ref names another ref. Where the default branch of a remote is (`refs/remotes/R/HEAD`),
/// git itself writes such a file, which names a branch of the same remote.
pub fn is_symbolic(below_refs: &[Vec<u8>], text: &[u8]) -> bool {
    let Some(target) = target(text) else { return false };
    let [remotes, remote @ .., _] = below_refs else { return true };
    // The names of the path are folded, and the target is not.
    let target: Vec<Vec<u8>> = target.split(|byte| *byte == b'/').map(|name| fold(name).into_owned()).collect();
    let own = [&[b"refs".to_vec(), remotes.clone()], remote].concat();
    !(is_of_remote(below_refs) && target.len() > own.len() && target.starts_with(&own))
}

/// Reports whether a ref says which branch is the default one of a remote.
pub fn is_of_remote(below_refs: &[Vec<u8>]) -> bool {
    let [remotes, remote @ .., head] = below_refs else { return false };
    remotes == b"remotes" && !remote.is_empty() && head == b"head"
}

/// Returns the ref that a symbolic one names.
pub fn target(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"ref:").map(<[u8]>::trim_ascii)
}

/// Tells whether the text of a `HEAD` is one that git writes: it names a branch or a commit. In a new repository with
/// tables it names the branch `.invalid`, so that older versions of git read no other.
pub fn is_head(text: &[u8], is_new: bool) -> bool {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let is_hash = matches!(line.len(), 40 | 64) && line.iter().all(u8::is_ascii_hexdigit);
    let branch = line.strip_prefix(b"ref: refs/heads/").filter(|_| text.len() <= MAX_HEAD);
    is_hash || branch.is_some_and(|branch| is_branch(branch) || (is_new && branch == b".invalid"))
}

/// Reports whether git takes a text for the name of a branch (git-check-ref-format(1)).
fn is_branch(name: &[u8]) -> bool {
    let has = |two: &[u8]| name.windows(2).any(|part| part == two);
    let is_odd = |byte: &u8| byte.is_ascii_control() || b" ~^:?*[\\".contains(byte);
    let is_part = |part: &[u8]| {
        let ends = part.len() >= 5 && part[part.len() - 5..].eq_ignore_ascii_case(b".lock");
        !part.is_empty() && !part.starts_with(b".") && !ends
    };
    !name.iter().any(is_odd)
        && !has(b"..")
        && !has(b"@{")
        && !name.ends_with(b".")
        && !name.starts_with(b"-")
        && name.split(|byte| *byte == b'/').all(is_part)
}

/// Returns the names of the refs in a file `packed-refs`.
pub fn packed(text: Option<&[u8]>) -> HashSet<Vec<u8>> {
    let lines = text.unwrap_or_default().split(|byte| *byte == b'\n');
    let named = lines.filter_map(|line| line.iter().position(|byte| *byte == b' ').map(|at| &line[at + 1..]));
    named.map(|name| name.trim_ascii().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<Vec<u8>> {
        match ref_file(inside_git(path.as_bytes()).unwrap()) {
            Some(RefFile::One(names)) => names,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn a_symbolic_ref_is_distinguished_from_a_branch() {
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
            assert_eq!(is_symbolic(&names(path), text.as_bytes()), wanted, "{path} {text}");
        }
        assert!(is_of_remote(&names(".git/refs/remotes/a/b/HEAD")));
        for path in [".git/refs/remotes/HEAD", ".git/refs/heads/x/HEAD", ".git/refs/remotes/origin/main"] {
            assert!(!is_of_remote(&names(path)), "{path}");
        }
        assert_eq!(inside_git(b"refs/heads/x"), None);
    }

    #[test]
    fn the_files_that_hold_refs_are_known() {
        for (path, wanted) in [
            ("HEAD", Some(RefFile::Head)),
            ("/Head", Some(RefFile::Head)),
            ("worktrees/w/HEAD", Some(RefFile::Head)),
            ("worktrees/logs/HEAD", Some(RefFile::Head)),
            ("modules/a/b/HEAD", Some(RefFile::Head)),
            ("logs/HEAD", None),
            ("worktrees/w/logs/HEAD", None),
            ("logs/refs", None),
            ("refs", None),
            ("ORIG_HEAD", None),
            ("reftable", Some(RefFile::Table { depth: 1 })),
            ("reftable/tables.list", Some(RefFile::Table { depth: 2 })),
            ("worktrees/w/reftable/0x1.ref", Some(RefFile::Table { depth: 2 })),
            ("modules/a/reftable/0x1.ref", Some(RefFile::Table { depth: 2 })),
            ("objects/reftable", None),
            ("", None),
        ] {
            assert_eq!(ref_file(path.as_bytes()), wanted, "{path}");
        }
        assert_eq!(names(".git/modules/a/refs/heads/reftable/x").len(), 3);
    }

    #[test]
    fn a_head_names_a_branch_or_a_commit() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        for (text, wanted) in [
            ("ref: refs/heads/main\n", true),
            ("ref: refs/heads/a/b-c.d", true),
            ("ref: refs/heads/für/x@y\n", true),
            (&format!("{hash}\n"), true),
            (&format!("{hash}{}", &hash[..24]), true),
            (hash, true),
            ("ref: refs/heads/main   \n", false),
            ("ref:refs/heads/main\n", false),
            ("ref: refs/heads/../../config\n", false),
            ("ref: refs/remotes/origin/main\n", false),
            ("ref: refs/tags/v1\n", false),
            ("ref: refs/heads/\n", false),
            ("ref: refs/heads/a//b\n", false),
            ("ref: refs/heads/a.lock\n", false),
            ("ref: refs/heads/.a\n", false),
            ("ref: refs/heads/a\nb\n", false),
            ("ref: refs/heads/a@{1}\n", false),
            ("ref: refs/heads/.invalid\n", false),
            (&hash[1..], false),
            ("", false),
        ] {
            assert_eq!(is_head(text.as_bytes(), false), wanted, "{text}");
        }
        assert!(!is_head(format!("ref: refs/heads/{}\n", "a/".repeat(3000)).as_bytes(), false));
        assert!(is_head(b"ref: refs/heads/.invalid\n", true));
    }
}
