//! Object ids: the hash of an object's kind, size and content. Pure.

use sha1::Digest as _;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A commit, with its tree and its parents.
    Commit,
    /// A tree: the entries of a directory.
    Tree,
    /// The content of a file.
    Blob,
    /// An annotated tag.
    Tag,
}

impl Kind {
    /// Returns the name of the kind as git hashes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }

    /// Returns the kind that a loose object says.
    pub fn of(name: &[u8]) -> Option<Self> {
        [Self::Commit, Self::Tree, Self::Blob, Self::Tag].into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

/// The object format of a repository (`extensions.objectFormat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Ids of 20 bytes.
    Sha1,
    /// Ids of 32 bytes.
    Sha256,
}

impl Format {
    /// Returns the bytes of an object id.
    pub fn id_length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// Computes the id of one object.
pub enum Hasher {
    /// The state of SHA-1.
    Sha1(sha1::Sha1),
    /// The state of SHA-256.
    Sha256(sha2::Sha256),
}

impl Hasher {
    /// Begins an object of this kind with `size` bytes of content.
    pub fn new(format: Format, kind: Kind, size: u64) -> Self {
        let mut hasher = match format {
            Format::Sha1 => Self::Sha1(sha1::Sha1::new()),
            Format::Sha256 => Self::Sha256(sha2::Sha256::new()),
        };
        hasher.update(format!("{} {size}\0", kind.name()).as_bytes());
        hasher
    }

    /// Adds content of the object to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
        }
    }

    /// Reports whether the object has this id.
    pub fn is(self, id: &[u8]) -> bool {
        match self {
            Self::Sha1(hasher) => hasher.finalize().as_slice() == id,
            Self::Sha256(hasher) => hasher.finalize().as_slice() == id,
        }
    }
}
