//! The processes of a sandbox whose first process does not die: one that is frozen, or that sleeps in the kernel, cannot
//! take its SIGKILL, and so does not bring the others down with it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// Time for the processes that are started while they are killed.
const KILLED_WITHIN: Duration = Duration::from_millis(100);

/// One process, as proc_pid_stat(5) shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: i32,
    started: u64,
    is_dead: bool,
}

/// Kills every process below `first`, the first process of a pid namespace: what loses its parent there gets that one as
/// its parent, so that none is anywhere else. `process` is the pidfd of `first`: once that has ended, its number may be that
/// of another process.
pub fn kill_below(first: Pid, process: BorrowedFd<'_>) -> io::Result<()> {
    let deadline = Instant::now() + KILLED_WITHIN;
    let mut killed = HashSet::new();
    loop {
        let all = list()?;
        // Asked after the list: a process that has not ended had its number all the time.
        if has_ended(process)? {
            return Ok(());
        }
        let alive = below(first.as_raw_pid(), &all).into_iter().filter(|(_, process)| !process.is_dead);
        let fresh: Vec<_> = alive.filter(|(pid, process)| killed.insert((*pid, process.started))).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        for (pid, process) in fresh {
            kill(pid, process.started);
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn has_ended(process: BorrowedFd<'_>) -> io::Result<bool> {
    let mut wait = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut wait, Some(&Timespec::default())))? > 0)
}

/// Kills the process with this number that started then.
fn kill(pid: i32, started: u64) {
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
    // The number may be that of another process by now: the descriptor decides.
    if read(pid).is_some_and(|now| now.started == started) {
        // One that is not to be killed is not to be killed by any later command either.
        pidfd_send_signal(&process, Signal::KILL).ok();
    }
}

fn list() -> io::Result<HashMap<i32, Process>> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end between the two reads.
        all.extend(read(pid).map(|process| (pid, process)));
    }
    Ok(all)
}

fn read(pid: i32) -> Option<Process> {
    process_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Takes a process out of its line: the name in parentheses may hold anything.
fn process_of(stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { parent, started, is_dead: matches!(state, "Z" | "X") })
}

/// Returns the processes whose parents lead to `first`, without that one.
fn below(first: i32, all: &HashMap<i32, Process>) -> Vec<(i32, Process)> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, process) in all {
        children.entry(process.parent).or_default().push(*pid);
    }
    let (mut found, mut todo) = (Vec::new(), vec![first]);
    while let Some(parent) = todo.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            found.extend(all.get(&pid).map(|process| (pid, *process)));
            todo.push(pid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn a_process_is_read_behind_any_name() {
        let stat = "7 (a) b ) S 3 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        assert_eq!(process_of(stat), Some(Process { parent: 3, started: 4711, is_dead: false }));
        assert_eq!(process_of("nonsense"), None);
    }

    #[test]
    fn only_what_descends_from_the_first_process_is_below_it() {
        let of = |parent| Process { parent, started: 1, is_dead: false };
        let all = HashMap::from([(1, of(0)), (2, of(1)), (10, of(1)), (11, of(10)), (12, of(11)), (13, of(13))]);
        let mut found: Vec<_> = below(10, &all).into_iter().map(|(pid, _)| pid).collect();
        found.sort_unstable();
        assert_eq!(found, [11, 12]);
        assert_eq!(below(13, &all).len(), 1, "a loop ends");
    }

    #[test]
    fn what_is_below_a_process_is_killed_and_nothing_else() {
        let script = "sleep 600 & echo; wait";
        let mut child =
            std::process::Command::new("sh").args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        kill_below(Pid::from_child(&child), process.as_fd()).unwrap();
        assert!(child.wait().unwrap().code().is_some(), "the process itself was killed");
    }

    #[test]
    fn nothing_below_another_process_with_the_number_is_killed() {
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&gone), PidfdFlags::empty()).unwrap();
        gone.wait().unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        // As if this process had the number of the one that ended.
        kill_below(rustix::process::getpid(), process.as_fd()).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
