//! Keeps git objects in a layer while refs, logs or indexes that may lead to them wait there.
//!
//! A commit moves the new objects of a run to the workspace. Where the names wait, nothing in the workspace leads to these objects, and
//! `git gc` on the host removes them: the names would then lead to nothing when they are accepted, or lie in `.kept` alone.
//!
//! ```text
//!  names of a git directory of the workspace wait
//!      an object of it that is still in the layer          ──▶ stays
//!      an object that the commit moved to the workspace    ──▶ is copied back
//! ```
//! The next commit leaves out the objects that the workspace still has, and brings the others. This runs after the journal is marked
//! done: a commit that is taken back finds no copies in the way of what returns.

use crate::beneath::{Doing as _, IoFailure, Workspace, join, names, split, unlink_if_there};
use crate::disk::copy::{Attrs, CopyStage, copy_whole, finish};
use crate::entries::marks::LayerMode;
use crate::faults::Faults;
use crate::git::nested::has_objects;
use crate::journal::file::{JOURNAL, Journal, Outcome};
use crate::journal::step::{Put, Step};
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use crate::notes::uncopied::{self, Room};
use crate::places::commit_places::CommitPlaces;
use nexus_git::objects::is_shaped;
use nexus_git::paths::{git_dir_of_names, git_dir_of_object};
use nexus_model::ByteText;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

/// Bytes that a copy takes beside its content: a part of a block, and of a directory.
const OF_FILE: u64 = 4 << 10;

/// Lists the objects that have to stay in the layer beside `stays`, and copies those back that the commit moved. `outcome` gets a remark
/// where a copy cannot be made: an error here holds no commit up.
pub(crate) fn keep_objects(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    stays: &[&ByteText],
    outcome: &mut Outcome,
    faults: &Faults,
) -> Result<Vec<ByteText>, IoFailure> {
    let mut waiting = BTreeSet::new();
    for git_dir in stays.iter().filter_map(|path| git_dir_of_names(&path.0)) {
        if !waiting.contains(git_dir) && has_objects(places.base, git_dir)? {
            waiting.insert(git_dir.to_vec());
        }
    }
    let mut found = Vec::new();
    if waiting.is_empty() {
        return Ok(found);
    }
    let all = moved(places, journal, &waiting, outcome)?;
    let copied = copy_all(places, journal, &all, faults)
        .and_then(|copied| if copied { faults.sync(|| Ok(rustix::fs::syncfs(places.upper.fd())?)) } else { Ok(()) });
    match copied {
        Ok(()) => uncopied::note(places.root, Vec::new(), faults)?,
        Err(error) => {
            // They would take the room that the notes of this commit need.
            remove_copies(places, &all)?;
            for git_dir in all.iter().filter_map(|path| git_dir_of_object(path)).collect::<BTreeSet<_>>() {
                let objects = places.base.path().join(OsStr::from_bytes(&join(git_dir, b"objects")));
                outcome.left.push(uncopied::remark(&objects, &error));
            }
            uncopied::note(places.root, all.into_iter().map(ByteText).collect(), faults)?;
        }
    }
    let stays: HashSet<&ByteText> = stays.iter().copied().collect();
    for git_dir in &waiting {
        found.extend(copies_of(places.upper, git_dir)?.into_iter().map(ByteText).filter(|path| !stays.contains(path)));
    }
    Ok(found)
}

/// Returns the paths of the objects and packs of a git directory that a layer has.
pub(crate) fn copies_of(upper: &Workspace, git_dir: &[u8]) -> Result<Vec<Vec<u8>>, IoFailure> {
    let mut found = Vec::new();
    let mut left = vec![join(git_dir, b"objects")];
    while let Some(path) = left.pop() {
        let Ok(dir) = upper.readable_dir(&path) else { continue };
        for name in names(dir.as_fd()).doing("list", &path)? {
            let at = join(&path, &name);
            match stat_if_there(dir.as_fd(), &name).doing("look at", &at)?.map(|meta| meta.kind) {
                Some(EntryType::Directory) => left.push(at),
                Some(EntryType::File) if is_shaped(&at) => found.push(at),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Lists the objects that the commit, or an earlier one without room for copies, moved to one of these git directories, as far as the
/// workspace still has them.
fn moved(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    waiting: &BTreeSet<Vec<u8>>,
    outcome: &Outcome,
) -> Result<Vec<Vec<u8>>, IoFailure> {
    let stays: HashMap<Vec<u8>, bool> =
        outcome.kept.iter().filter(|one| !one.arrived).map(|one| (one.path.0.clone(), one.subtree)).collect();
    let is_of = |path: &[u8]| git_dir_of_object(path).is_some_and(|git_dir| waiting.contains(git_dir));
    let mut found = Vec::new();
    for step in journal.steps.each() {
        let Step::Put(put) = step.doing("read", JOURNAL.as_bytes())? else { continue };
        if is_of(&put.path.0) && !is_kept_back(&stays, &put.path.0) {
            found.extend(files_of(places.base, &put));
        }
    }
    for path in uncopied::noted(places.root)?.into_iter().map(|path| path.0).filter(|path| is_of(path)) {
        if matches!(places.base.stat(&path), Ok(Some(meta)) if meta.kind == EntryType::File) && is_shaped(&path) {
            found.push(path);
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Copies objects of the workspace to the layer, unless it has them. Returns whether it copied one.
fn copy_all(places: &CommitPlaces<'_>, journal: &Journal, all: &[Vec<u8>], faults: &Faults) -> io::Result<bool> {
    let mut missing = Vec::new();
    let mut bytes = 0_u64;
    for path in all {
        if places.upper.stat(path)?.is_none()
            && let Some(meta) = places.base.stat(path)?
        {
            // Each has a block that is not full, and perhaps a directory of its own.
            bytes = bytes.saturating_add(meta.size).saturating_add(OF_FILE);
            missing.push(path);
        }
    }
    let _room = if all.is_empty() { None } else { Some(Room::hold(places.root, journal, bytes)?) };
    let mut copied = false;
    for path in missing {
        copied |= copy(places, journal.header.mode, path, faults)?;
    }
    Ok(copied)
}

/// Removes the copies of these objects from the layer again, as far as the workspace has them.
fn remove_copies(places: &CommitPlaces<'_>, all: &[Vec<u8>]) -> Result<(), IoFailure> {
    for path in all {
        let (parent, name) = split(path);
        let Some(dir) = places.upper.dir_by_force_if_there(parent).doing("open", parent)? else { continue };
        let kind = |meta: Meta| meta.kind;
        let is_in = |tree: &Workspace| tree.stat(path).is_ok_and(|meta| meta.map(kind) == Some(EntryType::File));
        if is_in(places.upper) && is_in(places.base) {
            unlink_if_there(dir.as_fd(), name).doing("remove", path)?;
        }
    }
    Ok(())
}

fn is_kept_back(stays: &HashMap<Vec<u8>, bool>, path: &[u8]) -> bool {
    let mut at = path;
    let mut is_one = stays.contains_key(at);
    while !is_one && !at.is_empty() {
        at = split(at).0;
        is_one = stays.get(at).copied().unwrap_or_default();
    }
    is_one
}

/// Lists the objects that a step brought, as far as the workspace still has them.
fn files_of(base: &Workspace, put: &Put) -> Vec<Vec<u8>> {
    let (mut found, mut left) = (Vec::new(), vec![put.path.0.clone()]);
    while let Some(path) = left.pop() {
        match base.stat(&path).ok().flatten().map(|meta| meta.kind) {
            Some(EntryType::File) if is_shaped(&path) => found.push(path),
            Some(EntryType::Directory) if put.whole => {
                let inside = base.readable_dir(&path).and_then(|dir| names(dir.as_fd())).unwrap_or_default();
                left.extend(inside.iter().map(|name| join(&path, name)));
            }
            _ => {}
        }
    }
    found
}

/// Copies an object of the workspace to its path in the layer. Returns `false` where the layer has it, or the workspace no more.
fn copy(places: &CommitPlaces<'_>, mode: LayerMode, path: &[u8], faults: &Faults) -> io::Result<bool> {
    let (parent, name) = split(path);
    let Some(from) = places.base.dir_by_force_if_there(parent)? else { return Ok(false) };
    make_directories(places, parent, faults)?;
    let to = places.upper.dir_by_force(parent)?;
    if stat_if_there(to.as_fd(), name)?.is_some() {
        return Ok(false);
    }
    let stage = CopyStage { dir: places.root.fd(), faults };
    let attrs = Attrs::Content(mode);
    match copy_whole(from.as_fd(), name, to.as_fd(), stage, attrs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other.map(|()| true),
    }
}

/// Makes the directories of a path that the layer has no more like those of the workspace.
fn make_directories(places: &CommitPlaces<'_>, path: &[u8], faults: &Faults) -> io::Result<()> {
    if path.is_empty() || places.upper.stat(path)?.is_some() {
        return Ok(());
    }
    let (parent, name) = split(path);
    make_directories(places, parent, faults)?;
    let like = stat(places.base.dir_by_force(parent)?.as_fd(), name)?;
    faults.between_calls();
    match rustix::fs::mkdirat(places.upper.dir_by_force(parent)?, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    finish(places.upper.dir_by_force(path)?.as_fd(), &like)
}
