//! The first process of a killed sandbox that its run did not wait for: `runs/RUN.left`, beside the record.
//!
//! ```text
//!  run: sandbox killed, not gone ─▶ runs/RUN.left ─▶ exit ─▶ a later command: there? ─┬─ yes, or not to be known: passed over
//!                                                                                    └─ no: parked, removed ─▶ file removed
//! ```
//! The process is known by its number, the time of its start and the pid namespace in which both count, never by its name
//! or user: those depend on settings, and /proc may hide them (`hidepid=`). A number that is taken whose start cannot be
//! read counts as the sandbox, and so does one of another pid namespace.

use crate::state::note::boot_id;
use nexus_facility::state_file;
use nexus_model::RunId;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first process of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pid: i32,
    /// Time of its start in clock ticks since the boot (proc_pid_stat(5), field 22); `None` where /proc hides it.
    started: Option<u64>,
    /// Inode of the pid namespace in which the number counts.
    namespace: u64,
    boot: Option<String>,
}

impl Left {
    /// Describes the process of a pidfd.
    pub fn of(process: BorrowedFd<'_>) -> io::Result<Self> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        let pid =
            pid.filter(|pid| *pid > 0).ok_or_else(|| io::Error::other("the sandbox has no process number here"))?;
        Ok(Self { pid, started: started(pid)?, namespace: namespace()?, boot: boot_id() })
    }

    /// Writes it to the disk, beside the record of the run.
    pub fn write(&self, runs: &Path, run: RunId) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        state_file::replace(&place(runs, run), &text, true)
    }

    fn is_alive(&self) -> io::Result<bool> {
        if self.boot.is_some() && self.boot != boot_id() {
            return Ok(false);
        }
        if self.namespace != namespace()? {
            return Ok(true);
        }
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(true) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // With the two others the number is that of a thread now.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(match (self.started, started(self.pid)?) {
                (Some(then), Some(now)) => then == now,
                _ => true,
            }),
        }
    }
}

/// Reports whether the sandbox of a run was left, and is there or may be there.
pub fn is_there(runs: &Path, run: RunId) -> io::Result<bool> {
    let path = place(runs, run);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let text = match state_file::read(&path, state_file::MAX_NOTE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(named)?,
    };
    let left: Left = serde_json::from_slice(&text).map_err(|error| named(error.into()))?;
    left.is_alive().map_err(named)
}

/// Removes the file of a run; without one it does nothing.
pub fn remove(runs: &Path, run: RunId) -> io::Result<()> {
    match std::fs::remove_file(place(runs, run)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn place(runs: &Path, run: RunId) -> PathBuf {
    runs.join(format!("{run}.left"))
}

fn namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
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
    use rustix::fd::AsFd;

    fn run() -> RunId {
        RunId::new()
    }

    fn of_child(child: &std::process::Child) -> Left {
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        Left::of(pidfd_open(pid, PidfdFlags::empty()).unwrap().as_fd()).unwrap()
    }

    #[test]
    fn a_process_that_was_left_is_known_until_it_has_ended() {
        let runs = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (left, run) = (of_child(&child), run());
        assert!(!is_there(runs.path(), run).unwrap(), "nothing was left");
        left.write(runs.path(), run).unwrap();
        assert!(is_there(runs.path(), run).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_there(runs.path(), run).unwrap());
        remove(runs.path(), run).unwrap();
        remove(runs.path(), run).unwrap();
    }

    #[test]
    fn only_the_same_process_of_the_same_boot_counts() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let left = of_child(&child);
        let alive = |left: &Left| left.is_alive().unwrap();
        assert!(alive(&left));
        assert!(!alive(&Left { started: left.started.map(|start| start + 1), ..left.clone() }), "another process");
        assert!(!alive(&Left { boot: Some("another".to_owned()), ..left.clone() }), "another boot");
        assert!(alive(&Left { started: None, ..left.clone() }), "its start was hidden");
        assert!(alive(&Left { namespace: left.namespace + 1, ..left.clone() }), "another pid namespace");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!alive(&Left { started: None, ..left }));
    }

    #[test]
    fn a_start_is_read_behind_any_name() {
        let stat = |state: &str| format!("7 (a) b ) {state} 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n");
        assert_eq!(start_of(&stat("D")), Some(4711));
        assert_eq!(start_of(&stat("Z")), Some(u64::MAX));
        assert_eq!(start_of("nonsense"), None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_sign_of_an_end() {
        let runs = tempfile::tempdir().unwrap();
        let run = run();
        std::fs::write(place(runs.path(), run), "{").unwrap();
        assert!(is_there(runs.path(), run).is_err());
    }
}
