//! Moves bytes between the command and the attendant, and watches the clock, the limits and the guest. One thread.
//!
//! ```text
//!             ┌── Started ──▶ running ── Ended | lost ──▶ closing ── PID 1 dead, pipes at their end ──▶ done
//!  starting ──┤                  │ time limit, signal to this process: SIGTERM ─grace─▶ SIGKILL
//!             └── NotStarted ────┴─▶ closing
//! ```
//! The command never holds a descriptor of the caller: always pipes or a terminal of its own, since `/proc/self/fd/1` of
//! a host file can be opened again with other rights, and a terminal takes ioctls. The [`Attendant`] gets the output and
//! names what else is waited for; nothing waits for an attendant that takes nothing.

mod guest;
mod set_up;

use crate::live::attendant::{Attendant, Interrupts, NetworkServer};
use crate::live::bounds::{Bounds, Broken, Ends, Outcome};
use crate::live::control::{Action, SandboxControl};
use crate::live::covers::Covers;
use crate::live::input::Feed;
use crate::live::left_in_pipes::LeftInPipes;
use crate::live::lingers::{End, Linger};
use crate::live::looks::{self, LOOK_AT_MEMORY_EVERY, SURVEY_AFTER};
use crate::live::names::AskedNames;
use crate::live::output::Stream;
use crate::live::signal::{SIGHUP, SIGTERM};
use crate::live::tally::Tally;
use nexus_driver::{Sandbox, Session};
use nexus_model::ExitReason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const BUFFER: usize = 256 * 1024;
/// The time for output that is not taken, once the run was ended from outside and every process of the sandbox is dead.
pub const LAST_WAIT: Duration = Duration::from_millis(500);
/// The time between two looks at a terminal that no process inside holds open: one may open it again.
const LOOK_AT_TERMINAL_EVERY: Duration = Duration::from_millis(20);

/// Runs until nothing of the sandbox lives and all its output is where it belongs.
pub fn run<A: Attendant>(
    sandbox: &Sandbox,
    session: Session,
    ends: Ends,
    attendant: &mut A,
    interrupts: &dyn Interrupts,
    bounds: Bounds,
    network: Option<&mut dyn NetworkServer>,
) -> Result<Outcome, Broken> {
    let mut pump = Pump {
        sandbox,
        network: network.map(|server| server as &mut dyn NetworkServer),
        inside: SandboxControl::new(session, ends.input, ends.terminal),
        out: ends.out,
        err: ends.err,
        feed: ends.feed,
        attendant,
        survey_at: bounds.survey.as_ref().map(|_| Instant::now() + SURVEY_AFTER),
        bounds,
        started: Instant::now(),
        kill_at: None,
        look_at: Instant::now() + LOOK_AT_MEMORY_EVERY,
        hung_up_until: None,
        asked: 0,
        timed_out: false,
        is_dead: false,
        silent_since: None,
        left: LeftInPipes::default(),
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
            kernel_holds_it: false,
            uncovered: None,
            altered: Vec::new(),
            names: AskedNames::default(),
            survey: None,
        },
    };
    let ran = pump.run_to_end(interrupts);
    // Also after an error: what the command read is not the caller's any more.
    let settled = pump.feed.take().map_or(Ok(()), |mut feed| feed.settle());
    match ran.and(settled) {
        Ok(()) => Ok(pump.outcome),
        Err(error) => {
            pump.recv_start();
            Err(Broken { error, outcome: Some(Box::new(pump.outcome)) })
        }
    }
}

struct Pump<'a, A: Attendant> {
    sandbox: &'a Sandbox,
    network: Option<&'a mut (dyn NetworkServer + 'a)>,
    inside: SandboxControl,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    feed: Option<Feed>,
    attendant: &'a mut A,
    bounds: Bounds,
    started: Instant,
    kill_at: Option<Instant>,
    look_at: Instant,
    /// The time of the next look at the files of the workspace.
    survey_at: Option<Instant>,
    hung_up_until: Option<Instant>,
    asked: u32,
    /// The time limit was reached.
    timed_out: bool,
    is_dead: bool,
    /// The time since which no process inside lives, and nothing that they left was passed on.
    silent_since: Option<Instant>,
    left: LeftInPipes,
    end: End,
    buffer: Vec<u8>,
    outcome: Outcome,
}

/// Names a polled descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source<T> {
    Guest,
    Death,
    Covers,
    Names,
    Signals,
    Output(Stream),
    Input,
    Feed,
    Attendant(T),
}

impl<A: Attendant> Pump<'_, A> {
    /// Reports whether nothing is left to do. The last frames of the guest count even when everything else is over already.
    fn is_done(&self) -> bool {
        let silent = self.out.is_none() && self.err.is_none();
        self.inside.session.is_none() && self.is_dead && silent && self.attendant.is_done()
    }

    fn run_to_end(&mut self, interrupts: &dyn Interrupts) -> io::Result<()> {
        while !self.is_done() {
            self.turn(interrupts)?;
        }
        looks::at_the_end(&mut self.bounds, self.sandbox, &mut self.outcome)
    }

    fn turn(&mut self, interrupts: &dyn Interrupts) -> io::Result<()> {
        let ready = self.wait(interrupts)?;
        for (source, found) in ready {
            match source {
                Source::Guest => {
                    if found.contains(PollFlags::OUT) {
                        self.inside.flush();
                    }
                    if found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                        self.receive()?;
                    }
                }
                Source::Death => {
                    self.recv_rest()?;
                    self.nothing_runs();
                }
                Source::Covers => self.look_at_covers()?,
                Source::Names => self.outcome.names.answer(),
                Source::Signals => {
                    for number in interrupts.take()? {
                        self.attendant.signal(number, &mut self.inside)?;
                    }
                }
                Source::Output(stream) => self.read(stream)?,
                Source::Input => self.inside.write_input()?,
                Source::Feed => self.step_feed()?,
                Source::Attendant(token) => self.attendant.ready(token, found, &mut self.inside)?,
            }
        }
        self.clock()?;
        self.read_what_was_left()?;
        self.attendant.tick(Instant::now(), &mut self.inside)?;
        self.act()
    }

    fn wait(&self, interrupts: &dyn Interrupts) -> io::Result<Vec<(Source<A::Token>, PollFlags)>> {
        let mut sources = Vec::with_capacity(8);
        let mut list = Vec::with_capacity(8);
        let mut add = |source, fd, flags| {
            sources.push(source);
            list.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if let Some(session) = &self.inside.session {
            add(Source::Guest, session.as_fd(), session.interest());
        }
        if !self.is_dead
            && let Some(fd) = self.sandbox.process.ended()
        {
            add(Source::Death, fd, PollFlags::IN);
        }
        if !self.is_dead
            && let Some(fd) = self.bounds.covers.as_ref().and_then(Covers::fd)
        {
            add(Source::Covers, fd, PollFlags::IN);
        }
        if let Some(fd) = self.outcome.names.fd() {
            add(Source::Names, fd, PollFlags::IN);
        }
        add(Source::Signals, interrupts.fd(), PollFlags::IN);
        for (stream, fd) in [(Stream::Out, &self.out), (Stream::Err, &self.err)] {
            // Nothing more is read until the caller took what is there.
            if let Some(fd) = fd
                && self.attendant.takes(stream)
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
        for (fd, flags) in self.feed.iter().filter(|_| !self.is_dead).flat_map(Feed::watch) {
            add(Source::Feed, fd, flags);
        }
        let mut watched = Vec::new();
        self.attendant.watch(&self.inside, &mut watched);
        for (token, fd, flags) in watched {
            add(Source::Attendant(token), fd, flags);
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
        let next_look = (looks && !self.is_dead).then_some(self.look_at);
        let guest = self.inside.session.as_ref().and_then(Session::next_event);
        let covers = self.bounds.covers.as_ref().and_then(Covers::next_look).filter(|_| !self.is_dead);
        let own = [timeout, self.kill_at, next_look, covers, self.hung_up_until, self.give_up_at(), self.lingers_at()];
        let survey = self.survey_at.filter(|_| !self.is_dead);
        let feed = self.feed.as_ref().filter(|_| !self.is_dead).and_then(Feed::next_event);
        own.into_iter()
            .chain([self.set_up_until(), feed, survey])
            .chain([guest, self.attendant.next_event()])
            .flatten()
            .min()
    }

    /// Returns the time at which an attendant that takes nothing is no longer waited for: every process of the sandbox is dead,
    /// and the run was ended from outside.
    fn give_up_at(&self) -> Option<Instant> {
        let was_ended = self.bounds.was_ended.load(Ordering::SeqCst);
        self.silent_since.filter(|_| was_ended).map(|since| since + LAST_WAIT)
    }

    fn deadline(&self) -> Option<Instant> {
        self.bounds.timeout.map(|timeout| self.started + timeout)
    }

    /// Kills everything inside.
    fn kill(&mut self) -> io::Result<()> {
        self.end.kill(self.sandbox)
    }

    /// Passes standard input on; what is unread at the end stays with the caller.
    fn step_feed(&mut self) -> io::Result<()> {
        self.feed.as_mut().filter(|_| !self.is_dead).map_or(Ok(()), Feed::step)
    }

    fn look_at_covers(&mut self) -> io::Result<()> {
        looks::at_covers(&mut self.bounds, self.sandbox, &mut self.end, &mut self.outcome)
    }

    /// Returns the time at which a sandbox that is not gone is reported or left.
    fn lingers_at(&self) -> Option<Instant> {
        self.end.next(self.sandbox, &self.outcome).filter(|_| !self.is_dead)
    }

    /// Reports a sandbox that is not gone, or leaves it.
    fn look_at_the_end(&mut self, now: Instant) {
        match self.end.due(now, self.sandbox, &self.outcome).filter(|_| !self.is_dead) {
            None => {}
            Some(Linger::Leave) => {
                // What is not killed then is still in its sandbox, which nothing reads or commits before it is gone.
                self.sandbox.process.kill_members().ok();
                self.outcome.kernel_holds_it = true;
                self.inside.session = None;
                self.nothing_runs();
            }
            Some(Linger::Report) => {
                self.end.note_reported();
                self.attendant.sandbox_lingers();
            }
        }
    }

    /// Notes that no process inside runs any more: only what is in the pipes is still to come.
    fn nothing_runs(&mut self) {
        self.is_dead = true;
        let has_terminal = self.inside.has_terminal();
        self.left = LeftInPipes::note(self.out.as_ref(), self.err.as_ref(), has_terminal);
        self.silent_since = Some(Instant::now());
        self.hung_up_until = None;
        self.outcome.names.close();
        self.attendant.sandbox_is_dead();
    }

    fn end_now(&mut self) -> io::Result<()> {
        self.inside.session = None;
        self.kill_at = None;
        self.kill()
    }

    /// Sends SIGTERM, to the command or to everything inside, and SIGKILL after the grace.
    fn ask_to_end(&mut self, reason: ExitReason, signal: u8, grace: Duration, everything: bool) -> io::Result<()> {
        if self.outcome.ended.is_some() {
            // The end is known, and the rest is to die at once.
            return if self.is_dead { Ok(()) } else { self.kill() };
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
            Some(session) => session.signal_main_command(signal),
            None => return Ok(()),
        };
        // A guest that takes no messages is ended from outside.
        if sent.is_err() { self.end_now() } else { Ok(()) }
    }

    /// Notes that the guest asked everything inside to end for the time limit. The grace is kept here as well.
    fn note_out_of_time(&mut self) {
        self.timed_out = true;
        let kill_at = Instant::now() + self.bounds.grace;
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        self.bounds.was_ended.store(true, Ordering::SeqCst);
        if self.outcome.reason == ExitReason::Exit && self.outcome.ended.is_none() {
            self.outcome.reason = ExitReason::Timeout;
        }
    }

    /// Does what the attendant asked for.
    fn act(&mut self) -> io::Result<()> {
        for action in std::mem::take(&mut self.inside.actions) {
            match action {
                Action::Close(stream) => self.close_output(stream),
                Action::Broken => self.end_now()?,
                // The end was asked for already, by the attendant or by the time limit: this is a hurry.
                Action::End { .. } if self.asked > 0 => {
                    self.outcome.hurried |= self.outcome.ended.is_none();
                    self.end_now()?;
                }
                Action::End { signal, grace } => {
                    let grace = grace.unwrap_or(self.bounds.grace);
                    self.ask_to_end(ExitReason::Canceled, signal, grace, false)?;
                    // An interactive shell ends when its terminal is gone, and for no SIGTERM.
                    if self.inside.has_terminal()
                        && let Some(session) = &mut self.inside.session
                        && session.signal_main_command(SIGHUP).is_err()
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
            self.bounds.was_ended.store(true, Ordering::SeqCst);
            self.ask_to_end(ExitReason::Timeout, SIGTERM, self.bounds.grace, true)?;
        }
        self.check_set_up(now)?;
        if self.give_up_at().is_some_and(|at| now >= at) {
            self.out = None;
            self.err = None;
            self.silent_since = Some(now);
            self.attendant.give_up(&mut self.inside);
        }
        if self.hung_up_until.is_some_and(|at| now >= at) {
            self.hung_up_until = None;
        }
        if self.inside.session.as_ref().and_then(Session::next_event).is_some_and(|at| now >= at) {
            self.inside.flush();
        }
        if !self.is_dead && self.bounds.covers.as_ref().and_then(Covers::next_look).is_some_and(|at| now >= at) {
            self.look_at_covers()?;
        }
        if self.feed.as_ref().and_then(Feed::next_event).is_some_and(|at| now >= at) {
            self.step_feed()?;
        }
        if now >= self.look_at && !self.is_dead {
            self.look_at = looks::at_limits(&mut self.bounds, self.sandbox, &mut self.end, &mut self.outcome)?;
        }
        if !self.is_dead && self.survey_at.is_some_and(|at| now >= at) {
            self.survey_at = looks::at_bases(&mut self.bounds);
        }
        self.look_at_the_end(now);
        Ok(())
    }

    /// Reads what there was at the death, as far as the attendant takes it. poll(2) would wait for the writers outside.
    fn read_what_was_left(&mut self) -> io::Result<()> {
        for stream in [Stream::Out, Stream::Err] {
            while self.is_dead && self.attendant.takes(stream) && self.has_output(stream) {
                self.read(stream)?;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that the next read of a stream may take.
    fn room_to_read(&mut self, stream: Stream) -> usize {
        if self.is_dead { (*self.left.of(stream)).min(self.buffer.len()) } else { self.buffer.len() }
    }

    fn has_output(&self, stream: Stream) -> bool {
        if stream == Stream::Out { self.out.is_some() } else { self.err.is_some() }
    }

    fn read(&mut self, stream: Stream) -> io::Result<()> {
        let max = self.room_to_read(stream);
        let Some(fd) = (if stream == Stream::Out { &self.out } else { &self.err }) else { return Ok(()) };
        if max == 0 {
            return self.end_output(stream);
        }
        match rustix::io::read(fd, &mut self.buffer[..max]) {
            Ok(0) => self.end_output(stream)?,
            Ok(count) => {
                self.left.count_read(stream, count);
                self.silent_since = self.silent_since.map(|_| Instant::now());
                if self.outcome.first_output.is_none() {
                    self.outcome.first_output = Some(Instant::now());
                }
                let redacted =
                    self.bounds.redactors.as_mut().map(|both| both[stream as usize].push(&self.buffer[..count]));
                let passed = redacted.as_deref().unwrap_or(&self.buffer[..count]);
                self.outcome.output.take(stream, passed);
                if !passed.is_empty() && self.attendant.take(stream, passed)? {
                    self.close_output(stream);
                }
            }
            // No process inside holds the terminal open; while one lives there, that may change.
            Err(Errno::IO) if self.inside.has_terminal() => {
                if self.is_dead {
                    self.end_output(stream)?;
                } else {
                    self.hung_up_until = Some(Instant::now() + LOOK_AT_TERMINAL_EVERY);
                }
            }
            // Everything inside is dead: a process that still holds the other end is not of this sandbox, and is not waited for.
            Err(Errno::AGAIN) if self.is_dead => self.end_output(stream)?,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Closes a stream at its end. What the redaction held back was the beginning of a value and is none.
    fn end_output(&mut self, stream: Stream) -> io::Result<()> {
        self.close_output(stream);
        let Some(both) = &mut self.bounds.redactors else { return Ok(()) };
        let rest = both[stream as usize].finish();
        if !rest.is_empty() {
            self.outcome.output.take(stream, &rest);
            self.attendant.take(stream, &rest)?;
        }
        Ok(())
    }

    /// Closes a stream at its end, or when it is not read any more: then the command gets EPIPE, as it would without us.
    fn close_output(&mut self, stream: Stream) {
        match stream {
            Stream::Out => self.out = None,
            Stream::Err => self.err = None,
        }
    }
}
