//! The report of the changes of a run, as a review shows it and as `--json` prints it.

use crate::meta::EntryType;
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// Difference of an entry from the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there.
    Added,
    /// Content, link target, owner, time or attributes differ.
    Modified,
    /// It is gone, with everything below it.
    Deleted,
    /// Only the permission bits differ.
    Mode,
    /// It was something else, for instance a file that became a link.
    Type {
        /// Type of the entry before.
        was: EntryType,
    },
    /// A directory that was at another place, with everything in it.
    Renamed {
        /// Its place before, relative to the workspace.
        from: ByteText,
    },
}

/// One changed entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Flat")]
pub struct Change {
    /// Relative to the workspace. `.` is the workspace itself: its mode, owner or attributes changed.
    pub path: ByteText,
    /// Difference of the entry from the workspace.
    #[serde(flatten)]
    pub kind: ChangeKind,
    /// Type of the entry now (for a deletion: before it).
    pub file_type: EntryType,
    /// Bytes, for a regular file; 0 otherwise.
    pub size: u64,
    /// Permission bits (`07777`).
    pub mode: u32,
    /// Reason for which it needs an explicit accept; `None` for a change that commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<String>,
    /// Setuid or setgid bits or file capabilities, which a sandbox has no way to make: seccomp failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub setuid: bool,
    /// A file that can be executed now and could not before. For information: it commits.
    #[serde(default, skip_serializing_if = "is_false")]
    pub new_executable: bool,
    /// A git hook.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hook: bool,
    /// Cannot be committed and is dropped with the layer (a socket).
    #[serde(default, skip_serializing_if = "is_false")]
    pub skipped: bool,
    /// A directory that a protected entry in it holds back. To name it accepts nothing: that takes an accept with all protected changes.
    #[serde(skip)]
    pub by_content: bool,
}

/// A [`Change`] as JSON has it. Read at once, which the flattened form would not be.
#[derive(Deserialize)]
struct Flat {
    path: ByteText,
    kind: Word,
    was: Option<EntryType>,
    from: Option<ByteText>,
    file_type: EntryType,
    size: u64,
    mode: u32,
    protected: Option<String>,
    #[serde(default)]
    setuid: bool,
    #[serde(default)]
    new_executable: bool,
    #[serde(default)]
    hook: bool,
    #[serde(default)]
    skipped: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Added,
    Modified,
    Deleted,
    Mode,
    Type,
    Renamed,
}

impl TryFrom<Flat> for Change {
    type Error = &'static str;
    fn try_from(flat: Flat) -> Result<Self, Self::Error> {
        let Flat { path, kind, was, from, file_type, size, mode, protected, .. } = flat;
        let kind = match kind {
            Word::Added => ChangeKind::Added,
            Word::Modified => ChangeKind::Modified,
            Word::Deleted => ChangeKind::Deleted,
            Word::Mode => ChangeKind::Mode,
            Word::Type => ChangeKind::Type { was: was.ok_or("a change of the type does not say what it was")? },
            Word::Renamed => ChangeKind::Renamed { from: from.ok_or("a rename does not say from where")? },
        };
        let Flat { setuid, new_executable, hook, skipped, .. } = flat;
        Ok(Self {
            path,
            kind,
            file_type,
            size,
            mode,
            protected,
            setuid,
            new_executable,
            hook,
            skipped,
            by_content: false,
        })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// All changes of a layer, ordered by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// The changes of the layer.
    pub changes: Vec<Change>,
}

impl ChangeSet {
    /// Counts the entries that were added (a rename adds none), modified in any way, and deleted. What is left out counts nowhere.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for change in self.changes.iter().filter(|change| !change.skipped) {
            match change.kind {
                ChangeKind::Added => counts.0 += 1,
                ChangeKind::Deleted => counts.2 += 1,
                ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Type { .. } | ChangeKind::Renamed { .. } => {
                    counts.1 += 1;
                }
            }
        }
        counts
    }

    /// Counts the entries that no commit brings.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.changes.iter().filter(|change| change.skipped).count()
    }

    /// Reports whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// The change that another process made to a path of the workspace since the layer was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// The entry was changed, replaced or made.
    Changed,
    /// The entry that the run worked on is gone.
    Vanished,
    /// Another directory stands in the place of the one that the run worked in.
    Replaced,
    /// A process of the host has the file open for writing.
    Open,
    /// The entry cannot be moved or replaced: a mount point, an immutable file, a directory without permission.
    Blocked,
}

/// A path that both the run and another process changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Relative to the workspace.
    pub path: ByteText,
    /// Event that happened to the path.
    pub outside: Outside,
    /// Present place of one of the two versions, relative to the workspace, if it could not stay where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<ByteText>,
    /// The error that kept the path from being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Conflict {
    /// Creates a conflict that was detected before any entry was moved.
    #[must_use]
    pub fn new(path: ByteText, outside: Outside) -> Self {
        Self { path, outside, beside: None, detail: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_not_counted_as_added() {
        let change = |kind, skipped| Change {
            path: "s".into(),
            kind,
            file_type: EntryType::Socket,
            size: 0,
            mode: 0o755,
            protected: None,
            setuid: false,
            new_executable: false,
            hook: false,
            skipped,
            by_content: false,
        };
        let set = ChangeSet {
            changes: vec![
                change(ChangeKind::Added, true),
                change(ChangeKind::Added, false),
                change(ChangeKind::Deleted, false),
            ],
        };
        assert_eq!((set.counts(), set.left_out()), ((1, 0, 1), 1));
    }

    #[test]
    fn a_change_survives_json_with_a_name_that_is_no_text() {
        let change = Change {
            path: ByteText(vec![b'a', 0xff, b'\n']),
            kind: ChangeKind::Renamed { from: "b".into() },
            file_type: EntryType::Directory,
            size: 0,
            mode: 0o755,
            protected: None,
            setuid: false,
            new_executable: false,
            hook: false,
            skipped: false,
            by_content: false,
        };
        let set = ChangeSet { changes: vec![change] };
        let json = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<ChangeSet>(&json).unwrap(), set);
        assert!(json.contains(r#""kind":"renamed","from":{"text":"b"}"#), "{json}");
    }
}
