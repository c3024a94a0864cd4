//! Questions to the store and their answers, and kept files.

use nexus_api::conduits::Stream;
use nexus_model::directive::State;
use nexus_model::ids::DirectiveId;
use serde::{Deserialize, Serialize};

/// Page of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Last id of the page before.
    pub before: Option<[u8; 16]>,
    /// Largest number of entries.
    pub limit: u32,
}

impl Page {
    /// Returns the id below which the entries of the page are: a bound for an index also on the first page.
    #[must_use]
    pub fn below(&self) -> [u8; 16] {
        // No id is that large.
        self.before.unwrap_or([0xff; 16])
    }
}

/// A directive as a list for people shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectiveLine {
    pub id: DirectiveId,
    pub state: State,
    pub reason: Option<String>,
    pub exit_code: Option<i64>,
    pub command: String,
    pub created_at: i64,
    pub started_at: Option<i64>,
    pub ended_at: Option<i64>,
}

impl From<&nexus_api::mothership::Directive> for DirectiveLine {
    fn from(one: &nexus_api::mothership::Directive) -> Self {
        Self {
            id: one.directive_id,
            state: one.state,
            reason: one.reason.clone(),
            exit_code: one.exit_code,
            command: one.command.clone(),
            created_at: one.created_at.0,
            started_at: one.started_at.map(|at| at.0),
            ended_at: one.ended_at.map(|at| at.0),
        }
    }
}

/// Directives that are not over.
#[derive(Debug, Clone)]
pub struct LiveDirectives {
    /// Some of them, the latest first.
    pub directives: Vec<nexus_api::mothership::Directive>,
    /// Number of those that a territory holds.
    pub running: i64,
    /// Number of those that wait.
    pub queued: i64,
}

/// Directive with the facts for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Version within the attempt.
    pub version: u64,
    /// It is over, and its territory may still tell that it ended otherwise.
    pub may_change: bool,
    /// Data of an event.
    pub event: nexus_api::mothership::DirectiveEvent,
}

/// Log chunk as stored.
#[derive(Debug, Clone)]
pub struct StoredChunk {
    /// Number in its stream.
    pub seq: i64,
    pub bytes: ChunkBytes,
    /// The daemon left something out.
    pub truncated: bool,
    /// Time of arrival.
    pub created_at: i64,
}

/// Bytes of a log chunk.
#[derive(Debug, Clone)]
pub enum ChunkBytes {
    /// They stand in the row.
    Here(Vec<u8>),
    /// They lie in a file: account and id of the file, place, length.
    File { account: [u8; 16], id: [u8; 16], offset: u64, length: u64 },
}

/// One piece of a stream in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Number in its stream.
    pub seq: i64,
    pub offset: u64,
    pub length: u64,
    /// SHA-256 hash of the bytes, in hexadecimal.
    pub hash: String,
    /// The daemon left something out.
    pub truncated: bool,
    /// Time of arrival.
    pub created_at: i64,
}

/// Chunks of one stream that become a file.
#[derive(Debug, Clone)]
pub struct Compaction {
    pub directive: [u8; 16],
    pub attempt: u32,
    pub stream: String,
    pub account: [u8; 16],
    /// Id of the file.
    pub id: [u8; 16],
    /// Number of chunks when they were read.
    pub count: i64,
    pub index: Vec<IndexEntry>,
    pub bytes: Vec<u8>,
}

/// File of one stream.
#[derive(Debug, Clone)]
pub struct LogBlob {
    pub id: [u8; 16],
    pub account: [u8; 16],
    pub index: Vec<IndexEntry>,
}

/// Times after which something is removed, and the size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Life of output, diffs, events and kept files after the end, in milliseconds.
    pub log_ms: i64,
    /// Life of the trail of territories, in milliseconds.
    pub audit_ms: i64,
    /// Largest number of directives, and of rows of each other kind, in one batch.
    pub batch: u32,
}

/// Result of one batch of removals.
#[derive(Debug, Clone, Default)]
pub struct Swept {
    /// Directives whose output is gone.
    pub directives: u64,
    /// Other rows that are gone.
    pub rows: u64,
    /// Files without a row now: account and id.
    pub blobs: Vec<([u8; 16], [u8; 16])>,
    /// The batch was full: there may be more.
    pub more: bool,
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

/// Announcement of a kept file.
#[derive(Debug, Clone)]
pub struct NewArtifact {
    /// Path relative to the workspace.
    pub name: String,
    pub size: u64,
    /// BLAKE3 hash in hexadecimal.
    pub hash: String,
    pub media_type: Option<String>,
}

/// Bounds of the kept files of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactBounds {
    /// Largest number of files.
    pub files: u64,
    /// Largest sum of their sizes.
    pub bytes: u64,
}

/// A kept file as stored.
#[derive(Debug, Clone)]
pub struct Artifact {
    pub id: [u8; 16],
    /// Account that owns the file.
    pub account: [u8; 16],
    pub name: String,
    pub size: u64,
    pub hash: String,
    pub media_type: Option<String>,
    /// Bytes that are on the disk.
    pub received: u64,
    /// The hash of the bytes was checked.
    pub complete: bool,
}

/// Answer to an announcement.
#[derive(Debug, Clone)]
pub enum AnnouncedArtifact {
    /// The bytes are wanted from the beginning.
    New(Artifact),
    /// The file was announced before.
    Known(Artifact),
    /// The files of the attempt would be more than the bounds allow.
    TooMuch,
}
