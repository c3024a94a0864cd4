//! Bounds output: the first half of the budget as it comes, the last half at the end, a line between them.
//!
//! One budget for stdout and stderr together, so that a command cannot get the double by using both.

use std::collections::VecDeque;

/// One of the two streams of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, descriptor 1.
    Out,
    /// Standard error, descriptor 2.
    Err,
}

/// Charged for a remembered piece beside its bytes, so that many tiny pieces cannot use unbounded memory.
const PIECE_COST: usize = 64;

/// Pieces that are longer do not grow. The oldest one keeps its forgotten bytes until it goes as a whole, since moving
/// the others up at each push would cost more than all the rest of the way.
const PIECE_LENGTH: usize = 64 * 1024;

/// Splits output into a part that is shown now, one that may be shown at the end, and one that is dropped.
#[derive(Debug)]
pub struct HeadTail {
    head_left: usize,
    tail_budget: usize,
    tail: VecDeque<(Stream, Vec<u8>)>,
    /// Bytes of the oldest piece that are forgotten already.
    skipped: usize,
    tail_bytes: usize,
    dropped: [u64; 2],
}

impl HeadTail {
    /// Makes one for at most `bytes` of output.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            head_left: bytes.div_ceil(2),
            tail_budget: bytes / 2,
            tail: VecDeque::new(),
            skipped: 0,
            tail_bytes: 0,
            dropped: [0; 2],
        }
    }

    /// Takes output; returns the part that is to be shown now.
    pub fn push<'b>(&mut self, stream: Stream, bytes: &'b [u8]) -> &'b [u8] {
        let now = bytes.len().min(self.head_left);
        self.head_left -= now;
        let (head, rest) = bytes.split_at(now);
        if !rest.is_empty() {
            self.remember(stream, rest);
        }
        head
    }

    fn remember(&mut self, stream: Stream, mut bytes: &[u8]) {
        if bytes.len() > self.tail_budget {
            let cut = bytes.len() - self.tail_budget;
            self.dropped[stream as usize] += cut as u64;
            bytes = &bytes[cut..];
            if bytes.is_empty() {
                return;
            }
        }
        match self.tail.back_mut() {
            Some((last, piece)) if *last == stream && piece.len() < PIECE_LENGTH => piece.extend_from_slice(bytes),
            _ => {
                self.tail.push_back((stream, bytes.to_vec()));
            }
        }
        self.tail_bytes += bytes.len();
        self.forget();
    }

    fn forget(&mut self) {
        // Long pieces may use the whole budget; the fixed cost of as many as there need to be does not count.
        let free = PIECE_COST * (2 + self.tail_budget / PIECE_LENGTH);
        loop {
            let fixed = (PIECE_COST * self.tail.len()).saturating_sub(free);
            let over = (self.tail_bytes + fixed).saturating_sub(self.tail_budget);
            if over == 0 {
                return;
            }
            let Some((stream, piece)) = self.tail.front() else { return };
            let cut = over.min(piece.len() - self.skipped);
            self.dropped[*stream as usize] += cut as u64;
            self.tail_bytes -= cut;
            self.skipped += cut;
            if self.skipped == piece.len() {
                self.tail.pop_front();
                self.skipped = 0;
            }
        }
    }

    /// Returns the number of bytes that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the number of bytes of one stream that were dropped.
    #[must_use]
    pub fn dropped_of(&self, stream: Stream) -> u64 {
        self.dropped[stream as usize]
    }

    /// Returns the pieces for the end, in order: the line about dropped bytes of a stream before its first piece.
    pub fn finish(&mut self) -> Vec<(Stream, Vec<u8>)> {
        let mut announced = [false; 2];
        let mut pieces = Vec::new();
        for (stream, mut piece) in std::mem::take(&mut self.tail) {
            self.announce(stream, &mut announced, &mut pieces);
            piece.drain(..std::mem::take(&mut self.skipped));
            pieces.push((stream, piece));
        }
        for stream in [Stream::Out, Stream::Err] {
            self.announce(stream, &mut announced, &mut pieces);
        }
        pieces
    }

    fn announce(&self, stream: Stream, announced: &mut [bool; 2], pieces: &mut Vec<(Stream, Vec<u8>)>) {
        let dropped = self.dropped[stream as usize];
        if dropped > 0 && !announced[stream as usize] {
            announced[stream as usize] = true;
            pieces.push((stream, format!("\n[... {dropped} bytes truncated ...]\n").into_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(budget: u64, chunks: &[(Stream, &[u8])]) -> (Vec<u8>, u64) {
        let mut limit = HeadTail::new(budget);
        let mut all = Vec::new();
        for (stream, bytes) in chunks {
            all.extend_from_slice(limit.push(*stream, bytes));
        }
        for (_, piece) in limit.finish() {
            all.extend(piece);
        }
        (all, limit.dropped())
    }

    #[test]
    fn output_within_the_budget_is_untouched() {
        assert_eq!(show(10, &[(Stream::Out, b"abc"), (Stream::Out, b"defghij")]), (b"abcdefghij".to_vec(), 0));
    }

    #[test]
    fn the_first_and_the_last_half_stay_with_a_line_between() {
        let (shown, dropped) = show(10, &[(Stream::Out, b"0123456789"), (Stream::Out, b"abcdefghij")]);
        assert_eq!(shown, b"01234\n[... 10 bytes truncated ...]\nfghij");
        assert_eq!(dropped, 10);
    }

    #[test]
    fn every_byte_is_shown_or_counted() {
        for budget in [0, 1, 7, 64, 1000] {
            let chunk = [7u8; 37];
            let mut limit = HeadTail::new(budget);
            let mut shown = 0;
            for turn in 0..100 {
                let stream = if turn % 3 == 0 { Stream::Err } else { Stream::Out };
                shown += limit.push(stream, &chunk).len() as u64;
            }
            let dropped = limit.dropped();
            shown += limit.tail.iter().map(|(_, piece)| piece.len() as u64).sum::<u64>() - limit.skipped as u64;
            assert_eq!(shown + dropped, 3700, "budget {budget}");
            assert!(shown <= budget.max(1), "budget {budget} showed {shown}");
        }
    }

    #[test]
    fn the_end_of_a_long_output_is_exact_and_its_memory_bounded() {
        const BUDGET: usize = 1_000_001;
        let mut limit = HeadTail::new(BUDGET as u64);
        let all: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
        let mut shown = Vec::new();
        let mut rest = all.as_slice();
        for length in (0..).map(|turn| [1, 80, 4096, 70_000, 262_144][turn % 5]) {
            let (now, later) = rest.split_at(length.min(rest.len()));
            shown.extend_from_slice(limit.push(Stream::Out, now));
            let held: usize = limit.tail.iter().map(|(_, piece)| piece.len()).sum();
            assert!(held <= BUDGET / 2 + PIECE_LENGTH + 262_144, "{held}");
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let dropped = limit.dropped();
        for (_, piece) in limit.finish() {
            shown.extend(piece);
        }
        let tail = &all[all.len() - BUDGET / 2..];
        assert!(shown.starts_with(&all[..BUDGET.div_ceil(2)]) && shown.ends_with(tail));
        assert_eq!(dropped as usize, all.len() - BUDGET);
    }

    #[test]
    fn a_million_tiny_pieces_use_bounded_memory() {
        let mut limit = HeadTail::new(100_000);
        for turn in 0..1_000_000u32 {
            limit.push(if turn % 2 == 0 { Stream::Out } else { Stream::Err }, b"x");
        }
        assert!(limit.tail.len() < 2000, "{}", limit.tail.len());
    }
}
