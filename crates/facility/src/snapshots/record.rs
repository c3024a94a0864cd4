//! The record of a snapshot, in a versioned form.

use crate::name::FacilityName;
use nexus_model::ByteText;
use nexus_snapshot::ObjectId;
use serde::{Deserialize, Serialize};

/// Version of the form that this program writes.
pub const VERSION: u32 = 1;
/// Largest record, in bytes.
pub const MAX_BYTES: u64 = 4 << 20;
/// Longest label, in bytes.
const MAX_LABEL: usize = 100;
/// Names the last snapshot of a facility.
pub const LATEST: &str = "latest";

/// The record of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the form.
    pub version: u32,
    /// Number of the snapshot in its facility, from 1.
    pub number: u64,
    /// Facility of which it was taken.
    pub facility: FacilityName,
    /// Label for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Time at which it was taken, in milliseconds since 1970.
    pub created_ms: u64,
    /// Snapshot from which the tree went on: the one taken or restored last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Top of its tree, in hexadecimal.
    pub tree: String,
    /// Number of files, links and directories.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries that were left out (the first hundred).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Number of entries that were left out.
    #[serde(default)]
    pub left_out_count: u64,
}

/// An entry that is not in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its path below the workspace.
    pub path: ByteText,
    /// The reason why the entry is not in the snapshot.
    pub why: String,
}

impl Record {
    /// Returns the top of its tree; `None` where the record is damaged.
    #[must_use]
    pub fn top(&self) -> Option<ObjectId> {
        ObjectId::from_hex(&self.tree)
    }
}

/// Checks a label; returns the rule that it breaks. A label is not a number and not `latest`, which name snapshots otherwise.
pub fn check_label(label: &str) -> Result<(), &'static str> {
    match label {
        "" => Err("it is empty"),
        LATEST => Err("latest is the last snapshot, whatever its label"),
        _ if label.len() > MAX_LABEL => Err("it is longer than 100 bytes"),
        _ if label.chars().any(char::is_control) => Err("it holds a control character"),
        _ if label.bytes().all(|byte| byte.is_ascii_digit()) => Err("a number is that of a snapshot"),
        _ => Ok(()),
    }
}

/// One snapshot with the name of its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Hash of the record, in hexadecimal: the name of the snapshot.
    pub id: String,
    /// The record of the snapshot.
    #[serde(flatten)]
    pub record: Record,
}

impl Named {
    /// Returns the beginning of its name, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        self.id.get(..12).unwrap_or(&self.id)
    }
}

/// The reason why no snapshot is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotChosen {
    /// No snapshot has such a name.
    None,
    /// Several snapshots have such a name.
    Several,
}

/// Chooses a snapshot by `latest`, its label (the last one that has it), its number, or the beginning of its name, of at least 6 letters.
pub fn choose<'a>(all: &'a [Named], which: &str) -> Result<&'a Named, NotChosen> {
    let last = |fits: &dyn Fn(&Named) -> bool| all.iter().filter(|one| fits(one)).max_by_key(|one| one.record.number);
    if which == LATEST {
        return last(&|_| true).ok_or(NotChosen::None);
    }
    if let Some(one) = last(&|one| one.record.label.as_deref() == Some(which)) {
        return Ok(one);
    }
    if which.len() < 6
        && let Ok(number) = which.parse::<u64>()
    {
        return last(&|one| one.record.number == number).ok_or(NotChosen::None);
    }
    let mut fitting = all.iter().filter(|one| which.len() >= 6 && one.id.starts_with(which));
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(NotChosen::Several),
        (None, _) => Err(NotChosen::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(number: u64, id: &str, label: Option<&str>) -> Named {
        let record = Record {
            version: VERSION,
            number,
            facility: "a".parse().unwrap(),
            label: label.map(ToOwned::to_owned),
            created_ms: 1,
            parent: None,
            tree: String::new(),
            entries: 0,
            bytes: 0,
            left_out: Vec::new(),
            left_out_count: 0,
        };
        Named { id: id.to_owned(), record }
    }

    #[test]
    fn a_snapshot_is_chosen_by_its_label_number_or_name() {
        let all = [named(1, "aaaaaa1", Some("clean")), named(2, "aaaaaa2", Some("clean")), named(3, "bbbbbbb", None)];
        let number = |which: &str| choose(&all, which).map(|one| one.record.number);
        assert_eq!(number("latest"), Ok(3));
        assert_eq!(number("clean"), Ok(2));
        assert_eq!(number("1"), Ok(1));
        assert_eq!(number("aaaaaa1"), Ok(1));
        assert_eq!(number("bbbbbb"), Ok(3));
        assert_eq!(number("aaaaaa"), Err(NotChosen::Several));
        for unknown in ["4", "bbbbb", "", "dirty"] {
            assert_eq!(number(unknown), Err(NotChosen::None), "{unknown:?}");
        }
    }

    #[test]
    fn a_label_is_no_other_name_of_a_snapshot() {
        for good in ["clean", "before the upgrade", "v1.2", "ä"] {
            assert_eq!(check_label(good), Ok(()), "{good:?}");
        }
        for bad in ["", "latest", "12", "a\n", "\u{1b}[2J", &"x".repeat(101)] {
            assert!(check_label(bad).is_err(), "{bad:?}");
        }
    }
}
