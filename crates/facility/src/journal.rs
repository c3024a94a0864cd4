//! The journal: the decision to commit, written before the workspace changes.
//!
//! ```text
//!  (nothing) ──write, fsync, rename──▶ journal ──apply, sync──▶ journal.done ──finish──▶ (layer gone, or parked.json)
//!   crash: old version                 crash: applied again     crash: finished again
//! ```
//! The rename to `journal` is the commit point.

use crate::beneath::{Doing as _, IoFailure, Workspace, open_file, unlink_if_there};
use crate::changes::{Change, ChangeSet};
use crate::marks::LayerMode;
use crate::meta::FsTime;
use crate::plan::{Action, Keep};
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write as _};

/// The version of the format; another one is refused.
const VERSION: u32 = 1;

/// The decided commit, to be applied.
pub(crate) const JOURNAL: &str = "journal";
/// The applied commit, to be tidied up.
pub(crate) const DONE: &str = "journal.done";
/// What stays for a review.
pub(crate) const PARKED: &str = "parked.json";

/// A decided commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Format.
    pub version: u32,
    /// The run, which temporary names carry.
    pub run: String,
    /// Who mounted the layer.
    pub mode: LayerMode,
    /// What to do.
    pub actions: Vec<Action>,
    /// What stays.
    pub keep: Vec<Keep>,
    /// What stays, for the report.
    pub parked: Vec<Change>,
    /// See [`crate::plan::CommitPlan::rewritten`].
    pub rewritten: Vec<ByteText>,
    /// When the layer was made.
    pub started: FsTime,
    /// Earlier commits of this layer wrote these.
    pub ours: Vec<(ByteText, FsTime)>,
}

impl Journal {
    pub(crate) fn is_known(&self) -> bool {
        self.version == VERSION
    }

    pub(crate) const fn version() -> u32 {
        VERSION
    }
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
    /// What a commit of a part of the layer wrote: no conflicts.
    pub ours: Vec<(ByteText, FsTime)>,
    /// What is in it.
    pub changes: ChangeSet,
}

/// Writes a file of the layer's folder so that after a crash it is whole or not there.
pub(crate) fn write<T: Serialize>(root: &Workspace, name: &str, value: &T) -> Result<(), IoFailure> {
    let text = serde_json::to_vec(value).map_err(std::io::Error::other).doing("encode", name.as_bytes())?;
    let temp = format!("{name}.new");
    unlink_if_there(root.fd(), temp.as_bytes()).doing("remove", temp.as_bytes())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(root.fd(), &*temp, flags, Mode::from_raw_mode(0o600)).doing("make", temp.as_bytes())?;
    let mut file = std::fs::File::from(file);
    file.write_all(&text).doing("write", temp.as_bytes())?;
    file.sync_all().doing("sync", temp.as_bytes())?;
    rustix::fs::renameat(root.fd(), &*temp, root.fd(), name).doing("rename", temp.as_bytes())
}

/// Reads a file of the layer's folder; `None` when it is not there.
pub(crate) fn read<T: DeserializeOwned>(root: &Workspace, name: &str) -> Result<Option<T>, IoFailure> {
    let opened = match open_file(root.fd(), name.as_bytes(), OFlags::RDONLY) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other,
    };
    let file = opened.doing("open", name.as_bytes())?;
    let mut text = Vec::new();
    std::fs::File::from(file).read_to_end(&mut text).doing("read", name.as_bytes())?;
    serde_json::from_slice(&text).map(Some).map_err(std::io::Error::other).doing("decode", name.as_bytes())
}

/// Makes what happened to the names in the layer's folder durable.
pub(crate) fn sync_folder(root: &Workspace) -> Result<(), IoFailure> {
    rustix::fs::fsync(root.fd()).doing("sync", b"")
}
