//! Holds back a new repository at the target of a link in another repository.
//!
//! A new link from one repository into another is held back (`links_between`). An older link, or one that the user made, points to an
//! ordinary directory until a run creates a repository there. From then on, the user's commits below the link would be recorded in
//! the new repository.

use crate::beneath::{IoFailure, Workspace, is_beneath, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Role, Verdict};
use crate::git::bare_links::existing;
use crate::git::nested::{by_path, is_git, is_in_one};
use crate::links::link_budget::{LinkEnd, Links};
use crate::links::link_ends::{Ends, LayerLinks, link};
use crate::meta::EntryType;
use crate::read::git_dirs::has;
use crate::read::walk::{Walk, lower_path};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;

/// Says why such a repository waits.
const LED_TO: &str = "makes a repository where links of another one lead, or could lead";

/// Holds back the new directories `.git` to which links lead. Returns the directories, by their paths, in which they wait.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<Vec<Vec<u8>>, IoFailure> {
    let mut tops = Vec::new();
    for at in find(walk, tree)? {
        let why = by_path(LED_TO, &tree.nodes[at].path.0);
        tops.push(split(&tree.nodes[at].path.0).0.to_vec());
        tree.nodes[at].rare.verdict = Some(Verdict::Park(why));
    }
    Ok(tops)
}

/// Finds the directories `.git` that wait.
fn find(walk: &Walk<'_>, tree: &LayerTree) -> Result<Vec<usize>, IoFailure> {
    let is_new = |at: usize| {
        let one = &tree.nodes[at];
        let is_directory = one.role == Role::Entry && one.meta.kind == EntryType::Directory;
        let is_open = !matches!(one.rare.verdict, Some(Verdict::Park(_)));
        // At the top of the workspace it has all links in it.
        let is_below = one.parent != 0;
        is_directory && is_below && is_open && lower_path(one).is_none() && is_git(&one.path.0)
    };
    let mut new: Vec<usize> = (1..tree.nodes.len()).filter(|at| is_new(*at)).collect();
    new.retain(|at| walk.rules.class(&tree.nodes[*at].path.0) == Class::GitRoot);
    if new.is_empty() {
        return Ok(new);
    }
    let Some(existing) = existing(walk)? else { return Ok(new) };
    let ends = Ends::new(walk.rules, walk.base.path());
    let links = LayerLinks::read(walk, tree)?;
    let after = Links::new(|path| links.after(walk, tree, path));
    // A part of the layer may stay behind.
    let before = Links::new(|path| link(walk.base, path));
    let mut repositories =
        Repositories { base: walk.base, is_in_one: is_in_one(walk.base.path())?, known: HashMap::new() };
    let mut found = Vec::new();
    for path in existing {
        if new.is_empty() {
            break;
        }
        if !repositories.hold(split(&path).0)? {
            continue;
        }
        let Some(text) = link(walk.base, &path)? else { continue };
        let mut all: Vec<Vec<u8>> = Vec::new();
        let mut add = |inside: Option<&[u8]>, end: &[u8]| {
            // Above the workspace all of it is below the link.
            let above = || is_beneath(walk.base.path().as_os_str().as_bytes(), end).then(Vec::new);
            all.extend(inside.map(<[u8]>::to_vec).or_else(above));
        };
        let ways = [ends.follow(&path, &text, &after, &mut add)?, ends.follow(&path, &text, &before, &mut add)?];
        let is_too_long = ways.contains(&LinkEnd::TooLong);
        new.retain(|at| {
            let top = split(&tree.nodes[*at].path.0).0;
            let leads = |end: &Vec<u8>| is_beneath(end, top) || is_beneath(top, end);
            let waits = is_too_long || (!is_beneath(&path, top) && all.iter().any(leads));
            if waits {
                found.push(*at);
            }
            !waits
        });
    }
    Ok(found)
}

/// Tells which directories of the workspace lie in a repository.
struct Repositories<'a> {
    base: &'a Workspace,
    is_in_one: bool,
    known: HashMap<Vec<u8>, bool>,
}

impl Repositories<'_> {
    fn hold(&mut self, directory: &[u8]) -> Result<bool, IoFailure> {
        if let Some(known) = self.known.get(directory) {
            return Ok(*known);
        }
        let found = if has(self.base, directory, b".git")? {
            true
        } else if directory.is_empty() {
            self.is_in_one
        } else {
            self.hold(split(directory).0)?
        };
        self.known.insert(directory.to_vec(), found);
        Ok(found)
    }
}
