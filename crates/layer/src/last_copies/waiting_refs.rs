//! Records the refs, reflogs and reftables that stay in a layer and are the only names of commits of the run.
//!
//! `git stash`, and `git commit` on another branch, move the user's uncommitted changes from the working tree into a git commit, and
//! committing the layer removes them from the workspace. If the ref is held back, no ref in the workspace names that commit:
//!
//! ```text
//!  something goes from the working tree, and a file that names commits stays in the layer
//!      a table of refs, a file that cannot be read ──▶ a last copy, named as unread
//!      it names a commit that no ref of the workspace names after the commit ──▶ a last copy, and the commit is named
//! ```
//!
//! So it is where such a file is kept back after the decision ([`kept`]).
//!
//! A reject keeps what is noted, and names the commits again: their list lies in the layer's directory.

pub(crate) mod kept;

use crate::beneath::{IoFailure, Workspace, join, names, split};
use crate::decide::orphans::note;
use crate::decide::plan::{CommitPlan, State, writes_shared};
use crate::decide::sources::goes;
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Node, Role};
use crate::faults::Faults;
use crate::git::git_rules::Version;
use crate::git::stash::{Holds, NAMED, Stash};
use crate::journal::file::{read, write};
use crate::journal::step::Step;
use crate::last_copies::autostash;
use crate::meta::{EntryType, stat_if_there};
use crate::read::git_dirs;
use nexus_git::commits::{Form, Place, common, named, place};
use nexus_git::git_dir::PACKED;
use nexus_git::reads::Reads;
use nexus_git::refs::inside_git;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// The commits that were named, in the layer's directory.
const STASHES: &str = "stashes.json";

/// Refs of a repository that are looked at. Where there are more, a commit of before may be named.
const MAX_REFS: usize = 10_000;

/// The names of the commits of one repository after the commit.
#[derive(Default)]
struct Refs {
    commits: HashSet<String>,
    names: HashSet<Vec<u8>>,
}

/// Reads files that name commits.
struct Reading<'a> {
    /// The layer and the decisions of a plan that is not carried out yet.
    plan: Option<(&'a LayerTree, &'a [State])>,
    upper: &'a Workspace,
    base: &'a Workspace,
    /// By git directory.
    refs: HashMap<Vec<u8>, Refs>,
}

/// A file that stays in the layer.
struct Waiting<At> {
    form: Form,
    at: At,
    holds: Vec<Stash>,
}

/// Adds a note of each file that stays in the layer, and alone names commits, to the steps of a plan. Returns the commits that are
/// to be named.
pub(crate) fn note_refs(tree: &LayerTree, plan: &mut CommitPlan, upper: &Workspace, base: &Workspace) -> Vec<Stash> {
    let Some(states) = plan.states.as_deref().filter(|states| takes_content(tree, states)) else { return Vec::new() };
    let mut reading = Reading { plan: Some((tree, states)), upper, base, refs: HashMap::new() };
    let mut waiting: Vec<Waiting<usize>> = Vec::new();
    for at in (1..tree.nodes.len()).filter(|at| states[*at] == State::Park) {
        let node = &tree.nodes[at];
        let Some(place) = reading.place(node) else { continue };
        let old = node.covers.as_ref().map(|old| &*old.at.0);
        let holds = reading.holds(&node.path.0, old, &place);
        if !holds.is_empty() {
            waiting.push(Waiting { form: place.form, at, holds });
        }
    }
    // A ref says more of a commit than a log.
    waiting.sort_by_key(|one| (one.form, one.at));
    let notes: Vec<Step> = waiting.iter().map(|one| note(&tree.nodes[one.at])).collect();
    plan.tail.extend(notes);
    to_name(waiting)
}

/// Returns the first few commits that files name, each once.
fn to_name<At>(waiting: Vec<Waiting<At>>) -> Vec<Stash> {
    once(waiting.into_iter().flat_map(|one| one.holds)).take(NAMED).collect()
}

/// Leaves each commit out that was named before.
pub(crate) fn once(all: impl Iterator<Item = Stash>) -> impl Iterator<Item = Stash> {
    let mut seen = HashSet::new();
    let key = |one: &Stash| (one.commit().map(str::to_owned), one.commit().is_none().then(|| one.path.clone()));
    all.filter(move |one| seen.insert(key(one)))
}

/// Reports whether a commit takes content out of a working tree.
fn takes_content(tree: &LayerTree, states: &[State]) -> bool {
    let is_outside = |path: &[u8]| inside_git(path).is_none();
    let takes = |node: &Node| {
        let old = node.covers.as_ref().filter(|_| goes(node) && !node.same_content);
        old.is_some_and(|old| is_outside(&old.at.0) && (old.meta.kind != EntryType::File || old.meta.size > 0))
    };
    let nodes = tree.nodes.iter().zip(states).skip(1);
    let writes = |group| writes_shared(tree, states, group);
    nodes.into_iter().any(|(node, state)| *state == State::Commit && takes(node))
        || tree.groups.iter().any(|group| !group.same && writes(group))
}

impl Reading<'_> {
    /// Returns the place of an entry if it is a file of a git directory that names commits, and is not as it was.
    fn place<'p>(&self, node: &'p Node) -> Option<Place<'p>> {
        let is_changed = node.role == Role::Entry && node.meta.kind == EntryType::File && !node.same_content;
        if is_changed { self.place_of(&node.path.0) } else { None }
    }

    /// Returns the place of a path if it is that of a file of a git directory that names commits.
    fn place_of<'p>(&self, path: &'p [u8]) -> Option<Place<'p>> {
        let place = place(path).filter(|place| !place.is_fetched)?;
        // What cannot be looked at may be a repository.
        let is_git_dir = place.is_certain || git_dirs::is_one(self.base, place.git_dir).unwrap_or(true);
        is_git_dir.then_some(place)
    }

    /// Returns the commits that only the file `path` of the layer names, and not the one of the workspace at `old`.
    fn holds(&mut self, path: &[u8], old: Option<&[u8]>, place: &Place<'_>) -> Vec<Stash> {
        let unread = |path: &[u8]| vec![Stash::new(path, Holds::Unread)];
        if place.form == Form::Table {
            return unread(split(path).0);
        }
        let Some(text) = text(self.upper, path) else { return unread(path) };
        let old = old.and_then(|old| self::text(self.base, old)).unwrap_or_default();
        let mut found = named(&text, &old);
        if place.form == Form::Ref {
            // Its log may come without it, which git does not look into then.
            let log = join(&join(place.git_dir, b"logs"), place.inside);
            let of = |tree| self::text(tree, &log).unwrap_or_default();
            let of_log = named(&of(self.upper), &of(self.base)).commits;
            let is_new = |one: &String| !found.commits.contains(one);
            let more: Vec<String> = of_log.into_iter().filter(is_new).collect();
            found.commits.extend(more);
        }
        let refs = self.refs_of(common(place.git_dir));
        let is_known = found.target.as_ref().is_some_and(|target| refs.names.contains(target));
        let is_unread = found.is_odd || (found.target.is_some() && !is_known && place.form != Form::Head);
        found.commits.retain(|commit| !refs.commits.contains(commit));
        if found.commits.is_empty() && is_unread {
            return unread(path);
        }
        let is_stash = place.inside.ends_with(b"refs/stash");
        let holds = |commit| if is_stash { Holds::Stash(commit) } else { Holds::Commit(commit) };
        let stash = |commit| Stash::new(path, holds(commit));
        found.commits.into_iter().map(stash).collect()
    }

    /// Returns the refs that a repository of the workspace has, and those that come to it.
    fn refs_of(&mut self, git_dir: &[u8]) -> &Refs {
        if !self.refs.contains_key(git_dir) {
            let refs = self.read_refs(git_dir);
            self.refs.insert(git_dir.to_vec(), refs);
        }
        &self.refs[git_dir]
    }

    fn read_refs(&self, git_dir: &[u8]) -> Refs {
        let (mut refs, mut left) = (Refs::default(), MAX_REFS);
        let coming = self.plan.into_iter().flat_map(|(tree, states)| tree.nodes.iter().zip(states));
        for (node, _) in coming.filter(|(_, state)| **state == State::Commit) {
            let Some(place) = self.place(node) else { continue };
            if common(place.git_dir) == git_dir && matches!(place.form, Form::Ref | Form::Packed) && left > 0 {
                left -= 1;
                refs.add(text(self.upper, &node.path.0), place.inside);
            }
        }
        for name in [b"packed-refs".as_slice(), b"HEAD"] {
            refs.add(text(self.base, &join(git_dir, name)), name);
        }
        let mut directories = vec![b"refs".to_vec()];
        while let Some(inside) = directories.pop() {
            let Ok(dir) = self.base.readable_dir(&join(git_dir, &inside)) else { continue };
            for name in names(dir.as_fd()).unwrap_or_default() {
                let path = join(&inside, &name);
                match stat_if_there(dir.as_fd(), &name).ok().flatten().map(|meta| meta.kind) {
                    Some(EntryType::Directory) => directories.push(path),
                    Some(EntryType::File) if left > 0 => {
                        left -= 1;
                        refs.add(text(self.base, &join(git_dir, &path)), &path);
                    }
                    _ => {}
                }
            }
        }
        refs
    }
}

impl Refs {
    fn add(&mut self, text: Option<Vec<u8>>, inside: &[u8]) {
        let Some(text) = text else { return };
        self.commits.extend(named(&text, b"").commits);
        self.names.insert(inside.to_vec());
        self.names.extend(nexus_git::refs::packed(Some(&text)));
    }
}

/// Reads a file; `None` where there is none, or it is too large.
fn text(tree: &Workspace, path: &[u8]) -> Option<Vec<u8>> {
    let (parent, name) = split(path);
    let dir = tree.dir(parent).ok()?;
    match Version::read(dir.as_fd(), name, &Class::GitState(PACKED), &Reads::default()).ok()? {
        Version::Bytes(bytes) => Some(bytes),
        Version::Absent | Version::Unreadable => None,
    }
}

/// Returns the directory with the objects of a commit that was named.
fn objects_of(stash: &Stash) -> Option<Vec<u8>> {
    let path = &stash.path.0;
    let table = join(path, b"table");
    let git_dir = match place(path).or_else(|| place(&table)) {
        _ if autostash::is_named_by(path) => autostash::git_dir(path),
        place => place?.git_dir,
    };
    Some(join(common(git_dir), b"objects"))
}

/// Tells whether an entry of a directory of objects, by its path in there, may be needed to read a commit.
fn is_needed(inside: &[u8], stash: &Stash) -> bool {
    let is_pack = inside.starts_with(b"pack/") && inside.ends_with(b".pack");
    let is_loose = |name: &[u8]| match (stash.commit(), split(name)) {
        (Some(commit), (directory, rest)) => [directory, rest].concat() == commit.as_bytes(),
        (None, (directory, _)) => directory.len() == 2,
    };
    is_pack || is_loose(inside)
}

/// Returns the directory of the layer with objects of a commit that was named, if they wait there.
pub(crate) fn waiting_objects(tree: &LayerTree, states: &[State], stash: &Stash) -> Option<Vec<u8>> {
    let objects = objects_of(stash)?;
    let waits = |(node, state): (&Node, &State)| {
        let inside = node.path.0.strip_prefix(&*objects).and_then(|rest| rest.strip_prefix(b"/"));
        let is_file = node.role == Role::Entry && node.meta.kind == EntryType::File;
        *state == State::Park && is_file && inside.is_some_and(|inside| is_needed(inside, stash))
    };
    tree.nodes.iter().zip(states).any(waits).then_some(objects)
}

/// Returns the directory of a layer with objects of a commit that was named, if they are left there.
pub(crate) fn left_objects(upper: &Workspace, stash: &Stash) -> Option<Vec<u8>> {
    let objects = objects_of(stash)?;
    let dir = upper.readable_dir(&objects).ok()?;
    let is_one = |directory: &[u8]| {
        let inside = upper.readable_dir(&join(&objects, directory)).and_then(|dir| names(dir.as_fd()));
        inside.unwrap_or_default().iter().any(|name| is_needed(&join(directory, name), stash))
    };
    names(dir.as_fd()).ok()?.iter().any(|directory| is_one(directory)).then_some(objects)
}

/// Remembers the commits that a commit of a part of a layer named.
pub(crate) fn remember(root: &Workspace, found: &[Stash], faults: &Faults) -> Result<(), IoFailure> {
    if found.is_empty() {
        return Ok(());
    }
    let mut all = remembered(root);
    all.extend(found.iter().filter(|one| !all.contains(one)).cloned().collect::<Vec<_>>());
    write(root, STASHES, &all, faults)
}

/// Returns the commits that were named. A list that cannot be read names none: the files that name them stay all the same.
pub(crate) fn remembered(root: &Workspace) -> Vec<Stash> {
    read::<Vec<Stash>>(root, STASHES).ok().flatten().unwrap_or_default()
}
