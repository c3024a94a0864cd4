//! The form of a pack, a file that is written once.
//!
//! ```text
//!  MAGIC │ block │ block │ … │ index (postcard) │ length of the index │ BLAKE3 of the index │ END
//!  index: where each block lies, its hash, and which objects lie where in it
//! ```
//! The file is named after the hash of its index. Each block has its own hash over the stored bytes, so that a changed byte is
//! found before anything is unpacked.

use crate::error::SnapshotError;
use crate::object::{MAX_OBJECT, ObjectId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Begins a pack.
pub(crate) const MAGIC: &[u8; 8] = b"nxpack1\n";
/// Ends a pack.
pub(crate) const END: &[u8; 8] = b"nxpack1.";
/// Bytes behind the index.
pub(crate) const FOOT: usize = 8 + 32 + END.len();
/// Largest index, in bytes.
const MAX_INDEX: u64 = 256 << 20;

/// The index of a pack.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Index {
    /// The blocks in their order.
    pub blocks: Vec<Block>,
    /// The objects, block by block.
    pub objects: Vec<Place>,
}

/// Objects that are compressed together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Block {
    /// Offset of the block in the file.
    pub at: u64,
    /// Number of the stored bytes.
    pub stored: u32,
    /// Bytes of its objects.
    pub raw: u32,
    /// True for directories and tops of trees, false for pieces of files.
    pub of_directories: bool,
    /// True if the stored bytes are compressed (zstd); otherwise they are those of the objects.
    pub is_compressed: bool,
    /// BLAKE3 of the stored bytes.
    pub hash: [u8; 32],
}

/// The place of an object in a pack.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Name of the object.
    pub id: ObjectId,
    /// Number of its block.
    pub block: u32,
    /// Offset of the object in the block.
    pub at: u32,
    /// Number of the bytes of the object.
    pub length: u32,
}

fn damaged(pack: &str, why: &'static str) -> SnapshotError {
    SnapshotError::Damaged { pack: pack.to_owned(), why }
}

/// Reads bytes at an offset. A file that is too short is a damaged pack.
fn read_at(file: &File, pack: &str, at: u64, length: usize) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(damaged(pack, "it is too short")),
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
            Err(damaged(pack, "the disk does not give its bytes"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads and checks the index of the pack with this name.
pub(crate) fn index(file: &File, pack: &str) -> Result<Index, SnapshotError> {
    let length = file.metadata()?.len();
    let Some(before_foot) = length.checked_sub(FOOT as u64).filter(|left| *left >= MAGIC.len() as u64) else {
        return Err(damaged(pack, "it is too short"));
    };
    if read_at(file, pack, 0, MAGIC.len())? != MAGIC {
        return Err(damaged(pack, "its beginning is not that of a pack"));
    }
    let foot = read_at(file, pack, before_foot, FOOT)?;
    let (size, rest) = foot.split_at(8);
    let (hash, end) = rest.split_at(32);
    if end != END {
        return Err(damaged(pack, "its end is not that of a pack"));
    }
    let size = u64::from_le_bytes(size.try_into().unwrap_or_default());
    let Some(begin) = before_foot.checked_sub(size).filter(|begin| *begin >= MAGIC.len() as u64 && size <= MAX_INDEX)
    else {
        return Err(damaged(pack, "the length of its index is wrong"));
    };
    let bytes = read_at(file, pack, begin, size as usize)?;
    let found = blake3::hash(&bytes);
    if found.as_bytes() != hash || found.to_hex().as_str() != pack {
        return Err(damaged(pack, "its index does not have its hash"));
    }
    let index: Index = postcard::from_bytes(&bytes).map_err(|_| damaged(pack, "its index cannot be read"))?;
    let fits = |block: &Block| {
        block.raw <= MAX_OBJECT && block.at.checked_add(u64::from(block.stored)).is_some_and(|end| end <= begin)
    };
    let lies = |place: &Place| {
        let raw = index.blocks.get(place.block as usize).map_or(0, |block| block.raw);
        place.at.checked_add(place.length).is_some_and(|end| end <= raw)
    };
    if index.blocks.iter().all(fits) && index.objects.iter().all(lies) {
        return Ok(index);
    }
    Err(damaged(pack, "its index leads outside of it"))
}

/// Reads the stored bytes of a block and checks them.
pub(crate) fn stored(file: &File, pack: &str, block: &Block) -> Result<Vec<u8>, SnapshotError> {
    let bytes = read_at(file, pack, block.at, block.stored as usize)?;
    if *blake3::hash(&bytes).as_bytes() == block.hash {
        return Ok(bytes);
    }
    Err(damaged(pack, "a block does not have its hash"))
}

/// Reads a block as the bytes of its objects.
pub(crate) fn unpacked(file: &File, pack: &str, block: &Block) -> Result<Vec<u8>, SnapshotError> {
    let bytes = stored(file, pack, block)?;
    let raw = if block.is_compressed {
        let mut raw = vec![0; block.raw as usize];
        let length = zstd_safe::decompress(raw.as_mut_slice(), &bytes).unwrap_or(usize::MAX);
        if length == raw.len() { raw } else { Vec::new() }
    } else {
        bytes
    };
    if raw.len() == block.raw as usize {
        return Ok(raw);
    }
    Err(damaged(pack, "a block cannot be unpacked"))
}
