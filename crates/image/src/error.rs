//! The error type of images.

use crate::digest::Digest;
use std::io;
use std::path::PathBuf;

/// Reason for which an image cannot be imported or used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Content that is not what its name says.
    #[error("{what} is not what its digest says: expected {expected}, found {found}")]
    DigestMismatch {
        /// The part of the image.
        what: String,
        /// The digest that names it.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// Content of another size than was said, as when it was cut off.
    #[error("{what} has {found} bytes, and its manifest says {expected}")]
    SizeMismatch {
        /// The part of the image.
        what: String,
        /// The size in the manifest.
        expected: u64,
        /// The size of the content.
        found: u64,
    },
    /// A file that the archive does not have.
    #[error("the archive has no file {name:?}")]
    MissingFile {
        /// Its name, shortened.
        name: String,
    },
    /// A document that does not have the form of its kind.
    #[error("{what} cannot be read: {why}")]
    Document {
        /// Name of the document.
        what: String,
        /// Fault in the document.
        why: String,
    },
    /// The file is none of the known archives.
    #[error(
        "{} is not an image: neither an OCI layout nor an archive of one, of docker save or of a root",
        path.display()
    )]
    NotAnImage {
        /// Path of the file.
        path: PathBuf,
    },
    /// The archive has no image for this machine.
    #[error("the archive has no image for {wanted}; it has {found}")]
    Platform {
        /// The platform of this machine.
        wanted: String,
        /// The platforms of the archive.
        found: String,
    },
    /// The archive has several images, and none was chosen.
    #[error("the archive has {count} images for this machine; an archive of one can be imported")]
    Several {
        /// The number of images.
        count: usize,
    },
    /// A bound of [`crate::Limits`].
    #[error("{what}: more than {most} are not taken")]
    TooMuch {
        /// The quantity and where it was met.
        what: String,
        /// The most that is taken.
        most: u64,
    },
    /// A layer that grows by more than its ratio allows.
    #[error("a layer of {stored} bytes unpacks to more than {unpacked}: that is taken for a compression bomb")]
    Bomb {
        /// Its size as it is stored.
        stored: u64,
        /// The most that it may become.
        unpacked: u64,
    },
    /// An entry whose name leads elsewhere.
    #[error("the entry {path:?} of a layer cannot be unpacked: {why}")]
    EntryPath {
        /// The name of the entry, shortened.
        path: String,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// A layer that cannot be read as a tar archive, or is cut off.
    #[error("a layer cannot be read: {source}")]
    Layer {
        /// The answer of the reader.
        source: io::Error,
    },
    /// A call on an entry of the unpacked tree failed.
    #[error("cannot {doing} {path:?}: {source}")]
    Tree {
        /// Operation that failed.
        doing: &'static str,
        /// The entry, shortened.
        path: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// A call on a file failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// Operation that failed.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// A newer program made the store.
    #[error("the image store was made by a newer version of Nexus: update this one")]
    Newer,
    /// Another process imports, while the store is to be cleaned up.
    #[error("another process works with the image store")]
    Busy,
    /// A file of the store is not what it was.
    #[error("the image store is damaged: {what}")]
    Damaged {
        /// The fault that was found.
        what: String,
    },
    /// No image has the name.
    #[error("there is no image {reference:?}")]
    Unknown {
        /// The name or digest.
        reference: String,
    },
    /// Several images begin with the digits.
    #[error("{reference:?} begins the digests of several images")]
    Ambiguous {
        /// Digits that were given.
        reference: String,
    },
    /// A name with characters that no name has.
    #[error(
        "{name:?} cannot be a name of an image: letters, digits and . _ - / : are taken, 255 at most, and not a digest"
    )]
    Name {
        /// The name, shortened.
        name: String,
    },
}

impl ImageError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::DigestMismatch { .. } => "image_digest",
            Self::SizeMismatch { .. } => "image_size",
            Self::MissingFile { .. } => "image_missing_file",
            Self::Document { .. } => "image_document",
            Self::NotAnImage { .. } => "image_kind",
            Self::Platform { .. } => "image_platform",
            Self::Several { .. } => "image_several",
            Self::TooMuch { .. } => "image_too_large",
            Self::Bomb { .. } => "image_bomb",
            Self::EntryPath { .. } => "image_entry",
            Self::Layer { .. } => "image_layer",
            Self::Tree { .. } | Self::Io { .. } => "image_io",
            Self::Newer => "image_store_newer",
            Self::Busy => "image_store_busy",
            Self::Damaged { .. } => "image_store_damaged",
            Self::Unknown { .. } => "image_unknown",
            Self::Ambiguous { .. } => "image_ambiguous",
            Self::Name { .. } => "image_name",
        }
    }
}

/// Shows the beginning of hostile bytes.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}

/// Adds what was tried to an answer of the system.
pub trait At<T> {
    /// Names the operation and its file.
    fn at(self, doing: &'static str, path: &std::path::Path) -> Result<T, ImageError>;
    /// Names the operation and its entry in a tree that is unpacked.
    fn on(self, doing: &'static str, path: &[u8]) -> Result<T, ImageError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, doing: &'static str, path: &std::path::Path) -> Result<T, ImageError> {
        self.map_err(|source| ImageError::Io { doing, path: path.to_owned(), source: source.into() })
    }

    fn on(self, doing: &'static str, path: &[u8]) -> Result<T, ImageError> {
        self.map_err(|source| ImageError::Tree { doing, path: shown(path), source: source.into() })
    }
}
