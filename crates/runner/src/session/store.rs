//! The store of detached sandboxes on disk, one directory each.
//!
//! ```text
//!  .new-ID ──rename, when its name is free──▶ ID ──ending.json──▶ ended ──rm: rename──▶ .gone-ID ──▶ nothing
//!     about.json, lock (held), socket          └─ lock free and no ending.json: lost
//! ```
//! A sandbox is alive while its lock is held: a record lock of fcntl(2), which belongs to the supervisor's process
//! alone and goes with it, however it ends. A process id could be that of another process by now.

use crate::recover::retry::patiently;
use crate::session::name::Name;
use crate::state::directory::StateDir;
use nexus_layer::disk::state_file;
use nexus_model::plan::FileId;
use nexus_model::{ByteText, ExitReason, RunId};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{FlockType, Pid, fcntl_getlk};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const ABOUT: &str = "about.json";
const ENDING: &str = "ending.json";
const LOCK: &str = "lock";
/// Least characters of an id that stand for the whole.
const MIN_PREFIX: usize = 4;
const SOCKET: &str = "socket";
/// The last output, as frames.
const OUTPUT: &str = "output";

/// Facts about a sandbox that are known from its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The version of this form; see [`FORM`].
    pub version: u32,
    /// The id of the run.
    pub id: RunId,
    /// The name of the sandbox, if it has one.
    pub name: Option<Name>,
    /// The command and its arguments.
    pub command: Vec<ByteText>,
    /// The workspace of the run.
    pub workspace: ByteText,
    /// True if the command has a terminal.
    pub terminal: bool,
    /// Pairs of host port and port inside.
    pub published: Vec<(u16, u16)>,
    /// The process id of the supervisor.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// The same; none before the command has started.
    pub started_ms: Option<u64>,
    /// True if the workspace has a layer, which does not follow the files outside; not said by older versions.
    #[serde(default)]
    pub layered: bool,
    /// The workspace when the sandbox started; not said by older versions.
    #[serde(default)]
    pub workspace_at_start: Option<WorkspaceAtStart>,
}

/// The facts about a workspace from the start of a sandbox, by which `nexus exec` finds the document that holds for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceAtStart {
    /// The device and inode of the directory.
    pub id: FileId,
    /// True if it had a policy document.
    pub has_document: bool,
}

/// The form of [`SessionInfo`] and [`ExitRecord`] that this code writes.
pub const FORM: u32 = 1;

/// The end of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Exit code of `nexus run`.
    pub exit: u8,
    /// The reason of the end; `None` if the run failed before it had one.
    pub reason: Option<ExitReason>,
    /// Milliseconds since 1970.
    pub ended_ms: u64,
    /// The text for the user: limits, changes that wait.
    pub message: String,
    /// The document of the run, as `nexus run --json` prints it.
    pub report: serde_json::Value,
}

/// Condition of a sandbox, as its directory shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The sandbox is being made.
    Starting,
    /// The command runs.
    Running,
    /// The sandbox has ended.
    Ended(Box<ExitRecord>),
    /// The supervisor was killed.
    Lost,
}

impl Condition {
    /// Returns the condition in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ended(_) => "ended",
            Self::Lost => "lost",
        }
    }

    /// Reports whether the sandbox has a supervisor to talk to.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

/// One sandbox of the store.
#[derive(Debug, Clone)]
pub struct Entry {
    directory: PathBuf,
    /// The facts from the start of the sandbox.
    pub about: SessionInfo,
    /// The condition when the entry was read.
    pub condition: Condition,
}

/// All detached sandboxes of a state directory.
pub struct Store {
    root: PathBuf,
    /// Takes the error of a sandbox that cannot be read, when the others are listed.
    unreadable: fn(StoreError),
}

/// Error of the store, or a sandbox that it does not have.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory cannot be used.
    #[error("{} cannot be used: {source}", path.display())]
    Unusable {
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users could read the directory.
    #[error("{} is not a directory that only you can open", root.display())]
    OpenToOthers {
        /// The directory of the store.
        root: PathBuf,
    },
    /// Several ids start with the text.
    #[error("{count} sandboxes have ids that start with {text}")]
    Ambiguous {
        /// Number of the sandboxes.
        count: usize,
        /// The start of an id that was asked for.
        text: String,
    },
    /// No sandbox has this id or name.
    #[error("there is no sandbox {text}{}", meant.as_ref().map(|meant| format!("; did you mean {meant}?")).unwrap_or_default())]
    Unknown {
        /// The id or name that was asked for.
        text: String,
        /// The closest name.
        meant: Option<String>,
    },
    /// Another sandbox has the name.
    #[error("the name {name} is that of the sandbox {by}")]
    NameTaken {
        /// The name that was asked for.
        name: Name,
        /// The id of the sandbox that has it.
        by: RunId,
    },
    /// The lock under which a sandbox gets its name is held for some calls; only a process that is stopped holds it longer.
    #[error(
        "The sandbox got no name, because another nexus has locked {} for more than five seconds. Nothing was started",
        root.display()
    )]
    Busy {
        /// The directory of the store.
        root: PathBuf,
    },
}

impl StoreError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unusable { .. } | Self::OpenToOthers { .. } => "state_dir",
            Self::Ambiguous { .. } => "ambiguous",
            Self::Unknown { .. } => "no_session",
            Self::NameTaken { .. } => "name",
            Self::Busy { .. } => "busy",
        }
    }
}

/// The directory of a sandbox that this process supervises.
pub struct OwnedSession {
    root: PathBuf,
    directory: PathBuf,
    /// Never opened again by this process: closing any descriptor of it would give the lock up (fcntl(2)).
    _lock: File,
    /// The socket to which clients connect.
    pub listener: UnixListener,
    /// The facts that are written in the directory.
    pub about: SessionInfo,
}

impl Store {
    /// Opens the store, and makes its directory if it is missing. `unreadable` takes the errors of sandboxes that cannot be
    /// read when the others are listed.
    pub fn open(places: &StateDir, unreadable: fn(StoreError)) -> Result<Self, StoreError> {
        let root = places.state.join("sessions");
        let made = match DirBuilder::new().mode(0o700).create(&root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        let meta = made.and_then(|()| std::fs::symlink_metadata(&root)).map_err(|error| failed(&root, error))?;
        if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
            return Err(StoreError::OpenToOthers { root });
        }
        Ok(Self { root, unreadable })
    }

    /// Lists every sandbox, the oldest first.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(|error| failed(&self.root, error))? {
            let entry = entry.map_err(|error| failed(&self.root, error))?;
            if entry.file_name().to_str().is_some_and(|name| name.parse::<RunId>().is_ok()) {
                match read_entry(&entry.path()) {
                    Ok(entry) => found.extend(entry),
                    // One that cannot be read does not hide the others.
                    Err(error) => (self.unreadable)(failed(&entry.path(), error)),
                }
            }
        }
        found.sort_by_key(|entry: &Entry| entry.about.id);
        Ok(found)
    }

    /// Removes what processes that were killed left half made or half removed.
    pub fn clean(&self) -> Result<(), StoreError> {
        for entry in std::fs::read_dir(&self.root).map_err(|error| failed(&self.root, error))? {
            let path = entry.map_err(|error| failed(&self.root, error))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let half = name.starts_with(".gone-") || (name.starts_with(".new-") && is_old(&path));
            let held = match is_held(&path) {
                // Its lock went before it, or was never made.
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                other => half && other.map_err(|error| failed(&path, error))?,
            };
            if half && !held {
                remove(&path).map_err(|error| failed(&path, error))?;
            }
        }
        Ok(())
    }

    /// Finds the sandbox with this id, this name or this start of an id.
    pub fn find(&self, text: &str) -> Result<Entry, StoreError> {
        let mut all = self.list()?;
        let names: Vec<String> = all.iter().filter_map(|entry| Some(entry.about.name.as_ref()?.to_string())).collect();
        let exact = |entry: &Entry| {
            entry.about.id.to_string() == text || entry.about.name.as_ref().is_some_and(|name| name.as_ref() == text)
        };
        if let Some(at) = all.iter().position(exact) {
            return Ok(all.swap_remove(at));
        }
        // A mistyped digit or two must not end whatever is the only one.
        all.retain(|entry| text.len() >= MIN_PREFIX && entry.about.id.to_string().starts_with(text));
        if all.len() > 1 {
            return Err(StoreError::Ambiguous { count: all.len(), text: text.to_owned() });
        }
        all.pop().ok_or_else(|| {
            let meant = nexus_policy::profile::closest(text, names.iter().map(String::as_str));
            StoreError::Unknown { text: text.to_owned(), meant: meant.map(str::to_owned) }
        })
    }

    /// Makes the directory of a new sandbox, if its name is free.
    pub fn create(&self, about: SessionInfo) -> Result<OwnedSession, StoreError> {
        let hidden = self.root.join(format!(".new-{}", about.id));
        let directory = self.root.join(about.id.to_string());
        let make = || -> io::Result<(File, UnixListener)> {
            DirBuilder::new().mode(0o700).create(&hidden)?;
            let lock = File::options().write(true).create_new(true).mode(0o600).open(hidden.join(LOCK))?;
            fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            write(&hidden, ABOUT, &serde_json::to_vec(&about).map_err(io::Error::other)?)?;
            let listener = UnixListener::bind(in_directory(&File::open(&hidden)?, SOCKET))?;
            listener.set_nonblocking(true)?;
            Ok((lock, listener))
        };
        let (lock, listener) = make().map_err(|error| failed(&hidden, error))?;
        if let Err(error) = self.show(&hidden, &directory, &about) {
            remove(&hidden).map_err(|error| failed(&hidden, error))?;
            return Err(error);
        }
        Ok(OwnedSession { root: self.root.clone(), directory, _lock: lock, listener, about })
    }

    /// Gives the directory its name. One process at a time, so that two sandboxes cannot get one name.
    fn show(&self, hidden: &Path, directory: &Path, about: &SessionInfo) -> Result<(), StoreError> {
        let alone = File::open(&self.root).map_err(|error| failed(&self.root, error))?;
        let take = || rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive);
        match patiently(take, |error| matches!(*error, Errno::WOULDBLOCK | Errno::INTR)) {
            Err(Errno::WOULDBLOCK) => return Err(StoreError::Busy { root: self.root.clone() }),
            other => other.map_err(|error| failed(&self.root, error.into()))?,
        }
        if let Some(name) = &about.name
            && let Some(other) = self.list()?.into_iter().find(|entry| entry.about.name.as_ref() == Some(name))
        {
            return Err(StoreError::NameTaken { name: name.clone(), by: other.about.id });
        }
        std::fs::rename(hidden, directory).map_err(|error| failed(directory, error))
    }

    /// Removes everything that is kept of a sandbox that is over.
    pub fn remove(&self, entry: &Entry) -> Result<(), StoreError> {
        let gone = self.root.join(format!(".gone-{}", entry.about.id));
        match std::fs::rename(&entry.directory, &gone) {
            // Another process removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.and_then(|()| remove(&gone)),
        }
        .map_err(|error| failed(&entry.directory, error))
    }
}

impl OwnedSession {
    /// Records that the command has started.
    pub fn started(&mut self) -> io::Result<()> {
        self.about.started_ms = Some(now_ms());
        write(&self.directory, ABOUT, &serde_json::to_vec(&self.about).map_err(io::Error::other)?)
    }

    /// Records that the sandbox has ended: first its latest output, and then the ending, which is what counts.
    pub fn ended(&self, ending: &ExitRecord, output: &[u8]) -> io::Result<()> {
        write(&self.directory, OUTPUT, output)?;
        write(&self.directory, ENDING, &serde_json::to_vec(ending).map_err(io::Error::other)?)
    }

    /// Removes the socket, so that no client can connect any more. The directory may be gone already.
    pub fn close(&self) -> io::Result<()> {
        match std::fs::remove_file(self.directory.join(SOCKET)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes the directory, because the command never started.
    pub fn forget(self) -> io::Result<()> {
        let gone = self.root.join(format!(".gone-{}", self.about.id));
        std::fs::rename(&self.directory, &gone)?;
        remove(&gone)
    }
}

impl Entry {
    /// Talks to its supervisor, which must be the same user. Nothing waits: an error of the kind `WouldBlock` means that
    /// too many clients wait for the supervisor already.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let directory = File::open(&self.directory)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(in_directory(&directory, SOCKET))?)?;
        if rustix::net::sockopt::socket_peercred(&socket)?.uid != rustix::process::geteuid() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the supervisor is another user's"));
        }
        Ok(socket.into())
    }

    /// Returns the number of the process that holds the lock of the sandbox, if that is one of this pid namespace.
    pub fn lock_holder(&self) -> io::Result<Option<Pid>> {
        let lock = state_file::open(&self.directory.join(LOCK))?;
        Ok(fcntl_getlk(&lock, &FlockType::WriteLock.into())?.and_then(|found| found.pid))
    }

    /// Reads the latest output of the sandbox, as frames.
    pub fn output(&self) -> io::Result<Vec<u8>> {
        std::fs::read(self.directory.join(OUTPUT))
    }

    /// Reads the entry again; `None` when it was removed.
    pub fn again(&self) -> Result<Option<Entry>, StoreError> {
        read_entry(&self.directory).map_err(|error| failed(&self.directory, error))
    }
}

fn read_entry(directory: &Path) -> io::Result<Option<Entry>> {
    // The lock before the ending: who gives the lock up has written the ending before.
    let held = match is_held(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let Some(about) = read_json::<SessionInfo>(&directory.join(ABOUT))? else { return Ok(None) };
    let condition = match read_json::<ExitRecord>(&directory.join(ENDING))? {
        Some(ending) => Condition::Ended(Box::new(ending)),
        None if !held => Condition::Lost,
        None if about.started_ms.is_some() => Condition::Running,
        None => Condition::Starting,
    };
    Ok(Some(Entry { directory: directory.to_owned(), about, condition }))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match state_file::read(path, state_file::MAX_NOTE) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reports whether the supervisor lives. Tries a shared lock, so that two processes that ask do not see each other.
fn is_held(directory: &Path) -> io::Result<bool> {
    let lock = state_file::open(&directory.join(LOCK))?;
    match fcntl_lock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::ACCESS | Errno::AGAIN) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn is_old(path: &Path) -> bool {
    let age = path.metadata().and_then(|meta| meta.modified()).map(|at| at.elapsed());
    matches!(age, Ok(Ok(age)) if age.as_secs() > 60)
}

/// Writes a file whole or not at all.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let half = directory.join(format!(".{name}"));
    match std::fs::remove_file(&half) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&half)?;
    io::Write::write_all(&mut file, bytes)?;
    // After a power cut a file of this name has its content.
    file.sync_data()?;
    std::fs::rename(half, directory.join(name))
}

fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns a path for a socket, which may have 108 bytes at most (unix(7)): a state directory may be longer.
fn in_directory(directory: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Returns the milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::Unusable { path: path.to_owned(), source }
}
