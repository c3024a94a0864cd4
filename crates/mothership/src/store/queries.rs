//! Questions to the store and their answers.

use nexus_api::conduits::Stream;

/// Page of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Last id of the page before.
    pub before: Option<[u8; 16]>,
    /// Largest number of entries.
    pub limit: u32,
}

/// Directive with the facts for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Version within the attempt.
    pub version: u64,
    /// Data of an event.
    pub event: nexus_api::mothership::DirectiveEvent,
}

/// Log chunk as stored.
#[derive(Debug, Clone)]
pub struct StoredChunk {
    /// Number in its stream.
    pub seq: i64,
    pub bytes: Vec<u8>,
    /// The daemon left something out.
    pub truncated: bool,
    /// Time of arrival.
    pub created_at: i64,
}

/// Part of a directive's output.
#[derive(Debug, Clone, Copy)]
pub struct ChunkQuery {
    pub stream: Stream,
    /// Number of the last chunk that the reader knows.
    pub after: i64,
    /// Largest number of chunks.
    pub limit: u32,
    /// Bytes after which the answer ends.
    pub max_bytes: usize,
    /// Attempt; absent means the latest.
    pub attempt: Option<u32>,
}
