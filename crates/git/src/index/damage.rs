//! Finds an index that git did not write as it is: one that was emptied, cut off, or rewritten by a program for texts.

use super::format::{MAGIC, SHORT, inspect};
use super::sha1::sha1;

use crate::reads::Reads;
use nexus_beneath::open_file;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;

/// Reports whether git did not write an index as it is, by its beginning, its checksum and the order of its names. One
/// that may not be read is not looked at.
pub fn is_damaged(dir: BorrowedFd<'_>, name: &[u8], lengths: &[usize], reads: &Reads) -> io::Result<bool> {
    let file = match open_file(dir, name, OFlags::RDONLY) {
        Ok(file) => std::fs::File::from(file),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !reads.take(&meta) {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    file.take(meta.len()).read_to_end(&mut bytes)?;
    Ok(has_damage(&bytes, lengths))
}

/// Reports whether an index was damaged, with object ids of one of these lengths. Pure.
fn has_damage(bytes: &[u8], lengths: &[usize]) -> bool {
    bytes.get(..MAGIC.len()) != Some(MAGIC)
        || !lengths.iter().any(|length| has_checksum(bytes, *length) && is_in_order(bytes, *length))
}

/// Reports whether an index ends with its checksum, or with zeros, by which git says that it wrote none
/// (`index.skipHash`).
pub fn has_checksum(bytes: &[u8], length: usize) -> bool {
    let Some((content, trailer)) = bytes.len().checked_sub(length).and_then(|end| bytes.split_at_checked(end)) else {
        return false;
    };
    let sum = if length == SHORT { sha1(content).to_vec() } else { Sha256::digest(content).to_vec() };
    trailer.iter().all(|byte| *byte == 0) || trailer == sum
}

/// Reports whether the names of an index are in the order in which git writes them. In one that shares another one, an
/// entry without a name is a new version of one there. An index that is not understood counts as in order.
fn is_in_order(bytes: &[u8], length: usize) -> bool {
    /// Bits of an entry with the side of a merge.
    const STAGE: u16 = 0x3000;
    let mut last: Option<(Vec<u8>, u16)> = None;
    let mut is_sorted = true;
    let is_known = inspect(bytes, length, &mut |entry| {
        if entry.name.is_empty() {
            return;
        }
        let key = (entry.name.to_vec(), entry.flags & STAGE);
        is_sorted &= last.as_ref().is_none_or(|last| *last < key && (last.0 != key.0 || last.1 != 0));
        last = Some(key);
    });
    is_known.is_none() || is_sorted
}

#[cfg(test)]
mod tests {
    use super::super::format::LONG;
    use super::super::tests::{closed, flagged, index};
    use super::*;

    fn summed(content: Vec<u8>) -> Vec<u8> {
        let sum = sha1(&content);
        [content, sum.to_vec()].concat()
    }

    #[test]
    fn an_index_has_its_checksum_and_its_order() {
        let good = summed(index(&[b"a", b"b/c", b"b0"], SHORT));
        let of = |bytes: &[u8]| has_damage(bytes, &[SHORT]);
        assert!(!of(&good));
        assert!(!of(&closed(index(&[b"a", b"b"], SHORT), SHORT)), "zeros");
        assert!(of(b"") && of(b"DIRC") && of(&good[1..]) && of(&good[..good.len() - 1]));
        let mut other = good.clone();
        other[60] ^= 1;
        assert!(of(&other));
        assert!(of(&summed(index(&[b"b", b"a"], SHORT))));
        assert!(of(&summed(index(&[b"a", b"a"], SHORT))));
        // The sides of a merge.
        assert!(!of(&summed(flagged(&[("a", 0x1000, 0), ("a", 0x2000, 0), ("a", 0x3000, 0)], SHORT))));
        assert!(of(&summed(flagged(&[("a", 0x2000, 0), ("a", 0x1000, 0)], SHORT))));
        assert!(of(&summed(flagged(&[("a", 0, 0), ("a", 0x1000, 0)], SHORT))));
        assert!(!of(&summed(index(&[b"", b"", b"a"], SHORT))));
        assert!(has_damage(&closed(index(&[b"b", b"a"], LONG), LONG), &[LONG]));
        let long = [index(&[b"a"], LONG), Sha256::digest(index(&[b"a"], LONG)).to_vec()].concat();
        assert!(!has_damage(&long, &[LONG]) && has_damage(&long[1..], &[LONG]));
    }
}
