//! The process of a supervisor that does not answer.
//!
//! ```text
//!  lock of the sandbox ─F_GETLK─▶ number ─▶ pidfd ─F_GETLK─▶ the same number: the pidfd is that of the supervisor
//! ```

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
