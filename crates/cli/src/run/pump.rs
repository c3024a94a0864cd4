//! Moves bytes between the command and the caller, and watches the clock, the limits and the guest. One thread.
//!
//! ```text
//!             ┌── Started ──▶ running ── Ended | lost ──▶ closing ── PID 1 dead, pipes at their end ──▶ done
//!  starting ──┤                  │ time limit, signal of the caller: SIGTERM ─grace─▶ SIGKILL
//!             └── NotStarted ────┴─▶ closing
//! ```
//! The command never holds a descriptor of the caller: always pipes or a terminal of its own, since `/proc/self/fd/1` of
//! a host file can be opened again with other rights, and a terminal takes ioctls. Who gets the output and what else is
//! waited for is the [`Caller`]'s; nothing waits for a caller that takes nothing.

use super::caller::{Caller, Heard};
use super::covers::Covers;
use super::inside::{Inside, Wish};
use super::names::AskedNames;
use super::output::Stream;
use super::signals::Signals;
use super::tally::Tally;
use crate::net::Service;
use crate::signal::{SIGHUP, SIGTERM};
use crate::terminal::out;
use nexus_driver::{Event, LEADER, Sandbox, Session};
use nexus_model::ExitReason;
use nexus_runner::state::commit_lock::Mounting;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

mod contract;
mod left;
mod lingers;
mod looks;
mod pipes;

pub use contract::{Bounds, Broken, Ends, Look, Outcome};
use left::Left;
use lingers::End;
use looks::LOOK_AT_MEMORY_EVERY;
pub use pipes::{pipe, write_tail, write_unless_closed};

const BUFFER: usize = 256 * 1024;
/// How often a terminal is looked at that no process inside holds open: one may open it again.
const LOOK_AT_TERMINAL_EVERY: Duration = Duration::from_millis(20);

/// Runs until nothing of the sandbox lives and all its output is where it belongs.
pub fn run<C: Caller>(
    sandbox: &Sandbox,
    session: Session,
    ends: Ends,
    caller: &mut C,
    signals: &Signals,
    bounds: Bounds,
    network: Option<&mut Service>,
) -> Result<Outcome, Broken> {
    let mut pump = Pump {
        sandbox,
        network,
        inside: Inside::new(session, ends.input, ends.terminal),
        out: ends.out,
        err: ends.err,
        caller,
        bounds,
        started: Instant::now(),
        kill_at: None,
        look_at: Instant::now() + LOOK_AT_MEMORY_EVERY,
        hung_up_until: None,
        asked: 0,
        timed_out: false,
        dead: false,
        silent_since: None,
        left: Left::default(),
        end: End::default(),
        buffer: vec![0; BUFFER],
        outcome: Outcome {
            ended: None,
            reason: ExitReason::Exit,
            not_started: None,
            proof: Vec::new(),
            layer: None,
            spawned: None,
            first_output: None,
            output: Tally::default(),
            hurried: false,
            lingers: false,
            uncovered: None,
            altered: Vec::new(),
            names: AskedNames::default(),
        },
    };
    match pump.run_to_end(signals) {
        Ok(()) => Ok(pump.outcome),
        Err(error) => Err(Broken { error, outcome: Some(Box::new(pump.outcome)) }),
    }
}

struct Pump<'a, C: Caller> {
    sandbox: &'a Sandbox,
    network: Option<&'a mut Service>,
    inside: Inside,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    caller: &'a mut C,
    bounds: Bounds,
    started: Instant,
    kill_at: Option<Instant>,
    look_at: Instant,
    hung_up_until: Option<Instant>,
    asked: u32,
    /// The time limit was reached.
    timed_out: bool,
    dead: bool,
    /// Since when nothing inside lives, and nothing that it left was passed on.
    silent_since: Option<Instant>,
    left: Left,
    end: End,
    buffer: Vec<u8>,
    outcome: Outcome,
}

/// What a polled descriptor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source<T> {
    Guest,
    Dead,
    Covers,
    Names,
    Signals,
    Output(Stream),
    Input,
    Caller(T),
}

impl<C: Caller> Pump<'_, C> {
    /// The guest's last words count even when everything else is over already.
    fn is_over(&self) -> bool {
        let silent = self.out.is_none() && self.err.is_none();
        self.inside.session.is_none() && self.dead && silent && self.caller.is_done()
    }

    fn run_to_end(&mut self, signals: &Signals) -> io::Result<()> {
        while !self.is_over() {
            self.turn(signals)?;
        }
        self.last_look()
    }

    fn turn(&mut self, signals: &Signals) -> io::Result<()> {
        let ready = self.wait(signals)?;
        for (source, found) in ready {
            match source {
                Source::Guest => {
                    if found.contains(PollFlags::OUT) {
                        self.inside.flush();
                    }
                    if found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                        self.hear()?;
                    }
                }
                Source::Dead => self.nothing_runs(),
                Source::Covers => self.look_at_covers()?,
                Source::Names => self.outcome.names.answer(),
                Source::Signals => {
                    for number in signals.take()? {
                        self.caller.signal(number, &mut self.inside)?;
                    }
                }
                Source::Output(stream) => self.read(stream)?,
                Source::Input => self.inside.write_input()?,
                Source::Caller(token) => self.caller.ready(token, found, &mut self.inside)?,
            }
        }
        self.read_what_the_dead_left()?;
        self.clock()?;
        self.caller.tick(Instant::now(), &mut self.inside)?;
        self.fulfil()
    }

    fn wait(&self, signals: &Signals) -> io::Result<Vec<(Source<C::Token>, PollFlags)>> {
        let mut sources = Vec::with_capacity(8);
        let mut list = Vec::with_capacity(8);
        let mut add = |source, fd, flags| {
            sources.push(source);
            list.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if let Some(session) = &self.inside.session {
            add(Source::Guest, session.as_fd(), session.interest());
        }
        if !self.dead
            && let Some(fd) = self.sandbox.process.ended()
        {
            add(Source::Dead, fd, PollFlags::IN);
        }
        if !self.dead
            && let Some(fd) = self.bounds.covers.as_ref().and_then(Covers::fd)
        {
            add(Source::Covers, fd, PollFlags::IN);
        }
        if let Some(fd) = self.outcome.names.fd() {
            add(Source::Names, fd, PollFlags::IN);
        }
        add(Source::Signals, signals.as_fd(), PollFlags::IN);
        for (stream, fd) in [(Stream::Out, &self.out), (Stream::Err, &self.err)] {
            // Nothing more is read until the caller took what is there.
            if let Some(fd) = fd
                && self.caller.takes(stream)
                && self.hung_up_until.is_none()
            {
                add(Source::Output(stream), fd.as_fd(), PollFlags::IN);
            }
        }
        if let Some(fd) = self.inside.waiting_input()
            && self.hung_up_until.is_none()
        {
            add(Source::Input, fd, PollFlags::OUT);
        }
        let mut watched = Vec::new();
        self.caller.watch(&self.inside, &mut watched);
        for (token, fd, flags) in watched {
            add(Source::Caller(token), fd, flags);
        }
        let timeout = self.next_event().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: i64::from(d.subsec_nanos()) });
        match poll(&mut list, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let found = sources.into_iter().zip(list.iter().map(PollFd::revents));
        Ok(found.filter(|(_, found)| !found.is_empty()).collect())
    }

    fn next_event(&self) -> Option<Instant> {
        let timeout = if self.timed_out { None } else { self.deadline() };
        let looks = self.bounds.watch_memory || self.bounds.over_disk.is_some();
        let look = (looks && !self.dead).then_some(self.look_at);
        let guest = self.inside.session.as_ref().and_then(Session::next_event);
        let covers = self.bounds.covers.as_ref().and_then(Covers::next_look).filter(|_| !self.dead);
        let own = [timeout, self.kill_at, look, covers, self.hung_up_until, self.give_up_at(), self.lingers_at()];
        own.into_iter().chain([guest, self.caller.next_event()]).flatten().min()
    }

    /// When a caller that takes nothing is no longer waited for: the sandbox is dead, and somebody ended the run.
    fn give_up_at(&self) -> Option<Instant> {
        self.silent_since.filter(|_| out::is_ended()).map(|since| since + out::LAST_WAIT)
    }

    fn deadline(&self) -> Option<Instant> {
        self.bounds.timeout.map(|timeout| self.started + timeout)
    }

    fn hear(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.inside.session else { return Ok(()) };
        let Some(heard) = session.hear_ready().transpose() else { return Ok(()) };
        match heard {
            Ok(Event::Up) => self.sandbox.process.on_ready(),
            Ok(Event::Terminal { exec: LEADER, master }) => {
                self.inside.input = Some(rustix::io::fcntl_dupfd_cloexec(&master, 0)?);
                self.out = Some(master);
            }
            Ok(
                event @ (Event::Terminal { .. }
                | Event::Command { .. }
                | Event::Forwarded { .. }
                | Event::ForwardFailed { .. }),
            ) => self.caller.heard(Heard::Other(event), &mut self.inside)?,
            Ok(Event::Listeners(listeners)) => {
                // Without a network nobody serves them: they are closed here.
                if let Some(network) = &mut self.network {
                    network.serve(listeners).map_err(io::Error::other)?;
                }
            }
            Ok(Event::Names(socket)) => self.outcome.names.serve(socket),
            Ok(Event::Layer(upper)) => self.outcome.layer = Some(upper),
            Ok(Event::Started(proof)) => {
                self.outcome.proof = proof;
                let now = Instant::now();
                self.outcome.spawned = Some(now);
                self.started = now;
                self.bounds.mounting.take().map_or(Ok(()), Mounting::done)?;
                self.caller.heard(Heard::Started, &mut self.inside)?;
            }
            Ok(Event::Ended(ended)) => {
                self.outcome.ended = Some(ended);
                self.inside.session = None;
                self.end.has_ended();
                // What still lives is killed by the kernel, and dies at the share of the processor otherwise.
                self.sandbox.process.hurry();
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
        self.inside.session = None;
        self.kill_at = None;
        self.kill()
    }

    /// SIGTERM for everything inside, SIGKILL after the grace.
    fn ask_to_end(&mut self, reason: ExitReason, signal: u8, grace: Duration, everything: bool) -> io::Result<()> {
        if self.outcome.ended.is_some() {
            // The end is known, and the rest is to die at once.
            return if self.dead { Ok(()) } else { self.kill() };
        }
        if self.outcome.reason == ExitReason::Exit {
            self.outcome.reason = reason;
        }
        self.asked += 1;
        // A later request never puts off the end that an earlier one set.
        let kill_at = Instant::now() + grace;
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        let sent = match &mut self.inside.session {
            Some(session) if everything => session.signal_all(signal),
            Some(session) => session.signal_leader(signal),
            None => return Ok(()),
        };
        // A guest that takes no orders is ended from outside.
        if sent.is_err() { self.end_now() } else { Ok(()) }
    }

    /// What the caller wants.
    fn fulfil(&mut self) -> io::Result<()> {
        for wish in std::mem::take(&mut self.inside.wishes) {
            match wish {
                Wish::Close(stream) => self.close_output(stream),
                Wish::Broken => self.end_now()?,
                // Who asks when the end was asked for already, by a caller or by the time limit, is in a hurry.
                Wish::End { .. } if self.asked > 0 => {
                    self.outcome.hurried |= self.outcome.ended.is_none();
                    self.end_now()?;
                }
                Wish::End { signal, grace } => {
                    let grace = grace.unwrap_or(self.bounds.grace);
                    self.ask_to_end(ExitReason::Canceled, signal, grace, false)?;
                    // An interactive shell ends when its terminal is gone, and for no SIGTERM.
                    if self.inside.has_terminal()
                        && let Some(session) = &mut self.inside.session
                        && session.signal_leader(SIGHUP).is_err()
                    {
                        self.end_now()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn clock(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.kill()?;
        }
        if !self.timed_out && self.deadline().is_some_and(|at| now >= at) {
            self.timed_out = true;
            out::end();
            self.ask_to_end(ExitReason::Timeout, SIGTERM, self.bounds.grace, true)?;
        }
        if self.give_up_at().is_some_and(|at| now >= at) {
            self.out = None;
            self.err = None;
            self.silent_since = Some(now);
            self.caller.give_up(&mut self.inside);
        }
        if self.hung_up_until.is_some_and(|at| now >= at) {
            self.hung_up_until = None;
        }
        if self.inside.session.as_ref().and_then(Session::next_event).is_some_and(|at| now >= at) {
            self.inside.flush();
        }
        if !self.dead && self.bounds.covers.as_ref().and_then(Covers::next_look).is_some_and(|at| now >= at) {
            self.look_at_covers()?;
        }
        if now >= self.look_at && !self.dead {
            self.look()?;
        }
        self.look_at_the_end(now);
        Ok(())
    }

    fn read(&mut self, stream: Stream) -> io::Result<()> {
        let most = self.may_read(stream);
        let Some(fd) = (if stream == Stream::Out { &self.out } else { &self.err }) else { return Ok(()) };
        if most == 0 {
            self.close_output(stream);
            return Ok(());
        }
        match rustix::io::read(fd, &mut self.buffer[..most]) {
            Ok(0) => self.close_output(stream),
            Ok(count) => {
                self.has_read(stream, count);
                self.silent_since = self.silent_since.map(|_| Instant::now());
                if self.outcome.first_output.is_none() {
                    self.outcome.first_output = Some(Instant::now());
                }
                self.outcome.output.take(stream, &self.buffer[..count]);
                if self.caller.take(stream, &self.buffer[..count])? {
                    self.close_output(stream);
                }
            }
            // Nobody inside holds the terminal open; while somebody lives there, that may change.
            Err(Errno::IO) if self.inside.has_terminal() => {
                if self.dead {
                    self.close_output(stream);
                } else {
                    self.hung_up_until = Some(Instant::now() + LOOK_AT_TERMINAL_EVERY);
                }
            }
            // Everything inside is dead: who still holds the other end is not of this sandbox, and is not waited for.
            Err(Errno::AGAIN) if self.dead => self.close_output(stream),
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
}
