//! Records of workspace entries as an earlier commit of the same layer left them. The next commit does not report them as
//! conflicts.

use crate::entries::arrival::Arrival;
use crate::entries::shared_path::SharedPath;
use crate::meta::{EntryType, FileId, FsTime, Meta};
use nexus_model::ByteText;

/// An entry of the workspace as an earlier commit of the same layer left it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "CommittedEntryForms")]
pub struct CommittedEntry {
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
    /// Set in a note about a directory that may have come to the path after the run began: nothing else in it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arrival: Option<Arrival>,
}

/// The two forms in which a parked layer may carry an [`CommittedEntry`].
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum CommittedEntryForms {
    First(ByteText, FsTime),
    Second {
        path: ByteText,
        ctime: FsTime,
        id: Option<FileId>,
        size: Option<u64>,
        mtime: Option<FsTime>,
        arrival: Option<Arrival>,
    },
}

impl From<CommittedEntryForms> for CommittedEntry {
    fn from(form: CommittedEntryForms) -> Self {
        match form {
            CommittedEntryForms::First(path, ctime) => {
                Self { path, ctime, id: None, size: None, mtime: None, arrival: None }
            }
            CommittedEntryForms::Second { path, ctime, id, size, mtime, arrival } => {
                Self { path, ctime, id, size, mtime, arrival }
            }
        }
    }
}

impl CommittedEntry {
    /// Describes an entry as it is now.
    pub(crate) fn new(path: &ByteText, now: &Meta) -> Self {
        let of_file = now.kind != EntryType::Directory;
        let (size, mtime) = (of_file.then_some(now.size), of_file.then_some(now.mtime));
        Self { path: path.clone(), ctime: now.ctime, id: Some(now.id), size, mtime, arrival: None }
    }

    /// Notes the answer about a directory that may have come to its place after the run began. Such a note confirms no
    /// entry: an older program finds no entry with its time either.
    pub(crate) fn of_arrival(path: ByteText, arrival: Arrival) -> Self {
        let ctime = FsTime::MIN;
        Self { path, ctime, id: None, size: None, mtime: None, arrival: Some(arrival) }
    }

    /// Adds answers about directories to the notes of earlier commits: what a commit writes changes their times.
    pub(crate) fn with_arrivals(ours: &[Self], arrivals: Vec<(ByteText, Arrival)>) -> Vec<Self> {
        let new = arrivals.into_iter().map(|(path, arrival)| Self::of_arrival(path, arrival));
        Self::sorted(ours.iter().cloned().chain(new).collect())
    }

    /// Sorts them by path; of several for one path the last counts, of entries and of arrivals each.
    pub(crate) fn sorted(mut all: Vec<Self>) -> Vec<Self> {
        // The sort is stable: of several for one path, the later ones come later.
        all.sort_by(|one, other| (&one.path, one.arrival.is_some()).cmp(&(&other.path, other.arrival.is_some())));
        all.dedup_by(|later, kept| {
            let is_one_path = later.path == kept.path && later.arrival.is_some() == kept.arrival.is_some();
            if is_one_path {
                std::mem::swap(later, kept);
            }
            is_one_path
        });
        all
    }

    /// Looks an entry up in a list that is sorted by path, and reports that it is as the list says.
    pub(crate) fn is_one(sorted: &[Self], at: &SharedPath, meta: &Meta) -> bool {
        Self::of_path(sorted, at).any(|own| own.is(meta))
    }

    /// Returns the earlier answer about the directory at a path, from a list that is sorted by path.
    pub(crate) fn arrival_at(sorted: &[Self], at: &SharedPath) -> Arrival {
        Self::of_path(sorted, at).find_map(|own| own.arrival).unwrap_or_default()
    }

    fn of_path<'a>(sorted: &'a [Self], at: &'a SharedPath) -> impl Iterator<Item = &'a Self> {
        let begin = sorted.partition_point(|own| *own.path.0 < *at.0);
        sorted[begin..].iter().take_while(|own| *own.path.0 == *at.0)
    }

    /// Reports whether an entry, at whatever path, is as this one was left.
    pub(crate) fn is(&self, meta: &Meta) -> bool {
        self.arrival.is_none()
            && meta.ctime == self.ctime
            // Where a clock has whole seconds, an edit may have the ctime of the commit's own call.
            && self.mtime.is_none_or(|mtime| mtime == meta.mtime)
            && self.id.is_none_or(|id| id == meta.id)
            && self.size.is_none_or(|size| size == meta.size)
    }
}

/// Reports whether an entry changed after the run started, and not by a commit of this layer.
pub(crate) fn is_fresh(started: FsTime, ours: &[CommittedEntry], at: &SharedPath, meta: &Meta) -> bool {
    meta.ctime > started && !CommittedEntry::is_one(ours, at, meta)
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
        let ours = vec![CommittedEntry::new(&at.text(), &meta)];
        let started = FsTime { sec: 4, nsec: 0 };
        assert!(!is_fresh(started, &ours, &at, &meta));
        // The clock has whole seconds, and the size is the same.
        assert!(is_fresh(started, &ours, &at, &Meta { mtime: meta.ctime, ..meta.clone() }));
        let older = vec![CommittedEntry { mtime: None, ..ours[0].clone() }];
        assert!(!is_fresh(started, &older, &at, &meta), "a note of an older version");
    }

    #[test]
    fn a_note_of_an_arrival_confirms_no_entry() {
        let (at, meta) = file("f");
        let arrival = |answer| CommittedEntry::of_arrival(at.text(), answer);
        let notes = CommittedEntry::sorted(vec![arrival(Arrival::After)]);
        assert!(!CommittedEntry::is_one(&notes, &at, &Meta { ctime: notes[0].ctime, ..meta.clone() }));
        // The two kinds of notes stand beside each other, also after they were written and read.
        let both = CommittedEntry::sorted(vec![
            arrival(Arrival::Unknown),
            CommittedEntry::new(&at.text(), &meta),
            arrival(Arrival::After),
        ]);
        let read: Vec<CommittedEntry> = serde_json::from_slice(&serde_json::to_vec(&both).unwrap()).unwrap();
        assert_eq!((read.len(), &read), (2, &both));
        assert!(CommittedEntry::is_one(&read, &at, &meta));
        assert_eq!(CommittedEntry::arrival_at(&read, &at), Arrival::After);
        assert_eq!(CommittedEntry::arrival_at(&read, &file("g").0), Arrival::Before);
    }

    #[test]
    fn the_last_note_about_a_path_counts() {
        let noted = |path: &str, sec| {
            let (at, meta) = file(path);
            CommittedEntry::new(&at.text(), &Meta { ctime: FsTime { sec, nsec: 0 }, ..meta })
        };
        let ours = CommittedEntry::sorted(vec![noted("z", 6), noted("a", 6), noted("z", 9), noted("a", 8)]);
        for (path, sec) in [("a", 8), ("z", 9)] {
            let (at, meta) = file(path);
            assert!(CommittedEntry::is_one(&ours, &at, &Meta { ctime: FsTime { sec, nsec: 0 }, ..meta.clone() }));
            assert!(!CommittedEntry::is_one(&ours, &at, &Meta { ctime: FsTime { sec: 6, nsec: 0 }, ..meta }));
        }
    }
}
