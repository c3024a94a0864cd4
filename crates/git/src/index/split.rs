//! Makes a whole index of one that shares entries with another file (`git update-index --split-index`). Pure.
//!
//! The data of files are taken out of each index that comes ([`super::stat_data`]). A shared index is named by its
//! checksum, which is wrong then, and `git fsck` takes it for damaged. So an index that needs such a file comes with all
//! of its entries, and without the extension that names the file:
//!
//! ```text
//!  sharedindex.SUM   a  b  c  d
//!  index             link: SUM, deleted {c}, replaced {b}     entries: (no name)  e
//!  comes             a  b' d  e
//! ```

use super::format::{EXTENDED, HEADER, LENGTH, LONG, MAGIC, Reader, SHORT, inspect};
use super::sha1::sha1;

use std::collections::{BTreeMap, HashSet};

/// Bytes of an entry before its object id.
const DATA: usize = 40;
/// Extensions that stay with the entries.
const KEPT: &[&[u8]] = &[b"REUC", b"sdir"];
/// Bits of an entry with its stage in a merge.
const STAGE: u16 = 0x3000;

/// The extension of an index that names the one which it shares.
pub struct Link<'a> {
    id: usize,
    /// The checksum in the name of the shared index.
    pub sum: &'a [u8],
    deleted: HashSet<usize>,
    replaced: Vec<usize>,
}

/// An entry without its name: the data up to the end of the object id, and the flags.
struct Data<'a> {
    block: &'a [u8],
    flags: u16,
    more: u16,
}

/// The entries of an index by their names, each with its stage.
type Entries<'a> = BTreeMap<(Vec<u8>, u16), Data<'a>>;

/// Reads which index an index shares; `None` where it has all of its entries, or makes no sense.
pub fn link(index: &[u8]) -> Option<Link<'_>> {
    let makes_sense = |id: &usize| inspect(index, *id, &mut |_| {}) == Some(true);
    let lengths: Vec<usize> = [SHORT, LONG].into_iter().filter(makes_sense).collect();
    let [id] = lengths[..] else { return None };
    let content = extensions(index, id)?.into_iter().find(|(signature, _)| *signature == b"link")?.1;
    let mut reader = Reader { bytes: content, at: 0 };
    let sum = reader.take(id)?;
    let (deleted, replaced) =
        if reader.at == content.len() { (Vec::new(), Vec::new()) } else { (bits(&mut reader)?, bits(&mut reader)?) };
    (sum.iter().any(|byte| *byte != 0)).then(|| Link { id, sum, deleted: deleted.into_iter().collect(), replaced })
}

/// Returns the extensions of an index with their contents.
fn extensions(index: &[u8], id: usize) -> Option<Vec<(&[u8], &[u8])>> {
    let bytes = index.get(..index.len().checked_sub(id)?)?;
    let mut at = HEADER;
    inspect(index, id, &mut |entry| at = entry.end)?;
    let mut reader = Reader { bytes, at };
    let mut found = Vec::new();
    while reader.at < bytes.len() {
        let (signature, size) = (reader.take(4)?, reader.number()?);
        found.push((signature, reader.take(size)?));
    }
    Some(found)
}

/// Returns the places of the bits that are set in a compressed bitmap (EWAH). There is at most one for each entry.
fn bits(reader: &mut Reader<'_>) -> Option<Vec<usize>> {
    let size = reader.number()?;
    let words = reader.number()?;
    let (words, _) = reader.take(words.checked_mul(8)?)?.as_chunks::<8>();
    reader.take(4)?;
    let mut words = words.iter().map(|word| u64::from_be_bytes(*word));
    let (mut found, mut at) = (Vec::new(), 0_usize);
    while let Some(run) = words.next() {
        let (is_set, equal, literal) = (run & 1 != 0, (run >> 1) as u32 as usize, run >> 33);
        let end = at.checked_add(equal.checked_mul(64)?)?;
        if is_set {
            // The sizes are those of a file with an entry for each bit, or the file makes no sense.
            found.extend(at..end.min(size));
        }
        at = end;
        for _ in 0..literal {
            let word = words.next()?;
            found.extend((0..64).filter(|bit| word >> bit & 1 != 0).map(|bit| at + bit));
            at = at.checked_add(64)?;
        }
    }
    (found.len() <= size && found.last().is_none_or(|last| *last < size)).then_some(found)
}

/// Returns an index with all entries of one and of the one that it shares; `None` where they do not fit.
pub fn whole(index: &[u8], link: &Link<'_>, shared: &[u8]) -> Option<Vec<u8>> {
    let id = link.id;
    if !shared.ends_with(link.sum) {
        return None;
    }
    let read = |bytes| {
        let mut found = Vec::new();
        let data = |begin: usize| begin..begin + DATA + id;
        let is_good = inspect(bytes, id, &mut |entry| {
            found.push((entry.name.to_vec(), data(entry.begin), entry.flags, entry.more));
        });
        (is_good == Some(true)).then_some(found)
    };
    let mut old = read(shared)?;
    let mut new = read(index)?.into_iter();
    let mut entries = Entries::new();
    let mut replaced = HashSet::new();
    for place in &link.replaced {
        let (name, data, flags, more) = new.next()?;
        if !name.is_empty() || link.deleted.contains(place) || !replaced.insert(*place) {
            return None;
        }
        let name = std::mem::take(&mut old.get_mut(*place)?.0);
        entries.insert((name, flags & STAGE), Data { block: &index[data], flags, more });
    }
    if link.deleted.iter().any(|place| *place >= old.len()) {
        return None;
    }
    for (place, (name, data, flags, more)) in old.into_iter().enumerate() {
        if !link.deleted.contains(&place) && !replaced.contains(&place) {
            entries.insert((name, flags & STAGE), Data { block: &shared[data], flags, more });
        }
    }
    for (name, data, flags, more) in new {
        if name.is_empty() {
            return None;
        }
        // A name is merged, or in stages of a merge.
        for stage in [0, 0x1000, 0x2000, 0x3000].into_iter().filter(|stage| (*stage == 0) != (flags & STAGE == 0)) {
            entries.remove(&(name.clone(), stage));
        }
        entries.insert((name, flags & STAGE), Data { block: &index[data], flags, more });
    }
    write(&entries, &extensions(index, id)?, id)
}

fn write(entries: &Entries<'_>, extensions: &[(&[u8], &[u8])], id: usize) -> Option<Vec<u8>> {
    let is_extended = entries.values().any(|data| data.flags & EXTENDED != 0);
    let mut out = MAGIC.to_vec();
    out.extend(if is_extended { 3_u32 } else { 2 }.to_be_bytes());
    out.extend(u32::try_from(entries.len()).ok()?.to_be_bytes());
    for ((name, _), data) in entries {
        let begin = out.len();
        out.extend(data.block);
        let length = u16::try_from(name.len()).unwrap_or(LENGTH).min(LENGTH);
        out.extend((data.flags & !LENGTH | length).to_be_bytes());
        if data.flags & EXTENDED != 0 {
            out.extend(data.more.to_be_bytes());
        }
        out.extend(name);
        let padded = (out.len() - begin + 8) & !7;
        out.resize(begin + padded, 0);
    }
    for (signature, content) in extensions.iter().filter(|(signature, _)| KEPT.contains(signature)) {
        out.extend(*signature);
        out.extend(u32::try_from(content.len()).ok()?.to_be_bytes());
        out.extend(*content);
    }
    if id == SHORT {
        out.extend(sha1(&out));
    } else {
        out.extend([0; LONG]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{closed, extension, stamped};
    use super::*;

    fn bitmap(size: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = size.to_be_bytes().to_vec();
        bytes.extend(u32::try_from(words.len()).unwrap().to_be_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn a_compressed_bitmap_is_read() {
        let of = |size, words: &[u64]| {
            let bytes = bitmap(size, words);
            bits(&mut Reader { bytes: &bytes, at: 0 })
        };
        assert_eq!(of(4, &[1 << 33, 0b1010]), Some(vec![1, 3]));
        assert_eq!(of(70, &[1 << 33 | 1 << 1, 0b1]), Some(vec![64]));
        assert_eq!(of(66, &[1 << 33 | 1 << 1 | 1, 0b10]).map(|bits| bits.len()), Some(65));
        assert_eq!(of(3, &[1 << 33, 0b1010]), None, "more bits than there are");
        assert_eq!(of(3, &[1 << 33]), None, "a word is missing");
        assert_eq!(of(3, &[u64::from(u32::MAX) << 1 | 1]), Some(vec![0, 1, 2]), "its length may be a lie");
    }

    #[test]
    fn an_index_gets_the_entries_that_it_shares() {
        for id in [SHORT, LONG] {
            let shared = closed(stamped(&[("a", 5, 1), ("b", 5, 1), ("c", 5, 1)], id), id);
            let sum = vec![7; id];
            let shared = [&shared[..shared.len() - id], &sum].concat();
            let own = stamped(&[("", 5, 2), ("d", 5, 3)], id);
            let names = [&sum[..], &bitmap(3, &[1 << 33, 0b100]), &bitmap(3, &[1 << 33, 0b10])].concat();
            let index = closed([own, extension(b"link", &names), extension(b"REUC", b"r")].concat(), id);
            let link = link(&index).unwrap();
            assert_eq!(link.sum, sum);
            let all = whole(&index, &link, &shared).unwrap();
            let wanted = stamped(&[("a", 5, 1), ("b", 5, 2), ("d", 5, 3)], id);
            assert_eq!(all[..all.len() - id], [wanted, extension(b"REUC", b"r")].concat(), "{id}");
            assert_eq!(whole(&index, &link, &[&shared[..], b"x"].concat()), None, "it is another one");
        }
        let without = closed(stamped(&[("a", 5, 1)], SHORT), SHORT);
        assert!(link(&without).is_none());
    }
}
