//! Reads the contents that a diff shows, beneath descriptors and within bounds.

use crate::beneath::{Doing as _, IoFailure, open_file, split};
use crate::diff::model::Blob;
use crate::diff::views::{Entry, Place};
use crate::diff::{DiffOptions, Trees};
use crate::meta::{EntryType, stat};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::time::Instant;

/// Git's own rule: a NUL among the first bytes makes a file binary.
const LOOKED_AT: usize = 8000;

/// What an entry contains.
pub(crate) enum Body {
    Text(Vec<u8>),
    Blob(Blob),
}

/// Reads entries until its bounds are reached.
pub(crate) struct Reader<'a> {
    trees: &'a Trees<'a>,
    options: &'a DiffOptions,
    deadline: Option<Instant>,
    text_left: u64,
}

/// The hash of bytes that are in memory.
pub(crate) fn blob(bytes: &[u8]) -> Blob {
    Blob { size: bytes.len() as u64, hash: Some(blake3::hash(bytes).to_hex().to_string()) }
}

/// Whether what stands at the path is not (or no more) a thing to read: swapped for a link, a FIFO, nothing; or closed
/// to us. It is then shown without content.
fn is_unreadable(error: &io::Error) -> bool {
    let errno = |wanted: Errno| error.raw_os_error() == Some(wanted.raw_os_error());
    // ENXIO: a socket.
    crate::beneath::is_gone(error)
        || matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
        || errno(Errno::LOOP)
        || errno(Errno::NXIO)
        || errno(Errno::INVAL)
}

impl<'a> Reader<'a> {
    pub(crate) fn new(trees: &'a Trees<'a>, options: &'a DiffOptions, deadline: Option<Instant>) -> Self {
        Self { trees, options, deadline, text_left: options.max_text_total }
    }

    /// The content of a file or link; nothing for anything else, which is never opened.
    pub(crate) fn body(&mut self, entry: &Entry) -> Result<Option<Body>, IoFailure> {
        let unread = Body::Blob(Blob { size: entry.meta.size, hash: None });
        let (tree, path) = match &entry.place {
            Place::Base(path) => (self.trees.base, path),
            Place::Upper(path) => (&self.trees.upper, path),
            Place::Index(path) => match &self.trees.index {
                Some(index) => (index, path),
                None => return Ok(Some(unread)),
            },
        };
        let (parent, name) = split(&path.0);
        let read = || -> io::Result<Option<Body>> {
            let dir = tree.dir(parent)?;
            match entry.meta.kind {
                EntryType::Symlink => {
                    let target = rustix::fs::readlinkat(dir.as_fd(), name, Vec::new())?;
                    Ok(Some(Body::Text(target.into_bytes())))
                }
                EntryType::File => {
                    let file = open_file(dir.as_fd(), name, OFlags::RDONLY)?;
                    self.file(File::from(file)).map(Some)
                }
                EntryType::Directory | EntryType::Fifo | EntryType::Socket | EntryType::Device => Ok(None),
            }
        };
        let body = match read() {
            Err(error) if is_unreadable(&error) => Some(unread),
            other => other.doing("read", &path.0)?,
        };
        if let Some(Body::Text(text)) = &body {
            self.text_left = self.text_left.saturating_sub(text.len() as u64);
        }
        Ok(body)
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn file(&self, mut file: File) -> io::Result<Body> {
        let size = stat(file.as_fd(), b"")?.size;
        let text_limit = self.options.max_text.min(self.text_left);
        let mut start = Vec::new();
        // One byte more, to see whether the file has grown beyond the limit.
        let want = if size <= text_limit { text_limit + 1 } else { LOOKED_AT as u64 };
        (&mut file).take(want).read_to_end(&mut start)?;
        let is_text = !start[..start.len().min(LOOKED_AT)].contains(&0);
        if is_text && size <= text_limit && start.len() as u64 <= text_limit {
            return Ok(Body::Text(start));
        }
        let mut hash = blake3::Hasher::new();
        hash.update(&start);
        let mut read = start.len() as u64;
        let mut buffer = vec![0; 256 * 1024];
        while read <= self.options.max_hash && size <= self.options.max_hash && !self.is_late() {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                return Ok(Body::Blob(Blob { size: read, hash: Some(hash.finalize().to_hex().to_string()) }));
            }
            hash.update(&buffer[..length]);
            read += length as u64;
        }
        Ok(Body::Blob(Blob { size: size.max(read), hash: None }))
    }
}
