//! Keeps the index of git that the workspace had when a run began.
//!
//! git writes an index beside the old one and renames it over that, so that a descriptor of the old one still leads to
//! what it said. It is only read where the workspace has another index at the end of the run.
//!
//! ```text
//!  start: open without access (O_PATH), statx ─▶ end: another index? ─▶ statx again: the same size and times? ─▶ read
//! ```
//! Without access, because a program that has a file open for reading is reported to the user.

use crate::beneath::{Workspace, proc_path};
use crate::meta::{EntryType, Meta, stat};
use nexus_git::reads::Reads;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

/// Its path in the workspace.
pub(crate) const PATH: &str = ".git/index";

/// The index that the workspace had when a run began.
#[derive(Debug)]
pub(crate) struct IndexAtStart {
    file: OwnedFd,
    /// Its attributes then.
    pub(crate) meta: Meta,
}

impl IndexAtStart {
    /// Opens the index of the workspace's own repository. `None` where there is none: a change of the index is a
    /// conflict then.
    pub(crate) fn open(workspace: &Workspace) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let file = rustix::fs::openat2(workspace.fd(), PATH, flags, Mode::empty(), resolve).ok()?;
        let meta = stat(file.as_fd(), b"").ok().filter(|meta| meta.kind == EntryType::File)?;
        Some(Self { file, meta })
    }

    /// Copies the descriptor of the index.
    pub(crate) fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, meta: self.meta.clone() })
    }

    /// Reads it, up to what may still be read. `None` where it is not certain that it is as it was.
    pub(crate) fn read(&self, reads: &Reads) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mut file = File::from(rustix::fs::open(proc_path(self.file.as_fd()), flags, Mode::empty()).ok()?);
        if !reads.take(&file.metadata().ok()?) {
            return None;
        }
        let mut bytes = Vec::new();
        file.by_ref().take(self.meta.size).read_to_end(&mut bytes).ok()?;
        let now = stat(file.as_fd(), b"").ok()?;
        self.is_as_it_was(&now).then_some(bytes)
    }

    /// Compares it with what it was. Losing its only name sets its ctime, and nothing can give it another one.
    fn is_as_it_was(&self, now: &Meta) -> bool {
        let is_same = (now.id, now.size, now.mtime) == (self.meta.id, self.meta.size, self.meta.mtime);
        is_same && (now.ctime == self.meta.ctime || now.links == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    #[test]
    fn an_index_is_read_as_it_was_or_not_at_all() {
        let top = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(top.path()).unwrap();
        assert!(IndexAtStart::open(&workspace).is_none());
        let index = top.path().join(PATH);
        fs::create_dir(top.path().join(".git")).unwrap();
        let opened = || {
            fs::write(&index, "old").unwrap();
            IndexAtStart::open(&workspace).unwrap()
        };
        let read = |one: &IndexAtStart| one.read(&Reads::default());
        assert_eq!(read(&opened()).as_deref(), Some(&b"old"[..]));
        // As git does it.
        let one = opened();
        let new = top.path().join("new");
        fs::write(&new, "new").unwrap();
        fs::rename(&new, &index).unwrap();
        assert_eq!(read(&one).as_deref(), Some(&b"old"[..]));
        // Written in its place before git replaced it: the ctime says nothing any more.
        for text in ["NEW", "longer"] {
            let one = opened();
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::write(&index, text).unwrap();
            fs::write(&new, "new").unwrap();
            fs::rename(&new, &index).unwrap();
            assert_eq!(read(&one), None, "{text}");
        }
        // Above the limit of what is read.
        let spent = Reads::default();
        spent.spend(u64::MAX);
        assert_eq!(opened().read(&spent), None);
        // In its place, also with the old time, or through another name of a file that lost this one.
        for is_renamed in [false, true] {
            let one = opened();
            let file = File::options().write(true).open(&index).unwrap();
            let at = file.metadata().unwrap().modified().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            (&file).write_all(b"NEW").unwrap();
            if is_renamed {
                fs::hard_link(&index, top.path().join("other")).unwrap();
                fs::remove_file(&index).unwrap();
            }
            file.set_modified(at).unwrap();
            assert_eq!(read(&one), None, "{is_renamed}");
        }
        // No link, no other kind of entry.
        std::os::unix::fs::symlink("x", &index).unwrap();
        assert!(IndexAtStart::open(&workspace).is_none());
        fs::remove_file(&index).unwrap();
        fs::create_dir(&index).unwrap();
        assert!(IndexAtStart::open(&workspace).is_none());
        fs::rename(top.path().join(".git"), top.path().join("git")).unwrap();
        std::os::unix::fs::symlink("git", top.path().join(".git")).unwrap();
        assert!(IndexAtStart::open(&workspace).is_none());
    }
}
