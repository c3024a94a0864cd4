//! The forms of objects: pieces of files, lists of pieces, directories, and the top of a tree.
//!
//! ```text
//!  top ─▶ Entry of the root ─▶ Content of its directory ─▶ Directory { entries sorted by name } ─▶ Content of each file …
//!  Content: empty │ one piece │ a list of pieces
//! ```

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Largest object, in bytes. A pack that claims more is damaged.
pub const MAX_OBJECT: u32 = 16 << 20;

/// Name of an object: the BLAKE3 hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId(pub [u8; 32]);

/// Names of several objects.
pub type ObjectIds = HashSet<ObjectId>;
/// Objects that are not in a store, with their bytes.
pub type KeptObjects = HashMap<ObjectId, Vec<u8>>;

impl ObjectId {
    /// Returns the name of an object with these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Reads a name in hexadecimal, of 64 letters.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        Some(Self(*blake3::Hash::from_hex(text).ok()?.as_bytes()))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Bytes of a file or a directory, as pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The content has no bytes.
    Empty,
    /// The content is one piece.
    One {
        /// Name of the piece.
        piece: ObjectId,
        /// Number of bytes.
        size: u64,
    },
    /// The content is several pieces.
    Many {
        /// An object with the names of the pieces, 32 bytes each.
        list: ObjectId,
        /// Number of bytes of all pieces.
        size: u64,
    },
}

impl Content {
    /// Returns the number of bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One { size, .. } | Self::Many { size, .. } => *size,
        }
    }
}

/// Attributes of an entry that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Last change of the content: seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
    /// Extended attributes of the user and access lists, sorted by name.
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The type of an entry, with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Node {
    /// A regular file.
    File(Content),
    /// A directory: the content is a [`Directory`].
    Directory(Content),
    /// A symbolic link with its target.
    Link(Vec<u8>),
    /// A further hard link to a file. Holds the path, from the root, of the first link in the order of the scan.
    Same(Vec<u8>),
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name; empty for the root.
    pub name: Vec<u8>,
    /// The attributes of the entry.
    pub attributes: Attributes,
    /// Its type and content.
    pub node: Node,
}

/// The entries of a directory, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Directory {
    /// The entries in the order of their names.
    pub entries: Vec<Entry>,
}

impl Directory {
    /// Reads a directory; `None` for bytes that no scan writes, such as a name with a slash.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (directory, rest): (Self, &[u8]) = postcard::take_from_bytes(bytes).ok()?;
        let is_name = |name: &[u8]| {
            !matches!(name, b"" | b"." | b"..")
                && name.len() <= 255
                && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
        };
        let entries = &directory.entries;
        let is_sorted = entries.iter().zip(entries.iter().skip(1)).all(|(one, next)| one.name < next.name);
        (rest.is_empty() && is_sorted && entries.iter().all(|entry| is_name(&entry.name))).then_some(directory)
    }
}

/// Reads the top of a tree.
#[must_use]
pub fn read_top(bytes: &[u8]) -> Option<Entry> {
    let (entry, rest): (Entry, &[u8]) = postcard::take_from_bytes(bytes).ok()?;
    (rest.is_empty() && entry.name.is_empty() && matches!(entry.node, Node::Directory(_))).then_some(entry)
}

/// Returns the bytes of an object.
pub fn bytes_of(object: &impl Serialize) -> std::io::Result<Vec<u8>> {
    postcard::to_stdvec(object).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8]) -> Entry {
        let attributes = Attributes { mode: 0o644, uid: 0, gid: 0, mtime: (1, 2), extended: Vec::new() };
        Entry { name: name.to_vec(), attributes, node: Node::File(Content::Empty) }
    }

    #[test]
    fn a_directory_with_names_that_no_scan_writes_is_refused() {
        let good = Directory { entries: vec![entry(b"a"), entry(b"b")] };
        assert_eq!(Directory::read(&bytes_of(&good).unwrap()), Some(good));
        for bad in
            [&[&b"../x"[..]][..], &[b""], &[b"."], &[b".."], &[b"a\0"], &[&[b'x'; 256]], &[b"b", b"a"], &[b"a", b"a"]]
        {
            let directory = Directory { entries: bad.iter().map(|name| entry(name)).collect() };
            assert_eq!(Directory::read(&bytes_of(&directory).unwrap()), None, "{bad:?}");
        }
        let mut longer = bytes_of(&Directory::default()).unwrap();
        longer.push(0);
        assert_eq!(Directory::read(&longer), None);
        assert_eq!(read_top(&bytes_of(&entry(b"")).unwrap()), None, "a file is no top");
    }
}
