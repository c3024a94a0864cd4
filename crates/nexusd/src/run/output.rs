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
    /// True if output is missing before it.
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
    /// Stream of the piece that the sender has and that is not acknowledged.
    sending: Option<Stream>,
    /// Streams of which bytes were refused or thrown away.
    lost: [bool; 2],
    /// Pieces of each stream that the sender has taken.
    taken: [i64; 2],
    /// Pieces that were acknowledged.
    acknowledged: u64,
    /// The last try to send had no answer: a report would have none either.
    is_away: bool,
    /// Time after which nothing more is sent.
    until: Option<Instant>,
}

/// Output of one stream that the control plane does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rest {
    /// Bytes are missing there.
    pub is_missing: bool,
    /// They only wait: the stream is whole there when it has so many chunks.
    pub chunks: Option<i64>,
}

/// Returns the place of a stream.
fn place(stream: Stream) -> usize {
    usize::from(stream == Stream::Stderr)
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
            state.lost[place(stream)] |= !bytes.is_empty();
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
            state.sending = None;
            if let Some(piece) = state.pieces.pop_front() {
                state.bytes -= piece.bytes.len();
                state.sending = Some(piece.stream);
                state.taken[place(piece.stream)] += 1;
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

    /// Throws away what waits and what comes, and remembers of which streams.
    pub fn discard(&self) {
        let mut state = self.state();
        state.is_discarded = true;
        state.lost = state.missing();
        state.pieces.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }

    /// Notes that the piece of this stream, which the sender has, was not taken.
    pub fn lose(&self, stream: Stream) {
        self.state().lost[place(stream)] = true;
    }

    /// Notes the end of one try to send a piece.
    pub fn tried(&self, is_taken: bool, is_away: bool) {
        let mut state = self.state();
        state.acknowledged += u64::from(is_taken);
        state.is_away = is_away;
        self.changed.notify_all();
    }

    /// Returns the streams of which the control plane does not have all bytes, now.
    #[cfg(test)]
    pub fn missing(&self) -> [bool; 2] {
        self.state().missing()
    }

    /// Returns what the control plane does not have of both streams, now. Nothing may be added afterwards.
    pub fn rest(&self) -> [Rest; 2] {
        let state = self.state();
        let missing = state.missing();
        [Stream::Stdout, Stream::Stderr].map(|stream| {
            let (here, is_missing) = (place(stream), missing[place(stream)]);
            let waiting = state.pieces.iter().filter(|piece| piece.stream == stream).count();
            let whole = state.taken[here].saturating_add(i64::try_from(waiting).unwrap_or(i64::MAX));
            Rest { is_missing, chunks: (is_missing && !state.lost[here]).then_some(whole) }
        })
    }

    /// Lets the sender go on with what waits, at most until this time.
    pub fn send_until(&self, until: Instant) {
        self.state().until = Some(until);
    }

    /// Reports whether the time to send is over.
    pub fn is_late(&self) -> bool {
        self.state().until.is_some_and(|until| until <= Instant::now())
    }

    /// Waits until everything was sent: for as long as a piece arrives within each `timeout`, or no call has an answer at all, but at
    /// most `longest` in all.
    pub fn settle(&self, timeout: Duration, longest: Duration) {
        let end = Instant::now() + longest;
        loop {
            let before = self.state().acknowledged;
            let left = end.saturating_duration_since(Instant::now());
            if self.is_sent_within(timeout.min(left)) || left.is_zero() {
                return;
            }
            let state = self.state();
            if state.is_discarded || (state.acknowledged == before && !state.is_away) {
                return;
            }
        }
    }

    /// Waits until everything was sent, at most for that long. Returns whether it was.
    pub fn is_sent_within(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.state();
        while !state.pieces.is_empty() || state.sending.is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.is_discarded
    }
}

impl State {
    /// Returns the streams of which bytes are lost, wait, or are not acknowledged.
    fn missing(&self) -> [bool; 2] {
        let mut missing = self.lost;
        for stream in self.pieces.iter().map(|piece| piece.stream).chain(self.sending) {
            missing[place(stream)] = true;
        }
        missing
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

    #[test]
    fn bytes_that_wait_or_were_thrown_away_are_missing() {
        let output = Output::default();
        output.push(Stream::Stdout, b"a", false);
        output.push(Stream::Stderr, b"b", false);
        assert_eq!(output.missing(), [true, true]);
        assert_eq!(output.next().map(|piece| piece.stream), Some(Stream::Stdout));
        assert_eq!(output.missing(), [true, true], "a piece that is on its way is not there yet");
        output.next();
        assert_eq!(output.missing(), [false, true]);
        output.push(Stream::Stderr, b"c", true);
        let rest = |is_missing, chunks| Rest { is_missing, chunks };
        assert_eq!(output.rest(), [rest(false, None), rest(true, Some(2))], "one on its way, and one that waits");
        output.discard();
        assert_eq!(output.rest()[1], rest(true, None), "what is thrown away never comes");
        output.close();
        assert!(output.next().is_none());
        assert_eq!(output.missing(), [false, true], "what was on its way when all was thrown away");
        output.push(Stream::Stdout, b"late", false);
        assert_eq!(output.missing(), [true, true]);
    }

    #[test]
    fn output_is_waited_for_while_some_of_it_arrives() {
        let (short, long) = (Duration::from_millis(100), Duration::from_secs(20));
        let stuck = Output::default();
        stuck.push(Stream::Stdout, b"a", false);
        let clock = Instant::now();
        stuck.settle(short, long);
        assert!(clock.elapsed() < long && stuck.missing()[0]);
        // Each piece takes longer than half of the timeout, and all of them take longer than it.
        let slow = Output::default();
        for _ in 0..4 {
            slow.push(Stream::Stdout, &vec![0; MAX_CHUNK_BYTES], false);
        }
        slow.close();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while slow.next().is_some() {
                    std::thread::sleep(short * 3 / 4);
                    slow.tried(true, false);
                }
            });
            slow.settle(short * 2, long);
            assert_eq!(slow.missing(), [false; 2]);
        });
        // Without any answer the report would have none either.
        let away = Output::default();
        away.push(Stream::Stdout, b"a", false);
        away.tried(false, true);
        let clock = Instant::now();
        away.settle(short, short * 5);
        assert!(clock.elapsed() >= short * 5);
    }
}
