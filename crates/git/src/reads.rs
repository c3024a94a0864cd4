//! Bounds how much is read of the files of git that one layer has. A file of holes, and one file under many names, cost
//! who makes them nothing.

use std::cell::Cell;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Bytes of git's files that are read for one layer. An index of so many is one of more than a million files.
const MAX_BYTES: u64 = 256 << 20;
/// Smaller files are read, whatever they have on the disk.
const MIN_SPARSE: u64 = 1 << 20;
/// Bytes that a file costs beside its own.
const PER_FILE: u64 = 128;

/// The bytes of git's files that may still be read.
#[derive(Debug)]
pub struct Reads {
    left: Cell<u64>,
}

impl Default for Reads {
    fn default() -> Self {
        Self { left: Cell::new(MAX_BYTES) }
    }
}

impl Reads {
    /// Takes the bytes of a file from those that may be read. Returns false if fewer were left, or if the file is a
    /// large one with holes.
    pub fn take(&self, file: &Metadata) -> bool {
        !has_holes(file) && self.take_bytes(file.len())
    }

    /// Returns whether a file of so many bytes may still be read.
    pub fn has(&self, bytes: u64) -> bool {
        self.left.get() >= bytes
    }

    /// Takes bytes that were read already.
    pub fn spend(&self, bytes: u64) {
        self.left.set(self.left.get().saturating_sub(bytes.saturating_add(PER_FILE)));
    }

    /// Takes bytes from those that may be read. Returns whether there were as many.
    pub fn take_bytes(&self, bytes: u64) -> bool {
        let left = self.left.get().checked_sub(bytes.saturating_add(PER_FILE));
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// Reports whether less than half of a large file is on the disk.
fn has_holes(file: &Metadata) -> bool {
    file.len() > MIN_SPARSE && file.blocks().saturating_mul(512) < file.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_git_of_one_layer_are_read_up_to_a_bound() {
        let reads = Reads::default();
        assert!(reads.take_bytes(MAX_BYTES - 2 * PER_FILE - 1) && reads.take_bytes(1));
        assert!(!reads.take_bytes(0));
    }
}
