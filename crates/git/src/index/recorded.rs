//! Reads what an index says about the files that git saw. Pure.

use super::damage::has_checksum;
use super::format::{LONG, SHORT, inspect};

/// Bits of an entry with the side of a merge.
const STAGE: u16 = 0x3000;
/// The bits of the mode of a regular file.
const REGULAR: u32 = 0o100;

/// One file as git saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The path in the working tree.
    pub name: Vec<u8>,
    /// The time of the last change of the attributes: seconds, of which the index has 32 bits, and nanoseconds.
    pub ctime: (u32, u32),
    /// The time of the last change of the content, in the same form.
    pub mtime: (u32, u32),
    /// The lower 32 bits of the inode number.
    pub ino: u32,
    /// The lower 32 bits of the size in bytes.
    pub size: u32,
    /// The object id of the content.
    pub id: Vec<u8>,
}

/// Returns the regular files of an index that are not in a merge. Empty where the index is not understood in exactly one
/// way, or is damaged.
pub fn entries(bytes: &[u8]) -> Vec<Recorded> {
    let read = |length: usize| -> Option<Vec<Recorded>> {
        let mut found = Vec::new();
        let is_whole = inspect(bytes, length, &mut |entry| {
            let block = bytes.get(entry.begin..).unwrap_or_default();
            // A file that is only meant to be added has no content yet.
            let is_plain = entry.flags & STAGE == 0 && entry.more == 0 && !entry.name.is_empty();
            found.extend(is_plain.then(|| recorded(entry.name, block, length)).flatten());
        });
        (is_whole == Some(true) && has_checksum(bytes, length)).then_some(found)
    };
    match (read(SHORT), read(LONG)) {
        (Some(found), None) | (None, Some(found)) => found,
        (Some(_), Some(_)) | (None, None) => Vec::new(),
    }
}

fn recorded(name: &[u8], block: &[u8], length: usize) -> Option<Recorded> {
    let number = |at: usize| Some(u32::from_be_bytes(block.get(at..at + 4)?.try_into().ok()?));
    if number(24)? >> 9 != REGULAR {
        return None;
    }
    Some(Recorded {
        name: name.to_vec(),
        ctime: (number(0)?, number(4)?),
        mtime: (number(8)?, number(12)?),
        ino: number(20)?,
        size: number(36)?,
        id: block.get(40..40 + length)?.to_vec(),
    })
}
