//! Recognizes git directories that are not named `.git` (bare repositories) by their entries, and protects their hooks and
//! configuration like those of `.git`.
//!
//! `git_dirs` lists the entries that make a directory a repository. Several runs may create them, and part of a layer may
//! stay parked, so an entry counts if either the workspace or the layer has it.

use crate::beneath::{Doing as _, IoFailure, Workspace, join, names, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::fold::fold;
use crate::git::bare_links;
use crate::git::branches::ByPath;
use crate::git::git_rules::{GitDirectory, Made, Version, classify as classify_content};
use crate::links::link_ends::TO_BARE;
use crate::meta::EntryType;
use crate::read::git_dirs::{HEAD, class, has, has_entries, is_maker, is_repository, is_there};
use crate::read::walk::{Walk, lower_path};
use nexus_git::git_dir::git_class;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Files of a git directory that are held back by what they say.
const HELD_BY_CONTENT: &[&[u8]] = &[b"config", b"config.worktree", b"commondir", b"packed-refs"];
/// Files and directories of a git directory that are held back where they are new, and that its state may have already.
const STATE: &[&[u8]] = &[
    b"rebase-merge",
    b"rebase-apply",
    b"sequencer",
    b"BISECT_LOG",
    b"BISECT_RUN",
    b"BISECT_START",
    b"MERGE_AUTOSTASH",
    b"info/attributes",
    b"info/grafts",
    b"objects/info/alternates",
    b"objects/info/http-alternates",
    b"shallow",
];
/// Places at which git follows a link.
const NO_LINKS: &[&[u8]] = &[HEAD, b"objects", b"objects/info", b"refs", b"refs/replace", b"info"];
/// The same for directories, as soon as there is something in them.
const STATE_DIRECTORIES: &[&[u8]] = &[b"branches", b"modules", b"refs/replace", b"remotes", b"rr-cache", b"worktrees"];

/// Sets the verdicts of the files of the bare repositories that the layer touches or makes. Returns the directories
/// that become such repositories.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<Vec<usize>, IoFailure> {
    let mut places: HashMap<usize, Place> = HashMap::new();
    for (at, in_layer) in candidates(tree) {
        if let Some(place) = Place::of(walk, tree, at, &in_layer)? {
            places.insert(at, place);
        }
    }
    if places.is_empty() {
        return Ok(Vec::new());
    }
    // The nearest repository around each entry; a directory comes before its entries.
    let by_path = ByPath::default();
    let mut inside: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    for at in 1..tree.nodes.len() {
        let parent = tree.nodes[at].parent;
        inside[at] = if places.contains_key(&parent) { Some(parent) } else { inside[parent] };
        // A repository in the hooks of another one is both.
        let mut around = inside[at];
        while let Some(repository) = around {
            around = inside[repository];
            let is_new = places.get(&repository).is_some_and(|place| !place.was_one);
            // What is held back for another reason stays so.
            if !matches!(tree.nodes[at].rare.verdict, Some(Verdict::Park(_)))
                && let Some(verdict) = verdict(walk, (tree, &by_path), at, repository, is_new)?
            {
                tree.nodes[at].rare.verdict = Some(verdict);
            }
        }
    }
    let is_open = |at: &usize, place: &Place| {
        !place.was_one && !place.has_hidden && walk.rules.class(&tree.nodes[*at].path.0) == Class::Plain
    };
    let new: HashMap<&[u8], usize> =
        places.iter().filter(|(at, place)| is_open(at, place)).map(|(at, _)| (&*tree.nodes[*at].path.0, *at)).collect();
    let leading = bare_links::find(walk, tree, &new)?;
    for at in leading.links {
        tree.nodes[at].rare.verdict = Some(Verdict::Park(TO_BARE.to_owned()));
    }
    for at in leading.repositories {
        places.entry(at).and_modify(|place| place.is_led_to = true);
    }
    for node in tree.nodes.iter_mut().skip(1) {
        let name = fold(split(&node.path.0).1);
        let why = match places.get(&node.parent) {
            Some(place) if place.has_hidden => "makes a git repository of a directory that has hooks or settings",
            Some(place) if place.is_led_to => "makes a git repository where links of the workspace lead, or could lead",
            Some(_) | None => continue,
        };
        if node.role == Role::Entry && node.covers.is_none() && is_maker(&name) {
            node.rare.verdict = Some(Verdict::Park(why.to_owned()));
        }
    }
    let mut new: Vec<usize> = places.iter().filter(|(_, place)| !place.was_one).map(|(at, _)| *at).collect();
    new.sort_unstable();
    Ok(new)
}

/// Entries of a directory in the layer by their folded names, and whether they are there or gone.
type Telling = HashMap<Vec<u8>, bool>;

/// Directories in which the layer has an entry that git would look for, with these entries.
fn candidates(tree: &LayerTree) -> HashMap<usize, Telling> {
    // `.git` is classified by its name; a repository inside of it, as in `.git/refs`, by its entries like any other.
    let is_git = |path: &[u8]| fold(split(path).1).as_ref() == b".git";
    let mut found: HashMap<usize, Telling> = HashMap::new();
    for node in tree.nodes.iter().skip(1) {
        let name = fold(split(&node.path.0).1);
        let is_telling = matches!(name.as_ref(), b"head" | b"refs" | b"reftable")
            || git_class(std::slice::from_ref(&name)) != Class::NoLink;
        if is_telling {
            // Several names may be folded to this one.
            *found.entry(node.parent).or_default().entry(name.into_owned()).or_default() |= node.role == Role::Entry;
        }
    }
    found.retain(|at, _| !is_git(&tree.nodes[*at].path.0));
    found
}

/// A directory that will be a repository.
struct Place {
    was_one: bool,
    /// The workspace has hooks or settings there that a commit would hold back.
    has_hidden: bool,
    /// A link leads there, or could.
    is_led_to: bool,
}

impl Place {
    /// Describes the repository that a directory becomes; `None` when it will not be a repository.
    fn of(walk: &Walk<'_>, tree: &LayerTree, at: usize, in_layer: &Telling) -> Result<Option<Self>, IoFailure> {
        let base = lower_path(&tree.nodes[at]);
        let in_base = |name: &[u8]| base.map_or(Ok(false), |base| is_there(walk.base, &join(base, name)));
        // An entry that the layer takes away may stay after all: held back, rejected, or accepted later.
        let will_be = |name: &[u8]| match in_layer.get(fold(name).as_ref()) {
            Some(true) => Ok(true),
            Some(false) | None => in_base(name),
        };
        if !is_repository(&will_be)? {
            return Ok(None);
        }
        let was_one = is_repository(&in_base)?;
        let mut has_hidden = false;
        if let (Some(base), false) = (base, was_one) {
            // Whatever the layer has at their places: it may be committed in part.
            for name in HELD_BY_CONTENT {
                has_hidden |= is_held(walk, base, name)? || has_names(walk.base, &join(base, name))?;
            }
            for place in NO_LINKS {
                has_hidden |= is_link(walk.base, &join(base, place))?;
            }
            has_hidden |= has_hooks(walk, base)?;
            for place in STATE {
                has_hidden |= is_there(walk.base, &join(base, place))?;
            }
            for place in STATE_DIRECTORIES {
                has_hidden |= has_entries(walk.base, &join(base, place))?;
            }
        }
        Ok(Some(Self { was_one, has_hidden, is_led_to: false }))
    }
}

/// Tells whether a directory of the layer is a git directory before it, and whether it is one with it. What the layer
/// takes away may stay after all. `in_layer` are its entries in the layer by their folded names.
pub(crate) fn before_and_after(
    walk: &Walk<'_>,
    node: &Node,
    in_layer: &HashSet<Vec<u8>>,
) -> Result<(bool, bool), IoFailure> {
    let in_base = |name: &[u8]| lower_path(node).map_or(Ok(false), |base| has(walk.base, base, name));
    let will_be = |name: &[u8]| Ok(in_layer.contains(fold(name).as_ref()) || in_base(name)?);
    Ok((is_repository(&in_base)?, is_repository(&will_be)?))
}

/// Reports whether a file has further names, by which it could be written.
fn has_names(tree: &Workspace, path: &[u8]) -> Result<bool, IoFailure> {
    let found = tree.stat(path).doing("look at", path)?;
    Ok(found.is_some_and(|meta| meta.kind == EntryType::File && meta.links > 1))
}

fn is_link(tree: &Workspace, path: &[u8]) -> Result<bool, IoFailure> {
    Ok(tree.stat(path).doing("look at", path)?.is_some_and(|meta| meta.kind == EntryType::Symlink))
}

/// Reports whether the workspace has hooks in `repository` that would be held back if they came now.
fn has_hooks(walk: &Walk<'_>, repository: &[u8]) -> Result<bool, IoFailure> {
    let hooks = join(repository, b"hooks");
    match walk.base.stat(&hooks).doing("look at", &hooks)?.map(|meta| meta.kind) {
        None | Some(EntryType::File) => return Ok(false),
        Some(EntryType::Directory) => {}
        // git follows a link.
        Some(_) => return Ok(true),
    }
    let dir = walk.base.readable_dir(&hooks).doing("open", &hooks)?;
    for name in names(dir.as_fd()).doing("list", &hooks)? {
        if is_held(walk, repository, &join(b"hooks", &name))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reports whether a file that the workspace has already would be held back if it came now.
fn is_held(walk: &Walk<'_>, repository: &[u8], name: &[u8]) -> Result<bool, IoFailure> {
    let path = join(repository, name);
    if !is_there(walk.base, &path)? {
        return Ok(false);
    }
    let class = class(&path, repository);
    let content = walk.version(walk.base, &path, &class)?;
    let verdict =
        classify_content(walk.rules, &class, &path, &content, &Version::Absent, GitDirectory::New(Made::ALONE));
    Ok(verdict != Verdict::Commit)
}

/// Returns the verdict for an entry as a part of a repository. `is_new`: the repository is one only with this layer.
fn verdict(
    walk: &Walk<'_>,
    (tree, by_path): (&LayerTree, &ByPath),
    at: usize,
    repository: usize,
    is_new: bool,
) -> Result<Option<Verdict>, IoFailure> {
    let node: &Node = &tree.nodes[at];
    let park = |why: &str| Ok(Some(Verdict::Park(why.to_owned())));
    let is_dir = node.role == Role::Entry && node.meta.kind == EntryType::Directory;
    let class = class(&node.path.0, &tree.nodes[repository].path.0);
    match &class {
        Class::GitState(why) if is_dir => park(why),
        Class::GitHook | Class::MustBeDirectory if is_dir && matches!(node.rare.lower, Lower::Moved(_)) => {
            park("a directory that becomes a part of git's")
        }
        _ if is_dir => Ok(None),
        Class::NoLink | Class::MustBeDirectory if node.role == Role::Entry && node.meta.kind == EntryType::Symlink => {
            park("a link to git's private directories")
        }
        Class::NoLink => {
            let inside = node.path.0.strip_prefix(&*tree.nodes[repository].path.0).unwrap_or(&node.path.0);
            walk.holds_ref(tree, at, inside)?.map_or(Ok(None), park)
        }
        Class::MustBeDirectory | Class::Plain | Class::Listed(_) | Class::GitRoot => Ok(None),
        Class::GitConfig | Class::GitHook | Class::GitCommonDir | Class::GitState(_) => {
            let is_new = is_new || lower_path(&tree.nodes[node.parent]).is_none();
            walk.classify_by(&class, (tree, by_path), at, is_new).map(Some)
        }
    }
}
