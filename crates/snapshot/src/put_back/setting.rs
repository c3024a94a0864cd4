//! Steps of an undo that set attributes. An entry whose attributes cannot be read or set is left, and named with the reason.

use super::apply::Work;
use super::attributed::{extended_of, has, is_as, is_of_entry, set};
use super::trees::lookup;
use crate::attributes::Extended;
use crate::error::SnapshotError;
use crate::object::{Attributes, Entry};
use nexus_beneath::meta::{EntryType, stat};
use nexus_beneath::{Doing as _, is_gone, is_no_way, open_dir, pin};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

impl Work<'_> {
    /// Notes that an entry is left because of this error, where the error is about this entry alone.
    fn is_left<T>(&mut self, path: &[u8], what: &'static str, made: io::Result<T>) -> Result<Option<T>, SnapshotError> {
        match made {
            Ok(made) => Ok(Some(made)),
            Err(error) if is_of_entry(&error) => {
                self.leave(path, format!("its attributes cannot be {what}: {error}"));
                Ok(None)
            }
            Err(error) => Ok(Err(error).doing("use the attributes of", path)?),
        }
    }

    /// Gives the very entry that was kept its wanted attributes.
    pub(super) fn attributes(
        &mut self,
        number: usize,
        at: (BorrowedFd<'_>, &[u8], &[u8]),
        wanted: &Entry,
        present: &Entry,
    ) -> Result<(), SnapshotError> {
        let (dir, name, path) = at;
        let Ok(pinned) = pin(dir, name) else {
            self.leave(path, "it went away meanwhile");
            return Ok(());
        };
        let meta = stat(pinned.as_fd(), b"").doing("look at", path)?;
        let is_link = meta.kind == EntryType::Symlink;
        let extended = if is_link { Ok(Extended::new()) } else { extended_of(pinned.as_fd(), &meta) };
        let Some(extended) = self.is_left(path, "read", extended)? else { return Ok(()) };
        if !is_as(&meta, present) || (!is_link && !has(&extended, &present.attributes)) {
            self.leave(path, "it was changed meanwhile");
            return Ok(());
        }
        if is_link {
            // A link has neither a mode nor attributes; its owner and time come with a new one.
            if !self.built(number, path, wanted)? {
                return Ok(());
            }
            return self.put(number, at, true, Some(present));
        }
        if self.is_left(path, "set", set(pinned.as_fd(), &wanted.attributes))?.is_some() {
            self.applied.done += 1;
        }
        Ok(())
    }

    /// Reports whether a directory has other attributes than in the present tree, where they can be read.
    pub(super) fn is_marked(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<bool, SnapshotError> {
        let Ok(inner) = open_dir(dir, name, OFlags::RDONLY) else { return Ok(false) };
        let Some(found) = lookup(self.store, &self.trees.present, path)? else { return Ok(false) };
        Ok(self.has_known_attributes(inner.as_fd(), path, &found.entry.attributes)? != Some(true))
    }

    /// Reports whether a directory has the attributes that it gets, or those that it had in the present tree; the time does not count.
    /// `None` where they cannot be read.
    fn has_known_attributes(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        wanted: &Attributes,
    ) -> Result<Option<bool>, SnapshotError> {
        let meta = stat(dir, b"").doing("look at", path)?;
        let Some(extended) = self.is_left(path, "read", extended_of(dir, &meta))? else { return Ok(None) };
        let is_root = rustix::process::geteuid().is_root();
        let is_as = |one: &Attributes| {
            // One that kept its owner out was opened up. An owner can be given by root alone.
            let is_mode = meta.mode == one.mode || meta.mode == one.mode | 0o700;
            is_mode && (!is_root || (meta.uid, meta.gid) == (one.uid, one.gid)) && has(&extended, one)
        };
        if is_as(wanted) {
            return Ok(Some(true));
        }
        let present = lookup(self.store, &self.trees.present, path)?;
        Ok(Some(present.is_some_and(|found| is_as(&found.entry.attributes))))
    }

    /// Gives a directory its attributes. Returns whether it has them.
    pub(super) fn directory(&mut self, path: &[u8], attributes: &Attributes) -> Result<bool, SnapshotError> {
        let opened = self.root.dir_by_force(path);
        match opened {
            Ok(dir) => match self.has_known_attributes(dir.as_fd(), path, attributes)? {
                None => Ok(false),
                Some(false) => {
                    self.leave(path, "its mode, owner or attributes were changed meanwhile");
                    Ok(false)
                }
                Some(true) => Ok(self.is_left(path, "set", set(dir.as_fd(), attributes))?.is_some()),
            },
            Err(error) if is_no_way(&error) || is_gone(&error) => Ok(false),
            Err(error) => Ok(self.is_left(path, "set", Err::<(), _>(error))?.is_some()),
        }
    }
}
