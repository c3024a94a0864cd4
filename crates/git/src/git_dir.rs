//! The files of a git directory that decide what git runs, distinguished by their names. Pure.

use crate::class::Class;
use nexus_beneath::fold::fold;
use std::borrow::Cow;

/// Reports whether a path is the `hooks` directory of a git directory.
pub fn is_hooks_directory(path: &[u8]) -> bool {
    let mut names = path.rsplit(|byte| *byte == b'/').map(fold);
    names.next().is_some_and(|name| name.as_ref() == b"hooks") && names.any(|name| name.as_ref() == b".git")
}

/// Reason for which the file `shallow` is held back, which ends the history at some commits.
pub const SHALLOW: &str = "hides a part of git's history";
/// Reason for which `packed-refs` is held back when what it says about replaced objects changes.
pub const PACKED: &str = "replaces a part of git's history in packed-refs";
/// Reason for which the files of a bisection are held back. That they go away is fine.
pub const BISECT: &str = "an unfinished git bisect";

/// Reason for which the file is held back that says what `git status` leaves out. That it goes away with its git
/// directory is fine.
pub const EXCLUDE: &str = "hides files from git status";

/// Reason for which a stash that the next `git commit` applies is held back. That it goes away is fine.
pub const AUTOSTASH: &str = "a stash that git applies at the next commit";

/// Reason for which what an unfinished `git rebase` and the like left is held back. That it goes away is fine.
const REBASE: &str = "an interrupted git rebase";
const PICK: &str = "an interrupted git cherry-pick or revert";
const RERERE: &str = "resolutions that git repeats on its own";

/// Reports whether what is held back for this reason may go away with its directory: git only has less to resume.
pub fn may_go(why: &str) -> bool {
    [REBASE, PICK, RERERE, BISECT, AUTOSTASH, PACKED, EXCLUDE].contains(&why)
}

fn is_config(name: &[u8]) -> bool {
    matches!(name, b"config" | b"config.worktree")
}

/// Directories of a git directory that hold git's own data under any name. Every other directory may be a repository of
/// its own.
const OWN: &[&[u8]] = &[b"refs", b"logs", b"objects", b"lfs", b"rr-cache"];

/// Classifies a path inside a git directory by its folded names.
pub fn git_class(inside: &[Cow<'_, [u8]>]) -> Class {
    let names: Vec<&[u8]> = inside.iter().map(Cow::as_ref).collect();
    match names.as_slice() {
        [] => Class::GitRoot,
        [b"hooks" | b"modules" | b"worktrees" | b"remotes" | b"branches" | b"objects" | b"info"] => {
            Class::MustBeDirectory
        }
        [b"objects", b"info"] => Class::MustBeDirectory,
        [name] if is_config(name) => Class::GitConfig,
        [b"commondir"] => Class::GitCommonDir,
        [b"hooks", ..] => Class::GitHook,
        // The name of a submodule may have slashes in it, so the depth of its git directory is unknown.
        [b"modules" | b"worktrees", rest @ ..] => nested_class(rest),
        [first, _, ..] if !OWN.contains(first) => nested_class(names.as_slice()),
        names => state(names).map_or(Class::NoLink, Class::GitState),
    }
}

fn nested_class(names: &[&[u8]]) -> Class {
    let Some((last, middle)) = names.split_last() else { return Class::NoLink };
    if middle.contains(&&b"hooks"[..]) {
        return Class::GitHook;
    }
    // `refs/remotes/origin` is a ref of a submodule.
    let is_ref = |start: usize| start > 1 && names[start - 1] == b"refs" && names[start] == b"remotes";
    if let Some(what) = (0..names.len()).filter(|start| !is_ref(*start)).find_map(|start| state(&names[start..])) {
        return Class::GitState(what);
    }
    match *last {
        name if is_config(name) => Class::GitConfig,
        b"commondir" => Class::GitCommonDir,
        b"hooks" | b"modules" | b"objects" | b"info" => Class::MustBeDirectory,
        _ => Class::NoLink,
    }
}

/// Returns the reason for which an entry is held back that git resumes, or finds its objects, history and remotes by.
/// The names are those from the git directory on.
fn state(names: &[&[u8]]) -> Option<&'static str> {
    Some(match names {
        // Their to-do lists run commands (`exec`), and `git am` and `git rebase` read options from the rest.
        [b"rebase-merge" | b"rebase-apply", ..] => REBASE,
        [b"sequencer", ..] => PICK,
        [name] if name.starts_with(b"bisect_") => BISECT,
        [b"merge_autostash"] => AUTOSTASH,
        [b"objects", b"info", b"alternates" | b"http-alternates"] => "takes git's objects from elsewhere",
        [b"info", b"attributes"] => "attributes choose git's filters",
        [b"info", b"exclude"] => EXCLUDE,
        [b"info", b"grafts"] | [b"refs", b"replace", _, ..] => "replaces a part of git's history",
        [b"rr-cache", _, ..] => RERERE,
        [b"packed-refs"] => PACKED,
        [b"shallow"] => SHALLOW,
        // Remotes as git wrote them before they were settings.
        [b"remotes" | b"branches", _, ..] => "a remote of git",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(path: &str) -> Class {
        let names: Vec<_> = path.split('/').filter(|name| !name.is_empty()).map(|name| fold(name.as_bytes())).collect();
        git_class(&names)
    }

    #[test]
    fn the_files_of_a_git_directory_are_distinguished() {
        for (path, wanted) in [
            ("", Class::GitRoot),
            ("config", Class::GitConfig),
            ("Config", Class::GitConfig),
            ("config.worktree", Class::GitConfig),
            ("config.", Class::GitConfig),
            ("con\u{200d}fig", Class::GitConfig),
            ("hooks", Class::MustBeDirectory),
            ("hooks/pre-commit", Class::GitHook),
            ("hooks/d/x", Class::GitHook),
            ("modules/a/b/hooks/x", Class::GitHook),
            ("modules/a/b/config", Class::GitConfig),
            ("modules/a", Class::NoLink),
            ("modules/a/refs/remotes/origin/main", Class::NoLink),
            ("srv", Class::NoLink),
            ("srv/HEAD", Class::NoLink),
            ("srv/hooks", Class::MustBeDirectory),
            ("srv/hooks/pre-receive", Class::GitHook),
            ("srv/config", Class::GitConfig),
            ("deep/er/srv/hooks/update", Class::GitHook),
            ("deep/er/commondir", Class::GitCommonDir),
            ("worktrees/w/config.worktree", Class::GitConfig),
            ("commondir", Class::GitCommonDir),
            ("worktrees/w/commondir", Class::GitCommonDir),
            ("index", Class::NoLink),
            ("refs/heads/config", Class::NoLink),
            ("refs/heads/rebase-merge/x", Class::NoLink),
            ("remotes", Class::MustBeDirectory),
            ("objects", Class::MustBeDirectory),
            ("objects/info", Class::MustBeDirectory),
            ("objects/info/packs", Class::NoLink),
            ("rebase-merge.bak", Class::NoLink),
        ] {
            assert_eq!(class(path), wanted, "{path}");
        }
    }

    #[test]
    fn what_git_resumes_or_reads_history_by_is_state() {
        for path in [
            "rebase-merge",
            "rebase-merge/git-rebase-todo",
            "Rebase-Apply/x",
            "sequencer/todo",
            "BISECT_RUN",
            "BISECT_LOG",
            "MERGE_AUTOSTASH",
            "worktrees/w/MERGE_AUTOSTASH",
            "objects/info/alternates",
            "objects/info/http-alternates",
            "info/attributes",
            "info/grafts",
            "info/exclude",
            "modules/a/info/exclude",
            "shallow",
            "packed-refs",
            "remotes/origin",
            "branches/x",
            "modules/a/b/rebase-merge/git-rebase-todo",
            "worktrees/w/sequencer/todo",
            "modules/a/objects/info/alternates",
            "srv/objects/info/alternates",
        ] {
            assert!(matches!(class(path), Class::GitState(_)), "{path}: {:?}", class(path));
        }
    }

    #[test]
    fn the_directory_of_hooks_is_known() {
        for path in [".git/hooks", "a/.git/modules/x/Hooks"] {
            assert!(is_hooks_directory(path.as_bytes()), "{path}");
        }
        for path in ["hooks", ".git/hooks/x", "a/hooks"] {
            assert!(!is_hooks_directory(path.as_bytes()), "{path}");
        }
    }
}
