//! Holds back a bare repository that a run created at the target of an existing link.
//!
//! A new link into a git directory is held back when a run creates it. An older link pointed at an ordinary directory until a
//! run made a repository there: a host program that writes through that link would then write a hook or a setting.

use crate::beneath::{Doing as _, IoFailure, is_gone, is_other_mount, join, names, split};
use crate::entries::tree::LayerTree;
use crate::fold::fold;
use crate::links::link_budget::{LinkEnd, Links};
use crate::links::link_ends::{Ends, LayerLinks, link};
use crate::meta::{EntryType, stat_if_there};
use crate::read::git_dirs;
use crate::read::walk::Walk;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;

/// Entries of the workspace that are looked at for links.
const MAX_ENTRIES: usize = 200_000;

/// Entries of a layer that lead into the new repositories, as indices of [`LayerTree::nodes`].
#[derive(Default)]
pub(crate) struct Leading {
    /// Links of the layer.
    pub(crate) links: Vec<usize>,
    /// Repositories that links of the workspace lead to, or could lead to.
    pub(crate) repositories: HashSet<usize>,
}

/// Finds the links that lead into the directories `new`, given by their paths, which become bare repositories.
pub(crate) fn find(walk: &Walk<'_>, tree: &LayerTree, new: &HashMap<&[u8], usize>) -> Result<Leading, IoFailure> {
    let mut leading = Leading::default();
    if new.is_empty() {
        return Ok(leading);
    }
    let ends = Ends::new(walk.rules, walk.base.path());
    let links = LayerLinks::read(walk, tree)?;
    let after = Links::new(|path| links.after(walk, tree, path));
    // A part of the layer may stay behind.
    let before = Links::new(|path| link(walk.base, path));
    let follow = |path: &[u8], text: &[u8]| {
        let mut found = None;
        let mut take =
            |inside: Option<&[u8]>, _: &[u8]| found = found.or(inside.and_then(|end| repository_of(path, end, new)));
        let ways = [ends.follow(path, text, &after, &mut take)?, ends.follow(path, text, &before, &mut take)?];
        Ok(if ways.contains(&LinkEnd::TooLong) { Lead::Anywhere } else { found.map_or(Lead::Elsewhere, Lead::To) })
    };
    for (at, text) in links.all() {
        if tree.nodes[at].rare.verdict.is_none() && follow(&tree.nodes[at].path.0, text)? != Lead::Elsewhere {
            leading.links.push(at);
        }
    }
    let all = || new.values().copied().collect();
    let Some(existing) = existing(walk)? else {
        leading.repositories = all();
        return Ok(leading);
    };
    for path in existing {
        let Some(text) = link(walk.base, &path)? else { continue };
        match follow(&path, &text)? {
            Lead::Elsewhere => {}
            Lead::To(repository) => {
                leading.repositories.insert(repository);
            }
            Lead::Anywhere => {
                leading.repositories = all();
                return Ok(leading);
            }
        }
    }
    Ok(leading)
}

/// The place that a link leads to.
#[derive(Debug, PartialEq, Eq)]
enum Lead {
    Elsewhere,
    /// A new repository, as an index of [`LayerTree::nodes`].
    To(usize),
    /// Its way is too long to be followed.
    Anywhere,
}

/// Returns the repository that a link with this end leads to.
fn repository_of(link: &[u8], end: &[u8], new: &HashMap<&[u8], usize>) -> Option<usize> {
    let mut at = end;
    loop {
        if let Some(node) = new.get(at) {
            return git_dirs::enters(link, end, at).then_some(*node);
        }
        if at.is_empty() {
            return None;
        }
        at = split(at).0;
    }
}

/// Lists the links of the workspace outside of `.git`. `None` when not all of it can be looked through.
pub(crate) fn existing(walk: &Walk<'_>) -> Result<Option<Vec<Vec<u8>>>, IoFailure> {
    let (mut stack, mut found, mut left) = (vec![Vec::new()], Vec::new(), MAX_ENTRIES);
    while let Some(at) = stack.pop() {
        let dir = match walk.base.readable_dir(&at) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => continue,
            Err(error) if is_other_mount(&error) || error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error).doing("open", &at),
        };
        let all = names(dir.as_fd()).doing("list", &at)?;
        let Some(less) = left.checked_sub(all.len()) else { return Ok(None) };
        left = less;
        for name in all {
            let path = join(&at, &name);
            match stat_if_there(dir.as_fd(), &name) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
                Err(error) => return Err(error).doing("look at", &path),
                Ok(Some(meta)) if meta.kind == EntryType::Symlink => found.push(path),
                // What leads into `.git` and is in it is classified by its names.
                Ok(Some(meta)) if meta.kind == EntryType::Directory && fold(&name).as_ref() != b".git" => {
                    stack.push(path);
                }
                Ok(_) => {}
            }
        }
    }
    Ok(Some(found))
}
