//! Times until which sandboxes may live, given by the user of a launcher.
//!
//! ```text
//!  keep_until(run, time) ─▶ noted ─start(run)─▶ watched ─┬─ reaped: forgotten
//!                             └─ time over: no start       └─ time over: killed, without a grace
//! ```
//! A daemon that is stopped, or that the network cut off, cannot end its sandboxes when its lease is over. The launcher does
//! it. The clock is CLOCK_BOOTTIME, which goes on while the machine sleeps.

use nexus_model::RunId;
use rustix::event::Timespec;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Reads the clock CLOCK_BOOTTIME of this machine.
pub fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or_default(), now.tv_nsec.try_into().unwrap_or_default())
}

/// Time for which the deadline of a run stays after it is over, so that a start which comes late is refused.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The deadlines of all runs of one user.
#[derive(Debug, Default)]
pub struct Deadlines {
    runs: BTreeMap<RunId, Deadline>,
}

#[derive(Debug)]
struct Deadline {
    until: Duration,
    /// First process of the sandbox, with its number, once it was started.
    process: Option<(i32, OwnedFd)>,
}

impl Deadlines {
    /// Notes the deadline of a run.
    pub fn keep(&mut self, run: RunId, until: Duration, now: Duration) {
        self.runs.retain(|_, one| one.process.is_some() || one.until + KEPT_FOR > now);
        self.runs.entry(run).and_modify(|one| one.until = until).or_insert(Deadline { until, process: None });
    }

    /// Reports whether a sandbox of this run may be started.
    pub fn allows(&self, run: RunId, now: Duration) -> bool {
        self.runs.get(&run).is_none_or(|one| one.until > now)
    }

    /// Watches the sandbox of a run that has a deadline. `process` is its first process as a pidfd.
    pub fn started(&mut self, run: RunId, pid: i32, process: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(one) = self.runs.get_mut(&run) {
            one.process = Some((pid, process.as_fd().try_clone_to_owned()?));
        }
        Ok(())
    }

    /// Forgets the sandbox whose first process was reaped.
    pub fn ended(&mut self, pid: i32) {
        self.runs.retain(|_, one| one.process.as_ref().is_none_or(|(own, _)| *own != pid));
    }

    /// Kills the sandboxes whose time is over.
    pub fn enforce(&mut self, now: Duration) -> io::Result<()> {
        for one in self.runs.values_mut().filter(|one| one.until <= now) {
            let Some((pid, process)) = one.process.take() else { continue };
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => {
                    one.process = Some((pid, process));
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Returns the time until the next sandbox is to be killed.
    pub fn next(&self, now: Duration) -> Option<Timespec> {
        let watched = self.runs.values().filter(|one| one.process.is_some()).map(|one| one.until).min()?;
        let left = watched.saturating_sub(now);
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_run_whose_deadline_is_over_starts_no_sandbox() {
        let mut deadlines = Deadlines::default();
        let (run, other) = (RunId::new(), RunId::new());
        deadlines.keep(run, at(10), at(0));
        assert!(deadlines.allows(run, at(9)) && !deadlines.allows(run, at(10)));
        assert!(deadlines.allows(other, at(1000)), "a run without a deadline has no bound");
        deadlines.keep(run, at(20), at(11));
        assert!(deadlines.allows(run, at(11)), "a later time replaces the earlier one");
        deadlines.keep(other, at(700), at(600));
        assert!(deadlines.runs.contains_key(&run), "a late start is still refused");
        deadlines.keep(other, at(700), at(20 + 601));
        assert!(!deadlines.runs.contains_key(&run), "what is long over is forgotten");
    }

    #[test]
    fn a_sandbox_dies_at_its_deadline_and_another_lives_on() {
        let mut deadlines = Deadlines::default();
        let mut children = Vec::new();
        for until in [at(5), at(50)] {
            let run = RunId::new();
            let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
            deadlines.keep(run, until, at(0));
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
            deadlines.started(run, child.id().cast_signed(), process.as_fd()).unwrap();
            children.push(child);
        }
        assert_eq!(deadlines.next(at(2)).unwrap().tv_sec, 3);
        deadlines.enforce(at(4)).unwrap();
        assert!(children[0].try_wait().unwrap().is_none());
        deadlines.enforce(at(5)).unwrap();
        assert!(!children[0].wait().unwrap().success());
        assert!(children[1].try_wait().unwrap().is_none());
        assert_eq!(deadlines.next(at(6)).unwrap().tv_sec, 44);
        deadlines.ended(children[1].id().cast_signed());
        assert!(deadlines.next(at(6)).is_none());
        children[1].kill().unwrap();
        children[1].wait().unwrap();
    }
}
