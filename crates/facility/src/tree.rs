//! What was read from a layer and from the places of the workspace that it covers. Plain data; `plan` decides on it.

use crate::hardlinks::Tie;
use crate::marks::{LayerMode, Marks};
use crate::meta::{FileId, FsTime, Meta};
use nexus_model::ByteText;
use std::collections::HashMap;

/// An entry of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the workspace as it is now.
    pub at: ByteText,
    /// Its attributes.
    pub meta: Meta,
}

/// The directory of the workspace that a directory of the layer continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lower {
    /// None: the directory is new, or the entry is no directory.
    None,
    /// The one at the same place.
    Merged(Found),
    /// One that was renamed to this place.
    Moved(Found),
    /// One that was renamed to this place and is no longer where it was.
    Missing,
}

/// What stands at a path of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A file, directory, link …
    Entry,
    /// Overlay's mark that the name is gone.
    Whiteout,
    /// The name is gone because its directory was replaced by a new one; there is no mark in the layer.
    Implied,
}

/// What the content of a file in a git directory means for the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Harmless.
    Commit,
    /// Harmless in this form, which is committed while the original stays parked.
    Strip(Vec<u8>),
    /// Needs an explicit accept, and why.
    Park(String),
}

/// What lies in a directory of the workspace that goes away or moves as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Paths that changed since the layer was made (the first few).
    pub changed: Vec<ByteText>,
    /// Places that another process mounted something over.
    pub blocked: Vec<ByteText>,
    /// The first protected entry and why it is protected.
    pub protected: Option<(ByteText, String)>,
}

/// One entry of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The index of its directory.
    pub parent: usize,
    /// Where it is in the layer and will be in the workspace.
    pub path: ByteText,
    /// Its attributes; those of what is gone for [`Role::Implied`].
    pub meta: Meta,
    /// Overlay's attributes.
    pub marks: Marks,
    /// What it stands for.
    pub role: Role,
    /// The directory it continues.
    pub lower: Lower,
    /// The entry of the workspace that it hides or replaces.
    pub covers: Option<Found>,
    /// The place of the entry in the workspace is append-only or immutable, or in a directory that is.
    pub pinned: bool,
    /// What it covers was renamed to another place of the layer.
    pub claimed: bool,
    /// Same content (or link target) as what it covers.
    pub same_content: bool,
    /// Same attributes as what it covers or continues.
    pub same_attrs: bool,
    /// Attributes to set, for a directory.
    pub attrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Attributes of the directory that it continues, where they differ from `attrs`.
    pub base_attrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// For a file of git's.
    pub verdict: Option<Verdict>,
    /// For a whole directory that goes away or moves.
    pub scan: Option<Scan>,
    /// The group of names that share one file, in [`LayerTree::groups`].
    pub group: Option<usize>,
}

/// Where the bytes of a shared file are.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In the upper directory, at this path.
    Upper(ByteText),
    /// In overlay's index, under this name: all names in the layer are gone, names in the workspace are not.
    Index(ByteText),
}

/// Several names of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The names in the layer.
    pub members: Vec<usize>,
    /// The file of the workspace that it is a new version of and that has several names there.
    pub anchor: Option<Found>,
    /// Names of that file in the workspace which the layer does not contain.
    pub others: Vec<Found>,
    /// The new version.
    pub source: Source,
    /// Its attributes.
    pub meta: Meta,
    /// The new version equals the one in the workspace. Always so for a symbolic link, which cannot be written.
    pub same: bool,
    /// Whether the names may stay one file.
    pub tie: Tie,
}

/// An entry of the workspace as an earlier commit of the same layer left it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "OwnForms")]
pub struct Own {
    /// Where.
    pub path: ByteText,
    /// Its ctime after the commit's last call on it.
    pub ctime: FsTime,
    /// Which entry; unknown in notes of version 1.
    pub id: Option<FileId>,
    /// Its size, except for a directory.
    pub size: Option<u64>,
}

/// The two forms in which a parked layer may carry an [`Own`].
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum OwnForms {
    First(ByteText, FsTime),
    Second { path: ByteText, ctime: FsTime, id: Option<FileId>, size: Option<u64> },
}

impl From<OwnForms> for Own {
    fn from(form: OwnForms) -> Self {
        match form {
            OwnForms::First(path, ctime) => Self { path, ctime, id: None, size: None },
            OwnForms::Second { path, ctime, id, size } => Self { path, ctime, id, size },
        }
    }
}

impl Own {
    fn is(&self, at: &ByteText, meta: &Meta) -> bool {
        *at == self.path
            && meta.ctime == self.ctime
            && self.id.is_none_or(|id| id == meta.id)
            && self.size.is_none_or(|size| size == meta.size)
    }
}

/// A layer and what it covers. `nodes[0]` is the root; a directory comes before its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerTree {
    /// All entries.
    pub nodes: Vec<Node>,
    /// Names that belong together.
    pub groups: Vec<Group>,
    /// By node: the lock file by which a git of the host holds the entry's place.
    pub locks: HashMap<usize, ByteText>,
    /// Files of the workspace by inode, as far as the layer touches them.
    pub inodes: HashMap<u64, Found>,
    /// When the layer was made.
    pub started: FsTime,
    /// Entries that an earlier commit of this layer wrote itself: not a conflict.
    pub ours: Vec<Own>,
    /// Layer and workspace are on one mount, so that a rename can move entries.
    pub same_mount: bool,
    /// Who mounted it.
    pub mode: LayerMode,
    /// The workspace's mount: an entry on another one cannot be moved.
    pub mount: Option<u64>,
}

impl LayerTree {
    /// Whether an entry of the workspace changed after the layer was made. By ctime, which no process can set.
    #[must_use]
    pub fn is_fresh(&self, found: &Found) -> bool {
        is_fresh(self.started, &self.ours, &found.at, &found.meta)
    }

    /// Whether an entry is as an earlier commit of this layer left it.
    #[must_use]
    pub fn is_own(&self, at: &ByteText, meta: &Meta) -> bool {
        self.ours.iter().any(|own| own.is(at, meta))
    }

    /// The identity of what a node covers.
    #[must_use]
    pub fn covered_id(&self, node: usize) -> Option<FileId> {
        self.nodes[node].covers.as_ref().map(|found| found.meta.id)
    }
}

/// See [`LayerTree::is_fresh`].
pub(crate) fn is_fresh(started: FsTime, ours: &[Own], at: &ByteText, meta: &Meta) -> bool {
    meta.ctime > started && !ours.iter().any(|own| own.is(at, meta))
}
