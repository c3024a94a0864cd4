//! Bytes of kept files, in a directory or in a bucket of S3. What stands in a file is said by its row alone, so that bytes without a
//! row mean nothing, and a row is written after its bytes.
//!
//! ```text
//!  Blobs ─┬▶ Directory: ACCOUNT/ID, written in place
//!         └▶ Bucket: ACCOUNT/ID/PART, an object for each write (parts) ─▶ signature ─▶ HTTP;  listing ◀─ answers
//! ```

mod bucket;
mod directory;
mod id;
mod listing;
mod parts;
mod settings;
mod signature;

pub use id::BlobId;
pub use settings::{BucketKey, BucketSettings};

use crate::store::StoreError;
use bucket::Bucket;
use directory::Directory;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The turn to write one file. It ends when it is dropped.
pub struct Turn {
    _held: Box<dyn Any + Send + Sync>,
}

/// The place of the bytes.
#[derive(Clone)]
pub enum Blobs {
    /// A directory of this machine.
    Directory(Directory),
    /// A bucket of S3.
    Bucket(Arc<Bucket>),
}

impl Blobs {
    /// Opens the bucket, or else the directory, which is made, closed to others, where it is missing.
    pub fn open(path: &Path, bucket: Option<&BucketSettings>) -> Result<Self, StoreError> {
        match bucket {
            Some(settings) => Ok(Self::Bucket(Arc::new(Bucket::open(settings)?))),
            None => Directory::open(path).map(Self::Directory),
        }
    }

    /// The place as people read it.
    pub fn place(&self) -> String {
        match self {
            Self::Directory(directory) => directory.path().display().to_string(),
            Self::Bucket(bucket) => bucket.place(),
        }
    }

    /// Returns the id of the place, which is made at the first call. Servers that share a database compare it: each has to have the
    /// same place.
    pub async fn id(&self) -> Result<[u8; 16], StoreError> {
        match self {
            Self::Directory(directory) => directory.id(),
            Self::Bucket(bucket) => bucket.id().await,
        }
    }

    /// Takes the turn to write a file; `None` while another call has it. In a directory it counts for all servers of the machine, in
    /// a bucket for this server.
    pub async fn turn(&self, blob: BlobId) -> Result<Option<Turn>, StoreError> {
        match self {
            Self::Directory(directory) => Ok(directory.turn(blob).await?.map(|file| Turn { _held: Box::new(file) })),
            Self::Bucket(bucket) => Ok(bucket.turn(blob).map(|turn| Turn { _held: Box::new(turn) })),
        }
    }

    /// Prepares a file whose bytes were wrong for the same number of other bytes. The caller has the turn.
    pub async fn begin_afresh(&self, blob: BlobId) -> Result<(), StoreError> {
        match self {
            // The name stays: who waits for the turn waits for this file. Other bytes go over these.
            Self::Directory(_) => Ok(()),
            // Parts of another length would be read beside the next ones.
            Self::Bucket(bucket) => bucket.remove(blob).await,
        }
    }

    /// Writes bytes at a place of a file, and brings them to the disk.
    pub async fn write(&self, blob: BlobId, offset: u64, bytes: Vec<u8>) -> Result<(), StoreError> {
        match self {
            Self::Directory(directory) => directory.write(blob, offset, bytes).await,
            Self::Bucket(bucket) => bucket.write(blob, offset, bytes).await,
        }
    }

    /// Returns the BLAKE3 hash of the first `size` bytes of a file, in hexadecimal.
    pub async fn hash(&self, blob: BlobId, size: u64) -> Result<String, StoreError> {
        match self {
            Self::Directory(directory) => directory.hash(blob, size).await,
            Self::Bucket(bucket) => bucket.hash(blob, size).await,
        }
    }

    /// Reads a piece of a file.
    pub async fn read(&self, blob: BlobId, offset: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        match self {
            Self::Directory(directory) => directory.read(blob, offset, length).await,
            Self::Bucket(bucket) => bucket.read(blob, offset, length as u64).await,
        }
    }

    /// Lists files that were written so long ago by the clock of their place, at most [`id::MAX_LISTED`].
    pub async fn older_than(&self, age: Duration) -> Result<Vec<BlobId>, StoreError> {
        match self {
            Self::Directory(directory) => directory.older_than(age).await,
            Self::Bucket(bucket) => bucket.older_than(age).await,
        }
    }

    /// Removes a file; a missing one is fine.
    pub async fn remove(&self, blob: BlobId) -> Result<(), StoreError> {
        match self {
            Self::Directory(directory) => directory.remove(blob).await,
            Self::Bucket(bucket) => bucket.remove(blob).await,
        }
    }
}
