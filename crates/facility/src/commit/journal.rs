//! The journal: the decision to commit, written before the workspace changes.
//!
//! ```text
//!  (nothing) ──stage, write, sync, rename──▶ journal ──apply, sync──▶ outcome + journal.done ──finish──▶ layer gone | parked.json
//!   crash: old version                 crash: applied again     crash: finished again
//! ```
//! The rename to `journal` is the commit point. The file has a header line, a line for each step and a closing line with
//! the number of steps, so that a reader notices a journal that was cut off.

use crate::beneath::{Doing as _, IoFailure, Workspace, open_file, unlink_if_there};
use crate::changes::{Change, ChangeSet, Conflict};
use crate::commit::leftover::Leftover;
use crate::commit::ops::Op;
use crate::faults::Faults;
use crate::identity::Home;
use crate::marks::LayerMode;
use crate::meta::{FileId, FsTime};
use crate::plan::Keep;
use crate::started::{Clocks, Started, effective};
use crate::state_file::{Bounded, MAX_LAYER_FILE};
use crate::tree::Own;
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufReader, BufWriter, Read as _, Write};

/// The version of the format. Version 1 replaced entries without comparing them.
pub(crate) const VERSION: u32 = 2;

/// The decided commit, to be applied.
pub(crate) const JOURNAL: &str = "journal";
/// The result of applying it.
pub(crate) const OUTCOME: &str = "outcome";
/// The applied commit, to be tidied up.
pub(crate) const DONE: &str = "journal.done";
/// What stays for a review.
pub(crate) const PARKED: &str = "parked.json";
/// Time stamps of what a commit that was taken back put where it had been, until the layer is parked.
pub(crate) const OURS: &str = "ours.json";
/// The staging directory inside the layer's directory.
pub(crate) const SLOTS: &str = "slots";

/// The file system that the staging directory is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotPlace {
    /// In the layer's directory, which is on the workspace's mount.
    Layer,
    /// In the workspace, under the name [`slots_in_workspace`]: the layer is on another file system.
    Workspace,
}

/// The name of the staging directory in a workspace.
#[must_use]
pub fn slots_in_workspace(run: &str) -> String {
    format!(".nexus-tmp-{run}")
}

/// A directory of the workspace in which the commit works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its path after renames.
    pub path: ByteText,
    /// Its identity: another directory in its place takes no part of the commit.
    pub id: FileId,
}

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Format.
    pub version: u32,
    /// The run.
    pub run: String,
    /// The workspace.
    pub home: Home,
    /// Who mounted the layer.
    pub mode: LayerMode,
    /// Where the slots are.
    pub slots: SlotPlace,
    /// The directories that the commit works in.
    pub parents: Vec<Parent>,
    /// What stays.
    pub keep: Vec<Keep>,
    /// What stays, for the report.
    pub parked: Vec<Change>,
    /// What the commit brings, for the report.
    pub committed: Vec<Change>,
    /// See [`crate::plan::CommitPlan::rewritten`].
    pub rewritten: Vec<ByteText>,
    /// When the layer was made.
    pub started: FsTime,
    /// By which clock that was; missing for layers of older versions.
    #[serde(default)]
    pub clock: Option<Started>,
    /// Earlier commits of this layer wrote these.
    pub ours: Vec<Own>,
}

/// A decided commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// What it is about.
    pub header: Header,
    /// What to do.
    pub ops: Vec<Op>,
}

#[derive(Serialize, Deserialize)]
struct Closing {
    ops: usize,
}

/// A path that a commit kept back after it was decided, because it had changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBack {
    /// The path.
    pub path: ByteText,
    /// What happened to it; `None` when it only hangs on a path that was kept back.
    pub conflict: Option<Conflict>,
    /// The layer still has the run's version.
    pub in_layer: bool,
    /// With everything beneath it.
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
    pub stamps: Vec<Own>,
    /// Files that were replaced or deleted without knowing that no process writes to them: the file system or the owner
    /// allows no lease.
    pub unwatched: u64,
    /// When directories left the workspace that are to be removed: what changed in them later belongs to another process.
    #[serde(default)]
    pub left_at: Vec<(ByteText, FsTime)>,
    /// What the commit displaced and could not remove.
    #[serde(default)]
    pub left: Vec<Leftover>,
    /// What waited was set aside together with what could not be removed, and is not to be reviewed any more.
    #[serde(default)]
    pub waits_aside: bool,
}

/// What a parked layer says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// Format.
    pub version: u32,
    /// Who mounted the layer.
    pub mode: LayerMode,
    /// When it was made: later changes in the workspace are conflicts.
    pub started: FsTime,
    /// By which clock that was; missing in layers of older versions.
    #[serde(default)]
    pub clock: Option<Started>,
    /// What a commit of a part of the layer wrote: no conflicts.
    pub ours: Vec<Own>,
    /// What is in it.
    pub changes: ChangeSet,
}

fn create_new(root: &Workspace, name: &str) -> Result<std::fs::File, IoFailure> {
    unlink_if_there(root.fd(), name.as_bytes()).doing("remove", name.as_bytes())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root.fd(), name, flags, Mode::from_raw_mode(0o600)).doing("make", name.as_bytes())?;
    Ok(std::fs::File::from(file))
}

fn publish(root: &Workspace, temp: &str, file: &std::fs::File, name: &str, faults: &Faults) -> Result<(), IoFailure> {
    faults.sync(|| file.sync_all()).doing("sync", temp.as_bytes())?;
    faults.action();
    rustix::fs::renameat(root.fd(), temp, root.fd(), name).doing("rename", temp.as_bytes())
}

/// Writes a file of the layer's directory so that after a crash it is whole or not there.
pub(crate) fn write<T: Serialize>(root: &Workspace, name: &str, value: &T, faults: &Faults) -> Result<(), IoFailure> {
    let text = serde_json::to_vec(value).map_err(std::io::Error::other).doing("encode", name.as_bytes())?;
    let temp = format!("{name}.new");
    let mut file = create_new(root, &temp)?;
    file.write_all(&text).doing("write", temp.as_bytes())?;
    publish(root, &temp, &file, name, faults)
}

/// Writes the journal. Its rename is the commit point.
pub(crate) fn write_journal(root: &Workspace, journal: &Journal, faults: &Faults) -> Result<(), IoFailure> {
    let temp = format!("{JOURNAL}.new");
    let mut file = BufWriter::with_capacity(1 << 16, create_new(root, &temp)?);
    journal.write_to(&mut file).and_then(|()| file.flush()).doing("write", temp.as_bytes())?;
    publish(root, &temp, file.get_ref(), JOURNAL, faults)
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
    let mut text = Vec::new();
    Bounded::new(file, MAX_LAYER_FILE).read_to_end(&mut text).doing("read", name.as_bytes())?;
    serde_json::from_slice(&text).map(Some).map_err(std::io::Error::other).doing("decode", name.as_bytes())
}

/// A journal as it was found.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundJournal {
    /// There is none.
    None,
    /// One of this version.
    Known(Box<Journal>),
    /// One of another version.
    Version(u32),
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Journal {
    /// The latest time stamp that counts as older than the run, as the clocks are now.
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
        for op in &self.ops {
            serde_json::to_writer(&mut *file, op)?;
            file.write_all(b"\n")?;
        }
        serde_json::to_writer(&mut *file, &Closing { ops: self.ops.len() })?;
        file.write_all(b"\n")
    }

    /// Reads the lines of a file. A file that is not whole is an error.
    pub fn read_from(file: impl std::io::BufRead) -> std::io::Result<FoundJournal> {
        let bad = |why: &dyn std::fmt::Display| Err(std::io::Error::other(format!("not a whole journal: {why}")));
        let mut lines = file.split(b'\n');
        let Some(first) = lines.next().transpose()? else { return bad(&"it is empty") };
        let header: Header = match serde_json::from_slice::<Versioned>(&first) {
            Ok(found) if found.version != VERSION => return Ok(FoundJournal::Version(found.version)),
            Ok(_) => match serde_json::from_slice(&first) {
                Ok(header) => header,
                Err(error) => return bad(&error),
            },
            Err(error) => return bad(&error),
        };
        let mut ops = Vec::new();
        for line in lines {
            let line = line?;
            let error = match serde_json::from_slice::<Op>(&line) {
                Ok(op) => {
                    ops.push(op);
                    continue;
                }
                Err(error) => error,
            };
            return match serde_json::from_slice::<Closing>(&line) {
                Ok(closing) if closing.ops == ops.len() => Ok(FoundJournal::Known(Box::new(Self { header, ops }))),
                Ok(_) => bad(&"steps are missing"),
                Err(_) => bad(&error),
            };
        }
        bad(&"its end is missing")
    }
}

/// Reads a journal under the name `journal` or `journal.done`.
pub(crate) fn read_journal(root: &Workspace, name: &str) -> Result<FoundJournal, IoFailure> {
    let Some(file) = open(root, name)? else { return Ok(FoundJournal::None) };
    let text = Bounded::new(file, MAX_LAYER_FILE);
    Journal::read_from(BufReader::with_capacity(1 << 16, text)).doing("decode", name.as_bytes())
}

/// The identity of the workspace that a half-done commit is for, if the layer has one.
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
