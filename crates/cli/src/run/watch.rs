//! Files of git that a direct run may write and that git on the host acts on later: how they were, and whether they changed.

use nexus_model::ByteText;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Error, Read as _};
use std::os::fd::OwnedFd;

/// Entries that are looked at below one name. With more it counts as changed.
const MAX: usize = 10_000;
/// Directories that are looked into below one name.
const DEPTH: usize = 8;
/// Larger packed references are not read, and may say anything.
const MAX_PACKED: u64 = 64 << 20;
/// Holds the entries that one call of getdents64(2) lists.
const BUFFER: usize = 8 * 1024;

/// What tells one state of an entry from another. A command cannot set the time of its change.
type Print = [i128; 6];

/// The files, by their paths in the workspace.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Index files, which say what git writes into a working tree.
    indexes: BTreeMap<ByteText, Option<Vec<Print>>>,
    /// What git resumes, or finds its history and remotes by.
    states: BTreeMap<ByteText, Option<Vec<Print>>>,
    /// Links, which may lead to protected names.
    links: BTreeMap<ByteText, Option<Vec<Print>>>,
}

/// Whether git reads a file of this name as an index.
pub(super) fn is_index(name: &[u8]) -> bool {
    const SHARED: &[u8] = b"sharedindex.";
    name.eq_ignore_ascii_case(b"index")
        || name.get(..SHARED.len()).is_some_and(|start| start.eq_ignore_ascii_case(SHARED))
}

impl Watched {
    /// Adds an index with the path `path`.
    pub fn add_index(&mut self, directory: &OwnedFd, name: &CStr, path: Vec<u8>) {
        self.indexes.insert(ByteText(path), prints(directory, name));
    }

    /// Adds a file or directory of git with the path `path`.
    pub fn add_state(&mut self, directory: &OwnedFd, name: &CStr, path: Vec<u8>) {
        let is_packed = name.to_bytes().eq_ignore_ascii_case(b"packed-refs");
        if !is_packed || may_replace(directory, name) {
            self.states.insert(ByteText(path), prints(directory, name));
        }
    }

    /// Adds a link with the path `path`.
    pub fn add_link(&mut self, directory: &OwnedFd, name: &CStr, path: Vec<u8>) {
        self.links.insert(ByteText(path), prints(directory, name));
    }

    /// The index files that are new or changed since `before`.
    pub fn changed_indexes<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ByteText> {
        changed(&self.indexes, &before.indexes)
    }

    /// The links that are new or changed since `before`.
    pub fn changed_links<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ByteText> {
        changed(&self.links, &before.links)
    }

    /// The other files that are new or changed since `before`.
    pub fn changed_states<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ByteText> {
        changed(&self.states, &before.states)
    }
}

/// Whether packed references may say that an object is read in place of another.
fn may_replace(directory: &OwnedFd, name: &CStr) -> bool {
    const WORD: &[u8] = b"refs/replace/";
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { return true };
    let file = File::from(file);
    let is_small = file.metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_PACKED);
    let mut text = Vec::new();
    !is_small
        || file.take(MAX_PACKED).read_to_end(&mut text).is_err()
        || text.windows(WORD.len()).any(|part| part == WORD)
}

fn changed<'a>(
    now: &'a BTreeMap<ByteText, Option<Vec<Print>>>,
    before: &'a BTreeMap<ByteText, Option<Vec<Print>>>,
) -> impl Iterator<Item = &'a ByteText> {
    let is_same = |path: &ByteText, prints: &Option<Vec<Print>>| prints.is_some() && before.get(path) == Some(prints);
    now.iter().filter(move |(path, prints)| !is_same(path, prints)).map(|(path, _)| path)
}

/// The entry and all that is below it; `None` where that cannot be said, which never counts as the same.
fn prints(directory: &OwnedFd, name: &CStr) -> Option<Vec<Print>> {
    let mut all = Vec::new();
    add(directory, name, DEPTH, &mut all).ok()?;
    // A listing has no order.
    all.sort_unstable();
    Some(all)
}

fn add(directory: &OwnedFd, name: &CStr, depth: usize, all: &mut Vec<Print>) -> Result<(), Error> {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    all.push(print(&found));
    if all.len() > MAX || depth == 0 {
        return Err(Error::other("too much to look at"));
    }
    match FileType::from_raw_mode(found.st_mode) {
        // What it leads to may change while the link stays. One that leads nowhere has no more to it.
        FileType::Symlink => all.extend(rustix::fs::statat(directory, name, AtFlags::empty()).ok().as_ref().map(print)),
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inside = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            let mut buffer = Vec::with_capacity(BUFFER);
            let mut entries = RawDir::new(&inside, buffer.spare_capacity_mut());
            while let Some(entry) = entries.next() {
                let entry = entry?;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    add(&inside, entry.file_name(), depth - 1, all)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn print(found: &Stat) -> Print {
    [
        found.st_dev.into(),
        found.st_ino.into(),
        found.st_size.into(),
        found.st_mode.into(),
        found.st_ctime.into(),
        found.st_ctime_nsec.into(),
    ]
}
