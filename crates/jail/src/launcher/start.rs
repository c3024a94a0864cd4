//! The steps around a clone that every launch takes, with or without a plan.

use crate::cgroup::Group;
use crate::clone::{Child, Cloned, clone_process, exit_now};
use crate::creds;
use crate::identity::Identity;
use crate::launcher::idmap;
use crate::leave_out::{Wall, stands};
use crate::quotas::Quotas;
use crate::request::Setup;
use crate::steps::{AtStep, Faults, Step, StepError};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::unix::fs::MetadataExt;

const NAMESPACES: u64 = (libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;

/// The socket between host and guest: the host's end, the guest's.
pub(crate) fn channel(faults: Faults) -> Result<(OwnedFd, OwnedFd), StepError> {
    faults.check(Step::MakeChannel)?;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .at(Step::MakeChannel, "socketpair")
}

/// Clones a child that does `run` and ends with its result. `ours` is what it must not have.
pub(crate) fn clone_inside(
    identity: &Identity,
    own_network: bool,
    ours: &OwnedFd,
    cgroup: Option<&OwnedFd>,
    run: impl FnOnce() -> i32,
) -> Result<Child, StepError> {
    let network = own_network && stands(Wall::NetworkNamespace);
    let apart = [
        (network, libc::CLONE_NEWNET),
        (stands(Wall::IpcNamespace), libc::CLONE_NEWIPC),
        (stands(Wall::UtsNamespace), libc::CLONE_NEWUTS),
    ];
    let apart = apart.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, flag)| all | *flag as u64);
    let cloned = as_owner(identity, || clone_process(NAMESPACES | apart, cgroup));
    match cloned.at(Step::Clone, "clone3 with new namespaces")? {
        Cloned::Child => {
            // The host's end; the one who owns it in this copy never runs again.
            // SAFETY: a plain close of a descriptor that nothing in this process uses from here on.
            unsafe { libc::close(ours.as_raw_fd()) };
            // A panic must not run on in a copy of the caller.
            exit_now(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(101));
        }
        Cloned::Parent(child) => Ok(child),
    }
}

/// Clones with the effective uid of the sandbox, where root launches: the creator of a user namespace pays in its own one for
/// what is counted in it, and root's limits are the host's services'.
fn as_owner(identity: &Identity, clone: impl FnOnce() -> io::Result<Cloned>) -> io::Result<Cloned> {
    if !identity.by_root {
        return clone();
    }
    let before = creds::take_effective_uid(identity.outer_uid)?;
    let cloned = clone();
    match cloned {
        // Its user namespace has given it all rights there, and it sets its ids on its own.
        Ok(Cloned::Child) => cloned,
        cloned => creds::give_back_effective_uid(before).and(cloned),
    }
}

/// Ends a child that could not be set up. What is left of it is said with the error that ended it.
pub(crate) fn end_after(child: &Child, error: StepError) -> StepError {
    match child.end() {
        Ok(()) => error,
        Err(left) => StepError { detail: format!("{}; {left}", error.detail), ..error },
    }
}

/// The child waits for this: it is in its group, and has its ids. `maps` is there where it does not map them itself.
pub(crate) fn finish_as_parent(
    setup: &Setup,
    group: Option<&Group>,
    child: &Child,
    channel: &OwnedFd,
    maps: Option<&Quotas>,
) -> Result<(), StepError> {
    let pid = child.pid.as_raw_nonzero().get();
    if let Some(group) = group {
        group.enter(pid, setup.faults)?;
    }
    if let Some(quotas) = maps {
        setup.faults.check(Step::WriteIdMap)?;
        idmap::write_maps(pid, &setup.identity).at(Step::WriteIdMap, "uid_map of the child")?;
        quotas.take_protection(pid)?;
    }
    let sent = rustix::net::send(channel, b"g", rustix::net::SendFlags::NOSIGNAL);
    sent.at(Step::AwaitParent, "channel")?;
    Ok(())
}

/// A clone without exec copies one thread; any other would leave its locks held for ever.
pub(crate) fn check_single_thread(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::SingleThread)?;
    let tasks = std::fs::metadata("/proc/self/task").at(Step::SingleThread, "/proc/self/task")?;
    match tasks.nlink() {
        // A directory has two links and one for each subdirectory.
        3 => Ok(()),
        links => {
            Err(StepError::new(Step::SingleThread, format!("the launcher has {} threads", links.saturating_sub(2))))
        }
    }
}
