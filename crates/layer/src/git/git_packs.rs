//! Verifies the objects that a run adds to a repository of the workspace.
//!
//! git believes the index of a pack: it reads what lies at the offset that the index has for an id, and does not hash it.
//! It reads loose files and trees in the same way. A run that adds an object under an id that the workspace has, or that a
//! later fetch would bring, gives the user's own commits another content. So the content of each new object is compared
//! with its id:
//!
//! ```text
//!  new pack ──▶ all ids known? ──yes──▶ left out: it brings nothing, and the objects of the workspace stay
//!                    └─no─▶ each object inflated and hashed ──fits──▶ comes
//!                                            └─ differs, or is too large ─▶ waits, with HEAD, refs and index
//! ```
//!
//! Files that git makes again (`.rev`, `.bitmap`) are left out, as multi-pack indexes are ([`crate::git::graphs`]).
//! A repository that is new as a whole is not verified: the user has no commit there. A directory of objects from which repositories
//! borrow (`nexus_git::packs::store`) is treated like a repository.

use crate::beneath::{Doing as _, IoFailure, Workspace, join, split};
use crate::entries::protected::Rules;
use crate::entries::tree::{LayerTree, Node, Role, Verdict, lower_path};
use crate::fold::fold;
use crate::meta::EntryType;
use nexus_git::objects::has_shape;
use nexus_git::packs::digits::bytes;
use nexus_git::packs::inflate::Inflater;
use nexus_git::packs::known::{Known, index, open};
use nexus_git::packs::object_id::Format;
use nexus_git::packs::problem::{Bound, Budget, Problem};
use nexus_git::packs::{loose, pack, store};
use nexus_git::refs::inside_git;
use std::collections::{BTreeMap, HashMap, HashSet};

const FORGED: &str = "a git object with another content than its id says (git fsck names it)";
const DAMAGED: &str = "a git object or pack that cannot be verified (see git fsck)";
const APART: &str = "a git pack and its index that belong together and do not come together";
/// Says why the references of a repository wait.
const NEEDS: &str = "may need git objects that wait";

/// The end of the name of a file of a pack.
const PACK: &[u8] = b".pack";
const INDEX: &[u8] = b".idx";
/// The same of files that git makes again from these two.
const CACHES: &[&[u8]] = &[b".rev", b".bitmap"];
/// The same of files that say something about a pack.
const NOTES: &[&[u8]] = &[b".mtimes", b".promisor"];

/// The trees and rules of a layer that is read.
pub(crate) struct Reading<'a> {
    pub(crate) upper: &'a Workspace,
    pub(crate) base: &'a Workspace,
    pub(crate) rules: &'a Rules,
    /// Tells whether a directory of the workspace is a repository by its entries.
    pub(crate) is_bare: &'a dyn Fn(&[u8]) -> Result<bool, IoFailure>,
    /// Returns the bytes that a configuration allows for an object id.
    pub(crate) id_lengths: fn(&[u8]) -> Vec<usize>,
    /// Reports whether the rules bring an entry.
    pub(crate) comes: fn(&Rules, &Node) -> bool,
}

/// The files of one pack: the ends of their names, and their nodes.
type Files = Vec<(Vec<u8>, usize)>;

/// The new files of a repository's objects, as indexes of nodes.
#[derive(Default)]
struct New {
    /// Loose objects with their ids.
    loose: Vec<(usize, Vec<u8>)>,
    /// The files of packs, by their directory and name.
    packs: BTreeMap<(usize, Vec<u8>), Files>,
}

/// Leaves out what adds no object, and holds back what does not fit its id, with the references of its repository.
pub(crate) fn hold_back(reading: &Reading<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut all: BTreeMap<Owner, New> = BTreeMap::new();
    let mut known: HashMap<usize, Option<Owner>> = HashMap::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let is_compared = matches!(node.rare.verdict, Some(Verdict::Park(_) | Verdict::LeaveOut));
        if node.role != Role::Entry || node.meta.kind != EntryType::File || node.covers.is_some() || is_compared {
            continue;
        }
        let Some(place) = Place::of(&node.path.0) else { continue };
        let objects = tree.nodes[node.parent].parent;
        let owner = match known.get(&objects) {
            Some(owner) => *owner,
            None => owner(reading, tree, objects, place.digits())?,
        };
        known.insert(objects, owner);
        // Only files of git have such names in a directory of any name.
        if let Some(owner) = owner.filter(|owner| matches!(owner, Owner::Repository(_)) || place.is_exact) {
            let new = all.entry(owner).or_default();
            match place.file {
                OfObjects::Loose(id) => new.loose.push((at, id)),
                OfObjects::Pack { stem, end } => new.packs.entry((node.parent, stem)).or_default().push((end, at)),
            }
        }
    }
    let budget = Budget::default();
    let mut incomplete = HashSet::new();
    for (owner, new) in all {
        let known = match owner {
            Owner::Repository(at) => match lower_path(&tree.nodes[at]) {
                Some(git_dir) => Known::of(reading.base, git_dir, reading.id_lengths)?,
                None => continue,
            },
            Owner::Store(at, format) => match lower_path(&tree.nodes[at]) {
                Some(objects) => Known::of_store(reading.base, objects, format),
                None => continue,
            },
        };
        let verdicts = verdicts(reading, tree, known, &new, &budget)?;
        for (at, verdict) in verdicts {
            tree.nodes[at].rare.verdict = Some(verdict);
        }
        // Also what waits for its bits or attributes, or was not chosen, is missing.
        let files = new.packs.values().flatten().map(|(_, at)| *at).chain(new.loose.iter().map(|(at, _)| *at));
        let is_missing = |at: usize| {
            let node = &tree.nodes[at];
            node.rare.verdict != Some(Verdict::LeaveOut) && !(reading.comes)(reading.rules, node)
        };
        if let Owner::Repository(repository) = owner
            && files.into_iter().any(is_missing)
        {
            incomplete.insert(repository);
        }
    }
    hold_references(tree, &incomplete);
    Ok(())
}

/// Parks what may name an object that waits: everything of a repository but its objects.
fn hold_references(tree: &mut LayerTree, incomplete: &HashSet<usize>) {
    if incomplete.is_empty() {
        return;
    }
    // A directory comes before what is in it.
    let mut inside = vec![false; tree.nodes.len()];
    for at in 1..tree.nodes.len() {
        let parent = tree.nodes[at].parent;
        let is_objects = || fold(split(&tree.nodes[at].path.0).1).as_ref() == b"objects";
        inside[at] = inside[parent] || (incomplete.contains(&parent) && !is_objects());
        let node = &mut tree.nodes[at];
        let is_directory = node.role == Role::Entry && node.meta.kind == EntryType::Directory;
        if inside[at] && !is_directory && !matches!(node.rare.verdict, Some(Verdict::Park(_) | Verdict::LeaveOut)) {
            node.rare.verdict = Some(Verdict::Park(NEEDS.to_owned()));
        }
    }
}

/// Tells whether a directory of the layer is a repository that the workspace has.
fn is_of_workspace(reading: &Reading<'_>, directory: &Node) -> Result<bool, IoFailure> {
    let Some(base) = lower_path(directory) else { return Ok(false) };
    Ok(inside_git(&join(&directory.path.0, b"objects")).is_some() || (reading.is_bare)(base)?)
}

/// The owner of objects in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The git directory at a node.
    Repository(usize),
    /// The directory of objects at a node itself, from which repositories may borrow.
    Store(usize, Format),
}

/// Returns the owner of the objects in the directory at a node. `digits` are those of the id of a new one.
fn owner(reading: &Reading<'_>, tree: &LayerTree, objects: usize, digits: usize) -> Result<Option<Owner>, IoFailure> {
    let node = &tree.nodes[objects];
    if is_objects(&node.path.0) && is_of_workspace(reading, &tree.nodes[node.parent])? {
        return Ok(Some(Owner::Repository(node.parent)));
    }
    let Some(base) = lower_path(node) else { return Ok(None) };
    Ok(store::format(reading.base, base, digits)?.map(|format| Owner::Store(objects, format)))
}

fn is_objects(path: &[u8]) -> bool {
    fold(split(path).1).as_ref() == b"objects"
}

/// The place of a file among the objects of a repository.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    file: OfObjects,
    /// Only git gives a file such a name.
    is_exact: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum OfObjects {
    Loose(Vec<u8>),
    /// A file of a pack: its name up to the end that says what it is, and this end.
    Pack {
        stem: Vec<u8>,
        end: Vec<u8>,
    },
}

impl Place {
    /// Returns the number of digits of the object's id, or of the checksum in the name of a pack.
    fn digits(&self) -> usize {
        match &self.file {
            OfObjects::Loose(id) => id.len() * 2,
            OfObjects::Pack { stem, .. } => stem.strip_prefix(b"pack-").unwrap_or(stem).len(),
        }
    }

    fn of(path: &[u8]) -> Option<Self> {
        let (parent, name) = split(path);
        let (above, directory) = split(parent);
        let directory = fold(directory);
        let is_exact = has_shape(&[&directory, &fold(name)]);
        if !is_exact && !is_objects(above) {
            return None;
        }
        if directory.as_ref() == b"pack" {
            let end = name.iter().rposition(|byte| *byte == b'.')?;
            let file = OfObjects::Pack { stem: name[..end].to_vec(), end: fold(&name[end..]).into_owned() };
            return Some(Self { file, is_exact });
        }
        let is_id = directory.len() == 2 && matches!(name.len(), 38 | 62);
        let id = is_id.then(|| bytes(&[&directory, &fold(name)[..]].concat())).flatten()?;
        Some(Self { file: OfObjects::Loose(id), is_exact })
    }
}

/// Returns what becomes of the new files of a repository's objects.
fn verdicts(
    reading: &Reading<'_>,
    tree: &LayerTree,
    mut known: Known<'_>,
    new: &New,
    budget: &Budget,
) -> Result<Vec<(usize, Verdict)>, IoFailure> {
    let mut found = Vec::new();
    let wait = |why: &str| Verdict::Park(why.to_owned());
    for ((directory, stem), files) in &new.packs {
        let content = match known.format {
            Some(format) => content_of(reading, tree, &mut known, format, (*directory, stem, files), budget)?,
            None => Content::Waits(DAMAGED),
        };
        for (end, at) in files {
            let is_shared = tree.nodes[*at].group().is_some();
            let is_cache = CACHES.contains(&&end[..]);
            let is_note = NOTES.contains(&&end[..]);
            let verdict = match content {
                // A file with a second name in the layer cannot be left out, and nothing compared it.
                _ if is_shared && (is_cache || is_note) => wait(DAMAGED),
                Content::Known if is_shared && (end == PACK || end == INDEX) => wait(DAMAGED),
                _ if is_cache && !is_shared => Verdict::LeaveOut,
                Content::Known if !is_shared => Verdict::LeaveOut,
                Content::None if is_note && !is_shared => Verdict::LeaveOut,
                Content::Waits(why) if is_cache || is_note || end == PACK || end == INDEX => wait(why),
                Content::Waits(_) | Content::Known | Content::None | Content::New => continue,
            };
            found.push((*at, verdict));
        }
    }
    let mut inflater = Inflater::new(budget);
    for (at, id) in &new.loose {
        let node = &tree.nodes[*at];
        let verdict = match known.format {
            Some(format) if id.len() == format.id_length() => {
                if node.group().is_none() && known.is_packed(id)? {
                    Some(Verdict::LeaveOut)
                } else {
                    let path = &node.path.0;
                    budget.begin();
                    why(&verify_loose(reading, path, (format, id), &mut inflater), path)?.map(wait)
                }
            }
            // git looks for no object by such a name.
            Some(_) => None,
            None => Some(wait(DAMAGED)),
        };
        found.extend(verdict.map(|verdict| (*at, verdict)));
    }
    Ok(found)
}

/// The new content of a pack.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// Objects that fit their ids.
    New,
    /// Objects that the workspace has.
    Known,
    /// No pack and no index: other files beside a pack.
    None,
    Waits(&'static str),
}

/// Verifies one pack.
fn content_of(
    reading: &Reading<'_>,
    tree: &LayerTree,
    known: &mut Known<'_>,
    format: Format,
    (directory, stem, files): (usize, &[u8], &Files),
    budget: &Budget,
) -> Result<Content, IoFailure> {
    // git reads the file with the usual spelling, so that no other one may stand for it.
    let is_odd = |(at, (end, node)): (usize, &(Vec<u8>, usize))| {
        !tree.nodes[*node].path.0.ends_with(end) || files[..at].iter().any(|(other, _)| other == end)
    };
    if files.iter().enumerate().any(is_odd) {
        return Ok(Content::Waits(DAMAGED));
    }
    let file = |end: &[u8]| files.iter().find(|(one, _)| one == end).map(|(_, at)| &*tree.nodes[*at].path.0);
    let of_base = |end: &[u8]| {
        let base = lower_path(&tree.nodes[directory]);
        base.map_or(Ok(None), |base| open(reading.base, &join(base, &[stem, end].concat())))
    };
    let (index_path, pack) = match (file(INDEX), file(PACK)) {
        (Some(index), Some(pack)) => (index, open(reading.upper, pack)?),
        (Some(index), None) => (index, of_base(PACK)?),
        (None, Some(_)) if of_base(INDEX)?.is_some() => return Ok(Content::Waits(APART)),
        // git does not read a pack without an index, and a later run has to bring the index.
        (None, Some(_)) => return Ok(Content::New),
        (None, None) => return Ok(Content::None),
    };
    let Some(pack) = pack else { return Ok(Content::Waits(APART)) };
    let Some(file) = open(reading.upper, index_path)? else { return Ok(Content::Waits(DAMAGED)) };
    let index = match index(file, format, index_path)? {
        Ok(Some(index)) => index,
        Ok(None) => return Ok(Content::Waits(DAMAGED)),
        Err(bound) => return Ok(Content::Waits(exceeds(bound))),
    };
    budget.begin();
    let mut is_known = true;
    for at in 0..index.count() {
        is_known = known.is_packed(index.id(at))? || known.is_loose(index.id(at))?;
        if !is_known {
            break;
        }
    }
    if is_known {
        return Ok(Content::Known);
    }
    let length = pack.metadata().doing("look at", index_path)?.len();
    Ok(why(&pack::verify(&pack, length, &index, budget), index_path)?.map_or(Content::New, Content::Waits))
}

fn verify_loose(
    reading: &Reading<'_>,
    path: &[u8],
    id: (Format, &[u8]),
    inflater: &mut Inflater<'_>,
) -> Result<(), Problem> {
    let file = open(reading.upper, path).map_err(|error| Problem::Io(error.source))?.ok_or(Problem::Damaged)?;
    let length = file.metadata()?.len();
    loose::verify(&file, length, id, inflater)
}

/// Returns why an object waits.
fn why(result: &Result<(), Problem>, path: &[u8]) -> Result<Option<&'static str>, IoFailure> {
    match result {
        Ok(()) => Ok(None),
        Err(Problem::Differs) => Ok(Some(FORGED)),
        Err(Problem::Damaged) => Ok(Some(DAMAGED)),
        Err(Problem::Exceeds(bound)) => Ok(Some(exceeds(*bound))),
        Err(Problem::Io(error)) => Err(std::io::Error::from(error.kind())).doing("read", path),
    }
}

/// Says what ran out while an object was verified.
fn exceeds(bound: Bound) -> &'static str {
    match bound {
        Bound::Objects => "a git pack of too many objects to be verified (run git fsck after an accept)",
        Bound::Memory => "a git pack that takes too much memory to be verified (run git fsck after an accept)",
        Bound::Bytes => "a git object or pack too large to be verified (run git fsck after an accept)",
        Bound::BytesOfAll => {
            "a git object or pack that is not verified: those of this run are too large together (run git fsck after an accept)"
        }
        Bound::Time => "a git object or pack that takes too long to be verified (run git fsck after an accept)",
        Bound::TimeOfAll => {
            "a git object or pack that is not verified: those of this run take too long together (run git fsck after an accept)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_what_ran_out() {
        let of = |bound| why(&Err(Problem::Exceeds(bound)), b"x").unwrap().unwrap();
        for (bound, wanted) in [
            (Bound::Objects, "too many objects"),
            (Bound::Memory, "too much memory"),
            (Bound::Bytes, "too large to be verified"),
            (Bound::BytesOfAll, "too large together"),
            (Bound::Time, "too long to be verified"),
            (Bound::TimeOfAll, "too long together"),
        ] {
            assert!(of(bound).contains(wanted) && of(bound).contains("git fsck"), "{bound:?}");
        }
    }
}
