//! Takes states of a workspace, and compares them with it.

use super::error::CheckpointError;
use super::files::Files;
use super::record::{LiveRun, State, Unfinished, VERSION};
use crate::beneath;
use nexus_layer::LeaseCall;
use nexus_model::{ByteText, RunId};
use nexus_snapshot::object::{Content, Entry, Node};
use nexus_snapshot::scan::Progress;
use nexus_snapshot::{
    Cache, Change, FsTime, Hold, LeftOut, Most, ObjectId, ScanOptions, Scanned, SnapshotError, Store, Swept, Writer,
    compare, put_back, reach, scan, sweep,
};
use rustix::fd::{AsFd as _, BorrowedFd};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of the directory in the state directory.
const DIRECTORY: &str = "checkpoints";
const OBJECTS: &str = "objects";

/// The run and the workspace that a state is about.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Id of the run.
    pub run: RunId,
    /// Path of the workspace.
    pub workspace: ByteText,
    /// Name of the directory that has this path, which no other directory has.
    pub directory: String,
    /// The command and its arguments.
    pub command: Vec<ByteText>,
}

/// The workspace beside the states of a run.
#[derive(Debug)]
pub struct Present {
    /// Differences of the workspace from the checkpoint.
    pub changes: Vec<Change>,
    /// Paths that differ from the state that the run left; where it left none, entries that were changed since its end.
    pub since: BTreeSet<Vec<u8>>,
    top: ObjectId,
    wanted: ObjectId,
    store: Store,
}

/// One side of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The entry as it is kept.
    pub entry: Entry,
    /// The bytes of a file; `None` for other entries and for a file that is larger than was allowed.
    pub bytes: Option<Vec<u8>>,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory, never a link to one.
    Directory,
    /// A symbolic link.
    Link,
}

impl Side {
    /// Returns its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.entry.node {
            Node::File(_) | Node::Same(_) => Kind::File,
            Node::Directory(_) => Kind::Directory,
            Node::Link(_) => Kind::Link,
        }
    }

    /// Returns its permission bits.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.entry.attributes.mode
    }

    /// Returns the bytes of a file, or the target of a link.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        match &self.entry.node {
            Node::Link(target) => Some(target),
            _ => self.bytes.as_deref(),
        }
    }

    /// Returns the number of bytes of a file.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.entry.node {
            Node::File(content) => content.size(),
            _ => 0,
        }
    }

    /// Returns the BLAKE3 hash of the bytes, in hexadecimal, where they were read.
    #[must_use]
    pub fn hash(&self) -> Option<String> {
        self.bytes.as_ref().map(|bytes| blake3::hash(bytes).to_hex().to_string())
    }
}

impl Present {
    /// Returns an entry as it was at the checkpoint (`false`) or is now (`true`), with the bytes of a file of at most `most`.
    pub fn side(&mut self, now: bool, path: &[u8], most: u64) -> Result<Option<Side>, CheckpointError> {
        let top = if now { self.top } else { self.wanted };
        let Some(entry) = put_back::file_at(&mut self.store, &top, path)? else { return Ok(None) };
        let bytes = match &entry.node {
            Node::File(content) if content.size() <= most => Some(read(&mut self.store, content)?),
            _ => None,
        };
        Ok(Some(Side { entry, bytes }))
    }
}

fn read(store: &mut Store, content: &Content) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    store.each_piece(content, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

/// The checkpoints of a state directory.
#[derive(Debug)]
pub struct Checkpoints {
    path: PathBuf,
    pub(super) files: Files,
    pub(super) leases: Option<LeaseCall>,
}

impl Checkpoints {
    /// Opens the checkpoints of a state directory, and makes their directory where it is missing.
    pub fn make(state: &Path) -> Result<Self, CheckpointError> {
        let path = state.join(DIRECTORY);
        let files = Files::open(&path, true)?.ok_or(std::io::ErrorKind::NotFound).map_err(std::io::Error::from)?;
        Ok(Self { path, files, leases: None })
    }

    /// Opens the checkpoints of a state directory; `None` where there are none.
    pub fn open(state: &Path) -> Result<Option<Self>, CheckpointError> {
        let path = state.join(DIRECTORY);
        Ok(Files::open(&path, false)?.map(|files| Self { path, files, leases: None }))
    }

    /// Finds out with this call which displaced files a process has open for writing. Without it no file counts as open.
    #[must_use]
    pub fn with_leases(self, call: LeaseCall) -> Self {
        Self { leases: Some(call), ..self }
    }

    /// Returns the records of all live runs, the last one first, and those that cannot be used.
    pub fn runs(&self) -> Result<(Vec<LiveRun>, Vec<CheckpointError>), CheckpointError> {
        self.files.runs()
    }

    /// Returns the record of a run.
    pub fn run(&self, run: RunId) -> Result<LiveRun, CheckpointError> {
        self.files.run(run)
    }

    /// Returns the undo of a directory that has not ended.
    pub fn unfinished(&self, directory: &str) -> Result<Option<Unfinished>, CheckpointError> {
        self.files.unfinished(directory)
    }

    /// Keeps the state of a workspace before a run. `most` bounds what has to be read.
    pub fn take(
        &self,
        subject: Subject,
        root: BorrowedFd<'_>,
        most: Option<Most>,
        tell: Progress<'_>,
    ) -> Result<LiveRun, CheckpointError> {
        let mut store = self.store(Hold::Use)?;
        let options = ScanOptions { most, ..ScanOptions::default() };
        let Read { state: checkpoint, .. } = self.scanned(&mut store, &subject.directory, root, options, tell)?;
        let Subject { run, workspace, directory, command } = subject;
        let (version, ended, end, kept) = (VERSION, None, None, Vec::new());
        let record = LiveRun { version, run, workspace, directory, command, checkpoint, ended, end, kept };
        self.files.put_run(&record)?;
        Ok(record)
    }

    /// Keeps the state that a run left, and returns what cannot be kept of it. The run ended at a time of [`clock`]. The time is kept also where the state is not. `most` bounds what has to be read, beside as much as there was before the run.
    pub fn end(
        &self,
        run: RunId,
        root: BorrowedFd<'_>,
        ended: FsTime,
        most: Option<Most>,
        tell: Progress<'_>,
    ) -> Result<(LiveRun, Vec<LeftOut>), CheckpointError> {
        let mut record = self.files.run(run)?;
        record.ended = Some((ended.sec, ended.nsec));
        self.files.put_run(&record)?;
        let mut store = self.store(Hold::Use)?;
        let options = later(&record, most);
        let read = self.scanned(&mut store, &record.directory, root, options, tell)?;
        record.end = Some(read.state);
        self.files.put_run(&record)?;
        Ok((record, read.unkept))
    }

    /// Compares the workspace with the states of a run. The present state is kept in the store, and in no record. `most` bounds what has to
    /// be read, beside as much as there is in the largest state.
    pub fn present(
        &self,
        record: &LiveRun,
        root: BorrowedFd<'_>,
        most: Option<Most>,
        tell: Progress<'_>,
    ) -> Result<Present, CheckpointError> {
        let mut store = self.store(Hold::Use)?;
        let options = ScanOptions { changed_since: since_end(record), ..later(record, most) };
        let Read { state: now, changed, .. } = self.scanned(&mut store, &record.directory, root, options, tell)?;
        let (wanted, top) = (top_of(&record.checkpoint, record.run)?, top_of(&now, record.run)?);
        let nothing = HashMap::new();
        let changes = compare(&mut store, &wanted, &top, &nothing)?;
        let since = match &record.end {
            Some(end) => {
                let since = compare(&mut store, &top_of(end, record.run)?, &top, &nothing)?;
                since.into_iter().map(|change| change.path).collect()
            }
            None => changed,
        };
        Ok(Present { changes, since, top, wanted, store })
    }

    /// Removes the record of a run. Its objects go with the next cleaning, unless another record reaches them.
    pub fn forget(&self, run: RunId) -> Result<(), CheckpointError> {
        self.files.remove_run(run)
    }

    /// Removes every object that no record reaches. Refused while another process uses the store, and where a record is damaged.
    pub fn clean(&self, tell: &mut dyn FnMut(u64, u64)) -> Result<Swept, CheckpointError> {
        let mut store = self.store(Hold::Clean)?;
        let (all, mut damaged) = self.files.runs()?;
        if let Some(error) = damaged.pop() {
            return Err(error);
        }
        let mut reached = HashSet::new();
        for one in &all {
            for state in std::iter::once(&one.checkpoint).chain(&one.end).chain(&one.kept) {
                reach(&mut store, &top_of(state, one.run)?, &mut reached)?;
            }
        }
        Ok(sweep(&mut store, &reached, tell)?)
    }

    pub(super) fn store(&self, hold: Hold) -> Result<Store, CheckpointError> {
        Ok(Store::open(&self.path.join(OBJECTS), hold)?)
    }

    /// Reads the workspace into the store.
    pub(super) fn scanned(
        &self,
        store: &mut Store,
        directory: &str,
        root: BorrowedFd<'_>,
        options: ScanOptions,
        tell: Progress<'_>,
    ) -> Result<Read, CheckpointError> {
        let before = Cache::read(&self.files.cache(directory));
        let (now, taken_ms) = now();
        let mut writer = Writer::new(store);
        // A descriptor of its own: a listing goes on where an earlier one ended.
        let root = beneath::directory(root, ".")?;
        let scanned: Scanned = scan(root.as_fd(), &mut writer, &before, now, options, tell)?;
        writer.finish()?;
        if scanned.cache != before
            && let Ok(bytes) = scanned.cache.bytes()
        {
            self.files.keep_cache(directory, &bytes);
        }
        Ok(Read { state: State::of(&scanned, taken_ms), changed: scanned.changed, unkept: scanned.unkept })
    }
}

/// Returns the time of the clock by which file systems set time stamps.
#[must_use]
pub fn clock() -> FsTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    FsTime { sec: now.tv_sec, nsec: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// Returns the time at which a run ended, if no state shows what it left.
pub(super) fn since_end(record: &LiveRun) -> Option<FsTime> {
    if record.end.is_some() {
        return None;
    }
    record.ended.map(|(sec, nsec)| FsTime { sec, nsec })
}

/// A workspace that was read.
pub(super) struct Read {
    pub(super) state: State,
    /// Entries that were changed since the time that the options give.
    pub(super) changed: BTreeSet<Vec<u8>>,
    /// Entries that cannot be kept, although they are of a kind that is.
    pub(super) unkept: Vec<LeftOut>,
}

/// Returns the options of a scan after a run.
pub(super) fn later(record: &LiveRun, most: Option<Most>) -> ScanOptions {
    let most = most.map(|most| beside(record, most));
    ScanOptions { most, leaves_out: true, ..ScanOptions::default() }
}

/// Allows so much beside what the largest state of a run has.
fn beside(record: &LiveRun, most: Most) -> Most {
    let all = || std::iter::once(&record.checkpoint).chain(&record.end).chain(&record.kept);
    let entries = all().map(|state| state.entries).max().unwrap_or(0);
    let bytes = all().map(|state| state.bytes).max().unwrap_or(0);
    Most {
        files: most.files.saturating_add(entries),
        bytes: most.bytes.saturating_add(bytes),
        apparent: most.apparent.saturating_add(bytes),
    }
}

pub(super) fn top_of(state: &State, run: RunId) -> Result<ObjectId, CheckpointError> {
    let damaged = || CheckpointError::Damaged { file: format!("runs/{run}"), why: "a state has no name".to_owned() };
    state.top().ok_or_else(damaged)
}

pub(super) fn now() -> (FsTime, u64) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (FsTime { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }, since.as_millis() as u64)
}
