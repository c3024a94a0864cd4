//! Verifies that a pack holds, at the offsets that its index says, objects with the ids that the index says.
//!
//! Each object is inflated once: a base stays in memory while the deltas on it are made (as in `git index-pack`).

use super::delta;
use super::inflate::{Inflater, Source};
use super::object_id::{Hasher, Kind};
use super::pack_index::PackIndex;
use super::problem::{Bound, Budget, MAX_HELD, Problem};

/// Bytes before the first object: `PACK`, a version and the number of objects.
const HEADER: usize = 12;
/// Bytes that the header of an object has at most: its size, and the id or distance of its base.
pub const MAX_OBJECT_HEADER: usize = 10 + 32;
/// Objects of the largest pack that is verified: their table takes some 40 bytes for each.
const MAX_OBJECTS: usize = 2 << 20;
/// Stands for no object.
const NONE: u32 = u32::MAX;

/// An object of a pack.
struct Entry {
    /// Offsets of the beginning and the end of its stream.
    begin: u64,
    end: u64,
    /// Bytes of the object, or of the delta.
    size: u64,
    /// Its place in the index.
    place: u32,
    what: What,
    /// The first delta on it, and the next delta on the same base.
    first: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Whole(Kind),
    /// A delta on the entry with this number.
    Delta(u32),
}

/// Verifies a pack of `length` bytes.
pub fn verify<S: Source + ?Sized>(pack: &S, length: u64, index: &PackIndex, budget: &Budget) -> Result<(), Problem> {
    if index.count() > MAX_OBJECTS {
        return Err(Problem::Exceeds(Bound::Objects));
    }
    if !index.is_in_order() {
        return Err(Problem::Damaged);
    }
    // git refuses a pack whose checksum is not that of its index.
    let checksum = index.pack_checksum().ok_or(Problem::Damaged)?;
    let mut trailer = vec![0; checksum.len()];
    let at = length.checked_sub(trailer.len() as u64).ok_or(Problem::Damaged)?;
    if pack.read_at(&mut trailer, at)? != trailer.len() || trailer != checksum {
        return Err(Problem::Damaged);
    }
    if held_first(index) > MAX_HELD {
        return Err(Problem::Exceeds(Bound::Memory));
    }
    let entries = entries(pack, length, index, budget)?;
    let mut seen = 0;
    let mut resolver = Resolver::new(pack, index, budget, &entries);
    for entry in &entries {
        if let What::Whole(kind) = entry.what {
            seen += resolver.resolve(entry, kind)?;
        }
    }
    // Deltas on each other in a circle have no base.
    if seen == entries.len() { Ok(()) } else { Err(Problem::Damaged) }
}

/// Returns the bytes that the index and the tables of a pack take before the first object, the most at one time.
fn held_first(index: &PackIndex) -> u64 {
    const OF_OBJECT: usize = size_of::<Entry>() + size_of::<(u64, u32)>() + size_of::<u32>();
    (index.size() + index.count() * OF_OBJECT) as u64
}

/// Reads the headers of all objects, in the order of their offsets.
fn entries<S: Source + ?Sized>(
    pack: &S,
    length: u64,
    index: &PackIndex,
    budget: &Budget,
) -> Result<Vec<Entry>, Problem> {
    let mut header = [0; HEADER];
    if pack.read_at(&mut header, 0)? != HEADER {
        return Err(Problem::Damaged);
    }
    let count = u32::try_from(index.count()).map_err(|_| Problem::Exceeds(Bound::Objects))?;
    let is_version = |version: u32| header[4..8] == version.to_be_bytes();
    if !header.starts_with(b"PACK") || !(is_version(2) || is_version(3)) || header[8..] != count.to_be_bytes() {
        return Err(Problem::Damaged);
    }
    budget.take(index.count() as u64 * size_of::<Entry>() as u64)?;
    let mut sequence: Vec<(u64, u32)> = Vec::with_capacity(index.count());
    for place in 0..count {
        sequence.push((index.offset(place as usize).ok_or(Problem::Damaged)?, place));
    }
    sequence.sort_unstable();
    let last = length.checked_sub(index.format().id_length() as u64).ok_or(Problem::Damaged)?;
    if sequence.first().is_some_and(|(offset, _)| *offset != HEADER as u64) {
        return Err(Problem::Damaged);
    }
    let mut rank = vec![0_u32; index.count()];
    for (at, (_, place)) in (0..).zip(&sequence) {
        rank[*place as usize] = at;
    }
    let mut found: Vec<Entry> = Vec::with_capacity(index.count());
    for (at, (offset, place)) in sequence.iter().enumerate() {
        let end = sequence.get(at + 1).map_or(last, |(next, _)| *next);
        found.push(entry(pack, index, (&sequence, &rank), (*offset, end, *place), budget)?);
    }
    for at in 0..count {
        if let What::Delta(base) = found[at as usize].what {
            found[at as usize].next = std::mem::replace(&mut found[base as usize].first, at);
        }
    }
    Ok(found)
}

/// Reads the header of the object between two offsets.
fn entry<S: Source + ?Sized>(
    pack: &S,
    index: &PackIndex,
    (sequence, rank): (&[(u64, u32)], &[u32]),
    (offset, end, place): (u64, u64, u32),
    budget: &Budget,
) -> Result<Entry, Problem> {
    let mut buffer = [0; MAX_OBJECT_HEADER];
    budget.take(MAX_OBJECT_HEADER as u64)?;
    let available = end.checked_sub(offset).ok_or(Problem::Damaged)?;
    let wanted = usize::try_from(available).unwrap_or(MAX_OBJECT_HEADER).min(MAX_OBJECT_HEADER);
    let read = pack.read_at(&mut buffer[..wanted], offset)?;
    let mut header = Header { bytes: &buffer[..read], used: 0 };
    let (kind, size) = header.kind_and_size().ok_or(Problem::Damaged)?;
    let what = match kind {
        1 => What::Whole(Kind::Commit),
        2 => What::Whole(Kind::Tree),
        3 => What::Whole(Kind::Blob),
        4 => What::Whole(Kind::Tag),
        6 => {
            let distance = header.distance().ok_or(Problem::Damaged)?;
            let base = offset.checked_sub(distance).ok_or(Problem::Damaged)?;
            let at = sequence.binary_search_by_key(&base, |(offset, _)| *offset).map_err(|_| Problem::Damaged)?;
            What::Delta(at as u32)
        }
        7 => {
            let id = header.take(index.format().id_length()).ok_or(Problem::Damaged)?;
            What::Delta(rank[index.find(id).ok_or(Problem::Damaged)?])
        }
        _ => return Err(Problem::Damaged),
    };
    Ok(Entry { begin: offset + header.used as u64, end, size, place, what, first: NONE, next: NONE })
}

/// Reads from the front of an object.
pub struct Header<'a> {
    /// The bytes that are read.
    pub bytes: &'a [u8],
    /// Number of bytes that were taken.
    pub used: usize,
}

impl<'a> Header<'a> {
    /// Takes the next `count` bytes; `None` where there are fewer.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.used..self.used + count)?;
        self.used += count;
        Some(taken)
    }

    /// Takes the kind of an object and its size in bytes.
    pub fn kind_and_size(&mut self) -> Option<(u8, u64)> {
        let mut byte = self.take(1)?[0];
        let (kind, mut size, mut shift) = (byte >> 4 & 7, u64::from(byte & 0xf), 4);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            if shift > 53 {
                return None;
            }
            size |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Some((kind, size))
    }

    /// Reads how far before a delta its base begins.
    pub fn distance(&mut self) -> Option<u64> {
        let mut byte = self.take(1)?[0];
        let mut distance = u64::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            distance = distance.checked_add(1)?.checked_mul(128)? | u64::from(byte & 0x7f);
        }
        Some(distance)
    }
}

/// An object in memory whose deltas are being made.
struct Base {
    content: Vec<u8>,
    /// The delta that comes next.
    next: u32,
}

struct Resolver<'a, S: ?Sized> {
    pack: &'a S,
    index: &'a PackIndex,
    budget: &'a Budget,
    entries: &'a [Entry],
    inflater: Inflater<'a>,
    /// Bytes in memory: the index, the table of the objects, and objects.
    held: u64,
}

impl<'a, S: Source + ?Sized> Resolver<'a, S> {
    fn new(pack: &'a S, index: &'a PackIndex, budget: &'a Budget, entries: &'a [Entry]) -> Self {
        let held = (index.size() + size_of_val(entries)) as u64;
        Self { pack, index, budget, entries, inflater: Inflater::new(budget), held }
    }

    /// Verifies an object and all deltas on it. Returns how many objects these are.
    fn resolve(&mut self, root: &Entry, kind: Kind) -> Result<usize, Problem> {
        if root.first == NONE {
            self.stream(root, kind)?;
            return Ok(1);
        }
        let content = self.content(root)?;
        self.compare(root, kind, &content)?;
        let mut bases = vec![Base { content, next: root.first }];
        let mut seen = 1;
        while let Some(base) = bases.last_mut() {
            let Some(entry) = self.entries.get(base.next as usize) else {
                self.held -= base.content.len() as u64;
                bases.pop();
                continue;
            };
            base.next = entry.next;
            let made = self.delta(entry, &base.content)?;
            self.compare(entry, kind, &made)?;
            seen += 1;
            if entry.first == NONE {
                self.held -= made.len() as u64;
            } else {
                bases.push(Base { content: made, next: entry.first });
            }
        }
        Ok(seen)
    }

    /// Verifies an object that no delta needs.
    fn stream(&mut self, entry: &Entry, kind: Kind) -> Result<(), Problem> {
        let mut hasher = Hasher::new(self.index.format(), kind, entry.size);
        let mut left = entry.size;
        self.inflater.inflate(self.pack, (entry.begin, entry.end), &mut |piece| {
            left = left.checked_sub(piece.len() as u64).ok_or(Problem::Damaged)?;
            hasher.update(piece);
            Ok(())
        })?;
        let is_it = left == 0 && hasher.is(self.index.id(entry.place as usize));
        if is_it { Ok(()) } else { Err(Problem::Differs) }
    }

    fn compare(&self, entry: &Entry, kind: Kind, content: &[u8]) -> Result<(), Problem> {
        let mut hasher = Hasher::new(self.index.format(), kind, content.len() as u64);
        hasher.update(content);
        if hasher.is(self.index.id(entry.place as usize)) { Ok(()) } else { Err(Problem::Differs) }
    }

    /// Returns the bytes of an entry, and counts them among those in memory.
    fn content(&mut self, entry: &Entry) -> Result<Vec<u8>, Problem> {
        let size = self.hold(entry.size)?;
        // A size alone costs the run nothing: memory is taken as the bytes come.
        let mut content = Vec::new();
        self.inflater.inflate(self.pack, (entry.begin, entry.end), &mut |piece| {
            if piece.len() > size - content.len() {
                return Err(Problem::Damaged);
            }
            content.extend_from_slice(piece);
            Ok(())
        })?;
        if content.len() == size { Ok(content) } else { Err(Problem::Damaged) }
    }

    fn delta(&mut self, entry: &Entry, base: &[u8]) -> Result<Vec<u8>, Problem> {
        let delta = self.content(entry)?;
        let mut commands = &delta[..];
        let (of_base, size) = delta::sizes(&mut commands).ok_or(Problem::Damaged)?;
        if of_base != base.len() as u64 {
            return Err(Problem::Damaged);
        }
        self.budget.take(size)?;
        let size = self.hold(size)?;
        let made = delta::apply(base, commands, size).ok_or(Problem::Damaged)?;
        self.held -= delta.len() as u64;
        Ok(made)
    }

    /// Counts bytes among those in memory.
    fn hold(&mut self, bytes: u64) -> Result<usize, Problem> {
        let held = self.held.checked_add(bytes).filter(|held| *held <= MAX_HELD);
        self.held = held.ok_or(Problem::Exceeds(Bound::Memory))?;
        usize::try_from(bytes).map_err(|_| Problem::Exceeds(Bound::Memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::object_id::Format;

    /// An index of version 2 with this many objects.
    fn index(count: u32) -> PackIndex {
        let fanout: Vec<u8> = (0..256).flat_map(|_| count.to_be_bytes()).collect();
        let rest = vec![0; count as usize * 28 + 40];
        PackIndex::parse([b"\xfftOc\0\0\0\x02", &*fanout, &rest].concat(), Format::Sha1).unwrap()
    }

    /// The bound of memory is one for the index, the table and the objects.
    #[test]
    fn the_tables_of_a_pack_are_a_part_of_what_is_in_memory() {
        let (index, budget) = (index(100_000), Budget::default());
        let entry = || Entry { begin: 0, end: 0, size: 0, place: 0, what: What::Delta(0), first: NONE, next: NONE };
        let entries: Vec<Entry> = (0..100_000).map(|_| entry()).collect();
        let mut resolver = Resolver::new(&b""[..], &index, &budget, &entries);
        let left = MAX_HELD - 100_000 * (28 + size_of::<Entry>() as u64) - 8 - 1024 - 40;
        assert!(resolver.hold(left).is_ok());
        assert!(matches!(resolver.hold(1), Err(Problem::Exceeds(Bound::Memory))));
        // The largest pack leaves something for its objects.
        let most = (size_of::<Entry>() + 20 + 40) as u64 * MAX_OBJECTS as u64;
        assert!(most < MAX_HELD, "{most}");
    }
}
