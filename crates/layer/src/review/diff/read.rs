//! Reads the contents that a diff shows, below descriptors and within bounds.

use crate::beneath::{Doing as _, IoFailure, open_file, split};
use crate::meta::{EntryType, stat};
use crate::review::diff::model::Blob;
use crate::review::diff::options::{DiffOptions, Trees};
use crate::review::diff::views::{Entry, Place};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::time::Instant;

/// Git's own rule: a NUL among the first bytes makes a file binary.
const LOOKED_AT: usize = 8000;

/// Content of an entry.
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
    lines_left: usize,
}

/// Describes bytes that are in memory by their size and hash.
pub(crate) fn blob(bytes: &[u8]) -> Blob {
    Blob { size: bytes.len() as u64, hash: Some(blake3::hash(bytes).to_hex().to_string()) }
}

/// Reports whether an error means that the entry at the path is not (or no more) a thing to read: swapped for a link, a
/// FIFO, nothing; or closed to this process. It is then shown without content.
fn is_unreadable(error: &io::Error) -> bool {
    let errno = |wanted: Errno| error.raw_os_error() == Some(wanted.raw_os_error());
    // ENXIO: a socket.
    crate::beneath::is_gone(error)
        || matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
        || errno(Errno::LOOP)
        || errno(Errno::NXIO)
        || errno(Errno::INVAL)
}

fn count_lines(text: &[u8]) -> usize {
    text.split_inclusive(|byte| *byte == b'\n').count()
}

impl<'a> Reader<'a> {
    pub(crate) fn new(trees: &'a Trees<'a>, options: &'a DiffOptions, deadline: Option<Instant>) -> Self {
        Self { trees, options, deadline, text_left: options.max_text_total, lines_left: options.max_lines_total }
    }

    /// Reads the content of a file or link; nothing for anything else, which is never opened.
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
            self.lines_left = self.lines_left.saturating_sub(count_lines(text));
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
        let fits = size <= text_limit && start.len() as u64 <= text_limit;
        if is_text && fits && count_lines(&start) <= self.options.max_lines.min(self.lines_left) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Workspace;
    use crate::review::diff::views::entry;
    use std::os::unix::fs::symlink;

    /// Covers an entry that was a file when the layer was read, and is something else when it is opened.
    #[test]
    fn what_stands_in_place_of_a_file_is_never_read() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("file"), "SECRET").unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        symlink(outside.path().join("file"), at("link")).unwrap();
        symlink(outside.path(), at("way")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let base = Workspace::open(folder.path()).unwrap();
        let meta = base.stat(b"file").unwrap().unwrap();
        let trees = Trees { base: &base, upper: Workspace::open(outside.path()).unwrap(), index: None };
        let options = DiffOptions::default();
        let body = |path: &str| {
            let one = entry(Place::Base(path.into()), meta.clone());
            Reader::new(&trees, &options, None).body(&one).unwrap()
        };
        assert!(matches!(body("file"), Some(Body::Text(text)) if text == b"text"));
        for path in ["directory", "link", "way/file", "fifo", "socket", "missing", "missing/file", "file/file"] {
            assert!(matches!(body(path), Some(Body::Blob(Blob { size: 4, hash: None }))), "{path}");
        }
    }

    #[test]
    fn a_file_that_grows_beyond_its_bound_is_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let base = Workspace::open(folder.path()).unwrap();
        // A file of /proc says that it is empty, and is not.
        let trees = Trees { base: &base, upper: Workspace::open(folder.path()).unwrap(), index: None };
        let options = DiffOptions { max_text: 3, ..DiffOptions::default() };
        let reader = Reader::new(&trees, &options, None);
        let Body::Blob(found) = reader.file(File::open("/proc/self/status").unwrap()).unwrap() else { panic!("text") };
        assert!(found.size > 3 && found.hash.is_some());
    }
}
