//! Searches the index of a pack where it lies (gitformat-pack(5), version 2): the index of a large repository has hundreds of
//! megabytes, and few of its objects are searched for.

use nexus_beneath::{Workspace, open_file, split};
use rustix::fs::OFlags;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

/// Indexes of packs that stay open, of all repositories of a layer together. Further ones are opened for each search.
pub const MAX_OPEN: usize = 64;
/// The beginning of an index.
pub const MAGIC: &[u8; 8] = b"\xfftOc\0\0\0\x02";
const FANOUT: usize = 256 * 4;
/// Ids that are read with one call.
const AT_ONCE: u32 = 1024;
/// Bit of an offset that stands for a place in the table of long ones.
const LONG: u32 = 1 << 31;

/// Counts the indexes of packs that may still stay open.
pub struct OpenFiles(Cell<usize>);

impl Default for OpenFiles {
    fn default() -> Self {
        Self(Cell::new(MAX_OPEN))
    }
}

impl OpenFiles {
    /// Keeps a file open if there are not too many.
    fn keep(&self, file: File) -> Option<File> {
        let left = self.0.get().checked_sub(1)?;
        self.0.set(left);
        Some(file)
    }
}

/// The index of a pack on the disk.
pub struct IndexFile {
    path: Vec<u8>,
    /// The open file; `None` where too many are open.
    file: Option<File>,
    /// Number of objects up to each first byte of an id.
    fanout: Vec<u32>,
}

impl IndexFile {
    /// Reads the head of an index.
    pub fn new(path: Vec<u8>, file: File, files: &OpenFiles) -> io::Result<Self> {
        let mut bytes = [0; MAGIC.len() + FANOUT];
        file.read_exact_at(&mut bytes, 0)?;
        let (magic, fanout) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let fanout = fanout.as_chunks::<4>().0.iter().map(|number| u32::from_be_bytes(*number)).collect();
        Ok(Self { path, file: files.keep(file), fanout })
    }

    /// Returns the path of the index in its tree.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the place of an id among those of the index, which lies in `tree`.
    pub fn find(&self, tree: &Workspace, id: &[u8]) -> io::Result<Option<u32>> {
        let Some(first) = id.first().map(|byte| usize::from(*byte)) else { return Ok(None) };
        let (mut low, mut high) = (first.checked_sub(1).map_or(0, |before| self.fanout[before]), self.fanout[first]);
        if low >= high {
            return Ok(None);
        }
        self.with(tree, |file| {
            let place = |at: u32| (MAGIC.len() + FANOUT) as u64 + u64::from(at) * id.len() as u64;
            let mut found = vec![0; id.len()];
            while high - low > AT_ONCE {
                let middle = low.midpoint(high);
                file.read_exact_at(&mut found, place(middle))?;
                match found.as_slice().cmp(id) {
                    std::cmp::Ordering::Less => low = middle + 1,
                    std::cmp::Ordering::Greater => high = middle,
                    std::cmp::Ordering::Equal => return Ok(Some(middle)),
                }
            }
            let mut ids = vec![0; (high - low) as usize * id.len()];
            file.read_exact_at(&mut ids, place(low))?;
            Ok((low..high).zip(ids.chunks_exact(id.len())).find(|(_, one)| *one == id).map(|(at, _)| at))
        })
    }

    /// Returns the offset in the pack of the object at a place that [`Self::find`] returned.
    pub fn offset(&self, tree: &Workspace, at: u32, id_length: usize) -> io::Result<u64> {
        let count = u64::from(self.fanout.last().copied().unwrap_or_default());
        let short = (MAGIC.len() + FANOUT) as u64 + count * (id_length as u64 + 4);
        self.with(tree, |file| {
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, short + u64::from(at) * 4)?;
            let offset = u32::from_be_bytes(bytes);
            if offset & LONG == 0 {
                return Ok(u64::from(offset));
            }
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, short + count * 4 + u64::from(offset & !LONG) * 8)?;
            Ok(u64::from_be_bytes(bytes))
        })
    }

    fn with<T>(&self, tree: &Workspace, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        if let Some(file) = &self.file {
            return work(file);
        }
        let (parent, name) = split(&self.path);
        let dir = tree.dir(parent)?;
        work(&open_file(dir.as_fd(), name, OFlags::RDONLY)?.into())
    }
}
