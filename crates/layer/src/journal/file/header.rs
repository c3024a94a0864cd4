//! The first line of a journal and its last one.

use crate::disk::identity::Home;
use crate::disk::started::Started;
use crate::disk::top_directory::Top;
use crate::entries::changes::Change;
use crate::entries::marks::LayerMode;
use crate::entries::tree::{CommittedEntry, SharedPath, is_fresh};
use crate::journal::kept_entry::KeptEntry;
use crate::meta::{EntryType, FileId, FsTime, Meta};
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// The version of the format. Version 1 replaced entries without comparing them.
pub(crate) const VERSION: u32 = 2;

/// The file system that the staging directory is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotPlace {
    /// In the layer's directory, which is on the workspace's mount.
    Layer,
    /// In the workspace, under the name [`slots_in_workspace`]: the layer is on another file system.
    Workspace,
}

/// Returns the name of the staging directory in a workspace.
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
    /// Only the layer changed it since the run began, so that a change by the steps does not come from outside; missing in
    /// journals of older versions.
    #[serde(default)]
    pub is_unchanged: bool,
}

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header<L = Vec<Change>> {
    /// Version of the format.
    pub version: u32,
    /// Id of the run.
    pub run: String,
    /// The workspace that the commit is for.
    pub home: Home,
    /// Kind of launcher that mounted the layer.
    pub mode: LayerMode,
    /// Place of the staging directory.
    pub slots: SlotPlace,
    /// The directories that the commit works in.
    pub parents: Vec<Parent>,
    /// The directories that renamed directories leave and that the layer has no version of, since they go away
    /// themselves; missing in journals of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_from: Vec<FileId>,
    /// The paths that stay in the layer.
    pub keep: Vec<KeptEntry>,
    /// The files of overlay's index that stay in the layer without a name there; missing in journals of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep_in_index: Vec<ByteText>,
    /// The changes that stay in the layer, for the report.
    pub parked: L,
    /// The changes that the commit brings, for the report.
    pub committed: L,
    /// Paths that the commit leaves behind in another form than in the layer, and the directories that it works in
    /// while their own change stays parked.
    pub rewritten: Vec<ByteText>,
    /// Git directories that the layer makes and that borrow objects; missing in journals of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub borrowers: Vec<ByteText>,
    /// When the layer was made.
    pub started: FsTime,
    /// By which clock that was; missing for layers of older versions.
    #[serde(default)]
    pub clock: Option<Started>,
    /// The attributes of the workspace's own directory at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Top>,
    /// Earlier commits of this layer wrote these.
    pub ours: Vec<CommittedEntry>,
}

impl<L> Header<L> {
    /// Returns the same header with these lists.
    pub(crate) fn with_lists<M>(self, parked: M, committed: M) -> Header<M> {
        let Self { version, run, home, mode, slots, parents, moved_from, keep, .. } = self;
        let Self { keep_in_index, rewritten, borrowers, started, clock, top, ours, .. } = self;
        Header {
            version,
            run,
            home,
            mode,
            slots,
            parents,
            moved_from,
            keep,
            keep_in_index,
            parked,
            committed,
            rewritten,
            borrowers,
            started,
            clock,
            top,
            ours,
        }
    }

    /// Reports whether a file of the workspace has content and was changed by another process since the start.
    pub(crate) fn is_fresh(&self, started: FsTime, path: &[u8], meta: &Meta) -> bool {
        let at = SharedPath::from(path.to_vec());
        meta.kind == EntryType::File && meta.size > 0 && is_fresh(started, &self.ours, &at, meta)
    }

    /// Returns the same header without the lists.
    pub(crate) fn without_lists(self) -> Header<()> {
        self.with_lists((), ())
    }
}

/// The last line of a journal.
#[derive(Serialize, Deserialize)]
pub(super) struct Closing {
    /// The number of steps.
    pub(super) steps: usize,
}
