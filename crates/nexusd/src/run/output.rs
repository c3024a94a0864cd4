//! Output between the thread that attends a run and the one that sends it: bounded, so that the command waits when nothing is
//! taken.

use nexus_api::conduits::{MAX_CHUNK_BYTES, Stream};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that wait before the command has to.
const MAX_WAITING: usize = 1 << 20;

/// One piece of output, at most as long as a chunk may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The stream of the piece.
    pub stream: Stream,
    /// The bytes of the piece.
    pub bytes: Vec<u8>,
    /// Reports that output is missing before it.
    pub truncated: bool,
}

/// Holds the pieces that wait to be sent.
#[derive(Debug, Default)]
pub struct Output {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Piece>,
    bytes: usize,
    is_closed: bool,
    is_discarded: bool,
    /// The sender has a piece that is not acknowledged.
    is_sending: bool,
}

impl Output {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether there is room.
    pub fn has_room(&self) -> bool {
        let state = self.state();
        state.bytes < MAX_WAITING || state.is_discarded
    }

    /// Adds output. It is taken also when there is no room: the caller asks before it reads.
    pub fn push(&self, stream: Stream, bytes: &[u8], truncated: bool) {
        let mut state = self.state();
        if state.is_discarded || state.is_closed {
            return;
        }
        state.bytes += bytes.len();
        let mut rest = bytes;
        if let Some(last) = state.pieces.back_mut().filter(|last| last.stream == stream && !truncated) {
            let (fits, more) = rest.split_at(rest.len().min(MAX_CHUNK_BYTES.saturating_sub(last.bytes.len())));
            last.bytes.extend_from_slice(fits);
            rest = more;
        }
        for (number, bytes) in rest.chunks(MAX_CHUNK_BYTES).enumerate() {
            state.pieces.push_back(Piece { stream, bytes: bytes.to_vec(), truncated: truncated && number == 0 });
        }
        self.changed.notify_all();
    }

    /// Takes the next piece; waits for one. `None` at the end.
    pub fn next(&self) -> Option<Piece> {
        let mut state = self.state();
        loop {
            state.is_sending = false;
            if let Some(piece) = state.pieces.pop_front() {
                state.bytes -= piece.bytes.len();
                state.is_sending = true;
                return Some(piece);
            }
            self.changed.notify_all();
            if state.is_closed {
                return None;
            }
            // Every change notifies; the bound is for a notice that is lost.
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Says that nothing more comes.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Throws away what waits and what comes.
    pub fn discard(&self) {
        let mut state = self.state();
        state.is_discarded = true;
        state.pieces.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }

    /// Waits until everything was sent, at most for that long. Returns whether it was.
    pub fn is_sent_within(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.state();
        while !state.pieces.is_empty() || state.is_sending {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.is_discarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_comes_in_order_and_in_chunks_of_the_contract() {
        let output = Output::default();
        output.push(Stream::Stdout, b"a", false);
        output.push(Stream::Stdout, b"b", false);
        output.push(Stream::Stderr, b"c", false);
        output.push(Stream::Stdout, &vec![7; MAX_CHUNK_BYTES + 1], true);
        output.close();
        let pieces: Vec<_> = std::iter::from_fn(|| output.next()).collect();
        let seen: Vec<_> = pieces.iter().map(|piece| (piece.stream, piece.bytes.len(), piece.truncated)).collect();
        assert_eq!(
            seen,
            [
                (Stream::Stdout, 2, false),
                (Stream::Stderr, 1, false),
                (Stream::Stdout, MAX_CHUNK_BYTES, true),
                (Stream::Stdout, 1, false)
            ]
        );
        assert!(output.is_sent_within(Duration::ZERO));
    }

    #[test]
    fn a_sender_that_takes_nothing_makes_the_command_wait() {
        let output = Output::default();
        while output.has_room() {
            output.push(Stream::Stdout, &[0; 4096], false);
        }
        assert!(!output.is_sent_within(Duration::from_millis(1)));
        output.next();
        assert!(output.has_room());
        output.discard();
        output.push(Stream::Stdout, &vec![0; 1 << 21], false);
        assert!(output.has_room() && !output.is_sent_within(Duration::from_millis(1)));
    }
}
