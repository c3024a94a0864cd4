//! Remembers the files of a tree from one scan to the next, so that the next one reads only files that changed.
//!
//! A file counts as unchanged while its inode number, size, mtime and ctime are the same; no process can set ctime. A file that changed
//! shortly before the scan could change again within one tick of the clock and keep its time stamps, so it is not remembered (`RACE`).

use crate::attributes::Extended;
use crate::object::{Content, ObjectId, bytes_of};
use nexus_beneath::meta::{FsTime, Meta};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;

/// Files that changed within this time before a scan are read again by the next one, in nanoseconds: longer than a tick of the kernel's
/// clock.
const RACE: i128 = 100_000_000;
/// The same where time stamps seem to have whole seconds, in nanoseconds.
const RACE_OF_SECONDS: i128 = 2_000_000_000;

/// The attributes and the content of one file at the last scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
    /// The content of the file.
    pub content: Content,
    /// The extended attributes of the file.
    pub extended: Extended,
}

/// The files of a tree by their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    device: (u32, u32),
    files: HashMap<Vec<u8>, Known>,
}

impl Cache {
    /// Reads a cache. Bytes that were damaged, or that another version wrote, give an empty cache.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let Some((hash, bytes)) = bytes.split_at_checked(32) else { return Self::default() };
        if ObjectId::of(bytes).0 != *hash {
            return Self::default();
        }
        postcard::from_bytes(bytes).unwrap_or_default()
    }

    /// Returns the bytes of the cache, with their hash.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let bytes = bytes_of(self)?;
        let mut whole = ObjectId::of(&bytes).0.to_vec();
        whole.extend(bytes);
        Ok(whole)
    }

    /// Begins the cache of a tree on this device.
    pub(crate) fn of_device(device: (u32, u32)) -> Self {
        Self { device, files: HashMap::new() }
    }

    /// Returns what is known of a file that has not changed.
    pub(crate) fn find(&self, path: &[u8], meta: &Meta) -> Option<&Known> {
        let known = self.files.get(path)?;
        let is_same = self.device == meta.dev
            && known.ino == meta.id.ino
            && known.size == meta.size
            && known.mtime == pair(meta.mtime)
            && known.ctime == pair(meta.ctime);
        is_same.then_some(known)
    }

    /// Remembers a file, unless it changed at about the time `now` at which the scan began.
    pub(crate) fn note(&mut self, path: &[u8], meta: &Meta, (content, extended): (Content, Extended), now: FsTime) {
        if is_settled(meta.mtime, now) && is_settled(meta.ctime, now) {
            let (mtime, ctime) = (pair(meta.mtime), pair(meta.ctime));
            let known = Known { ino: meta.id.ino, size: meta.size, mtime, ctime, content, extended };
            self.files.insert(path.to_vec(), known);
        }
    }

    /// Returns the number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Reports whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

pub(crate) fn pair(time: FsTime) -> (i64, u32) {
    (time.sec, time.nsec)
}

/// Reports whether a time stamp is so old that a change after the scan has another one.
fn is_settled(time: FsTime, now: FsTime) -> bool {
    let nanoseconds = |time: FsTime| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let race = if time.nsec == 0 { RACE_OF_SECONDS } else { RACE };
    nanoseconds(now) - nanoseconds(time) > race
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_just_changed_is_not_settled() {
        let at = |sec, nsec| FsTime { sec, nsec };
        assert!(is_settled(at(10, 1), at(11, 0)));
        assert!(!is_settled(at(10, 999_999_999), at(11, 0)));
        assert!(!is_settled(at(12, 5), at(11, 0)), "a time in the future says nothing");
        assert!(!is_settled(at(10, 0), at(11, 0)) && is_settled(at(8, 0), at(11, 0)));
    }

    #[test]
    fn a_damaged_cache_is_an_empty_one() {
        let mut cache = Cache::of_device((1, 2));
        let known =
            Known { ino: 1, size: 2, mtime: (3, 4), ctime: (5, 6), content: Content::Empty, extended: Vec::new() };
        cache.files.insert(b"a/b".to_vec(), known);
        let bytes = cache.bytes().unwrap();
        assert_eq!(Cache::read(&bytes), cache);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(Cache::read(&flipped).is_empty(), "byte {at}");
        }
        assert!(Cache::read(b"").is_empty());
    }
}
