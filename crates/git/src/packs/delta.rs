//! Applies a delta of a pack to its base (gitformat-pack(5)). Pure.

/// Bytes that are reserved for a result before it is made: its size may be a lie.
const RESERVED: usize = 1 << 20;

/// Reads a number of 7 bits to a byte, the lowest first.
fn number(delta: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let (byte, rest) = delta.split_first()?;
        *delta = rest;
        if shift > 56 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
}

/// Returns the size of the base and that of the result, and takes both from the front of a delta.
pub fn sizes(delta: &mut &[u8]) -> Option<(u64, u64)> {
    Some((number(delta)?, number(delta)?))
}

/// Applies the commands of a delta, which follow its sizes. Returns `None` where they do not fit the base or the size.
pub fn apply(base: &[u8], mut delta: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut made = Vec::with_capacity(size.min(RESERVED));
    while let Some((command, rest)) = delta.split_first() {
        delta = rest;
        let piece = if command & 0x80 == 0 {
            let (piece, rest) = delta.split_at_checked(usize::from(*command)).filter(|_| *command != 0)?;
            delta = rest;
            piece
        } else {
            let mut part = |bits: std::ops::Range<u32>| {
                let mut value = 0;
                for (at, bit) in bits.enumerate() {
                    if command & (1 << bit) != 0 {
                        let (byte, rest) = delta.split_first()?;
                        delta = rest;
                        value |= usize::from(*byte) << (8 * at);
                    }
                }
                Some(value)
            };
            let (from, count) = (part(0..4)?, part(4..7)?);
            let count = if count == 0 { 0x1_0000 } else { count };
            base.get(from..from.checked_add(count)?)?
        };
        if piece.len() > size - made.len() {
            return None;
        }
        made.extend_from_slice(piece);
    }
    (made.len() == size).then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_copies_and_adds() {
        let mut delta = &[5, 6, 0x90, 2, 2, b'x', b'y', 0x91, 3, 2][..];
        assert_eq!(sizes(&mut delta), Some((5, 6)));
        assert_eq!(apply(b"abcde", delta, 6).as_deref(), Some(&b"abxyde"[..]));
        assert_eq!(apply(b"abcde", delta, 5), None, "it is longer than it says");
        assert_eq!(apply(b"abcde", delta, 7), None, "it is shorter than it says");
        assert_eq!(apply(b"abcd", delta, 6), None, "the base is shorter");
        for broken in [&[0][..], &[3, 1], &[0xff], &[0x91]] {
            assert_eq!(apply(b"abcde", broken, 1), None, "{broken:?}");
        }
        assert_eq!(sizes(&mut &[0xff; 20][..]), None);
    }
}
