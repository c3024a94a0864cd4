//! Marks a layer whose commit was rolled back, because a process may still write to directories that the rollback moved out of the
//! workspace.
//!
//! A process may have its working directory in a directory that the commit created. It keeps saving files there after the rollback
//! moved the directory back to the layer, and Nexus cannot detect such a process. The layer therefore gets a mark before its journal
//! is removed, and a marked layer that still holds a file is moved aside instead of being deleted.
//!
//! ```text
//!  put back ─▶ mark the layer, rename the staging directory ─▶ sync ─▶ journal gone ─▶ removal: rename to .kept/RUN
//! ```

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, names, split};
use crate::faults::Faults;
use crate::journal::file::{JOURNAL, SLOTS, sync_directory, write};
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put, Step};
use crate::journal::step_reader::Steps;
use crate::meta::{EntryType, stat_if_there};
use crate::moves::leftover::{is_numbered, move_to_a_free_name};
use crate::moves::rename_calls::Spot;
use crate::notes::empty_directories::remove_empty;
use crate::places::commit_places::CommitPlaces;
use crate::places::side::SIDE;
use crate::places::writers::{Writers, writers};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// The mark in the layer's directory.
pub(crate) const WITHDRAWN: &str = "withdrawn";

/// The name of a staging directory that stays in a layer with the mark.
const KEPT_SLOTS: &str = "slots.kept";

/// Reason for which the files stay.
pub(crate) const WHY: &str =
    "a program may still have been writing to them when the commit was taken back; remove them when nothing does";

/// Places to which a process may still write.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// In the upper directory.
    pub(crate) upper: bool,
    /// In the staging directory.
    pub(crate) slots: bool,
}

/// Looks for entries that the commit may have brought to the workspace, that are out of it again, and that a process
/// may still reach. All that the journal names count: which of them had arrived is not known after a kill.
pub(crate) fn doubt(places: &CommitPlaces<'_>, steps: &Steps) -> Result<Doubt, IoFailure> {
    let mut found = Doubt::default();
    for step in steps.each() {
        let Step::Put(put) = step.doing("read", JOURNAL.as_bytes())? else { continue };
        let Some(new) = &put.new else { continue };
        let known = match put.from {
            Origin::Layer => found.upper,
            Origin::Slot(_) => found.slots,
        };
        if known || !is_reachable(places, &put, new).doing("look at", &put.path.0)? {
            continue;
        }
        match put.from {
            Origin::Layer => found.upper = true,
            Origin::Slot(_) => found.slots = true,
        }
    }
    Ok(found)
}

fn is_reachable(places: &CommitPlaces<'_>, put: &Put, new: &Seen) -> io::Result<bool> {
    match &put.from {
        Origin::Layer => {
            let (parent, name) = split(&put.path.0);
            match places.upper.dir_by_force_if_there(parent)? {
                Some(dir) => is_written(places, new, dir.as_fd(), name, true),
                None => Ok(false),
            }
        }
        Origin::Slot(slot) => match places.slots {
            // A directory was made empty there, and is removed only as long as it is empty.
            Some(slots) => is_written(places, new, slots.fd(), slot.to_string().as_bytes(), false),
            None => Ok(false),
        },
    }
}

/// Reports whether the entry is there, and a process may write to it. With `directories`, every directory counts.
fn is_written(
    places: &CommitPlaces<'_>,
    new: &Seen,
    dir: BorrowedFd<'_>,
    name: &[u8],
    directories: bool,
) -> io::Result<bool> {
    let Some(now) = stat_if_there(dir, name)?.filter(|now| now.id == new.id) else { return Ok(false) };
    Ok(match now.kind {
        EntryType::Directory => directories,
        EntryType::File => match writers(places.base.leases(), dir, name)? {
            // A process may have written to it, and closed it, before the lease.
            Writers::None(lease) => !new.is_same_version(&lease.meta()?),
            Writers::Some | Writers::Unknown => true,
        },
        _ => false,
    })
}

/// Leaves the mark, on the disk. Whatever else has its name is a mark, too.
pub(crate) fn mark_withdrawn(root: &Workspace, faults: &Faults) -> Result<(), IoFailure> {
    if !is_marked(root)? {
        faults.between_calls();
        write(root, WITHDRAWN, &WHY, faults)?;
    }
    sync_directory(root, faults)
}

/// Removes the directories of a layer with the mark that a process might still write to, as long as they hold no file,
/// which rmdir(2) decides for each. Returns whether all of them are gone, so that the rest of the layer may be removed
/// as well.
pub(crate) fn remove_what_is_empty(root: &Workspace, faults: &Faults) -> Result<bool, IoFailure> {
    let all = root.readable_dir(b"").and_then(|dir| names(dir.as_fd())).doing("list", b"")?;
    if all.iter().any(|name| name.starts_with(SIDE.as_bytes())) {
        return Ok(false);
    }
    for name in all.iter().filter(|name| *name == b"upper" || is_numbered(name, KEPT_SLOTS)) {
        match remove_empty(root, name, faults) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error).doing("remove", name),
        }
    }
    Ok(true)
}

/// Reports whether a layer has the mark.
pub(crate) fn is_marked(root: &Workspace) -> Result<bool, IoFailure> {
    Ok(root.stat(WITHDRAWN.as_bytes()).doing("look at", WITHDRAWN.as_bytes())?.is_some())
}

/// Keeps the staging directory of a layer under a name that no later commit of the layer needs.
pub(crate) fn keep_slots(root: &Workspace, faults: &Faults) -> Result<(), IoFailure> {
    mark_withdrawn(root, faults)?;
    faults.between_calls();
    let from = Spot { dir: root.fd(), name: SLOTS.as_bytes() };
    move_to_a_free_name(from, root, KEPT_SLOTS, faults).doing("set aside", SLOTS.as_bytes())?;
    sync_directory(root, faults)
}
