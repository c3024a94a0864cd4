//! The journal: the decision to commit, written before the workspace changes.
//!
//! ```text
//!  nothing ──stage, write, sync, rename──▶ journal ──apply, sync, rename──▶ outcome, journal.done ─finish─▶ gone | parked.json
//!   crash: old version               crash: applied again     crash: finished again
//! ```
//! The rename to `journal` is the commit point. The file has a header line, a line for each step and a closing line
//! with the number of steps, so that a reader notices a journal that was cut off.

mod header;
mod lines;

pub(crate) use self::header::VERSION;
pub use self::header::{Header, Parent, SlotPlace, slots_in_workspace};

use self::header::Closing;
use self::lines::{Counted, Lines, read_lines};
use crate::beneath::{Doing as _, IoFailure, Workspace, open_file, unlink_if_there};
use crate::disk::identity::Home;
use crate::disk::started::{Clocks, Started, effective};
use crate::disk::state_file::{Bounded, MAX_LAYER_FILE};
use crate::disk::top_directory::Top;
use crate::entries::changes::{ChangeSet, Conflict};
use crate::entries::marks::LayerMode;
use crate::entries::tree::CommittedEntry;
use crate::faults::Faults;
use crate::git::stash::Stash;
use crate::journal::step::Step;
use crate::journal::step_reader::{At, Steps};
use crate::meta::FsTime;
use crate::moves::beside::Aside;
use crate::moves::leftover::Leftover;
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, BufWriter, Read as _, Write};

/// The decided commit, to be applied.
pub(crate) const JOURNAL: &str = "journal";
/// Says that the decided commit is being taken back, which then goes on at a recovery.
pub(crate) const BACK: &str = "journal.back";
/// The result of applying it.
pub(crate) const OUTCOME: &str = "outcome";
/// The applied commit, to be tidied up.
pub(crate) const DONE: &str = "journal.done";
/// The changes of the layer that wait for a review.
pub(crate) const PARKED: &str = "parked.json";
/// Time stamps of what a commit that was taken back put where it had been, until the layer is parked.
pub(crate) const OURS: &str = "ours.json";
/// The staging directory inside the layer's directory.
pub(crate) const SLOTS: &str = "slots";
/// Says that the index of a layer has only the files that a commit of a part left in it.
pub(crate) const INDEX_IN_PART: &str = "work/part";

/// A decided commit.
#[derive(Debug)]
pub struct Journal {
    /// Facts about the commit and the layer.
    pub header: Header,
    /// The steps that carry the commit out.
    pub(crate) steps: Steps,
}

/// A path that a commit kept back after the decision, because another process had changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBack {
    /// Path in the workspace.
    pub path: ByteText,
    /// Event that happened to the path; `None` when it only hangs on a path that was kept back.
    pub conflict: Option<Conflict>,
    /// The layer still has the run's version.
    pub in_layer: bool,
    /// Set if everything below the path is kept back too.
    pub subtree: bool,
    /// The run's version is in the workspace all the same: what it displaced could not be removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arrived: bool,
}

/// The result of applying a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Paths that were kept back.
    pub kept: Vec<KeptBack>,
    /// Time stamps of what the commit wrote in another form than the layer has it.
    pub stamps: Vec<CommittedEntry>,
    /// Files that were replaced or deleted without knowing that no process writes to them: the file system or the owner
    /// allows no lease.
    pub unwatched: u64,
    /// When directories left the workspace that are to be removed: what changed in them later belongs to another
    /// process.
    #[serde(default)]
    pub left_at: Vec<(ByteText, FsTime)>,
    /// Entries that the commit displaced and could not remove.
    #[serde(default)]
    pub left: Vec<Leftover>,
    /// Versions that were put beside their paths.
    #[serde(default)]
    pub beside: Vec<Aside>,
    /// The changes that waited were set aside together with what could not be removed, and cannot be reviewed any more.
    #[serde(default)]
    pub waits_aside: bool,
    /// Commits that only refs name which were kept back. They are found again after a crash.
    #[serde(skip)]
    pub stashes: Vec<Stash>,
}

/// The record that a parked layer holds about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked<C = ChangeSet> {
    /// Version of the format.
    pub version: u32,
    /// Kind of launcher that mounted the layer.
    pub mode: LayerMode,
    /// When it was made: later changes in the workspace are conflicts.
    pub started: FsTime,
    /// By which clock that was; missing in layers of older versions.
    #[serde(default)]
    pub clock: Option<Started>,
    /// The attributes of the workspace's own directory then; missing in layers of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Top>,
    /// Versions that a commit of a part of the layer wrote: they are not conflicts.
    pub ours: Vec<CommittedEntry>,
    /// The changes in the layer.
    pub changes: C,
    /// True if no other user can reach the layer's entries; older versions did not check that.
    #[serde(default)]
    pub unreached: bool,
}

/// A [`ChangeSet`] whose list is written one by one.
#[derive(Serialize)]
pub(crate) struct ParkedChanges<L> {
    pub(crate) changes: L,
}

fn create_new(root: &Workspace, name: &str) -> Result<std::fs::File, IoFailure> {
    unlink_if_there(root.fd(), name.as_bytes()).doing("remove", name.as_bytes())?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root.fd(), name, flags, Mode::from_raw_mode(0o600)).doing("make", name.as_bytes())?;
    Ok(std::fs::File::from(file))
}

fn publish(root: &Workspace, temp: &str, file: &std::fs::File, name: &str, faults: &Faults) -> Result<(), IoFailure> {
    faults.sync(|| file.sync_all()).doing("sync", temp.as_bytes())?;
    faults.between_calls();
    rustix::fs::renameat(root.fd(), temp, root.fd(), name).doing("rename", temp.as_bytes())
}

/// Writes a file of the layer's directory so that after a crash it is whole or not there.
pub(crate) fn write<T: Serialize>(root: &Workspace, name: &str, value: &T, faults: &Faults) -> Result<(), IoFailure> {
    let temp = format!("{name}.new");
    let mut file = BufWriter::with_capacity(1 << 16, create_new(root, &temp)?);
    serde_json::to_writer(&mut file, value).map_err(std::io::Error::from).doing("write", temp.as_bytes())?;
    file.flush().doing("write", temp.as_bytes())?;
    publish(root, &temp, file.get_ref(), name, faults)
}

/// A journal that is being written, step by step. [`Self::publish`] is the commit point.
pub(crate) struct Writing {
    file: BufWriter<std::fs::File>,
    from: u64,
    steps: Steps,
}

/// A journal that is not decided yet.
pub(crate) const NEW: &str = "journal.new";

impl Writing {
    /// Begins with the header.
    pub(crate) fn begin<L: Serialize>(root: &Workspace, header: &Header<L>) -> Result<Self, IoFailure> {
        let mut counted = Counted { of: BufWriter::with_capacity(1 << 16, create_new(root, NEW)?), bytes: 0 };
        let written = serde_json::to_writer(&mut counted, header).map_err(std::io::Error::from);
        written.and_then(|()| counted.write_all(b"\n")).doing("write", NEW.as_bytes())?;
        Ok(Self { file: counted.of, from: counted.bytes, steps: Steps::default() })
    }

    /// Adds a step.
    pub(crate) fn step(&mut self, step: Step) -> Result<(), IoFailure> {
        let written = serde_json::to_writer(&mut self.file, &step).map_err(std::io::Error::from);
        written.and_then(|()| self.file.write_all(b"\n")).doing("write", NEW.as_bytes())?;
        self.steps.add(step);
        Ok(())
    }

    /// Ends the journal and gives it its name. The journal has this header, or the one that is read from the file
    /// again.
    ///
    /// The rename is the last call: an error of any call means that nothing was decided.
    pub(crate) fn publish(
        mut self,
        root: &Workspace,
        header: Option<Header>,
        faults: &Faults,
    ) -> Result<Journal, IoFailure> {
        let closing = Closing { steps: self.steps.count() };
        let written = serde_json::to_writer(&mut self.file, &closing).map_err(std::io::Error::from);
        written
            .and_then(|()| self.file.write_all(b"\n"))
            .and_then(|()| self.file.flush())
            .doing("write", NEW.as_bytes())?;
        let file =
            self.file.into_inner().map_err(std::io::IntoInnerError::into_error).doing("write", NEW.as_bytes())?;
        let header = if let Some(header) = header {
            header
        } else {
            let line = BufReader::with_capacity(1 << 16, At { file: &file, from: 0 });
            let header = serde_json::from_reader(line.take(self.from)).map_err(std::io::Error::from);
            header.doing("decode", NEW.as_bytes())?
        };
        publish(root, NEW, &file, JOURNAL, faults)?;
        self.steps.lie_in(file, self.from);
        Ok(Journal { header, steps: self.steps })
    }
}

fn open(root: &Workspace, name: &str) -> Result<Option<std::fs::File>, IoFailure> {
    match open_file(root.fd(), name.as_bytes(), OFlags::RDONLY) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => Ok(Some(std::fs::File::from(other.doing("open", name.as_bytes())?))),
    }
}

/// Reads a file of the layer's directory; `None` when it is not there.
pub(crate) fn read<T: DeserializeOwned>(root: &Workspace, name: &str) -> Result<Option<T>, IoFailure> {
    let Some(file) = open(root, name)? else { return Ok(None) };
    let file = BufReader::with_capacity(1 << 16, Bounded::new(file, MAX_LAYER_FILE));
    serde_json::from_reader(file).map(Some).map_err(std::io::Error::from).doing("decode", name.as_bytes())
}

/// A journal as it was read from the layer's directory.
#[derive(Debug)]
pub enum FoundJournal {
    /// The layer has no journal.
    None,
    /// A journal of this version.
    Known(Box<Journal>),
    /// A journal of this other version.
    Version(u32),
}

impl Journal {
    /// Returns the latest time stamp that counts as older than the run, as the clocks are now.
    pub(crate) fn start(&self) -> Result<FsTime, IoFailure> {
        match &self.header.clock {
            Some(clock) => Ok(effective(clock, &Clocks::now().doing("read the clocks", b"")?)),
            None => Ok(self.header.started),
        }
    }

    /// Writes the lines of the file.
    pub fn write_to(&self, file: &mut impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *file, &self.header)?;
        file.write_all(b"\n")?;
        for step in self.steps.each() {
            serde_json::to_writer(&mut *file, &step?)?;
            file.write_all(b"\n")?;
        }
        serde_json::to_writer(&mut *file, &Closing { steps: self.steps.count() })?;
        file.write_all(b"\n")
    }

    /// Reads the lines of a file. A file that is not whole is an error.
    pub fn read_from(file: impl BufRead) -> std::io::Result<FoundJournal> {
        Ok(match read_lines(file, Steps::all_in_memory())? {
            Lines::Version(version) => FoundJournal::Version(version),
            Lines::Known { header, steps, .. } => FoundJournal::Known(Box::new(Self { header: *header, steps })),
        })
    }
}

/// Reads a journal under the name `journal` or `journal.done`.
pub(crate) fn read_journal(root: &Workspace, name: &str) -> Result<FoundJournal, IoFailure> {
    let Some(file) = open(root, name)? else { return Ok(FoundJournal::None) };
    let text = Bounded::new(At { file: &file, from: 0 }, MAX_LAYER_FILE);
    let lines = BufReader::with_capacity(1 << 16, text);
    Ok(match read_lines(lines, Steps::default()).doing("decode", name.as_bytes())? {
        Lines::Version(version) => FoundJournal::Version(version),
        Lines::Known { header, mut steps, from } => {
            steps.lie_in(file, from);
            FoundJournal::Known(Box::new(Journal { header: *header, steps }))
        }
    })
}

/// Returns the identity of the workspace that a half-done commit is for, if the layer has one.
pub(crate) fn home_of(root: &Workspace) -> Result<Option<Home>, IoFailure> {
    for name in [DONE, JOURNAL] {
        if let FoundJournal::Known(journal) = read_journal(root, name)? {
            return Ok(Some(journal.header.home));
        }
    }
    Ok(None)
}

/// Makes what happened to the names in the layer's directory durable.
pub(crate) fn sync_directory(root: &Workspace, faults: &Faults) -> Result<(), IoFailure> {
    faults.sync(|| Ok(rustix::fs::fsync(root.fd())?)).doing("sync", b"")
}
