//! Records the files whose content at the start of a run is also stored in git: that content is the base of a later merge.
//!
//! ```text
//!  the index of git at the start ─▶ an entry with the size, times and inode that its file has ─▶ the file was the blob of
//!  the entry, then and now ─▶ noted with the layer ─▶ accept --merge reads the blob
//! ```
//! The layer has only the run's version of a file, and nothing keeps the workspace's from before: a copy of each file that
//! a run may change would cost more than most runs. git has one. An entry of the index proves what a file holds as long as
//! the file has the times of the entry, since no program can set the time of the last change of anything (ctime). A file that
//! changed in the moment in which the index was written proves nothing (`racy-git` in git's documentation).
//!
//! The look may come later than the start of the run: a file that still has the times of the entry had them at the start. So
//! a long run looks while its command is at work, some thousand files at a time, and a short one when it is parked.

use crate::beneath::{Workspace, split};
use crate::meta::{EntryType, FsTime, Meta};
use crate::read::index_at_start::IndexAtStart;
use nexus_git::index::recorded::{Recorded, entries};
use nexus_git::reads::Reads;
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

/// A larger index (bytes) is not looked at: one of some 80,000 files. Reading it holds up the output of the run for a moment.
const MAX_INDEX: u64 = 8 << 20;
/// Entries that are looked at in one turn: some milliseconds.
const ENTRIES_OF_A_TURN: usize = 1000;
/// Notes of one layer.
const MAX_NOTES: usize = 10_000;

/// Records what a file was when the run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BaseNote {
    /// Its path in the workspace.
    pub(crate) path: ByteText,
    /// The object id of its content, in hexadecimal digits.
    pub(crate) id: String,
    /// The size that it had.
    pub(crate) size: u64,
}

/// A survey of the files that git had when a run began. It proceeds in steps while the command runs.
#[derive(Debug)]
pub struct BaseSurvey {
    index: IndexAtStart,
    workspace: Workspace,
    started: FsTime,
    /// The entries, once the index was read; the first `seen` of them were looked at.
    entries: Option<Vec<Recorded>>,
    seen: usize,
    /// The entries whose files were unchanged when they were looked at, by their number.
    unchanged: HashSet<usize>,
}

impl BaseSurvey {
    pub(crate) fn new(index: &IndexAtStart, workspace: &Workspace, started: FsTime) -> io::Result<Self> {
        let workspace = Workspace::from_fd(workspace.fd().try_clone_to_owned()?);
        let (entries, seen, unchanged) = (None, 0, HashSet::new());
        Ok(Self { index: index.try_clone()?, workspace, started, entries, seen, unchanged })
    }

    /// Examines some more files. Returns whether all files were examined.
    pub fn look_on(&mut self) -> bool {
        let entries = self.entries.get_or_insert_with(|| read(&self.index));
        let mut directory = Directory::default();
        for _ in 0..ENTRIES_OF_A_TURN {
            let Some(entry) = entries.get(self.seen) else { return true };
            if is_unchanged(entry, &self.workspace, &mut directory, (&self.index, self.started)) {
                self.unchanged.insert(self.seen);
            }
            self.seen += 1;
        }
        self.seen == entries.len()
    }

    /// Notes what is known of these paths.
    pub(crate) fn notes(&self, paths: &HashSet<&[u8]>) -> Vec<BaseNote> {
        let read_now;
        let entries = if let Some(entries) = &self.entries {
            entries
        } else {
            read_now = read(&self.index);
            &read_now
        };
        let mut directory = Directory::default();
        let mut found = Vec::new();
        for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| paths.contains(&*entry.name)) {
            // One that had changed when it was looked at stays changed.
            let is_base = self.unchanged.contains(&at)
                || (at >= self.seen
                    && is_unchanged(entry, &self.workspace, &mut directory, (&self.index, self.started)));
            if is_base && found.len() < MAX_NOTES {
                found.push(BaseNote {
                    path: entry.name.clone().into(),
                    id: String::from_utf8(nexus_git::index::hex(&entry.id)).unwrap_or_default(),
                    size: u64::from(entry.size),
                });
            }
        }
        found
    }
}

fn read(index: &IndexAtStart) -> Vec<Recorded> {
    if index.meta.size > MAX_INDEX {
        return Vec::new();
    }
    index.read(&Reads::default()).map(|bytes| entries(&bytes)).unwrap_or_default()
}

/// The directory that was used last: entries of one directory come in a row.
#[derive(Default)]
struct Directory(Option<(Vec<u8>, Option<OwnedFd>)>);

/// Reports whether a file has the size, times and inode that git saw, and no other content.
fn is_unchanged(
    entry: &Recorded,
    workspace: &Workspace,
    directory: &mut Directory,
    (index, started): (&IndexAtStart, FsTime),
) -> bool {
    let (parent, name) = split(&entry.name);
    if directory.0.as_ref().is_none_or(|(path, _)| path != parent) {
        directory.0 = Some((parent.to_vec(), workspace.dir(parent).ok()));
    }
    let Some((_, Some(dir))) = &directory.0 else { return false };
    let found = crate::meta::stat_if_there(dir.as_fd(), name).ok().flatten();
    found.is_some_and(|meta| is_as_recorded(entry, &meta) && is_before(&meta, index.meta.mtime, started))
}

/// Compares what git saw with what there is. Pure.
fn is_as_recorded(entry: &Recorded, meta: &Meta) -> bool {
    let low = |number: u64| (number & u64::from(u32::MAX)) as u32;
    let time = |time: FsTime| (low(time.sec as u64), time.nsec);
    meta.kind == EntryType::File
        && (entry.ctime, entry.mtime) == (time(meta.ctime), time(meta.mtime))
        && (entry.ino, entry.size) == (low(meta.id.ino), low(meta.size))
        && u32::try_from(meta.size).is_ok()
}

/// Reports whether a file was as it is before git wrote its index, and before the run. A program can set the time of the
/// index, so that the start of the run counts beside it. Pure.
fn is_before(meta: &Meta, written: FsTime, started: FsTime) -> bool {
    let last = meta.ctime.max(meta.mtime);
    last < written && meta.ctime <= started
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::FileId;

    fn meta() -> Meta {
        let time = |sec| FsTime { sec, nsec: 7 };
        Meta {
            kind: EntryType::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            mtime: time(100),
            ctime: time(101),
            links: 1,
            id: FileId { ino: (5 << 32) + 9, born: None },
            dev: (0, 0),
            no_device: false,
            mount: 0,
            pinned: false,
        }
    }

    fn recorded() -> Recorded {
        Recorded { name: b"f".to_vec(), ctime: (101, 7), mtime: (100, 7), ino: 9, size: 3, id: vec![1; 20] }
    }

    #[test]
    fn any_other_time_size_or_file_is_a_change() {
        assert!(is_as_recorded(&recorded(), &meta()));
        let time = |sec, nsec| FsTime { sec, nsec };
        for other in [
            Meta { ctime: time(101, 8), ..meta() },
            Meta { ctime: time(102, 7), ..meta() },
            Meta { mtime: time(100, 6), ..meta() },
            Meta { size: 4, ..meta() },
            Meta { size: (1 << 32) + 3, ..meta() },
            Meta { id: FileId { ino: 8, born: None }, ..meta() },
            Meta { kind: EntryType::Symlink, ..meta() },
        ] {
            assert!(!is_as_recorded(&recorded(), &other), "{other:?}");
        }
    }

    #[test]
    fn a_file_as_new_as_its_index_or_the_run_proves_nothing() {
        let time = |sec, nsec| FsTime { sec, nsec };
        assert!(is_before(&meta(), time(101, 8), time(101, 7)));
        assert!(!is_before(&meta(), time(101, 7), time(200, 0)), "in the moment of the index");
        assert!(!is_before(&meta(), time(300, 0), time(101, 6)), "after the start, with an index from later");
        assert!(!is_before(&Meta { mtime: time(102, 0), ..meta() }, time(101, 8), time(200, 0)));
    }
}
