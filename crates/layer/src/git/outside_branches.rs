//! Holds back the branches of working trees outside of the workspace (`git worktree add`).
//!
//! If a commit changed or deleted such a branch, `git status` in that working tree would show changes that no user made there, and
//! the user's next commit would undo the run's commits. A run cannot see the working tree outside, and git lets no other working
//! tree check out its branch.

use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, is_gone, join, split};
use crate::entries::tree::{LayerTree, Lower, Role, Verdict};
use crate::fold::fold;
use crate::git::further_trees::{MAX_TREES, list, outside, shown};
use crate::git::with_index::{branch, is_only_packed, line};
use crate::read::git_dirs::has;
use crate::read::walk::{Walk, lower_path};
use nexus_git::small::read_small;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Names in a git directory below which refs change.
const REFS: &[&[u8]] = &[b"refs", b"packed-refs"];

/// Parks the refs of a layer that change the branch of a working tree outside of the workspace.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut git_dirs: Vec<usize> = Vec::new();
    let mut known: HashSet<usize> = HashSet::new();
    for node in tree.nodes.iter().skip(1) {
        if REFS.contains(&fold(split(&node.path.0).1).as_ref()) && known.insert(node.parent) {
            git_dirs.push(node.parent);
        }
    }
    let mut by_path: HashMap<&[u8], usize> = HashMap::new();
    let mut found: Vec<(usize, String)> = Vec::new();
    for git_dir in git_dirs {
        let Some(base) = lower_path(&tree.nodes[git_dir]) else { continue };
        let worktrees = join(base, b"worktrees");
        if !has(walk.base, base, b"worktrees")? {
            continue;
        }
        if by_path.is_empty() {
            by_path = tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
        }
        for name in list(walk.base, &worktrees)?.into_iter().take(MAX_TREES) {
            let directory = join(&worktrees, &name);
            let Some(place) = outside(walk.base, &directory) else { continue };
            let Some(branch) = branch(walk.base, &directory)? else { continue };
            let refs = Refs { walk, tree, by_path: &by_path, git_dir: &tree.nodes[git_dir].path.0, base };
            let why = format!("the branch of the working tree at {}, which the run did not see", shown(&place));
            found.extend(refs.changed(&branch)?.into_iter().map(|at| (at, why.clone())));
        }
    }
    for (at, why) in found {
        let verdict = &mut tree.nodes[at].rare.verdict;
        if !matches!(verdict, Some(Verdict::Park(_))) {
            *verdict = Some(Verdict::Park(why));
        }
    }
    Ok(())
}

/// The refs of a git directory, in the workspace and in the layer.
struct Refs<'a> {
    walk: &'a Walk<'a>,
    tree: &'a LayerTree,
    by_path: &'a HashMap<&'a [u8], usize>,
    /// Its path in the layer.
    git_dir: &'a [u8],
    /// Its path in the workspace.
    base: &'a [u8],
}

impl Refs<'_> {
    /// Returns the entries of the layer that give a branch another commit, or take it away.
    fn changed(&self, branch: &[u8]) -> Result<Vec<usize>, IoFailure> {
        let packed = self.by_path.get(join(self.git_dir, b"packed-refs").as_slice()).copied();
        let old_packed = self.packed(self.walk.base, &join(self.base, b"packed-refs"), branch)?;
        let old = match loose(self.walk.base, &join(self.base, branch))? {
            Some(text) => Some(text),
            None => old_packed.clone(),
        };
        let new_packed = match packed.map(|at| &self.tree.nodes[at]) {
            None => old_packed.clone(),
            Some(node) if node.role != Role::Entry => None,
            Some(node) => self.packed(self.walk.upper, &node.path.0, branch)?,
        };
        let file = self.file(branch);
        let is_itself = |at: usize| *self.tree.nodes[at].path.0 == *join(self.git_dir, branch);
        let new = match file {
            None => loose(self.walk.base, &join(self.base, branch))?,
            Some(at) if is_itself(at) && self.tree.nodes[at].role == Role::Entry => {
                Some(loose(self.walk.upper, &self.tree.nodes[at].path.0)?.unwrap_or_default())
            }
            Some(_) => None,
        };
        if new.or_else(|| new_packed.clone()) == old {
            return Ok(Vec::new());
        }
        let log = self.file(&join(b"logs", branch));
        let is_packed = is_only_packed(self.walk.base, self.base, branch)? && new_packed != old_packed;
        let mut found: Vec<usize> = [file, log].into_iter().flatten().collect();
        if let Some(packed) = packed.filter(|_| is_packed) {
            // The files of the refs that the run packed stay, too.
            let refs = join(self.git_dir, b"refs");
            let goes = |at: &usize| {
                self.tree.nodes[*at].role != Role::Entry && is_beneath(&self.tree.nodes[*at].path.0, &refs)
            };
            found.extend((1..self.tree.nodes.len()).filter(goes));
            found.push(packed);
        }
        Ok(found)
    }

    /// Returns the commit of a branch in a file `packed-refs`, if there is such a file.
    fn packed(&self, tree: &Workspace, path: &[u8], branch: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        if !has(tree, split(path).0, split(path).1)? {
            return Ok(None);
        }
        let line = line(self.walk, tree, path, branch)?;
        Ok(line.and_then(|line| line.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec)))
    }

    /// Returns the entry of the layer at a path below the git directory, or the one above it that takes it away or
    /// moves it.
    fn file(&self, below: &[u8]) -> Option<usize> {
        let path = join(self.git_dir, below);
        let mut at: &[u8] = &path;
        loop {
            if let Some(found) = self.by_path.get(at).copied() {
                let node = &self.tree.nodes[found];
                let is_new = node.rare.lower == Lower::None && node.covers.is_none();
                let is_around = node.role == Role::Entry && (is_new || matches!(node.rare.lower, Lower::Merged(_)));
                return (at.len() == path.len() || !is_around).then_some(found);
            }
            at = split(at).0;
            if at.len() <= self.git_dir.len() {
                return None;
            }
        }
    }
}

/// Returns what the file of a ref says, which is there and can be read.
fn loose(tree: &Workspace, path: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
    let (parent, name) = split(path);
    match tree.dir(parent).and_then(|dir| read_small(dir.as_fd(), name)) {
        Ok(text) => Ok(text.map(|text| text.trim_ascii().to_vec())),
        Err(error) if is_gone(&error) || is_no_way(&error) => Ok(None),
        Err(error) => Err(error).doing("read", path),
    }
}
