//! Holds `HEAD` and its branch back together with the index of their working tree.
//!
//! If the branch were committed without the index, `git status` would show the files of the run's commits as deleted, and the user's
//! next commit would delete them. Other branches are committed: no index depends on them.

use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, join, split};
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{LayerTree, Role, Verdict};
use crate::entries::verdict::is_nothing;
use crate::fold::fold;
use crate::git::git_rules::Version;
use crate::git::halves::would_commit;
use crate::read::walk::{Walk, lower_path};
use nexus_git::git_dir::PACKED;
use nexus_git::refs::target;
use nexus_git::small::read_small;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Says that `HEAD` or a branch waits for the index, without which no accept brings it.
const NEEDS_INDEX: &str = "needs the index of its git directory, which waits or was rejected: accept that file first. To have it without, reject the index and accept this path by its name";

/// Parks what belongs to the indexes that do not come: they wait, were rejected, or were not chosen.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut waiting: HashSet<Vec<u8>> = HashSet::new();
    let mut packed: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut rejected: Vec<Vec<u8>> = Vec::new();
    for node in tree.nodes.iter().skip(1) {
        let path = &node.path.0;
        if would_commit(walk.rules, node)
            || node.rare.same_entries
            || is_nothing(tree, node)
            || node.role != Role::Entry
            || fold(split(path).1).as_ref() != b"index"
        {
            continue;
        }
        // A new repository has no branch that the user works on.
        let parent = &tree.nodes[node.parent];
        let Some(base) = lower_path(parent) else { continue };
        if walk.rules.except.iter().any(|one| is_beneath(path, &one.0)) {
            rejected.push(parent.path.0.to_vec());
        }
        waiting.extend([b"HEAD".as_slice(), b"logs/HEAD"].map(|name| join(&parent.path.0, name)));
        let Some(branch) = branch(walk.base, base)? else { continue };
        let (common, old_common) = (common(&parent.path.0), common(base));
        waiting.extend([join(common, &branch), join(&join(common, b"logs"), &branch)]);
        if is_only_packed(walk.base, old_common, &branch)? {
            packed.push((common.to_vec(), branch));
        }
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let by_path: HashMap<&[u8], usize> =
        tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
    let mut found: Vec<usize> = waiting.iter().filter_map(|path| by_path.get(path.as_slice()).copied()).collect();
    for (common, branch) in packed {
        let Some(at) = by_path.get(join(&common, b"packed-refs").as_slice()).copied() else { continue };
        if is_changed(walk, tree, at, &branch)? {
            found.push(at);
            // The files of the refs that the run packed stay, too.
            let refs = join(&common, b"refs");
            let goes = |at: &usize| tree.nodes[*at].role != Role::Entry && is_beneath(&tree.nodes[*at].path.0, &refs);
            found.extend((1..tree.nodes.len()).filter(goes));
        }
    }
    for at in found {
        let path = &*tree.nodes[at].path.0;
        // What the user did not choose, or did not accept, stays for that reason alone.
        let waits =
            matches!(tree.nodes[at].rare.verdict, Some(Verdict::Park(_))) && !walk.rules.accepts_protected(path);
        if walk.rules.is_chosen(path) && !waits && !is_wanted_alone(walk.rules, path, &rejected) {
            let rare = &mut tree.nodes[at].rare;
            rare.verdict = Some(Verdict::Park(NEEDS_INDEX.to_owned()));
            rare.in_unit = true;
        }
    }
    Ok(())
}

/// Reports whether the user named exactly this path, and rejected the index of a git directory around it.
fn is_wanted_alone(rules: &Rules, path: &[u8], rejected: &[Vec<u8>]) -> bool {
    rules.named.iter().any(|named| named.0 == path)
        && rejected.iter().any(|git_dir| is_beneath(path, git_dir) || is_beneath(path, common(git_dir)))
}

/// Returns the git directory that has the branches of one: a further working tree shares those of its repository.
fn common(git_dir: &[u8]) -> &[u8] {
    let (parent, name) = split(git_dir);
    // A repository may lie in a directory with that name.
    let is_named = !name.is_empty() && fold(name).as_ref() != b".git";
    let is_further = is_named && fold(split(parent).1).as_ref() == b"worktrees";
    if is_further { split(parent).0 } else { git_dir }
}

/// Returns the ref that `HEAD` of the workspace names. What cannot be read names none.
pub(crate) fn branch(base: &Workspace, git_dir: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
    let text = match base.dir(git_dir).and_then(|dir| read_small(dir.as_fd(), b"HEAD")) {
        Ok(text) => text,
        Err(error) if is_no_way(&error) => None,
        Err(error) => return Err(error).doing("read the HEAD of", git_dir),
    };
    let target = text.as_deref().and_then(target).filter(|target| target.starts_with(b"refs/"));
    Ok(target.map(<[u8]>::to_vec))
}

pub(crate) fn is_only_packed(base: &Workspace, common: &[u8], branch: &[u8]) -> Result<bool, IoFailure> {
    Ok(!crate::read::git_dirs::has(base, split(&join(common, branch)).0, split(branch).1)?)
}

/// Tells whether a `packed-refs` of the layer says something else of a branch than that of the workspace.
fn is_changed(walk: &Walk<'_>, tree: &LayerTree, at: usize, branch: &[u8]) -> Result<bool, IoFailure> {
    let node = &tree.nodes[at];
    let new = if node.role == Role::Entry { line(walk, walk.upper, &node.path.0, branch)? } else { None };
    let old = match &node.covers {
        Some(old) => line(walk, walk.base, &old.at.0, branch)?,
        None => None,
    };
    Ok(new != old)
}

/// Returns the line of a ref in a file `packed-refs` that is there.
pub(crate) fn line(
    walk: &Walk<'_>,
    tree: &Workspace,
    path: &[u8],
    branch: &[u8],
) -> Result<Option<Vec<u8>>, IoFailure> {
    let Version::Bytes(text) = walk.version(tree, path, &Class::GitState(PACKED))? else { return Ok(None) };
    let mut lines = text.split(|byte| *byte == b'\n');
    let is_it = |line: &&[u8]| line.strip_suffix(branch).is_some_and(|rest| rest.ends_with(b" "));
    Ok(lines.find(is_it).map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_working_tree_shares_the_branches() {
        for (path, wanted) in [
            (".git", ".git"),
            (".git/worktrees/wt", ".git"),
            ("a/.git/modules/m", "a/.git/modules/m"),
            ("worktrees/.git", "worktrees/.git"),
        ] {
            assert_eq!(common(path.as_bytes()), wanted.as_bytes());
        }
    }
}
