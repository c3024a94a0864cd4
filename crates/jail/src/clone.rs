//! clone3(2) without an exec, for a single-threaded launcher.
//!
//! ```text
//!  launcher ──clone3(namespaces, CLONE_PIDFD)──▶ child: goes on in the same program, as PID 1 of its namespaces
//!      │                                            (no exec: an exec of a dynamic program costs as much as all mounts)
//!      └── pidfd: wait, kill
//! ```

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use std::io;

/// From linux/sched.h; the constant of libc has a type that is too small for it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// A process made by [`clone_process`].
#[derive(Debug)]
pub struct Child {
    /// Its number here.
    pub pid: Pid,
    /// Refers to it even when the number is used again.
    pub pidfd: OwnedFd,
}

impl Child {
    /// Kills it. A pid namespace dies with its first process.
    pub fn kill(&self) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            // Already gone, which is what was wanted.
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it has ended. The status is there only for the parent; who was handed a pidfd just learns the end.
    pub fn wait(&self) -> io::Result<Option<WaitIdStatus>> {
        // Also for a child that sends no signal at its end.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::from_bits_retain(libc::__WALL.cast_unsigned());
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), ended) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CHILD) => return self.wait_for_end(),
                other => return Ok(other?),
            }
        }
    }

    fn wait_for_end(&self) -> io::Result<Option<WaitIdStatus>> {
        loop {
            let mut wait = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match rustix::event::poll(&mut wait, None) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Side of the clone on which the caller is.
pub enum Cloned {
    /// The new process.
    Child,
    /// The old one.
    Parent(Child),
}

/// Splits this process in two. The caller must have one thread, else the child may find locks held for ever.
pub fn clone_process(namespaces: u64, cgroup: Option<&OwnedFd>) -> io::Result<Cloned> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: clone_args is plain data for which zero is "not used" in every field.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces | libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_fd().as_raw_fd() as u64;
    }
    // SAFETY: no stack and no CLONE_VM are given, so this is a fork: the child has its own copy of all memory. The
    // launcher has one thread (checked at the start of every launch), so no lock is held by somebody else.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Cloned::Child),
        pid => {
            // SAFETY: the kernel wrote a new descriptor of ours there (CLONE_PIDFD).
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = Pid::from_raw(pid as i32).ok_or_else(|| io::Error::other("clone3 gave no pid"))?;
            Ok(Cloned::Parent(Child { pid, pidfd }))
        }
    }
}

/// Adopts a process that another thread or process cloned.
pub fn adopt(pid: Pid) -> io::Result<Child> {
    Ok(Child { pid, pidfd: rustix::process::pidfd_open(pid, PidfdFlags::empty())? })
}

/// Ends this process at once: no destructors, no output buffers; those belong to the parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) does not return and touches no memory of ours.
    unsafe { libc::_exit(code) }
}
