//! Entries of the workspace as an earlier commit of the same layer left them: they are not conflicts for the next one.

use crate::meta::{EntryType, FileId, FsTime, Meta};
use crate::shared_path::SharedPath;
use nexus_model::ByteText;

/// An entry of the workspace as an earlier commit of the same layer left it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "OwnForms")]
pub struct Own {
    /// Its path in the workspace.
    pub path: ByteText,
    /// Its ctime after the commit's last call on it.
    pub ctime: FsTime,
    /// Its identity; unknown in notes of version 1.
    pub id: Option<FileId>,
    /// Its size, except for a directory.
    pub size: Option<u64>,
    /// The last change of its content, except for a directory; missing in notes of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FsTime>,
}

/// The two forms in which a parked layer may carry an [`Own`].
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum OwnForms {
    First(ByteText, FsTime),
    Second { path: ByteText, ctime: FsTime, id: Option<FileId>, size: Option<u64>, mtime: Option<FsTime> },
}

impl From<OwnForms> for Own {
    fn from(form: OwnForms) -> Self {
        match form {
            OwnForms::First(path, ctime) => Self { path, ctime, id: None, size: None, mtime: None },
            OwnForms::Second { path, ctime, id, size, mtime } => Self { path, ctime, id, size, mtime },
        }
    }
}

impl Own {
    /// Describes an entry as it is now.
    pub(crate) fn new(path: &ByteText, now: &Meta) -> Self {
        let of_file = now.kind != EntryType::Directory;
        let (size, mtime) = (of_file.then_some(now.size), of_file.then_some(now.mtime));
        Self { path: path.clone(), ctime: now.ctime, id: Some(now.id), size, mtime }
    }

    /// Sorts them by path; of several for one path the last counts.
    pub(crate) fn sorted(mut all: Vec<Self>) -> Vec<Self> {
        // The sort is stable: of several for one path, the later ones come later.
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all.dedup_by(|later, kept| {
            let is_one_path = later.path == kept.path;
            if is_one_path {
                std::mem::swap(later, kept);
            }
            is_one_path
        });
        all
    }

    /// Looks an entry up in a list that is sorted by path, and reports that it is as the list says.
    pub(crate) fn is_one(sorted: &[Self], at: &SharedPath, meta: &Meta) -> bool {
        let found = sorted.binary_search_by(|own| own.path.0.as_slice().cmp(&at.0));
        found.is_ok_and(|index| sorted[index].is(meta))
    }

    fn is(&self, meta: &Meta) -> bool {
        meta.ctime == self.ctime
            // Where a clock has whole seconds, an edit may have the ctime of the commit's own call.
            && self.mtime.is_none_or(|mtime| mtime == meta.mtime)
            && self.id.is_none_or(|id| id == meta.id)
            && self.size.is_none_or(|size| size == meta.size)
    }
}

/// Reports that an entry changed after the run started, and not by a commit of this layer.
pub(crate) fn is_fresh(started: FsTime, ours: &[Own], at: &SharedPath, meta: &Meta) -> bool {
    meta.ctime > started && !Own::is_one(ours, at, meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> (SharedPath, Meta) {
        let time = FsTime { sec: 5, nsec: 0 };
        let id = FileId { ino: 7, born: Some(time) };
        let meta = Meta {
            kind: EntryType::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            mtime: FsTime { sec: 2, nsec: 0 },
            ctime: time,
            links: 1,
            id,
            dev: (0, 0),
            no_device: false,
            mount: 1,
            pinned: false,
        };
        (path.as_bytes().into(), meta)
    }

    #[test]
    fn an_edit_in_the_second_of_the_commit_is_not_ours() {
        let (at, meta) = file("f");
        let ours = vec![Own::new(&at.text(), &meta)];
        let started = FsTime { sec: 4, nsec: 0 };
        assert!(!is_fresh(started, &ours, &at, &meta));
        // The clock has whole seconds, and the size is the same.
        assert!(is_fresh(started, &ours, &at, &Meta { mtime: meta.ctime, ..meta.clone() }));
        let older = vec![Own { mtime: None, ..ours[0].clone() }];
        assert!(!is_fresh(started, &older, &at, &meta), "a note of an older version");
    }

    #[test]
    fn the_last_note_about_a_path_counts() {
        let noted = |path: &str, sec| {
            let (at, meta) = file(path);
            Own::new(&at.text(), &Meta { ctime: FsTime { sec, nsec: 0 }, ..meta })
        };
        let ours = Own::sorted(vec![noted("z", 6), noted("a", 6), noted("z", 9), noted("a", 8)]);
        for (path, sec) in [("a", 8), ("z", 9)] {
            let (at, meta) = file(path);
            assert!(Own::is_one(&ours, &at, &Meta { ctime: FsTime { sec, nsec: 0 }, ..meta.clone() }));
            assert!(!Own::is_one(&ours, &at, &Meta { ctime: FsTime { sec: 6, nsec: 0 }, ..meta }));
        }
    }
}
