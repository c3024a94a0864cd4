//! Recognises a further working tree that a run made of the repository around it (`git worktree add`).
//!
//! It has the configuration, the hooks and the remotes of a repository that the workspace had, so that nothing in it needs an accept
//! that does not need one in the first working tree:
//!
//! ```text
//!  R/.git               there before, and the nearest repository around DIR
//!  R/DIR/.git           names R/.git/worktrees/NAME;  DIR is new, and no index of R names anything there
//!  R/.git/worktrees/N   new, names R/DIR/.git and ../.., has only what git writes, and a branch that no other working tree has
//!  R/DIR/FILE           where R/FILE is protected: the same bytes as R/FILE
//! ```
//! What differs from that in anything waits as before, the whole working tree as one.

use crate::bare::is_one;
use crate::beneath::{Doing as _, IoFailure, is_beneath, join, names, split};
use crate::facts::Version;
use crate::git_index::below::{is_plain, leaves_free};
use crate::git_refs::{is_head, target};
use crate::link_ends::{is_no_way, link};
use crate::meta::EntryType;
use crate::nested::has;
use crate::protected::Class;
use crate::submodules::place_named;
use crate::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::verdict::hold;
use crate::walk::{Walk, lower_path};
use std::os::fd::AsFd as _;

/// What `git worktree add` and work in the new working tree write into `worktrees/NAME`.
const WRITTEN: &[&[u8]] = &[
    b"HEAD",
    b"ORIG_HEAD",
    b"FETCH_HEAD",
    b"COMMIT_EDITMSG",
    b"commondir",
    b"gitdir",
    b"index",
    b"logs",
    b"logs/HEAD",
    b"refs",
];

/// Working trees of one repository of which the branches are looked at.
const MOST: usize = 1000;

/// Lets the working tree come whose new file `.git` is a node of the layer, if it is such a one. Returns whether it is.
pub(crate) fn comes(walk: &Walk<'_>, tree: &mut LayerTree, file: usize) -> Result<bool, IoFailure> {
    let Some(found) = Found::of(walk, tree, file)? else { return Ok(false) };
    if !found.has_only_what_git_writes(walk, tree)? || !found.has_a_branch_alone(walk, tree)? {
        return Ok(false);
    }
    let Some(same) = found.protected_copies(walk, tree, file)? else { return Ok(false) };
    for at in same {
        tree.nodes[at].rare.is_copy_of_own = true;
    }
    tree.nodes[file].rare.verdict = Some(Verdict::Commit);
    Ok(true)
}

/// A new working tree with its places, relative to the workspace.
struct Found {
    /// The working tree.
    place: Vec<u8>,
    /// The top of the repository around it.
    top: Vec<u8>,
    /// The git directory of the repository.
    git: Vec<u8>,
    /// `worktrees/NAME`.
    own: Vec<u8>,
}

impl Found {
    fn of(walk: &Walk<'_>, tree: &LayerTree, file: usize) -> Result<Option<Self>, IoFailure> {
        let node = &tree.nodes[file];
        let is_new_file = node.role == Role::Entry && node.meta.kind == EntryType::File && node.covers.is_none();
        if !is_new_file || node.parent == 0 || !is_new(&tree.nodes[node.parent]) || split(&node.path.0).1 != b".git" {
            return Ok(None);
        }
        let place = tree.nodes[node.parent].path.0.to_vec();
        let text = text(walk, &node.path.0)?;
        let Some(own) = text.as_deref().and_then(|text| text.strip_prefix(b"gitdir:")) else { return Ok(None) };
        let Some(own) = place_named(own.trim_ascii(), walk.base, &place) else { return Ok(None) };
        let (all, name) = split(&own);
        let (git, worktrees) = split(all);
        let (top, git_name) = split(git);
        if name.is_empty() || worktrees != b"worktrees" || git_name != b".git" {
            return Ok(None);
        }
        let found = Self { top: top.to_vec(), git: git.to_vec(), own: own.clone(), place };
        let is_inside = found.place != found.top && is_beneath(&found.place, &found.top);
        if !is_inside || is_beneath(&found.place, &found.git) || !found.is_of_nearest(walk, tree, node.parent)? {
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// Tells whether the repository was there before, is still at its place, and has no other one between itself and the place.
    fn is_of_nearest(&self, walk: &Walk<'_>, tree: &LayerTree, place: usize) -> Result<bool, IoFailure> {
        if !is_one(walk.base, &self.git)? || has(walk.base, &self.git, b"commondir")? {
            return Ok(false);
        }
        let mut at = place;
        while at != 0 {
            at = tree.nodes[at].parent;
            let (directory, node) = (&tree.nodes[at].path.0, &tree.nodes[at]);
            if **directory == *self.top {
                return Ok(at == 0 || stays(node));
            }
            let is_free = !has(walk.base, directory, b".git")? && (stays(node) || is_new(node));
            let in_layer = tree.nodes.iter().any(|one| one.parent == at && crate::nested::is_git(&one.path.0));
            if !is_free || in_layer {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Tells whether `worktrees/NAME` comes with the layer as git writes it, and nothing of it waits.
    fn has_only_what_git_writes(&self, walk: &Walk<'_>, tree: &LayerTree) -> Result<bool, IoFailure> {
        let (mut is_there, mut is_usual) = (false, true);
        for node in tree.nodes.iter().skip(1) {
            let path = &node.path.0;
            if **path == *self.own {
                is_there = is_new(node);
                is_usual &= is_there && hold(node, walk.rules).is_none();
            } else if **path == *self.git {
                is_usual &= stays(node);
            } else if **path == *split(&self.own).0 {
                is_usual &= stays(node) || is_new(node);
            } else if **path == *self.place {
                is_usual &= hold(node, walk.rules).is_none();
            } else if is_beneath(path, &self.own) {
                let inside = &path[self.own.len() + 1..];
                let is_directory = inside == b"logs" || inside == b"refs";
                let wanted = if is_directory { EntryType::Directory } else { EntryType::File };
                is_usual &= WRITTEN.contains(&inside)
                    && node.role == Role::Entry
                    && node.meta.kind == wanted
                    && hold(node, walk.rules).is_none();
            }
            if !is_usual {
                return Ok(false);
            }
        }
        if !is_there || !is_plain(walk.upper, &self.own, &walk.reads)? {
            return Ok(false);
        }
        let common = text(walk, &join(&self.own, b"commondir"))?;
        let back = text(walk, &join(&self.own, b"gitdir"))?;
        let back = back.and_then(|text| place_named(text.trim_ascii(), walk.base, &self.own));
        let is_back = back.is_some_and(|back| back == join(&self.place, b".git"));
        Ok(is_back && common.is_some_and(|text| text.trim_ascii_end() == b"../..") && self.is_free(walk, tree)?)
    }

    /// Tells whether no index of the repository names a file at the place, before or after the run.
    fn is_free(&self, walk: &Walk<'_>, tree: &LayerTree) -> Result<bool, IoFailure> {
        let inside = self.place.strip_prefix(self.top.as_slice()).unwrap_or(&self.place);
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        let before = leaves_free(walk.base, &self.git, inside, &walk.reads)?;
        let in_layer = tree.nodes.iter().any(|one| *one.path.0 == *self.git);
        Ok(before && (!in_layer || leaves_free(walk.upper, &self.git, inside, &walk.reads)?))
    }

    /// Tells whether `HEAD` is one that git writes and names no branch that is checked out elsewhere.
    fn has_a_branch_alone(&self, walk: &Walk<'_>, tree: &LayerTree) -> Result<bool, IoFailure> {
        let path = join(&self.own, b"HEAD");
        let Some(head) = text(walk, &path)?.filter(|text| is_head(text, false)) else { return Ok(false) };
        let Some(branch) = target(&head) else { return Ok(true) };
        let worktrees = join(&self.git, b"worktrees");
        let mut all = vec![join(&self.git, b"HEAD")];
        match walk.base.readable_dir(&worktrees) {
            Ok(dir) => {
                let names = names(dir.as_fd()).doing("list", &worktrees)?;
                all.extend(names.iter().map(|name| join(&join(&worktrees, name), b"HEAD")));
            }
            Err(error) if is_no_way(&error) => {}
            Err(error) => return Err(error).doing("open", &worktrees),
        }
        if all.len() > MOST {
            return Ok(false);
        }
        for other in &all {
            let (parent, name) = split(other);
            let text = walk.base.dir(parent).and_then(|dir| crate::facts::read_small(dir.as_fd(), name));
            if text.ok().flatten().as_deref().and_then(target) == Some(branch) {
                return Ok(false);
            }
        }
        let is_head_of_one = |one: &&Node| {
            let (parent, name) = split(&one.path.0);
            let is_its = *parent == *self.git || split(parent).0 == worktrees;
            one.role == Role::Entry && name == b"HEAD" && is_its && *one.path.0 != *path
        };
        for other in tree.nodes.iter().skip(1).filter(is_head_of_one) {
            if text(walk, &other.path.0)?.as_deref().and_then(target) == Some(branch) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the entries with protected names that are as in the first working tree; `None` where something else waits.
    fn protected_copies(
        &self,
        walk: &Walk<'_>,
        tree: &LayerTree,
        file: usize,
    ) -> Result<Option<Vec<usize>>, IoFailure> {
        let mut same = Vec::new();
        for (at, node) in tree.nodes.iter().enumerate().skip(1) {
            let path = &node.path.0;
            if at == file || !is_beneath(path, &self.place) || **path == *self.place {
                continue;
            }
            let first = join(&self.top, &path[self.place.len() + 1..]);
            let is_by_name = |path: &[u8]| matches!(walk.rules.class(path), Class::Listed(_));
            let waits = hold(node, walk.rules).is_some();
            if node.role != Role::Entry || (waits && (node.rare.verdict.is_some() || !is_by_name(path))) {
                return Ok(None);
            }
            let is_protected = waits || walk.rules.class(&first) != Class::Plain;
            if is_protected && !is_same(walk, node, &first)? {
                return Ok(None);
            }
            if waits {
                same.push(at);
            }
        }
        Ok(Some(same))
    }
}

/// Tells whether an entry of the layer is as one of the workspace. Of a directory the kind counts, as each entry is looked at.
fn is_same(walk: &Walk<'_>, node: &Node, path: &[u8]) -> Result<bool, IoFailure> {
    let old = match walk.base.stat(path) {
        Ok(Some(old)) => old,
        Ok(None) => return Ok(false),
        Err(error) if is_no_way(&error) => return Ok(false),
        Err(error) => return Err(error).doing("look at", path),
    };
    if old.kind != node.meta.kind || (old.kind != EntryType::Symlink && old.mode != node.meta.mode) {
        return Ok(false);
    }
    Ok(match old.kind {
        EntryType::Directory => true,
        EntryType::File => {
            let new = walk.version(walk.upper, &node.path.0, &Class::NoLink)?;
            let old = walk.version(walk.base, path, &Class::NoLink)?;
            matches!((new, old), (Version::Bytes(new), Version::Bytes(old)) if new == old)
        }
        EntryType::Symlink => {
            let new = link(walk.upper, &node.path.0)?;
            new.is_some() && new == link(walk.base, path)?
        }
        EntryType::Fifo | EntryType::Device | EntryType::Socket => false,
    })
}

/// Reads a small file of the layer.
fn text(walk: &Walk<'_>, path: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
    let (parent, name) = split(path);
    let found = walk.upper.dir(parent).and_then(|dir| crate::facts::read_small(dir.as_fd(), name));
    match found {
        Err(error) if is_no_way(&error) => Ok(None),
        other => other.doing("read", path),
    }
}

/// Tells whether a directory comes with the layer, at a place where the workspace has nothing.
fn is_new(node: &Node) -> bool {
    let is_directory = node.role == Role::Entry && node.meta.kind == EntryType::Directory;
    is_directory && node.rare.lower == Lower::None && node.covers.is_none()
}

/// Tells whether a directory of the layer is the one of the workspace at the same place.
fn stays(node: &Node) -> bool {
    matches!(node.rare.lower, Lower::Merged(_)) && lower_path(node) == Some(&*node.path.0)
}
