//! The entries that an inspection read, by which a removal tells them from what came later. Pure.

use crate::attributes::Extended;
use nexus_beneath::meta::{EntryType, FileId, FsTime, Meta};
use std::collections::HashMap;

/// An entry as it was when it was read.
#[derive(Debug)]
struct One {
    kind: EntryType,
    size: u64,
    mtime: FsTime,
    ctime: FsTime,
    mode: u32,
    owner: (u32, u32),
    extended: Extended,
    /// Its names that were inspected, and that are not removed yet.
    names: u32,
}

/// The entries of displaced trees as they were when they were read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    all: HashMap<FileId, One>,
}

impl Seen {
    /// Notes an entry that had these attributes when its content was read.
    pub(crate) fn note(&mut self, meta: &Meta, extended: Extended) {
        let Meta { kind, size, mtime, ctime, mode, uid, gid, .. } = *meta;
        // A link, a FIFO, a socket or a device with several names is read by each of them.
        let names = 1 + self.all.get(&meta.id).map_or(0, |one| one.names);
        self.all.insert(meta.id, One { kind, size, mtime, ctime, mode, owner: (uid, gid), extended, names });
    }

    /// Notes one more name of a file whose content was read by another name.
    pub(crate) fn note_name(&mut self, meta: &Meta) {
        if let Some(one) = self.all.get_mut(&meta.id) {
            one.names += 1;
        }
    }

    /// Adds a later inspection. The content of a file that is in both was read again.
    pub(crate) fn add(&mut self, later: Self) {
        for (id, mut one) in later.all {
            one.names += self.all.get(&id).map_or(0, |earlier| earlier.names);
            self.all.insert(id, one);
        }
    }

    /// Reports whether a name of an entry with these attributes can go, and nothing is lost with it: the entry is as it was read, or has a
    /// name elsewhere, through which another process may have changed it.
    pub(crate) fn may_go(&self, meta: &Meta) -> bool {
        let Some(one) = self.all.get(&meta.id).filter(|one| one.kind == meta.kind && one.names > 0) else {
            return false;
        };
        let has_others = one.kind != EntryType::Directory && meta.links > one.names;
        has_others || (one.size, one.mtime, one.ctime) == (meta.size, meta.mtime, meta.ctime)
    }

    /// As [`Self::may_go`], of an entry that was just renamed. That sets the time of its last change, so that its attributes count.
    pub(crate) fn may_go_after_rename(&self, before: &Meta, now: &Meta, extended: &Extended) -> bool {
        let Some(one) = self.all.get(&before.id).filter(|_| before.id == now.id) else { return false };
        (self.has_attributes(now, extended) || now.links > one.names)
            && self.may_go(&Meta { ctime: before.ctime, ..now.clone() })
    }

    /// Reports whether an entry has the mode, the owner and the extended attributes with which it was read. A directory may be opened up.
    pub(crate) fn has_attributes(&self, now: &Meta, extended: &Extended) -> bool {
        self.all.get(&now.id).is_some_and(|one| {
            let is_mode = one.mode == now.mode || (one.kind == EntryType::Directory && one.mode | 0o700 == now.mode);
            is_mode && one.owner == (now.uid, now.gid) && one.extended == *extended
        })
    }

    /// Notes that the mode of an entry was set and set back, which sets the time of its last change.
    pub(crate) fn touched(&mut self, before: &Meta, now: &Meta) {
        if let Some(one) = self.all.get_mut(&before.id)
            && (one.size, one.mtime, one.ctime) == (now.size, now.mtime, before.ctime)
        {
            one.ctime = now.ctime;
        }
    }

    /// Notes that a name of an entry was removed, after which it has these attributes.
    pub(crate) fn removed(&mut self, before: &Meta, now: &Meta) {
        if let Some(one) = self.all.get_mut(&before.id) {
            one.names = one.names.saturating_sub(1);
        }
        self.touched(before, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(ino: u64, links: u32, at: i64) -> Meta {
        let time = FsTime { sec: at, nsec: 0 };
        Meta {
            kind: EntryType::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 5,
            mtime: time,
            ctime: time,
            links,
            id: FileId { ino, born: None },
            dev: (0, 0),
            no_device: false,
            mount: 0,
            pinned: false,
        }
    }

    #[test]
    fn only_what_was_read_and_is_as_it_was_may_go() {
        let mut seen = Seen::default();
        seen.note(&meta(1, 1, 7), Vec::new());
        assert!(seen.may_go(&meta(1, 1, 7)));
        assert!(!seen.may_go(&meta(2, 1, 7)), "another file");
        for changed in [
            Meta { size: 6, ..meta(1, 1, 7) },
            Meta { mtime: FsTime { sec: 8, nsec: 0 }, ..meta(1, 1, 7) },
            Meta { ctime: FsTime { sec: 8, nsec: 0 }, ..meta(1, 1, 7) },
            Meta { kind: EntryType::Symlink, ..meta(1, 1, 7) },
        ] {
            assert!(!seen.may_go(&changed), "{changed:?}");
        }
        let renamed = Meta { ctime: FsTime { sec: 9, nsec: 0 }, ..meta(1, 1, 7) };
        let may_go = |now: &Meta, extended: &Extended| seen.may_go_after_rename(&meta(1, 1, 7), now, extended);
        assert!(may_go(&renamed, &Vec::new()));
        assert!(!may_go(&renamed, &vec![(b"user.x".to_vec(), Vec::new())]));
        assert!(!may_go(&Meta { mode: 0o600, ..renamed.clone() }, &Vec::new()));
        assert!(!may_go(&Meta { size: 6, ..renamed.clone() }, &Vec::new()));
        assert!(!may_go(&Meta { id: FileId { ino: 3, born: None }, ..renamed }, &Vec::new()));
    }

    #[test]
    fn so_many_names_go_as_were_read_and_one_stays_of_a_changed_file() {
        let mut seen = Seen::default();
        seen.note(&meta(1, 2, 7), Vec::new());
        seen.note_name(&meta(1, 2, 7));
        // Both names of an unchanged file go, although the removal of the first one changes it.
        seen.removed(&meta(1, 2, 7), &Meta { ctime: FsTime { sec: 8, nsec: 0 }, ..meta(1, 1, 7) });
        assert!(seen.may_go(&Meta { ctime: FsTime { sec: 8, nsec: 0 }, ..meta(1, 1, 7) }));
        // A file that another process changed and gave a name loses the one that was read, and not the other one.
        let mut seen = Seen::default();
        seen.note(&meta(1, 1, 7), Vec::new());
        let changed = Meta { size: 6, ..meta(1, 2, 9) };
        assert!(seen.may_go(&changed));
        seen.removed(&changed, &Meta { links: 1, ..changed.clone() });
        assert!(!seen.may_go(&Meta { links: 1, ..changed }));
    }

    #[test]
    fn each_name_of_a_link_is_noted() {
        let link = |links: u32, at: i64| Meta { kind: EntryType::Symlink, ..meta(1, links, at) };
        let mut seen = Seen::default();
        // A link is read by each of its names.
        seen.note(&link(2, 7), Vec::new());
        seen.note(&link(2, 7), Vec::new());
        seen.removed(&link(2, 7), &Meta { ctime: FsTime { sec: 8, nsec: 0 }, ..link(1, 7) });
        assert!(seen.may_go(&Meta { ctime: FsTime { sec: 8, nsec: 0 }, ..link(1, 7) }));
    }

    #[test]
    fn a_later_inspection_counts() {
        let (mut seen, mut later) = (Seen::default(), Seen::default());
        seen.note(&meta(1, 2, 7), Vec::new());
        later.note(&meta(1, 2, 9), Vec::new());
        seen.add(later);
        assert!(seen.may_go(&meta(1, 2, 9)) && !seen.may_go(&meta(1, 2, 7)));
        assert!(seen.may_go(&meta(1, 3, 7)), "it has a name elsewhere");
    }
}
