//! Takes the length and hash of what a command prints, as it passes by. The receipt names them.

use crate::live::last_words::LastWords;
use crate::live::output::Stream;
use nexus_model::Digest;
use nexus_receipt::{Output, StreamDigest};

/// Counts the bytes of both streams.
#[derive(Debug, Default)]
pub struct Tally {
    streams: [Count; 2],
    last_words: LastWords,
}

#[derive(Debug, Default)]
struct Count {
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Count {
    fn digest(&self) -> StreamDigest {
        StreamDigest { bytes: self.bytes, hash: Digest::finished(&self.hasher) }
    }
}

impl Tally {
    /// Counts bytes of one stream.
    pub fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let count = &mut self.streams[stream as usize];
        count.bytes += bytes.len() as u64;
        count.hasher.update(bytes);
        self.last_words.take(stream, bytes);
    }

    /// Returns the end of both streams.
    pub fn last_words(&self) -> &LastWords {
        &self.last_words
    }

    /// Returns the end of both streams, and forgets the rest.
    pub fn into_last_words(self) -> LastWords {
        self.last_words
    }

    /// Returns the lengths and hashes so far.
    pub fn output(&self) -> Output {
        Output {
            stdout: self.streams[Stream::Out as usize].digest(),
            stderr: self.streams[Stream::Err as usize].digest(),
        }
    }
}
