//! The guest's loop.
//!
//! ```text
//!            Exec ─▶ spawn ─┬─▶ Started ─▶ (SIGCHLD) ─▶ Exited ── leader? ──▶ end: the kernel kills all that is left
//!  channel ─┤               └─▶ ProofFailed | ExecFailed ─────── leader? ──▶ end
//!            Signal ─▶ kill one or all
//!            Shutdown, or the end of the channel (the host is gone) ─────────▶ end
//! ```
//! When PID 1 of a pid namespace ends, the kernel kills everything in it (pid_namespaces(7)). So every way out of this
//! loop leaves nothing alive, whatever the command did with sessions, signals or descriptors.

use crate::channel::{Channel, ChannelError};
use crate::signals;
use crate::spawn::{self, Outcome};
use nexus_model::ExitStatus;
use nexus_model::frames::{ExecRequest, ExecStage, GuestFrame, HostFrame, VERSION};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;

/// Why the guest ended.
#[derive(Debug)]
enum End {
    /// The leader is done, or the host asked.
    Done,
    /// The channel or the kernel failed.
    Failed,
}

/// Serves the host until the leader ends. Returns PID 1's exit code, which only says whether the guest was sound.
#[must_use]
pub fn run(socket: OwnedFd) -> i32 {
    let channel = Channel::new(socket);
    let Ok(child_ends) = signals::take_over() else { return 3 };
    if channel.send(&GuestFrame::Hello { version: VERSION }, &[]).is_err() {
        return 3;
    }
    let mut guest = Guest { channel, running: Vec::new() };
    loop {
        match guest.turn(&child_ends) {
            Ok(()) => {}
            Err(End::Done) => return 0,
            Err(End::Failed) => return 3,
        }
    }
}

struct Running {
    exec: u32,
    pid: i32,
    leader: bool,
}

struct Guest {
    channel: Channel,
    running: Vec<Running>,
}

impl From<ChannelError> for End {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Closed => Self::Done,
            ChannelError::Frame(_) | ChannelError::TooManyDescriptors | ChannelError::Io(_) => Self::Failed,
        }
    }
}

impl Guest {
    fn turn(&mut self, child_ends: &OwnedFd) -> Result<(), End> {
        let mut wait = [PollFd::new(&self.channel, PollFlags::IN), PollFd::new(child_ends, PollFlags::IN)];
        match poll(&mut wait, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(End::Failed),
        }
        let (from_host, from_child) = (wait[0].revents(), wait[1].revents());
        if !from_child.is_empty() {
            // The record only wakes us: signals of the same number merge, so all ended children are asked for.
            let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
            match rustix::io::read(child_ends, &mut record) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return Err(End::Failed),
            }
            self.reap()?;
        }
        if !from_host.is_empty() {
            let (frame, descriptors) = self.channel.receive()?;
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
        }
    }

    fn start(&mut self, request: &ExecRequest, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        let exec = request.exec;
        let outcome = match <[OwnedFd; 3]>::try_from(descriptors) {
            Ok(stdio) => spawn::spawn(request, &stdio),
            Err(_) => Outcome::Failed(ExecStage::Prepare, libc::EBADF),
        };
        let frame = match outcome {
            Outcome::Running(pid, proof) => {
                self.running.push(Running { exec, pid, leader: request.leader });
                self.channel.send(&GuestFrame::Started { exec, proof }, &[])?;
                return Ok(());
            }
            Outcome::ProofFailed(proof) => GuestFrame::ProofFailed { exec, proof },
            Outcome::Failed(stage, errno) => GuestFrame::ExecFailed { exec, errno, stage },
        };
        self.channel.send(&frame, &[])?;
        if request.leader { Err(End::Done) } else { Ok(()) }
    }

    /// Signals one command with its process group, or everything inside but PID 1.
    fn signal(&self, exec: Option<u32>, signal: u8) -> Result<(), End> {
        let target = match exec {
            None => -1,
            Some(exec) => match self.running.iter().find(|running| running.exec == exec) {
                Some(running) => -running.pid,
                // It has just ended; its end is on the way to the host.
                None => return Ok(()),
            },
        };
        // SAFETY: kill(2) with plain numbers; inside this pid namespace there is only what the host started.
        if unsafe { libc::kill(target, i32::from(signal)) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ESRCH) => Ok(()),
            _ => Err(End::Failed),
        }
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
        self.channel.send(&frame, &[])?;
        if ended.leader { Err(End::Done) } else { Ok(()) }
    }
}
