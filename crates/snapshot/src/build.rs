//! Makes a tree of objects again, in a new and empty directory that no other process can reach.
//!
//! ```text
//!  directories (0700) and files, depth first ─▶ further names of files ─▶ attributes of directories, the deepest first ─▶ synced
//! ```
//! Every name is created with `O_EXCL` below a descriptor of its directory, so that no call follows a link of the tree.

use crate::attributes;
use crate::error::SnapshotError;
use crate::object::{Attributes, Content, Entry, Node, ObjectId};
use crate::store::Store;
use nexus_beneath::{Doing as _, IoFailure, check_depth, chmod, is_beneath, join, open_dir, split};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, mkdirat, openat};
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

/// Trees of up to so many entries are synced file by file. For a larger one the whole file system is synced, which also waits for the writes
/// of other processes.
const FEW: u64 = 1000;
/// A piece of so many zeros becomes a hole.
const HOLE: usize = 64 << 10;

/// Finds content and attributes of a file by its path in the whole tree.
pub(crate) type FindFile<'a> = &'a mut dyn FnMut(&mut Store, &[u8]) -> Result<(Content, Attributes), SnapshotError>;

/// A part of a tree that is built alone.
struct Part<'a> {
    /// Its path in the tree.
    from: &'a [u8],
    /// Its name where it is built.
    name: &'a [u8],
    /// Finds files with a further name in the part whose first one is not in it: they become copies.
    elsewhere: FindFile<'a>,
}

struct Build<'a> {
    part: Option<Part<'a>>,
    root: BorrowedFd<'a>,
    store: &'a mut Store,
    is_small: bool,
    is_root: bool,
    directories: Vec<(Vec<u8>, Attributes)>,
    same: Vec<(Vec<u8>, Vec<u8>)>,
    entries: u64,
    bytes: u64,
    tell: &'a mut dyn FnMut(u64, u64),
}

/// Makes the tree with this top in the empty directory `root`, and brings it to the disk. `entries` is about the number of its
/// entries; `tell` hears the number of entries and bytes so far.
pub fn build(
    root: BorrowedFd<'_>,
    store: &mut Store,
    top: &ObjectId,
    entries: u64,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<(), SnapshotError> {
    let entry = store.top(top)?;
    let Node::Directory(content) = entry.node else { return Err(SnapshotError::Form { id: *top }) };
    let mut build = Build {
        part: None,
        root,
        store,
        is_small: entries <= FEW,
        is_root: rustix::process::geteuid().is_root(),
        directories: vec![(Vec::new(), entry.attributes)],
        same: Vec::new(),
        entries: 0,
        bytes: 0,
        tell,
    };
    build.directory(root, &content, b"")?;
    build.further_names()?;
    // A parent comes after everything in it; the root stands first.
    build.directories.rotate_left(1);
    let is_small = build.is_small;
    build.finish()?;
    if !is_small {
        rustix::fs::syncfs(root).doing("write", b"")?;
    }
    Ok(())
}

/// Makes one entry of a tree under the name `name` in `root`. Its path in the tree is `from`. Brings nothing to the disk. A directory
/// stays open for its owner, who could not move it otherwise.
pub(crate) fn build_part(
    root: BorrowedFd<'_>,
    store: &mut Store,
    entry: &Entry,
    (from, name): (&[u8], &[u8]),
    elsewhere: FindFile<'_>,
) -> Result<(), SnapshotError> {
    let mut quiet = |_: u64, _: u64| {};
    let mut build = Build {
        part: Some(Part { from, name, elsewhere }),
        root,
        store,
        is_small: false,
        is_root: rustix::process::geteuid().is_root(),
        directories: Vec::new(),
        same: Vec::new(),
        entries: 0,
        bytes: 0,
        tell: &mut quiet,
    };
    let mut entry = Entry { name: name.to_vec(), ..entry.clone() };
    if matches!(entry.node, Node::Directory(_)) && !build.is_root {
        entry.attributes.mode |= 0o700;
    }
    build.entry(root, entry, name.to_vec())?;
    build.further_names()?;
    build.finish()
}

impl Build<'_> {
    fn directory(&mut self, dir: BorrowedFd<'_>, content: &Content, path: &[u8]) -> Result<(), SnapshotError> {
        check_depth(path).doing("make", path)?;
        for entry in self.store.directory(content)?.entries {
            let at = join(path, &entry.name);
            self.entry(dir, entry, at)?;
            self.entries += 1;
            (self.tell)(self.entries, self.bytes);
        }
        Ok(())
    }

    fn entry(&mut self, dir: BorrowedFd<'_>, entry: Entry, at: Vec<u8>) -> Result<(), SnapshotError> {
        match entry.node {
            Node::Directory(content) => {
                mkdirat(dir, entry.name.as_slice(), Mode::RWXU).doing("make", &at)?;
                let inner = open_dir(dir, &entry.name, OFlags::RDONLY).doing("open", &at)?;
                self.directory(inner.as_fd(), &content, &at)?;
                self.directories.push((at, entry.attributes));
            }
            Node::File(content) => self.file(dir, &entry.name, &content, &entry.attributes, &at)?,
            Node::Link(target) => {
                rustix::fs::symlinkat(target.as_slice(), dir, entry.name.as_slice()).doing("make", &at)?;
                self.own(dir, &entry.name, &entry.attributes).doing("set the owner of", &at)?;
                times(dir, &entry.name, &entry.attributes, &at)?;
            }
            Node::Same(first) => match &mut self.part {
                None => self.same.push((at, first)),
                Some(part) if is_beneath(&first, part.from) => {
                    let rest = first.get(part.from.len() + 1..).unwrap_or_default();
                    self.same.push((at, join(part.name, rest)));
                }
                Some(part) => {
                    let (content, attributes) = (part.elsewhere)(self.store, &first)?;
                    self.file(dir, &entry.name, &content, &attributes, &at)?;
                }
            },
        }
        Ok(())
    }

    fn file(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        content: &Content,
        attributes: &Attributes,
        at: &[u8],
    ) -> Result<(), SnapshotError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR).doing("make", at)?);
        let (mut last, mut ends_in_hole) = (None, false);
        self.store.each_named_piece(content, &mut |id, piece| {
            // A long hole is the same piece many times.
            if last.replace(*id) != Some(*id) {
                ends_in_hole = piece.len() >= HOLE && piece.iter().all(|byte| *byte == 0);
            }
            let written = if ends_in_hole { file.seek_relative(piece.len() as i64) } else { file.write_all(piece) };
            Ok(written.doing("write", at)?)
        })?;
        if ends_in_hole {
            file.set_len(content.size()).doing("write", at)?;
        }
        self.bytes += content.size();
        attributes::write(dir, name, &attributes.extended).doing("set the attributes of", at)?;
        self.own(dir, name, attributes).doing("set the owner of", at)?;
        // After the owner: a change of it takes the bits setuid and setgid away.
        chmod(file.as_fd(), attributes.mode).doing("set the mode of", at)?;
        times(dir, name, attributes, at)?;
        if self.is_small {
            file.sync_all().doing("write", at)?;
        }
        Ok(())
    }

    fn further_names(&mut self) -> Result<(), SnapshotError> {
        for (at, first) in std::mem::take(&mut self.same) {
            let linked = || -> std::io::Result<()> {
                let ((from, old), (to, new)) = (split(&first), split(&at));
                let from = open_dir(self.root, from, OFlags::PATH)?;
                let to = open_dir(self.root, to, OFlags::PATH)?;
                Ok(rustix::fs::linkat(from, old, to, new, AtFlags::empty())?)
            };
            linked().doing("make one more name", &at)?;
        }
        Ok(())
    }

    /// Sets the attributes of the directories, and syncs. It comes last, because an entry that is made changes its directory's time.
    fn finish(mut self) -> Result<(), SnapshotError> {
        for (at, attributes) in std::mem::take(&mut self.directories) {
            let dir = open_dir(self.root, &at, OFlags::RDONLY).doing("open", &at)?;
            attributes::write(dir.as_fd(), b"", &attributes.extended).doing("set the attributes of", &at)?;
            self.own(dir.as_fd(), b"", &attributes).doing("set the owner of", &at)?;
            chmod(dir.as_fd(), attributes.mode).doing("set the mode of", &at)?;
            let stamps = stamps(&attributes);
            rustix::fs::futimens(&dir, &stamps).doing("set the times of", &at)?;
            if self.is_small {
                rustix::fs::fsync(&dir).doing("write", &at)?;
            }
        }
        Ok(())
    }

    /// Gives an entry to its owner. Only root can do that; the tree of an ordinary user has one owner.
    fn own(&self, dir: BorrowedFd<'_>, name: &[u8], attributes: &Attributes) -> std::io::Result<()> {
        if !self.is_root {
            return Ok(());
        }
        let (user, group) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        Ok(rustix::fs::chownat(dir, name, Some(user), Some(group), flags)?)
    }
}

pub(crate) fn stamps(attributes: &Attributes) -> Timestamps {
    let (seconds, nanoseconds) = attributes.mtime;
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds.min(999_999_999)) };
    Timestamps { last_access: time, last_modification: time }
}

fn times(dir: BorrowedFd<'_>, name: &[u8], attributes: &Attributes, at: &[u8]) -> Result<(), IoFailure> {
    rustix::fs::utimensat(dir, name, &stamps(attributes), AtFlags::SYMLINK_NOFOLLOW).doing("set the times of", at)
}
