//! Restores overlay's attributes on entries that a commit stripped of them and then left in the layer.
//!
//! A step strips an entry right before it moves it, so that these attributes never appear in the workspace. If the entry stays in
//! the layer after all (the commit is rolled back, or the path is kept back), a later commit needs the attributes to recognize
//! renames, last copies and files with several names. The journal has their values. An entry whose attributes cannot be restored
//! is recorded by [`only_copies`](super::only_copies).

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, split};
use crate::disk::xattr;
use crate::faults::Faults;
use crate::journal::file::{JOURNAL, Journal, Outcome};
use crate::journal::step::{AttrList, Origin, Put, Step};
use crate::journal::step_reader::Steps;
use crate::meta::{FileId, stat_if_there};
use crate::places::commit_places::CommitPlaces;
use nexus_model::ByteText;
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Reads the values of the marks that a step takes off an entry. A directory that keeps its owner out hides them.
pub(crate) fn values(tree: &Workspace, path: &[u8], names: &[ByteText]) -> Result<AttrList, IoFailure> {
    let (parent, name) = split(path);
    let dir = match tree.dir(parent) {
        Ok(dir) => dir,
        Err(error) if is_hidden(&error) => return Ok(AttrList::new()),
        Err(error) => return Err(error).doing("open", parent),
    };
    let mut found = AttrList::new();
    for one in names {
        match xattr::get(dir.as_fd(), name, &one.0) {
            Ok(value) => found.push((one.clone(), ByteText(value))),
            Err(error) if is_hidden(&error) || is_without(&error) => {}
            Err(error) => return Err(error).doing("read an attribute of", path),
        }
    }
    Ok(found)
}

fn is_hidden(error: &io::Error) -> bool {
    is_gone(error) || error.kind() == io::ErrorKind::PermissionDenied
}

fn is_without(error: &io::Error) -> bool {
    [Errno::NODATA, Errno::NOTSUP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Sets the marks of all entries again, for a commit that is taken back. `is_clean`: everything is out of the
/// workspace; otherwise a file with several names may have one there, and gets no mark.
pub(crate) fn of_all(
    places: &CommitPlaces<'_>,
    steps: &Steps,
    is_clean: bool,
    faults: &Faults,
) -> Result<(), IoFailure> {
    let mut any = false;
    for step in steps.each() {
        any |= one(places, &step.doing("read", JOURNAL.as_bytes())?, is_clean, faults);
    }
    sync(places, any, faults)
}

/// Sets the marks of the entries again that were kept back in the layer.
pub(crate) fn of_kept(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    outcome: &Outcome,
    faults: &Faults,
) -> Result<(), IoFailure> {
    let kept: HashSet<&ByteText> = outcome.kept.iter().filter(|one| one.in_layer).map(|one| &one.path).collect();
    if kept.is_empty() {
        return Ok(());
    }
    let (mut any, mut whole) = (false, HashSet::new());
    for step in journal.steps.each() {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        if let Step::Put(put) = &step
            && kept.contains(&put.path)
        {
            any |= one(places, &step, false, faults);
            if put.whole && is_there(places, put) {
                whole.insert(put.path.clone());
            }
        }
    }
    // What is in a directory was stripped before it. The other entries that were stripped are not to arrive.
    for step in journal.steps.each().take_while(|_| !whole.is_empty()) {
        let step = step.doing("read", JOURNAL.as_bytes())?;
        if let Step::Strip { path, .. } = &step
            && is_below(&path.0, &whole)
        {
            any |= one(places, &step, false, faults);
        }
    }
    sync(places, any, faults)
}

fn is_below(path: &[u8], tops: &HashSet<ByteText>) -> bool {
    let mut at = split(path).0;
    while !at.is_empty() {
        if tops.contains(&ByteText(at.to_vec())) {
            return true;
        }
        at = split(at).0;
    }
    false
}

/// Reports whether the entry that a step brings from the layer is there.
fn is_there(places: &CommitPlaces<'_>, put: &Put) -> bool {
    let found = places.upper.stat(&put.path.0).ok().flatten();
    put.from == Origin::Layer && found.is_some_and(|found| put.new.is_some_and(|new| new.id == found.id))
}

/// Brings the marks to the disk before the journal, which has them, goes.
fn sync(places: &CommitPlaces<'_>, any: bool, faults: &Faults) -> Result<(), IoFailure> {
    if !any {
        return Ok(());
    }
    faults.sync(|| Ok(rustix::fs::syncfs(places.upper.fd())?)).doing("sync", b"upper")
}

/// Sets the marks of one entry again. Returns whether it was done.
fn one(places: &CommitPlaces<'_>, step: &Step, is_clean: bool, faults: &Faults) -> bool {
    let slot_name;
    let (tree, path, id, marks) = match step {
        Step::Put(Put { from: Origin::Layer, path, new: Some(new), marks, .. }) => {
            (places.upper, path.0.as_slice(), Some(new.id), marks)
        }
        Step::Put(Put { from: Origin::Slot(slot), new: Some(new), marks, .. }) => {
            let Some(slots) = places.slots else { return false };
            slot_name = slot.to_string().into_bytes();
            (slots, slot_name.as_slice(), Some(new.id), marks)
        }
        Step::Strip { path, marks, .. } => (places.upper, path.0.as_slice(), None, marks),
        Step::Put(_) | Step::Hold { .. } | Step::Take { .. } | Step::SetDir(_) => return false,
    };
    if marks.is_empty() {
        return false;
    }
    faults.between_calls();
    let (parent, name) = split(path);
    let set = tree.dir_by_force(parent).and_then(|dir| set_again(dir.as_fd(), name, id, marks, is_clean));
    // What has no mark afterwards is noted, so that an error loses nothing.
    set.unwrap_or(false)
}

fn set_again(
    dir: BorrowedFd<'_>,
    name: &[u8],
    id: Option<FileId>,
    marks: &AttrList,
    is_clean: bool,
) -> io::Result<bool> {
    let Some(now) = stat_if_there(dir, name)?.filter(|now| id.is_none_or(|id| id == now.id)) else { return Ok(false) };
    if now.links > 1 && !is_clean && now.kind != crate::meta::EntryType::Directory {
        return Ok(false);
    }
    for (attribute, value) in marks {
        xattr::set(dir, name, &attribute.0, &value.0)?;
    }
    Ok(true)
}
