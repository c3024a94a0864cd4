//! Finds the commits in which `git merge --autostash` and `git rebase --autostash` save the user's uncommitted changes.
//!
//! git removes the changes from the working tree, and committing the layer removes them from the workspace too. Afterwards only
//! one small file names the git commit that holds them:
//!
//! ```text
//!  the file waits       it is noted as a last copy, so that a reject keeps it, and both commands name the commit
//!  the file goes away   git has applied it, or the run has removed it: the commit is named
//! ```

use crate::beneath::{Workspace, join, split};
use crate::decide::orphans::note;
use crate::decide::plan::{CommitPlan, State};
use crate::entries::tree::{LayerTree, Node, Role};
use crate::fold::fold;
use crate::git::stash::{Holds, NAMED, Stash};
use crate::meta::EntryType;
use nexus_git::small::read_small;
use std::collections::HashSet;
use std::os::fd::AsFd as _;

/// Tells whether a path is that of a file that names such a commit.
pub(crate) fn is_named_by(path: &[u8]) -> bool {
    let (parent, name) = split(path);
    match fold(name).as_ref() {
        b"merge_autostash" => true,
        b"autostash" => is_of_rebase(parent),
        _ => false,
    }
}

/// Returns the git directory of a file that names such a commit.
pub(crate) fn git_dir(path: &[u8]) -> &[u8] {
    let parent = split(path).0;
    if is_of_rebase(parent) { split(parent).0 } else { parent }
}

/// Tells whether a path is that of a directory in which `git rebase` keeps its state.
fn is_of_rebase(path: &[u8]) -> bool {
    matches!(fold(split(path).1).as_ref(), b"rebase-merge" | b"rebase-apply")
}

/// Returns the commit that such a file names. A file that cannot be read names none.
pub(crate) fn read(tree: &Workspace, path: &[u8]) -> Option<Stash> {
    let (parent, name) = split(path);
    let text = tree.dir(parent).and_then(|dir| read_small(dir.as_fd(), name)).ok()??;
    commit_of(&text).map(|commit| Stash::new(path, Holds::Stash(commit)))
}

fn commit_of(text: &[u8]) -> Option<String> {
    let id = text.trim_ascii();
    let is_id = matches!(id.len(), 40 | 64) && id.iter().all(u8::is_ascii_hexdigit);
    is_id.then(|| String::from_utf8_lossy(id).into_owned())
}

/// Adds a note of each such file that stays in the layer to the steps of a plan. Returns the commits that are to be named.
pub(crate) fn note_stashes(tree: &LayerTree, plan: &mut CommitPlan, upper: &Workspace, base: &Workspace) -> Vec<Stash> {
    let Some(states) = &plan.states else { return Vec::new() };
    // Nothing was taken out of the working tree.
    if !states.contains(&State::Commit) {
        return Vec::new();
    }
    let (mut found, mut notes, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (node, state) in tree.nodes.iter().zip(states).skip(1) {
        let stash = match state {
            State::Park if node.role == Role::Entry && is_named_by(&node.path.0) => {
                notes.push(note(node));
                read(upper, &node.path.0)
            }
            State::Commit if node.role != Role::Entry => gone(base, node),
            State::Park | State::Commit | State::Nothing => None,
        };
        found.extend(stash.filter(|_| found.len() < NAMED).filter(|stash: &Stash| seen.insert(stash.holds.clone())));
    }
    plan.tail.extend(notes);
    found
}

/// Returns the commit that a file names which goes away, alone or with its directory.
fn gone(base: &Workspace, node: &Node) -> Option<Stash> {
    let old = node.covers.as_ref().filter(|_| !node.claimed)?;
    match old.meta.kind {
        EntryType::File if is_named_by(&old.at.0) => read(base, &old.at.0),
        EntryType::Directory if is_of_rebase(&old.at.0) => read(base, &join(&old.at.0, b"autostash")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_name_a_stash_are_known() {
        for path in [
            ".git/MERGE_AUTOSTASH",
            ".git/worktrees/w/merge_autostash",
            ".git/rebase-merge/autostash",
            "a/.git/Rebase-Apply/autostash",
        ] {
            assert!(is_named_by(path.as_bytes()), "{path}");
        }
        for path in [".git/autostash", ".git/rebase-merge/onto", ".git/MERGE_HEAD", ".git/rebase-merge"] {
            assert!(!is_named_by(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn only_an_object_id_is_a_commit() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(commit_of(format!("{id}\n").as_bytes()).as_deref(), Some(id));
        for text in ["", "HEAD", "0123", &format!("{id}; rm -rf /"), &id.replace('0', "g")] {
            assert_eq!(commit_of(text.as_bytes()), None, "{text}");
        }
    }
}
