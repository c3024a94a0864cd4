//! Reads the file of an index, and knows those that git must not read.

use super::format::{MAGIC, inspect};
use crate::reads::Reads;
use nexus_beneath::fold::fold;
use nexus_beneath::open_file;
use rustix::fs::OFlags;
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;

/// Tells whether a name is that of an index, or of one that others share.
pub fn is_index(name: &[u8]) -> bool {
    let folded = fold(name);
    folded.as_ref() == b"index" || folded.starts_with(b"sharedindex.")
}

/// An entry that has the name of an index.
pub enum Content {
    /// It is not an index.
    Other,
    /// This user cannot read it, and may open it to itself later.
    Closed,
    /// It is larger than what may still be read.
    TooLarge,
    /// It is an index, with these bytes.
    Index(Index),
}

/// The bytes of an index.
pub struct Index {
    /// The content of the file.
    pub bytes: Vec<u8>,
    /// The second in which it was written.
    pub written: i64,
}

/// Reads an index, up to what may still be read.
pub fn read(dir: BorrowedFd<'_>, name: &[u8], reads: &Reads) -> io::Result<Content> {
    let file = match open_file(dir, name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(Content::Other),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Content::Closed),
        Err(error) => return Err(error),
    };
    let mut file = std::fs::File::from(file);
    let mut bytes = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
    if bytes != MAGIC {
        return Ok(Content::Other);
    }
    let meta = file.metadata()?;
    if !reads.take(&meta) {
        return Ok(Content::TooLarge);
    }
    let size = meta.len();
    bytes.reserve(usize::try_from(size).unwrap_or(0));
    file.take(size).read_to_end(&mut bytes)?;
    Ok(Content::Index(Index { bytes, written: meta.mtime() }))
}

/// Says that an index makes no sense.
pub const UNKNOWN: &str = "a git index that cannot be understood";
/// Says that an index has names that lead elsewhere.
pub const NAMES: &str = "a git index with names that no working tree may have";

/// Returns why an index may not come unasked. Pure.
pub fn problem(bytes: &[u8], id: usize) -> Option<&'static str> {
    match inspect(bytes, id, &mut |_| {}) {
        Some(true) => None,
        Some(false) => Some(NAMES),
        None => Some(UNKNOWN),
    }
}
