//! `nexus run` in the foreground: the caller's own stdin, stdout, stderr and terminal.

use super::feeder::Feeder;
use super::input::Input;
use crate::terminal::raw::{self, Raw};
use crate::terminal::sink::Sink;
use crate::terminal::{Hold, out};
use nexus_driver::Event;
use nexus_runner::live::attendant::{Attendant, KeptOutput, SandboxEvent, Watched};
use nexus_runner::live::control::SandboxControl;
use nexus_runner::live::input::{InputLost, InputSource};
use nexus_runner::live::output::Stream;
use nexus_runner::live::ports::{PortToken, Ports};
use nexus_runner::live::signal::{SIGCONT, SIGHUP, SIGTSTP, SIGWINCH};
use nexus_runner::notices::Notice;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::time::Instant;

/// The caller of a run in the foreground.
pub struct Foreground {
    sink: Sink,
    /// Set while this process reads standard input ahead of the command, and it has not ended.
    input: bool,
    /// Set when a thread reads the input ahead, because it is not a terminal.
    is_fed: bool,
    /// That thread, once the sandbox has started: a process with two threads cannot make one.
    feeder: Option<Feeder>,
    /// Set when standard input is passed on as the command reads it.
    is_left: bool,
    raw: Option<Raw>,
    /// The signs so far that the caller's terminal went away.
    hang_up: HangUp,
    ports: Ports,
}

/// State of a terminal that may have gone away. It reports that twice, in any order: by SIGHUP to its session and by
/// EIO to the process that uses it. The command is asked to end once, since asked a second time it would be killed
/// without its grace.
#[derive(Debug, Default)]
struct HangUp {
    signalled: bool,
    found: bool,
}

/// A descriptor on which a run in the foreground waits.
#[derive(Debug, Clone, Copy)]
pub enum Token {
    Output(Stream),
    Input,
    Port(PortToken),
    /// A question begins or has ended.
    Question,
}

impl Foreground {
    /// Makes the attendant, with the way of standard input, and the terminal in raw mode if the command has one of its
    /// own.
    pub fn new(sink: Sink, input: Input, raw: Option<Raw>, ports: Ports) -> Self {
        let (ahead, is_left) = (input == Input::Ahead, input == Input::AsRead);
        let is_fed = ahead && !rustix::termios::isatty(rustix::stdio::stdin());
        Self { sink, input: ahead, is_fed, feeder: None, is_left, raw, hang_up: HangUp::default(), ports }
    }

    /// The descriptor from which the command's input is read ahead.
    fn ahead(&self) -> BorrowedFd<'_> {
        if let Some(feeder) = &self.feeder { feeder.as_fd() } else { rustix::stdio::stdin() }
    }

    fn read_input(&mut self, inside: &mut SandboxControl) -> io::Result<()> {
        let mut buffer = [0u8; 16384];
        match rustix::io::read(self.ahead(), &mut buffer) {
            // A terminal that went away is an end, too.
            Ok(0) | Err(Errno::IO) if self.raw.is_some() => self.terminal_is_gone(inside),
            Ok(0) | Err(Errno::IO) => {
                self.input = false;
                match self.feeder.as_ref().and_then(Feeder::error) {
                    Some(error) if error != Errno::IO || !raw::is_gone_from(rustix::stdio::stdin()) => {
                        // Before the command sees an end: it would take a part for the whole.
                        return Err(InputLost(error.into()).into());
                    }
                    // A terminal that went away answers EIO as well, and is at its end.
                    None | Some(_) => inside.end_input(),
                }
            }
            Ok(count) => inside.input(&buffer[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(InputLost(error.into()).into()),
        }
        Ok(())
    }

    /// Asks the command to end as by SIGHUP. What it still prints is read and thrown away: the command may print
    /// something before it ends, and would wait for a reader until the grace is over.
    fn terminal_is_gone(&mut self, inside: &mut SandboxControl) {
        self.input = false;
        self.sink.throw_away();
        if !std::mem::replace(&mut self.hang_up.found, true) {
            inside.end_input();
            if !self.hang_up.signalled {
                inside.end(SIGHUP, None);
            }
        }
    }

    /// Reports whether the terminal's mode was changed. A terminal that is gone is not an error.
    fn changed(&mut self, result: io::Result<()>, inside: &mut SandboxControl) -> io::Result<bool> {
        match result {
            Err(error) if raw::is_gone(&error) => {
                self.terminal_is_gone(inside);
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }
}

impl Attendant for Foreground {
    type Token = Token;

    fn input_source(&mut self) -> io::Result<Option<InputSource>> {
        self.is_left.then(|| InputSource::new(rustix::stdio::stdin())).transpose()
    }

    fn takes(&self, stream: Stream) -> bool {
        self.sink.takes(stream)
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool> {
        self.sink.take(stream, bytes)
    }

    fn watch<'a>(&'a self, inside: &SandboxControl, watched: &mut Watched<'a, Token>) {
        for stream in [Stream::Out, Stream::Err] {
            if let Some(fd) = self.sink.waiting_for(stream) {
                watched.push((Token::Output(stream), fd, PollFlags::OUT));
            }
        }
        let is_ready = !self.is_fed || self.feeder.is_some();
        if self.input && is_ready && inside.takes_input() {
            watched.push((Token::Input, self.ahead(), PollFlags::IN));
        }
        if let Some(hold) = self.sink.hold() {
            watched.push((Token::Question, hold.pump_fd(), PollFlags::IN));
        }
        self.ports.watch(|token, fd, flags| watched.push((Token::Port(token), fd, flags)));
    }

    fn ready(&mut self, token: Token, found: PollFlags, inside: &mut SandboxControl) -> io::Result<()> {
        match token {
            Token::Output(stream) => {
                if self.sink.flush(stream)? {
                    if self.raw.is_some() {
                        self.terminal_is_gone(inside);
                    } else {
                        self.sink.streams_sharing_outlet(stream).for_each(|stream| inside.close(stream));
                    }
                }
                Ok(())
            }
            Token::Input => self.read_input(inside),
            Token::Question => {
                self.sink.hold().into_iter().for_each(Hold::pump_woken);
                Ok(())
            }
            Token::Port(token) => {
                self.ports.ready(token, found, inside);
                Ok(())
            }
        }
    }

    fn signal(&mut self, number: u8, inside: &mut SandboxControl) -> io::Result<()> {
        match (number, &self.raw) {
            (SIGWINCH, Some(_)) => inside.resize(None, raw::size()),
            (SIGTSTP, Some(terminal)) => {
                let paused = terminal.pause();
                if self.changed(paused, inside)? {
                    kill_process(getpid(), Signal::STOP)?;
                }
            }
            // The kernel sends it after the SIGHUP of a terminal that went away, too.
            (SIGCONT, Some(terminal)) => {
                let again = terminal.again();
                if self.changed(again, inside)? {
                    inside.resize(None, raw::size());
                }
            }
            (SIGHUP, Some(_)) => {
                let is_known = self.hang_up.found && !self.hang_up.signalled;
                self.hang_up.signalled = true;
                if !is_known {
                    inside.end(SIGHUP, None);
                }
            }
            (SIGWINCH | SIGTSTP | SIGCONT, None) => {}
            (number, _) => inside.end(number, None),
        }
        Ok(())
    }

    fn event(&mut self, event: SandboxEvent, inside: &mut SandboxControl) -> io::Result<()> {
        if matches!(event, SandboxEvent::Started) && self.is_fed {
            self.feeder = Some(Feeder::start(rustix::stdio::stdin())?);
        }
        match event {
            // It may have changed while the sandbox was being made.
            SandboxEvent::Started if self.raw.is_some() => inside.resize(None, raw::size()),
            SandboxEvent::Other(Event::Forwarded { forward, socket }) => self.ports.forwarded(forward, socket),
            SandboxEvent::Other(Event::ForwardFailed { forward, .. }) => self.ports.failed(forward),
            SandboxEvent::Started | SandboxEvent::Other(_) => {}
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        self.ports.next_event()
    }

    fn tick(&mut self, now: Instant, _inside: &mut SandboxControl) -> io::Result<()> {
        self.ports.tick(now);
        if let Some(hold) = self.sink.hold() {
            hold.hand_over(self.sink.is_drained());
        }
        Ok(())
    }

    fn give_up(&mut self, _inside: &mut SandboxControl) {
        if !self.sink.is_drained() {
            out::give_up();
        }
        self.sink.throw_away();
        self.ports.drop_all();
    }

    fn sandbox_lingers(&mut self) {
        crate::notices::print(&Notice::Lingers);
    }

    fn sandbox_is_dead(&mut self) {
        self.sink.hold().into_iter().for_each(Hold::end);
        self.ports.close();
    }

    fn is_done(&self) -> bool {
        self.sink.is_drained() && self.ports.is_done()
    }

    fn finish(&mut self) -> io::Result<KeptOutput> {
        let kept = self.sink.finish();
        // The screen first, while what a terminal might answer is still thrown away.
        self.sink.put_back();
        self.raw = None;
        kept
    }
}
