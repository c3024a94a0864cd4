//! Pieces of contents, by which a part of one content is found in another one. Pure.
//!
//! A piece is 16 bytes from any place of a content, so that a line that was put in moves no other piece. Short lines,
//! and contents that are shorter than a piece, are pieces as a whole. Pieces are compared by their bytes, never by a
//! hash.

use super::lines::{LONGEST, Line};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

/// The sets of which the pieces are looked up byte by byte have a filter of so many places for each of them.
const PLACES: usize = 8;

/// The length of a piece that is not a short line.
const PIECE: usize = 16;

/// The bytes of the shortest line that is a piece.
const LINE: usize = 6;

/// Bytes of a piece other than blanks: an indentation tells nothing.
const INK: u32 = 4;

/// The most places of a filter.
const FILTER: usize = 1 << 22;

/// One of these is the bytes of a piece, the last one lowest.
type Bytes = u128;

/// A piece, with its length.
pub(crate) type Piece = (usize, Bytes);

/// Spreads pieces in a way that no content can foresee.
#[derive(Debug, Clone, Copy)]
struct Spread(u64);

impl Spread {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0_u8) | 1)
    }

    #[allow(clippy::cast_possible_truncation, reason = "a number is taken in as two halves")]
    fn of(self, (length, bytes): Piece) -> u64 {
        let halves = [bytes as u64, (bytes >> 64) as u64, length as u64];
        halves.into_iter().fold(self.0, |all, half| {
            let all = (all ^ half).wrapping_mul(0xbf58_476d_1ce4_e5b9 ^ self.0);
            all ^ (all >> 29)
        })
    }
}

/// Pieces by their length.
#[derive(Debug)]
pub(crate) struct Pieces {
    of_length: Vec<Vec<Bytes>>,
    /// Most lookups end here.
    filter: Vec<bool>,
    spread: Spread,
}

impl Pieces {
    /// Puts pieces together for lookups.
    pub(crate) fn new(pieces: &[Piece]) -> Self {
        let filter = vec![false; (pieces.len() * PLACES).next_power_of_two().min(FILTER)];
        let mut found = Self { of_length: vec![Vec::new(); PIECE + 1], filter, spread: Spread::new() };
        for (length, bytes) in pieces {
            let place = found.place((*length, *bytes));
            found.filter[place] = true;
            found.of_length[*length].push(*bytes);
        }
        for list in &mut found.of_length {
            list.sort_unstable();
            list.dedup();
        }
        found
    }

    #[allow(clippy::cast_possible_truncation, reason = "a part of the bits is enough")]
    fn place(&self, piece: Piece) -> usize {
        self.spread.of(piece) as usize & (self.filter.len() - 1)
    }

    fn has(&self, piece: Piece) -> bool {
        self.filter[self.place(piece)] && self.of_length[piece.0].binary_search(&piece.1).is_ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of_length.iter().all(Vec::is_empty)
    }
}

/// Finds the pieces of a set in a content that is read part by part.
pub(crate) struct Finder<'a> {
    pieces: &'a Pieces,
    /// The lengths of the pieces that are looked for in any place.
    lengths: Vec<usize>,
    /// State of the current line; `None` if a short piece counts in any place.
    line: Option<Line>,
    last: Bytes,
    size: usize,
    found: Vec<Piece>,
}

impl<'a> Finder<'a> {
    /// Finds short pieces in any place: `KEY=1` in `export KEY=1;`.
    pub(crate) fn anywhere(pieces: &'a Pieces) -> Self {
        let lengths = (1..=PIECE).filter(|length| !pieces.of_length[*length].is_empty()).collect();
        Self { pieces, lengths, line: None, last: 0, size: 0, found: Vec::new() }
    }

    /// Finds short pieces only as whole lines: a content with `KEY=10` does not have `KEY=1`.
    pub(crate) fn by_line(pieces: &'a Pieces) -> Self {
        Self { lengths: vec![PIECE], line: Some(Line::default()), ..Self::anywhere(pieces) }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.last = (self.last << 8) | Bytes::from(*byte);
            self.size = (self.size + 1).min(PIECE);
            for length in self.lengths.iter().copied().filter(|length| *length <= self.size) {
                let piece = (length, self.last & mask(length));
                if self.pieces.has(piece) && self.found.last() != Some(&piece) {
                    self.found.push(piece);
                }
            }
            if let Some(line) = self.line.as_mut().and_then(|line| line.add(*byte)) {
                self.end_line(&line);
            }
        }
        // A content that repeats a piece does not grow this without a bound.
        if self.found.len() > FILTER {
            self.tidy();
        }
    }

    fn end_line(&mut self, line: &[u8]) {
        self.found.extend(short(line).filter(|piece| self.pieces.has(*piece)));
    }

    fn tidy(&mut self) {
        self.found.sort_unstable();
        self.found.dedup();
    }

    /// Returns the pieces that were found, each of them once, in order.
    pub(crate) fn end(mut self) -> Vec<Piece> {
        if let Some(line) = self.line.as_mut().and_then(Line::end) {
            self.end_line(&line);
        }
        self.tidy();
        self.found
    }
}

fn mask(length: usize) -> Bytes {
    if length >= PIECE { Bytes::MAX } else { (1 << (8 * length)) - 1 }
}

/// Takes a content, or a part of it, to pieces.
pub(crate) struct Taker<'a> {
    /// One piece of so many is kept.
    of: u64,
    /// These are kept all the same.
    wanted: &'a Pieces,
    /// It is a whole content, and no part of one.
    is_whole: bool,
    spread: Spread,
    last: Bytes,
    /// Bits of the last bytes, the newest lowest; set for a byte that is not a blank.
    ink: u16,
    size: u64,
    /// The first bytes.
    head: Vec<u8>,
    /// The first bytes of the line; `None` in the middle of one.
    line: Option<Vec<u8>>,
    pieces: Vec<Piece>,
    /// Number of pieces that were there, repetitions included.
    count: u64,
}

/// Pieces that a content was taken to.
pub(crate) struct Taken {
    /// Each piece once.
    pub(crate) pieces: Vec<Piece>,
    /// The content repeats its pieces, or has none: they do not tell it from other contents.
    pub(crate) is_vague: bool,
}

impl<'a> Taker<'a> {
    /// Prepares to take apart this part of a content of `size` bytes, of which the wanted and about `limit` other pieces
    /// are kept.
    pub(crate) fn new(part: &Range<u64>, size: u64, limit: u64, wanted: &'a Pieces) -> Self {
        let of = ((part.end - part.start) / limit.max(1)).max(1);
        let (is_whole, line) = (*part == (0..size), (part.start == 0).then(Vec::new));
        let (head, pieces) = (Vec::new(), Vec::new());
        Self { of, wanted, is_whole, spread: Spread::new(), last: 0, ink: 0, size: 0, head, line, pieces, count: 0 }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.head.len() < LONGEST {
                self.head.push(*byte);
            }
            self.last = (self.last << 8) | Bytes::from(*byte);
            self.ink = (self.ink << 1) | u16::from(!byte.is_ascii_whitespace() && *byte != 0);
            self.size += 1;
            let is_piece = self.size >= PIECE as u64 && self.ink.count_ones() >= INK;
            if is_piece && self.is_kept((PIECE, self.last)) {
                self.count += 1;
                self.pieces.push((PIECE, self.last));
                // A content that repeats a piece does not grow this without a bound.
                if self.pieces.len().is_multiple_of(FILTER) {
                    self.tidy();
                }
            }
            if *byte == b'\n' {
                self.end_line();
                self.line = Some(Vec::new());
            } else if let Some(line) = self.line.as_mut().filter(|line| line.len() <= LONGEST) {
                line.push(*byte);
            }
        }
    }

    fn is_kept(&self, piece: Piece) -> bool {
        self.of == 1 || self.wanted.has(piece) || (self.spread.of(piece) >> 8).is_multiple_of(self.of)
    }

    fn tidy(&mut self) {
        self.pieces.sort_unstable();
        self.pieces.dedup();
    }

    fn end_line(&mut self) {
        let Some(line) = self.line.take().filter(|line| line.len() <= LONGEST) else { return };
        let piece = short(&line).filter(|(length, _)| *length >= LINE);
        self.pieces.extend(piece.filter(|piece| self.is_kept(*piece)));
    }

    pub(crate) fn end(mut self) -> Taken {
        if self.is_whole && self.size <= LONGEST as u64 {
            if let Some(piece) = short(&self.head) {
                return Taken { pieces: vec![piece], is_vague: false };
            }
            if self.head.trim_ascii().is_empty() {
                return Taken { pieces: Vec::new(), is_vague: false };
            }
        }
        self.end_line();
        self.tidy();
        let distinct = self.pieces.iter().filter(|(length, _)| *length == PIECE).count() as u64;
        // Of the pieces of a text most are there once.
        let is_vague = distinct * 2 < self.count || self.pieces.is_empty();
        Taken { pieces: self.pieces, is_vague }
    }
}

/// Returns a short content as one piece; `None` where it is blank or not short.
fn short(content: &[u8]) -> Option<Piece> {
    let content = content.trim_ascii();
    let bytes = || content.iter().fold(0, |all, byte| (all << 8) | Bytes::from(*byte));
    (1..PIECE).contains(&content.len()).then(|| (content.len(), bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str, limit: u64) -> Taken {
        taken_with(text, limit, &Pieces::new(&[]))
    }

    fn taken_with(text: &str, limit: u64, wanted: &Pieces) -> Taken {
        let size = text.len() as u64;
        let mut taker = Taker::new(&(0..size), size, limit, wanted);
        text.as_bytes().chunks(7).for_each(|block| taker.add(block));
        taker.end()
    }

    fn found(pieces: &Pieces, text: &str) -> Vec<Piece> {
        let mut finder = Finder::anywhere(pieces);
        text.as_bytes().chunks(5).for_each(|block| finder.add(block));
        finder.end()
    }

    fn lines(count: usize) -> String {
        (0..count).map(|line| format!("{} is a line\n", line * line + 7 * line)).collect::<Vec<_>>().concat()
    }

    #[test]
    fn each_piece_is_found_in_any_place_of_a_content() {
        let one = taken(&lines(20), 1 << 16);
        assert!(!one.is_vague && one.pieces.len() > 200, "{}", one.pieces.len());
        let pieces = Pieces::new(&one.pieces);
        assert_eq!(found(&pieces, &format!("before\n{}after", lines(20))), one.pieces);
        assert!(!found(&pieces, &lines(9)).is_empty());
        assert_eq!(found(&pieces, "another text that has none of them"), []);
        assert!(Pieces::new(&[]).is_empty() && found(&Pieces::new(&[]), &lines(3)).is_empty());
    }

    #[test]
    fn a_short_content_and_a_short_line_are_pieces() {
        for (content, other, is_found) in [
            ("KEY=1\n", "a KEY=1", true),
            ("7\n", "1.7.2", true),
            ("7\n", "1.2.3", false),
            ("KEY=abc\nOTHER=a long value of it\n", "export KEY=abc;", true),
            ("\n \n", "\n \n", false),
        ] {
            let one = taken(content, 1 << 16);
            assert!(!one.is_vague, "{content:?}");
            assert_eq!(!found(&Pieces::new(&one.pieces), other).is_empty(), is_found, "{content:?} {other:?}");
        }
    }

    #[test]
    fn a_content_has_a_short_piece_only_as_a_line() {
        for (content, other, has) in [
            ("KEY=1\n", "KEY=10\n", false),
            ("KEY=1\n", "x\n  KEY=1\n", true),
            ("KEY=1\n", "x\nKEY=1", true),
            ("KEY=abc\nOTHER=a long value of it\n", "KEY=abcd\nOTHER=a long", false),
        ] {
            let one = Pieces::new(&taken(content, 1 << 16).pieces);
            let mut finder = Finder::by_line(&one);
            other.as_bytes().chunks(5).for_each(|block| finder.add(block));
            assert_eq!(finder.end().iter().any(|(length, _)| *length < PIECE), has, "{content:?} {other:?}");
        }
    }

    #[test]
    fn contents_that_repeat_few_pieces_or_have_none_are_vague() {
        let vague = ["0\n1\n".repeat(99), "a".repeat(40), "\0".repeat(500), "a line of text\n".repeat(9)];
        assert_eq!(vague.map(|text| taken(&text, 1 << 16).is_vague), [true; 4]);
    }

    #[test]
    fn of_a_large_content_a_part_of_the_pieces_is_kept() {
        let (all, part) = (taken(&lines(2000), 1 << 16), taken(&lines(2000), 1 << 8));
        assert!(part.pieces.len() > 100 && part.pieces.len() < all.pieces.len() / 50, "{}", part.pieces.len());
        assert_eq!(found(&Pieces::new(&part.pieces), &lines(2000)), part.pieces);
        let one = taken("1007000 is a line\n", 1 << 16);
        let with_one = Pieces::new(&taken_with(&lines(2000), 1 << 8, &Pieces::new(&one.pieces)).pieces);
        assert!(one.pieces.iter().filter(|(length, _)| *length == PIECE).all(|piece| with_one.has(*piece)));
    }
}
