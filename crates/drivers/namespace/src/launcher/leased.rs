//! Resources that a launcher process holds for the sandboxes that it started, and gives up when they have ended.

use crate::driver::Namespace;
use nexus_jail::Network;
use rustix::fd::OwnedFd;
use rustix::process::WaitOptions;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Resources that are held for running sandboxes.
#[derive(Default)]
pub struct Leased {
    /// Pooled networks, by the first process of the sandbox that has them.
    networks: BTreeMap<i32, Network>,
    /// Mount namespaces of running sandboxes, held so that the kernel takes them apart while no request waits, and not
    /// before the end of the sandbox is reported.
    mounts: BTreeMap<i32, File>,
    /// Mount namespaces of ended sandboxes, and other mounts that are no longer needed.
    pub closing: Vec<OwnedFd>,
}

impl Leased {
    /// Maximum number of mount namespaces that are held, one descriptor for each. Beyond it a sandbox takes its own
    /// mounts apart when it ends.
    const MAX: usize = 256;
    /// Number of mount namespaces that are handed to the closer even while there is other work.
    pub const MANY: usize = 16;

    /// Holds the resources of a sandbox until its first process `pid` was collected.
    pub fn hold(&mut self, pid: i32, network: Option<Network>, deferred: Vec<OwnedFd>) {
        self.networks.extend(network.map(|network| (pid, network)));
        if self.mounts.len() + self.closing.len() < Self::MAX {
            self.closing.extend(deferred);
            // Where it cannot be opened the end is only slower.
            self.mounts.extend(File::open(format!("/proc/{pid}/ns/mnt")).ok().map(|mounts| (pid, mounts)));
        }
    }

    /// Collects every ended sandbox, so that none stays as a zombie, and takes its network back: when its first process can
    /// be waited for, every other one is dead.
    pub fn reap(&mut self, driver: &Namespace, mut ended: impl FnMut(i32)) -> io::Result<()> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => {
                    let pid = pid.as_raw_nonzero().get();
                    tracing::debug!(pid, "a process of the launcher ended");
                    ended(pid);
                    self.closing.extend(self.mounts.remove(&pid).map(OwnedFd::from));
                    if let Some(network) = self.networks.remove(&pid) {
                        // If the namespace cannot be shown to be clean, it is dropped instead of used again.
                        driver.launcher().give_back(network).unwrap_or_default();
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
