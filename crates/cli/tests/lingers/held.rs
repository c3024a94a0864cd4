//! Processes that keep what is of a sandbox: the sandbox itself in the kernel, or its end of the guest's channel.

use crate::support::{Bench, is_root, needs_root, processes_with, random, skip, wait_for, wait_until};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Traces a process, so that the kernel keeps it and its whole pid namespace after its death until this program ends.
const TRACER: &str = r"
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, int(sys.argv[1]), None, None) != 0:
    raise OSError(ctypes.get_errno(), 'PTRACE_SEIZE')
print('up', flush=True)
sys.stdin.read()
";

/// Holds the sandbox of the process with these words in the kernel.
pub struct Held(Child);

impl Held {
    pub fn hold(bench: &Bench, words: &str) -> Self {
        let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let found = || processes_with(words).into_iter().find(|pid| name(*pid) == "sleep\n");
        let pid = wait_for("the command", PATIENCE, found);
        let mut tracer = bench.command_as_root("python3");
        tracer.args(["-c", TRACER, &pid.to_string()]);
        let mut tracer = tracer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        Self(tracer)
    }

    pub fn let_go(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// Reports whether this process may trace the commands of its sandboxes.
pub fn may_trace() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let may = is_root() || matches!(scope.trim(), "" | "0");
    if !may {
        skip::skipped("only root may trace another process here");
    }
    may
}

/// Returns the first process of the sandbox of a process; `None` when that one has ended meanwhile.
pub fn first_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_first = field("NSpid:")?.split_whitespace().last() == Some("1");
    if is_first { Some(pid) } else { first_of(field("PPid:")?.parse().ok().filter(|parent| *parent > 1)?) }
}

/// Returns the letter of the state of a process; `None` when there is none.
pub fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next())
}

pub fn is_dead(pid: u32) -> bool {
    state_of(pid).is_none_or(|state| "ZX".contains(state))
}

/// Returns the freezer of version 1, the only one that keeps a process that was killed.
pub fn freezer() -> Option<PathBuf> {
    let freezer = PathBuf::from("/sys/fs/cgroup/freezer");
    if !needs_root() {
        return None;
    }
    if !freezer.join("cgroup.procs").exists() {
        skip::skipped("only a freezer of version 1 keeps a process that was killed");
        return None;
    }
    Some(freezer)
}

/// A process that is frozen with its own control group.
pub struct Frozen {
    group: PathBuf,
    pid: u32,
}

impl Frozen {
    pub fn freeze(freezer: &Path, pid: u32) -> Self {
        Self::freeze_if_there(freezer, pid).unwrap()
    }

    /// The same for a process that may have ended.
    pub fn freeze_if_there(freezer: &Path, pid: u32) -> Option<Self> {
        let group = freezer.join(format!("nexus-test-{}", random()));
        std::fs::create_dir(&group).unwrap();
        std::fs::write(group.join("freezer.state"), "FROZEN").unwrap();
        if std::fs::write(group.join("cgroup.procs"), pid.to_string()).is_ok() {
            return Some(Self { group, pid });
        }
        std::fs::remove_dir(&group).unwrap();
        None
    }

    /// Lets a process that was killed end.
    pub fn thaw(self) {
        std::fs::write(self.group.join("freezer.state"), "THAWED").unwrap();
        wait_until("the end", PATIENCE, || !Path::new(&format!("/proc/{}", self.pid)).exists());
        wait_until("the group's end", PATIENCE, || std::fs::remove_dir(&self.group).is_ok());
    }
}

/// Takes every socket of a process and keeps it, with the process stopped.
pub const TAKER: &str = r"
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
os.kill(pid, signal.SIGSTOP)
pidfd = os.pidfd_open(pid)
taken = [libc.syscall(438, pidfd, int(fd), 0) for fd in os.listdir(f'/proc/{pid}/fd')
         if os.readlink(f'/proc/{pid}/fd/{fd}').startswith('socket:')]
assert taken and all(fd >= 0 for fd in taken), taken
print('up', flush=True)
sys.stdin.read()
";
