//! Reserves disk space for the records of a commit while git objects are copied to a layer, and records the objects that could not be
//! copied.
//!
//! ```text
//!  hold room for the notes ─▶ is there room for all copies as well? ─▶ copy ─▶ give the room back ─▶ notes
//!            └──────────────────────────┴── no, or an error: the copies go again, and the objects are noted
//! ```
//! The next accept that brings something tries to copy what is noted. Until then a `git gc` of the host may remove it.

use crate::beneath::{Doing as _, IoFailure, Workspace, unlink_if_there};
use crate::entries::changes::Change;
use crate::faults::Faults;
use crate::journal::file::{Journal, read, write};
use crate::moves::leftover::{ADVICE, Leftover};
use nexus_model::ByteText;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The paths of objects that were not copied, in the layer's directory.
const UNCOPIED: &str = "uncopied.json";
/// The name that the held room has for a moment.
const ROOM: &str = "room.new";

/// Bytes that the notes of any commit may take, and of one entry in them beside its path.
const NOTES: u64 = 128 << 10;
const NOTE: u64 = 256;

/// Room on the file system of a layer, until this is dropped. No name leads to it: a kill gives it back.
pub(crate) struct Room {
    _file: OwnedFd,
}

impl Room {
    /// Takes room for the notes of a commit, where `copies` more bytes are free beside it.
    pub(crate) fn hold(root: &Workspace, journal: &Journal, copies: u64) -> io::Result<Self> {
        let header = &journal.header;
        let paths = |all: &[Change]| all.iter().map(|one| one.path.0.len() as u64 * 2 + NOTE).sum::<u64>();
        let notes = NOTES + paths(&header.parked) + paths(&header.committed);
        let disk = rustix::fs::fstatvfs(root.fd())?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < notes.saturating_add(copies) {
            return Err(Errno::NOSPC.into());
        }
        unlink_if_there(root.fd(), ROOM.as_bytes())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(root.fd(), ROOM, flags, Mode::from_raw_mode(0o600))?;
        unlink_if_there(root.fd(), ROOM.as_bytes())?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, notes) {
            // The file system holds no room for a file: what was free has to do.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Self { _file: file }),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the objects that an earlier commit of the layer could not copy.
pub(crate) fn noted(root: &Workspace) -> Result<Vec<ByteText>, IoFailure> {
    Ok(read::<Vec<ByteText>>(root, UNCOPIED)?.unwrap_or_default())
}

/// Notes the objects that were not copied; without any, removes an earlier note.
pub(crate) fn note(root: &Workspace, mut paths: Vec<ByteText>, faults: &Faults) -> Result<(), IoFailure> {
    faults.between_calls();
    if paths.is_empty() {
        return unlink_if_there(root.fd(), UNCOPIED.as_bytes()).doing("remove", UNCOPIED.as_bytes());
    }
    paths.sort();
    paths.dedup();
    write(root, UNCOPIED, &paths, faults)
}

/// Says to a person that only the workspace has the objects in a directory.
pub(crate) fn remark(objects: &Path, error: &io::Error) -> Leftover {
    let why = format!("the layer of the run gets no copies ({error})");
    Leftover { is_needed: true, ..Leftover::new(objects, None, why) }
}

/// Says to a person that a layer lacks copies of objects; `None` where it has them all. A note that cannot be read counts as one.
pub(crate) fn in_words(root: &Workspace) -> Option<String> {
    let is_complete = noted(root).is_ok_and(|paths| paths.is_empty());
    let text = "Refs or an index of the run wait and need git objects that only the workspace has: there was no room for copies";
    (!is_complete).then(|| format!("{text}. {ADVICE}."))
}
