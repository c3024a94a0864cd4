//! Holds back the deletion of git files that a linked working tree of a repository needs (`git worktree add`).
//!
//! Its `HEAD`, its index and its reflogs lie in `worktrees/NAME` of the repository. `git gc` and `git worktree prune`
//! remove that directory when the working tree is not there, and a run sees none outside of the workspace:
//!
//! ```text
//!  worktrees/NAME/gitdir ──names──▶ …/wt/.git   outside: on the host, or cannot be looked at     ──▶ waits
//!                                               in the workspace: stays, or its removal waits    ──▶ waits
//! ```
//!
//! One that a person locked (`git worktree lock`) counts as there: it may be on a drive that is not mounted.
//!
//! Of a working tree outside, a run has nothing to write either: what it writes there is for another working tree that
//! it made in the place of the one that it did not see. So everything in `worktrees/NAME` waits then.

use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, join, names, split};
use crate::entries::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::entries::verdict::{hold, is_nothing};
use crate::fold::fold;
use crate::git::other_repositories::kind_at;
use crate::read::walk::Walk;
use nexus_git::small::read_small;
use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

/// Further working trees of one layer that are looked for. More of them count as there.
pub(crate) const MAX_TREES: usize = 1000;

/// Files of `worktrees/NAME` without which nothing leads to the work in the working tree.
const NEEDED: &[&[u8]] = &[b"head", b"gitdir", b"commondir", b"index", b"logs"];

/// Parks the entries of a layer that go away and that a further working tree needs.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut going: Vec<(usize, Vec<u8>)> = Vec::new();
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        let Some(old) = old_place(node) else { continue };
        if matches!(node.rare.verdict, Some(Verdict::Park(_))) {
            continue;
        }
        match part_of(old) {
            Some(Part::All) => going.extend(list(walk.base, old)?.into_iter().map(|name| (at, join(old, &name)))),
            Some(Part::One) => going.push((at, old.to_vec())),
            Some(Part::File) => going.push((at, split(old).0.to_vec())),
            None => {}
        }
    }
    hold_kept(walk, tree);
    if going.is_empty() {
        return Ok(());
    }
    let by_path: HashMap<&[u8], usize> =
        tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
    let mut known: HashMap<Vec<u8>, Option<Vec<u8>>> = HashMap::new();
    let mut found = Vec::new();
    for (at, directory) in going {
        if !known.contains_key(&directory) {
            let place =
                if known.len() < MAX_TREES { needed_by(walk, tree, &by_path, &directory) } else { Some(Vec::new()) };
            known.insert(directory.clone(), place);
        }
        if let Some(Some(place)) = known.get(&directory) {
            found.push((at, why(place)));
        }
    }
    for (at, why) in found {
        tree.nodes[at].rare.verdict = Some(Verdict::Park(why));
    }
    Ok(())
}

fn why(place: &[u8]) -> String {
    format!("takes away what git needs in the working tree at {}", shown(place))
}

/// Names a working tree for people.
pub(crate) fn shown(place: &[u8]) -> std::borrow::Cow<'_, str> {
    if place.is_empty() { "another place".into() } else { String::from_utf8_lossy(place) }
}

/// Holds back all changes in the directories of working trees that stay as they are: those outside of the workspace, and
/// those inside that the layer takes away or replaces without an accept.
fn hold_kept(walk: &Walk<'_>, tree: &mut LayerTree) {
    let kept = kept(walk, tree);
    if kept.is_empty() {
        return;
    }
    // The reason of each entry whose directory, or a directory around it, is that of such a working tree.
    let mut reasons: Vec<Option<Rc<(String, bool)>>> = vec![None];
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        let reason = kept.get(&at).cloned().or_else(|| reasons[node.parent].clone());
        reasons.push(reason.clone());
        let Some(reason) = reason else { continue };
        let is_held = matches!(node.rare.verdict, Some(Verdict::Park(_)));
        if (!is_held || reason.1) && !is_nothing(tree, node) {
            let rare = &mut tree.nodes[at].rare;
            rare.verdict = Some(Verdict::Park(reason.0.clone()));
            rare.in_unit = reason.1;
        }
    }
}

/// Returns the directories `worktrees/NAME` of the working trees that stay, with the reason why their entries wait and
/// whether no accept brings a part of them.
fn kept(walk: &Walk<'_>, tree: &LayerTree) -> HashMap<usize, Rc<(String, bool)>> {
    let (mut found, mut by_path) = (HashMap::new(), HashMap::new());
    let all = (1..tree.nodes.len()).filter_map(|at| match &tree.nodes[at].rare.lower {
        Lower::Merged(found) if matches!(part_of(&found.at.0), Some(Part::One)) => Some((at, found)),
        _ => None,
    });
    for (looked, (at, directory)) in all.enumerate() {
        let place = if looked < MAX_TREES { outside(walk.base, &directory.at.0) } else { Some(Vec::new()) };
        if let Some(place) = place {
            let why = format!("belongs to the working tree at {}, which the run did not see", shown(&place));
            found.insert(at, Rc::new((why, false)));
            continue;
        }
        if by_path.is_empty() {
            by_path = tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
        }
        if let Some(place) = replaced_inside(walk, tree, &by_path, &directory.at.0) {
            let why = format!(
                "belongs to the working tree at {}, whose own change waits or was rejected: accept that first",
                shown(&place)
            );
            found.insert(at, Rc::new((why, true)));
        }
    }
    found
}

/// Returns the working tree in the workspace that needs `worktrees/NAME`, which is `directory` of the workspace, as it is:
/// the layer takes it away, moves it, changes the file by which it is found, or has another place in `gitdir`, and it stays.
fn replaced_inside(
    walk: &Walk<'_>,
    tree: &LayerTree,
    by_path: &HashMap<&[u8], usize>,
    directory: &[u8],
) -> Option<Vec<u8>> {
    let Named::At(file) = named(walk.base, directory) else { return None };
    let path = inside(walk.base, &file)?;
    let is_there = !matches!(walk.base.stat(path), Ok(None));
    if !is_there || goes_unasked(walk, tree, by_path, path) {
        return None;
    }
    let is_changed = |path: &[u8]| by_path.get(path).is_some_and(|at| !tree.nodes[*at].same_content);
    let mut above = path;
    let is_taken = loop {
        match by_path.get(above).map(|at| &tree.nodes[*at]) {
            Some(node) => {
                break node.role != Role::Entry || old_place(node).is_some() || above == path && is_changed(path);
            }
            None if above.is_empty() => break false,
            None => above = split(above).0,
        }
    };
    (is_taken || is_changed(&join(directory, b"gitdir"))).then(|| split(&file).0.to_vec())
}

/// Returns the working tree outside of the workspace that needs `worktrees/NAME`, which is `directory` of the
/// workspace. Its path is empty where it is not known.
pub(crate) fn outside(base: &Workspace, directory: &[u8]) -> Option<Vec<u8>> {
    match named(base, directory) {
        Named::Nothing => None,
        Named::Unknown => Some(Vec::new()),
        Named::At(file) => {
            let is_needed = inside(base, &file).is_none() && (is_there(&file) || is_locked(base, directory));
            is_needed.then(|| split(&file).0.to_vec())
        }
    }
}

/// Reports whether a person locked a working tree, which may be on a drive that is not mounted (`git worktree lock`).
fn is_locked(base: &Workspace, directory: &[u8]) -> bool {
    !matches!(base.stat(&join(directory, b"locked")), Ok(None))
}

/// Returns the place from which a layer takes an entry of the workspace away.
fn old_place(node: &Node) -> Option<&[u8]> {
    if let Lower::Moved(found) = &node.rare.lower {
        return Some(&found.at.0);
    }
    let old = node.covers.as_ref().filter(|_| !node.claimed)?;
    (node.role != Role::Entry || node.meta.kind != old.meta.kind).then_some(&*old.at.0)
}

/// Part of the further working trees that goes away.
enum Part {
    /// The directory of all of them.
    All,
    /// The directory `worktrees/NAME`.
    One,
    /// An entry of `worktrees/NAME`.
    File,
}

fn part_of(path: &[u8]) -> Option<Part> {
    let mut names = path.rsplit(|byte| *byte == b'/').map(fold);
    let last = names.next()?;
    if last.as_ref() == b"worktrees" {
        return Some(Part::All);
    }
    let is_all = |name: Option<std::borrow::Cow<'_, [u8]>>| name.is_some_and(|name| name.as_ref() == b"worktrees");
    if is_all(names.next()) {
        return Some(Part::One);
    }
    (is_all(names.next()) && NEEDED.contains(&last.as_ref())).then_some(Part::File)
}

/// Tells whether a path is that of an entry of `worktrees/NAME` that the working tree needs.
pub(crate) fn is_of_one(path: &[u8]) -> bool {
    matches!(part_of(path), Some(Part::File))
}

/// Lists a directory of the workspace. Of one that this user cannot list nothing is known, nor can it be removed.
pub(crate) fn list(base: &Workspace, directory: &[u8]) -> Result<Vec<Vec<u8>>, IoFailure> {
    match base.readable_dir(directory) {
        Ok(dir) => names(dir.as_fd()).doing("list", directory),
        Err(error) if is_no_way(&error) => Ok(Vec::new()),
        Err(error) => Err(error).doing("open", directory),
    }
}

/// Tells why `worktrees/NAME`, which is `directory` of the workspace, does not go with a directory around it.
pub(crate) fn why_not(base: &Workspace, directory: &[u8]) -> Option<String> {
    outside(base, directory).map(|place| why(&place))
}

/// The file `.git` that `worktrees/NAME` names.
enum Named {
    /// git removes a directory that names no place.
    Nothing,
    Unknown,
    /// Its absolute path.
    At(Vec<u8>),
}

fn named(base: &Workspace, directory: &[u8]) -> Named {
    match base.dir(directory).and_then(|dir| read_small(dir.as_fd(), b"gitdir")) {
        Ok(Some(text)) => {
            let from = [base.path().as_os_str().as_bytes(), b"/", directory].concat();
            absolute(&from, text.trim_ascii()).map_or(Named::Unknown, Named::At)
        }
        Err(error) if is_gone(&error) => Named::Nothing,
        Ok(None) | Err(_) => Named::Unknown,
    }
}

/// Returns the path in the workspace that an absolute one is.
fn inside<'a>(base: &Workspace, file: &'a [u8]) -> Option<&'a [u8]> {
    file.strip_prefix(base.path().as_os_str().as_bytes())?.strip_prefix(b"/")
}

/// Tells whether the host has something at an absolute path, or whether that cannot be known.
fn is_there(file: &[u8]) -> bool {
    !matches!(kind_at(file), Ok(None))
}

/// Returns the working tree that needs `worktrees/NAME`, which is `directory` of the workspace; `None` if none does.
fn needed_by(walk: &Walk<'_>, tree: &LayerTree, by_path: &HashMap<&[u8], usize>, directory: &[u8]) -> Option<Vec<u8>> {
    let file = match named(walk.base, directory) {
        Named::Nothing => return None,
        Named::Unknown => return Some(Vec::new()),
        Named::At(file) => file,
    };
    let is_needed = match inside(walk.base, &file) {
        None => is_there(&file) || is_locked(walk.base, directory),
        Some(path) => {
            let is_there = !matches!(walk.base.stat(path), Ok(None)) || is_locked(walk.base, directory);
            is_there && !goes_unasked(walk, tree, by_path, path)
        }
    };
    is_needed.then(|| split(&file).0.to_vec())
}

/// Tells whether a layer takes an entry of the workspace away without an accept.
fn goes_unasked(walk: &Walk<'_>, tree: &LayerTree, by_path: &HashMap<&[u8], usize>, path: &[u8]) -> bool {
    let mut at = path;
    loop {
        if let Some(node) = by_path.get(at).map(|node| &tree.nodes[*node]) {
            let is_held = || hold(node, walk.rules).is_some_and(|hold| !hold.is_accepted(walk.rules, node));
            let moved = tree.nodes.iter().find(|one| {
                node.claimed && matches!(&one.rare.lower, Lower::Moved(found) if *found.at.0 == *node.path.0)
            });
            let moves = moved.is_none_or(|one| {
                let is_held = hold(one, walk.rules).is_some_and(|hold| !hold.is_accepted(walk.rules, one));
                walk.rules.is_chosen(&one.path.0) && !is_held
            });
            return node.role != Role::Entry && moves && walk.rules.is_chosen(&node.path.0) && !is_held();
        }
        if at.is_empty() {
            return false;
        }
        at = split(at).0;
    }
}

/// Returns the path in the workspace that a `.git` file in the directory `place` of the workspace names.
pub(crate) fn place_named(base: &Workspace, place: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let from = [base.path().as_os_str().as_bytes(), b"/", place].concat();
    let named = absolute(&from, text.strip_prefix(b"gitdir:")?.trim_ascii())?;
    inside(base, &named).map(<[u8]>::to_vec)
}

/// Returns an absolute path without `.` and `..`; `None` for one that leads above the root.
fn absolute(from: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let whole = if path.starts_with(b"/") { path.to_vec() } else { [from, b"/", path].concat() };
    let mut at: Vec<&[u8]> = Vec::new();
    for name in whole.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(at.pop()?),
            name => at.push(name),
        }
    }
    Some(at.iter().flat_map(|name| [&b"/"[..], name].concat()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_further_working_tree_needs_is_known() {
        for path in [".git/worktrees", ".git/worktrees/wt", "bare/Worktrees/wt/HEAD", ".git/worktrees/wt/logs"] {
            assert!(part_of(path.as_bytes()).is_some(), "{path}");
        }
        for path in [".git/worktrees/wt/MERGE_HEAD", ".git/worktrees/wt/refs/bisect/x", ".git/HEAD", "logs"] {
            assert!(part_of(path.as_bytes()).is_none(), "{path}");
        }
    }

    #[test]
    fn a_path_is_made_absolute_by_its_text() {
        for (path, wanted) in [
            ("/a/wt/.git", Some("/a/wt/.git")),
            ("../../../../wt/.git", Some("/h/wt/.git")),
            ("/a/../wt/./.git", Some("/wt/.git")),
            ("/../x", None),
        ] {
            let found = absolute(b"/h/ws/.git/worktrees/wt", path.as_bytes());
            assert_eq!(found.as_deref(), wanted.map(str::as_bytes), "{path}");
        }
    }
}
