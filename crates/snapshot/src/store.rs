//! A store: all packs of a directory, with their indexes in memory. Reads objects, and holds the lock.

use crate::error::SnapshotError;
use crate::object::{Content, Directory, Entry, ObjectId, ObjectIds, read_top};
use crate::pack::{self, Index};
use nexus_beneath::{names, open_file};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

const PACKS: &str = "packs";
const LOCK: &str = "lock";
const FORMAT: &str = "format";
/// The text of the format file.
const VERSION: &[u8] = b"nexus snapshots 1\n";
/// Number of blocks that stay unpacked in memory.
const UNPACKED: usize = 8;
/// Begins the name of a pack that is being written.
pub(crate) const NEW: &str = "new-";

/// The use that a process makes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The process reads and adds objects, and others may do so too.
    Use,
    /// The process removes objects, and no other one uses the store.
    Clean,
}

/// An open store. The lock lasts until it is dropped.
#[derive(Debug)]
pub struct Store {
    packs_dir: OwnedFd,
    _lock: File,
    hold: Hold,
    packs: Vec<Pack>,
    places: HashMap<ObjectId, (u32, u32)>,
    damaged: Vec<SnapshotError>,
    unpacked: VecDeque<(u32, u32, Rc<Vec<u8>>)>,
}

/// One pack with its index.
#[derive(Debug)]
pub(crate) struct Pack {
    pub name: String,
    pub file: File,
    pub index: Index,
    pub bytes: u64,
}

impl Store {
    /// Opens the store in a directory. Where the directory is missing it is made, with the mode 0700. A damaged pack is left out, and
    /// [`Self::damaged`] names it.
    pub fn open(path: &Path, hold: Hold) -> Result<Self, SnapshotError> {
        made(CWD, path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())?;
        made(directory.as_fd(), Path::new(PACKS))?;
        let packs_dir = openat(&directory, PACKS, flags, Mode::empty())?;
        let lock = locked(directory.as_fd(), hold)?;
        check_format(directory.as_fd())?;
        let mut store = Self {
            packs_dir,
            _lock: lock,
            hold,
            packs: Vec::new(),
            places: HashMap::new(),
            damaged: Vec::new(),
            unpacked: VecDeque::new(),
        };
        let mut found: Vec<String> =
            store.names()?.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect();
        found.sort();
        for name in found.into_iter().filter(|name| ObjectId::from_hex(name).is_some()) {
            store.add(name)?;
        }
        Ok(store)
    }

    /// Reads the index of the pack with this name, or remembers that the pack is damaged.
    pub(crate) fn add(&mut self, name: String) -> Result<(), SnapshotError> {
        let opened = open_file(self.packs_dir.as_fd(), name.as_bytes(), OFlags::RDONLY).map(File::from);
        let file = match opened {
            Ok(file) => file,
            // Another cleaning took it between the listing and now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match pack::index(&file, &name) {
            Ok(index) => {
                let number = self.packs.len() as u32;
                for (at, place) in index.objects.iter().enumerate() {
                    self.places.entry(place.id).or_insert((number, at as u32));
                }
                let bytes = file.metadata()?.len();
                self.packs.push(Pack { name, file, index, bytes });
            }
            Err(error @ SnapshotError::Damaged { .. }) => self.damaged.push(error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reports whether the store has an object.
    #[must_use]
    pub fn has(&self, id: &ObjectId) -> bool {
        self.places.contains_key(id)
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes of all packs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.packs.iter().map(|pack| pack.bytes).sum()
    }

    /// Returns the packs that could not be read.
    #[must_use]
    pub fn damaged(&self) -> &[SnapshotError] {
        &self.damaged
    }

    /// Reads an object and checks its hash.
    pub fn get(&mut self, id: &ObjectId) -> Result<Vec<u8>, SnapshotError> {
        let Some((number, at)) = self.places.get(id).copied() else {
            let damaged = self.damaged.iter().find_map(|error| match error {
                SnapshotError::Damaged { pack, .. } => Some(pack.clone()),
                _ => None,
            });
            return Err(SnapshotError::Missing { id: *id, damaged });
        };
        self.get_at(number, at, id)
    }

    /// Sorts names of objects into the order in which the packs have them, so that each block is unpacked once.
    #[must_use]
    pub fn in_order(&self, ids: &ObjectIds) -> Vec<ObjectId> {
        let mut ids: Vec<ObjectId> = ids.iter().copied().collect();
        ids.sort_by_key(|id| self.places.get(id).copied());
        ids
    }

    /// Reads the object of this number of a pack, and checks its hash.
    pub(crate) fn get_at(&mut self, number: u32, at: u32, id: &ObjectId) -> Result<Vec<u8>, SnapshotError> {
        let form = || SnapshotError::Form { id: *id };
        let pack = self.packs.get(number as usize).ok_or_else(form)?;
        let place = *pack.index.objects.get(at as usize).ok_or_else(form)?;
        let block = self.block(number, place.block)?;
        let object = block.get(place.at as usize..(place.at + place.length) as usize).ok_or_else(form)?;
        if ObjectId::of(object) == *id {
            return Ok(object.to_vec());
        }
        let pack = self.packs.get(number as usize).map(|pack| pack.name.clone()).unwrap_or_default();
        Err(SnapshotError::Damaged { pack, why: "an object does not have its hash" })
    }

    fn block(&mut self, number: u32, at: u32) -> Result<Rc<Vec<u8>>, SnapshotError> {
        if let Some((_, _, block)) = self.unpacked.iter().find(|(pack, block, _)| (*pack, *block) == (number, at)) {
            return Ok(Rc::clone(block));
        }
        let pack = self.packs.get(number as usize).ok_or(Errno::NOENT)?;
        let block = pack.index.blocks.get(at as usize).ok_or(Errno::NOENT)?;
        let raw = Rc::new(pack::unpacked(&pack.file, &pack.name, block)?);
        if self.unpacked.len() >= UNPACKED {
            self.unpacked.pop_front();
        }
        self.unpacked.push_back((number, at, Rc::clone(&raw)));
        Ok(raw)
    }

    /// Gives each piece of a content to `take`, in order.
    pub fn each_piece(
        &mut self,
        content: &Content,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        self.each_named_piece(content, &mut |_, piece| take(piece))
    }

    /// As [`Self::each_piece`], with the names of the pieces.
    pub(crate) fn each_named_piece(&mut self, content: &Content, take: TakePiece<'_>) -> Result<(), SnapshotError> {
        let mut left = content.size();
        let (mut last, mut piece) = (None, Vec::new());
        for id in self.pieces(content)? {
            // A hole is the same piece many times.
            if last != Some(id) {
                piece = self.get(&id)?;
                last = Some(id);
            }
            left = left.checked_sub(piece.len() as u64).ok_or(SnapshotError::Form { id })?;
            take(&id, &piece)?;
        }
        match content {
            Content::One { piece: id, .. } | Content::Many { list: id, .. } if left != 0 => {
                Err(SnapshotError::Form { id: *id })
            }
            _ => Ok(()),
        }
    }

    /// Returns the names of the pieces of a content.
    pub fn pieces(&mut self, content: &Content) -> Result<Vec<ObjectId>, SnapshotError> {
        pieces_by(content, &mut |id| self.get(id))
    }

    /// Reads the top of a tree.
    pub fn top(&mut self, id: &ObjectId) -> Result<Entry, SnapshotError> {
        read_top(&self.get(id)?).ok_or(SnapshotError::Form { id: *id })
    }

    /// Reads a directory.
    pub fn directory(&mut self, content: &Content) -> Result<Directory, SnapshotError> {
        let mut bytes = Vec::new();
        self.each_piece(content, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        let id = match content {
            Content::Empty => ObjectId::of(b""),
            Content::One { piece, .. } => *piece,
            Content::Many { list, .. } => *list,
        };
        Directory::read(&bytes).ok_or(SnapshotError::Form { id })
    }

    pub(crate) fn packs_dir(&self) -> BorrowedFd<'_> {
        self.packs_dir.as_fd()
    }

    /// Lists the directory of the packs. An earlier listing has moved the offset of the descriptor to the end, so it is set back first.
    pub(crate) fn names(&self) -> Result<Vec<Vec<u8>>, SnapshotError> {
        rustix::fs::seek(&self.packs_dir, rustix::fs::SeekFrom::Start(0))?;
        Ok(names(self.packs_dir.as_fd())?)
    }

    pub(crate) fn packs(&self) -> &[Pack] {
        &self.packs
    }

    pub(crate) fn hold(&self) -> Hold {
        self.hold
    }
}

fn made(parent: BorrowedFd<'_>, path: &Path) -> Result<(), SnapshotError> {
    match mkdirat(parent, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes the lock without waiting.
fn locked(directory: BorrowedFd<'_>, hold: Hold) -> Result<File, SnapshotError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, LOCK, flags, Mode::RUSR | Mode::WUSR)?);
    let operation = match hold {
        Hold::Use => FlockOperation::NonBlockingLockShared,
        Hold::Clean => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(&file, operation) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(SnapshotError::Busy { is_gc: hold == Hold::Use }),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a store of a later version, and notes the version of a new one.
fn check_format(directory: BorrowedFd<'_>) -> Result<(), SnapshotError> {
    use std::io::{Read as _, Write as _};
    match open_file(directory, FORMAT.as_bytes(), OFlags::RDONLY) {
        Ok(file) => {
            let mut text = Vec::new();
            File::from(file).take(64).read_to_end(&mut text)?;
            if text == VERSION {
                return Ok(());
            }
            let is_of_ours = text.starts_with(b"nexus snapshots ") && text.ends_with(b"\n");
            let pack = FORMAT.to_owned();
            Err(if is_of_ours {
                SnapshotError::Newer
            } else {
                SnapshotError::Damaged { pack, why: "it has another text" }
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hidden = format!("{FORMAT}.{}", std::process::id());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(directory, hidden.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(VERSION)?;
            file.sync_all()?;
            rustix::fs::renameat(directory, hidden.as_str(), directory, FORMAT)?;
            Ok(rustix::fs::fsync(directory)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes a piece with its name.
pub(crate) type TakePiece<'a> = &'a mut dyn FnMut(&ObjectId, &[u8]) -> Result<(), SnapshotError>;

/// Reads an object.
type Get<'a> = &'a mut dyn FnMut(&ObjectId) -> Result<Vec<u8>, SnapshotError>;

fn pieces_by(content: &Content, get: Get<'_>) -> Result<Vec<ObjectId>, SnapshotError> {
    match content {
        Content::Empty => Ok(Vec::new()),
        Content::One { piece, .. } => Ok(vec![*piece]),
        Content::Many { list, .. } => {
            let bytes = get(list)?;
            let (ids, rest) = bytes.as_chunks::<32>();
            if rest.is_empty() {
                return Ok(ids.iter().map(|id| ObjectId(*id)).collect());
            }
            Err(SnapshotError::Form { id: *list })
        }
    }
}

/// Reads the entries of a directory of which some objects may not be in a store.
pub(crate) fn entries_by(content: &Content, get: Get<'_>) -> Result<Vec<Entry>, SnapshotError> {
    let form = match content {
        Content::Empty => return Ok(Vec::new()),
        Content::One { piece: id, .. } | Content::Many { list: id, .. } => *id,
    };
    let mut bytes = Vec::new();
    for id in pieces_by(content, get)? {
        bytes.extend(get(&id)?);
    }
    Ok(Directory::read(&bytes).ok_or(SnapshotError::Form { id: form })?.entries)
}
