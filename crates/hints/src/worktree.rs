//! Advice for git in a linked worktree whose repository lies outside of the workspace.
//!
//! A linked worktree has a file `.git` that names its directory in the repository. A run has a layer over the workspace alone, so that a
//! commit has nowhere to go. A workspace that holds both, the worktree and the repository, has room for it.

use crate::not_shown::is_there;
use nexus_caller::failure::one_line;
use nexus_model::Plan;
use nexus_runner::live::last_words::LastWords;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

/// Printed by git when it finds its repository not at all, or read-only.
const WITHOUT: &[&str] = &["fatal: not a git repository", ".lock': Read-only file system", "not a git repository: "];

/// The longest `.git` file that is read.
const MAX_FILE: usize = 4096;

/// Returns the advice for a command that failed in a linked worktree.
pub fn advice(plan: &Plan, words: &LastWords) -> Option<String> {
    if !words.has(WITHOUT) {
        return None;
    }
    let workspace = plan.workspace.source.as_path();
    let repository = repository_of(workspace)?;
    if repository.starts_with(workspace) {
        return None;
    }
    Some(text(plan, &repository, nexus_caller::host::here().home.as_deref()))
}

fn text(plan: &Plan, repository: &Path, home: Option<&Path>) -> String {
    let workspace = plan.workspace.source.as_path();
    let both = common(workspace, repository);
    let shown = |path: &Path| one_line(&path.display().to_string());
    let what = format!(
        "perhaps: {} is a linked worktree, and its repository {} is not in the workspace.",
        shown(workspace),
        shown(repository)
    );
    // As a workspace these would be refused.
    let is_too_much = both.components().count() <= 2 || home.is_some_and(|home| home.starts_with(&both));
    let inspection = "--profile git shows its history read-only.";
    if !is_too_much {
        return format!("{what} --workspace {} --cwd {} has both; {inspection}", word(&both), word(plan.cwd.as_path()));
    }
    // A bare repository has no directory for working trees.
    let has_git = || {
        let git = repository.join(".git");
        is_there(&git) && git.symlink_metadata().is_ok_and(|meta| meta.is_dir())
    };
    match workspace.file_name().filter(|_| has_git()) {
        Some(name) => {
            let (repository, inside) = (word(repository), word(&repository.join(".worktrees").join(name)));
            let from = word(workspace);
            format!(
                "{what} Move it there: mkdir -p {repository}/.worktrees && git -C {repository} worktree move {from} {inside}. Then \
                 --workspace {repository} --cwd {inside} has both; {inspection}"
            )
        }
        None => format!(
            "{what} Make the worktree beside its repository, and name a directory that holds both with --workspace; {inspection}"
        ),
    }
}

/// Returns a path as a word of a shell: who pastes the advice runs nothing that a `.git` file says.
fn word(path: &Path) -> String {
    let text = one_line(&path.display().to_string());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Returns the repository that a `.git` file of a linked worktree names: what lies above `.git/worktrees/NAME`.
fn repository_of(worktree: &Path) -> Option<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, worktree.join(".git"), flags, Mode::empty()).ok()?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = vec![0u8; MAX_FILE];
    let read = File::from(file).read_at(&mut bytes, 0).ok()?;
    repository_in(worktree, &bytes[..read])
}

fn repository_in(worktree: &Path, text: &[u8]) -> Option<PathBuf> {
    let named = text.strip_prefix(b"gitdir: ")?.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    let mut place = PathBuf::new();
    for part in worktree.join(OsStr::from_bytes(named)).components() {
        match part {
            Component::ParentDir => {
                place.pop();
            }
            other => place.push(other),
        }
    }
    let worktrees = place.parent().filter(|parent| parent.file_name() == Some(OsStr::new("worktrees")))?;
    let git = worktrees.parent()?;
    Some(if git.file_name() == Some(OsStr::new(".git")) { git.parent()?.to_owned() } else { git.to_owned() })
}

/// Returns the smallest directory that holds both.
fn common(one: &Path, other: &Path) -> PathBuf {
    one.components().zip(other.components()).take_while(|(one, other)| one == other).map(|(part, _)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_of_a_worktree_is_read_from_its_file() {
        let of = |text: &str| repository_in(Path::new("/home/you/lw"), text.as_bytes());
        assert_eq!(of("gitdir: /home/you/main/.git/worktrees/lw\n"), Some("/home/you/main".into()));
        assert_eq!(of("gitdir: ../main/.git/worktrees/lw\n"), Some("/home/you/main".into()));
        assert_eq!(of("gitdir: /srv/bare.git/worktrees/lw\n"), Some("/srv/bare.git".into()));
        for other in ["gitdir: /home/you/main/.git/modules/x\n", "gitdir: ", "", "ref: x"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(word(Path::new("/home/you/a-b_1.c")), "/home/you/a-b_1.c");
        assert_eq!(word(Path::new("/p/$(touch x)/it's")), r"'/p/$(touch x)/it'\''s'");
    }

    #[test]
    fn the_smallest_directory_that_holds_both_is_named() {
        assert_eq!(common(Path::new("/srv/p/lw"), Path::new("/srv/p/main")), Path::new("/srv/p"));
        assert_eq!(common(Path::new("/srv/p/main/in"), Path::new("/srv/p/main")), Path::new("/srv/p/main"));
    }
}
