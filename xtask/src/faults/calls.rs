//! The system calls of a command as `strace` records them, and the faults that can be injected there.

use crate::random::Random;
use std::collections::BTreeMap;

/// Calls that are left alone: they cannot fail on a sound kernel, they belong to the program's own start and end, or a
/// failure that does not do what the call does tells nothing (the kernel closes a descriptor whatever close(2) answers).
const LEFT_ALONE: &[&str] = &[
    "arch_prctl",
    "brk",
    "close",
    "clone",
    "clone3",
    "execve",
    "exit",
    "exit_group",
    "futex",
    "getcwd",
    "getegid",
    "geteuid",
    "getgid",
    "getpid",
    "getrandom",
    "gettid",
    "getuid",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_yield",
    "set_robust_list",
    "set_tid_address",
    "setfsgid",
    "setfsuid",
    "sigaltstack",
    "uname",
];

/// The calls that change a directory, an attribute or the disk: they fail again and again where a disk is broken.
const LASTING: &[&str] = &[
    "fchmodat",
    "fchownat",
    "fdatasync",
    "fsync",
    "link",
    "linkat",
    "lremovexattr",
    "lsetxattr",
    "mkdirat",
    "openat2",
    "rename",
    "renameat",
    "renameat2",
    "symlinkat",
    "unlink",
    "unlinkat",
    "utimensat",
    "write",
];

/// The numbers of calls of one command, by name.
pub type Calls = BTreeMap<String, u32>;

/// Counts the calls of an `strace -qq` record without those that are left alone.
pub fn count(record: &str) -> Calls {
    let mut calls = Calls::new();
    for line in record.lines() {
        let name: &str = line.split('(').next().unwrap_or_default();
        let known = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if known && !LEFT_ALONE.contains(&name) {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// The way in which a call goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Harm {
    /// It fails once, with this error.
    Error(String),
    /// It fails from then on, with this error.
    Lasting(String),
    /// The process is killed there.
    Kill,
}

/// One fault at one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name of the call.
    pub call: String,
    /// Number of the call among those of its name, from 1.
    pub number: u32,
    /// Harm that is done there.
    pub harm: Harm,
}

impl Fault {
    /// Returns the fault as an expression of `strace -e`.
    pub fn inject(&self) -> String {
        let Self { call, number, harm } = self;
        match harm {
            Harm::Error(error) => format!("inject={call}:error={error}:when={number}"),
            Harm::Lasting(error) => format!("inject={call}:error={error}:when={number}+"),
            Harm::Kill => format!("inject={call}:signal=KILL:when={number}"),
        }
    }
}

/// Every fault at the calls of one command.
pub fn every(calls: &Calls, errors: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (call, count) in calls {
        for number in 1..=*count {
            let fault = |harm| Fault { call: call.clone(), number, harm };
            faults.push(fault(Harm::Kill));
            for error in errors {
                faults.push(fault(Harm::Error(error.clone())));
                if LASTING.contains(&call.as_str()) && error != "EINTR" {
                    faults.push(fault(Harm::Lasting(error.clone())));
                }
            }
        }
    }
    faults
}

/// Chooses a fault: each name of a call is as likely as the others, so that rare calls are met too.
pub fn choose(calls: &Calls, errors: &[String], random: &mut Random) -> Option<Fault> {
    let (call, count) = calls.iter().nth(random.index(calls.len()))?;
    let number = 1 + random.below(u64::from(*count)) as u32;
    let error = errors.get(random.index(errors.len()))?.clone();
    let lasts = LASTING.contains(&call.as_str()) && error != "EINTR";
    let harm = match random.below(4) {
        0 => Harm::Kill,
        1 if lasts => Harm::Lasting(error),
        _ => Harm::Error(error),
    };
    Some(Fault { call: call.clone(), number, harm })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "execve(\"/n\", [\"n\"], 0x7) = 0\nopenat(3, \".\", O_RDONLY) = 4\nclose(4) = 0\n\
        openat(3, \"a\", O_RDONLY) = -1 ENOENT (No such file)\nfsync(4) = 0\n--- SIGCHLD {si_signo=SIGCHLD} ---\n";

    #[test]
    fn calls_are_counted_by_name_without_those_left_alone() {
        assert_eq!(count(RECORD), Calls::from([("fsync".to_owned(), 1), ("openat".to_owned(), 2)]));
    }

    #[test]
    fn every_call_is_killed_and_fails_once_and_a_write_fails_for_good() {
        let faults = every(&count(RECORD), &["EIO".to_owned()]);
        let reported: Vec<String> = faults.iter().map(Fault::inject).collect();
        let wanted = [
            "inject=fsync:signal=KILL:when=1",
            "inject=fsync:error=EIO:when=1",
            "inject=fsync:error=EIO:when=1+",
            "inject=openat:signal=KILL:when=1",
            "inject=openat:error=EIO:when=1",
            "inject=openat:signal=KILL:when=2",
            "inject=openat:error=EIO:when=2",
        ];
        assert_eq!(reported, wanted);
    }

    #[test]
    fn a_chosen_fault_lies_within_the_calls() {
        let (calls, errors) = (count(RECORD), ["EIO".to_owned(), "EINTR".to_owned()]);
        let mut random = Random::new(5);
        for _ in 0..200 {
            let fault = choose(&calls, &errors, &mut random).unwrap();
            assert!((1..=calls[&fault.call]).contains(&fault.number));
            assert!(fault.harm != Harm::Lasting("EINTR".to_owned()));
        }
    }
}
