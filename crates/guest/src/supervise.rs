//! The guest's loop.
//!
//! ```text
//!            Exec ─▶ (Terminal) ─▶ spawn ··▶ Started ─▶ (SIGCHLD) ─▶ Exited ── main? ────▶ end: the kernel kills the rest
//!  channel ─┤                        └··▶ ProofFailed | ExecFailed ─────── main? ────▶ end
//!            Signal ─▶ kill one or all      Resize ─▶ its terminal      Forward ─▶ Forwarded | ForwardFailed
//!            Shutdown, or the end of the channel (the host is gone) ─────────▶ end
//! ```
//! When PID 1 of a pid namespace ends, the kernel kills everything in it (pid_namespaces(7)). So every way out of this
//! loop leaves nothing alive, whatever the command did with sessions, signals or descriptors.
//!
//! A command with a terminal: its master goes to the host in a frame of its own before its process is made; the copy kept
//! here serves `Resize` and is closed when the command has ended, so that nothing but the host and what still runs holds it.
//!
//! In a layer of an ordinary user the kernel also tells of renames ([`crate::moves`]), which a helper looks at.
//!
//! The time limit of the main command is kept here as well ([`crate::late`]), for a host that is stopped.
//!
//! Nothing here waits for a process inside (`··▶`): a child on its way to its exec is polled, and killed when it takes long.

use crate::forward;
use crate::late::{Due, Late};
use crate::moves::Moves;
use crate::outbox::Outbox;
use crate::signals;
use crate::spawn::{self, Outcome, Report, Stdio};
use crate::terminal::{self, Terminal};
use nexus_channel::frames::{ExecRequest, ExecStage, GuestFrame, HostFrame, TerminalSize, VERSION};
use nexus_channel::{Channel, ChannelError, Partial};
use nexus_model::ExitStatus;
use nexus_model::moving::Numbers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::Instant;

/// Maximum number of commands that run at once. Each costs a process and perhaps a descriptor, and the host must not be
/// able to use up what the guest needs to end the sandbox.
const MAX_COMMANDS: usize = 256;

/// Reason for which the guest ended.
#[derive(Debug)]
enum End {
    /// The main command is done, or the host asked.
    Done,
    /// The channel or the kernel failed.
    Failed,
}

/// Serves the host until the main command ends. Returns PID 1's exit code, which only says whether the guest was sound.
/// `moves` is set where the kernel does not rename directories of the workspace: then the guest has it done, and that tells their files
/// apart.
#[must_use]
pub fn run(socket: OwnedFd, moves: Option<Numbers>) -> i32 {
    let channel = Channel::new(socket);
    let Ok(child_ends) = signals::take_over() else { return 3 };
    let outbox = Outbox::new(channel.clone());
    let moves = moves.and_then(Moves::begin);
    let (starting, running) = (Vec::new(), Vec::new());
    let mut guest = Guest { channel, partial: Partial::default(), outbox, starting, running, moves, late: None };
    match guest.serve(&child_ends).and_then_last_words(&mut guest.outbox) {
        End::Done => 0,
        End::Failed => 3,
    }
}

impl End {
    /// Waits until the host knows how the main command ended. Nothing else inside lives on while it does not listen.
    fn and_then_last_words(self, outbox: &mut Outbox) -> Self {
        match self {
            Self::Done if !outbox.is_empty() => match kill(-1, libc::SIGKILL).map(|()| outbox.finish()) {
                Ok(Ok(()) | Err(ChannelError::Closed)) => Self::Done,
                Ok(Err(_)) | Err(_) => Self::Failed,
            },
            other => other,
        }
    }
}

struct Running {
    exec: u32,
    pid: i32,
    is_main: bool,
    /// Of its terminal.
    master: Option<OwnedFd>,
}

/// A command whose process has not executed yet.
struct Starting {
    running: Running,
    report: Report,
    /// When its process is killed.
    deadline: Instant,
    /// Signals that came for it meanwhile.
    signals: Vec<u8>,
}

struct Guest {
    channel: Channel,
    partial: Partial,
    outbox: Outbox,
    starting: Vec<Starting>,
    running: Vec<Running>,
    moves: Option<Moves>,
    late: Option<Late>,
}

impl From<ChannelError> for End {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Closed => Self::Done,
            ChannelError::Frame(_) | ChannelError::TooManyDescriptors | ChannelError::Full | ChannelError::Io(_) => {
                Self::Failed
            }
        }
    }
}

impl Guest {
    fn serve(&mut self, child_ends: &OwnedFd) -> End {
        let hello = self.outbox.send(&GuestFrame::Hello { version: VERSION }).map_err(End::from);
        let served = hello.and_then(|()| {
            loop {
                self.turn(child_ends)?;
            }
        });
        match served {
            Ok(never) => never,
            Err(end) => end,
        }
    }

    fn turn(&mut self, child_ends: &OwnedFd) -> Result<(), End> {
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, self.outbox.has_room());
        interest.set(PollFlags::OUT, !self.outbox.is_empty());
        let mut wait = vec![PollFd::new(&self.channel, interest), PollFd::new(child_ends, PollFlags::IN)];
        wait.extend(self.starting.iter().map(|starting| PollFd::new(&starting.report.pipe, spawn::END)));
        let reports = 2..wait.len();
        wait.extend(self.moves.iter().map(|moves| PollFd::from_borrowed_fd(moves.descriptor(), PollFlags::IN)));
        let deadline = self.starting.iter().map(|starting| starting.deadline).min();
        let next = deadline.into_iter().chain(self.late.as_ref().and_then(Late::next)).min();
        let left = next.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut wait, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(End::Failed),
        }
        let (from_host, from_child) = (wait[0].revents(), wait[1].revents());
        let has_ended = wait[reports.clone()].iter().any(|report| !report.revents().is_empty());
        let has_call = wait[reports.end..].iter().any(|listener| listener.revents().contains(PollFlags::IN));
        if !from_child.is_empty() {
            // The record only wakes us: signals of the same number merge, so all ended children are asked for.
            let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
            match rustix::io::read(child_ends, &mut record) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return Err(End::Failed),
            }
            self.reap()?;
        }
        if has_ended || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.look_at_starting()?;
        }
        self.keep_time()?;
        if has_call && let Some(moves) = self.moves.as_mut() {
            moves.take();
        }
        if from_host.contains(PollFlags::OUT) {
            self.outbox.flush()?;
        }
        if from_host.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            && let Some((frame, descriptors)) = self.channel.receive_ready(&mut self.partial)?
        {
            self.obey(frame, descriptors)?;
        }
        Ok(())
    }

    fn obey(&mut self, frame: HostFrame, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        match frame {
            HostFrame::Hello { version: VERSION } => Ok(()),
            HostFrame::Hello { .. } => Err(End::Failed),
            HostFrame::Exec(request) => self.start(&request, descriptors),
            HostFrame::Signal { exec, signal } => self.signal(exec, signal),
            HostFrame::Shutdown => Err(End::Done),
            HostFrame::Resize { exec, size } => self.resize(exec, size),
            HostFrame::Forward { forward, port } => self.forward(forward, port),
            HostFrame::EndWithin { timeout_ms, grace_ms } => {
                self.late = Some(Late::new(timeout_ms, grace_ms));
                Ok(())
            }
        }
    }

    /// Keeps the time limit of the main command where the host has not.
    fn keep_time(&mut self) -> Result<(), End> {
        match self.late.as_ref().and_then(|late| late.due(Instant::now())) {
            None => Ok(()),
            Some(Due::Terminate) => {
                self.outbox.send(&GuestFrame::OutOfTime)?;
                self.signal(None, libc::SIGTERM as u8)
            }
            Some(Due::End) => Err(End::Failed),
        }
    }

    /// Starts the process of a command; what became of it is known later.
    fn start(&mut self, request: &ExecRequest, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        let ExecRequest { exec, is_main, .. } = *request;
        match self.spawn(request, descriptors)? {
            Ok(starting) => {
                self.starting.push(starting);
                Ok(())
            }
            Err((stage, errno)) => self.report_not_started(is_main, &GuestFrame::ExecFailed { exec, errno, stage }),
        }
    }

    fn report_not_started(&mut self, is_main: bool, why: &GuestFrame) -> Result<(), End> {
        self.outbox.send(why)?;
        if is_main { Err(End::Done) } else { Ok(()) }
    }

    /// Starts it with what it asks for; the slave of its terminal is closed here at the end.
    fn spawn(
        &mut self,
        request: &ExecRequest,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Result<Starting, (ExecStage, i32)>, End> {
        let ExecRequest { exec, is_main, terminal, .. } = *request;
        if self.running.len() + self.starting.len() >= MAX_COMMANDS {
            return Ok(Err((ExecStage::Spawn, libc::EAGAIN)));
        }
        let (stdio, master) = match terminal {
            None => match <[OwnedFd; 3]>::try_from(descriptors) {
                Ok(three) => (Stdio::Three(three), None),
                Err(_) => return Ok(Err((ExecStage::Prepare, libc::EBADF))),
            },
            Some(size) => {
                let Terminal { master, slave } = match Terminal::open(size) {
                    Ok(terminal) => terminal,
                    Err(error) => return Ok(Err((ExecStage::Prepare, error.raw_os_error().unwrap_or(libc::EIO)))),
                };
                if let Err(errno) = self.outbox.hand_out(&GuestFrame::Terminal { exec }, master.as_fd())? {
                    return Ok(Err((ExecStage::Prepare, errno.raw_os_error())));
                }
                (Stdio::Terminal(slave), Some(master))
            }
        };
        Ok(spawn::spawn(request, &stdio).map(|(pid, report)| Starting {
            running: Running { exec, pid, is_main, master },
            report,
            deadline: Instant::now() + spawn::TIME_TO_EXEC,
            signals: Vec::new(),
        }))
    }

    /// Settles those that have executed or failed, and kills those that take too long.
    fn look_at_starting(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let mut at = 0;
        while let Some(starting) = self.starting.get_mut(at) {
            match starting.report.advance() {
                Some(outcome) => self.settle(at, outcome)?,
                None if now >= starting.deadline => {
                    kill(starting.running.pid, libc::SIGKILL)?;
                    self.settle(at, Outcome::Failed(ExecStage::Prepare, libc::ETIMEDOUT))?;
                }
                None => at += 1,
            }
        }
        Ok(())
    }

    fn settle(&mut self, at: usize, outcome: Outcome) -> Result<(), End> {
        let Starting { running, signals, .. } = self.starting.swap_remove(at);
        let Running { exec, pid, is_main, .. } = running;
        match outcome {
            Outcome::Running(proof) => {
                self.running.push(running);
                if let Some(late) = self.late.as_mut().filter(|_| is_main) {
                    late.note_started();
                }
                self.outbox.send(&GuestFrame::Started { exec, proof })?;
                signals.into_iter().try_for_each(|signal| kill(-pid, i32::from(signal)))
            }
            Outcome::ProofFailed(proof) => self.report_not_started(is_main, &GuestFrame::ProofFailed { exec, proof }),
            Outcome::Failed(stage, errno) => {
                self.report_not_started(is_main, &GuestFrame::ExecFailed { exec, errno, stage })
            }
        }
    }

    fn resize(&self, exec: u32, size: TerminalSize) -> Result<(), End> {
        // One that has just ended, or has no terminal, has nothing to resize.
        let mut all = self.running.iter().chain(self.starting.iter().map(|starting| &starting.running));
        match all.find(|running| running.exec == exec).and_then(|running| running.master.as_ref()) {
            Some(master) => terminal::resize(master, size).map_err(|_| End::Failed),
            None => Ok(()),
        }
    }

    fn forward(&mut self, forward: u32, port: u16) -> Result<(), End> {
        let offered = match forward::connect(port) {
            Ok(socket) => self.outbox.hand_out(&GuestFrame::Forwarded { forward }, socket.as_fd())?,
            Err(errno) => Err(errno),
        };
        match offered {
            Ok(()) => Ok(()),
            Err(errno) => {
                let errno = errno.raw_os_error();
                Ok(self.outbox.send(&GuestFrame::ForwardFailed { forward, errno })?)
            }
        }
    }

    /// Signals one command with its process group, or everything inside but PID 1. A command that has not executed yet
    /// gets its signals afterwards: before, they would end a process of the guest's own code.
    fn signal(&mut self, exec: Option<u32>, signal: u8) -> Result<(), End> {
        if let Some(late) = self.late.as_mut().filter(|_| exec.is_none()) {
            late.note_asked();
        }
        let is_meant = |starting: &&mut Starting| match exec {
            None => starting.running.is_main && i32::from(signal) != libc::SIGKILL,
            Some(exec) => starting.running.exec == exec,
        };
        if let Some(starting) = self.starting.iter_mut().find(is_meant) {
            if i32::from(signal) == libc::SIGKILL {
                return kill(starting.running.pid, libc::SIGKILL);
            }
            if !starting.signals.contains(&signal) {
                starting.signals.push(signal);
            }
            return Ok(());
        }
        let target = match exec {
            None => -1,
            Some(exec) => match self.running.iter().find(|running| running.exec == exec) {
                Some(running) => -running.pid,
                // It has just ended; its end is on the way to the host.
                None => return Ok(()),
            },
        };
        kill(target, i32::from(signal))
    }

    /// Collects every ended child; orphans of the command are ours too.
    fn reap(&mut self) -> Result<(), End> {
        loop {
            let mut status = 0;
            // SAFETY: rusage is plain data, and both pointers live during the call.
            let (pid, usage) = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                (libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage), usage)
            };
            match pid {
                0 => return Ok(()),
                -1 => {
                    return match io::Error::last_os_error().raw_os_error() {
                        Some(libc::ECHILD | libc::EINTR) => Ok(()),
                        _ => Err(End::Failed),
                    };
                }
                _ => self.ended(pid, status, &usage)?,
            }
        }
    }

    fn ended(&mut self, pid: i32, status: i32, usage: &libc::rusage) -> Result<(), End> {
        if let Some(moves) = self.moves.as_mut() {
            moves.ended(pid);
        }
        // One that ended before its pipe was looked at: all that it reported is in there.
        if let Some(at) = self.starting.iter().position(|starting| starting.running.pid == pid) {
            let outcome = self.starting[at].report.advance();
            self.settle(at, outcome.unwrap_or(Outcome::Failed(ExecStage::Spawn, libc::EINTR)))?;
        }
        let Some(index) = self.running.iter().position(|running| running.pid == pid) else { return Ok(()) };
        let ended = self.running.swap_remove(index);
        let status = if libc::WIFSIGNALED(status) {
            ExitStatus::Signal(libc::WTERMSIG(status) as u8)
        } else {
            ExitStatus::Code(libc::WEXITSTATUS(status) as u8)
        };
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let frame = GuestFrame::Exited {
            exec: ended.exec,
            status,
            cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
            max_rss_bytes: usage.ru_maxrss as u64 * 1024,
        };
        self.outbox.send(&frame)?;
        if ended.is_main { Err(End::Done) } else { Ok(()) }
    }
}

fn kill(target: i32, signal: i32) -> Result<(), End> {
    // SAFETY: kill(2) with plain numbers; inside this pid namespace there is only what the host started.
    if unsafe { libc::kill(target, signal) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        // Without a process to signal, or with an unknown signal number, the sandbox goes on.
        Some(libc::ESRCH | libc::EINVAL) => Ok(()),
        _ => Err(End::Failed),
    }
}
