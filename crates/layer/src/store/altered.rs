//! Detects changes to a parked layer after it was parked or last shown to the user.
//!
//! Only this user and root can change a parked layer (see `separate`). Every change updates a file's ctime, which no process can
//! choose. The check therefore compares each ctime with the mtime of the layer's record, which Nexus writes when it parks the
//! layer and when it shows it.

use crate::beneath::{Doing as _, IoFailure};
use crate::entries::tree::{LayerTree, Role};
use crate::errors::CommitError;
use crate::journal::file::PARKED;
use crate::meta::{EntryType, FsTime, Meta};
use crate::store::layer::Layer;
use crate::store::separate::COPIED;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

impl Layer {
    /// Records that the content of the layer is about to be shown to the user. A later [`Layer::commit`] refuses
    /// entries that changed after this call.
    pub fn note_shown(&self) -> Result<(), IoFailure> {
        let stamp = |nsec| Timespec { tv_sec: 0, tv_nsec: nsec };
        let times = Timestamps { last_access: stamp(UTIME_OMIT), last_modification: stamp(UTIME_NOW) };
        match rustix::fs::utimensat(self.root.fd(), PARKED, &times, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error).doing("set the time of", PARKED.as_bytes()),
        }
    }

    /// Refuses a layer of which an entry changed after it was parked or shown.
    pub(crate) fn check_unaltered(&self, tree: &LayerTree) -> Result<(), CommitError> {
        let prepare = |source| CommitError::Prepare { run: self.run.clone(), source };
        let time = |name: &str| {
            let found = self.root.stat(name.as_bytes()).doing("look at", name.as_bytes());
            found.map(|found| found.map(|meta| meta.mtime)).map_err(prepare)
        };
        // A record of an older version: the layer was copied since.
        let Some(parked) = time(PARKED)?.filter(|parked| !matches!(time(COPIED), Ok(Some(copied)) if copied > *parked))
        else {
            return Ok(());
        };
        let entries = tree.nodes.iter().filter(|node| node.role == Role::Entry);
        match entries.skip(1).find(|node| is_later(&node.meta, parked)) {
            None => Ok(()),
            Some(node) => Err(CommitError::Altered { run: self.run.clone(), path: node.path.text() }),
        }
    }
}

/// Reports whether the content may have changed after that time. An accept that failed may have given an entry a
/// further name for a while, and a diff may have opened up a file that keeps its owner out; both set the ctime.
fn is_later(meta: &Meta, time: FsTime) -> bool {
    let by_us = meta.links > 1 || meta.mode & 0o400 == 0;
    meta.kind != EntryType::Directory && if by_us { meta.mtime > time } else { meta.ctime > time }
}
