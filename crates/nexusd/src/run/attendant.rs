//! The attendant of a directive's command: passes output to the sender, and ends the command on request.

use crate::run::control::{Control, Wanted};
use crate::run::output::Output;
use nexus_api::conduits::Stream as WireStream;
use nexus_runner::live::attendant::{Attendant, KeptOutput, SandboxEvent, Watched};
use nexus_runner::live::control::SandboxControl;
use nexus_runner::live::output::{HeadTail, Stream};
use rustix::event::PollFlags;
use std::io;
use std::time::{Duration, Instant};

/// Time from SIGTERM to SIGKILL after a cancel.
pub const GRACE: Duration = Duration::from_secs(10);
/// Time from SIGTERM to SIGKILL at a shutdown of the daemon.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// The signal that asks a command to end.
pub const SIGTERM: u8 = 15;
/// The signal that ends a command.
pub const SIGKILL: u8 = 9;

/// Attends one command.
pub struct Reporter<'a> {
    output: &'a Output,
    control: &'a Control,
    limit: &'a mut HeadTail,
    /// Goes before each line.
    prefix: &'static str,
    /// A line begins, for each stream.
    begins: [bool; 2],
    done: Wanted,
}

impl<'a> Reporter<'a> {
    /// Makes an attendant that bounds the output by `limit`, which all commands of the directive share.
    pub fn new(output: &'a Output, control: &'a Control, limit: &'a mut HeadTail, prefix: &'static str) -> Self {
        Self { output, control, limit, prefix, begins: [true; 2], done: Wanted::Nothing }
    }

    /// Acts on what another thread wants.
    fn act(&mut self, inside: &mut SandboxControl) {
        let wanted = self.control.wanted();
        if wanted <= self.done {
            return;
        }
        match wanted {
            Wanted::Cancel => inside.end(SIGTERM, Some(GRACE)),
            Wanted::ShutDown if self.done == Wanted::Nothing => inside.end(SIGTERM, Some(SHUTDOWN_GRACE)),
            // Nothing is wanted, or the grace of the cancel goes on.
            Wanted::Nothing | Wanted::ShutDown => {}
            Wanted::Kill => inside.end(SIGKILL, Some(Duration::ZERO)),
        }
        self.done = wanted;
    }

    fn prefixed(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let begins = &mut self.begins[stream as usize];
        let mut text = Vec::with_capacity(bytes.len() + 16);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if *begins {
                text.extend_from_slice(self.prefix.as_bytes());
            }
            text.extend_from_slice(line);
            *begins = line.ends_with(b"\n");
        }
        text
    }
}

/// Returns the stream on the wire.
pub fn wire(stream: Stream) -> WireStream {
    match stream {
        Stream::Out => WireStream::Stdout,
        Stream::Err => WireStream::Stderr,
    }
}

impl Attendant for Reporter<'_> {
    type Token = ();

    fn takes(&self, _: Stream) -> bool {
        self.output.has_room()
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool> {
        let prefixed;
        let bytes = if self.prefix.is_empty() {
            bytes
        } else {
            prefixed = self.prefixed(stream, bytes);
            &prefixed
        };
        let now = self.limit.push(stream, bytes);
        if !now.is_empty() {
            self.output.push(wire(stream), now, false);
        }
        Ok(false)
    }

    fn watch<'a>(&'a self, _: &SandboxControl, watched: &mut Watched<'a, ()>) {
        watched.push(((), self.control.fd(), PollFlags::IN));
    }

    fn ready(&mut self, (): (), _: PollFlags, inside: &mut SandboxControl) -> io::Result<()> {
        self.control.drain();
        self.act(inside);
        Ok(())
    }

    fn signal(&mut self, _: u8, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, _: SandboxEvent, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        None
    }

    fn tick(&mut self, _: Instant, inside: &mut SandboxControl) -> io::Result<()> {
        // The end may have been wanted before the sandbox was there.
        self.act(inside);
        Ok(())
    }

    fn give_up(&mut self, _: &mut SandboxControl) {}

    fn sandbox_lingers(&mut self) {}

    fn sandbox_is_dead(&mut self) {}

    fn is_done(&self) -> bool {
        true
    }

    fn finish(&mut self) -> io::Result<KeptOutput> {
        Ok((None, 0))
    }
}

/// Brings the kept end of the output to the sender.
pub fn finish(limit: &mut HeadTail, output: &Output) {
    for (stream, bytes) in limit.finish() {
        let truncated = limit.dropped_of(stream) > 0;
        output.push(wire(stream), &bytes, truncated);
    }
}
