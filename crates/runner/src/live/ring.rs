//! The last output of a detached sandbox, in bounded memory.
//!
//! ```text
//!  dropped ─│─ piece ─ piece ─ piece ─ piece ─│ end        a reader has a position; one that is before the start skips
//!         start (never inside a sequence or a character)
//! ```
//! Readers do not hold anything back: each has a position, reads on from there, and learns what it missed. So one that
//! is slow, or stuck, holds up no other one.

use crate::live::output::Stream;
use std::collections::VecDeque;

/// Bytes from which on a piece is not added to.
const PIECE: usize = 4096;
/// Charged for a piece beside its bytes, so that many tiny ones cannot use unbounded memory.
const PIECE_COST: usize = 64;

#[derive(Debug)]
struct Piece {
    stream: Stream,
    /// The place of the first byte, counted from the first byte of all.
    at: u64,
    bytes: Vec<u8>,
    /// True if no sequence and no character is cut at its start, on either stream.
    clean: bool,
}

/// Keeps the last output.
#[derive(Debug)]
pub struct Ring {
    most: usize,
    pieces: VecDeque<Piece>,
    cost: usize,
    end: u64,
    trackers: [Tracker; 2],
}

/// Holds the next output for a reader.
#[derive(Debug, PartialEq, Eq)]
pub struct Read<'a> {
    /// The number of bytes that are gone.
    pub missed: u64,
    /// The stream of the bytes.
    pub stream: Stream,
    /// The next bytes.
    pub bytes: &'a [u8],
}

impl Ring {
    /// Makes one for at most so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, pieces: VecDeque::new(), cost: 0, end: 0, trackers: Default::default() }
    }

    /// Returns the place of the next byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Adds output of one stream.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        for part in bytes.chunks(PIECE) {
            let clean = self.trackers.iter().all(Tracker::is_between);
            match self.pieces.back_mut() {
                Some(last) if last.stream == stream && last.bytes.len() + part.len() <= PIECE => {
                    last.bytes.extend_from_slice(part);
                }
                _ => {
                    let bytes = part.to_vec();
                    self.pieces.push_back(Piece { stream, at: self.end, bytes, clean });
                    self.cost += PIECE_COST;
                }
            }
            self.trackers[stream as usize].follow(part);
            self.cost += part.len();
            self.end += part.len() as u64;
            self.forget();
        }
    }

    fn forget(&mut self) {
        if self.cost <= self.most {
            return;
        }
        while let Some(first) = self.pieces.front()
            && (self.cost > self.most || !first.clean)
        {
            self.cost -= first.bytes.len() + PIECE_COST;
            self.pieces.pop_front();
        }
    }

    /// Returns what is at this position, or the oldest that is left; at most so many bytes. `None` at the end.
    pub fn read(&self, position: u64, most: usize) -> Option<Read<'_>> {
        let after = self.pieces.partition_point(|piece| piece.at + piece.bytes.len() as u64 <= position);
        let piece = self.pieces.get(after)?;
        let missed = piece.at.saturating_sub(position);
        let from = position.saturating_sub(piece.at) as usize;
        let to = piece.bytes.len().min(from + most);
        Some(Read { missed, stream: piece.stream, bytes: &piece.bytes[from..to] })
    }

    /// Returns the number of bytes that a reader missed at this position, where nothing is left.
    pub fn missed_at_end(&self, position: u64) -> u64 {
        self.end.saturating_sub(position)
    }
}

/// Tracks whether a stream is inside a sequence or a character.
#[derive(Debug, Default)]
struct Tracker {
    state: State,
    /// Bytes that the character still needs.
    rest: u8,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    Control,
    Command,
    Other,
}

impl Tracker {
    fn is_between(&self) -> bool {
        self.state == State::Text && self.rest == 0
    }

    fn follow(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.state == State::Text {
            // Text up to the last sequence matters only by its last character.
            match bytes.iter().position(|byte| *byte == 0x1b) {
                Some(at) => bytes = &bytes[at..],
                None if bytes.len() > 4 => {
                    self.rest = 0;
                    bytes = &bytes[bytes.len() - 4..];
                }
                None => {}
            }
        }
        for byte in bytes {
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (_, 0x1b) => State::Escape,
            (State::Text, _) => {
                self.rest = match byte {
                    0x80..=0xbf => self.rest.saturating_sub(1),
                    0xc2..=0xdf => 1,
                    0xe0..=0xef => 2,
                    0xf0..=0xf4 => 3,
                    _ => 0,
                };
                return;
            }
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']') => State::Command,
            (State::Escape, b'P' | b'X' | b'^' | b'_') => State::Other,
            (_, 0x18 | 0x1a)
            | (State::Command, 0x07)
            | (State::Control, 0x40..=0x7e)
            | (State::Escape, 0x30..=0x7e) => State::Text,
            (state, _) => state,
        };
        self.rest = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ring: &Ring, mut position: u64) -> (u64, Vec<u8>) {
        let (mut missed, mut bytes) = (0, Vec::new());
        while let Some(read) = ring.read(position, 1000) {
            missed += read.missed;
            bytes.extend_from_slice(read.bytes);
            position += read.missed + read.bytes.len() as u64;
        }
        (missed, bytes)
    }

    #[test]
    fn what_fits_stays_in_order_and_readers_go_on_where_they_were() {
        let mut ring = Ring::new(1000);
        ring.push(Stream::Out, b"one ");
        ring.push(Stream::Err, b"two ");
        assert_eq!(all(&ring, 0), (0, b"one two ".to_vec()));
        ring.push(Stream::Err, b"three");
        assert_eq!(all(&ring, 8), (0, b"three".to_vec()));
        assert_eq!(ring.read(4, 2), Some(Read { missed: 0, stream: Stream::Err, bytes: b"tw" }));
        assert_eq!(ring.read(13, 2), None);
    }

    #[test]
    fn memory_is_bounded_and_a_slow_reader_learns_what_it_missed() {
        let mut ring = Ring::new(64 * 1024);
        for turn in 0..200_000u32 {
            ring.push(if turn % 2 == 0 { Stream::Out } else { Stream::Err }, b"0123456789");
        }
        assert!(ring.cost <= 64 * 1024 && ring.pieces.len() < 1000);
        let (missed, bytes) = all(&ring, 0);
        assert!(missed > 0 && bytes.len() <= 64 * 1024, "{missed} and {}", bytes.len());
        assert_eq!(missed + bytes.len() as u64, 2_000_000);
        assert_eq!(ring.end(), 2_000_000);
    }

    #[test]
    fn what_is_left_never_starts_inside_a_sequence_or_a_character() {
        let mut ring = Ring::new(20_000);
        for _ in 0..10_000 {
            ring.push(Stream::Out, "\u{1b}[38;5;1mé漢\u{1b}]0;title\u{7}".as_bytes());
        }
        let (_, bytes) = all(&ring, 0);
        let text = String::from_utf8(bytes).unwrap();
        let starts = ["\u{1b}[", "\u{1b}]", "é", "漢"];
        assert!(starts.iter().any(|start| text.starts_with(start)), "{:?}", &text[..20]);
        ring.push(Stream::Out, b"\x1b]0;");
        ring.push(Stream::Out, &vec![b'x'; 100_000]);
        assert!(ring.cost <= 20_000, "a string without an end is dropped as a whole");
        ring.push(Stream::Out, b"\x07");
        ring.push(Stream::Out, &vec![b'y'; 5000]);
        assert!(!all(&ring, 0).1.is_empty());
    }
}
