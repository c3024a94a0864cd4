//! The process of a supervisor that does not answer.
//!
//! ```text
//!  lock of the sandbox ─F_GETLK─▶ number ─▶ pidfd ─F_GETLK─▶ the same number: the pidfd is that of the supervisor
//! ```

use crate::failure::Failure;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;

/// A supervisor that lives, in this pid namespace.
pub struct SupervisorProcess {
    pid: Pid,
    process: OwnedFd,
}

impl SupervisorProcess {
    /// Finds the process that `holder` names as that of the lock; `None` if it has ended, or is one of another pid
    /// namespace.
    pub fn find(holder: impl Fn() -> io::Result<Option<Pid>>) -> io::Result<Option<Self>> {
        let Some(pid) = holder()? else { return Ok(None) };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // The lock goes with its process, so the number was not given to another one in between.
        Ok((holder()? == Some(pid)).then_some(Self { pid, process }))
    }

    /// Reports whether a signal or a debugger stopped the process.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()));
        // The name before the state may hold anything, also a parenthesis.
        let state = stat.ok().and_then(|stat| stat.rsplit_once(')')?.1.trim_start().chars().next());
        matches!(state, Some('T' | 't'))
    }

    /// Lets a process that a signal stopped go on.
    pub fn resume(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.process, Signal::CONT)?)
    }
}

/// Describes a supervisor that has not answered for some time, and what to do about it.
pub struct Silent<'a> {
    /// The id of the sandbox.
    pub id: &'a str,
    /// The process id of the supervisor.
    pub pid: u32,
    /// The seconds without an answer.
    pub seconds: u64,
    /// True if the process is known to be stopped.
    pub is_stopped: bool,
    /// True if the client asked for an exec.
    pub is_exec: bool,
}

impl Silent<'_> {
    /// Makes the failure that a person sees.
    pub fn failure(&self) -> Failure {
        let Self { id, pid, seconds, .. } = self;
        let (why, hint) = if self.is_stopped {
            (", because it is stopped", format!("kill -CONT {pid} lets it go on, and nexus stop {id} ends the sandbox"))
        } else {
            let hint = format!(
                "It may be busy with the changes of the run: try it again later. If it never answers, kill -KILL {pid} ends \
                 it with everything inside, and its changes wait: nexus changes list"
            );
            ("", hint)
        };
        let nothing = if self.is_exec { "; nothing was run" } else { "" };
        let message = format!(
            "the supervisor of the sandbox {id} (process {pid}) has not answered for {seconds} s{why}{nothing}"
        );
        Failure::refused("supervisor", message, hint)
    }
}
