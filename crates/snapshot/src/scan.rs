//! Reads a tree into a store.
//!
//! ```text
//!  directory ─ names sorted ─▶ each: statx ─┬─ file: known and unchanged ─▶ its content of before
//!                                           │        else opened, read, looked at again ─▶ pieces
//!                                           ├─ directory: first everything in it
//!                                           ├─ link: its target
//!                                           └─ FIFO, socket, device, another mount: left out and named
//! ```
//! A process of the host may change the tree meanwhile. An entry that is gone when its turn comes is not in the snapshot;
//! a file that changes while it is read is read again.

use crate::attributes;
use crate::cache::{Cache, pair};
use crate::error::SnapshotError;
use crate::object::{Attributes, Content, Directory, Entry, Node, ObjectId, bytes_of};
use crate::pieces;
use crate::put_back::seen::Seen;
use crate::writer::{Kind, MAX_PIECES, Writer};
use nexus_beneath::meta::{EntryType, FsTime, Meta, stat, stat_if_there};
use nexus_beneath::{Doing as _, IoFailure, check_depth, chmod, is_gone, join, names, open_dir, open_file, pin};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Number of times that a changing file is read before that is an error.
const TRIES: usize = 3;
/// Largest number of entries that are named as left out.
const MAX_NAMED: usize = 100;

/// A file of at most so many bytes can be kept, wherever its content is cut.
const SURE: u64 = MAX_PIECES as u64 * pieces::MIN as u64;
/// Size of the largest file that can be kept, if its content is cut nowhere.
const LARGEST: u64 = MAX_PIECES as u64 * pieces::MAX as u64;

const MOUNTED: &str = "another file system is mounted there";

/// An entry that is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path below the tree.
    pub path: Vec<u8>,
    /// The reason why the entry is not kept.
    pub why: &'static str,
}

/// A tree that was read.
#[derive(Debug)]
pub struct Scanned {
    /// The top of the tree.
    pub top: ObjectId,
    /// Number of files, links and directories.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that were read, because they were new or had changed.
    pub read: u64,
    /// Entries that are not kept (the first few).
    pub left_out: Vec<LeftOut>,
    /// Number of entries that are not kept.
    pub left_out_count: u64,
    /// Those of them that are of a kind that could be kept (the first few).
    pub unkept: Vec<LeftOut>,
    /// Entries that changed since the time that the caller gave, by the time stamp that no process can set; sorted.
    pub changed: BTreeSet<Vec<u8>>,
    /// Remembers the files for the next scan.
    pub cache: Cache,
}

/// The most that a scan may have to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Files that are new or changed.
    pub files: u64,
    /// Bytes of these files that are read. Of a long hole nothing is read.
    pub bytes: u64,
    /// Bytes of these files, with those of holes.
    pub apparent: u64,
}

/// Narrows a scan.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanOptions {
    /// The most that it reads; beyond that it gives up.
    pub most: Option<Most>,
    /// Names the entries that changed then or later.
    pub changed_since: Option<FsTime>,
    /// Leaves out what cannot be kept: directories that lie too deep, entries that this user cannot read, and files that are too large.
    /// Otherwise each of them is an error.
    pub leaves_out: bool,
}

/// Is called during a scan, with the entries and bytes so far. An error ends the scan.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<(), SnapshotError>;

struct Scan<'a, 'b> {
    options: ScanOptions,
    read_bytes: u64,
    apparent: u64,
    writer: &'a mut Writer<'b>,
    before: &'a Cache,
    now: FsTime,
    mount: u32,
    several_names: HashMap<u64, Vec<u8>>,
    tell: Progress<'a>,
    /// The entries that were read, where the caller asks for them.
    seen: Option<Seen>,
    done: Scanned,
}

/// Reads the tree below a directory. `now` is the present time of the clock that file systems use. `tell` is called for each entry, and
/// for each piece of a large file.
pub fn scan(
    root: BorrowedFd<'_>,
    writer: &mut Writer<'_>,
    before: &Cache,
    now: FsTime,
    options: ScanOptions,
    tell: Progress<'_>,
) -> Result<Scanned, SnapshotError> {
    let meta = stat(root, b"").doing("look at", b"")?;
    let mut scan = Scan::new(&meta, writer, before, now, tell);
    scan.options = options;
    scan.note_change(b"", &meta);
    let node = Node::Directory(scan.directory(root, b"")?);
    let extended = attributes::read(root, b"").doing("read the attributes of", b"")?;
    let top = Entry { name: Vec::new(), attributes: kept(&meta, extended), node };
    scan.done.top = scan.writer.put_form(&top)?;
    Ok(scan.done)
}

/// One entry as it is now.
pub(crate) struct Inspected {
    /// The entry; `None` where it is gone or of a kind that is not kept.
    pub entry: Option<Entry>,
    /// Another file system is mounted on it or below it.
    pub has_mount: bool,
    /// It and everything in it, as it was when it was read.
    pub seen: Seen,
}

/// Reads one entry of `dir`, whose path in its tree was `at`.
pub(crate) fn inspect(
    dir: BorrowedFd<'_>,
    name: &[u8],
    at: &[u8],
    writer: &mut Writer<'_>,
) -> Result<Inspected, SnapshotError> {
    let meta = stat(dir, b"").doing("look at", at)?;
    let cache = Cache::default();
    let mut quiet = |_: u64, _: u64| Ok(());
    let mut scan = Scan::new(&meta, writer, &cache, FsTime::MIN, &mut quiet);
    scan.seen = Some(Seen::default());
    scan.options.leaves_out = true;
    let entry = scan.found(dir, name, at)?;
    let has_mount = scan.done.left_out.iter().any(|one| one.why == MOUNTED);
    Ok(Inspected { entry, has_mount, seen: scan.seen.unwrap_or_default() })
}

impl<'a, 'b> Scan<'a, 'b> {
    fn new(root: &Meta, writer: &'a mut Writer<'b>, before: &'a Cache, now: FsTime, tell: Progress<'a>) -> Self {
        let done = Scanned {
            top: ObjectId::of(b""),
            entries: 0,
            bytes: 0,
            read: 0,
            left_out: Vec::new(),
            left_out_count: 0,
            unkept: Vec::new(),
            changed: BTreeSet::new(),
            cache: Cache::of_device(root.dev),
        };
        Self {
            options: ScanOptions::default(),
            read_bytes: 0,
            apparent: 0,
            writer,
            before,
            now,
            mount: root.mount,
            several_names: HashMap::new(),
            tell,
            seen: None,
            done,
        }
    }

    fn directory(&mut self, dir: BorrowedFd<'_>, path: &[u8]) -> Result<Content, SnapshotError> {
        check_depth(path).doing("keep", path)?;
        let mut found = names(dir).doing("list", path)?;
        found.sort_unstable();
        let mut directory = Directory::default();
        for name in found {
            let at = join(path, &name);
            if let Some(entry) = self.found(dir, &name, &at)? {
                self.done.entries += 1;
                (self.tell)(self.done.entries, self.done.bytes)?;
                directory.entries.push(entry);
            }
        }
        let bytes = bytes_of(&directory)?;
        let content = self.writer.put_content(Kind::Directory, &mut bytes.as_slice())?;
        content.ok_or_else(|| SnapshotError::TooLarge { path: shown(path), most: SURE })
    }

    /// Reads an entry; `None` where it is gone or left out. Where another entry took its place meanwhile, that one is read.
    fn found(&mut self, dir: BorrowedFd<'_>, name: &[u8], at: &[u8]) -> Result<Option<Entry>, SnapshotError> {
        let mut last = None;
        for _ in 0..TRIES {
            let Some(meta) = stat_if_there(dir, name).doing("look at", at)? else { return Ok(None) };
            match self.entry(dir, name.to_vec(), at, &meta) {
                // What lies deeper was tried there.
                Err(SnapshotError::Tree(error)) if error.path.0 == at => last = Some(error),
                other => return other,
            }
        }
        let swapped = |error: &IoFailure| {
            let is_other_type = error.source.raw_os_error() == Some(Errno::LOOP.raw_os_error());
            is_other_type || is_gone(&error.source) || error.source.kind() == std::io::ErrorKind::InvalidInput
        };
        match last {
            Some(error) if self.options.leaves_out && error.source.kind() == std::io::ErrorKind::PermissionDenied => {
                self.not_kept(at, "it cannot be read");
                Ok(None)
            }
            Some(error) if !swapped(&error) => Err(error.into()),
            _ => Err(SnapshotError::Changing { path: shown(at) }),
        }
    }

    fn entry(
        &mut self,
        dir: BorrowedFd<'_>,
        name: Vec<u8>,
        at: &[u8],
        meta: &Meta,
    ) -> Result<Option<Entry>, SnapshotError> {
        self.note_change(at, meta);
        if meta.mount != self.mount {
            self.leave_out(at, MOUNTED);
            return Ok(None);
        }
        let (node, extended, meta) = match meta.kind {
            EntryType::Directory if self.options.leaves_out && check_depth(at).is_err() => {
                self.not_kept(at, "it lies too deep");
                return Ok(None);
            }
            EntryType::File if self.options.leaves_out && meta.size > LARGEST => {
                self.not_kept(at, "it is too large");
                return Ok(None);
            }
            EntryType::Directory => {
                let widened = Widened::new(dir, &name, at, meta, 0o500)?;
                let inner = open_dir(dir, &name, OFlags::RDONLY).doing("open", at)?;
                let content = self.directory(inner.as_fd(), at)?;
                let extended = attributes::read(inner.as_fd(), b"").doing("read the attributes of", at)?;
                let mut meta = meta.clone();
                if widened.is_some() {
                    drop(widened);
                    meta.ctime = stat(inner.as_fd(), b"").doing("look at", at)?.ctime;
                }
                (Node::Directory(content), extended, meta)
            }
            EntryType::Symlink => {
                let target = rustix::fs::readlinkat(dir, name.as_slice(), Vec::new()).doing("read the link", at)?;
                (Node::Link(target.into_bytes()), Vec::new(), meta.clone())
            }
            EntryType::File => {
                if meta.links > 1
                    && let Some(first) = self.several_names.get(&meta.id.ino)
                {
                    (Node::Same(first.clone()), Vec::new(), meta.clone())
                } else {
                    let (content, extended, meta) = self.file(dir, &name, at, meta)?;
                    if meta.links > 1 {
                        self.several_names.insert(meta.id.ino, at.to_vec());
                    }
                    self.done.bytes += content.size();
                    (Node::File(content), extended, meta)
                }
            }
            EntryType::Fifo | EntryType::Socket | EntryType::Device => {
                if let Some(seen) = &mut self.seen {
                    seen.note(meta, Vec::new());
                }
                self.leave_out(at, "it is neither a file, a directory nor a link");
                return Ok(None);
            }
        };
        if let Some(seen) = &mut self.seen {
            match node {
                Node::Same(_) => seen.note_name(&meta),
                _ => seen.note(&meta, extended.clone()),
            }
        }
        Ok(Some(Entry { name, attributes: kept(&meta, extended), node }))
    }

    /// Returns the content of a file, its extended attributes, and its attributes from the time when it was read.
    fn file(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        at: &[u8],
        meta: &Meta,
    ) -> Result<(Content, attributes::Extended, Meta), SnapshotError> {
        let before = self.before;
        if let Some(known) = before.find(at, meta)
            && self.has(&known.content)?
        {
            let found = (known.content, known.extended.clone());
            self.done.cache.note(at, meta, found.clone(), self.now);
            return Ok((found.0, found.1, meta.clone()));
        }
        self.done.read += 1;
        let mut widened = Widened::new(dir, name, at, meta, 0o400)?;
        let file = File::from(open_file(dir, name, OFlags::RDONLY).doing("open", at)?);
        let counted = (self.read_bytes, self.apparent);
        for _ in 0..TRIES {
            (self.read_bytes, self.apparent) = counted;
            let before = stat(file.as_fd(), b"").doing("look at", at)?;
            let content = self.content(&file, before.size, at)?;
            let extended = attributes::read(file.as_fd(), b"").doing("read the attributes of", at)?;
            let after = stat(file.as_fd(), b"").doing("look at", at)?;
            let state = |meta: &Meta| (meta.size, pair(meta.mtime), pair(meta.ctime));
            if state(&before) == state(&after) && content.size() == after.size {
                let after = match widened.take() {
                    None => after,
                    // With the mode that it has again.
                    Some(widened) => {
                        drop(widened);
                        let again = stat(file.as_fd(), b"").doing("look at", at)?;
                        if (again.size, again.mtime) != (after.size, after.mtime) {
                            break;
                        }
                        again
                    }
                };
                self.done.cache.note(at, &after, (content, extended.clone()), self.now);
                return Ok((content, extended, after));
            }
        }
        Err(SnapshotError::Changing { path: shown(at) })
    }

    /// Reads a file of `size` bytes, after a look at whether that is allowed.
    fn content(&mut self, file: &File, size: u64, at: &[u8]) -> Result<Content, SnapshotError> {
        if size > LARGEST {
            return Err(SnapshotError::TooLarge { path: shown(at), most: LARGEST });
        }
        self.apparent += size;
        let stored = rustix::fs::fstat(file).doing("look at", at)?.st_blocks as u64 * 512;
        let (most, files, apparent) = (self.options.most, self.done.read, self.apparent);
        let allowed = |read: u64| match most {
            Some(most) if files > most.files || read > most.bytes || apparent > most.apparent => {
                let Most { files, bytes, apparent } = most;
                Err(SnapshotError::TooMuch { path: shown(at), files, bytes, apparent })
            }
            _ => Ok(()),
        };
        // Before it is read, by what a file without holes has.
        allowed(self.read_bytes + stored.min(size))?;
        let Self { writer, read_bytes, tell, done, .. } = self;
        let before = *read_bytes;
        let mut worked = |read: u64| {
            *read_bytes += read;
            allowed(*read_bytes)?;
            tell(done.entries, done.bytes + *read_bytes - before)
        };
        let content = writer.put_file(file, size, &mut worked)?;
        content.ok_or_else(|| SnapshotError::TooLarge { path: shown(at), most: SURE })
    }

    /// Reports whether the store has all of a content.
    fn has(&mut self, content: &Content) -> Result<bool, SnapshotError> {
        match content {
            Content::Empty => Ok(true),
            Content::One { piece, .. } => Ok(self.writer.has(piece)),
            Content::Many { list, .. } => {
                if !self.writer.store().has(list) {
                    return Ok(false);
                }
                let pieces = self.writer.store().pieces(content)?;
                Ok(pieces.iter().all(|piece| self.writer.has(piece)))
            }
        }
    }

    fn not_kept(&mut self, path: &[u8], why: &'static str) {
        self.leave_out(path, why);
        if self.done.unkept.len() < MAX_NAMED {
            self.done.unkept.push(LeftOut { path: path.to_vec(), why });
        }
    }

    fn note_change(&mut self, path: &[u8], meta: &Meta) {
        if self.options.changed_since.is_some_and(|since| is_since(meta.ctime, since)) {
            self.done.changed.insert(path.to_vec());
        }
    }

    fn leave_out(&mut self, path: &[u8], why: &'static str) {
        self.done.left_out_count += 1;
        if self.done.left_out.len() < MAX_NAMED {
            self.done.left_out.push(LeftOut { path: path.to_vec(), why });
        }
    }
}

/// Reports whether an entry with this time stamp changed at a time or later. A file system that counts seconds cuts the rest off, or each other
/// second too.
fn is_since(ctime: FsTime, since: FsTime) -> bool {
    if ctime.nsec == 0 { ctime.sec + 1 >= since.sec } else { ctime >= since }
}

fn kept(meta: &Meta, extended: attributes::Extended) -> Attributes {
    Attributes { mode: meta.mode, uid: meta.uid, gid: meta.gid, mtime: pair(meta.mtime), extended }
}

/// An entry whose mode denied its owner the reading, and was widened for the scan.
pub(crate) struct Widened {
    entry: OwnedFd,
    mode: u32,
}

impl Widened {
    /// Widens the mode of an entry so that its owner can read it. Root needs that nowhere.
    pub(crate) fn new(
        dir: BorrowedFd<'_>,
        name: &[u8],
        at: &[u8],
        meta: &Meta,
        rights: u32,
    ) -> Result<Option<Self>, IoFailure> {
        if rustix::process::geteuid().is_root() || meta.mode & rights == rights {
            return Ok(None);
        }
        let entry = pin(dir, name).doing("open", at)?;
        chmod(entry.as_fd(), meta.mode | rights).doing("open", at)?;
        Ok(Some(Self { entry, mode: meta.mode }))
    }
}

impl Drop for Widened {
    fn drop(&mut self) {
        // It had this mode a moment ago; where it cannot be set now, the entry is gone.
        chmod(self.entry.as_fd(), self.mode).ok();
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
