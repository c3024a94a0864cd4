//! The forms of the files, with their versions.

use nexus_model::{ByteText, RunId};
use nexus_snapshot::{ObjectId, Scanned};
use serde::{Deserialize, Serialize};

/// Version of the forms that this program writes.
pub const VERSION: u32 = 1;
/// Largest file of a form, in bytes.
pub(super) const MAX_BYTES: u64 = 16 << 20;

/// A state of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Hash of its tree, in hexadecimal: the name of the state.
    pub tree: String,
    /// Time at which it was taken, in milliseconds since 1970.
    pub taken_ms: u64,
    /// Number of files, links and directories.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries that no state keeps: FIFOs, sockets, devices, and what is mounted (the first hundred).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ByteText>,
    /// Number of them.
    #[serde(default)]
    pub left_out_count: u64,
}

impl State {
    pub(super) fn of(scanned: &Scanned, taken_ms: u64) -> Self {
        Self {
            tree: scanned.top.to_string(),
            taken_ms,
            entries: scanned.entries,
            bytes: scanned.bytes,
            left_out: scanned.left_out.iter().map(|one| ByteText(one.path.clone())).collect(),
            left_out_count: scanned.left_out_count,
        }
    }

    /// Returns the top of its tree; `None` where the record is damaged.
    #[must_use]
    pub fn top(&self) -> Option<ObjectId> {
        ObjectId::from_hex(&self.tree)
    }

    /// Returns the beginning of its name, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        self.tree.get(..12).unwrap_or(&self.tree)
    }
}

/// The record of a live run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRun {
    /// Version of the form.
    pub version: u32,
    /// Id of the run.
    pub run: RunId,
    /// Path of the workspace.
    pub workspace: ByteText,
    /// Name of the directory that had this path, which no other directory has.
    pub directory: String,
    /// The command and its arguments.
    pub command: Vec<ByteText>,
    /// The state before the run.
    pub checkpoint: State,
    /// The time at which the run ended, by the clock of time stamps: seconds and nanoseconds since 1970. `None` while it goes on, and where
    /// it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<(i64, u32)>,
    /// The state that the run left; `None` while it goes on, where it was killed, and where the state could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<State>,
    /// The states that undos replaced, the last one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<State>,
}

impl LiveRun {
    /// Finds the state that a person named: by at least 6 letters of its hash. The inner `None` stands for several.
    #[must_use]
    pub fn state(&self, named: &str) -> Option<Option<&State>> {
        let all = std::iter::once(&self.checkpoint).chain(&self.end).chain(&self.kept);
        let mut found: Vec<&State> = all.filter(|state| named.len() >= 6 && state.tree.starts_with(named)).collect();
        found.dedup_by(|one, other| one.tree == other.tree);
        let first = found.first().copied()?;
        Some(found.iter().all(|one| one.tree == first.tree).then_some(first))
    }
}

/// An undo that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Version of the form.
    pub version: u32,
    /// The run whose states it uses.
    pub run: RunId,
    /// Names its staging directory in the workspace.
    pub id: RunId,
    /// Path of the workspace.
    pub workspace: ByteText,
    /// Tree to which the workspace goes back.
    pub wanted: String,
    /// Tree that the run left: a path that differs from it was changed since.
    pub left: String,
    /// The paths that go back; empty means all.
    pub only: Vec<ByteText>,
    /// Entries that no state keeps, and that the run made.
    pub special: Vec<ByteText>,
    /// Entries that stay: those that were changed since a run without a state of its end ended, and what no state can keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ByteText>,
}

impl Unfinished {
    /// Returns the name of its staging directory.
    #[must_use]
    pub fn staging(&self) -> String {
        format!(".nexus-undo-{}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(tree: &str) -> State {
        State { tree: tree.to_owned(), taken_ms: 1, entries: 0, bytes: 0, left_out: Vec::new(), left_out_count: 0 }
    }

    #[test]
    fn a_state_is_found_by_the_beginning_of_its_hash() {
        let run = LiveRun {
            version: VERSION,
            run: RunId::new(),
            workspace: "/w".into(),
            directory: "d".to_owned(),
            command: Vec::new(),
            checkpoint: state("aaaaaa1"),
            ended: None,
            end: Some(state("bbbbbb1")),
            kept: vec![state("aaaaaa1"), state("bbbbbb2")],
        };
        let found = |named: &str| run.state(named).map(|state| state.map(|state| state.tree.as_str()));
        assert_eq!(found("aaaaaa"), Some(Some("aaaaaa1")), "the same state twice is one");
        assert_eq!(found("bbbbbb"), Some(None));
        assert_eq!(found("bbbbbb2"), Some(Some("bbbbbb2")));
        assert_eq!((found("aaaaa"), found("cccccc"), found("")), (None, None, None));
    }
}
