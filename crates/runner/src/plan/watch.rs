//! Remembers files of git that a direct run may write and that git on the host acts on later, and finds those that changed.

use nexus_layer::{IoFailure, Lead, LinksInPlace, Reads, stands_for_another};
use nexus_model::ByteText;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::io::{Error, Read as _};
use std::os::fd::OwnedFd;

/// Entries that are looked at below one name. With more it counts as changed.
const MAX: usize = 10_000;
/// Directories that are looked into below one name.
const DEPTH: usize = 8;
/// Larger packed references are not read, and may say anything.
const MAX_PACKED: u64 = 64 << 20;
/// Bytes of a link that the kernel is asked about.
const MAX_LINK: usize = 1024;
/// Refs that are looked at in one git directory.
const MAX_REFS: usize = 100_000;
/// Longer names of refs are not followed.
const MAX_REF: usize = 512;
/// Bytes of a ref that are read: more than the longest one that git writes.
const MAX_TEXT: u64 = 8 << 10;
/// Holds the entries that one call of getdents64(2) lists.
const BUFFER: usize = 8 * 1024;

/// Tells one state of an entry from another. A command cannot set the time of its change.
type Print = [i128; 6];

/// The files, by their paths in the workspace.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Index files, which say what git writes into a working tree.
    indexes: BTreeMap<ByteText, Option<Vec<Print>>>,
    /// Files that git resumes by, or finds its history and remotes by.
    states: BTreeMap<ByteText, Option<Vec<Print>>>,
    /// Refs that stand for other ones, and each `HEAD` that names no branch and no commit.
    refs: BTreeMap<ByteText, Option<Vec<Print>>>,
    /// Links, which may lead to protected names.
    links: BTreeMap<ByteText, Option<Print>>,
    /// Those of the links that do.
    leading: BTreeMap<ByteText, (Option<Print>, Lead)>,
    /// The bytes of packed references that may still be read.
    reads: Reads,
}

/// Reports whether git reads a file of this name as an index.
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
        if !is_packed || may_replace(directory, name, &self.reads) {
            self.states.insert(ByteText(path), prints(directory, name));
        }
    }

    /// Adds the refs that stand for others below the directory `name`, which is `refs` of a git directory.
    pub fn add_refs(&mut self, directory: &OwnedFd, name: &CStr, path: Vec<u8>) {
        let mut left = MAX_REFS;
        if self.look_at_ref(directory, name, (&path, b"refs"), &mut left).is_err() {
            // It may hold any.
            self.refs.insert(ByteText(path), None);
        }
    }

    /// Adds a `HEAD` with the path `path` when it names no branch and no commit.
    pub fn add_head(&mut self, directory: &OwnedFd, name: &CStr, path: &[u8]) {
        if self.look_at_ref(directory, name, (path, b"HEAD"), &mut 1).is_err() {
            self.refs.insert(ByteText(path.to_owned()), None);
        }
    }

    /// Looks at a ref, or at those below a directory. `inside` is its path in the git directory.
    fn look_at_ref(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        (path, inside): (&[u8], &[u8]),
        left: &mut usize,
    ) -> Result<(), Error> {
        *left = left.checked_sub(1).ok_or_else(|| Error::other("too many refs to look at"))?;
        let found = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let is_odd = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = rustix::fs::openat(directory, name, flags, Mode::empty())?;
                let mut buffer = Vec::with_capacity(BUFFER);
                let mut entries = RawDir::new(&below, buffer.spare_capacity_mut());
                while let Some(entry) = entries.next() {
                    let entry = entry?;
                    let name = entry.file_name().to_bytes();
                    if !matches!(name, b"." | b"..") {
                        let (path, inside) = ([path, name].join(&b'/'), [inside, name].join(&b'/'));
                        // The command may have made directories deeper than this process can open, or follow.
                        if inside.len() > MAX_REF {
                            return Err(Error::other("too deep to look at"));
                        }
                        self.look_at_ref(&below, entry.file_name(), (&path, &inside), left)?;
                    }
                }
                false
            }
            FileType::RegularFile => beginning(directory, name).is_none_or(|text| stands_for_another(inside, &text)),
            // git reads a link as a ref that stands for another one.
            _ => true,
        };
        if is_odd {
            self.refs.insert(ByteText(path.to_owned()), prints(directory, name));
        }
        Ok(())
    }

    /// The refs that stand for other ones and are new or changed since `before`.
    pub fn changed_refs<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ByteText> {
        changed(&self.refs, &before.refs)
    }

    /// Adds a link with the path `path`.
    pub fn add_link(&mut self, directory: &OwnedFd, name: &CStr, path: Vec<u8>) {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        self.links.insert(ByteText(path), found.ok().as_ref().map(print));
    }

    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// Follows the links.
    pub fn follow_links(&mut self, links: &LinksInPlace<'_>) -> Result<(), IoFailure> {
        for (path, print) in &self.links {
            match links.lead(&path.0)? {
                Lead::Plain => {}
                lead => {
                    self.leading.insert(path.clone(), (*print, lead));
                }
            }
        }
        Ok(())
    }

    /// The index files that are new or changed since `before`.
    pub fn changed_indexes<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ByteText> {
        changed(&self.indexes, &before.indexes)
    }

    /// The links that are new or changed since `before`, or lead elsewhere, and lead to protected names. A link with a way that
    /// is too long counts as changed.
    pub fn changed_links<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ByteText> {
        let is_same = |path: &ByteText, now: &(Option<Print>, Lead)| {
            now.0.is_some() && now.1 != Lead::TooLong && before.leading.get(path) == Some(now)
        };
        self.leading.iter().filter(move |(path, now)| !is_same(path, now)).map(|(path, _)| path)
    }

    /// The other files that are new or changed since `before`.
    pub fn changed_states<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ByteText> {
        changed(&self.states, &before.states)
    }
}

/// The beginning of a ref; `None` where it cannot be read.
fn beginning(directory: &OwnedFd, name: &CStr) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?);
    let mut text = Vec::new();
    file.take(MAX_TEXT).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Tells whether packed references may say that an object is read in place of another. Those that are not read may.
fn may_replace(directory: &OwnedFd, name: &CStr, reads: &Reads) -> bool {
    const WORD: &[u8] = b"refs/replace/";
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { return true };
    let file = File::from(file);
    let is_read = |found: &Metadata| found.is_file() && found.len() <= MAX_PACKED && reads.take(found);
    let is_small = file.metadata().is_ok_and(|found| is_read(&found));
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
        FileType::Symlink => all.extend(end_of(directory, name)?.as_ref().map(print)),
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

/// Returns the file that a link leads to, which may change while the link stays; `None` for one that leads nowhere. A command can make links that
/// the kernel follows for long, so that one which leads on through another link, or says too much, is an error.
fn end_of(directory: &OwnedFd, name: &CStr) -> Result<Option<Stat>, Error> {
    let text = rustix::fs::readlinkat(directory, name, Vec::new())?;
    if text.as_bytes().len() > MAX_LINK {
        return Err(Error::other("a link that says too much"));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat2(directory, text, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(end) => {
            let found = rustix::fs::fstat(&end)?;
            let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
            if is_link { Err(Error::other("a link to a link")) } else { Ok(Some(found)) }
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn packed_refs_of_a_direct_run_are_read_up_to_a_bound() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("packed-refs"), [b'x'].repeat(2 << 20)).unwrap();
        File::create(top.path().join("holes")).unwrap().set_len(60 << 20).unwrap();
        let directory = OwnedFd::from(File::open(top.path()).unwrap());
        let reads = Reads::default();
        assert!(may_replace(&directory, c"holes", &reads));
        assert!(!may_replace(&directory, c"packed-refs", &reads));
        let whole = std::fs::metadata(top.path().join("packed-refs")).unwrap();
        while reads.take(&whole) {}
        assert!(may_replace(&directory, c"packed-refs", &reads));
    }

    #[test]
    fn a_link_that_leads_on_or_says_too_much_is_never_the_same() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("d")).unwrap();
        let long = format!("{}d", "d/../".repeat(300));
        for (to, at) in [("d", "one"), ("one", "two"), ("two/x", "through"), (&long, "long"), ("missing", "nowhere")] {
            symlink(to, top.path().join(at)).unwrap();
        }
        let directory = OwnedFd::from(File::open(top.path()).unwrap());
        let known = |name: &CStr| prints(&directory, name).map(|prints| prints.len());
        assert_eq!(known(c"one"), Some(2));
        assert_eq!(known(c"nowhere"), Some(1));
        for name in [c"two", c"through", c"long"] {
            assert_eq!(known(name), None, "{name:?}");
        }
    }
}
