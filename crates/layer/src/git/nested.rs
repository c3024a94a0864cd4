//! Holds back a git repository that a layer makes inside another one.
//!
//! At such a place git takes the user's next commits for those of the new repository, which has remotes and branches of
//! its own. Files that the outer repository has there may be gone since an earlier run, may be on another branch, or
//! may come with the next pull, and git directories can hide what is there from `git status`. So that each new
//! repository waits that has another one around it, whatever the outer one has at the place.
//!
//! The files of its working tree wait with it: without their `.git` the next `git reset --hard` or `git commit` there
//! would work on the outer repository.

use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, is_other_mount, join, names, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Node, Role, Verdict};
use crate::fold::fold;
use crate::git::bare;
use crate::meta::EntryType;
use crate::read::git_dirs::{self, has};
use crate::read::walk::{Walk, lower_path};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Says that a repository waits because another one is around it.
pub(crate) const INSIDE: &str = "makes a repository inside a repository";
/// Says that a git directory goes away that has objects.
pub(crate) const GOES: &str = "takes a git repository away";
/// Says that a new `.git` waits because it lacks parts of a repository.
const UNFINISHED: &str = "a git directory that lacks HEAD, objects or refs";
/// Says that a working tree waits because its `.git` is a file or a link.
const LINKED: &str = "points git to another directory";
/// The reason for holding back an entry below a repository that is held back itself.
pub const WITH_REPOSITORY: &str = "waits with the new repository around it";
/// Says that a directory below `.git`, which is a part of a repository, waits because it would be a repository on its
/// own.
const BELOW_GIT: &str = "makes a repository of its own below a git directory";

/// Parks the repositories of a layer that may not come unasked. `bare` are the directories that become repositories
/// without the name `.git`. Returns the directories, by their paths, in which repositories wait.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree, bare: &[usize]) -> Result<Vec<Vec<u8>>, IoFailure> {
    let (mut found, mut tops) = (Vec::new(), Vec::new());
    let mut around = Around::new(walk, tree);
    let (mut trees, none) = (Vec::new(), HashSet::new());
    let entries = makers_of_git(tree);
    for at in 1..tree.nodes.len() {
        let one = &tree.nodes[at];
        if !is_git(&one.path.0) || walk.rules.class(&one.path.0) != Class::GitRoot {
            continue;
        }
        if one.role != Role::Entry {
            let old = one.covers.as_ref().filter(|old| old.meta.kind == EntryType::Directory && !one.claimed);
            if let Some(old) = old
                && has_objects(walk.base, &old.at.0)?
            {
                found.push((at, by_path(GOES, &one.path.0)));
            }
            continue;
        }
        let is_directory = one.meta.kind == EntryType::Directory;
        let comes = if is_directory {
            let (was_one, will_be) = bare::before_and_after(walk, one, entries.get(&at).unwrap_or(&none))?;
            match (lower_path(one).is_none(), was_one, will_be) {
                (true, _, true) => DotGit::New,
                (true, _, false) => DotGit::Unfinished,
                (false, false, true) => DotGit::Finished,
                (false, ..) => continue,
            }
        } else if one.covers.is_none() && waits(one) {
            DotGit::File
        } else {
            continue;
        };
        if around.has(tree, one.parent)? || (comes == DotGit::File && is_new_tree(tree, one.parent)) {
            tops.push(tree.nodes[one.parent].path.0.to_vec());
            trees.push((at, comes));
        } else if comes == DotGit::Unfinished {
            // No tool leaves one, and a later run could finish it when another repository is around it.
            found.push((at, by_path(UNFINISHED, &one.path.0)));
        }
    }
    let parts = if bare.is_empty() { HashMap::new() } else { makers(tree) };
    for at in bare.iter().copied() {
        let one = &tree.nodes[at];
        let parts = parts.get(&at).map(Vec::as_slice).unwrap_or_default();
        let why = match git_directory_above(tree, at) {
            Some(git) if lower_path(&tree.nodes[git]).is_some() && stands_alone(walk, tree, at, parts)? => BELOW_GIT,
            None if around.has(tree, at)? => INSIDE,
            // What is in a new git directory comes and waits with it.
            Some(_) | None => continue,
        };
        tops.push(one.path.0.to_vec());
        if lower_path(one).is_none() {
            found.push((at, by_path(why, &one.path.0)));
            continue;
        }
        found.extend(parts.iter().map(|part| (*part, by_all(why))));
    }
    for (at, why) in found {
        if !waits(&tree.nodes[at]) {
            tree.nodes[at].rare.verdict = Some(Verdict::Park(why));
        }
    }
    hold_trees(walk, tree, &trees);
    Ok(tops)
}

/// A `.git` of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DotGit {
    /// A new repository.
    New,
    /// A new directory that lacks parts of a repository.
    Unfinished,
    /// A directory of the workspace that lacked parts of a repository and gets them now.
    Finished,
    /// A file or a link.
    File,
}

/// Collects the entries of the layer that make their directories repositories, by these directories.
fn makers(tree: &LayerTree) -> HashMap<usize, Vec<usize>> {
    let mut found: HashMap<usize, Vec<usize>> = HashMap::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1).filter(|(_, node)| node.role == Role::Entry) {
        if git_dirs::is_maker(&name_of(node)) {
            found.entry(node.parent).or_default().push(at);
        }
    }
    found
}

/// Collects the folded names of the entries of the layer that make directories named `.git` repositories.
fn makers_of_git(tree: &LayerTree) -> HashMap<usize, HashSet<Vec<u8>>> {
    let of_git = makers(tree).into_iter().filter(|(at, _)| is_git(&tree.nodes[*at].path.0));
    of_git.map(|(at, makers)| (at, makers.iter().map(|one| name_of(&tree.nodes[*one])).collect())).collect()
}

/// Returns the folded name of an entry.
fn name_of(node: &Node) -> Vec<u8> {
    fold(split(&node.path.0).1).into_owned()
}

fn waits(one: &Node) -> bool {
    matches!(one.rare.verdict, Some(Verdict::Park(_)))
}

/// Tells whether a directory comes with the layer, with nothing of the workspace in it.
fn is_new_tree(tree: &LayerTree, at: usize) -> bool {
    at != 0 && lower_path(&tree.nodes[at]).is_none()
}

/// Holds back each new `.git` together with the files of its working tree.
fn hold_trees(walk: &Walk<'_>, tree: &mut LayerTree, all: &[(usize, DotGit)]) {
    // A layer has any number of repositories and of entries, so that each entry is looked at once for all of them.
    let (mut whole, mut finished) = (HashMap::new(), HashMap::new());
    for (git, comes) in all.iter().copied() {
        let top = tree.nodes[git].parent;
        let (path, own) = (tree.nodes[top].path.clone(), tree.nodes[git].path.clone());
        if top != 0 && walk.rules.accepts_exactly(&path.0) {
            // The name of the working tree stands for its `.git`, too.
            if comes == DotGit::File {
                tree.nodes[git].rare.verdict = Some(Verdict::Commit);
            }
            continue;
        }
        // The workspace itself has no path to name in an accept, and a run cannot reach the repository around it.
        let why = match (comes, top) {
            (DotGit::File, 0) => continue,
            (DotGit::Finished, 0) => by_all(INSIDE),
            (_, 0) => by_path(INSIDE, &own.0),
            (DotGit::File, _) => by_path(LINKED, &path.0),
            _ => by_path(INSIDE, &path.0),
        };
        if comes == DotGit::Finished {
            finished.insert(git, why.clone());
        } else {
            tree.nodes[git].rare.verdict = Some(Verdict::Park(why.clone()));
        }
        if is_new_tree(tree, top) {
            tree.nodes[top].rare.verdict = Some(Verdict::Park(why));
        } else if top != 0 {
            // What is in a new git directory comes and waits with it.
            let own = (comes != DotGit::Finished).then_some(git);
            whole.insert(top, HeldWorkTree { own, why: by_path(WITH_REPOSITORY, &path.0) });
        }
    }
    if whole.is_empty() && finished.is_empty() {
        return;
    }
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        let part = || node.role == Role::Entry && git_dirs::is_maker(&name_of(node));
        let made = finished.get(&node.parent).filter(|_| part());
        if let Some(why) = made.or_else(|| around(tree, at, &whole)).filter(|_| !waits(node)) {
            tree.nodes[at].rare.verdict = Some(Verdict::Park(why.clone()));
        }
    }
}

/// A working tree of the workspace whose changes wait with its new `.git`.
struct HeldWorkTree {
    /// The new `.git`, with which what is in it comes.
    own: Option<usize>,
    why: String,
}

/// Returns the reason for parking an entry that lies in a held working tree.
fn around<'a>(tree: &LayerTree, at: usize, whole: &'a HashMap<usize, HeldWorkTree>) -> Option<&'a String> {
    let mut below = at;
    while below != 0 {
        let above = tree.nodes[below].parent;
        if let Some(found) = whole.get(&above).filter(|found| found.own != Some(below)) {
            return Some(&found.why);
        }
        below = above;
    }
    None
}

fn by_all(why: &str) -> String {
    format!("{why}: accept it with nexus changes accept --protected")
}

/// Adds the command that accepts `path`. A person pastes it, and the run has chosen the name: it is one word for a
/// shell, and no option. A name that a terminal would not show as it is gets no command.
pub(crate) fn by_path(why: &str, path: &[u8]) -> String {
    let is_shown = |letter: char| letter == ' ' || letter.is_ascii_graphic() || letter.is_alphanumeric();
    let text = str::from_utf8(path).ok().filter(|text| text.chars().all(is_shown));
    let Some(word) = text.and_then(|text| shlex::try_quote(text).ok()) else {
        return format!("{why}: accept or reject it by its path");
    };
    let options_end = if path.starts_with(b"-") { "-- " } else { "" };
    format!("{why}: accept it with nexus changes accept {options_end}{word}")
}

pub(crate) fn is_git(path: &[u8]) -> bool {
    fold(split(path).1).as_ref() == b".git"
}

/// Returns the nearest directory `.git` that an entry lies in.
fn git_directory_above(tree: &LayerTree, at: usize) -> Option<usize> {
    let mut above = at;
    while above != 0 {
        above = tree.nodes[above].parent;
        if is_git(&tree.nodes[above].path.0) {
            return Some(above);
        }
    }
    None
}

/// Tells whether a repository has objects of its own, which that of a further working tree has not.
fn stands_alone(walk: &Walk<'_>, tree: &LayerTree, at: usize, parts: &[usize]) -> Result<bool, IoFailure> {
    if parts.iter().any(|part| name_of(&tree.nodes[*part]) == b"objects") {
        return Ok(true);
    }
    match lower_path(&tree.nodes[at]) {
        Some(base) => has(walk.base, base, b"objects"),
        None => Ok(false),
    }
}

/// Tells which directories of a layer have a repository around them, in the workspace or in the layer itself.
struct Around<'a> {
    walk: &'a Walk<'a>,
    /// The directories that have a `.git` in the layer.
    in_layer: HashSet<usize>,
    known: HashMap<usize, bool>,
}

impl<'a> Around<'a> {
    fn new(walk: &'a Walk<'a>, tree: &LayerTree) -> Self {
        let nodes = tree.nodes.iter().skip(1);
        // What the layer has is not an entry of the workspace alone: it may have been away for one run.
        let in_layer = nodes.filter(|one| one.role == Role::Entry && is_git(&one.path.0)).map(|one| one.parent);
        Self { walk, in_layer: in_layer.collect(), known: HashMap::new() }
    }

    /// Tells whether a repository is around the directory at a node: above it, and not in it.
    fn has(&mut self, tree: &LayerTree, at: usize) -> Result<bool, IoFailure> {
        if let Some(known) = self.known.get(&at) {
            return Ok(*known);
        }
        let (base, mut above, mut found) = (self.walk.base, at, false);
        while above != 0 && !found {
            above = tree.nodes[above].parent;
            let node = &tree.nodes[above];
            // A directory that moves is followed to both places.
            found = self.in_layer.contains(&above) || has(base, &node.path.0, b".git")?;
            if let Some(lower) = lower_path(node).filter(|lower| *lower != &*node.path.0) {
                found |= has(base, lower, b".git")?;
            }
        }
        found = found || is_in_one(base.path())?;
        self.known.insert(at, found);
        Ok(found)
    }
}

/// Tells whether a git directory of the workspace has objects, borrows some, or has an entry in the place of their
/// directory that cannot be listed.
pub(crate) fn has_objects(base: &Workspace, git_dir: &[u8]) -> Result<bool, IoFailure> {
    let place = join(git_dir, b"objects");
    // All objects of a fresh `git clone -s` are those of another repository.
    if has(base, &place, b"info/alternates")? {
        return Ok(true);
    }
    for (at, except) in [(place.clone(), &[&b"info"[..], b"pack"][..]), (join(&place, b"pack"), &[])] {
        let dir = match base.readable_dir(&at) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => continue,
            Err(error) if is_no_way(&error) || is_other_mount(&error) => return Ok(true),
            Err(error) => return Err(error).doing("open", &at),
        };
        if names(dir.as_fd()).doing("list", &at)?.iter().any(|name| !except.contains(&name.as_slice())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tells whether a directory above the workspace is a repository.
pub(crate) fn is_in_one(workspace: &Path) -> Result<bool, IoFailure> {
    for directory in workspace.ancestors().skip(1) {
        let place = directory.join(".git");
        match rustix::fs::lstat(&place) {
            Ok(_) => return Ok(true),
            // git finds none either where this user may not look.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS) => {}
            Err(error) => return Err(error).doing("look at", place.as_os_str().as_bytes()),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_takes_a_path_as_one_word() {
        let told = |path: &str| by_path("why", path.as_bytes());
        assert_eq!(told("src/.git"), "why: accept it with nexus changes accept src/.git");
        assert_eq!(told("--protected"), "why: accept it with nexus changes accept -- --protected");
        assert_eq!(told("a b"), "why: accept it with nexus changes accept 'a b'");
        for hostile in ["src; touch x #", "$(touch x)", "`x`", "it's", "a\"b", "*", "~", "a&b", "a|b", "!x"] {
            let said = told(hostile);
            let word = said.strip_prefix("why: accept it with nexus changes accept ").unwrap();
            assert_eq!(shlex::split(word).unwrap(), [hostile], "{word}");
        }
        for hidden in ["a\nb", "a\u{202e}b", "a\u{1b}[0m", "a\u{200b}b"] {
            assert_eq!(told(hidden), "why: accept or reject it by its path", "{hidden:?}");
        }
        assert_eq!(by_path("why", b"a\xff"), "why: accept or reject it by its path");
    }
}
