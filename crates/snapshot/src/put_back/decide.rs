//! Decides which paths go back, from three kept trees.
//!
//! ```text
//!  present = wanted             nothing to do
//!  present = left by the run    goes back
//!  left by the run = wanted     the run did not change it, another process did since: theirs
//!  else                         both changed it: named, and left as it is
//! ```

use super::trees::{Found, entries, firsts, inner, lookup, resolved};
use crate::error::SnapshotError;
use crate::object::{Attributes, Content, Entry, Node, ObjectId};
use crate::store::Store;
use nexus_beneath::{is_beneath, join, split};
use std::collections::{BTreeMap, BTreeSet};

const CHANGED_SINCE: &str = "it was changed since the run ended";

/// The three trees, by their tops. The store has all of them.
#[derive(Debug, Clone, Copy)]
pub struct Trees3 {
    /// The state to which the directory goes back.
    pub wanted: ObjectId,
    /// The state that the run left.
    pub left: ObjectId,
    /// The state in which the directory is.
    pub present: ObjectId,
}

/// A path that is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Path below the tree.
    pub path: Vec<u8>,
    /// The reason why it is left.
    pub why: String,
}

/// One step of an undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Puts the wanted entry, or nothing, in the place of the present one.
    Put { path: Vec<u8>, wanted: Option<Entry>, present: Option<Entry> },
    /// Makes the path a further name of the file at `first`, or a copy of it where that is not as wanted.
    Link { path: Vec<u8>, first: Vec<u8>, wanted: Entry, present: Option<Entry> },
    /// Gives a file or a link its attributes, where the content is the wanted one.
    Attributes { path: Vec<u8>, wanted: Entry, present: Entry },
    /// Removes a directory of which everything was removed.
    RemoveDirectory { path: Vec<u8> },
    /// Removes a FIFO, a socket or a device.
    RemoveSpecial { path: Vec<u8> },
}

impl Step {
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::Put { path, .. }
            | Self::Link { path, .. }
            | Self::Attributes { path, .. }
            | Self::RemoveDirectory { path }
            | Self::RemoveSpecial { path } => path,
        }
    }
}

/// The steps of an undo, and the paths that it leaves.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub(crate) steps: Vec<Step>,
    /// Directories that get attributes at the end, parents before what is in them.
    pub(crate) directories: BTreeMap<Vec<u8>, Attributes>,
    /// Paths that the run changed, and another process since.
    pub left: Vec<Left>,
    /// Paths that only another process changed.
    pub theirs: u64,
}

impl Decision {
    /// Returns the paths that it is about, those that are left included.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        let left = self.left.iter().map(|left| left.path.as_slice());
        self.steps.iter().map(Step::path).chain(self.directories.keys().map(Vec::as_slice)).chain(left)
    }

    /// Reports whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.directories.is_empty()
    }
}

/// Narrows a decision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Choice<'a> {
    /// These paths and what is below them; empty means everything.
    pub only: &'a [Vec<u8>],
    /// Entries that no tree keeps, and that the run made: they go.
    pub special: &'a [Vec<u8>],
    /// A name in the root that does not count: the staging directory of an undo that was cut off.
    pub staging: &'a [u8],
    /// Paths that stay, sorted: those that were changed since the run ended, for a run whose end no tree shows, and what no tree can have.
    pub changed: &'a [Vec<u8>],
}

/// Decides which paths go back.
pub fn decide(store: &mut Store, trees: Trees3, choice: Choice<'_>) -> Result<Decision, SnapshotError> {
    let Choice { only, special, staging, changed } = choice;
    let decision = Decision::default();
    let mut deciding = Deciding { store, trees, only, staging, changed, links: Vec::new(), several: None, decision };
    if trees.present != trees.wanted {
        let wanted = lookup(deciding.store, &trees.wanted, b"")?;
        let left = lookup(deciding.store, &trees.left, b"")?;
        let present = lookup(deciding.store, &trees.present, b"")?;
        deciding.entry(b"", wanted.as_ref(), left.as_ref(), present.as_ref())?;
    }
    let mut decision = deciding.finish()?;
    // A directory that goes as a whole takes them along.
    let goes = |path: &[u8]| {
        decision.steps.iter().any(|step| matches!(step, Step::Put { path: whole, .. } if is_beneath(path, whole)))
    };
    let chosen: Vec<_> = special.iter().filter(|path| is_chosen(only, path) && !goes(path)).cloned().collect();
    // The top, too: the staging directory is made in it.
    for above in chosen.iter().flat_map(|path| [split(path).0, b""]) {
        if !decision.directories.contains_key(above)
            && let Some(found) = lookup(store, &trees.present, above)?
        {
            decision.directories.insert(above.to_vec(), found.entry.attributes);
        }
    }
    // Before the directories that they are in.
    decision.steps.splice(0..0, chosen.into_iter().map(|path| Step::RemoveSpecial { path }));
    Ok(decision)
}

struct Deciding<'a> {
    store: &'a mut Store,
    trees: Trees3,
    only: &'a [Vec<u8>],
    staging: &'a [u8],
    changed: &'a [Vec<u8>],
    /// Further names of files, which come after all other steps.
    links: Vec<Step>,
    /// The files of the present tree with further names, by their first ones; `None` until they are asked for.
    several: Option<BTreeSet<Vec<u8>>>,
    decision: Decision,
}

fn is_chosen(only: &[Vec<u8>], path: &[u8]) -> bool {
    only.is_empty() || only.iter().any(|one| is_beneath(path, one))
}

/// Returns the names that paths of a sorted list have in a directory.
fn below<'a>(all: &'a [Vec<u8>], dir: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let start = if dir.is_empty() { Vec::new() } else { [dir, b"/"].concat() };
    let from = all.partition_point(|one| *one < start);
    let rest = all.get(from..).unwrap_or_default().iter();
    let names = rest.map_while(move |one| one.strip_prefix(start.as_slice()));
    names.filter(|name| !name.is_empty() && !name.contains(&b'/'))
}

/// Reports whether a path, or something below it, is in a sorted list.
fn has_beneath(all: &[Vec<u8>], path: &[u8]) -> bool {
    let has = |start: &[u8]| {
        let at = all.partition_point(|one| one.as_slice() < start);
        all.get(at).is_some_and(|one| one.starts_with(start))
    };
    all.binary_search_by(|one| one.as_slice().cmp(path)).is_ok() || has(&[path, b"/"].concat())
}

/// Reports whether two directories have the same attributes, but for the time of change. One that an undo which was cut off opened up for
/// its owner counts as the same.
fn is_same_directory(present: &Attributes, other: &Attributes) -> bool {
    let mode = present.mode == other.mode || present.mode == other.mode | 0o700;
    mode && (present.uid, present.gid) == (other.uid, other.gid) && present.extended == other.extended
}

/// Reports whether two entries have the same content and attributes, whatever other names they have.
fn is_same_entry(one: Option<&Found>, other: Option<&Found>) -> bool {
    one.map(|found| &found.entry) == other.map(|found| &found.entry)
}

/// Returns an entry without its time of change.
fn timeless(found: &Found) -> Found {
    let mut found = found.clone();
    found.entry.attributes.mtime = (0, 0);
    found
}

impl Deciding<'_> {
    /// Decides about an entry. Returns whether something stays there that is not wanted.
    fn entry(
        &mut self,
        path: &[u8],
        wanted: Option<&Found>,
        left: Option<&Found>,
        present: Option<&Found>,
    ) -> Result<bool, SnapshotError> {
        if wanted == present {
            return Ok(false);
        }
        let is_chosen = is_chosen(self.only, path);
        let both = inner(wanted).zip(inner(present));
        if !is_chosen {
            let leads = self.only.iter().any(|one| is_beneath(one, path));
            if !leads {
                return Ok(present.is_some() && wanted.is_none());
            }
            return match (both, present, wanted) {
                (Some((old, now)), Some(present), _) => {
                    self.directory(path, Some(old), inner(left), Some(now))?;
                    self.decision.directories.insert(path.to_vec(), present.entry.attributes.clone());
                    Ok(true)
                }
                (None, Some(present), None) if present.inner().is_some() => {
                    self.directory(path, None, inner(left), present.inner())?;
                    self.decision.directories.insert(path.to_vec(), present.entry.attributes.clone());
                    Ok(true)
                }
                _ => {
                    self.leave(path, "the directory is not there as it was: name it to bring it back as a whole");
                    Ok(true)
                }
            };
        }
        if let (Some((old, now)), Some(wanted), Some(present)) = (both, wanted, present) {
            let stays = self.directory(path, Some(old), inner(left), Some(now))?;
            self.attributes_of_directory(path, wanted, left, present, stays);
            return Ok(stays);
        }
        // By content: the first name of a file changes when a name before it goes.
        let is_changed = present.is_some() && has_beneath(self.changed, path);
        if is_same_entry(present, left) && !is_changed {
            self.put(path, wanted, present)?;
            return Ok(false);
        }
        if left == wanted {
            self.decision.theirs += 1;
            return Ok(true);
        }
        if wanted.is_none() && inner(present).is_some() {
            let mut stays = self.directory(path, None, inner(left), inner(present))?;
            let now = present.map(|found| &found.entry.attributes);
            let is_other = left.zip(now).is_some_and(|(left, now)| !is_same_directory(now, &left.entry.attributes));
            if !stays && (is_other || self.is_changed(path)) {
                // Another process gave it other attributes, or may have made it.
                self.leave(path, CHANGED_SINCE);
                stays = true;
            }
            if !stays {
                self.decision.steps.push(Step::RemoveDirectory { path: path.to_vec() });
            }
            return Ok(stays);
        }
        if wanted.map(timeless) == present.map(timeless) {
            return Ok(false);
        }
        self.leave(path, CHANGED_SINCE);
        Ok(true)
    }

    fn directory(
        &mut self,
        path: &[u8],
        wanted: Option<&Content>,
        left: Option<&Content>,
        present: Option<&Content>,
    ) -> Result<bool, SnapshotError> {
        if wanted == present {
            return Ok(false);
        }
        let Trees3 { wanted: wanted_top, left: left_top, present: present_top } = self.trees;
        let mut all: BTreeMap<Vec<u8>, [Option<Entry>; 3]> = BTreeMap::new();
        for (at, content) in [wanted, left, present].into_iter().enumerate() {
            for entry in entries(self.store, content)? {
                let name = entry.name.clone();
                all.entry(name).or_default()[at] = Some(entry);
            }
        }
        // What was changed and is in no tree, as a named pipe, stays.
        let mut stays = below(self.changed, path).any(|name| !all.contains_key(name));
        for (name, [wanted, left, present]) in all {
            if path.is_empty() && name == self.staging {
                continue;
            }
            let mut read =
                |top: &ObjectId, entry: Option<Entry>| entry.map(|entry| resolved(self.store, top, entry)).transpose();
            let wanted = read(&wanted_top, wanted)?;
            let left = read(&left_top, left)?;
            let present = read(&present_top, present)?;
            stays |= self.entry(&join(path, &name), wanted.as_ref(), left.as_ref(), present.as_ref())?;
        }
        Ok(stays)
    }

    fn attributes_of_directory(
        &mut self,
        path: &[u8],
        wanted: &Found,
        left: Option<&Found>,
        present: &Found,
        stays: bool,
    ) {
        let (old, now) = (&wanted.entry.attributes, &present.entry.attributes);
        let run = left.filter(|left| left.inner().is_some()).map(|left| &left.entry.attributes);
        let is_changed = self.is_changed(path);
        let is_of_run = !is_changed && run.is_none_or(|run| is_same_directory(now, run));
        let stays = stays || is_changed;
        let mut attributes = now.clone();
        if old.mode != now.mode || !is_same_directory(now, old) {
            if is_of_run {
                attributes = old.clone();
            } else if is_changed || !run.is_some_and(|run| is_same_directory(run, old)) {
                self.leave(path, "its mode, owner or attributes were changed since the run ended");
            }
        }
        // What another process put there since is a change of the directory.
        attributes.mtime = if stays { now.mtime } else { old.mtime };
        self.decision.directories.insert(path.to_vec(), attributes);
    }

    fn put(&mut self, path: &[u8], wanted: Option<&Found>, present: Option<&Found>) -> Result<(), SnapshotError> {
        let entry = |found: Option<&Found>| found.map(|found| found.entry.clone());
        if let Some(Found { entry: wanted, first: Some(first) }) = wanted {
            let (path, first, present) = (path.to_vec(), first.clone(), entry(present));
            self.links.push(Step::Link { path, first, wanted: wanted.clone(), present });
            return Ok(());
        }
        if let (Some(wanted), Some(present)) = (wanted, present)
            && wanted.entry.node == present.entry.node
            && present.first.is_none()
            && !self.has_further_names(path)?
        {
            let (wanted, present) = (wanted.entry.clone(), present.entry.clone());
            self.decision.steps.push(Step::Attributes { path: path.to_vec(), wanted, present });
            return Ok(());
        }
        if let (Some(content), Some(wanted)) = (inner(wanted), wanted) {
            self.links_out_of(path, (path, &wanted.entry.attributes), *content)?;
        }
        self.decision.steps.push(Step::Put { path: path.to_vec(), wanted: entry(wanted), present: entry(present) });
        Ok(())
    }

    /// Reports whether the file at a path of the present tree has further names in it. New attributes would show at those too, before their
    /// own steps compare them with what was kept.
    fn has_further_names(&mut self, path: &[u8]) -> Result<bool, SnapshotError> {
        if self.several.is_none() {
            self.several = Some(firsts(self.store, &self.trees.present)?);
        }
        Ok(self.several.as_ref().is_some_and(|several| several.contains(path)))
    }

    /// Finds further names in a directory that comes as a whole, of files elsewhere: they come as copies at first. To put the name there
    /// changes the time of its directory, which is set again.
    fn links_out_of(
        &mut self,
        whole: &[u8],
        (path, attributes): (&[u8], &Attributes),
        content: Content,
    ) -> Result<(), SnapshotError> {
        for entry in entries(self.store, Some(&content))? {
            let at = join(path, &entry.name);
            match &entry.node {
                Node::Directory(content) => self.links_out_of(whole, (&at, &entry.attributes), *content)?,
                Node::Same(first) if !is_beneath(first, whole) => {
                    self.decision.directories.insert(path.to_vec(), attributes.clone());
                    let found = resolved(self.store, &self.trees.wanted.clone(), entry.clone())?;
                    self.links.push(Step::Link {
                        path: at,
                        first: first.clone(),
                        wanted: found.entry.clone(),
                        present: Some(found.entry),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reports whether an entry itself was changed since the run ended, where no tree shows the end.
    fn is_changed(&self, path: &[u8]) -> bool {
        self.changed.binary_search_by(|one| one.as_slice().cmp(path)).is_ok()
    }

    fn leave(&mut self, path: &[u8], why: &str) {
        self.decision.left.push(Left { path: path.to_vec(), why: why.to_owned() });
    }

    /// Adds the links. A further name whose first one is not going to be as wanted becomes a file of its own.
    fn finish(mut self) -> Result<Decision, SnapshotError> {
        let comes: BTreeSet<Vec<u8>> = self.decision.steps.iter().map(|step| step.path().to_vec()).collect();
        for step in std::mem::take(&mut self.links) {
            let Step::Link { path, first, wanted, present } = step else { continue };
            let is_to_come = first
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'/')
                .map(|(at, _)| &first[..at])
                .chain([first.as_slice()])
                .any(|above| comes.contains(above));
            let old = lookup(self.store, &self.trees.wanted, &first)?;
            let is_there = old.is_some() && old == lookup(self.store, &self.trees.present, &first)?;
            let step = if is_to_come || is_there {
                Step::Link { path, first, wanted, present }
            } else {
                Step::Put { path, wanted: Some(wanted), present }
            };
            self.decision.steps.push(step);
        }
        Ok(self.decision)
    }
}
