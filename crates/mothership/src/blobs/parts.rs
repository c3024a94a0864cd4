//! A file in a bucket: one object for each write, whose name says what it holds. An object is never changed, so that a reader who
//! knows the names knows the bytes.

/// An object of a file: so many bytes from a place of the file on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// Place of the first byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// A piece of an object that a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The object.
    pub part: Part,
    /// Place of the first byte in the object.
    pub from: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Part {
    /// The last part of the object's key. Names sort as their places do.
    pub fn name(self) -> String {
        format!("{:016x}-{:x}", self.offset, self.length)
    }

    /// Reads a name; `None` for an object that is no part of a file.
    pub fn parse(name: &str) -> Option<Self> {
        let (offset, length) = name.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let part = Self { offset: number(offset)?, length: number(length)? };
        (part.name() == name && part.offset.checked_add(part.length).is_some()).then_some(part)
    }

    fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Returns the pieces that make up a range, in order; `None` when a byte is missing. Where objects overlap, as after a write whose
/// answer was lost, the one that leads farthest counts: all hold the same bytes, or the hash of the whole file differs.
pub fn pieces(parts: &[Part], offset: u64, length: u64) -> Option<Vec<Piece>> {
    let end = offset.checked_add(length)?;
    let (mut at, mut found) = (offset, Vec::new());
    while at < end {
        let holds = parts.iter().filter(|part| part.offset <= at && at < part.end());
        let part = *holds.max_by_key(|part| (part.end(), part.offset))?;
        let to = part.end().min(end);
        found.push(Piece { part, from: at - part.offset, length: to - at });
        at = to;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_says_what_an_object_holds() {
        let part = Part { offset: 0x20_0000, length: 0xabc };
        assert_eq!(part.name(), "0000000000200000-abc");
        assert_eq!(Part::parse(&part.name()), Some(part));
        for other in [
            "",
            "-",
            "0-1",
            "0000000000200000-0abc",
            "0000000000200000-ABC",
            "id",
            "ffffffffffffffff-2",
            "+000000000000001-1",
        ] {
            assert_eq!(Part::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_missing_byte_is_no_file() {
        let parts = [Part { offset: 0, length: 10 }, Part { offset: 11, length: 10 }];
        assert!(pieces(&parts, 0, 10).is_some() && pieces(&parts, 11, 10).is_some());
        for (offset, length) in [(0, 11), (10, 1), (5, 10), (20, 2), (u64::MAX, 2)] {
            assert_eq!(pieces(&parts, offset, length), None, "{offset} {length}");
        }
        assert_eq!(pieces(&[], 0, 0), Some(Vec::new()));
    }

    proptest! {
        /// Whatever parts there are, what is read is what a file would give in which each part was written at its place.
        #[test]
        fn pieces_give_the_bytes_of_the_file(parts in proptest::collection::vec((0u64..40, 1u64..20), 0..8), offset in 0u64..60, length in 0u64..30) {
            let parts: Vec<Part> = parts.into_iter().map(|(offset, length)| Part { offset, length }).collect();
            let is_there = |at: u64| parts.iter().any(|part| part.offset <= at && at < part.end());
            match pieces(&parts, offset, length) {
                None => prop_assert!((offset..offset + length).any(|at| !is_there(at))),
                Some(found) => {
                    let mut read = Vec::new();
                    for piece in found {
                        prop_assert!(piece.from + piece.length <= piece.part.length);
                        read.extend((0..piece.length).map(|at| piece.part.offset + piece.from + at));
                    }
                    prop_assert_eq!(read, (offset..offset + length).collect::<Vec<_>>());
                }
            }
        }
    }
}
