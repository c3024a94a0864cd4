//! Adds objects to a store. Other processes find them once their pack is complete, synced and renamed to its name.
//!
//! ```text
//!  put ─ known? ─▶ its name
//!      └ new ─▶ open block (content or directories, kept apart) ─ full ─▶ compressed ─▶ packs/new-… ─ finish ─▶ synced ─▶ packs/HASH
//! ```
//! Directories have blocks of their own, so that marking and comparing unpack nothing else.

use crate::error::SnapshotError;
use crate::object::{Content, KeptObjects, MAX_OBJECT, ObjectId, ObjectIds, bytes_of};
use crate::pack::{Block, END, Index, MAGIC, Place};
use crate::pieces;
use crate::sparse::{Piece, Reading};
use crate::store::{NEW, Store};
use rustix::fs::{AtFlags, Mode, OFlags, openat};
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};

/// Size of a block before it is compressed, in bytes.
const BLOCK: usize = 1 << 20;
/// Size after which a pack is closed and the next one is started, in bytes.
const PACK: u64 = 256 << 20;
/// Compression level of zstd.
const LEVEL: i32 = 3;

/// Largest number of pieces of a content: one object lists them.
pub(crate) const MAX_PIECES: usize = MAX_OBJECT as usize / 32;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A piece of a file, or a list of pieces.
    File,
    /// A directory, or a top.
    Directory,
}

/// Adds objects to a store.
#[derive(Debug)]
pub struct Writer<'a> {
    store: &'a mut Store,
    /// True if objects are only named and counted, and none is written; directories stay in memory.
    is_dry: bool,
    open: [Open; 2],
    pack: Option<NewPack>,
    names: Vec<String>,
    added: ObjectIds,
    /// Pieces of zeros by their lengths: what holes of files are cut into.
    zeros: HashMap<usize, ObjectId>,
    kept: KeptObjects,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Open {
    bytes: Vec<u8>,
    objects: Vec<(ObjectId, u32, u32)>,
}

#[derive(Debug)]
struct NewPack {
    name: String,
    file: File,
    at: u64,
    index: Index,
}

impl<'a> Writer<'a> {
    /// Begins to add objects.
    pub fn new(store: &'a mut Store) -> Self {
        Self::begin(store, false)
    }

    /// Begins to name objects, for a comparison: nothing is written.
    pub fn dry(store: &'a mut Store) -> Self {
        Self::begin(store, true)
    }

    fn begin(store: &'a mut Store, is_dry: bool) -> Self {
        Self {
            store,
            is_dry,
            open: [Open::default(), Open::default()],
            pack: None,
            names: Vec::new(),
            added: ObjectIds::new(),
            zeros: HashMap::new(),
            kept: KeptObjects::new(),
            bytes: 0,
        }
    }

    /// Returns the store.
    pub fn store(&mut self) -> &mut Store {
        self.store
    }

    /// Reports whether the store has an object, or will have it.
    #[must_use]
    pub fn has(&self, id: &ObjectId) -> bool {
        self.store.has(id) || self.added.contains(id)
    }

    /// Returns the bytes of objects that are new in the store, before they are compressed.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an object.
    pub fn put(&mut self, kind: Kind, bytes: &[u8]) -> Result<ObjectId, SnapshotError> {
        let id = ObjectId::of(bytes);
        if self.has(&id) {
            return Ok(id);
        }
        self.added.insert(id);
        self.bytes += bytes.len() as u64;
        if self.is_dry {
            if kind == Kind::Directory {
                self.kept.insert(id, bytes.to_vec());
            }
            return Ok(id);
        }
        self.push(kind, id, bytes)?;
        Ok(id)
    }

    fn push(&mut self, kind: Kind, id: ObjectId, bytes: &[u8]) -> Result<(), SnapshotError> {
        let open = &self.open[kind as usize];
        if !open.bytes.is_empty() && open.bytes.len() + bytes.len() > BLOCK {
            self.close_block(kind)?;
        }
        let open = &mut self.open[kind as usize];
        open.objects.push((id, open.bytes.len() as u32, bytes.len() as u32));
        open.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds an object of the store's own forms.
    pub fn put_form(&mut self, object: &impl Serialize) -> Result<ObjectId, SnapshotError> {
        let bytes = bytes_of(object)?;
        self.put(Kind::Directory, &bytes)
    }

    /// Adds bytes as pieces. `None` where there are more pieces than one list holds.
    pub fn put_content(&mut self, kind: Kind, from: &mut dyn Read) -> Result<Option<Content>, SnapshotError> {
        let mut buffer = Vec::new();
        let (mut ids, mut size): (Vec<ObjectId>, u64) = (Vec::new(), 0);
        loop {
            let wanted = (pieces::MAX - buffer.len()) as u64;
            Read::take(&mut *from, wanted).read_to_end(&mut buffer)?;
            if buffer.is_empty() {
                break;
            }
            let length = pieces::first(&buffer);
            let piece: Vec<u8> = buffer.drain(..length).collect();
            size += piece.len() as u64;
            ids.push(self.put(kind, &piece)?);
            if ids.len() > MAX_PIECES {
                return Ok(None);
            }
        }
        self.listed(kind, &ids, size).map(Some)
    }

    /// Adds a file of `size` bytes as pieces: the same ones as [`Self::put_content`] makes, but of a hole nothing is read. `worked` gets
    /// the number of bytes that were read for each piece, and an error of it ends the work. `None` where there are more pieces than one list holds.
    pub(crate) fn put_file(
        &mut self,
        file: &File,
        size: u64,
        worked: &mut dyn FnMut(u64) -> Result<(), SnapshotError>,
    ) -> Result<Option<Content>, SnapshotError> {
        let mut reading = Reading::new(file, size);
        let mut ids: Vec<ObjectId> = Vec::new();
        while let Some(piece) = reading.next()? {
            let (id, read) = match piece {
                Piece::Zeros(length) => (self.put_zeros(length)?, 0),
                Piece::Bytes(bytes) => (self.put(Kind::File, &bytes)?, bytes.len() as u64),
            };
            ids.push(id);
            worked(read)?;
            if ids.len() > MAX_PIECES {
                return Ok(None);
            }
        }
        self.listed(Kind::File, &ids, reading.at()).map(Some)
    }

    /// Adds a piece of zeros. Its name is computed once for each length.
    fn put_zeros(&mut self, length: usize) -> Result<ObjectId, SnapshotError> {
        if let Some(id) = self.zeros.get(&length) {
            return Ok(*id);
        }
        let id = self.put(Kind::File, &vec![0; length])?;
        self.zeros.insert(length, id);
        Ok(id)
    }

    fn listed(&mut self, kind: Kind, ids: &[ObjectId], size: u64) -> Result<Content, SnapshotError> {
        Ok(match ids {
            [] => Content::Empty,
            [piece] => Content::One { piece: *piece, size },
            many => {
                let list: Vec<u8> = many.iter().flat_map(|id| id.0).collect();
                Content::Many { list: self.put(kind, &list)?, size }
            }
        })
    }

    /// Copies an object of the store into the new pack, although the store has it.
    pub(crate) fn copy(&mut self, kind: Kind, id: &ObjectId, bytes: &[u8]) -> Result<(), SnapshotError> {
        if !self.added.insert(*id) {
            return Ok(());
        }
        self.push(kind, *id, bytes)
    }

    fn close_block(&mut self, kind: Kind) -> Result<(), SnapshotError> {
        let open = std::mem::take(&mut self.open[kind as usize]);
        if open.objects.is_empty() {
            return Ok(());
        }
        let mut packed = vec![0; zstd_safe::compress_bound(open.bytes.len())];
        let length = zstd_safe::compress(packed.as_mut_slice(), &open.bytes, LEVEL)
            .map_err(|code| std::io::Error::other(zstd_safe::get_error_name(code)))?;
        packed.truncate(length);
        let is_compressed = packed.len() < open.bytes.len();
        let stored = if is_compressed { &packed } else { &open.bytes };
        if self.pack.is_none() {
            self.pack = Some(NewPack::begin(self.store)?);
        }
        let Some(pack) = &mut self.pack else { return Ok(()) };
        pack.file.write_all(stored)?;
        let block = pack.index.blocks.len() as u32;
        pack.index.blocks.push(Block {
            at: pack.at,
            stored: stored.len() as u32,
            raw: open.bytes.len() as u32,
            of_directories: kind == Kind::Directory,
            is_compressed,
            hash: *blake3::hash(stored).as_bytes(),
        });
        pack.at += stored.len() as u64;
        let places = open.objects.iter().map(|(id, at, length)| Place { id: *id, block, at: *at, length: *length });
        pack.index.objects.extend(places);
        if pack.at >= PACK { self.close_pack() } else { Ok(()) }
    }

    fn close_pack(&mut self) -> Result<(), SnapshotError> {
        let Some(mut pack) = self.pack.take() else { return Ok(()) };
        let index = bytes_of(&pack.index)?;
        let hash = blake3::hash(&index);
        pack.file.write_all(&index)?;
        pack.file.write_all(&(index.len() as u64).to_le_bytes())?;
        pack.file.write_all(hash.as_bytes())?;
        pack.file.write_all(END)?;
        pack.file.sync_all()?;
        let name = hash.to_hex().to_string();
        let packs = self.store.packs_dir();
        rustix::fs::renameat(packs, pack.name.as_str(), packs, name.as_str())?;
        self.names.push(name);
        Ok(())
    }

    /// Brings everything to the disk, and returns the names of the new packs. Objects that were added can be read from then on.
    pub fn finish(mut self) -> Result<Vec<String>, SnapshotError> {
        if self.is_dry {
            return Ok(Vec::new());
        }
        self.close_block(Kind::File)?;
        self.close_block(Kind::Directory)?;
        self.close_pack()?;
        let names = std::mem::take(&mut self.names);
        if !names.is_empty() {
            rustix::fs::fsync(self.store.packs_dir())?;
        }
        for name in &names {
            self.store.add(name.clone())?;
        }
        Ok(names)
    }

    /// Takes the directories that a dry writer named and the store does not have.
    #[must_use]
    pub fn into_kept(mut self) -> KeptObjects {
        std::mem::take(&mut self.kept)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // A pack that was not finished is nothing; a cleaning removes what cannot be removed now.
        if let Some(pack) = &self.pack {
            rustix::fs::unlinkat(self.store.packs_dir(), pack.name.as_str(), AtFlags::empty()).ok();
        }
    }
}

impl NewPack {
    fn begin(store: &Store) -> Result<Self, SnapshotError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = format!("{NEW}{}", nexus_model::RunId::new());
        let mut file = File::from(openat(store.packs_dir(), name.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(MAGIC)?;
        Ok(Self { name, file, at: MAGIC.len() as u64, index: Index::default() })
    }
}
