//! Reads the index of a pack, version 2 (gitformat-pack(5)). Pure.

use super::object_id::Format;

const MAGIC: &[u8] = b"\xfftOc\0\0\0\x02";
const FANOUT: usize = 256 * 4;
/// Bit of an offset that stands for a place in the table of long ones.
const LONG: u32 = 1 << 31;

/// The index of a pack.
pub struct PackIndex {
    bytes: Vec<u8>,
    format: Format,
    count: usize,
}

impl PackIndex {
    /// Reads the number of objects; `None` where these bytes are not an index of this version in this object format.
    pub fn parse(bytes: Vec<u8>, format: Format) -> Option<Self> {
        let id = format.id_length();
        let rest = bytes.strip_prefix(MAGIC)?;
        let (fanout, rest) = rest.split_at_checked(FANOUT)?;
        let (fanout, _) = fanout.as_chunks::<4>();
        let mut fanout = fanout.iter().map(|number| u32::from_be_bytes(*number));
        let count = fanout.clone().is_sorted().then(|| fanout.next_back())?? as usize;
        // The ids, a checksum and an offset for each, long offsets, and two checksums.
        let long = rest.len().checked_sub(count.checked_mul(id + 8)?)?.checked_sub(2 * id)?;
        (long % 8 == 0 && long / 8 <= count).then_some(Self { bytes, format, count })
    }

    /// Returns the format of the ids.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the bytes that it takes in memory.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of objects.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the checksum of the pack that the index is for.
    pub fn pack_checksum(&self) -> Option<&[u8]> {
        let length = self.format.id_length();
        let end = self.bytes.len().checked_sub(length)?;
        self.bytes.get(end.checked_sub(length)?..end)
    }

    fn ids_begin() -> usize {
        MAGIC.len() + FANOUT
    }

    /// Returns the id at a place below [`Self::count`].
    pub fn id(&self, at: usize) -> &[u8] {
        let length = self.format.id_length();
        let begin = Self::ids_begin() + at * length;
        self.bytes.get(begin..begin + length).unwrap_or_default()
    }

    /// Returns the place of an id.
    pub fn find(&self, id: &[u8]) -> Option<usize> {
        let first = usize::from(*id.first()?);
        let fanout = |at: usize| self.number(MAGIC.len() + at * 4).map(|number| number as usize);
        let (mut low, mut high) = (if first == 0 { 0 } else { fanout(first - 1)? }, fanout(first)?);
        while low < high {
            let middle = low.midpoint(high);
            match self.id(middle).cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    /// Returns the offset in the pack of the object at a place below [`Self::count`].
    pub fn offset(&self, at: usize) -> Option<u64> {
        let short = Self::ids_begin() + self.count * (self.format.id_length() + 4);
        let offset = self.number(short + at * 4)?;
        if offset & LONG == 0 {
            return Some(u64::from(offset));
        }
        let place = short + self.count * 4 + (offset & !LONG) as usize * 8;
        let end = self.bytes.len() - 2 * self.format.id_length();
        let bytes = self.bytes.get(place..place + 8).filter(|_| place + 8 <= end)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    }

    /// Reports whether the ids are in order, each of them once, and git finds each where it looks for it.
    pub fn is_in_order(&self) -> bool {
        let ids = (0..self.count).map(|at| self.id(at));
        ids.clone().is_sorted_by(|one, next| one < next) && {
            let mut counts = [0_usize; 256];
            ids.filter_map(<[u8]>::first).for_each(|first| counts[usize::from(*first)] += 1);
            let mut sum = 0;
            counts.iter().enumerate().all(|(first, count)| {
                sum += count;
                self.number(MAGIC.len() + first * 4).is_some_and(|number| number as usize == sum)
            })
        }
    }

    fn number(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }
}
