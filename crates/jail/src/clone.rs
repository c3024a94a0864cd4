//! clone3(2) without an exec, for a single-threaded launcher.
//!
//! ```text
//!  launcher ──clone3(namespaces, CLONE_PIDFD)──▶ child: goes on in the same program, as PID 1 of its namespaces
//!      │                                            (no exec: an exec of a dynamic program costs as much as all mounts)
//!      └── pidfd: wait, kill
//! ```

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use std::io;
use std::time::{Duration, Instant};

/// From linux/sched.h; the constant of libc has a type that is too small for it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Time that the kernel has to take a process apart that was killed while it was set up. Nothing hostile has run in it, but
/// it may be asleep in a call to a file system that does not answer, or be in a control group that is frozen.
pub const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Error: a process was killed, and the kernel has not taken it apart in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the process {pid} was killed and the kernel still takes it apart: it runs nothing, and the next command of nexus clears up \
     what it holds"
)]
pub struct NotGone {
    /// Its number here.
    pub pid: i32,
}

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

    /// Kills it and waits for its end, at most [`GONE_WITHIN`]. The error of one that is not gone then holds a [`NotGone`].
    pub fn end(&self) -> io::Result<()> {
        self.kill()?;
        if self.wait_until(Instant::now() + GONE_WITHIN)? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, NotGone { pid: self.pid.as_raw_nonzero().get() }))
    }

    /// Waits for its end until `until` at most, and collects it. Reports whether it has ended.
    pub fn wait_until(&self, until: Instant) -> io::Result<bool> {
        if !readable_until(&self.pidfd, until)? {
            return Ok(false);
        }
        // The pidfd of a process is readable once it has ended, so that this does not wait.
        self.wait().map(|_| true)
    }

    /// Waits until it has ended, without a bound: for the first process of a sandbox whose end a caller waits for on
    /// purpose, and says so. The status is there only for the parent; who was handed a pidfd just learns the end.
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

/// Waits until `until` for a descriptor to have something to read, or its other end to be closed. Reports whether it has.
pub(crate) fn readable_until(descriptor: &OwnedFd, until: Instant) -> io::Result<bool> {
    loop {
        let wait = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: i64::from(wait.subsec_nanos()) };
        match rustix::event::poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(ready) => return Ok(ready > 0),
            Err(error) => return Err(error.into()),
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
    // launcher has one thread (checked at the start of every launch), so no other thread holds a lock.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Returns the only child of a process, once it has one.
    fn child_of(pid: i32) -> i32 {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            match text.split_whitespace().next() {
                Some(child) => return child.parse().unwrap(),
                None => assert!(Instant::now() < deadline, "no child of {pid}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_wait_for_a_process_ends_at_its_bound() {
        let mut running = Command::new("sleep").arg("600").spawn().unwrap();
        let child = adopt(Pid::from_raw(running.id().cast_signed()).unwrap()).unwrap();
        let began = Instant::now();
        assert!(!child.wait_until(began + Duration::from_millis(50)).unwrap());
        assert!(began.elapsed() < Duration::from_secs(10));
        child.end().unwrap();
        // Collected already, or not: the descriptor keeps the end.
        assert!(child.wait_until(Instant::now()).unwrap());
        running.wait().unwrap_or_default();
    }

    #[test]
    fn a_killed_process_that_the_kernel_keeps_holds_up_no_launcher() {
        let mut unshare = Command::new("unshare");
        unshare.args(["-Upf", "sh", "-c", "sleep 600 & wait"]).stdin(Stdio::null());
        let mut outside = unshare.spawn().unwrap();
        let first = child_of(outside.id().cast_signed());
        let inner = child_of(first);
        // SAFETY: ptrace(2) with numbers only; the tracer is this thread, which collects the process below.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, inner, 0, 0) };
        let child = adopt(Pid::from_raw(first).unwrap()).unwrap();
        if seized != 0 {
            crate::skip::skipped("only root may trace another process here");
            child.end().unwrap();
        } else {
            let began = Instant::now();
            let error = child.end().unwrap_err();
            assert!(began.elapsed() >= GONE_WITHIN && began.elapsed() < GONE_WITHIN * 10);
            assert!(error.to_string().contains(&format!("the process {first} was killed")), "{error}");
            let mut status = 0;
            // SAFETY: the status is memory of ours.
            assert_eq!(unsafe { libc::waitpid(inner, &raw mut status, libc::__WALL) }, inner);
            assert!(child.wait_until(Instant::now() + Duration::from_secs(20)).unwrap());
        }
        outside.wait().unwrap();
    }
}
