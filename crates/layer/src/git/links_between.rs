//! Holds back links that lead from one git repository into another.
//!
//! When the user commits below such a link, git records the commit in the repository that the link leads to. A directory of
//! the user's repository that becomes a link has the same effect as a new `.git` in it (`nested`). The target may be a
//! repository that a run made elsewhere in the workspace, or another repository of the user (`other_repositories`).

use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath, join, names, split};
use crate::entries::tree::{LayerTree, Node, Role, Verdict};
use crate::fold::fold;
use crate::git::nested::is_in_one;
use crate::git::other_repositories::OtherRepositories;
use crate::links::link_budget::{LinkEnd, Links, TOO_LONG};
use crate::links::link_ends::{Ends, LayerLinks, is_no_way, link};
use crate::meta::{EntryType, stat_if_there};
use crate::read::git_dirs::has;
use crate::read::walk::Walk;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Says why such a link waits.
pub(crate) const BETWEEN: &str =
    "a link from one git repository into another: commits made there would go to the other one";

/// Says why a link waits that leads out of a repository into a directory that cannot be looked through.
const TOO_LARGE: &str =
    "a link out of a git repository to a directory with more entries than are looked through for other repositories";

/// Entries below the end of a link that are looked at for repositories.
const MAX_ENTRIES: usize = 20_000;

/// Parks the links of a layer that must wait. `new` are the directories in which new repositories wait.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree, new: &[Vec<u8>]) -> Result<(), IoFailure> {
    for (at, why) in find(walk, tree, new)? {
        tree.nodes[at].rare.verdict = Some(Verdict::Park(why.to_owned()));
    }
    Ok(())
}

/// Finds the links that wait, each with the reason.
fn find(walk: &Walk<'_>, tree: &LayerTree, new: &[Vec<u8>]) -> Result<Vec<(usize, &'static str)>, IoFailure> {
    let is_changed = |one: &Node| one.covers.is_none() || !one.same_content;
    let is_link = |one: &Node| {
        let is_open = one.rare.verdict.is_none() && is_changed(one);
        one.role == Role::Entry && one.meta.kind == EntryType::Symlink && is_open
    };
    if !tree.nodes.iter().skip(1).any(is_link) {
        return Ok(Vec::new());
    }
    let links = LayerLinks::read(walk, tree)?;
    let ends = Ends::new(walk.rules, walk.base.path());
    let is_in_one = is_in_one(walk.base.path())?;
    let (known, others) = (RefCell::default(), OtherRepositories::default());
    let places = Searched { walk, tree, links: &links, is_in_one, known, others };
    let after = Links::new(|path| links.after(walk, tree, path));
    let before = Links::new(|path| link(walk.base, path));
    let mut found = Vec::new();
    for (at, text) in links.all().filter(|(at, _)| is_link(&tree.nodes[*at])) {
        let path = &tree.nodes[at].path.0;
        let (mut all, mut outside): (Vec<Vec<u8>>, Vec<Vec<u8>>) = Default::default();
        let mut add = |inside: Option<&[u8]>, end: &[u8]| match inside {
            Some(inside) => all.push(inside.to_vec()),
            None => outside.push(end.to_vec()),
        };
        // What is committed, and what stays where something of it is held back.
        let ways = [ends.follow(path, text, &after, &mut add)?, ends.follow(path, text, &before, &mut add)?];
        if ways.contains(&LinkEnd::TooLong) {
            found.push((at, TOO_LONG));
            continue;
        }
        for end in outside {
            if places.leads_out(path, &ends, &end)? {
                all.clear();
                found.push((at, BETWEEN));
                break;
            }
        }
        for end in all {
            if let Some(why) = places.leads_between(path, &end, new)? {
                found.push((at, why));
                break;
            }
        }
    }
    Ok(found)
}

/// The workspace as it is, or as it will be when the layer is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum View {
    Before,
    After,
}

/// The top of the nearest repository around a directory; `None` where the workspace has none around it.
type Nearest = Option<Vec<u8>>;

struct Searched<'a> {
    walk: &'a Walk<'a>,
    tree: &'a LayerTree,
    links: &'a LayerLinks,
    /// A repository is around the workspace.
    is_in_one: bool,
    known: RefCell<HashMap<(View, Vec<u8>), Nearest>>,
    others: OtherRepositories,
}

impl Searched<'_> {
    /// Tells why a link waits that ends in the workspace.
    fn leads_between(&self, path: &[u8], end: &[u8], new: &[Vec<u8>]) -> Result<Option<&'static str>, IoFailure> {
        let directory = split(path).0;
        if !self.is_in_one && self.nearest(View::Before, directory)?.is_none() {
            return Ok(None);
        }
        // A repository may have links in it.
        if new.iter().any(|top| is_beneath(top, end) && !is_beneath(path, top)) {
            return Ok(Some(BETWEEN));
        }
        let mut is_alone = !self.is_in_one;
        for view in [View::Before, View::After] {
            let other = self.nearest(view, end)?;
            if other == self.nearest(view, directory)? {
                is_alone = false;
            } else if other.is_some() || self.is_in_one {
                return Ok(Some(BETWEEN));
            }
        }
        if is_alone { self.holds_one(end) } else { Ok(None) }
    }

    /// Tells whether a link that ends outside of the workspace, at an absolute path, leads into another repository
    /// there.
    fn leads_out(&self, path: &[u8], ends: &Ends<'_>, end: &[u8]) -> Result<bool, IoFailure> {
        let directory = split(path).0;
        for view in [View::Before, View::After] {
            let own = self.nearest(view, directory)?;
            if leads_out(self.walk.base, (own.is_some(), self.is_in_one), (&self.others, ends), end) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn nearest(&self, view: View, directory: &[u8]) -> Result<Nearest, IoFailure> {
        let key = (view, directory.to_vec());
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = if self.has_git(view, directory)? {
            Some(directory.to_vec())
        } else if directory.is_empty() {
            None
        } else {
            self.nearest(view, split(directory).0)?
        };
        self.known.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    fn has_git(&self, view: View, directory: &[u8]) -> Result<bool, IoFailure> {
        if view == View::Before {
            return has(self.walk.base, directory, b".git");
        }
        let place = join(directory, b".git");
        match (self.links.node(&place), self.links.base_of(self.tree, &place)) {
            (Some(at), _) => Ok(self.tree.nodes[at].role == Role::Entry),
            (None, Some(base)) => has(self.walk.base, split(&base).0, b".git"),
            (None, None) => Ok(false),
        }
    }

    /// Tells why a link waits to a directory that is in no repository: it has one in it, or cannot be looked through.
    fn holds_one(&self, end: &[u8]) -> Result<Option<&'static str>, IoFailure> {
        let is_git = |name: &[u8]| fold(name).as_ref() == b".git";
        let mut layer = self.tree.nodes.iter().skip(1).filter(|node| node.role == Role::Entry);
        if layer.any(|node| is_git(split(&node.path.0).1) && is_beneath(&node.path.0, end)) {
            return Ok(Some(BETWEEN));
        }
        let (mut stack, mut left) = (vec![end.to_vec()], MAX_ENTRIES);
        while let Some(at) = stack.pop() {
            let Some(dir) = open(self.walk.base, &at)? else { continue };
            let all = names(dir.as_fd()).doing("list", &at)?;
            let Some(less) = left.checked_sub(all.len()) else { return Ok(Some(TOO_LARGE)) };
            left = less;
            for name in all {
                if is_git(&name) {
                    return Ok(Some(BETWEEN));
                }
                let path = join(&at, &name);
                match stat_if_there(dir.as_fd(), &name) {
                    Ok(Some(meta)) if meta.kind == EntryType::Directory => stack.push(path),
                    Ok(_) => {}
                    Err(error) if is_no_way(&error) => {}
                    Err(error) => return Err(error).doing("look at", &path),
                }
            }
        }
        Ok(None)
    }
}

/// Opens a directory of the workspace; `None` where this user reaches none.
fn open(base: &Workspace, at: &[u8]) -> Result<Option<std::os::fd::OwnedFd>, IoFailure> {
    match base.readable_dir(at) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if is_no_way(&error) => Ok(None),
        Err(error) => Err(error).doing("open", at),
    }
}

/// Tells whether a link leads to a repository outside of the workspace. Its own one is in the workspace, or around it.
fn leads_out(
    base: &Workspace,
    (is_inside, is_around): (bool, bool),
    (others, ends): (&OtherRepositories, &Ends<'_>),
    end: &[u8],
) -> bool {
    let around = base.path().parent().unwrap_or(Path::new("/")).as_os_str().as_bytes();
    (is_inside || is_around) && others.has(&|path| ends.can_look(path), (!is_inside).then_some(around), end)
}

/// Tells whether a link of the workspace that comes to `path` with its directory leads into another repository there,
/// which is `inside` the workspace or has an absolute path.
pub(crate) fn leads_between(
    base: &Workspace,
    ends: &Ends<'_>,
    path: &[u8],
    (inside, end): (Option<&[u8]>, &[u8]),
) -> Result<bool, IoFailure> {
    let nearest = |directory: &[u8]| -> Result<Nearest, IoFailure> {
        let mut at = directory;
        loop {
            if has(base, at, b".git")? {
                return Ok(Some(at.to_vec()));
            }
            if at.is_empty() {
                return Ok(None);
            }
            at = split(at).0;
        }
    };
    let (own, is_in_one) = (nearest(split(path).0)?, is_in_one(base.path())?);
    let Some(inside) = inside else {
        return Ok(leads_out(base, (own.is_some(), is_in_one), (&OtherRepositories::default(), ends), end));
    };
    let other = nearest(inside)?;
    Ok(own != other && (is_in_one || (own.is_some() && other.is_some())))
}
