//! Advice for a launch that fails because a resource of the user or of the machine is exhausted.

use crate::failure::Failure;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Descriptors, standard streams included, that the set-up of the smallest sandbox takes.
const MIN_DESCRIPTORS: u64 = 50;
/// Soft limit from which on the descriptors that are open already are not counted.
const AMPLE_DESCRIPTORS: u64 = 256;

const MFILE: i32 = Errno::MFILE.raw_os_error();
const NFILE: i32 = Errno::NFILE.raw_os_error();
const NOMEM: i32 = Errno::NOMEM.raw_os_error();
const AGAIN: i32 = Errno::AGAIN.raw_os_error();

/// Returns the advice for an error number that says nothing about the step that failed: whatever comes first fails so.
pub fn advice(errno: i32) -> Option<&'static str> {
    match errno {
        MFILE => {
            Some("Nothing was run: nexus may open no more files here. Raise the limit (ulimit -n) and run it again.")
        }
        NFILE => Some(
            "Nothing was run: this machine has no more open files (sysctl fs.file-nr fs.file-max). Run it again when other programs have ended.",
        ),
        NOMEM => Some(
            "Nothing was run: the kernel has no memory left, or the control group of nexus has none. Make some free and run it again.",
        ),
        _ => None,
    }
}

/// Returns the advice for an error number of a call that makes a process or a thread.
pub fn advice_for_process(errno: i32) -> Option<&'static str> {
    match errno {
        AGAIN => Some(
            "Nothing was run: this user or the control group of nexus may have no more processes. Raise the limit (ulimit -u, or pids.max of the group) and run it again.",
        ),
        other => advice(other),
    }
}

/// Returns the advice for an error of the system that kept a process or a thread from being made.
pub fn advice_for_thread(error: &io::Error) -> Option<&'static str> {
    error.raw_os_error().and_then(advice_for_process)
}

/// Number of descriptors for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Descriptors {
    /// The soft limit is enough.
    Enough,
    /// The soft limit must be this.
    Raise(u64),
    /// The hard limit is below what is needed.
    TooFew { limit: u64, open: u64 },
}

/// Decides whether a process with these limits, and `open` descriptors beside its standard streams, can launch a sandbox.
fn weighed(limit: &Rlimit, open: u64) -> Descriptors {
    let needed = MIN_DESCRIPTORS + open;
    match (limit.current, limit.maximum) {
        (None, _) => Descriptors::Enough,
        (Some(current), _) if current >= needed => Descriptors::Enough,
        (_, Some(limit)) if limit < needed => Descriptors::TooFew { limit, open },
        _ => Descriptors::Raise(needed),
    }
}

/// Refuses a run that has too few descriptors for any sandbox, and raises a soft limit that is too low. Otherwise the first
/// file that cannot be opened looks damaged or closed to this user.
pub fn refuse_too_few_descriptors() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= AMPLE_DESCRIPTORS) {
        return Ok(());
    }
    match weighed(&limit, open_beside_streams()) {
        Descriptors::Enough => Ok(()),
        Descriptors::Raise(current) => {
            let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
            raised.map_err(|error| too_few(format!("the limit of {current} open files cannot be set: {error}")))
        }
        Descriptors::TooFew { limit, open } => {
            let beside = if open == 0 { String::new() } else { format!(" beside the {open} that are open already") };
            let needed = MIN_DESCRIPTORS;
            Err(too_few(format!(
                "nexus may open at most {limit} files here, and a sandbox needs {needed} while it is set up{beside}"
            )))
        }
    }
}

/// Raises the limit of descriptors, since every tunnel needs two. The sandbox exists already, so that its commands
/// keep the caller's limit.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        // If it cannot be raised, the egress counts what there is and serves as many.
        Ok(()) | Err(_) => {}
    }
}

fn too_few(message: String) -> Failure {
    Failure::refused("descriptors", message, "Nothing was run. Raise the limit (ulimit -n) and run it again.")
}

/// Counts the open descriptors beside standard input, output and error. Where none is left to count with, or there is no
/// `/proc`, the count is 0: the limit alone decides then.
fn open_beside_streams() -> u64 {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    // One of them is the descriptor of this directory.
    (numbers.filter(|number| *number > 2).count() as u64).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_where_it_may_be_and_refused_elsewhere() {
        let of = |current, maximum, open| weighed(&Rlimit { current, maximum }, open);
        assert_eq!(of(None, None, 9), Descriptors::Enough);
        assert_eq!(of(Some(50), Some(50), 0), Descriptors::Enough);
        assert_eq!(of(Some(49), Some(49), 0), Descriptors::TooFew { limit: 49, open: 0 });
        assert_eq!(of(Some(60), Some(60), 11), Descriptors::TooFew { limit: 60, open: 11 });
        assert_eq!(of(Some(20), Some(4096), 3), Descriptors::Raise(53));
        assert_eq!(of(Some(20), None, 0), Descriptors::Raise(50));
    }

    #[test]
    fn a_process_that_cannot_be_made_has_advice_of_its_own() {
        assert!(advice(AGAIN).is_none(), "a call that is not ready says the same");
        assert!(advice_for_process(AGAIN).is_some_and(|advice| advice.contains("ulimit -u")));
        assert_eq!(advice_for_process(MFILE), advice(MFILE));
        assert!(advice_for_thread(&io::Error::from_raw_os_error(AGAIN)).is_some());
        assert!(advice_for_thread(&io::Error::other("x")).is_none());
    }
}
