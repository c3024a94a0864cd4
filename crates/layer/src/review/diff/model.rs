//! The diff as data. Pure.

use crate::meta::EntryType;
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// The files that a layer changes, ordered by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// The files. One that became something of another type is listed twice: as deleted and as added.
    pub files: Vec<FileDiff>,
    /// There are more files than were listed.
    pub incomplete: bool,
}

/// Difference of a file from the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// It was not there.
    Added,
    /// It is gone.
    Deleted,
    /// Content, mode, owner or attributes differ.
    Modified,
    /// It was at another place.
    Renamed,
}

/// One file, link, or thing without content. Directories are listed when they are empty or changed themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiff {
    /// Relative to the workspace.
    pub path: ByteText,
    /// Difference of the file from the workspace.
    pub kind: DiffKind,
    /// Type of the file now, or before if it is gone.
    pub file_type: EntryType,
    /// Permission bits (`07777`) before; `None` when it was not there.
    pub old_mode: Option<u32>,
    /// Permission bits now; `None` when it is gone.
    pub new_mode: Option<u32>,
    /// Path of the file before a rename.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename_from: Option<ByteText>,
    /// Part of a renamed file that is unchanged, in percent; 100 only for equal content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<u8>,
    /// Differences in the content.
    pub content: Content,
    /// `git apply` can carry it out, so the rendered diff has it as a patch and not only as a remark.
    pub applies: bool,
    /// Reason for which it needs an explicit accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<String>,
    /// Number of names of the same file, elsewhere in the workspace, that change with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_names: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Differences in the content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Nothing, or it has no content.
    None,
    /// Lines; of a link, its target.
    Text {
        /// From the top to the bottom, never overlapping.
        hunks: Vec<Hunk>,
    },
    /// It is not text, is too large, or could not be read.
    Binary {
        /// The bytes before; `None` when it was not there.
        old: Option<Blob>,
        /// The bytes now; `None` when it is gone.
        new: Option<Blob>,
    },
}

/// Bytes that are not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// Number of bytes.
    pub size: u64,
    /// BLAKE3 of them, in hexadecimal; `None` when they are too many or could not be read.
    pub hash: Option<String>,
}

/// A place where lines differ, with some unchanged lines around it. Line numbers start at 1; when a side has no lines,
/// its number is that of the line before (as in git).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hunk {
    /// First line before.
    pub old_start: usize,
    /// Number of lines before.
    pub old_lines: usize,
    /// First line now.
    pub new_start: usize,
    /// Number of lines now.
    pub new_lines: usize,
    /// Lines of the hunk, the unchanged ones included.
    pub lines: Vec<Line>,
}

/// Role of a line in a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineTag {
    /// It is as it was.
    Context,
    /// It is gone.
    Removed,
    /// It is new.
    Added,
}

/// One line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Role of the line in the hunk.
    pub tag: LineTag,
    /// Its bytes with the newline; only the last line of a file may have none.
    pub text: ByteText,
}

impl FileDiff {
    /// Returns a digest of exactly this change. A caller that accepts a hunk by its number passes the digest of the
    /// change that was reviewed, so that a change in between (another reviewer's accept) is detected.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(&self.path.0);
        add(format!("{:?} {:?}", self.kind, self.file_type).as_bytes());
        add(format!("{:?} {:?}", self.old_mode, self.new_mode).as_bytes());
        add(self.rename_from.as_ref().map_or(b"", |from| &from.0));
        match &self.content {
            Content::None => add(b"none"),
            Content::Binary { old, new } => add(format!("{old:?} {new:?}").as_bytes()),
            Content::Text { hunks } => {
                for hunk in hunks {
                    let Hunk { old_start, old_lines, new_start, new_lines, lines } = hunk;
                    add(format!("{old_start} {old_lines} {new_start} {new_lines}").as_bytes());
                    for line in lines {
                        add(format!("{:?}", line.tag).as_bytes());
                        add(&line.text.0);
                    }
                }
            }
        }
        hash.finalize().to_hex().to_string()
    }
}
