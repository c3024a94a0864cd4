//! Reads a file piece by piece, and nothing of its holes.
//!
//! ```text
//!  a piece begins ─ is there a hole as long as the longest piece, or up to the end? ─ yes ─▶ a piece of zeros, unread
//!                                                                                   └ no ──▶ read, and cut by its content
//! ```
//! Zeros have no place to cut, so that the pieces are the ones that a plain reading gives. A file system that knows nothing of holes says
//! that everything is data (lseek(2), `SEEK_DATA`).

use crate::pieces;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// A piece of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// So many zeros of a hole.
    Zeros(usize),
    /// Bytes that were read.
    Bytes(Vec<u8>),
}

/// A file that is being read.
pub(crate) struct Reading<'a> {
    file: &'a File,
    size: u64,
    /// The place at which the next piece begins.
    at: u64,
    /// Bytes from there on that were read already.
    buffer: Vec<u8>,
}

impl<'a> Reading<'a> {
    /// Begins to read a file of so many bytes. What it has beyond them is not read.
    pub(crate) fn new(file: &'a File, size: u64) -> Self {
        Self { file, size, at: 0, buffer: Vec::new() }
    }

    /// Returns the number of bytes of all pieces so far.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the next piece; `None` at the end, also at that of a file that was cut meanwhile.
    pub(crate) fn next(&mut self) -> io::Result<Option<Piece>> {
        let wanted = (self.size - self.at).min(pieces::MAX as u64);
        if wanted == 0 {
            return Ok(None);
        }
        let length = wanted as usize;
        if self.data()? >= self.at + wanted {
            self.buffer.clear();
            self.at += wanted;
            return Ok(Some(Piece::Zeros(length)));
        }
        let mut have = self.buffer.len();
        self.buffer.resize(length, 0);
        while have < length {
            match self.file.read_at(&mut self.buffer[have..], self.at + have as u64) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(have);
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let piece: Vec<u8> = self.buffer.drain(..pieces::first(&self.buffer)).collect();
        self.at += piece.len() as u64;
        Ok(Some(Piece::Bytes(piece)))
    }

    /// Returns where the next data begins, from the next piece on.
    fn data(&self) -> io::Result<u64> {
        match seek(self.file, SeekFrom::Data(self.at)) {
            Ok(at) => Ok(at),
            // No data any more; or the file is shorter by now.
            Err(Errno::NXIO) => Ok(self.file.metadata()?.len()),
            Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS | Errno::SPIPE) => Ok(self.at),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with data at these places, and holes elsewhere.
    fn file(size: u64, data: &[(u64, usize)]) -> File {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(size).unwrap();
        for (at, length) in data {
            let bytes: Vec<u8> = (0..*length).map(|byte| (byte * 7919 + byte / 251) as u8 | 1).collect();
            file.write_all_at(&bytes, *at).unwrap();
        }
        file
    }

    fn all(file: &File, size: u64) -> Vec<Piece> {
        let mut reading = Reading::new(file, size);
        std::iter::from_fn(|| reading.next().unwrap()).collect()
    }

    #[test]
    fn a_file_with_holes_is_cut_as_if_all_of_it_were_read() {
        const MIB: u64 = 1 << 20;
        for (size, data) in [
            (0, &[][..]),
            (5, &[]),
            (9 * MIB + 5, &[]),
            (40 * MIB, &[(0, 10)]),
            (40 * MIB + 3, &[(13 * MIB + 77, 3 << 20)]),
            (40 * MIB, &[(9 * MIB, 1), (40 * MIB - 1, 1)]),
            (21 * MIB, &[(0, 5 << 20), (16 * MIB, 100)]),
        ] {
            let file = file(size, data);
            let mut bytes = vec![0; size as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let mut rest = bytes.as_slice();
            let pieces = all(&file, size);
            for piece in &pieces {
                let (expected, after) = rest.split_at(pieces::first(&rest[..rest.len().min(pieces::MAX)]));
                match piece {
                    Piece::Zeros(length) => {
                        assert!(*length == expected.len() && expected.iter().all(|byte| *byte == 0));
                    }
                    Piece::Bytes(bytes) => assert_eq!(bytes, expected, "{data:?}"),
                }
                rest = after;
            }
            assert!(rest.is_empty(), "{} bytes are missing of {data:?}", rest.len());
            let read: usize =
                pieces.iter().map(|piece| if let Piece::Bytes(bytes) = piece { bytes.len() } else { 0 }).sum();
            let most = data.iter().map(|(_, length)| length + 2 * pieces::MAX).sum();
            assert!(read <= most, "{read} bytes of {data:?} were read");
        }
    }

    #[test]
    fn a_file_that_is_cut_meanwhile_ends() {
        let file = file(10, &[(0, 10)]);
        assert_eq!(all(&file, 1 << 40), [Piece::Bytes((0..10).map(|byte: usize| (byte * 7919) as u8 | 1).collect())]);
    }
}
