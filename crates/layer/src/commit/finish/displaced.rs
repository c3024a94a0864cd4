//! Removes the entries that a commit displaced, after the commit is done.
//!
//! A displaced file that a process still has open for writing, or whose content changed after the run started, is never
//! removed: it is moved back to the workspace, under a name beside its old one.

use crate::beneath::{Doing as _, IoFailure, LeaseCall, Workspace, join, names, split};
use crate::entries::changes::{Conflict, Outside};
use crate::faults::{Comparison, Faults};
use crate::journal::file::{JOURNAL, Journal, KeptBack, Outcome};
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Step};
use crate::meta::{EntryType, FileId, FsTime, Meta, stat, stat_if_there};
use crate::moves::leftover::{Leftover, set_aside};
use crate::moves::rename_calls::{Moved, Spot, move_out, move_to_free};
use crate::notes::removing::Removing;
use crate::places::commit_places::CommitPlaces;
use crate::places::quiet::{Look, Quiet, inspect, quiet_inside};
use crate::places::writers::{Writers, writers};
use nexus_model::ByteText;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

/// The name, but for a number, that an entry of a displaced directory has for the moment before it is removed.
const LEAVING: &str = ".nexus-leaving-";

/// The longest name that Linux takes (path_resolution(7)).
const NAME_MAX: usize = 255;

/// The number of names that are tried.
const TRIES: u32 = 99;

/// Returns the name by which an entry leaves; it holds the own name, so that a kill does not lose that, where both fit.
fn leaving_name(number: u32, name: &[u8]) -> Vec<u8> {
    let short = format!("{LEAVING}{number}").into_bytes();
    let long = [&short, &b"-"[..], name].concat();
    if long.len() <= NAME_MAX { long } else { short }
}

/// Returns the own name of an entry that was leaving.
fn own_name(leaving: &[u8]) -> Option<&[u8]> {
    let rest = leaving.strip_prefix(LEAVING.as_bytes())?;
    let dash = rest.iter().position(|byte| *byte == b'-')?;
    Some(&rest[dash + 1..]).filter(|name| !name.is_empty())
}

/// Gives entries that were leaving when an earlier pass was killed their names back, where those are free.
fn restore_names(tree: &Workspace, top: &[u8], faults: &Faults) -> io::Result<()> {
    let mut stack = vec![top.to_vec()];
    while let Some(path) = stack.pop() {
        let dir = crate::disk::remove::readable_by_force(tree, &path)?;
        for name in names(dir.as_fd())? {
            let dir = dir.as_fd();
            match own_name(&name) {
                Some(own) => {
                    move_to_free(Spot { dir, name: &name }, Spot { dir, name: own }, faults)?;
                }
                None if stat_if_there(dir, &name)?.is_some_and(|meta| meta.kind == EntryType::Directory) => {
                    stack.push(join(&path, &name));
                }
                None => {}
            }
        }
    }
    Ok(())
}

/// The result of [`remove_displaced`].
#[derive(Debug, Default)]
pub(crate) struct Removal {
    /// Versions that had to be kept beside their old names.
    pub(crate) rescued: Vec<KeptBack>,
    /// Entries that could not be removed and were set aside.
    pub(crate) left: Vec<Leftover>,
    /// Entries that could neither be removed nor set aside: path, error, and the place (layer or slot).
    pub(crate) stuck: Vec<(ByteText, String, Origin)>,
    /// Files with several names of which one was removed, as they were before.
    pub(crate) lost_a_name: HashMap<FileId, Seen>,
}

/// Removes everything that a finished commit displaced, and keeps what changed or cannot be removed.
pub(crate) fn remove_displaced(
    layers: &Workspace,
    places: &CommitPlaces<'_>,
    journal: &Journal,
    outcome: &Outcome,
    faults: &Faults,
) -> Result<Removal, IoFailure> {
    let kept: HashSet<&[u8]> = outcome.kept.iter().map(|one| one.path.0.as_slice()).collect();
    let shared: HashMap<FileId, Seen> = journal.steps.several().iter().map(|one| (one.old.id, one.old)).collect();
    let left_at: HashMap<&[u8], FsTime> = outcome.left_at.iter().map(|(path, at)| (path.0.as_slice(), *at)).collect();
    let mut removal = Removal::default();
    let removing = Removing::open(places.root)?;
    // A further name of a file, and the move of another one, set the time of its change and nothing else.
    let is_moved = |meta: &Meta| shared.get(&meta.id).is_some_and(|old| old.is_same_version(meta));
    // A process with the directory open may still add to it, so that everything younger than the move is its own.
    let since = |path: &ByteText| left_at.get(path.0.as_slice()).copied().unwrap_or(places.started);
    let is_late = |path: &ByteText, dir: &Meta, name: &[u8], meta: &Meta| {
        let since = since(path);
        // An entry that was on its way out when an earlier pass was killed got its ctime by that rename.
        let left = name.starts_with(LEAVING.as_bytes()) && removing.was_leaving(meta);
        let at = if left { meta.mtime } else { meta.ctime };
        let is_explained = if meta.kind == EntryType::Directory {
            removing.is_own(meta)
        } else {
            let by_commit = (meta.mtime < since && is_moved(meta)) || removing.is_own(meta);
            // The file is not enough: another process may have moved its own name of the file into the directory.
            by_commit && removing.had(dir.id, name, meta)
        };
        at >= since && !is_explained
    };
    let mut are_noted = false;
    for step in journal.steps.each() {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        let Some((old, path, from)) = displaced(&step).filter(|(_, path, _)| !kept.contains(path.0.as_slice())) else {
            continue;
        };
        let Some((tree, at)) = place_of(places, path, &from) else { continue };
        if old.kind == EntryType::Directory && !are_noted {
            are_noted = true;
            note_before_removal(places, journal, &removing, &Late { since: &since, is_late: &is_late })?;
        }
        let new = match &step {
            Step::Put(put) => put.new.map(|new| new.id),
            _ => None,
        };
        let is_late = |dir: &Meta, name: &[u8], meta: &Meta| is_late(path, dir, name, meta);
        let one = Displaced { tree, at: &at, path, old, new, is_late: &is_late, removing: &removing };
        let run = &journal.header.run;
        // Most errors do not come twice.
        match one.end(places, run, faults).or_else(|_| one.end(places, run, faults)) {
            Ok(rescued) => removal.rescued.extend(rescued),
            Err(failure) => {
                let why = format!("{failure}: {}", failure.source);
                match one.set_aside(layers, run, faults) {
                    Ok(place) => removal.left.push(Leftover::new(&place, Some(path), why)),
                    Err(_) => removal.stuck.push((path.clone(), why, from)),
                }
            }
        }
    }
    removal.lost_a_name = removing.into_known();
    Ok(removal)
}

/// Returns the entry that a step displaces, its path in the workspace, and where it went.
fn displaced(step: &Step) -> Option<(&Seen, &ByteText, Origin)> {
    let (old, path) = (step.displaces()?, step.path()?);
    match step {
        Step::Take { slot, .. } => Some((old, path, Origin::Slot(*slot))),
        Step::Put(put) => Some((old, path, put.from.clone())),
        _ => None,
    }
}

/// Returns the tree and the path in it of an entry that went there.
fn place_of<'a>(places: &'a CommitPlaces<'_>, path: &ByteText, from: &Origin) -> Option<(&'a Workspace, Vec<u8>)> {
    match from {
        Origin::Slot(slot) => Some((places.slots?, slot.to_string().into_bytes())),
        Origin::Layer => Some((places.upper, path.0.clone())),
    }
}

/// The two questions about entries of a displaced directory.
struct Late<'a> {
    /// Tells since when everything at this path of the workspace is of another process.
    since: &'a dyn Fn(&ByteText) -> FsTime,
    is_late: &'a IsLate<'a>,
}

/// Tells whether an entry came late, by the path of the displaced directory, its own directory, its name and its attributes.
type IsLate<'a> = dyn Fn(&ByteText, &Meta, &[u8], &Meta) -> bool + 'a;

/// Notes the directories in all displaced ones before the first of these is emptied, but for those that came late, and the names of files
/// whose stamps the removal changes.
fn note_before_removal(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    removing: &Removing<'_>,
    late: &Late<'_>,
) -> Result<(), IoFailure> {
    for step in journal.steps.each() {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        let Some((old, path, from)) = displaced(&step) else { continue };
        let Some((tree, at)) = place_of(places, path, &from).filter(|_| old.kind == EntryType::Directory) else {
            continue;
        };
        let mut waiting = vec![at];
        while let Some(at) = waiting.pop() {
            // A directory that cannot be read now is noted when it is opened up.
            let Ok(dir) = tree.readable_dir(&at) else { continue };
            let before = stat(dir.as_fd(), b"").doing("look at", &path.0)?;
            let mut several = Vec::new();
            for name in names(dir.as_fd()).doing("list", &path.0)? {
                if name.starts_with(LEAVING.as_bytes()) {
                    removing.takes_as_left(before.id, own_name(&name));
                }
                let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", &path.0)? else { continue };
                match meta.kind {
                    EntryType::Directory if !(late.is_late)(path, &before, &name, &meta) => {
                        removing.empties(&meta);
                        waiting.push(join(&at, &name));
                    }
                    EntryType::Directory => {}
                    _ if meta.links > 1 || meta.ctime >= (late.since)(path) => several.push((name, meta.id)),
                    _ => {}
                }
            }
            let after = stat(dir.as_fd(), b"").doing("look at", &path.0)?;
            let is_as_displaced = before.mtime < (late.since)(path) && before.mtime == after.mtime;
            for (name, file) in several.iter().filter(|_| is_as_displaced) {
                removing.has(before.id, name, *file);
            }
        }
    }
    removing.sync();
    Ok(())
}

/// An entry that a commit displaced.
struct Displaced<'a> {
    /// The tree that it lies in now.
    tree: &'a Workspace,
    /// Its path there.
    at: &'a [u8],
    /// Its path in the workspace.
    path: &'a ByteText,
    /// The entry as the plan saw it.
    old: &'a Seen,
    /// The entry that took its place.
    new: Option<FileId>,
    /// Tells whether an entry of a displaced directory, by that, its name and its attributes, is younger than the move.
    is_late: &'a dyn Fn(&Meta, &[u8], &Meta) -> bool,
    removing: &'a Removing<'a>,
}

impl Displaced<'_> {
    /// Removes the entry, or puts it beside its old name. Returns the latter.
    fn end(&self, places: &CommitPlaces<'_>, run: &str, faults: &Faults) -> Result<Option<KeptBack>, IoFailure> {
        let Self { tree, at, path, .. } = self;
        faults.between_calls();
        let quiet = self.remove(places.base.leases(), faults)?;
        let beside = match quiet {
            Quiet::Gone => places.beside(run, faults).found(&path.0)?,
            Quiet::Yes => None,
            Quiet::No | Quiet::Written => {
                let (parent, name) = split(at);
                let dir = tree.dir_by_force(parent).doing("open", parent)?;
                let spot = Spot { dir: dir.as_fd(), name };
                // Whatever is kept has the names that a person knows.
                if self.old.kind == EntryType::Directory
                    && stat_if_there(spot.dir, name).doing("look at", at)?.is_some_and(|now| now.id == self.old.id)
                {
                    restore_names(tree, at, faults).doing("give names back in", &path.0)?;
                }
                Some(places.beside(run, faults).put(spot, &path.0).doing("put beside", &path.0)?)
            }
        };
        let Some(beside) = beside else { return Ok(None) };
        let outside = if quiet == Quiet::Written { Outside::Open } else { Outside::Changed };
        let conflict = Some(Conflict { beside: Some(beside), ..Conflict::new((*path).clone(), outside) });
        Ok(Some(KeptBack { path: (*path).clone(), conflict, in_layer: false, subtree: false, arrived: true }))
    }

    fn set_aside(&self, layers: &Workspace, run: &str, faults: &Faults) -> io::Result<PathBuf> {
        let (parent, name) = split(self.at);
        let dir = self.tree.dir_by_force(parent)?;
        let last = String::from_utf8_lossy(split(&self.path.0).1).into_owned();
        set_aside(layers, run, Spot { dir: dir.as_fd(), name }, &last, faults)
    }

    fn remove(&self, leases: Option<LeaseCall>, faults: &Faults) -> Result<Quiet, IoFailure> {
        let Self { tree, at, path, old, new, is_late, .. } = self;
        let (parent, name) = split(at);
        let Some(dir) = tree.dir_by_force_if_there(parent).doing("open", parent)? else { return Ok(Quiet::Gone) };
        let found = stat_if_there(dir.as_fd(), name).doing("look at", at)?;
        let Some(now) = found else { return Ok(Quiet::Gone) };
        let counts = faults.compares(Comparison::BeforeRemoval);
        if now.id != old.id && counts {
            // Our own entry goes with the layer. Anything else came out of the workspace in a crash, and is not ours.
            return Ok(if *new == Some(now.id) { Quiet::Yes } else { Quiet::No });
        }
        if old.kind == EntryType::Directory {
            let opens = |meta: &Meta| self.removing.opens(meta);
            let quiet = quiet_inside(tree, at, leases, is_late, &opens).doing("look through", &path.0)?;
            let inside = faults.compares(Comparison::InsideRemoval);
            return if quiet == Quiet::Yes || !inside { self.remove_seen(leases, faults) } else { Ok(quiet) };
        }
        let is_file = old.kind == EntryType::File;
        let asked = is_file.then(|| writers(leases, dir.as_fd(), name)).transpose();
        let lease = asked.doing("ask for writers of", &path.0)?;
        if matches!(lease, Some(Writers::Some)) && counts {
            return Ok(Quiet::Written);
        }
        if counts && !old.is_same_version(&stat(dir.as_fd(), name).doing("look at", &path.0)?) {
            return Ok(Quiet::No);
        }
        rustix::fs::unlinkat(dir.as_fd(), name, AtFlags::empty()).doing("remove", &path.0)?;
        drop(lease);
        Ok(Quiet::Yes)
    }

    /// Removes a displaced directory entry by entry, and stops at the first one that came late.
    fn remove_seen(&self, leases: Option<LeaseCall>, faults: &Faults) -> Result<Quiet, IoFailure> {
        let tree = self.tree;
        // The path that a person knows.
        let shown = |path: &[u8]| [&self.path.0, &path[self.at.len()..]].concat();
        let mut stack = vec![(self.at.to_vec(), self.old.id, false)];
        while let Some((path, id, emptied)) = stack.pop() {
            let (parent, name) = split(&path);
            if emptied {
                let parent = tree.dir_by_force(parent).doing("open", parent)?;
                match rustix::fs::unlinkat(parent.as_fd(), name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    // Something came while it was emptied.
                    Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Quiet::No),
                    Err(error) => return Err(error).doing("remove", &shown(&path)),
                }
            }
            let dir = crate::disk::remove::readable_by_force(tree, &path).doing("open", &shown(&path))?;
            let meta = stat(dir.as_fd(), b"").doing("look at", &shown(&path))?;
            if meta.id != id && faults.compares(Comparison::InsideRemoval) {
                // Another one took its place.
                return Ok(Quiet::No);
            }
            self.removing.empties(&meta);
            stack.push((path.clone(), id, true));
            for name in names(dir.as_fd()).doing("list", &shown(&path))? {
                let entry = join(&path, &name);
                match self.remove_file((dir.as_fd(), &meta), &name, leases, faults).doing("remove", &shown(&entry))? {
                    Left::Directory(id) => stack.push((entry, id, false)),
                    Left::Nothing => {}
                    Left::Entry(quiet) => return Ok(quiet),
                }
            }
        }
        Ok(Quiet::Yes)
    }

    /// Removes an entry of a displaced directory that is not a directory itself.
    ///
    /// It leaves its name first, and is looked at again: another process with the directory open may save a new version
    /// under the name at any moment, and without a lease write to the file.
    fn remove_file(
        &self,
        (dir, of_dir): (BorrowedFd<'_>, &Meta),
        name: &[u8],
        leases: Option<LeaseCall>,
        faults: &Faults,
    ) -> io::Result<Left> {
        let (meta, _lease) = match inspect(leases, dir, name, &|| faults.between_calls())? {
            Look::At(meta, _) if (self.is_late)(of_dir, name, &meta) && faults.compares(Comparison::InsideRemoval) => {
                return Ok(Left::Entry(Quiet::No));
            }
            Look::At(meta, _) if meta.kind == EntryType::Directory => return Ok(Left::Directory(meta.id)),
            Look::At(meta, lease) => (meta, lease),
            Look::Written => return Ok(Left::Entry(Quiet::Written)),
            Look::Gone => return Ok(Left::Nothing),
        };
        self.removing.leaves(of_dir.id, name, &meta);
        let from = Spot { dir, name };
        let mut number = 0;
        let leaving = loop {
            let leaving = leaving_name(number, name);
            match move_out(from, Spot { dir, name: &leaving }, faults) {
                Ok(Moved::Yes) => break leaving,
                Ok(Moved::Occupied) if number < TRIES => number += 1,
                Ok(Moved::Occupied) => return Err(io::Error::other("no name is free")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Left::Nothing),
                Err(error) => return Err(error),
            }
        };
        let leaving = Spot { dir, name: &leaving };
        faults.between_calls();
        let out = stat(dir, leaving.name)?;
        if (out.id, out.size, out.mtime, out.kind) == (meta.id, meta.size, meta.mtime, meta.kind) {
            rustix::fs::unlinkat(dir, leaving.name, AtFlags::empty())?;
            return Ok(Left::Nothing);
        }
        // A newer version goes back to its name. Where an even newer one has that, both stay in the directory.
        move_to_free(leaving, from, faults)?;
        Ok(Left::Entry(Quiet::No))
    }
}

/// The result of [`Displaced::remove_file`].
enum Left {
    /// The entry is the directory with this identity, and stays for now.
    Directory(FileId),
    /// The entry stays, and with it its directory.
    Entry(Quiet),
    /// The entry is gone.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaving_entry_keeps_its_own_name_where_both_fit() {
        assert_eq!(own_name(&leaving_name(3, b"a-b")), Some(&b"a-b"[..]));
        let long = [b'n'; NAME_MAX];
        assert_eq!(own_name(&leaving_name(0, &long)), None);
        assert!(leaving_name(0, &long).len() <= NAME_MAX);
        assert_eq!(own_name(b"other"), None);
    }
}
