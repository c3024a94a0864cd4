//! Tidies up after a commit: what it displaced is removed, what was committed leaves the layer, and what is parked or was
//! kept back stays, readable as a layer.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, names, split, unlink_if_there};
use crate::changes::ChangeSet;
use crate::commit::apply::Rooms;
use crate::commit::displaced::remove_displaced;
use crate::commit::journal::{
    DONE, Journal, KeptBack, OUTCOME, Outcome, PARKED, Parked, SlotPlace, VERSION, sync_directory, write,
};
use crate::commit::ops::Op;
use crate::commit::stage::remove_slots;
use crate::copy::make_whiteout;
use crate::faults::{Faults, Step};
use crate::meta::{EntryType, stat, stat_if_there};
use crate::plan::Keep;
use crate::remove::{readable_by_force, remove_tree};
use crate::tree::Own;
use crate::xattr;
use nexus_model::ByteText;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// The name of an upper directory that is being removed.
pub(crate) const GONE: &str = "gone";

/// The directory of all layers, one of them, and the workspace.
pub(crate) struct Folders<'a> {
    pub(crate) layers: &'a Workspace,
    pub(crate) root: &'a Workspace,
    pub(crate) base: &'a Workspace,
    pub(crate) run: &'a str,
}

/// Runs after the journal is marked done; may run again. The outcome grows by what could not be removed.
pub(crate) fn finish(
    folders: &Folders<'_>,
    rooms: &Rooms<'_>,
    journal: &Journal,
    outcome: &mut Outcome,
    faults: &Faults,
) -> Result<(), IoFailure> {
    faults.check(Step::Finish).doing("finish", b"")?;
    let kept: HashSet<&[u8]> = outcome.kept.iter().map(|one| one.path.0.as_slice()).collect();
    let rescued = remove_displaced(rooms, journal, outcome, &kept, faults)?;
    if !rescued.is_empty() {
        outcome.kept.extend(rescued);
        write(folders.root, OUTCOME, outcome, faults)?;
        sync_directory(folders.root, faults)?;
    }
    let header = &journal.header;
    remove_slots(folders.root, folders.base, folders.run, header.slots, faults)?;
    if header.slots == SlotPlace::Workspace {
        // It is on another file system than the layer, whose own end may reach the disk first.
        sync_directory(folders.base, faults)?;
    }
    let keep = keep(journal, outcome);
    if keep.is_empty() {
        return remove_layer(folders.layers, folders.root, folders.run, faults);
    }
    prune(rooms.upper, folders.base, &keep, faults)?;
    faults.action();
    remove_tree(folders.root, b"work").doing("remove", b"work")?;
    let mut ours: Vec<Own> = header.ours.clone();
    for stamp in &mut outcome.stamps {
        restamp(stamp, folders.base, journal)?;
        ours.retain(|other| other.path != stamp.path);
        ours.push(stamp.clone());
    }
    let changes = ChangeSet { changes: left(journal, outcome) };
    let (mode, started, clock) = (header.mode, header.started, header.clock.clone());
    let parked = Parked { version: VERSION, mode, started, clock, ours, changes };
    faults.action();
    write(folders.root, PARKED, &parked, faults)?;
    sync_directory(folders.root, faults)?;
    faults.action();
    for name in [DONE, OUTCOME] {
        unlink_if_there(folders.root.fd(), name.as_bytes()).doing("remove", name.as_bytes())?;
    }
    sync_directory(folders.root, faults)
}

/// Removing a displaced name changes the ctime of the file's other names.
fn restamp(stamp: &mut Own, base: &Workspace, journal: &Journal) -> Result<(), IoFailure> {
    let displaced = journal.ops.iter().filter_map(Op::displaces);
    let Some(old) = displaced.filter(|old| old.links > 1).find(|old| Some(old.id) == stamp.id) else { return Ok(()) };
    if let Some(now) = base.stat(&stamp.path.0).doing("look at", &stamp.path.0)?
        && old.is_same_version(&now)
    {
        stamp.ctime = now.ctime;
    }
    Ok(())
}

/// What stays in the layer: what was planned to, and what was kept back.
fn keep(journal: &Journal, outcome: &Outcome) -> Vec<Keep> {
    let mut keep = journal.header.keep.clone();
    let planned: HashSet<Vec<u8>> = keep.iter().map(|one| one.path.0.clone()).collect();
    let deleted =
        |path: &ByteText| journal.ops.iter().any(|op| matches!(op, Op::Take { at, renamed: false, .. } if at == path));
    for one in outcome.kept.iter().filter(|one| one.in_layer && !planned.contains(&one.path.0)) {
        keep.push(Keep { path: one.path.clone(), subtree: one.subtree, whiteout: deleted(&one.path), mode: None });
    }
    keep
}

/// The changes that wait after a commit.
pub(crate) fn left(journal: &Journal, outcome: &Outcome) -> Vec<crate::Change> {
    let kept: HashMap<&[u8], &KeptBack> =
        outcome.kept.iter().filter(|one| one.in_layer).map(|one| (one.path.0.as_slice(), one)).collect();
    let mut all = journal.header.parked.clone();
    let back = journal.header.committed.iter().filter(|change| is_kept_back(&kept, &change.path.0));
    all.extend(back.cloned());
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all.dedup_by(|a, b| a.path == b.path);
    all
}

/// The changes that reached the workspace.
pub(crate) fn arrived(journal: &Journal, outcome: &Outcome) -> Vec<crate::Change> {
    let kept = outcome.kept.iter().filter(|one| !one.arrived);
    let kept: HashMap<&[u8], &KeptBack> = kept.map(|one| (one.path.0.as_slice(), one)).collect();
    let all = journal.header.committed.iter();
    all.filter(|change| !is_kept_back(&kept, &change.path.0)).cloned().collect()
}

fn is_kept_back(kept: &HashMap<&[u8], &KeptBack>, path: &[u8]) -> bool {
    if kept.is_empty() {
        return false;
    }
    let mut at = path;
    while !at.is_empty() {
        if kept.get(at).is_some_and(|one| at == path || one.subtree) {
            return true;
        }
        at = split(at).0;
    }
    false
}

/// Removes a layer. The note that it is parked goes first: what is left after a crash must not look like a review.
pub(crate) fn remove_layer(layers: &Workspace, root: &Workspace, run: &str, faults: &Faults) -> Result<(), IoFailure> {
    faults.check(Step::Discard).doing("remove", b"")?;
    unlink_if_there(root.fd(), PARKED.as_bytes()).doing("remove", PARKED.as_bytes())?;
    // From this rename on it is a layer that goes away, and no half of it is ever taken for a whole one.
    match rustix::fs::renameat(root.fd(), "upper", root.fd(), GONE) {
        Ok(()) | Err(Errno::NOENT) => {}
        // An earlier removal was interrupted by an error.
        Err(Errno::NOTEMPTY | Errno::EXIST) => remove_tree(root, b"upper").doing("remove", b"upper")?,
        Err(error) => return Err(error).doing("remove", b"upper"),
    }
    for directory in [GONE.as_bytes(), b"work"] {
        faults.action();
        remove_tree(root, directory).doing("remove", directory)?;
    }
    faults.action();
    remove_tree(layers, run.as_bytes()).doing("remove", run.as_bytes())
}

/// Removes everything from the upper directory but `keep` and the directories on the way to it.
fn prune(upper: &Workspace, base: &Workspace, keep: &[Keep], faults: &Faults) -> Result<(), IoFailure> {
    let kept: HashMap<&[u8], &Keep> = keep.iter().map(|one| (one.path.0.as_slice(), one)).collect();
    let mut on_the_way: HashSet<&[u8]> = HashSet::new();
    for one in keep {
        let mut path = split(&one.path.0).0;
        while !path.is_empty() && on_the_way.insert(path) {
            path = split(path).0;
        }
    }
    let mut stack: Vec<Vec<u8>> = vec![Vec::new()];
    let mut entered = Vec::new();
    while let Some(path) = stack.pop() {
        let dir = readable_by_force(upper, &path).doing("open", &path)?;
        for name in names(dir.as_fd()).doing("list", &path)? {
            let entry = crate::beneath::join(&path, &name);
            let kept = kept.get(entry.as_slice());
            if kept.is_some_and(|one| one.subtree) {
                continue;
            }
            if kept.is_none() && !on_the_way.contains(entry.as_slice()) {
                faults.action();
                remove_tree(upper, &entry).doing("remove", &entry)?;
                continue;
            }
            let meta = stat(dir.as_fd(), &name).doing("look at", &entry)?;
            if meta.kind == EntryType::Directory {
                entered.push((entry.clone(), kept.copied()));
                stack.push(entry);
            }
        }
    }
    for one in keep.iter().filter(|one| one.whiteout) {
        let (parent, name) = split(&one.path.0);
        let dir = upper.dir(parent).doing("open", parent)?;
        if stat_if_there(dir.as_fd(), name).doing("look at", &one.path.0)?.is_none() {
            faults.action();
            make_whiteout(dir.as_fd(), name).doing("mark as gone", &one.path.0)?;
        }
    }
    for (path, kept) in entered.iter().rev() {
        settle(upper, base, path, *kept)?;
    }
    Ok(())
}

/// A directory on the way now continues the one in the workspace: it hides nothing and comes from nowhere, and its
/// mode is the committed one, or its own if that is still to be decided.
fn settle(upper: &Workspace, base: &Workspace, path: &[u8], kept: Option<&Keep>) -> Result<(), IoFailure> {
    let dir = upper.dir_by_force(path).doing("open", path)?;
    for name in xattr::list(dir.as_fd(), b"").doing("list the attributes of", path)? {
        if name.ends_with(b".overlay.opaque") || name.ends_with(b".overlay.redirect") {
            xattr::remove(dir.as_fd(), b"", &name).doing("clean", path)?;
        }
    }
    let mode = if let Some(kept) = kept {
        // Its mode is a part of what waits; the journal has it as it was before anybody opened the directory up.
        kept.mode
    } else {
        let found = base.stat(path).doing("look at", path)?;
        found.filter(|meta| meta.kind == EntryType::Directory).map(|meta| meta.mode)
    };
    mode.map_or(Ok(()), |mode| chmod(dir.as_fd(), mode).doing("set the mode of", path))
}
