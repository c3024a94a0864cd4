//! Holds back refs, reflogs and indexes of git that do not read as git writes them, with all that is beside them.
//!
//! A program that rewrites all files of a directory (`sed -i`, a change of line ends, `truncate`) rewrites those of git.
//! Its objects stay (`git_objects`), but no name would lead to them any more:
//!
//! ```text
//!  HEAD, refs/…      an object id of the repository's length, or `ref: refs/…`; the object is in the workspace or in the layer
//!  packed-refs       each line is a header, a ref or a peeled id; in order, where the header says so
//!  logs/…            each new line is an entry, and its object is there
//!  MERGE_HEAD, …    ids of objects that are there; ORIG_HEAD and FETCH_HEAD may name what is gone
//!  index             has its magic, its checksum or zeros, and its names in order
//!  new commits       their trees, files and parents are in the workspace or in the layer, and branches name commits ([`needs`])
//!        │
//!        └─ one of them does not ──▶ HEAD, index, refs, logs and further working trees of the git directory wait as one
//! ```
//!
//! So they do where the layer takes the branch of `HEAD` or the log of `HEAD` ([`lost`]): no name may lead to the user's
//! commits any more.
//!
//! A part of them is of no use: a branch of before with a damaged index, or the reflogs of branches that stayed.

mod lost;
mod needs;
mod objects;

use self::needs::{Named, Wrong};
use self::objects::{Objects, Trees};
use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace, join, split};
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{LayerTree, Node, Role, Verdict, lower_path};
use crate::fold::fold;
use crate::git::git_rules::Version;
use crate::git::halves::would_commit;
use crate::git::nested::{by_path, has_objects};
use crate::git::replaced::{GitDir, accepts_whole};
use crate::meta::EntryType;
use crate::read::git_dirs;
use crate::read::walk::Walk;
use nexus_git::forms::{self, Value};
use nexus_git::git_dir::PACKED;
use nexus_git::index::damage::is_damaged;
use nexus_git::index::ids::new_ids;
use nexus_git::index::lengths::lengths_by as id_lengths;
use nexus_git::packs::index_file::OpenFiles;
use nexus_git::reads::Reads;
use nexus_git::small::read_small;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd as _, BorrowedFd};

/// Entries of a git directory that wait together.
const TOGETHER: &[&[u8]] = &[
    b"head",
    b"index",
    b"packed-refs",
    b"refs",
    b"reftable",
    b"logs",
    b"worktrees",
    b"orig_head",
    b"merge_head",
    b"cherry_pick_head",
    b"revert_head",
    b"rebase_head",
    b"fetch_head",
];

/// Parks the names and the index of each repository of which a layer damages one.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut reading = Reading {
        walk,
        tree,
        reads: Reads::default(),
        files: OpenFiles::default(),
        tops: HashMap::new(),
        repositories: HashMap::new(),
        named: BTreeMap::new(),
        longer_logs: Vec::new(),
    };
    let mut found: HashMap<usize, Held> = HashMap::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let is_changed = node.role == Role::Entry && node.meta.kind == EntryType::File && !node.same_content;
        if !is_changed || node.rare.verdict == Some(Verdict::LeaveOut) {
            continue;
        }
        if let Some((top, form)) = reading.place(at)?
            && found.get(&top).is_none_or(|held| held.may_come)
            && let Some(flaw) = reading.flaw((at, node), top, form)?
            && (flaw == Flaw::Missing || !found.contains_key(&top))
        {
            let cause = format!("{} {}", String::from_utf8_lossy(&node.path.0), flaw.in_words());
            found.insert(top, Held::new(&cause, flaw == Flaw::Form, &tree.nodes[top].path.0));
        }
    }
    for (top, named) in std::mem::take(&mut reading.named) {
        if found.get(&top).is_none_or(|held| held.may_come)
            && let Some(wrong) = needs::wrong(reading.trees(top), &named)?
        {
            found.insert(top, Held::new(wrong.in_words(), wrong == Wrong::Branch, &tree.nodes[top].path.0));
        }
    }
    let by_path = tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
    for at in reading.tops_with_names()? {
        let Some(base) = lower_path(&tree.nodes[at]).filter(|_| !found.contains_key(&at)) else { continue };
        if let Some(loss) = lost::lost(&GitDir { walk, tree, by_path: &by_path, at, base })? {
            found.insert(at, Held::new(&loss, true, &tree.nodes[at].path.0));
        }
    }
    for at in reading.longer_logs {
        tree.nodes[at].rare.refreshed = true;
    }
    if !found.is_empty() {
        hold(walk.rules, tree, &found);
    }
    Ok(())
}

/// The flaw of a file of a git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Form,
    Missing,
}

impl Flaw {
    fn in_words(self) -> &'static str {
        match self {
            Self::Form => "is not as git writes it",
            Self::Missing => "names git objects that are neither here nor in the run",
        }
    }

    fn of_form(is_damaged: bool) -> Option<Self> {
        is_damaged.then_some(Self::Form)
    }
}

/// The reason for which the names and the index of a git directory wait.
struct Held {
    why: String,
    /// A user who accepts the git directory as a whole gets them all the same. Refs that lead to nothing come by no means.
    may_come: bool,
}

impl Held {
    fn new(cause: &str, may_come: bool, git_dir: &[u8]) -> Self {
        let why = format!("HEAD, the index, the refs and their logs wait together, as {cause}");
        let place = if git_dir.is_empty() { &b"."[..] } else { git_dir };
        Self { why: if may_come { by_path(&why, place) } else { format!("{why}: {FETCH}") }, may_come }
    }
}

/// Advice about refs that lead to nothing.
const FETCH: &str = "git fetch may bring the objects, or reject the paths that name them";

/// A file of a git directory that git reads strictly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `HEAD`, or a ref below `refs`.
    Ref,
    /// A commit that is being picked.
    Picked,
    /// A commit of before, which `git gc` may have removed.
    Former,
    /// The commits that are being merged, one in each line.
    Merged,
    /// The commits of the last fetch, which `git gc` may have removed.
    Fetched,
    Packed,
    Log,
    Index,
}

/// Returns the form of the file with these folded names in a git directory.
fn form(names: &[&[u8]]) -> Option<Form> {
    match names {
        [b"head"] => Some(Form::Ref),
        [b"cherry_pick_head" | b"revert_head"] => Some(Form::Picked),
        [b"orig_head" | b"rebase_head"] => Some(Form::Former),
        [b"merge_head"] => Some(Form::Merged),
        [b"fetch_head"] => Some(Form::Fetched),
        [b"packed-refs"] => Some(Form::Packed),
        [b"index"] => Some(Form::Index),
        // A repository with tables has a file in the place of the branches.
        [b"refs", b"heads"] => None,
        [b"refs", below @ .., last] if !is_other(below, last) => Some(Form::Ref),
        [b"logs", b"head"] => Some(Form::Log),
        [b"logs", b"refs", below @ .., last] if !is_other(below, last) => Some(Form::Log),
        _ => None,
    }
}

/// Reports whether a file below `refs` or `logs` is not a ref: a lock that a program left, or a file of the system.
fn is_other(below: &[&[u8]], last: &[u8]) -> bool {
    last.ends_with(b".lock") || below.iter().chain([&last]).any(|name| name.starts_with(b"."))
}

/// A repository of the workspace.
struct Repository {
    /// Bytes of an object id.
    lengths: Vec<usize>,
    objects: Objects,
}

/// Reads the files of git directories.
struct Reading<'a> {
    walk: &'a Walk<'a>,
    tree: &'a LayerTree,
    reads: Reads,
    /// The indexes of packs that may stay open.
    files: OpenFiles,
    /// By directory: the git directory with the refs, if it is one of the workspace with objects.
    tops: HashMap<usize, Option<usize>>,
    /// By git directory.
    repositories: HashMap<usize, Repository>,
    /// By git directory: the objects that its new files name.
    named: BTreeMap<usize, Named>,
    /// Logs that begin with all that the workspace has: a `git gc` of the host that wrote those again makes no conflict.
    longer_logs: Vec<usize>,
}

impl Reading<'_> {
    /// Returns the trees with a git directory, and its path in each: the layer's and the workspace's.
    fn trees(&self, top: usize) -> Trees<'_> {
        let node = &self.tree.nodes[top];
        [(self.walk.upper, &*node.path.0), (self.walk.base, lower_path(node).unwrap_or_default())]
    }

    /// Returns the git directory that an entry belongs to, and the form of the file.
    fn place(&mut self, at: usize) -> Result<Option<(usize, Form)>, IoFailure> {
        let path = self.tree.nodes[at].path.clone();
        let names: Vec<_> = path.0.split(|byte| *byte == b'/').map(fold).collect();
        let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
        for begin in 0..names.len() {
            let Some(form) = form(&names[begin..]) else { continue };
            let directory = (begin..names.len()).fold(at, |at, _| self.tree.nodes[at].parent);
            if let Some(top) = self.top(directory)? {
                return Ok(Some((top, form)));
            }
        }
        Ok(None)
    }

    /// Returns the git directories of which the layer has or takes a name of commits.
    fn tops_with_names(&mut self) -> Result<BTreeSet<usize>, IoFailure> {
        let mut found = BTreeSet::new();
        for at in 1..self.tree.nodes.len() {
            let node = &self.tree.nodes[at];
            let parent = node.parent;
            if lost::is_name(split(&node.path.0).1) && self.top(parent)? == Some(parent) {
                found.insert(parent);
            }
        }
        Ok(found)
    }

    /// Returns the git directory with the refs of a directory, which may be that of a further working tree.
    fn top(&mut self, directory: usize) -> Result<Option<usize>, IoFailure> {
        if let Some(known) = self.tops.get(&directory) {
            return Ok(*known);
        }
        let parent = self.tree.nodes[directory].parent;
        let mut found = self.is_repository(directory)?.then_some(directory);
        if found.is_none() && fold(split(&self.tree.nodes[parent].path.0).1).as_ref() == b"worktrees" {
            let around = self.tree.nodes[parent].parent;
            found = self.is_repository(around)?.then_some(around);
        }
        self.tops.insert(directory, found);
        Ok(found)
    }

    fn is_repository(&self, directory: usize) -> Result<bool, IoFailure> {
        let Some(base) = lower_path(&self.tree.nodes[directory]) else { return Ok(false) };
        Ok(git_dirs::is_one(self.walk.base, base)? && has_objects(self.walk.base, base)?)
    }

    /// Returns what is wrong with a file, and notes the objects that it names.
    fn flaw(&mut self, (at, node): (usize, &Node), top: usize, form: Form) -> Result<Option<Flaw>, IoFailure> {
        let (parent, name) = split(&node.path.0);
        let dir = self.walk.upper.dir(parent).doing("open", parent)?;
        let node_of_top = &self.tree.nodes[top];
        let trees =
            [(self.walk.upper, &*node_of_top.path.0), (self.walk.base, lower_path(node_of_top).unwrap_or_default())];
        let repository = match self.repositories.entry(top) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let lengths = lengths(self.walk.base, trees[1].1)?;
                new.insert(Repository { lengths, objects: Objects::of(trees, &self.files) })
            }
        };
        let lengths = &*repository.lengths;
        if form == Form::Index {
            let is_damaged = is_damaged(dir.as_fd(), name, lengths, &self.reads).doing("read", &node.path.0)?;
            if let (false, [length]) = (is_damaged, lengths) {
                let read = |dir: BorrowedFd<'_>, name: &[u8]| {
                    Version::read(dir, name, &Class::GitState(PACKED), &Reads::default())
                };
                let new = read(dir.as_fd(), name).doing("read", &node.path.0)?;
                let old = old(self.walk.base, &Reads::default(), node)?;
                if let Version::Bytes(new) = new {
                    self.named.entry(top).or_default().files.extend(new_ids(&new, &old, *length));
                }
            }
            return Ok(Flaw::of_form(is_damaged));
        }
        let class = Class::GitState(PACKED);
        let Version::Bytes(new) = Version::read(dir.as_fd(), name, &class, &self.reads).doing("read", &node.path.0)?
        else {
            return Ok(Some(Flaw::Form));
        };
        let old = old(self.walk.base, &self.reads, node)?;
        if form == Form::Log && old.ends_with(b"\n") && new.starts_with(&old) {
            self.longer_logs.push(at);
        }
        let ids = match form {
            Form::Ref => match forms::value(&new, lengths) {
                Some(Value::Symbolic) => Some(Vec::new()),
                Some(Value::Id(id)) => Some(vec![id]),
                None => None,
            },
            Form::Picked | Form::Former => match forms::value(&new, lengths) {
                Some(Value::Id(id)) => Some(if form == Form::Picked { vec![id] } else { Vec::new() }),
                Some(Value::Symbolic) | None => None,
            },
            Form::Merged => forms::merged(&new, lengths),
            Form::Fetched => forms::is_fetched(&new, &old, lengths).then(Vec::new),
            Form::Packed => forms::packed(&new, &old, lengths),
            Form::Log => forms::log(&new, &old, lengths),
            Form::Index => Some(Vec::new()),
        };
        let Some(ids) = ids else { return Ok(Some(Flaw::Form)) };
        if !ids.iter().all(|id| repository.objects.has(trees, id)) {
            return Ok(Some(Flaw::Missing));
        }
        // What waits with another reason needs nothing yet.
        if matches!(node.rare.verdict, Some(Verdict::Park(_))) && !would_commit(self.walk.rules, node) {
            return Ok(None);
        }
        let named = self.named.entry(top).or_default();
        named.all.extend(ids.iter().map(|id| id.to_vec()));
        if form == Form::Ref && needs::names_branch(&node.path.0) {
            named.branches.extend(ids.iter().map(|id| id.to_vec()));
        }
        Ok(None)
    }
}

/// Returns the text of the file of the workspace in whose place a file comes; none of one that cannot be read.
fn old(base: &Workspace, reads: &Reads, node: &Node) -> Result<Vec<u8>, IoFailure> {
    let Some(old) = node.covers.as_ref().filter(|old| old.meta.kind == EntryType::File) else {
        return Ok(Vec::new());
    };
    let (parent, name) = split(&old.at.0);
    let dir = base.dir(parent).doing("open", parent)?;
    match Version::read(dir.as_fd(), name, &Class::GitState(PACKED), reads).doing("read", &old.at.0)? {
        Version::Bytes(text) => Ok(text),
        Version::Absent | Version::Unreadable => Ok(Vec::new()),
    }
}

/// Returns the bytes that an object id has in a repository of the workspace.
fn lengths(base: &Workspace, git_dir: &[u8]) -> Result<Vec<usize>, IoFailure> {
    match base.dir(git_dir).and_then(|dir| read_small(dir.as_fd(), b"config")) {
        Ok(text) => Ok(id_lengths(text.as_deref().unwrap_or_default())),
        Err(error) if is_no_way(&error) => Ok(id_lengths(b"")),
        Err(error) => Err(error).doing("read", &join(git_dir, b"config")),
    }
}

/// Holds back what waits together. What may come does so where the user accepts the git directory as a whole.
fn hold(rules: &Rules, tree: &mut LayerTree, found: &HashMap<usize, Held>) {
    let mut tops: Vec<Option<usize>> = vec![found.contains_key(&0).then_some(0)];
    for at in 1..tree.nodes.len() {
        let top = if found.contains_key(&at) { Some(at) } else { tops[tree.nodes[at].parent] };
        tops.push(top);
        let Some((top, held)) = top.and_then(|top| Some((top, found.get(&top)?))) else { continue };
        let (path, git_dir) = (tree.nodes[at].path.clone(), tree.nodes[top].path.clone());
        let inside = &path.0[git_dir.0.len()..];
        let first = inside.split(|byte| *byte == b'/').find(|name| !name.is_empty()).map(fold);
        let is_one = first.is_some_and(|first| TOGETHER.contains(&first.as_ref()));
        let rare = &mut tree.nodes[at].rare;
        if is_one && rare.verdict != Some(Verdict::LeaveOut) && !(held.may_come && accepts_whole(rules, &git_dir.0)) {
            rare.verdict = Some(Verdict::Park(held.why.clone()));
            rare.in_unit = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_git_reads_strictly_are_known() {
        let of = |path: &str| form(&path.split('/').map(str::as_bytes).collect::<Vec<_>>());
        for (path, wanted) in [
            ("head", Some(Form::Ref)),
            ("refs/heads/x", Some(Form::Ref)),
            ("refs/stash", Some(Form::Ref)),
            ("packed-refs", Some(Form::Packed)),
            ("logs/head", Some(Form::Log)),
            ("logs/refs/heads/x", Some(Form::Log)),
            ("index", Some(Form::Index)),
            ("refs/heads", None),
            ("refs/heads/x.lock", None),
            ("refs/heads/.ds_store", None),
            ("logs/x", None),
            ("orig_head", Some(Form::Former)),
            ("revert_head", Some(Form::Picked)),
            ("merge_head", Some(Form::Merged)),
            ("fetch_head", Some(Form::Fetched)),
            ("merge_msg", None),
            ("config", None),
        ] {
            assert_eq!(of(path), wanted, "{path}");
        }
    }
}
