//! Passes a command's output on to the caller as it comes, or into a bounded buffer; and to a file if asked.

use crate::terminal::out::{self, LAST_WAIT, caller};
use crate::terminal::{Hold, raw};
use nexus_runner::live::attendant::KeptOutput;
use nexus_runner::live::full_output::FullOutput;
use nexus_runner::live::output::{HeadTail, Stream};
use nexus_runner::live::pipes;
use nexus_terminal::{Filter, Mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

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

/// One way out to the caller.
struct Outlet {
    /// The bytes that the caller has not taken yet.
    pending: Pending,
    /// True if a whole buffer may be written at once.
    regular: bool,
    /// True if no reader will ever take anything again, and what comes is thrown away.
    gone: bool,
}

/// The sink of both streams.
pub struct Sink {
    /// Kept for `--json`; `None` passes on.
    kept: Option<[Vec<u8>; 2]>,
    limit: Option<HeadTail>,
    outlets: [Outlet; 2],
    /// The outlet of each stream. Two streams on one terminal share one: a sequence of the first that is cut where
    /// the second goes on would be another sequence, which no filter has seen.
    routes: [usize; 2],
    /// The filters of the streams that go to a terminal.
    filters: [Option<Filter>; 2],
    full: Option<FullOutput>,
    /// Stops the output while a person is asked.
    hold: Option<Arc<Hold>>,
}

/// The part of the output that a terminal of the caller shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Everything, as it comes.
    Raw,
    /// The part that the mode lets through.
    Filtered(Mode),
}

impl Sink {
    /// A sink that keeps (for `--json`) or passes on, with an optional limit and an optional file for everything.
    pub fn new(keep: bool, limit: Option<u64>, full: Option<FullOutput>, show: Show) -> Self {
        let streams = [Stream::Out, Stream::Err];
        let outlet = |stream| Outlet { pending: Pending::default(), regular: out::is_regular(stream), gone: false };
        let terminals = streams.map(|stream| !keep && rustix::termios::isatty(caller(stream)));
        let filter = |is_terminal| match show {
            Show::Filtered(mode) if is_terminal => Some(Filter::new(mode)),
            _ => None,
        };
        Self {
            kept: keep.then(Default::default),
            limit: limit.map(HeadTail::new),
            outlets: streams.map(outlet),
            routes: if terminals == [true, true] && is_one_terminal() { [0, 0] } else { [0, 1] },
            filters: terminals.map(filter),
            full,
            hold: None,
        }
    }

    /// Makes the sink take nothing while a question is open.
    #[must_use]
    pub fn held_by(mut self, hold: Option<Arc<Hold>>) -> Self {
        self.hold = hold;
        self
    }

    /// Returns the agreement with the thread that asks.
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_deref()
    }

    /// Takes output. `true` means that the reader of this stream is gone.
    pub fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool> {
        if let Some(full) = &mut self.full {
            full.write(bytes)?;
        }
        let now = match &mut self.limit {
            Some(limit) => limit.push(stream, bytes),
            None => bytes,
        };
        if let Some(kept) = &mut self.kept {
            kept[stream as usize].extend_from_slice(now);
            return Ok(false);
        }
        let outlet = &mut self.outlets[self.routes[stream as usize]];
        match &mut self.filters[stream as usize] {
            Some(filter) => filter.push(now, &mut outlet.pending.bytes),
            None => outlet.pending.bytes.extend_from_slice(now),
        }
        if outlet.gone {
            outlet.pending.clear();
        }
        // Mostly the caller takes it at once; asking first whether it can would cost a call more.
        if outlet.regular { self.flush(stream) } else { Ok(false) }
    }

    /// Reports whether there is room for more of this stream.
    pub fn takes(&self, stream: Stream) -> bool {
        let is_held = self.hold.as_ref().is_some_and(|hold| !hold.lets_read());
        !is_held && self.outlets[self.routes[stream as usize]].pending.rest().is_empty()
    }

    /// Returns the caller's descriptor while bytes wait to be written to it.
    pub fn waiting_for(&self, stream: Stream) -> Option<BorrowedFd<'static>> {
        (!self.outlets[stream as usize].pending.rest().is_empty()).then(|| caller(stream))
    }

    /// Reports whether everything has been written.
    pub fn is_drained(&self) -> bool {
        self.outlets.iter().all(|outlet| outlet.pending.rest().is_empty())
    }

    /// Returns the streams whose output goes to the outlet of `stream`.
    pub fn streams_sharing_outlet(&self, stream: Stream) -> impl Iterator<Item = Stream> {
        let routes = self.routes;
        [Stream::Out, Stream::Err].into_iter().filter(move |other| routes[*other as usize] == stream as usize)
    }

    /// Drops all further output for this outlet, because its reader has left.
    pub fn close(&mut self, stream: Stream) {
        let outlet = &mut self.outlets[stream as usize];
        outlet.gone = true;
        outlet.pending.clear();
    }

    /// Discards all further output, except what is kept for `--json`.
    pub fn throw_away(&mut self) {
        for outlet in &mut self.outlets {
            outlet.gone = true;
            outlet.pending.clear();
        }
    }

    /// Writes as much as goes without waiting. `true` means that the reader is gone.
    pub fn flush(&mut self, stream: Stream) -> io::Result<bool> {
        let Outlet { pending, .. } = &mut self.outlets[stream as usize];
        match out::write_ready(stream, pending.rest()) {
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

    /// Notes that output is missing here: an unfinished escape sequence does not go on after the gap.
    pub fn skip(&mut self) {
        self.filters.iter_mut().flatten().for_each(Filter::interrupt);
    }

    /// Writes everything, however long the caller takes, unless a signal asked this process to end. `true` means that
    /// the reader is gone.
    pub fn drain(&mut self) -> io::Result<bool> {
        let often = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        for stream in [Stream::Out, Stream::Err] {
            let mut moved = Instant::now();
            while let Some(fd) = self.waiting_for(stream) {
                match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&often)) {
                    Ok(1..) => moved = Instant::now(),
                    Ok(0) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                if out::is_ended() && moved.elapsed() >= LAST_WAIT {
                    self.throw_away();
                    return Ok(true);
                }
                if self.flush(stream)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Shows what was kept for the end of a limited run, or adds it to what `--json` returns. Returns the kept output
    /// and the number of bytes that were dropped.
    pub fn finish(&mut self) -> io::Result<KeptOutput> {
        let mut dropped = 0;
        if let Some(mut limit) = self.limit.take() {
            // A sequence that the cut went through must not swallow what follows.
            self.filters.iter_mut().flatten().for_each(Filter::interrupt);
            pipes::write_tail(&mut limit, |stream, piece| {
                if let Some(kept) = &mut self.kept {
                    kept[stream as usize].extend_from_slice(piece);
                    return Ok(());
                }
                let mut shown = Vec::new();
                match &mut self.filters[stream as usize] {
                    Some(filter) => filter.push(piece, &mut shown),
                    None => shown.extend_from_slice(piece),
                }
                write_to_caller(stream, &shown)
            })?;
            dropped = limit.dropped();
        }
        if let Some(full) = self.full.take() {
            full.finish()?;
        }
        Ok((self.kept.take(), dropped))
    }

    /// Restores the terminal modes that the command switched on. A second call does nothing. Later output is still
    /// filtered.
    pub fn put_back(&mut self) {
        for stream in [Stream::Out, Stream::Err] {
            let bytes = self.filters[stream as usize].as_mut().map(Filter::put_back).unwrap_or_default();
            if !bytes.is_empty() {
                // A terminal that is gone needs nothing back.
                out::Writer(stream).write_all(&bytes).ok();
            }
        }
    }
}

impl Drop for Sink {
    /// Restores the modes of the terminal, also when the run ends by a panic or an early return.
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Reports whether stdout and stderr are the same terminal.
fn is_one_terminal() -> bool {
    let device = |stream| rustix::fs::fstat(caller(stream)).map(|stat| stat.st_rdev).ok();
    device(Stream::Out) == device(Stream::Err)
}

/// Writes all of the bytes to the caller; a reader that left and a terminal that went away are not errors.
pub fn write_to_caller(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match out::write_unless_closed(&mut out::Writer(stream), bytes) {
        // The run was ended, and the caller takes nothing.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
        // On a disk EIO is an error: the output is lost.
        Err(error) if raw::is_gone(&error) && is_device(stream) => Ok(()),
        other => other,
    }
}

/// Reports whether a stream is a character device. isatty(3) returns false for a terminal that hung up.
fn is_device(stream: Stream) -> bool {
    rustix::fs::fstat(caller(stream))
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
}
