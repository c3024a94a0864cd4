//! Leftovers of this driver on the host: the first processes of sandboxes, found by their label, and control groups.

use crate::members;
use nexus_driver::{DestroyError, Found, InventoryError};
use nexus_jail::cgroup::Hierarchies;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The users whose processes may be a sandbox of ours, inside and while it is being made.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    /// User who starts sandboxes here.
    pub uid: u32,
    /// The host ids of root's sandboxes.
    pub first_inner: u32,
}

impl Owners {
    /// Reports whether a process with these ids may be ours. Any process can give itself a name, and be the first of a pid
    /// namespace; a process of another user that does so can neither be a sandbox of ours nor stop a recovery.
    fn may_own(self, ids: &[u32]) -> bool {
        let is_inner = |id: u32| self.uid == 0 && id >= self.first_inner;
        !ids.is_empty() && ids.iter().all(|id| *id == self.uid || is_inner(*id))
    }
}

/// Beginning of the name of PID 1 of every sandbox in process lists.
const LABEL: &str = "nx-";

/// Lists them as `process MARK PID` and `cgroup PATH`.
pub fn list(owners: Owners) -> Result<Vec<Found>, InventoryError> {
    let mut found = Vec::new();
    for (pid, label) in marked(owners)? {
        let run = label.strip_prefix(LABEL).unwrap_or_default().to_owned();
        found.push(Found { what: format!("process {label} {pid}"), run });
    }
    for base in bases(owners.uid) {
        let entries = match std::fs::read_dir(&base) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|source| InventoryError { place: base.clone(), source })?,
        };
        for entry in entries {
            let entry = entry.map_err(|source| InventoryError { place: base.clone(), source })?;
            let run = entry.file_name().to_str().and_then(|name| name.parse::<nexus_model::RunId>().ok());
            let what = || format!("cgroup {}", entry.path().display());
            found.extend(run.map(|run| Found { what: what(), run: run.to_string() }));
        }
    }
    Ok(found)
}

/// Ends the sandbox of this label, and waits until it is gone.
pub fn kill_marked(owners: Owners, label: &str) -> Result<(), DestroyError> {
    let failed = |source: io::Error| DestroyError::Left { what: format!("the sandbox {label}"), source };
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let processes = marked(owners).map_err(|error| failed(error.source))?;
        let mut left = processes.iter().filter(|(_, name)| name == label).peekable();
        if left.peek().is_none() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        for (pid, _) in left {
            let Some(process) = open_if(*pid, |status| label_of(status, owners) == Some(label)) else { continue };
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A sandbox that is to be ended.
#[derive(Debug)]
pub struct Target {
    /// Name of its first process.
    pub label: String,
    /// Users that the process may have.
    pub owners: Owners,
}

/// Kills these sandboxes and waits until all of them are gone, at most `within` for all of them together. Returns the
/// first process of each that is not, with its place in `targets`; the other processes of that one are killed too.
pub fn end(targets: &[Target], within: Duration) -> Result<Vec<(usize, OwnedFd)>, InventoryError> {
    let mut left = Vec::new();
    for (pid, status) in processes()? {
        let Some(index) = target_of(&status, targets) else { continue };
        let Some(process) = open_if(pid, |status| target_of(status, targets) == Some(index)) else { continue };
        // A process that cannot be killed is there, which the wait finds out.
        pidfd_send_signal(&process, Signal::KILL).ok();
        left.push((index, pid, process));
    }
    let deadline = Instant::now() + within;
    while !left.is_empty() {
        let wait = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut list: Vec<_> = left.iter().map(|(_, _, process)| PollFd::new(process, PollFlags::IN)).collect();
        match poll(&mut list, Some(&timeout)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(InventoryError { place: PathBuf::from("/proc"), source: error.into() }),
        }
        let mut ended = list.iter().map(|process| !process.revents().is_empty()).collect::<Vec<_>>().into_iter();
        left.retain(|_| !ended.next().unwrap_or_default());
    }
    for (_, first, process) in &left {
        // What starts processes faster than they are killed is there, and is said to be.
        members::kill_below(*first, process.as_fd()).ok();
    }
    Ok(left.into_iter().map(|(index, _, process)| (index, process)).collect())
}

/// Opens the process with this number if its `status` is right once it is open: the number may be that of another process
/// by now, and the descriptor decides.
fn open_if(pid: Pid, is_right: impl FnOnce(&str) -> bool) -> Option<OwnedFd> {
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    is_right(&status).then_some(process)
}

fn target_of(status: &str, targets: &[Target]) -> Option<usize> {
    targets.iter().position(|target| label_of(status, target.owners) == Some(&target.label))
}

/// Returns the processes whose name is a label and that are the first of a pid namespace below ours: a name alone
/// proves nothing, since any process can give itself one.
fn marked(owners: Owners) -> Result<Vec<(Pid, String)>, InventoryError> {
    let label = |(pid, status): (Pid, String)| Some((pid, label_of(&status, owners)?.to_owned()));
    Ok(processes()?.into_iter().filter_map(label).collect())
}

/// Returns every process that /proc shows, with its `status`, whose name begins as a label does.
fn processes() -> Result<Vec<(Pid, String)>, InventoryError> {
    let proc = PathBuf::from("/proc");
    let failed = |source| InventoryError { place: PathBuf::from("/proc"), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&proc).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        // A process may end between the two reads.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        if status.strip_prefix("Name:\t").is_some_and(|name| name.starts_with(LABEL)) {
            found.push((pid, status));
        }
    }
    Ok(found)
}

fn label_of(status: &str, owners: Owners) -> Option<&str> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let label = field("Name:")?;
    let ids: Vec<u32> = field("Uid:")?.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
    if !owners.may_own(&ids) {
        return None;
    }
    let inner = field("NSpid:")?.split_ascii_whitespace().last()?;
    (label.starts_with(LABEL) && inner == "1" && !field("State:")?.starts_with('Z')).then_some(label)
}

fn bases(uid: u32) -> Vec<PathBuf> {
    let Ok(hierarchies) = Hierarchies::read() else { return Vec::new() };
    let mounts = hierarchies.v2.into_iter().chain(hierarchies.v1.into_iter().map(|(_, path)| path));
    let below = |mount: PathBuf| {
        let shared = mount.join(Path::new("nexus"));
        if uid == 0 { shared } else { shared.join(uid.to_string()) }
    };
    mounts.map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_process_of_an_inner_namespace_counts() {
        let status = |name: &str, ns: &str, state: &str| of(name, ns, state, 1000);
        assert_eq!(label_of(&status("nx-0123456789ab", "77\t1", "S (sleeping)"), USER), Some("nx-0123456789ab"));
        assert_eq!(label_of(&status("nx-0123456789ab", "77", "S (sleeping)"), USER), None);
        assert_eq!(label_of(&status("nx-0123456789ab", "77\t2", "S (sleeping)"), USER), None);
        assert_eq!(label_of(&status("nx-0123456789ab", "77\t1", "Z (zombie)"), USER), None);
        assert_eq!(label_of(&status("bash", "77\t1", "S (sleeping)"), USER), None);
    }

    const USER: Owners = Owners { uid: 1000, first_inner: 1_000_000_000 };

    fn of(name: &str, ns: &str, state: &str, uid: u32) -> String {
        format!("Name:\t{name}\nState:\t{state}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{ns}\n")
    }

    #[test]
    fn a_process_of_another_user_is_no_sandbox_of_ours() {
        let label = |uid, owners| label_of(&of("nx-0123456789ab", "77\t1", "S (sleeping)", uid), owners).is_some();
        let root = Owners { uid: 0, ..USER };
        assert!(label(1000, USER) && !label(1001, USER) && !label(0, USER) && !label(1_000_000_000, USER));
        assert!(label(0, root) && label(1_000_000_007, root) && !label(1000, root));
        let mixed = "Name:\tnx-0123456789ab\nState:\tS\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t7\t1\n";
        assert_eq!(label_of(mixed, USER), None);
        assert_eq!(label_of("Name:\tnx-0123456789ab\nState:\tS\nNSpid:\t7\t1\n", USER), None);
    }

    #[test]
    fn a_number_that_another_process_took_is_not_opened() {
        let child = std::process::Command::new("sleep").arg("600").spawn();
        let mut child = child.unwrap();
        let pid = Pid::from_child(&child);
        assert!(open_if(pid, |status| status.starts_with("Name:")).is_some());
        assert!(open_if(pid, |status| label_of(status, USER).is_some()).is_none(), "not a sandbox any more");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(open_if(pid, |_| true).is_none(), "it has ended");
    }

    #[test]
    fn killing_what_is_not_there_is_fine() {
        assert!(kill_marked(USER, "nx-no-such-run").is_ok());
    }
}
