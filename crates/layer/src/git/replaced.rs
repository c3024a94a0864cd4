//! Holds back a complete git directory that a run created in place of an existing one.
//!
//! `rm -rf .git; git init; git commit` gives the directory another `HEAD`, other refs and other reflogs. The objects of
//! the old repository stay (`git_objects`), but no name leads to its commits any more, and the next `git gc` of the host
//! removes them. git itself never replaces what is looked for here:
//!
//! ```text
//!  the directory, or `refs` in it, is new over an old one, and a ref, a reflog, HEAD or the index is not as it was
//!  `HEAD` or `refs` goes away, or becomes another kind of entry
//!  `HEAD` is a new file, no line of its reflog stays, and no ref of the old repository has its commit any more
//! ```
//!
//! Everything in such a directory waits, and no accept brings a part of it: an old branch with a new index, or a branch
//! without its objects, is of no use.

use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, join, names, split};
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::git::git_rules::Version;
use crate::git::nested::{GOES, by_path, has_objects, is_git};
use crate::meta::EntryType;
use crate::read::git_dirs;
use crate::read::git_dirs::has;
use crate::read::walk::{Walk, lower_path};
use nexus_git::git_dir::PACKED;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Says why the entries of a git directory wait.
const REPLACES: &str = "replaces a git repository and its branches";
/// Entries of a git directory by which git finds commits and what is staged.
const NAMES: &[&[u8]] = &[b"HEAD", b"refs", b"packed-refs", b"reftable", b"logs", b"index"];
/// Refs of a repository that are compared. One with more counts as replaced.
const MAX_REFS: usize = 100_000;

/// Parks the git directories that a layer replaces, and those of working trees elsewhere that it removes.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    for at in 1..tree.nodes.len() {
        if is_gone_repository(walk, &tree.nodes[at])? {
            let why = by_path(GOES, &tree.nodes[at].path.0);
            tree.nodes[at].rare.verdict = Some(Verdict::Park(why));
        }
    }
    let candidates = candidates(walk, tree)?;
    if candidates.is_empty() {
        return Ok(());
    }
    let by_path = tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
    let losing = losing(tree, &candidates);
    let mut replaced = HashSet::new();
    for (at, base) in &candidates {
        let one = GitDir { walk, tree, by_path: &by_path, at: *at, base };
        if one.is_replaced(losing.contains(at))? {
            replaced.insert(*at);
        }
    }
    hold(walk.rules, tree, &replaced);
    Ok(())
}

/// Reports whether a node takes away a git directory with objects that is not named `.git` and has a working tree
/// (`git init --separate-git-dir`).
fn is_gone_repository(walk: &Walk<'_>, node: &Node) -> Result<bool, IoFailure> {
    let gone = node.covers.as_ref().filter(|old| {
        node.role != Role::Entry && old.meta.kind == EntryType::Directory && !node.claimed && !is_git(&old.at.0)
    });
    match gone {
        Some(old) => is_separate(walk.base, &old.at.0),
        None => Ok(false),
    }
}

/// Reports whether a directory of the workspace is a git directory with objects and an index.
pub(crate) fn is_separate(base: &Workspace, directory: &[u8]) -> Result<bool, IoFailure> {
    Ok(has(base, directory, b"HEAD")?
        && has(base, directory, b"refs")?
        && has(base, directory, b"index")?
        && has_objects(base, directory)?)
}

/// Returns the git directories of the workspace with objects in which the layer has something that may make them
/// others, by their nodes, and their paths in the workspace.
fn candidates(walk: &Walk<'_>, tree: &LayerTree) -> Result<HashMap<usize, Vec<u8>>, IoFailure> {
    let mut looked: HashSet<usize> = HashSet::new();
    let mut found = HashMap::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let replaces_refs = matches!(split(&node.path.0).1, b"HEAD" | b"refs");
        for directory in [replaces_refs.then_some(node.parent), node.rare.replaced.then_some(at)].into_iter().flatten()
        {
            if directory == 0 || !looked.insert(directory) {
                continue;
            }
            let Some(base) = lower_path(&tree.nodes[directory]) else { continue };
            if git_dirs::is_one(walk.base, base)? && has_objects(walk.base, base)? {
                found.insert(directory, base.to_vec());
            }
        }
    }
    Ok(found)
}

/// Returns those of the git directories in which a name of the workspace is not as it was.
fn losing(tree: &LayerTree, candidates: &HashMap<usize, Vec<u8>>) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut nearest: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        nearest[at] = if candidates.contains_key(&at) { Some(at) } else { nearest[node.parent] };
        let is_same = node.role == Role::Entry && node.same_content;
        if let Some(top) = nearest[at].filter(|_| node.covers.is_some() && !is_same)
            && is_name(&node.path.0, &tree.nodes[top].path.0)
        {
            found.insert(top);
        }
    }
    found
}

/// Reports whether a path is that of a name in a git directory, or lies in a directory of them.
fn is_name(path: &[u8], git_dir: &[u8]) -> bool {
    NAMES.iter().any(|name| is_beneath(path, &join(git_dir, name)))
}

/// A git directory of the workspace and of the layer.
pub(crate) struct GitDir<'a> {
    pub(crate) walk: &'a Walk<'a>,
    pub(crate) tree: &'a LayerTree,
    pub(crate) by_path: &'a HashMap<&'a [u8], usize>,
    /// The node of the repository.
    pub(crate) at: usize,
    /// Its path in the workspace.
    pub(crate) base: &'a [u8],
}

/// The effect of a layer on an entry of a git directory.
pub(crate) enum Effect<'a> {
    Stays,
    Gone,
    New(&'a Node),
}

impl GitDir<'_> {
    /// Reports whether the layer has another repository in the place of this one. `loses`: a name of the workspace is
    /// not as it was.
    fn is_replaced(&self, loses: bool) -> Result<bool, IoFailure> {
        if self.tree.nodes[self.at].rare.replaced && loses {
            return Ok(true);
        }
        for name in [&b"HEAD"[..], b"refs"] {
            let Some(node) = self.own(name) else { continue };
            let is_other = |old: &EntryType| node.role != Role::Entry || node.meta.kind != *old;
            if node.covers.as_ref().is_some_and(|old| is_other(&old.meta.kind)) || (node.rare.replaced && loses) {
                return Ok(true);
            }
        }
        let has_new_head = self.own(b"HEAD").is_some_and(|node| !node.is_own_version() && !node.same_content);
        Ok(has_new_head && !self.continues_log()? && self.loses_all_refs()?)
    }

    /// Returns the node of an entry right in the git directory.
    fn own(&self, name: &[u8]) -> Option<&Node> {
        self.by_path.get(join(&self.tree.nodes[self.at].path.0, name).as_slice()).map(|at| &self.tree.nodes[*at])
    }

    /// Returns the effect of the layer on a path in the git directory.
    pub(crate) fn effect(&self, inside: &[u8]) -> Effect<'_> {
        let path = join(&self.tree.nodes[self.at].path.0, inside);
        let mut at: &[u8] = &path;
        loop {
            match self.by_path.get(at).map(|at| &self.tree.nodes[*at]) {
                Some(node) if node.role != Role::Entry => return Effect::Gone,
                Some(node) if at.len() == path.len() => return Effect::New(node),
                Some(node) if matches!(node.rare.lower, Lower::Merged(_)) => return Effect::Stays,
                Some(_) => return Effect::Gone,
                None => at = split(at).0,
            }
        }
    }

    /// Reports whether the reflog of `HEAD` has a line of the one before, or was emptied by `git reflog expire`.
    /// Without a reflog before, nothing is known.
    fn continues_log(&self) -> Result<bool, IoFailure> {
        const LOG: &[u8] = b"logs/HEAD";
        let Some(old) = self.read(self.walk.base, &join(self.base, LOG))? else { return Ok(false) };
        let node = match self.effect(LOG) {
            Effect::Stays => return Ok(true),
            Effect::Gone => return Ok(false),
            Effect::New(node) => node,
        };
        let Some(new) = self.read(self.walk.upper, &node.path.0)? else { return Ok(false) };
        let lines =
            |text: &'_ [u8]| -> HashSet<Vec<u8>> { text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect() };
        Ok(new.is_empty() || lines(&old).intersection(&lines(&new)).any(|line| !line.is_empty()))
    }

    /// Reports whether the workspace has refs, and none of them has the commit in the layer that it had.
    fn loses_all_refs(&self) -> Result<bool, IoFailure> {
        let packed = |text: Option<Vec<u8>>| text.map(|text| packed(&text)).unwrap_or_default();
        let old_packed = packed(self.read(self.walk.base, &join(self.base, b"packed-refs"))?);
        let new_packed = match self.effect(b"packed-refs") {
            Effect::Stays => old_packed.clone(),
            Effect::Gone => HashMap::new(),
            Effect::New(node) => packed(self.read(self.walk.upper, &node.path.0)?),
        };
        let mut old = old_packed;
        for name in self.loose()? {
            if let Some(text) = self.read(self.walk.base, &join(self.base, &name))? {
                old.insert(name, text.trim_ascii().to_vec());
            }
        }
        if old.len() > MAX_REFS {
            return Ok(true);
        }
        for (name, value) in &old {
            let new = match self.effect(name) {
                Effect::Stays if has(self.walk.base, split(&join(self.base, name)).0, split(name).1)? => {
                    return Ok(false);
                }
                Effect::Stays | Effect::Gone => new_packed.get(name).cloned(),
                Effect::New(node) => self.read(self.walk.upper, &node.path.0)?.map(|text| text.trim_ascii().to_vec()),
            };
            if new.as_ref() == Some(value) {
                return Ok(false);
            }
        }
        Ok(!old.is_empty())
    }

    /// Returns the refs of the workspace that have files of their own.
    pub(crate) fn loose(&self) -> Result<Vec<Vec<u8>>, IoFailure> {
        let (mut found, mut stack) = (Vec::new(), vec![b"refs".to_vec()]);
        while let Some(inside) = stack.pop() {
            let path = join(self.base, &inside);
            let dir = match self.walk.base.readable_dir(&path) {
                Ok(dir) => dir,
                Err(error) if is_no_way(&error) => continue,
                Err(error) => return Err(error).doing("open", &path),
            };
            for name in names(dir.as_fd()).doing("list", &path)? {
                let kind = self.walk.base.stat(&join(&path, &name)).doing("look at", &path)?.map(|meta| meta.kind);
                match kind {
                    Some(EntryType::Directory) => stack.push(join(&inside, &name)),
                    Some(_) => found.push(join(&inside, &name)),
                    None => {}
                }
            }
            if found.len() > MAX_REFS {
                break;
            }
        }
        Ok(found)
    }

    /// Reads a file of a git directory; `None` for what is not there or cannot be read.
    pub(crate) fn read(&self, tree: &Workspace, path: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        if !has(tree, split(path).0, split(path).1)? {
            return Ok(None);
        }
        Ok(match self.walk.version(tree, path, &Class::GitState(PACKED))? {
            Version::Bytes(text) => Some(text),
            Version::Absent | Version::Unreadable => None,
        })
    }
}

/// Returns the commits of the refs in a file `packed-refs`.
pub(crate) fn packed(text: &[u8]) -> HashMap<Vec<u8>, Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#") && !line.starts_with(b"^"));
    let split = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        Some((line[at + 1..].to_vec(), line[..at].to_vec()))
    };
    lines.filter_map(split).collect()
}

/// Holds back all entries of these git directories, unless the user accepts each directory as a whole.
fn hold(rules: &Rules, tree: &mut LayerTree, replaced: &HashSet<usize>) {
    let mut tops: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    let mut known: HashMap<usize, bool> = HashMap::new();
    for at in 1..tree.nodes.len() {
        let parent = tops[tree.nodes[at].parent];
        tops[at] = parent.or_else(|| replaced.contains(&at).then_some(at));
        let Some(top) = tops[at] else { continue };
        let path = tree.nodes[top].path.clone();
        let is_accepted = *known.entry(top).or_insert_with(|| accepts_whole(rules, &path.0));
        let rare = &mut tree.nodes[at].rare;
        if !is_accepted && rare.verdict != Some(Verdict::LeaveOut) {
            rare.verdict = Some(Verdict::Park(by_path(REPLACES, &path.0)));
            rare.in_unit = true;
        }
    }
}

/// Reports whether the user accepts a git directory with all its names and objects.
pub(crate) fn accepts_whole(rules: &Rules, path: &[u8]) -> bool {
    let is_part = |one: &[u8]| is_name(one, path) || is_beneath(one, &join(path, b"objects"));
    rules.accepts_protected(path) && rules.is_chosen(path) && !rules.except.iter().any(|one| is_part(&one.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_git_directory_does_not_stand_for_it() {
        let rules = |named: &[&str], except: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(|one| (*one).into()).collect::<Vec<_>>();
            Rules { only: Some(texts(named)), named: texts(named), except: texts(except), ..Rules::default() }
        };
        assert!(accepts_whole(&rules(&["a/.git"], &["a/.git/config", "a/.git/hooks/x", "b"]), b"a/.git"));
        assert!(accepts_whole(&Rules { accept_protected: true, ..Rules::default() }, b"a/.git"));
        for (named, except) in [
            (&["a/.git/HEAD"][..], &[][..]),
            (&["a"], &[]),
            (&["a/.git"], &["a/.git/refs/heads/x"]),
            (&["a/.git"], &["a/.git/objects/pack"]),
            (&["a/.git"], &["a"]),
        ] {
            assert!(!accepts_whole(&rules(named, except), b"a/.git"), "{named:?} {except:?}");
        }
        assert!(!accepts_whole(&Rules::default(), b"a/.git"));
    }

    #[test]
    fn packed_refs_have_their_commits() {
        let found = packed(b"# pack-refs with: peeled\n12 refs/heads/a b\n34 refs/tags/v1\n^56\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[&b"refs/tags/v1"[..]], b"34");
    }
}
