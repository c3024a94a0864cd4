//! Inflates the zlib streams of objects piece by piece, so that a large object takes no memory.

use super::problem::{Budget, Problem};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags as flags};
use std::fs::File;
use std::io;

/// Bytes that are read at one time.
const INPUT: usize = 16 << 10;
/// Bytes behind which deflate refers to nothing. It is a power of two, so that the window can wrap.
const WINDOW: usize = 32 << 10;

/// Bytes that are read from any place.
pub trait Source {
    /// Reads from `at` on, fewer bytes at the end alone.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match std::os::unix::fs::FileExt::read_at(self, &mut into[done..], at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Source for [u8] {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// The buffers of one stream after another.
pub struct Inflater<'a> {
    budget: &'a Budget,
    state: Box<DecompressorOxide>,
    input: Vec<u8>,
    window: Vec<u8>,
}

impl<'a> Inflater<'a> {
    /// Makes an inflater that spends from `budget`.
    pub fn new(budget: &'a Budget) -> Self {
        Self { budget, state: Box::default(), input: vec![0; INPUT], window: vec![0; WINDOW] }
    }

    /// Inflates the stream that lies between two offsets, the whole of it and nothing more, and gives the pieces to
    /// `sink`.
    pub fn inflate<S: Source + ?Sized>(
        &mut self,
        source: &S,
        (begin, end): (u64, u64),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        self.state.init();
        let (mut at, mut used, mut filled, mut out) = (begin, 0, 0, 0);
        loop {
            if used == filled && at < end {
                let wanted = usize::try_from(end - at).unwrap_or(INPUT).min(INPUT);
                self.budget.take(wanted as u64)?;
                filled = source.read_at(&mut self.input[..wanted], at)?;
                if filled < wanted {
                    return Err(Problem::Damaged);
                }
                (at, used) = (at + filled as u64, 0);
            }
            let more = if at < end { flags::TINFL_FLAG_HAS_MORE_INPUT } else { 0 };
            let how = flags::TINFL_FLAG_PARSE_ZLIB_HEADER | more;
            let input = &self.input[used..filled];
            let (status, read, written) = decompress(&mut self.state, input, &mut self.window, out, how);
            used += read;
            if written > 0 {
                self.budget.take(written as u64)?;
                sink(&self.window[out..out + written])?;
            }
            out = (out + written) % WINDOW;
            match status {
                TINFLStatus::Done if used == filled && at == end => return Ok(()),
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if used == filled && at < end => {}
                _ => return Err(Problem::Damaged),
            }
        }
    }
}
