//! One file for each live run, so that whatever kills `nexus`, the next command finds what is left.
//!
//! ```text
//!  no name (locked) ──linkat──▶ runs/ID (locked by its owner) ──▶ removed when nothing is left
//!                                  └─ owner dead: the lock is free ─▶ the next command recovers it
//! ```
//! The lock is a record lock of fcntl(2): it belongs to the process alone, so that a sandbox that is being killed
//! does not hold the lock of its dead launcher.

use crate::state::identity::DirectoryId;
use crate::state::left;
use nexus_driver::Handle;
use nexus_facility::state_file::{self, Bounded, StateFileError};
use nexus_model::RunId;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, fcntl_lock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Describes a run, and is saved before anything of the run exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Names what the driver will make.
    pub handle: Handle,
    /// Names the workspace by its path.
    pub workspace: nexus_model::ByteText,
    /// Identifies the directory that had this path.
    #[serde(rename = "folder")]
    pub directory: DirectoryId,
    /// Reports that the workspace has a layer.
    pub layered: bool,
    /// Reports that `nexus changes` works on a layer that waits, and no sandbox: a kill then changes nothing about it.
    #[serde(default)]
    pub reviewing: bool,
    /// Reports that it rejects the layer.
    #[serde(default)]
    pub rejecting: bool,
}

/// The record of a run that this process owns.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    /// Keeps the lock of the record.
    file: File,
}

impl Record {
    /// Writes and locks it. It has no name before it is whole.
    pub fn create(runs: &Path, content: &Content) -> io::Result<Self> {
        let path = Self::place(runs, content.handle.run_id);
        let mode = Mode::from_raw_mode(0o600);
        match rustix::fs::open(runs, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
            Ok(file) => {
                let file = File::from(file);
                fill(&file, content)?;
                let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::linkat(CWD, unnamed, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
                Ok(Self { path, file })
            }
            // A file system without nameless files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::create_hidden(runs, path, content),
            Err(error) => Err(error.into()),
        }
    }

    fn create_hidden(runs: &Path, path: PathBuf, content: &Content) -> io::Result<Self> {
        // A name of its own: what another process left when it was killed must not be in the way.
        let hidden = runs.join(format!(".new-{}", RunId::new()));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&hidden)?;
        if let Err(error) = fill(&file, content).and_then(|()| std::fs::rename(&hidden, &path)) {
            // The error that matters is the first one; a leftover of this name is removed by a later command.
            return Err(match std::fs::remove_file(&hidden) {
                Ok(()) => error,
                Err(second) => io::Error::other(format!("{error}; and {}: {second}", hidden.display())),
            });
        }
        Ok(Self { path, file })
    }

    /// Returns the path that the record of a run has.
    #[must_use]
    pub fn place(runs: &Path, run: RunId) -> PathBuf {
        runs.join(run.to_string())
    }

    /// Brings the record and its name to the disk: before a commit is decided, which must be found after a power cut.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        self.path.parent().map_or(Ok(()), |runs| File::open(runs)?.sync_all())
    }

    /// Removes the record of a run of which nothing is left.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

fn fill(mut file: &File, content: &Content) -> io::Result<()> {
    fcntl_lock(file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(&serde_json::to_vec(content).map_err(io::Error::other)?)
}

/// Holds a record whose owner is gone, and which this process took over.
pub struct Orphan {
    record: Record,
    /// Identifies the run of the record.
    pub run: RunId,
    /// Holds what could be read of the record.
    pub state: RecordState,
}

/// Tells how much of a record can be read.
pub enum RecordState {
    /// The record is complete.
    Complete(Content),
    /// Its owner died while writing it, which is before anything was made.
    Empty,
    /// It cannot be read or names another run: cut off with the power, or of another version.
    Corrupt,
}

impl Orphan {
    /// Removes the record of a run of which nothing is left.
    pub fn remove(self) -> io::Result<()> {
        let path = self.record.path.display().to_string();
        if let Some(runs) = self.record.path.parent() {
            left::remove(runs, self.run)?;
        }
        self.record.remove().map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
    }
}

/// Takes over every record without a living owner. One that cannot be taken over is an error of its own.
pub fn orphans(runs: &Path) -> io::Result<Vec<io::Result<Orphan>>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(runs)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let hidden = name.strip_prefix(".new-");
        let Ok(run) = hidden.unwrap_or(name).parse::<RunId>() else { continue };
        let path = entry.path();
        let orphan = take_over(&path, run, hidden.is_some());
        found.extend(
            orphan.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))).transpose(),
        );
    }
    Ok(found)
}

/// Takes over the record of one run; `None` when there is none without a living owner.
pub fn orphan(runs: &Path, run: RunId) -> io::Result<Option<Orphan>> {
    take_over(&Record::place(runs, run), run, false)
}

fn take_over(path: &Path, run: RunId, hidden: bool) -> io::Result<Option<Orphan>> {
    let file = match state_file::open_writable(path, false) {
        // Its owner, or another command that recovers, was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // No run made this, and none can lock it.
        Err(error) if StateFileError::of(&error).is_some() => {
            let record = Record { path: path.to_owned(), file: File::open("/dev/null")? };
            return Ok(Some(Orphan { record, run, state: RecordState::Corrupt }));
        }
        other => other?,
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => return Ok(None),
        other => other?,
    }
    let mine = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(now) if now.ino() == mine.ino() => {}
        _ => return Ok(None),
    }
    let mut text = Vec::new();
    let read = Bounded::new(&file, state_file::MAX_NOTE).read_to_end(&mut text);
    let state = match read {
        _ if hidden => RecordState::Empty,
        Ok(_) => match serde_json::from_slice::<Content>(&text) {
            Ok(content) if content.handle.run_id == run => RecordState::Complete(content),
            Ok(_) | Err(_) => RecordState::Corrupt,
        },
        Err(error) if StateFileError::of(&error).is_some() => RecordState::Corrupt,
        Err(error) => return Err(error),
    };
    // A hidden one may be a moment old and not yet locked by its owner: then it is not ours to judge.
    if hidden && mine.mtime() + 60 > now_seconds()? {
        return Ok(None);
    }
    Ok(Some(Orphan { record: Record { path: path.to_owned(), file }, run, state }))
}

fn now_seconds() -> io::Result<i64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(now.as_secs() as i64)
}
