//! Reads small files of a workspace: configurations, refs and the like.

use crate::reads::Reads;
use nexus_beneath::open_file;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Size in bytes above which a file never counts as harmless.
pub const MAX: u64 = 1 << 20;

/// Returns the content of a small regular file; `None` for any other entry.
pub fn read_small(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    read_up_to(dir, name, MAX, &Reads::default())
}

/// Returns the content of a regular file of at most `max` bytes, as far as it may still be read; `None` for any other entry.
pub fn read_up_to(dir: BorrowedFd<'_>, name: &[u8], max: u64, reads: &Reads) -> io::Result<Option<Vec<u8>>> {
    let file = match open_file(dir, name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        // A link (ELOOP), or nothing any more.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => return Ok(None),
        Err(error) => return Err(error),
    };
    slurp(file, max, reads)
}

/// Returns the content of an open file of at most `max` bytes, as far as it may still be read.
fn slurp(file: OwnedFd, max: u64, reads: &Reads) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let file = std::fs::File::from(file);
    let meta = file.metadata()?;
    if meta.len() > max || !reads.take(&meta) {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(meta.len() + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= meta.len()).then_some(content))
}
