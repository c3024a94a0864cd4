//! The steps of a commit, as its plan makes them and its journal keeps them. Pure data.
//!
//! Three verbs move everything: `Put` brings an entry into the workspace (by exchange when something stands there),
//! `Take` removes one to a slot of the staging directory, `Hold` gives a file of the workspace a further name there.
//! None of them destroys anything: what a commit displaces lies in the layer's directory or in a slot until the
//! journal is marked done.

use crate::entries::tree::Source;
use crate::journal::directory_content::DirectoryContent;
use crate::journal::seen::Seen;
use crate::meta::{FileId, FsTime};
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// Attributes as (name, value).
pub type AttrList = Vec<(ByteText, ByteText)>;

/// Number of an entry in the staging directory, which is its name there.
pub type Slot = usize;

/// The place that a `Put` takes its entry from. The displaced entry lies there afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The entry of the layer at the same path.
    Layer,
    /// A slot of the staging directory.
    Slot(Slot),
}

/// One step of a commit. Paths are relative to the workspace unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Gives a file of the workspace the further name `slot`.
    Hold {
        /// Path of the file.
        at: ByteText,
        /// The file as the plan saw it.
        old: Seen,
        /// The further name.
        slot: Slot,
    },
    /// Moves an entry with everything in it from the workspace to `slot`.
    Take {
        /// Path of the entry.
        at: ByteText,
        /// The entry as the plan saw it.
        old: Seen,
        /// Its new place.
        slot: Slot,
        /// A renamed directory, which a later `Put` brings to its new place; otherwise the entry is deleted.
        renamed: bool,
        /// For a renamed directory: the whiteout at its old place, by its path in the layer.
        #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
        whiteout: Option<ByteText>,
    },
    /// Removes overlay's attributes from an entry of the layer. Without names it removes none: the entry may be an only
    /// copy all the same, and is noted as one when the commit is done.
    Strip {
        /// Path in the layer.
        path: ByteText,
        /// Names of the attributes.
        names: Vec<ByteText>,
        /// The attributes that it had, for a way back; missing in journals of older versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: AttrList,
        /// A part of it was accepted: the file that it is an edit of stays in the workspace, so that it is not an only
        /// copy.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_edit: bool,
    },
    /// Brings an entry to its place.
    Put(Put),
    /// Sets the attributes of a directory.
    SetDir(SetDir),
}

/// Content of [`Step::Put`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// The place in the workspace.
    pub path: ByteText,
    /// The place that the entry comes from.
    pub from: Origin,
    /// The entry. `None` only in a plan, before it was staged.
    pub new: Option<Seen>,
    /// The entry that stands there now and is displaced; `None` if there is none.
    pub old: Option<Seen>,
    /// Overlay's attributes to remove from it first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strip: Vec<ByteText>,
    /// Those of them that it had, for a way back; missing in journals of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: AttrList,
    /// Its mode, which an interrupted reading of the layer may have opened up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// A directory with everything in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The entries of such a directory; missing in journals of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<DirectoryContent>,
    /// The layer has no entry at `path` (another name of a file with several): the staged version is the only one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_staged: bool,
    /// It has bytes, which may be a copy of any file that the commit takes away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_source: bool,
    /// The paths of the steps that take away what the entry was made from: a file that the run renamed. They are not
    /// carried out when this step is not. [`EVERYTHING`]: each of them may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ByteText>,
}

/// Stands for all paths in [`Put::sources`].
pub const EVERYTHING: &[u8] = b"";

/// Content of [`Step::SetDir`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDir {
    /// Path of the directory.
    pub path: ByteText,
    /// Its identity. `None` only in a plan, for a directory that is made in a slot.
    pub id: Option<FileId>,
    /// The slot in which it was made.
    pub slot: Option<Slot>,
    /// The permission bits that it gets.
    pub mode: u32,
    /// Id of its owner.
    pub uid: u32,
    /// Id of its group.
    pub gid: u32,
    /// Last change, unless it stays as it is.
    pub mtime: Option<FsTime>,
    /// Its last change as the plan saw it, for a directory of the workspace that only other steps change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime_was: Option<FsTime>,
    /// All its attributes, unless they stay as they are.
    pub attrs: Option<AttrList>,
    /// The attributes that it had, when this is a change that was decided and not the tidying after other steps.
    pub was: Option<DirState>,
}

/// The attributes of a directory before its change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirState {
    /// The permission bits that it had.
    pub mode: u32,
    /// Id of its owner.
    pub uid: u32,
    /// Id of its group.
    pub gid: u32,
    /// Time of its last change.
    pub mtime: FsTime,
    /// All its attributes.
    pub attrs: AttrList,
}

/// An entry that is made in a slot before the commit is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Staged {
    /// An empty directory.
    Directory,
    /// A copy of an entry of the layer.
    Copy(Source),
    /// A further name of an entry of the layer.
    Name(Source),
    /// A further name of another slot.
    Twin(Slot),
    /// A file with this content and the attributes of the layer's entry of this path.
    Bytes {
        /// Bytes of the file.
        content: Vec<u8>,
        /// The path in the layer.
        like: ByteText,
    },
}

impl Step {
    /// Returns the path whose version the step decides; `None` for steps that only prepare others.
    #[must_use]
    pub fn path(&self) -> Option<&ByteText> {
        match self {
            Self::Take { at, .. } => Some(at),
            Self::Put(put) => Some(&put.path),
            Self::SetDir(set) => Some(&set.path),
            Self::Hold { .. } | Self::Strip { .. } => None,
        }
    }

    /// Returns the entry that the step displaces.
    #[must_use]
    pub fn displaces(&self) -> Option<&Seen> {
        match self {
            Self::Take { old, renamed: false, .. } => Some(old),
            Self::Put(Put { old, .. }) => old.as_ref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::EntryType;

    #[test]
    fn journals_of_older_versions_name_the_whiteout_mark() {
        let time = FsTime { sec: 5, nsec: 0 };
        let id = FileId { ino: 7, born: Some(time) };
        let old = Seen { kind: EntryType::Directory, id, mode: 0o755, size: 0, links: 1, mtime: time, ctime: time };
        let take = Step::Take { at: "a".into(), old, slot: 0, renamed: true, whiteout: Some("w".into()) };
        let text = serde_json::to_value(&take).unwrap();
        assert_eq!(text["take"]["mark"], serde_json::to_value(ByteText::from("w")).unwrap());
        assert_eq!(serde_json::from_value::<Step>(text).unwrap(), take);
    }
}
