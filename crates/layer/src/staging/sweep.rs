//! The last check before a staging directory is removed: any entry in it that the commit did not create is moved to the
//! workspace, beside its original path.
//!
//! The steps and their repetitions account for every entry that they move. This check protects the user's files even if a step has
//! a bug.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_empty, names};
use crate::faults::Faults;
use crate::journal::file::{JOURNAL, Journal, SLOTS};
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put, Slot, Step};
use crate::meta::{EntryType, FileId, Meta, stat_if_there};
use crate::moves::rename_calls::Spot;
use crate::places::commit_places::CommitPlaces;
use crate::places::side::SIDE;
use crate::places::writers::{Compared, compare};
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;

/// Path and identity of an entry of the staging directory, from the step that names it.
struct Known {
    path: ByteText,
    /// A further name of a file of the workspace.
    held: Option<FileId>,
    /// The entry that was made for the commit.
    made: Option<Seen>,
}

/// An entry of the staging directory or at a side name.
struct Left<'a> {
    tree: &'a Workspace,
    name: Vec<u8>,
    from: Origin,
    number: usize,
}

/// Puts beside its path what is not ours. What cannot be moved joins `stuck`, as what is in it already stays where it
/// is.
pub(crate) fn sweep(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    stuck: &mut Vec<(ByteText, String, Origin)>,
    faults: &Faults,
) -> Result<(), IoFailure> {
    let all = left(places)?;
    if all.is_empty() {
        return Ok(());
    }
    let (by_slot, by_step) = known(&all, journal)?;
    for one in &all {
        let known = match &one.from {
            Origin::Slot(slot) => by_slot.get(slot),
            Origin::Layer => by_step.get(&one.number),
        };
        if stuck.iter().any(|(.., place)| *place == one.from) {
            continue;
        }
        let path = known.map_or_else(|| ByteText(b"version".to_vec()), |known| known.path.clone());
        let moved = || -> io::Result<()> {
            let Some(meta) = stat_if_there(one.tree.fd(), &one.name)? else { return Ok(()) };
            let is_held = known.and_then(|known| known.held) == Some(meta.id) && meta.links > 1;
            let made = known.and_then(|known| known.made);
            if is_held || is_ours(one.tree, &one.name, &meta, made, places)? {
                return Ok(());
            }
            let beside = places.beside(&journal.header.run, faults);
            beside.put(Spot { dir: one.tree.fd(), name: &one.name }, &path.0).map(|_| ())
        };
        if let Err(error) = moved() {
            stuck.push((path, error.to_string(), one.from.clone()));
        }
    }
    Ok(())
}

/// Lists what is left.
fn left<'a>(places: &CommitPlaces<'a>) -> Result<Vec<Left<'a>>, IoFailure> {
    let mut all = Vec::new();
    if let Some(tree) = places.slots {
        for name in names(tree.fd()).doing("list", SLOTS.as_bytes())? {
            let text = String::from_utf8_lossy(&name);
            let Some(number) = number(text.strip_prefix(SIDE).unwrap_or(&text)) else { continue };
            all.push(Left { tree, name, from: Origin::Slot(number), number });
        }
    }
    for name in names(places.root.fd()).doing("list", b"")? {
        let Some(number) = String::from_utf8_lossy(&name).strip_prefix(SIDE).and_then(number) else { continue };
        all.push(Left { tree: places.root, name, from: Origin::Layer, number });
    }
    Ok(all)
}

type ByNumber = HashMap<usize, Known>;

/// Finds the steps that what is left belongs to, by slot and by number.
fn known(all: &[Left<'_>], journal: &Journal) -> Result<(ByNumber, ByNumber), IoFailure> {
    let slots: HashSet<Slot> = all.iter().filter(|one| one.from != Origin::Layer).map(|one| one.number).collect();
    let numbers: HashSet<usize> = all.iter().filter(|one| one.from == Origin::Layer).map(|one| one.number).collect();
    let (mut by_slot, mut by_step) = (ByNumber::new(), ByNumber::new());
    for (number, step) in journal.steps.each().enumerate() {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        if let Some(path) = step.path().filter(|_| numbers.contains(&number)) {
            by_step.insert(number, Known { path: path.clone(), held: None, made: None });
        }
        let (slot, known) = match step {
            Step::Take { at, slot, .. } => (slot, Known { path: at, held: None, made: None }),
            Step::Hold { at, old, slot } => (slot, Known { path: at, held: Some(old.id), made: None }),
            Step::Put(Put { path, from: Origin::Slot(slot), new, .. }) if !by_slot.contains_key(&slot) => {
                (slot, Known { path, held: None, made: new })
            }
            _ => continue,
        };
        if slots.contains(&slot) {
            by_slot.insert(slot, known);
        }
    }
    Ok((by_slot, by_step))
}

/// Reports whether an entry of a staging directory has a name that a commit gives. Pure.
pub(crate) fn is_known_name(name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(name);
    name == b".gitignore" || number(text.strip_prefix(SIDE).unwrap_or(&text)).is_some()
}

/// Reads the number at the beginning of a name.
fn number(name: &str) -> Option<usize> {
    name.split('-').next()?.parse().ok()
}

/// Reports whether an entry was made for the commit and is as it was made. A directory is made empty.
fn is_ours(
    tree: &Workspace,
    name: &[u8],
    meta: &Meta,
    made: Option<Seen>,
    places: &CommitPlaces<'_>,
) -> io::Result<bool> {
    let Some(made) = made.filter(|made| made.is_same_version(meta)) else { return Ok(false) };
    match made.kind {
        EntryType::Directory => is_empty(crate::disk::remove::readable_by_force(tree, name)?.as_fd()),
        EntryType::File => Ok(compare(places.base.leases(), tree.fd(), name, &made)? == Compared::Same),
        _ => Ok(true),
    }
}
