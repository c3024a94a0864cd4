//! Cuts a large file into pieces, at places that its content decides (FastCDC), so that an insertion changes
//! the pieces around it alone.
//!
//! ```text
//!  hash = hash << 1 + GEAR[byte], over the last 64 bytes ─┬─ before NORMAL bytes: a cut when 22 upper bits are zero
//!                                                         └─ after:               a cut when 18 are
//! ```

/// Smallest piece but the last one, in bytes.
pub(crate) const MIN: usize = 256 << 10;
/// Length around which cuts become likely.
const NORMAL: usize = 1 << 20;
/// Largest piece, in bytes.
pub(crate) const MAX: usize = 4 << 20;

const HARD: u64 = !0 << (64 - 22);
const EASY: u64 = !0 << (64 - 18);

/// One random number for each byte. They are part of the form of a store: with other numbers a file would be cut into other pieces, and none
/// of them would be found in the store.
const GEAR: [u64; 256] = gear();

/// Makes the table by SplitMix64 from a fixed seed.
const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut state = 0x6e65_7875_7320_3136_u64;
    let mut index = 0;
    while index < table.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[index] = mixed ^ (mixed >> 31);
        index += 1;
    }
    table
}

/// Returns the length of the first piece of `bytes`, which hold at least [`MAX`] bytes or the rest of the file.
pub(crate) fn first(bytes: &[u8]) -> usize {
    if bytes.len() <= MIN {
        return bytes.len();
    }
    let end = bytes.len().min(MAX);
    let mut hash = 0_u64;
    for (index, byte) in bytes[..end].iter().enumerate().skip(MIN - 64) {
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        let mask = if index < NORMAL { HARD } else { EASY };
        if index >= MIN && hash & mask == 0 {
            return index + 1;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(mut state: u64, length: usize) -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    fn cut(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(first(&bytes[..bytes.len().min(MAX)]));
            all.push(piece);
            bytes = rest;
        }
        all
    }

    #[test]
    fn an_insertion_changes_only_the_pieces_around_it() {
        let before = noise(7, 12 << 20);
        let mut after = before.clone();
        after.splice(3_000_000..3_000_000, *b"inserted");
        let (before, after) = (cut(&before), cut(&after));
        assert!(before.len() > 6, "{}", before.len());
        assert!(before.iter().all(|piece| piece.len() <= MAX));
        let new = after.iter().filter(|piece| !before.contains(piece)).count();
        assert!(new <= 2, "{new} of {} pieces are new", after.len());
    }

    #[test]
    fn content_without_a_place_to_cut_is_cut_at_the_largest_length() {
        assert_eq!(cut(&vec![0; 2 * MAX + 5]).iter().map(|piece| piece.len()).collect::<Vec<_>>(), [MAX, MAX, 5]);
    }
}
