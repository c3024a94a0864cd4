//! One file for each live run, so that whatever kills `nexus`, the next command finds what is left.
//!
//! ```text
//!  no name (locked) ──linkat──▶ runs/ID (locked by its owner) ──▶ removed when nothing is left
//!                                  └─ owner dead: the lock is free ─▶ the next command recovers it
//! ```
//! The lock is a record lock of fcntl(2): it belongs to the process alone, so that a sandbox that is being killed
//! does not hold the lock of its dead launcher.

use crate::state::first_process::{self, FirstProcess};
use crate::state::identity::DirectoryId;
use nexus_driver::Handle;
use nexus_layer::disk::state_file::{self, Bounded, StateFileError};
use nexus_model::RunId;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{FlockType, Pid, fcntl_getlk};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
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
    /// True if the workspace has a layer.
    pub layered: bool,
    /// True if `nexus changes` works on a layer that waits, and no sandbox: a kill then changes nothing about it.
    #[serde(default)]
    pub reviewing: bool,
    /// True if it rejects the layer.
    #[serde(default)]
    pub rejecting: bool,
}

/// The record of a run that this process owns.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    /// Keeps the lock of the record.
    file: File,
    /// The place in the file that is free for the first process of the sandbox.
    room: Option<u64>,
}

/// Bytes that a record keeps free, so that a full disk stops no note in it.
const ROOM: usize = 384;

/// The part of a record that is written when the sandbox is there.
#[derive(Deserialize)]
struct Noted {
    #[serde(default)]
    first: Option<FirstProcess>,
}

impl Record {
    /// Writes and locks it. It has no name before it is whole.
    pub fn create(runs: &Path, content: &Content) -> io::Result<Self> {
        let path = Self::place(runs, content.handle.run_id);
        let mode = Mode::from_raw_mode(0o600);
        match rustix::fs::open(runs, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
            Ok(file) => {
                let file = File::from(file);
                let room = Some(fill(&file, content)?);
                let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::linkat(CWD, unnamed, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
                Ok(Self { path, file, room })
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
        match fill(&file, content).and_then(|room| std::fs::rename(&hidden, &path).map(|()| room)) {
            Ok(room) => Ok(Self { path, file, room: Some(room) }),
            // The error that matters is the first one; a leftover of this name is removed by a later command.
            Err(error) => Err(match std::fs::remove_file(&hidden) {
                Ok(()) => error,
                Err(second) => io::Error::other(format!("{error}; and {}: {second}", hidden.display())),
            }),
        }
    }

    /// Notes the first process of the sandbox. A power cut ends that process, so nothing is brought to the disk.
    pub fn note_first(&self, first: &FirstProcess) -> io::Result<()> {
        let room = self.room.ok_or_else(|| io::Error::other("the record has no room"))?;
        let text = format!(",\"first\":{}", serde_json::to_string(first)?);
        if text.len() > ROOM {
            return Err(io::Error::other("what identifies the sandbox is too long for the record"));
        }
        self.file.write_all_at(text.as_bytes(), room)
    }

    /// Takes the note back once the sandbox has ended: no later command has to ask for its process.
    pub fn forget_first(&self) -> io::Result<()> {
        self.room.map_or(Ok(()), |room| self.file.write_all_at(&[b' '; ROOM], room))
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

/// Writes the content with room before its last brace. Returns the place of the room.
fn fill(mut file: &File, content: &Content) -> io::Result<u64> {
    fcntl_lock(file, FlockOperation::NonBlockingLockExclusive)?;
    let mut text = serde_json::to_vec(content)?;
    let room = text.len() - 1;
    text.splice(room..room, [b' '; ROOM]);
    file.write_all(&text)?;
    Ok(room as u64)
}

/// Holds a record whose owner is gone, and which this process took over.
pub struct Orphan {
    record: Record,
    /// Identifies the run of the record.
    pub run: RunId,
    /// Holds what could be read of the record.
    pub state: RecordState,
    /// The first process of the sandbox, once it was noted; an error where it was and cannot be read.
    pub first: Result<Option<FirstProcess>, String>,
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
            first_process::remove(runs, self.run)?;
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

/// Locks the recovery of runs for one command; an error of the kind `WouldBlock` means that another one recovers. The lock
/// is on the directory of the records, which needs no room on a full disk.
pub fn only_recovery(runs: &Path) -> io::Result<Option<OwnedFd>> {
    let directory = rustix::fs::open(runs, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        // Over NFS only a file that is open for writing can be locked.
        Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes over the record of one run; `None` when there is none without a living owner.
pub fn orphan(runs: &Path, run: RunId) -> io::Result<Option<Orphan>> {
    take_over(&Record::place(runs, run), run, false)
}

/// A record as it was read, without its lock.
pub struct Inspected {
    /// The process that holds the lock: that of the run, or a command that works on what a run left. A number that is not
    /// known here (another pid namespace) is an inner `None`.
    pub owner: Option<Option<Pid>>,
    /// The first process of the sandbox, as in [`Orphan`].
    pub first: Result<Option<FirstProcess>, String>,
    /// The owner decides about changes that wait, and no command runs.
    pub reviewing: bool,
}

/// Reads the record of one run and takes no lock, so that no other command takes the run for a live one meanwhile, and
/// asking waits for no holder of the lock. `None` when there is no record.
pub fn inspect(runs: &Path, run: RunId) -> io::Result<Option<Inspected>> {
    let path = Record::place(runs, run);
    let file = match state_file::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if StateFileError::of(&error).is_some() => {
            return Ok(Some(Inspected { owner: None, first: Ok(None), reviewing: false }));
        }
        other => other?,
    };
    let owner = fcntl_getlk(&file, &FlockType::WriteLock.into())?.map(|lock| lock.pid);
    let (state, text) = read(&file, run)?;
    let reviewing = matches!(&state, RecordState::Complete(content) if content.reviewing);
    Ok(Some(Inspected { owner, first: first_of(&path, &state, &text), reviewing }))
}

/// Reads how much of a record is there, and its bytes.
fn read(file: &File, run: RunId) -> io::Result<(RecordState, Vec<u8>)> {
    let mut text = Vec::new();
    let state = match Bounded::new(file, state_file::MAX_NOTE).read_to_end(&mut text) {
        Ok(_) => match serde_json::from_slice::<Content>(&text) {
            Ok(content) if content.handle.run_id == run => RecordState::Complete(content),
            Ok(_) | Err(_) => RecordState::Corrupt,
        },
        Err(error) if StateFileError::of(&error).is_some() => RecordState::Corrupt,
        Err(error) => return Err(error),
    };
    Ok((state, text))
}

fn first_of(path: &Path, state: &RecordState, text: &[u8]) -> Result<Option<FirstProcess>, String> {
    let first = match state {
        RecordState::Complete(_) => serde_json::from_slice::<Noted>(text).map(|noted| noted.first),
        RecordState::Empty | RecordState::Corrupt => Ok(None),
    };
    first.map_err(|error| format!("{}: the first process of the sandbox: {error}", path.display()))
}

fn take_over(path: &Path, run: RunId, hidden: bool) -> io::Result<Option<Orphan>> {
    let file = match state_file::open_writable(path, false) {
        // Its owner, or another command that recovers, was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // No run made this, and none can lock it.
        Err(error) if StateFileError::of(&error).is_some() => {
            let record = Record { path: path.to_owned(), file: File::open("/dev/null")?, room: None };
            return Ok(Some(Orphan { record, run, state: RecordState::Corrupt, first: Ok(None) }));
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
    let (state, text) = read(&file, run)?;
    let state = if hidden { RecordState::Empty } else { state };
    // A hidden one may be a moment old and not yet locked by its owner: then another process decides about it.
    if hidden && mine.mtime() + 60 > now_seconds()? {
        return Ok(None);
    }
    let first = first_of(path, &state, &text);
    let record = Record { path: path.to_owned(), file, room: None };
    Ok(Some(Orphan { record, run, state, first }))
}

fn now_seconds() -> io::Result<i64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(now.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::first_process::Presence;
    use rustix::fd::AsFd;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::time::Instant;

    fn content() -> Content {
        let directory = r#"{"inode":1,"born":[2,3],"device":null}"#;
        Content {
            handle: Handle::of_nothing(RunId::new()),
            workspace: nexus_model::ByteText::from("/w"),
            directory: serde_json::from_str(directory).unwrap(),
            layered: true,
            reviewing: false,
            rejecting: false,
        }
    }

    /// The record as a command finds it after its owner's death.
    fn found(runs: &Path, content: &Content) -> Orphan {
        orphan(runs, content.handle.run_id).unwrap().unwrap()
    }

    #[test]
    fn a_record_tells_the_first_process_of_its_sandbox() {
        let runs = tempfile::tempdir().unwrap();
        let content = content();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let first = FirstProcess::of(pidfd_open(pid, PidfdFlags::empty()).unwrap().as_fd()).unwrap().unwrap();
        let record = Record::create(runs.path(), &content).unwrap();
        let path = Record::place(runs.path(), content.handle.run_id);
        let length = std::fs::metadata(&path).unwrap().len();
        assert_eq!(found(runs.path(), &content).first, Ok(None));
        record.note_first(&first).unwrap();
        let orphan = found(runs.path(), &content);
        assert!(matches!(&orphan.state, RecordState::Complete(found) if *found == content));
        assert_eq!(orphan.first, Ok(Some(first)));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), length, "a note needs no room on the disk");
        let found_first = orphan.first.unwrap().unwrap();
        assert_eq!(found_first.presence(Instant::now()).unwrap(), Presence::There);
        record.forget_first().unwrap();
        let orphan = found(runs.path(), &content);
        assert!(matches!(orphan.state, RecordState::Complete(_)) && orphan.first == Ok(None), "the sandbox has ended");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_first_process_that_cannot_be_read_is_an_error() {
        let runs = tempfile::tempdir().unwrap();
        let content = content();
        let record = Record::create(runs.path(), &content).unwrap();
        record.file.write_all_at(br#","first":{"pid":1}"#, record.room.unwrap()).unwrap();
        let orphan = found(runs.path(), &content);
        assert!(matches!(orphan.state, RecordState::Complete(_)) && orphan.first.is_err(), "of another version");
    }
}
