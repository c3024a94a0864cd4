//! Moves bytes between the command and the caller, and watches the clock, the limits and the guest. One thread.
//!
//! ```text
//!             ┌── Started ──▶ running ── Ended | lost ──▶ closing ── PID 1 dead, pipes at their end ──▶ done
//!  starting ──┤                  │ time limit, signal of the caller: SIGTERM ─grace─▶ SIGKILL
//!             └── NotStarted ────┴─▶ closing
//! ```
//! The command never holds a descriptor of the caller: always pipes, since `/proc/self/fd/1` of a host file can be
//! opened again with other rights, and a terminal takes ioctls. Reading from the command never waits for the caller's
//! clock or signals: writes to the caller are made only when it can take them.

use super::output::{HeadTail, Stream};
use super::sink::Sink;
use crate::net::Service;
use nexus_driver::{Ended, Event, NotStarted, Sandbox, Session};
use nexus_model::ExitReason;
use nexus_model::proof::ProofItem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How the run is bounded.
pub struct Bounds {
    /// Until SIGTERM.
    pub timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Whether the kernel may kill for memory.
    pub watch_memory: bool,
    /// Measures the layer; an answer of `true` is too much.
    pub over_disk: Option<Box<dyn FnMut() -> io::Result<bool>>>,
}

/// Both ends on our side.
pub struct Pipes {
    /// The command's stdout.
    pub out: OwnedFd,
    /// The command's stderr.
    pub err: OwnedFd,
    /// Where its stdin comes from and goes to.
    pub stdin: Option<(OwnedFd, OwnedFd)>,
}

/// What happened.
#[derive(Debug)]
pub struct Outcome {
    /// How the command ended, if it started.
    pub ended: Option<Ended>,
    /// Why the run ended.
    pub reason: ExitReason,
    /// Why it did not start.
    pub not_started: Option<NotStarted>,
    /// The proof.
    pub proof: Vec<ProofItem>,
    /// The upper folder of a layer in memory.
    pub layer: Option<OwnedFd>,
    /// When the command had been started.
    pub spawned: Option<Instant>,
    /// When its first output came.
    pub first_output: Option<Instant>,
    /// Bytes on stdout and stderr.
    pub bytes: [u64; 2],
}

const BUFFER: usize = 256 * 1024;
/// How often a layer on disk is measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the kernel is asked whether it killed for memory: one small file.
const LOOK_AT_MEMORY_EVERY: Duration = Duration::from_millis(10);

/// Runs until nothing of the sandbox lives and all its output is where it belongs.
pub fn run(
    sandbox: &Sandbox,
    session: Session,
    pipes: Pipes,
    sink: &mut Sink,
    signals: &UnixStream,
    bounds: Bounds,
    network: Option<&mut Service>,
) -> io::Result<Outcome> {
    let mut pump = Pump {
        sandbox,
        network,
        session: Some(session),
        out: Some(pipes.out),
        err: Some(pipes.err),
        stdin: pipes.stdin,
        stdin_pending: Vec::new(),
        sink,
        bounds,
        started: Instant::now(),
        kill_at: None,
        look_at: Instant::now() + LOOK_AT_MEMORY_EVERY,
        asked: 0,
        dead: false,
        buffer: vec![0; BUFFER],
        outcome: Outcome {
            ended: None,
            reason: ExitReason::Exit,
            not_started: None,
            proof: Vec::new(),
            layer: None,
            spawned: None,
            first_output: None,
            bytes: [0; 2],
        },
    };
    // The guest's last words count even when everything else is over already.
    while !(pump.session.is_none() && pump.dead && pump.out.is_none() && pump.err.is_none() && pump.sink.is_drained()) {
        pump.turn(signals)?;
    }
    pump.last_look()?;
    Ok(pump.outcome)
}

struct Pump<'a> {
    sandbox: &'a Sandbox,
    network: Option<&'a mut Service>,
    /// Gone when the guest has said its last word.
    session: Option<Session>,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    stdin: Option<(OwnedFd, OwnedFd)>,
    stdin_pending: Vec<u8>,
    sink: &'a mut Sink,
    bounds: Bounds,
    started: Instant,
    kill_at: Option<Instant>,
    look_at: Instant,
    asked: u32,
    dead: bool,
    buffer: Vec<u8>,
    outcome: Outcome,
}

/// What a polled descriptor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Guest,
    Dead,
    Signals,
    Output(Stream),
    Caller(Stream),
    StdinFrom,
    StdinTo,
}

impl Pump<'_> {
    fn turn(&mut self, signals: &UnixStream) -> io::Result<()> {
        let ready = self.wait(signals)?;
        for source in ready {
            match source {
                Source::Guest => self.hear()?,
                Source::Dead => self.dead = true,
                Source::Signals => self.caller_signal(signals)?,
                Source::Output(stream) => self.read(stream)?,
                Source::Caller(stream) => {
                    if self.sink.flush(stream)? {
                        self.close_output(stream);
                    }
                }
                Source::StdinFrom => self.read_stdin()?,
                Source::StdinTo => self.write_stdin()?,
            }
        }
        self.clock()
    }

    fn wait(&self, signals: &UnixStream) -> io::Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(8);
        let mut list = Vec::with_capacity(8);
        let mut add = |source, fd, flags| {
            sources.push(source);
            list.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if self.session.is_some() {
            add(Source::Guest, self.sandbox.channel.as_fd(), PollFlags::IN);
        }
        if !self.dead
            && let Some(fd) = self.sandbox.keeper.ended()
        {
            add(Source::Dead, fd, PollFlags::IN);
        }
        add(Source::Signals, signals.as_fd(), PollFlags::IN);
        for (stream, fd) in [(Stream::Out, &self.out), (Stream::Err, &self.err)] {
            if let Some(waiting) = self.sink.waiting_for(stream) {
                // Nothing more is read until the caller took what is there.
                add(Source::Caller(stream), waiting, PollFlags::OUT);
            } else if let Some(fd) = fd {
                add(Source::Output(stream), fd.as_fd(), PollFlags::IN);
            }
        }
        if let Some((from, to)) = &self.stdin {
            if self.stdin_pending.is_empty() {
                add(Source::StdinFrom, from.as_fd(), PollFlags::IN);
            } else {
                add(Source::StdinTo, to.as_fd(), PollFlags::OUT);
            }
        }
        let timeout = self.next_event().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: i64::from(d.subsec_nanos()) });
        match poll(&mut list, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        Ok(sources
            .into_iter()
            .zip(&list)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(source, _)| source)
            .collect())
    }

    fn next_event(&self) -> Option<Instant> {
        let timeout = if self.asked == 0 { self.deadline() } else { None };
        let looks = self.bounds.watch_memory || self.bounds.over_disk.is_some();
        let look = (looks && !self.dead).then_some(self.look_at);
        [timeout, self.kill_at, look].into_iter().flatten().min()
    }

    fn deadline(&self) -> Option<Instant> {
        self.bounds.timeout.map(|timeout| self.started + timeout)
    }

    fn hear(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let Some(heard) = session.hear_ready().transpose() else { return Ok(()) };
        match heard {
            // But for the first these answer what a run does not ask for; the session refuses them by itself.
            Ok(
                Event::Up
                | Event::Terminal { .. }
                | Event::Command { .. }
                | Event::Forwarded { .. }
                | Event::ForwardFailed { .. },
            ) => {}
            Ok(Event::Listeners(listeners)) => {
                // Without a network nobody serves them: they are closed here.
                if let Some(network) = &mut self.network {
                    network.serve(listeners).map_err(io::Error::other)?;
                }
            }
            Ok(Event::Layer(upper)) => self.outcome.layer = Some(upper),
            Ok(Event::Started(proof)) => {
                self.outcome.proof = proof;
                let now = Instant::now();
                self.outcome.spawned = Some(now);
                self.started = now;
            }
            Ok(Event::Ended(ended)) => {
                self.outcome.ended = Some(ended);
                self.session = None;
            }
            Ok(Event::NotStarted(reason)) => {
                if self.outcome.reason == ExitReason::Exit {
                    self.outcome.reason = ExitReason::DriverFailed;
                }
                self.outcome.not_started = Some(reason);
                self.end_now()?;
            }
            Err(error) => {
                // Killed by us for a reason that is known already, or lost.
                if self.outcome.reason == ExitReason::Exit {
                    self.outcome.reason = ExitReason::GuestLost;
                    if self.outcome.spawned.is_none() {
                        self.outcome.reason = ExitReason::DriverFailed;
                        self.outcome.not_started = Some(error.into());
                    }
                }
                self.end_now()?;
            }
        }
        Ok(())
    }

    fn end_now(&mut self) -> io::Result<()> {
        self.session = None;
        self.kill_at = None;
        self.sandbox.keeper.kill()
    }

    /// SIGTERM for everything inside, SIGKILL after the grace.
    fn ask_to_end(&mut self, reason: ExitReason, signal: u8, everything: bool) -> io::Result<()> {
        if self.outcome.ended.is_some() {
            return Ok(());
        }
        if self.outcome.reason == ExitReason::Exit {
            self.outcome.reason = reason;
        }
        self.asked += 1;
        self.kill_at = Some(Instant::now() + self.bounds.grace);
        let sent = match &self.session {
            Some(session) if everything => session.signal_all(signal),
            Some(session) => session.signal_leader(signal),
            None => return Ok(()),
        };
        // A guest that takes no orders is ended from outside.
        if sent.is_err() { self.end_now() } else { Ok(()) }
    }

    fn caller_signal(&mut self, mut signals: &UnixStream) -> io::Result<()> {
        let mut numbers = [0u8; 16];
        let count = io::Read::read(&mut signals, &mut numbers)?;
        for number in &numbers[..count] {
            if self.asked > 0 && self.outcome.reason == ExitReason::Canceled {
                return self.end_now();
            }
            self.ask_to_end(ExitReason::Canceled, *number, false)?;
        }
        Ok(())
    }

    fn clock(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.sandbox.keeper.kill()?;
        }
        if self.asked == 0 && self.deadline().is_some_and(|at| now >= at) && self.outcome.ended.is_none() {
            const SIGTERM: u8 = 15;
            self.ask_to_end(ExitReason::Timeout, SIGTERM, true)?;
        }
        if now >= self.look_at && !self.dead {
            self.look()?;
        }
        Ok(())
    }

    fn look(&mut self) -> io::Result<()> {
        let began = Instant::now();
        if self.bounds.watch_memory && self.sandbox.keeper.oom_kills()? > 0 {
            self.outcome.reason = ExitReason::Oom;
            self.sandbox.keeper.kill()?;
        }
        if let Some(over) = &mut self.bounds.over_disk
            && over()?
        {
            self.outcome.reason = ExitReason::DiskQuota;
            self.sandbox.keeper.kill()?;
        }
        // A large layer takes long to measure: at most a tenth of the time goes there.
        let every = if self.bounds.over_disk.is_some() { LOOK_EVERY } else { LOOK_AT_MEMORY_EVERY };
        self.look_at = Instant::now() + every.max(began.elapsed() * 10);
        Ok(())
    }

    /// What the kernel did between the last look and the end.
    fn last_look(&mut self) -> io::Result<()> {
        if self.bounds.watch_memory && self.sandbox.keeper.oom_kills()? > 0 {
            self.outcome.reason = ExitReason::Oom;
        }
        if let Some(over) = &mut self.bounds.over_disk
            && over()?
        {
            self.outcome.reason = ExitReason::DiskQuota;
        }
        Ok(())
    }

    fn read(&mut self, stream: Stream) -> io::Result<()> {
        let Some(fd) = (if stream == Stream::Out { &self.out } else { &self.err }) else { return Ok(()) };
        match rustix::io::read(fd, &mut self.buffer[..]) {
            Ok(0) => self.close_output(stream),
            Ok(count) => {
                if self.outcome.first_output.is_none() {
                    self.outcome.first_output = Some(Instant::now());
                }
                self.outcome.bytes[stream as usize] += count as u64;
                if self.sink.take(stream, &self.buffer[..count])? {
                    self.close_output(stream);
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// At its end, or nobody reads it any more: then the command gets EPIPE, as it would without us.
    fn close_output(&mut self, stream: Stream) {
        match stream {
            Stream::Out => self.out = None,
            Stream::Err => self.err = None,
        }
    }

    fn read_stdin(&mut self) -> io::Result<()> {
        let Some((from, _)) = &self.stdin else { return Ok(()) };
        let mut buffer = [0u8; 16384];
        match rustix::io::read(from, &mut buffer) {
            // A terminal that went away is an end, too.
            Ok(0) | Err(Errno::IO) => self.stdin = None,
            Ok(count) => self.stdin_pending.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn write_stdin(&mut self) -> io::Result<()> {
        let Some((_, to)) = &self.stdin else { return Ok(()) };
        match rustix::io::write(to, &self.stdin_pending) {
            Ok(count) => drop(self.stdin_pending.drain(..count)),
            Err(Errno::PIPE) => {
                self.stdin = None;
                self.stdin_pending.clear();
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Writes what a limit kept for the end.
pub fn write_tail(limit: &mut HeadTail, mut write: impl FnMut(Stream, &[u8]) -> io::Result<()>) -> io::Result<()> {
    limit.finish().into_iter().try_for_each(|(stream, piece)| write(stream, &piece))
}

/// A writer that is told of, and forgives, a reader that left.
pub fn write_unless_closed(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Makes a pipe as large as the kernel lets an ordinary user have it.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Over the user's quota of pipe pages the kernel says no, and the default size does as well, only slower.
    match rustix::pipe::fcntl_setpipe_size(&read, 1 << 20) {
        Ok(_) | Err(Errno::PERM | Errno::BUSY) => Ok((read, write)),
        Err(error) => Err(error.into()),
    }
}
