//! A running sandbox of this driver, seen from the host.

use nexus_driver::SandboxProcess;
use nexus_jail::cgroup::Group;
use nexus_jail::clone::Child;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::cell::RefCell;
use std::io;

/// PID 1 of a sandbox, and what the sandbox has on the host.
pub struct NamespaceProcess {
    child: Child,
    group: Option<Group>,
    /// Mounts and namespaces to close later: the kernel waits for all processors when the last descriptor of one is
    /// closed. They are closed once the sandbox stands, because it holds a descriptor of each until then, and while no
    /// caller waits.
    deferred: RefCell<Vec<OwnedFd>>,
}

impl NamespaceProcess {
    /// Takes charge of a sandbox that was cloned.
    pub fn boxed(child: Child, group: Option<Group>, deferred: Vec<OwnedFd>) -> Box<dyn SandboxProcess> {
        Box::new(Self { child, group, deferred: RefCell::new(deferred) })
    }
}

impl SandboxProcess for NamespaceProcess {
    fn has_come_up(&self) {
        self.deferred.borrow_mut().clear();
    }

    fn kill(&self) -> io::Result<()> {
        self.hurry();
        self.child.kill()
    }

    fn hurry(&self) {
        // Where the share stays, the end only takes longer.
        self.group.as_ref().map(Group::lift_share).transpose().ok();
    }

    fn wait(&self) -> io::Result<()> {
        self.child.wait().map(drop)
    }

    fn release(&self) -> io::Result<()> {
        self.group.as_ref().map_or(Ok(()), Group::remove)
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        Some(self.child.pidfd.as_fd())
    }

    fn oom_kills(&self) -> io::Result<u64> {
        self.group.as_ref().map_or(Ok(0), Group::oom_kills)
    }
}
