//! Quotas that the kernel counts for a user over all its processes, and the share that a sandbox may take.
//!
//! ```text
//!  launcher: reads the caller's limits, raises its own soft limit of descriptors to the hard one
//!  child:    no protection from the memory killer ─▶ lower hard limits ─▶ lower `user.*` of its own user namespace ─▶ (no rights any more)
//! ```
//! Without this one sandbox of a user takes all: the host's programs of that user, and the launcher, get EAGAIN or EMFILE.
//! The counts of a user namespace are also counts of its creator in the namespace above (ucounts).

use crate::leave_out::{Wall, stands};
use crate::mount_targets::show;
use crate::steps::{AtStep, Faults, Step, StepError};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Queued signals and POSIX timers.
const SIGNALS: u64 = 4096;
/// Bytes of POSIX message queues: half of what a user has unless the host says otherwise.
const QUEUE_BYTES: u64 = 400 << 10;
/// Bytes of locked memory: half of what a user has unless the host says otherwise.
const LOCKED_BYTES: u64 = 4 << 20;
/// The most descriptors of one process. Hosts allow up to 2^30; the kernel closes each of them before a process is gone, so they
/// put off the end of a run, which no time limit shortens. Databases and search engines ask for 65,536.
const MAX_FILES: u64 = 65_536;
/// Sets the order in which the kernel kills for want of memory, and exempts where it is negative.
const OWN_SCORE: &str = "/proc/self/oom_score_adj";

/// The files below `/proc/sys/fs/inotify` with the host's limits, and those below `/proc/sys/user` with a namespace's own.
const INOTIFY: [(&str, &str); 2] =
    [("max_user_instances", "max_inotify_instances"), ("max_user_watches", "max_inotify_watches")];

/// Shares that sandboxes of this launcher may take.
#[derive(Debug)]
pub struct Quotas {
    core: u64,
    limits: Vec<(Resource, Rlimit)>,
    inotify: Vec<(&'static str, u64)>,
    /// True if the kernel exempts the caller when it kills for want of memory: a service may have protected
    /// itself.
    is_spared: bool,
    /// The host's `/proc`. What is found below `sys/user` there is that of the namespace of who looks.
    proc: OwnedFd,
}

impl Quotas {
    /// Reads what the caller has. Descriptors under way over sockets are counted for a user and compared with the soft
    /// limit of who sends (unix(7)): this process takes all that its hard limit allows, and a sandbox may take less, so that
    /// no sandbox keeps a launcher of the same user from sending.
    pub fn of_caller() -> Result<Arc<Self>, StepError> {
        let files = getrlimit(Resource::Nofile);
        let all = Rlimit { current: files.maximum, maximum: files.maximum };
        setrlimit(Resource::Nofile, all).at(Step::ResourceLimits, "RLIMIT_NOFILE of the launcher")?;
        let most = |resource: Resource, value: u64| {
            let value = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
            (resource, Rlimit { current: Some(value), maximum: Some(value) })
        };
        let limits = vec![
            (Resource::Nofile, files_of_a_sandbox(&files)),
            most(Resource::Sigpending, SIGNALS),
            most(Resource::Msgqueue, QUEUE_BYTES),
            most(Resource::Memlock, LOCKED_BYTES),
            most(Resource::Rtprio, 0),
            most(Resource::Nice, 0),
        ];
        let mut inotify = Vec::new();
        for (host, own) in INOTIFY {
            // A kernel without inotify has nothing to bound.
            let file = format!("/proc/sys/fs/inotify/{host}");
            if let Some(value) = number(&file).at(Step::ResourceLimits, &file)? {
                inotify.push((own, value.div_ceil(2)));
            }
        }
        let score = crate::creds::read_small(OWN_SCORE).at(Step::ResourceLimits, OWN_SCORE)?;
        let is_spared = score.trim_start().starts_with('-');
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open(c"/proc", flags, Mode::empty()).at(Step::ResourceLimits, "/proc")?;
        Ok(Arc::new(Self { core: core_limit(), limits, inotify, is_spared, proc }))
    }

    /// Makes the kernel kill this process, and what it starts, for want of memory like every other. For a child that has the
    /// host's `/proc` and maps its own ids.
    pub fn give_up_protection(&self) -> Result<(), StepError> {
        self.unspare(Path::new(OWN_SCORE))
    }

    /// Does the same for a child whose ids this process maps. The child cannot: on a template it is in no `/proc`, and of a
    /// child of root the file belongs to root.
    pub fn take_protection(&self, child: i32) -> Result<(), StepError> {
        self.unspare(Path::new(&format!("/proc/{child}/oom_score_adj")))
    }

    fn unspare(&self, file: &Path) -> Result<(), StepError> {
        if self.is_spared { std::fs::write(file, "0").at(Step::ResourceLimits, &show(file)) } else { Ok(()) }
    }

    /// Sets the hard limits of this process and all that come from it. `pids` bounds processes in its own user namespace.
    ///
    /// The limit on core files is 1 and not 0: where `core_pattern` names a program, the kernel starts it on the host as
    /// root whatever the limit, but for exactly this value (core(5); `do_coredump` of fs/coredump.c). The filter keeps it.
    /// See [`core_limit`] for a caller who may have no core file at all.
    pub fn limit_resources(&self, faults: Faults, pids: u32) -> Result<(), StepError> {
        faults.check(Step::ResourceLimits)?;
        let fixed = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
        if stands(Wall::CoreLimit) {
            setrlimit(Resource::Core, fixed(self.core)).at(Step::ResourceLimits, "RLIMIT_CORE")?;
        }
        if stands(Wall::ProcessLimit) {
            // One more for PID 1, which the user did not ask for.
            let most = "RLIMIT_NPROC: --pids may be at most the hard limit of the caller (ulimit -Hu) less one";
            setrlimit(Resource::Nproc, fixed(u64::from(pids) + 1)).at(Step::ResourceLimits, most)?;
        }
        for (resource, limit) in &self.limits {
            setrlimit(*resource, *limit).at(Step::ResourceLimits, &format!("{resource:?}"))?;
        }
        Ok(())
    }

    /// Lowers the limits of this process's own user namespace. It needs its rights there.
    pub fn limit_namespace(&self) -> Result<(), StepError> {
        for (name, value) in &self.inotify {
            match self.write(name, *value) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(StepError::os(Step::ResourceLimits, errno, format!("user.{name}"))),
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, value: u64) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.proc, format!("sys/user/{name}"), flags, Mode::empty())?;
        rustix::io::write(&file, value.to_string().as_bytes()).map(drop)
    }
}

/// Returns the limit on core files that a sandbox of this process gets. It is 1, and 0 where the hard limit of this process
/// is 0 (`ulimit -Hc 0`) and it may not raise it: no core file is written then either, but a program that `core_pattern`
/// names would be started, so that the driver launches nothing where it names one.
#[must_use]
pub fn core_limit() -> u64 {
    let raise = || setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) });
    u64::from(has_core_files() || raise().is_ok())
}

/// Reports whether the hard limit on core files is known, and not 0.
fn has_core_files() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills `limit`, which lives through the call. Unlike rustix's, this call may fail: in a sandbox
    // around this one it may be refused.
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) == 0 && limit.rlim_max != 0 }
}

/// Reads the number in a file; `None` where there is no such file.
fn number(file: &str) -> io::Result<Option<u64>> {
    match crate::creds::read_small(file) {
        Ok(text) => text.trim().parse().map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Three quarters of what the caller may have, up to [`MAX_FILES`]; what is left is for launchers. The soft limit stays the caller's
/// where it is lower.
fn files_of_a_sandbox(caller: &Rlimit) -> Rlimit {
    let maximum = caller.maximum.map_or(MAX_FILES, |maximum| (maximum - maximum / 4).min(MAX_FILES));
    Rlimit { current: Some(caller.current.map_or(maximum, |current| current.min(maximum))), maximum: Some(maximum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_absent_has_no_number() {
        assert_eq!(number("/proc/sys/fs/inotify/no-such-file").unwrap(), None);
        assert!(number("/proc/sys/fs/inotify/max_user_watches").unwrap().is_some());
        for unreadable in ["/proc/self/status/x", "/proc/self", "/proc/self/stat"] {
            assert!(number(unreadable).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn a_sandbox_gets_fewer_descriptors_than_its_launcher() {
        let of = |current, maximum| {
            let limit = files_of_a_sandbox(&Rlimit { current, maximum });
            (limit.current.unwrap(), limit.maximum.unwrap())
        };
        assert_eq!(of(Some(1024), Some(4096)), (1024, 3072));
        assert_eq!(of(Some(1024), Some(1024)), (768, 768));
        assert_eq!(of(Some(1024), Some(1 << 20)), (1024, 65_536));
        assert_eq!(of(None, None), (65_536, 65_536));
    }
}
