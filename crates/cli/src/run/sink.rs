//! Where a command's output goes: to the caller as it comes, or into a bounded buffer; and to a file if asked.

use super::full_output::FullOutput;
use super::output::{HeadTail, Stream};
use super::tally::Tally;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::io::{self, Write};

/// Bytes on their way to the caller.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    written: usize,
}

impl Pending {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
    }
}

/// The sink of both streams.
pub struct Sink {
    /// Kept for `--json`; `None` passes on.
    kept: Option<[Vec<u8>; 2]>,
    limit: Option<HeadTail>,
    /// What the caller has not taken yet.
    pending: [Pending; 2],
    /// Whether a whole buffer may be written at once.
    regular: [bool; 2],
    full: Option<FullOutput>,
    /// Everything that came, whatever is passed on of it.
    pub tally: Tally,
}

impl Sink {
    /// A sink that keeps (for `--json`) or passes on, with an optional limit and an optional file for everything.
    pub fn new(keep: bool, limit: Option<u64>, full: Option<FullOutput>) -> Self {
        let regular = |fd: BorrowedFd<'_>| {
            rustix::fs::fstat(fd).is_ok_and(|stat| {
                let kind = FileType::from_raw_mode(stat.st_mode);
                kind == FileType::RegularFile || kind == FileType::BlockDevice
            })
        };
        Self {
            kept: keep.then(Default::default),
            limit: limit.map(HeadTail::new),
            pending: Default::default(),
            regular: [regular(io::stdout().as_fd()), regular(io::stderr().as_fd())],
            full,
            tally: Tally::default(),
        }
    }

    /// Takes output. `true` means that nobody reads this stream any more.
    pub fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool> {
        self.tally.take(stream, bytes);
        if let Some(full) = &mut self.full {
            full.file.write_all(bytes)?;
        }
        let now = match &mut self.limit {
            Some(limit) => limit.push(stream, bytes),
            None => bytes,
        };
        if let Some(kept) = &mut self.kept {
            kept[stream as usize].extend_from_slice(now);
            return Ok(false);
        }
        self.pending[stream as usize].bytes.extend_from_slice(now);
        // Mostly the caller takes it at once; asking first whether it can would cost a call more.
        if self.regular[stream as usize] { self.flush(stream) } else { Ok(false) }
    }

    /// The caller's descriptor, while something waits to be written there.
    pub fn waiting_for(&self, stream: Stream) -> Option<BorrowedFd<'static>> {
        (!self.pending[stream as usize].rest().is_empty()).then(|| caller(stream))
    }

    /// Whether everything has been written.
    pub fn is_drained(&self) -> bool {
        self.pending.iter().all(|pending| pending.rest().is_empty())
    }

    /// Writes as much as goes without waiting. `true` means that nobody reads any more.
    pub fn flush(&mut self, stream: Stream) -> io::Result<bool> {
        let regular = self.regular[stream as usize];
        let pending = &mut self.pending[stream as usize];
        let rest = pending.rest();
        let to = caller(stream);
        match if regular { rustix::io::write(to, rest) } else { super::nowait::write(to, rest) } {
            Ok(count) => {
                pending.advance(count);
                Ok(false)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            Err(Errno::PIPE | Errno::IO) => {
                pending.clear();
                Ok(true)
            }
            Err(error) => {
                pending.clear();
                Err(error.into())
            }
        }
    }

    /// What was kept for the end of a limited run: shown, or added to what `--json` returns. Returns the kept output
    /// and the number of bytes that were dropped.
    pub fn finish(mut self) -> io::Result<(Option<[Vec<u8>; 2]>, u64)> {
        let mut dropped = 0;
        if let Some(mut limit) = self.limit.take() {
            let kept = &mut self.kept;
            super::pump::write_tail(&mut limit, |stream, piece| match kept {
                Some(kept) => {
                    kept[stream as usize].extend_from_slice(piece);
                    Ok(())
                }
                None if stream == Stream::Out => super::pump::write_unless_closed(&mut io::stdout(), piece),
                None => super::pump::write_unless_closed(&mut io::stderr(), piece),
            })?;
            dropped = limit.dropped();
        }
        if let Some(full) = self.full.take() {
            full.finish()?;
        }
        Ok((self.kept, dropped))
    }
}

fn caller(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Out => rustix::stdio::stdout(),
        Stream::Err => rustix::stdio::stderr(),
    }
}
