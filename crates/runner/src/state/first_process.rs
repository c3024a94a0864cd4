//! The first process of a sandbox: in the record of its run, and in `runs/RUN.left` once it was killed and not waited for.
//!
//! ```text
//!  run: sandbox cloned ─▶ noted in runs/RUN
//!       killed, not gone ─▶ runs/RUN.left ─▶ exit ─▶ a later command: there? ─┬─ yes, or not to be known: passed over
//!                                                                            └─ no: parked, removed ─▶ file removed
//! ```
//! The process is known by its number, the time of its start and the pid namespace in which both count, never by its name
//! or user: those depend on settings, and /proc may hide them (`hidepid=`). A number that is taken whose start cannot be
//! read counts as the sandbox. Of another pid namespace or machine nothing is known: a container may have a boot id of its
//! own, and another machine a home that is shared.

use crate::state::container::ContainerId;
use crate::state::note::boot_id;
use nexus_layer::disk::state_file;
use nexus_model::RunId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The first process of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstProcess {
    pid: i32,
    /// Time of its start in clock ticks since the boot (proc_pid_stat(5), field 22); `None` where /proc hides it.
    started: Option<u64>,
    boot: Option<String>,
    /// The container in which the number counts.
    #[serde(flatten)]
    container: ContainerId,
}

/// The answer to whether a sandbox is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is gone.
    Gone,
    /// It is there, or another process that looks the same.
    There,
    /// It started in another pid namespace or on another machine, so that it is not known here.
    Unknown,
}

impl FirstProcess {
    /// Describes the process of a pidfd; `None` if it has ended, or the descriptor is none of a process.
    pub fn of(process: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
        match info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()) {
            None | Some(-1) => Ok(None),
            Some(pid) if pid > 0 => {
                Ok(Some(Self { pid, started: started(pid)?, boot: boot_id(), container: ContainerId::here()? }))
            }
            Some(_) => Err(io::Error::other("the sandbox has no process number here")),
        }
    }

    /// Writes it to the disk, beside the record of the run.
    pub fn write(&self, runs: &Path, run: RunId) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let path = place(runs, run);
        state_file::replace(&path, &text, true).map_err(|error| {
            // On a full disk the new file has a name and no content. A later command removes it where this fails.
            remove_file(&unfinished(&path)).map_or_else(|second| second, |()| error)
        })
    }

    /// Reports whether the process exists, and waits until `until` for its end.
    pub fn presence(&self, until: Instant) -> io::Result<Presence> {
        if self.container != ContainerId::here()? {
            return Ok(Presence::Unknown);
        }
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(Presence::Unknown) };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            // With the two others the number is that of a thread now.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(Presence::Gone),
            other => other?,
        };
        let is_same = match (self.started, started(self.pid)?) {
            (Some(then), Some(now)) => then == now,
            // A machine that was started again has the number for another process.
            _ => self.boot.is_none() || boot_id().is_none_or(|now| self.boot == Some(now)),
        };
        if !is_same {
            return Ok(Presence::Gone);
        }
        ends_until(process.as_fd(), until).map(|ends| if ends { Presence::Gone } else { Presence::There })
    }
}

/// Waits until `until` for the end of the process of a pidfd, also where signals come meanwhile. Reports whether it ended.
pub fn ends_until(process: BorrowedFd<'_>, until: Instant) -> io::Result<bool> {
    loop {
        let wait = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: i64::from(wait.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(process, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            Ok(ready) => return Ok(ready > 0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reports whether the sandbox that a run left is there; `None` where the run left none.
pub fn presence(runs: &Path, run: RunId) -> io::Result<Option<Presence>> {
    let path = place(runs, run);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let text = match state_file::read(&path, state_file::MAX_NOTE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(named)?,
    };
    let left: FirstProcess = serde_json::from_slice(&text).map_err(|error| named(error.into()))?;
    left.presence(Instant::now()).map(Some).map_err(named)
}

/// Removes the file of a run; without one it does nothing.
pub fn remove(runs: &Path, run: RunId) -> io::Result<()> {
    let path = place(runs, run);
    remove_file(&unfinished(&path))?;
    remove_file(&path)
}

fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns the name that the file has while it is written (see [`state_file::replace`]).
fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("left.new")
}

/// Returns the path of the file of a run.
pub fn place(runs: &Path, run: RunId) -> PathBuf {
    runs.join(format!("{run}.left"))
}

/// Returns the time of a process's start; `None` where /proc does not show the process. One that is only waited for has
/// freed all it had, and counts as started never.
fn started(pid: i32) -> io::Result<Option<u64>> {
    let text = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => return Ok(None),
        other => other?,
    };
    Ok(start_of(&text))
}

/// Takes the start out of a line of proc_pid_stat(5): the name in parentheses may hold anything.
fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?.trim().parse().ok()?;
    Some(if state == "Z" || state == "X" { u64::MAX } else { start })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunId {
        RunId::new()
    }

    fn of_child(child: &std::process::Child) -> FirstProcess {
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        FirstProcess::of(pidfd_open(pid, PidfdFlags::empty()).unwrap().as_fd()).unwrap().unwrap()
    }

    #[test]
    fn a_process_that_was_left_is_known_until_it_has_ended() {
        let runs = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (left, run) = (of_child(&child), run());
        assert_eq!(presence(runs.path(), run).unwrap(), None, "nothing was left");
        left.write(runs.path(), run).unwrap();
        assert_eq!(presence(runs.path(), run).unwrap(), Some(Presence::There));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(presence(runs.path(), run).unwrap(), Some(Presence::Gone));
        remove(runs.path(), run).unwrap();
        remove(runs.path(), run).unwrap();
    }

    #[test]
    fn only_the_same_process_of_the_same_boot_counts() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let left = of_child(&child);
        let alive = |left: &FirstProcess| left.presence(Instant::now()).unwrap() == Presence::There;
        let hidden = FirstProcess { started: None, ..left.clone() };
        assert!(alive(&left));
        assert!(
            !alive(&FirstProcess { started: left.started.map(|start| start + 1), ..left.clone() }),
            "another process"
        );
        assert!(!alive(&FirstProcess { boot: Some("another".to_owned()), ..hidden.clone() }), "another boot");
        assert!(alive(&hidden) && alive(&FirstProcess { boot: None, ..hidden.clone() }), "its start was hidden");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!alive(&left) && !alive(&hidden));
    }

    #[test]
    fn another_boot_id_alone_is_no_sign_of_an_end() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let left = FirstProcess { boot: Some("another".to_owned()), ..of_child(&child) };
        let presence = |left: FirstProcess| left.presence(Instant::now()).unwrap();
        let of = |container| presence(FirstProcess { container, ..left.clone() });
        let here = left.container.clone();
        let namespace = here.namespace + 1;
        assert_eq!(of(ContainerId { namespace, ..here.clone() }), Presence::Unknown, "a container");
        assert_eq!(of(ContainerId { machine: Some("b".to_owned()), ..here }), Presence::Unknown, "a machine");
        assert_eq!(presence(left.clone()), Presence::There, "the process is the same one");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(presence(left), Presence::Gone);
    }

    #[test]
    fn a_start_is_read_behind_any_name() {
        let stat = |state: &str| format!("7 (a) b ) {state} 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n");
        assert_eq!(start_of(&stat("D")), Some(4711));
        assert_eq!(start_of(&stat("Z")), Some(u64::MAX));
        assert_eq!(start_of("nonsense"), None);
    }

    #[test]
    fn what_a_kill_left_of_a_file_goes_with_it() {
        let runs = tempfile::tempdir().unwrap();
        let run = run();
        std::fs::write(runs.path().join(format!("{run}.left.new")), "").unwrap();
        remove(runs.path(), run).unwrap();
        assert_eq!(std::fs::read_dir(runs.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_sign_of_an_end() {
        let runs = tempfile::tempdir().unwrap();
        let run = run();
        std::fs::write(place(runs.path(), run), "{").unwrap();
        assert!(presence(runs.path(), run).is_err());
    }
}
