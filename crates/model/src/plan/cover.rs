//! Covers over what a bind shows and no mount attribute holds, and the second search that finds what they missed.

use crate::ByteText;
use serde::{Deserialize, Serialize};

/// A file of the host: its file system, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    /// Number of the file system, as stat(2) gives it.
    pub device: u64,
    /// Number of the file.
    pub inode: u64,
}

/// A path that is covered when the binds are there: a socket or named pipe of the host, or a directory that may hide one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// Absolute path inside, below a bind.
    pub path: ByteText,
    /// The file that the search found at the path. Another run may have put another one there since.
    pub id: FileId,
}

/// The search of binds that is repeated once everything is covered: another run may have moved a socket meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondSearch {
    /// Targets of the binds that were searched.
    pub binds: Vec<ByteText>,
    /// Sockets and named pipes that stay reachable.
    pub allowed: Vec<FileId>,
    /// Directories that the first search listed and that some user may only enter.
    pub entered: Vec<EnteredOnly>,
    /// Absolute paths inside of the directories that lie directly in those: no list of the second search has them.
    pub below_entered: Vec<ByteText>,
    /// Sockets and named pipes that the first search listed, and that were at another place when it looked at them.
    pub vanished: Vec<FileId>,
    /// Time of the first search, in seconds and nanoseconds since 1970. What changed later is not held by covers.
    pub since: (i64, u32),
}

/// A directory in which some user may use the names that they know and not list them, as it was when it was listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnteredOnly {
    /// Absolute path inside, below a bind.
    pub path: ByteText,
    /// Its device and inode.
    pub id: FileId,
    /// Time of its last change, in seconds and nanoseconds since 1970: each name that comes or goes changes it. `None` where the next
    /// change may have the same time.
    pub changed: Option<(i64, u32)>,
}
