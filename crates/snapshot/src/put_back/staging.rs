//! Removes the staging directory: what was displaced and read, what was built and not used, and nothing else.

use super::apply::{Aside, Place, beside};
use super::attributed::is_of_entry;
use super::decide::Step;
use super::displaced::kept;
use super::remove::Removing;
use super::seen::Seen;
use super::trees::lookup;
use crate::error::SnapshotError;
use crate::object::{Entry, ObjectId};
use crate::scan::inspect;
use crate::store::Store;
use crate::writer::Writer;
use nexus_beneath::meta::{EntryType, stat_if_there};
use nexus_beneath::{Doing as _, join, names, open_dir};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};

impl Step {
    /// Returns the entry that is built or linked for it, if one is.
    fn wanted(&self) -> Option<&Entry> {
        match self {
            Self::Put { wanted, .. } => wanted.as_ref(),
            Self::Link { wanted, .. } | Self::Attributes { wanted, .. } => Some(wanted),
            Self::RemoveDirectory { .. } | Self::RemoveSpecial { .. } => None,
        }
    }
}

impl super::apply::Work<'_> {
    /// Removes the part of an entry that could not be built, so that others have its room. What cannot be removed is looked at again at the end.
    pub(super) fn remove_unbuilt(&mut self, number: usize, path: &[u8]) -> Result<(), SnapshotError> {
        let (staging, name) = (self.staging.as_fd(), number.to_string());
        let Some(mut seen) = as_it_is(self.store, (staging, name.as_bytes()), path) else { return Ok(()) };
        let mut removing = Removing { seen: &mut seen, leases: self.place.leases, pause: &mut *self.pause };
        removing.remove(staging, name.as_bytes(), path).map(drop)
    }

    /// Removes the staging directory with everything in it that is kept. The rest is put beside, or stays in it.
    pub(super) fn clear_staging(&mut self, steps: &[Step]) -> Result<(), SnapshotError> {
        let name_of = self.place.staging.as_bytes();
        // A descriptor of its own: a listing goes on where an earlier one ended.
        let staging = open_dir(self.staging.as_fd(), b"", OFlags::RDONLY).doing("open", name_of)?;
        let mut found = names(staging.as_fd()).doing("list", name_of)?;
        found.sort_unstable();
        for name in found {
            let at = join(name_of, &name);
            if self.applied.aside.iter().any(|one| one.beside == at) {
                continue;
            }
            let number = std::str::from_utf8(&name).ok().and_then(|name| name.parse::<usize>().ok());
            let Some((step, number)) = number.and_then(|number| Some((steps.get(number)?, number))) else {
                self.stays(&at, at.clone());
                continue;
            };
            if self.unbuilt.contains(&number) {
                if let Some(seen) = as_it_is(self.store, (staging.as_fd(), &name), step.path()) {
                    self.seen.add(seen);
                }
            } else if !self.is_displaced.contains(&number) {
                // It was built, and found no use.
                let Some(wanted) = step.wanted() else {
                    self.stays(step.path(), at);
                    continue;
                };
                let place = (staging.as_fd(), name.as_slice());
                if let Some(seen) = kept(self.store, &self.trees.wanted, step.path(), wanted, place)? {
                    self.seen.add(seen);
                }
            }
            let mut removing = Removing { seen: &mut self.seen, leases: self.place.leases, pause: &mut *self.pause };
            if !removing.remove(staging.as_fd(), &name, step.path())? {
                self.put_displaced_beside(&name, step.path());
            }
        }
        (self.pause)()?;
        match rustix::fs::unlinkat(self.place.root, name_of, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) if matches!(error, Errno::NOTEMPTY | Errno::EXIST) || is_of_entry(&error.into()) => {
                if !self.applied.keeps_staging {
                    self.stays(name_of, name_of.to_vec());
                }
            }
            other => other.doing("remove", name_of)?,
        }
        Ok(())
    }
}

/// Reads an entry that the undo itself made, and that no tree has.
fn as_it_is(store: &mut Store, (dir, name): (BorrowedFd<'_>, &[u8]), at: &[u8]) -> Option<Seen> {
    inspect(dir, name, at, &mut Writer::dry(store)).ok().map(|inspected| inspected.seen)
}

/// Removes the staging directory that an undo left when it was cut off. `present` is a tree that was kept with it. If anything in it is not
/// as it was kept, or is open for writing, what is left is put beside with the directory, which is returned.
pub fn remove_staging(
    place: Place<'_>,
    store: &mut Store,
    present: &ObjectId,
    pause: &mut dyn FnMut() -> Result<(), SnapshotError>,
) -> Result<Option<Aside>, SnapshotError> {
    let top = place.staging.as_bytes();
    let Some(meta) = stat_if_there(place.root, top).doing("look at", top)? else { return Ok(None) };
    let mut is_empty = meta.kind == EntryType::Directory;
    if is_empty {
        let staging = open_dir(place.root, top, OFlags::RDONLY).doing("open", top)?;
        for name in names(staging.as_fd()).doing("list", top)? {
            is_empty &= remove_kept((staging.as_fd(), &name, &join(top, &name)), place, (&mut *store, present), pause)?;
        }
    }
    pause()?;
    if is_empty {
        match rustix::fs::unlinkat(place.root, top, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            other => other.doing("remove", top)?,
        }
    }
    let beside = beside((place.root, top), (place.root, top), place.ending).doing("put beside", top)?;
    Ok(beside.map(|beside| Aside { path: top.to_vec(), beside }))
}

/// Removes an entry of a staging directory that is as it was kept. Returns whether it is gone.
fn remove_kept(
    (dir, name, at): (BorrowedFd<'_>, &[u8], &[u8]),
    place: Place<'_>,
    (store, present): (&mut Store, &ObjectId),
    pause: &mut dyn FnMut() -> Result<(), SnapshotError>,
) -> Result<bool, SnapshotError> {
    let Some(expected) = lookup(store, present, at)?.map(|found| found.entry) else { return Ok(false) };
    let Some(mut seen): Option<Seen> = kept(store, present, at, &expected, (dir, name))? else { return Ok(false) };
    pause()?;
    Removing { seen: &mut seen, leases: place.leases, pause }.remove(dir, name, at)
}
