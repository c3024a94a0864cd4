//! The objects that an index names. Pure.

use super::format::inspect;
use std::collections::HashSet;

/// Bytes of an entry before its mode, and before its object id (gitformat-index(5)).
const MODE: usize = 24;
const ID: usize = 40;
/// The mode of the commit of a submodule, which lies in another repository.
const SUBMODULE: [u8; 4] = 0o160_000_u32.to_be_bytes();

/// Returns the ids in an index that an older one does not have; none of an index that cannot be read. `length` is that of an id.
pub fn new_ids(new: &[u8], old: &[u8], length: usize) -> HashSet<Vec<u8>> {
    let known = ids(old, length);
    let mut found = ids(new, length);
    found.retain(|id| !known.contains(id));
    found
}

fn ids(bytes: &[u8], length: usize) -> HashSet<Vec<u8>> {
    let mut found = HashSet::new();
    let read = inspect(bytes, length, &mut |entry| {
        let part = |from: usize, length: usize| bytes.get(entry.begin + from..entry.begin + from + length);
        if part(MODE, 4).is_some_and(|mode| mode != SUBMODULE) {
            found.extend(part(ID, length).map(<[u8]>::to_vec));
        }
    });
    if read.is_some() { found } else { HashSet::new() }
}
