//! Names of kept files.

/// Files that one look lists, at most.
pub const MAX_LISTED: usize = 10_000;

/// Names one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId {
    /// Account that owns the file.
    pub account: [u8; 16],
    /// Id of its row.
    pub id: [u8; 16],
}
