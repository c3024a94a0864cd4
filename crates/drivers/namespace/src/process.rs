//! A running sandbox of this driver, seen from the host.

use crate::members;
use nexus_driver::{Channel, SandboxProcess};
use nexus_jail::cgroup::Group;
use nexus_jail::clone::Child;
use nexus_jail::overlay_watch::overlay_is_gone;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::cell::RefCell;
use std::io;
use std::time::Duration;

/// PID 1 of a sandbox, and what the sandbox has on the host.
pub struct NamespaceProcess {
    child: Child,
    group: Option<Group>,
    /// Reports when the overlay of the workspace is gone for good. `None`: nothing reports it.
    watch: Option<OwnedFd>,
    /// Mounts and namespaces to close later: the kernel waits for all processors when the last descriptor of one is
    /// closed. They are closed once the sandbox stands, because it holds a descriptor of each until then, and while no
    /// caller waits.
    deferred: RefCell<Vec<OwnedFd>>,
    /// Connection to the launcher that kills the sandbox when this is closed.
    _link: Option<Channel>,
}

impl NamespaceProcess {
    /// Takes charge of a sandbox that was cloned.
    pub fn new(child: Child, group: Option<Group>, watch: Option<OwnedFd>, deferred: Vec<OwnedFd>) -> Self {
        Self { child, group, watch, deferred: RefCell::new(deferred), _link: None }
    }

    /// Keeps the connection to the launcher of the sandbox.
    pub fn linked(self, link: Channel) -> Self {
        Self { _link: Some(link), ..self }
    }
}

impl SandboxProcess for NamespaceProcess {
    fn on_ready(&self) {
        self.deferred.borrow_mut().clear();
    }

    fn kill(&self) -> io::Result<()> {
        self.hurry();
        self.child.kill()
    }

    fn kill_members(&self) -> io::Result<()> {
        members::kill_below(self.child.pid, self.child.pidfd.as_fd())
    }

    fn hurry(&self) {
        // Where the share stays, the end only takes longer.
        self.group.as_ref().map(Group::lift_share).transpose().ok();
    }

    fn wait(&self) -> io::Result<()> {
        // Without a bound: a run calls this for a sandbox that has ended, or whose end it waits for on purpose because no later
        // command could find it. It has said so by then, and a signal ends that wait with the process (see settle/lingers.rs).
        self.child.wait().map(drop)
    }

    fn has_released_layer(&self, within: Duration) -> bool {
        self.watch.as_ref().is_some_and(|watch| overlay_is_gone(watch, within))
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
