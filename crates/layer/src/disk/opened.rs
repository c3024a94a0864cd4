//! Records the original modes of entries that a copy has to make readable.
//!
//! An ordinary user cannot read what a run closed to its owner, so that a copy opens it first. A copy that is killed meanwhile
//! is made again, and must not take the opened mode for the one that the run gave. Each mode is therefore on the disk before
//! the entry is opened.
//!
//! A look at a layer and the staging of its entries open entries up, too, and close them again ([`Notes`]). What a killed one
//! left open is closed when the layer is opened the next time ([`close_again`]). So do the steps of a commit ([`ForcedNotes`]).

use crate::beneath::{Doing as _, IoFailure, Noting, Workspace, chmod, is_gone, pin, split, unlink_if_there};
use crate::disk::state_file::StateFileError;
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The modes, one line of JSON for each.
pub(crate) const FILE: &str = "apart.modes";

/// The modes of what a look or a staging opened up in the upper directory, in the same form.
pub(crate) const NOTES: &str = "opened.modes";

/// Modes that are synced one by one. With more of them only a power cut may lose those that follow.
const SYNCED: usize = 1000;

/// More than the modes of a million paths take.
const MAX_BYTES: u64 = 1 << 30;

/// The entries that were opened up so far, with the modes that they had.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    modes: HashMap<Vec<u8>, u32>,
    file: Option<File>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: ByteText,
    mode: u32,
}

impl Opened {
    /// For a tree that no later process copies again.
    pub(crate) fn forgotten() -> Self {
        Self::default()
    }

    /// Reads what an earlier copy of the layer at `root` opened up, and goes on with the same file.
    pub(crate) fn of_layer(root: &Workspace) -> Result<Self, IoFailure> {
        let file = open(root.fd(), FILE, OFlags::CREATE | OFlags::APPEND).doing("open", FILE.as_bytes())?;
        let lines = read(&file).doing("read", FILE.as_bytes())?;
        Ok(Self { modes: lines.into_iter().map(|one| (one.path.0, one.mode)).collect(), file: Some(file) })
    }

    /// Returns the mode that the run gave to an entry, and notes it if the copy will have to open the entry up.
    pub(crate) fn mode(&mut self, path: &[u8], meta: &Meta) -> io::Result<u32> {
        let Some(needed) = needed(meta.kind) else { return Ok(meta.mode) };
        if let Some(mode) = self.modes.get(path)
            && (meta.mode == *mode || meta.mode == *mode | needed)
        {
            return Ok(*mode);
        }
        if meta.mode & needed != needed && !rustix::process::geteuid().is_root() {
            if let Some(file) = &mut self.file {
                append(file, path, meta.mode)?;
                file.sync_data()?;
            }
            self.modes.insert(path.to_vec(), meta.mode);
        }
        Ok(meta.mode)
    }
}

/// Writes down the modes of entries of the upper directory before they are opened up.
#[derive(Debug)]
pub(crate) struct Notes<'a> {
    /// The layer's directory; `None` for a layer in memory, which no later process sees.
    root: Option<&'a Workspace>,
    file: Option<File>,
    count: usize,
}

impl<'a> Notes<'a> {
    pub(crate) fn new(root: Option<&'a Workspace>) -> Self {
        Self { root, file: None, count: 0 }
    }

    /// Notes the mode of the entry at `path`, which is then opened up.
    pub(crate) fn add(&mut self, path: &[u8], mode: u32) -> io::Result<()> {
        let Some(root) = self.root else { return Ok(()) };
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(root.fd(), NOTES, OFlags::CREATE | OFlags::APPEND)?),
        };
        append(file, path, mode)?;
        self.count += 1;
        if self.count > SYNCED {
            return Ok(());
        }
        file.sync_data()?;
        if self.count == 1 { Ok(rustix::fs::fsync(root.fd())?) } else { Ok(()) }
    }

    /// Closes what was opened up.
    pub(crate) fn close(&mut self) -> Result<(), IoFailure> {
        match (self.root, self.file.take()) {
            (Some(root), Some(_)) => close_again(root),
            _ => Ok(()),
        }
    }
}

/// Writes down the modes of directories of the upper directory that the steps of a commit open up. A commit, its recovery and
/// its way back may all do that, each in a process of its own.
#[derive(Debug)]
pub(crate) struct ForcedNotes {
    /// The layer's directory.
    root: OwnedFd,
    count: AtomicUsize,
}

impl ForcedNotes {
    pub(crate) fn new(root: &Workspace) -> io::Result<Self> {
        Ok(Self { root: rustix::io::fcntl_dupfd_cloexec(root.fd(), 0)?, count: AtomicUsize::new(0) })
    }
}

impl Noting for ForcedNotes {
    fn add(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let mut file = open(self.root.as_fd(), NOTES, OFlags::CREATE | OFlags::APPEND)?;
        append(&mut file, path, mode)?;
        match self.count.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(file.sync_data().and_then(|()| Ok(rustix::fs::fsync(&self.root)?))?),
            count if count < SYNCED => file.sync_data(),
            _ => Ok(()),
        }
    }
}

/// Gives the entries of the upper directory that were opened up their modes again, the deepest first. A mode that is another
/// one by now stays.
pub(crate) fn close_again(root: &Workspace) -> Result<(), IoFailure> {
    let file = match open(root.fd(), NOTES, OFlags::empty()) {
        Err(error) if is_gone(&error) => return Ok(()),
        other => other.doing("open", NOTES.as_bytes())?,
    };
    let lines = read(&file).doing("read", NOTES.as_bytes())?;
    if !lines.is_empty() {
        let upper = Workspace::from_fd(root.dir(b"upper").doing("open", b"upper")?);
        for one in lines.iter().rev() {
            close_one(&upper, one).doing("set the mode of", &one.path.0)?;
        }
    }
    unlink_if_there(root.fd(), NOTES.as_bytes()).doing("remove", NOTES.as_bytes())
}

fn close_one(upper: &Workspace, one: &Line) -> io::Result<()> {
    let (parent, name) = split(&one.path.0);
    if name.is_empty() {
        let now = stat(upper.fd(), b"")?;
        return if now.mode == one.mode | 0o700 { chmod(upper.fd(), one.mode) } else { Ok(()) };
    }
    let dir = match upper.dir(parent) {
        // Behind a directory that is closed again already, and so was this one before.
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        other => other?,
    };
    let found = match stat_if_there(dir.as_fd(), name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        other => other?,
    };
    let Some(now) = found else { return Ok(()) };
    match needed(now.kind) {
        Some(needed) if now.mode == one.mode | needed => chmod(pin(dir.as_fd(), name)?.as_fd(), one.mode),
        _ => Ok(()),
    }
}

/// The bits of the owner without which an entry cannot be read. Pure.
pub(crate) fn needed(kind: EntryType) -> Option<u32> {
    match kind {
        EntryType::Directory => Some(0o700),
        EntryType::File => Some(0o400),
        _ => None,
    }
}

fn open(root: BorrowedFd<'_>, name: &str, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    Ok(File::from(rustix::fs::openat(root, name, flags, Mode::from_raw_mode(0o600))?))
}

fn append(file: &mut File, path: &[u8], mode: u32) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Line { path: ByteText(path.to_vec()), mode })?;
    line.push(b'\n');
    file.write_all(&line)
}

fn read(mut file: &File) -> io::Result<Vec<Line>> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(StateFileError::NotRegular.into());
    }
    if meta.len() > MAX_BYTES {
        return Err(StateFileError::TooLarge { max: MAX_BYTES }.into());
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // The entry of a line that was cut off was not opened yet.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(whole as u64)?;
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).map_err(io::Error::from)).collect()
}
