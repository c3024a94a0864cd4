//! Records the entries of a layer that may be the only copy of a file which a partial commit removed from the workspace.
//!
//! Example: a run renames a file, and the user accepts the deletion of the old name but not the new name. The layer then holds
//! the last copy, so a reject must not delete the layer: it is moved aside unchanged. When an entry is committed later, its
//! record is dropped.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_beneath};
use crate::disk::upper::open_upper;
use crate::disk::xattr;
use crate::faults::Faults;
use crate::git::stash::{NAMED, Stash};
use crate::journal::file::{JOURNAL, Journal, Outcome, read, sync_directory, write};
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Step};
use crate::journal::step_reader::Steps;
use crate::last_copies::autostash;
use crate::last_copies::waiting_refs;
use crate::meta::EntryType;
use crate::places::commit_places::CommitPlaces;
use nexus_git::refs::inside_git;
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The paths, in the layer's directory.
pub(crate) const ONLY_COPIES: &str = "only-copies.json";

/// Reason for which the files stay.
const WHY: &str = "they may be the only copy of files that an accept deleted; remove them when they are not needed";

/// Overlay's mark of a file that was copied up, without its prefix.
const ORIGIN: &[u8] = b".overlay.origin";

/// Notes the entries that stay in the layer without the mark that says which file they were made from, and those that alone
/// name commits. Returns these commits. Runs before a layer is parked.
pub(crate) fn note(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    outcome: &Outcome,
    faults: &Faults,
) -> Result<Vec<Stash>, IoFailure> {
    let kept: HashSet<&ByteText> = outcome.kept.iter().filter(|one| one.in_layer).map(|one| &one.path).collect();
    let is_any_gone = takes_bytes(journal, outcome, &|_| true)?;
    let is_of_working_tree = |path: &[u8]| inside_git(path).is_none();
    let (refs, stashes) = if is_any_gone && takes_bytes(journal, outcome, &is_of_working_tree)? {
        waiting_refs::kept::of_kept(&outcome.kept, places.upper, places.base)
    } else {
        (Vec::new(), Vec::new())
    };
    waiting_refs::remember(places.root, &stashes, faults)?;
    let mut found = refs;
    for step in journal.steps.each() {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        if let Step::Strip { path, names, .. } = &step
            && names.is_empty()
        {
            found.push(path.clone());
            continue;
        }
        if let Step::Put(put) = &step
            && put.any_source
            && is_any_gone
            && kept.contains(&put.path)
        {
            found.push(put.path.clone());
            continue;
        }
        let Some(path) = stripped(&step).filter(|path| matches!(step, Step::Strip { .. }) || kept.contains(path))
        else {
            continue;
        };
        if is_unmarked(places.upper, &path.0).doing("look at", &path.0)? {
            found.push(path.clone());
        }
    }
    add(places, found, faults)?;
    Ok(stashes)
}

/// Reports whether a commit that kept something back that may be a copy of any file took a file with bytes away, or a
/// directory, at a path that counts.
fn takes_bytes(journal: &Journal, outcome: &Outcome, counts: &dyn Fn(&[u8]) -> bool) -> Result<bool, IoFailure> {
    let stays: HashSet<&ByteText> = outcome.kept.iter().filter(|one| !one.arrived).map(|one| &one.path).collect();
    if stays.is_empty() {
        return Ok(false);
    }
    for step in journal.steps.each() {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        let has_bytes = |old: &Seen| match old.kind {
            EntryType::File => old.size > 0,
            EntryType::Directory | EntryType::Symlink => true,
            EntryType::Fifo | EntryType::Device | EntryType::Socket => false,
        };
        if step.displaces().is_some_and(has_bytes)
            && step.path().is_some_and(|path| !stays.contains(path) && counts(&path.0))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Notes, as [`note`] does, for a commit that is taken back: of all steps, whether they were carried out or not. Runs
/// before the journal goes.
pub(crate) fn note_all(places: &CommitPlaces<'_>, steps: &Steps, faults: &Faults) -> Result<(), IoFailure> {
    let mut found = Vec::new();
    for step in steps.each() {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        let Some(path) = stripped(&step) else { continue };
        if is_unmarked(places.upper, &path.0).doing("look at", &path.0)? {
            found.push(path.clone());
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    add(places, found, faults)?;
    sync_directory(places.root, faults)
}

/// Returns the entry of the layer that a step takes the mark off.
fn stripped(step: &Step) -> Option<&ByteText> {
    let has_origin = |names: &[ByteText]| names.iter().any(|name| name.0.ends_with(ORIGIN));
    match step {
        Step::Strip { is_edit: true, .. } => None,
        Step::Strip { path, names, .. } if has_origin(names) => Some(path),
        Step::Put(put) if put.from == Origin::Layer && has_origin(&put.strip) => Some(&put.path),
        _ => None,
    }
}

fn add(places: &CommitPlaces<'_>, mut found: Vec<ByteText>, faults: &Faults) -> Result<(), IoFailure> {
    if found.is_empty() {
        return Ok(());
    }
    found.extend(read::<Vec<ByteText>>(places.root, ONLY_COPIES)?.into_iter().flatten());
    found.sort();
    found.dedup();
    write(places.root, ONLY_COPIES, &found, faults)
}

/// Takes the entries that a commit brought to the workspace out of the note. Of a layer on another file system a copy
/// arrives, and the layer has its entry as before. Runs before a layer of which nothing waits is removed.
pub(crate) fn forget(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    outcome: &Outcome,
    faults: &Faults,
) -> Result<(), IoFailure> {
    // A note that cannot be read keeps the layer.
    let Ok(Some(mut noted)) = read::<Vec<ByteText>>(places.root, ONLY_COPIES) else { return Ok(()) };
    let missing: HashSet<&[u8]> =
        outcome.kept.iter().filter(|one| !one.arrived).map(|one| one.path.0.as_slice()).collect();
    let mut arrived: HashMap<ByteText, bool> = HashMap::new();
    for step in journal.steps.each() {
        if let Step::Put(put) = step.doing("read", JOURNAL.as_bytes())?
            && !is_at_or_below(&put.path.0, |path| missing.contains(path))
        {
            arrived.insert(put.path, put.whole);
        }
    }
    let before = noted.len();
    noted.retain(|path| {
        let is_there = |at: &[u8]| {
            let whole = arrived.get(&ByteText(at.to_vec()));
            whole.is_some_and(|whole| *whole || at == path.0)
        };
        !is_at_or_below(&path.0, is_there)
    });
    if noted.len() == before {
        return Ok(());
    }
    write(places.root, ONLY_COPIES, &noted, faults)
}

/// Reports whether something holds for a path or for a directory above it.
fn is_at_or_below(path: &[u8], holds: impl Fn(&[u8]) -> bool) -> bool {
    let mut at = path;
    while !at.is_empty() {
        if holds(at) {
            return true;
        }
        at = crate::beneath::split(at).0;
    }
    false
}

/// Reports whether an entry is there and has no mark of a file that it was made from.
fn is_unmarked(upper: &Workspace, path: &[u8]) -> io::Result<bool> {
    let (parent, name) = crate::beneath::split(path);
    let Some(dir) = upper.dir_by_force_if_there(parent)? else { return Ok(false) };
    match xattr::list(dir.as_fd(), name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => Ok(!other?.iter().any(|one| one.ends_with(ORIGIN))),
    }
}

/// The reason for which a layer stays.
pub(crate) struct Stays {
    why: String,
    /// Commits to name, each with the directory of the layer that has its objects.
    stashes: Vec<(Stash, Option<Vec<u8>>)>,
}

impl Stays {
    pub(crate) fn because(why: &str) -> Self {
        Self { why: why.to_owned(), stashes: Vec::new() }
    }

    /// Returns the reason for people. `place` is the directory of the layer.
    pub(crate) fn text(self, place: &Path) -> String {
        let mut parts = vec![self.why];
        for (stash, objects) in self.stashes {
            let objects = objects.map(|path| place.join("upper").join(OsStr::from_bytes(&path)));
            parts.push(Stash { objects, ..stash }.to_string());
        }
        parts.join(". ")
    }
}

/// Says why a layer stays that still has one of the entries that were noted; `None` where it has none. A note that
/// cannot be read counts as one.
pub(crate) fn why_it_stays(root: &Workspace) -> Result<Option<Stays>, IoFailure> {
    if root.stat(ONLY_COPIES.as_bytes()).doing("look at", ONLY_COPIES.as_bytes())?.is_none() {
        return Ok(None);
    }
    let upper = match open_upper(root) {
        // It is being removed already.
        Err(error) if crate::beneath::is_gone(&error) => return Ok(None),
        other => Workspace::from_fd(other.doing("open", b"upper")?),
    };
    let Ok(Some(paths)) = read::<Vec<ByteText>>(root, ONLY_COPIES) else { return Ok(Some(Stays::because(WHY))) };
    let is_left =
        |path: &&ByteText| upper.stat(&path.0).map_or_else(|error| !crate::beneath::is_gone(&error), |m| m.is_some());
    let left: Vec<&ByteText> = paths.iter().filter(is_left).collect();
    if left.is_empty() {
        return Ok(None);
    }
    let of_stashes = left.iter().filter(|path| autostash::is_named_by(&path.0));
    let of_refs = waiting_refs::remembered(root);
    let of_refs = of_refs.into_iter().filter(|one| left.iter().any(|path| is_beneath(&path.0, &one.path.0)));
    let stashes = of_stashes.filter_map(|path| autostash::read(&upper, &path.0)).chain(of_refs).take(NAMED);
    let with_objects = |stash: Stash| (waiting_refs::left_objects(&upper, &stash), stash);
    let stashes = stashes.map(with_objects).map(|(objects, stash)| (stash, objects)).collect();
    Ok(Some(Stays { why: WHY.to_owned(), stashes }))
}
