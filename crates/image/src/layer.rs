//! Unpacks one layer after the other into a tree.

use crate::digest::{Digest, Hashed};
use crate::entry::{self, Named};
use crate::error::{At as _, ImageError, shown};
use crate::inflate::{self, Bounded};
use crate::limits::Limits;
use crate::tree::{Tree, finish_file};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::rc::Rc;
use tar::EntryType;

/// Bytes that one header may take with its extensions, which are held in memory.
const HEADER_BYTES: u64 = 1 << 20;
/// Bytes of a file that are copied at once.
const BUFFER: usize = 64 << 10;

/// Counts of what was unpacked, and of what was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// Entries of all layers.
    pub entries: u64,
    /// Bytes of the layers, unpacked.
    pub bytes: u64,
    /// Device nodes, FIFOs and other special files, which were left out.
    pub skipped_special: u64,
    /// Files and directories that lost a setuid or setgid bit.
    pub stripped_bits: u64,
}

/// Passes on no more bytes than it is allowed at the moment.
pub struct Gate<R> {
    inner: R,
    allowed: Rc<Cell<u64>>,
}

impl<R> Gate<R> {
    /// Begins with the bytes of one header, and returns the knob.
    pub fn new(inner: R) -> (Self, Rc<Cell<u64>>) {
        let allowed = Rc::new(Cell::new(HEADER_BYTES));
        (Self { inner, allowed: Rc::clone(&allowed) }, allowed)
    }
}

impl<R: Read> Read for Gate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.allowed.get()).unwrap_or(usize::MAX));
        if room == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the header of an entry is larger than 1 MiB"));
        }
        let read = self.inner.read(&mut buffer[..room])?;
        self.allowed.set(self.allowed.get() - read as u64);
        Ok(read)
    }
}

impl<R: Seek> Seek for Gate<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Allows the bytes of the next header.
pub fn allow_header(knob: &Cell<u64>) {
    knob.set(HEADER_BYTES);
}

/// Unpacks a layer, given as it is stored, and returns its digest, unpacked.
pub fn unpack(
    tree: &mut Tree,
    stored: impl Read + 'static,
    stored_bytes: u64,
    limits: &Limits,
    counts: &mut Unpacked,
) -> Result<Digest, ImageError> {
    tree.next_layer();
    let by_ratio = stored_bytes.saturating_mul(limits.ratio).saturating_add(limits.free_bytes);
    let by_total = limits.unpacked_bytes.saturating_sub(counts.bytes);
    let stream = inflate::open(stored).map_err(|source| ImageError::Layer { source })?;
    let mut stream = Hashed::new(Bounded::new(stream, by_ratio.min(by_total)));
    let done = entries(tree, &mut stream, limits, counts);
    if stream.inner().is_over() {
        return Err(if by_ratio <= by_total {
            ImageError::Bomb { stored: stored_bytes, unpacked: by_ratio }
        } else {
            ImageError::TooMuch { what: "bytes of all unpacked layers".to_owned(), most: limits.unpacked_bytes }
        });
    }
    done?;
    let (digest, bytes) = stream.finish();
    counts.bytes += bytes;
    Ok(digest)
}

fn entries(tree: &mut Tree, stream: &mut impl Read, limits: &Limits, counts: &mut Unpacked) -> Result<(), ImageError> {
    let unreadable = |source| ImageError::Layer { source };
    let (gate, knob) = Gate::new(&mut *stream);
    let mut archive = tar::Archive::new(gate);
    // The archive reads ahead of nothing: what an entry leaves over is read before the next header.
    let mut entries = archive.entries().map_err(unreadable)?;
    loop {
        allow_header(&knob);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(unreadable)?;
        knob.set(u64::MAX);
        counts.entries += 1;
        if counts.entries > limits.entries {
            return Err(ImageError::TooMuch { what: "entries of all layers".to_owned(), most: limits.entries });
        }
        one(tree, &mut entry, counts)?;
        io::copy(&mut entry, &mut io::sink()).map_err(unreadable)?;
    }
    drop(archive);
    // What follows the end of the archive counts for the digest.
    io::copy(stream, &mut io::sink()).map_err(unreadable)?;
    Ok(())
}

fn one<R: Read>(tree: &mut Tree, entry: &mut tar::Entry<'_, R>, counts: &mut Unpacked) -> Result<(), ImageError> {
    let unreadable = |source| ImageError::Layer { source };
    let mut kind = entry.header().entry_type();
    if entry.header().as_ustar().is_none() && kind.is_file() && entry.path_bytes().ends_with(b"/") {
        // The oldest form has no type of directories.
        kind = EntryType::Directory;
    }
    if kind.is_pax_global_extensions() {
        return Ok(());
    }
    let path = match entry::read(&entry.path_bytes())? {
        Named::Place(path) => path,
        Named::Whiteout(path) => return tree.whiteout(&path),
        Named::Opaque(path) => return tree.opaque(&path),
        Named::Root | Named::Ignored => return Ok(()),
    };
    let mode = entry.header().mode().map_err(unreadable)?;
    let link = entry.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
    match kind {
        EntryType::Directory => {
            counts.stripped_bits += u64::from(mode & 0o6000 != 0);
            tree.directory(&path, mode)
        }
        EntryType::Regular | EntryType::Continuous => {
            counts.stripped_bits += u64::from(mode & 0o6000 != 0);
            let seconds = entry.header().mtime().map_err(unreadable)?;
            let mut file = tree.file(&path)?;
            let wanted = entry.size();
            let written = copy(entry, &mut file, &path)?;
            if written != wanted {
                return Err(unreadable(io::ErrorKind::UnexpectedEof.into()));
            }
            finish_file(&file, &path, mode, seconds)
        }
        EntryType::Symlink if link.is_empty() || link.len() > 4095 || link.contains(&0) => {
            Err(entry::refused(&path, "it is a symbolic link without a usable target"))
        }
        EntryType::Symlink => tree.symlink(&path, &link),
        EntryType::Link => {
            let target = entry::place(&link)?;
            if target.is_empty() {
                return Err(entry::refused(&path, "it is a hard link to the root"));
            }
            tree.hard_link(&path, &target)
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            counts.skipped_special += 1;
            Ok(())
        }
        EntryType::GNUSparse => Err(entry::refused(&path, "it is a sparse file of GNU tar")),
        _ => Err(ImageError::EntryPath { path: shown(&path), why: "its type is unknown" }),
    }
}

fn copy(from: &mut impl Read, to: &mut std::fs::File, path: &[u8]) -> Result<u64, ImageError> {
    let mut buffer = vec![0; BUFFER];
    let mut all = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(all),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(ImageError::Layer { source }),
        };
        to.write_all(&buffer[..read]).on("write", path)?;
        all += read as u64;
    }
}
