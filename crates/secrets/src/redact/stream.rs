//! Redacts one stream. Bytes that may be the beginning of a value wait until that is decided; no other byte waits.

use super::automaton::ROOT;
use super::patterns::Patterns;
use std::collections::VecDeque;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes in front of the buffer that are no longer needed, from which on it is moved up.
const MAX_PASSED: usize = 64 << 10;

/// A part of the stream that has a value: from, to, and the secret.
type Found = (u64, u64, u16);

/// Redacts the bytes of one stream. Every part that has values becomes `[secret NAME]`, after the first of them.
pub struct Redactor {
    patterns: Arc<Patterns>,
    state: u32,
    /// The end of the stream from `start` on; what is before `done` was passed on.
    held: Zeroizing<Vec<u8>>,
    start: u64,
    /// The position up to which all is decided and passed on.
    done: u64,
    /// The position up to which bytes were passed on before that was decided.
    shown: u64,
    /// Parts that have values, in order, apart from each other.
    found: VecDeque<Found>,
    /// True if the last byte that was decided is part of a value.
    masks: bool,
    /// The number of undecided bytes that are shown at once.
    eager: u64,
}

impl Redactor {
    pub(super) fn new(patterns: Arc<Patterns>, eager: u64) -> Self {
        let (held, found) = (Zeroizing::new(Vec::new()), VecDeque::new());
        Self { patterns, state: ROOT, held, start: 0, done: 0, shown: 0, found, masks: false, eager }
    }

    /// Takes bytes of the stream, and returns those that can be passed on.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.state = self.patterns.automaton.next(self.state, byte);
            let (matched, open) =
                (self.patterns.automaton.matched(self.state), self.patterns.automaton.open(self.state));
            if matched.is_none() && open == 0 && self.held.is_empty() {
                out.push(byte);
                (self.start, self.masks) = (self.start + 1, false);
                (self.done, self.shown) = (self.start, self.start);
                continue;
            }
            self.hold(byte);
            if let Some((length, secret)) = matched {
                self.note(self.end() - length, secret);
            }
            self.decide(self.end() - open, &mut out);
        }
        let waits = self.end() - self.done.max(self.shown);
        if waits > 0 && self.end() - self.done <= self.eager && self.found.is_empty() {
            let from = (self.done.max(self.shown) - self.start) as usize;
            out.extend_from_slice(&self.held[from..]);
            self.shown = self.end();
        }
        out
    }

    /// Returns what still waits, at the end of the stream: it begins a value and is none.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.decide(self.end(), &mut out);
        self.state = ROOT;
        out
    }

    fn end(&self) -> u64 {
        self.start + self.held.len() as u64
    }

    fn hold(&mut self, byte: u8) {
        let passed = (self.done - self.start) as usize;
        if passed >= MAX_PASSED && passed >= self.held.len() / 2 {
            self.held.drain(..passed);
            self.start = self.done;
        }
        if self.held.len() == self.held.capacity() {
            // A buffer that grows on its own leaves a copy in freed memory.
            let mut larger = Zeroizing::new(Vec::with_capacity(2 * self.held.len().max(64)));
            larger.extend_from_slice(&self.held);
            self.held = larger;
        }
        self.held.push(byte);
    }

    /// Notes that the bytes from `from` on are a value.
    fn note(&mut self, mut from: u64, mut secret: u16) {
        while let Some(&(start, end, earlier)) = self.found.back() {
            if end < from {
                break;
            }
            if start <= from {
                (from, secret) = (start, earlier);
            }
            self.found.pop_back();
        }
        self.found.push_back((from, self.end(), secret));
    }

    /// Passes on everything before `until`.
    fn decide(&mut self, until: u64, out: &mut Vec<u8>) {
        while self.done < until {
            let (from, to) = match self.found.front() {
                Some(&(from, to, _)) => (from, to),
                None => (until, until),
            };
            if from > self.done {
                let to = from.min(until);
                let place = |at: u64| (at - self.start) as usize;
                out.extend_from_slice(&self.held[place(self.done.max(self.shown.min(to)))..place(to)]);
                (self.done, self.masks) = (to, false);
                continue;
            }
            if !std::mem::replace(&mut self.masks, true)
                && let Some((.., secret)) = self.found.front()
            {
                out.extend_from_slice(self.patterns.marks[usize::from(*secret)].as_bytes());
            }
            self.done = to.min(until);
            if self.done == to {
                self.found.pop_front();
            }
        }
        if self.done == self.end() {
            self.start = self.done;
            self.held.clear();
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
