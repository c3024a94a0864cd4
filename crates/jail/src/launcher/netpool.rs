//! Network namespaces made while no request waits, and, if asked for, used again. Making one is a third of a launch.
//!
//! ```text
//!  (launcher idle) ─make─▶ ready ──take──▶ with one sandbox ──its PID 1 was waited for──┬─▶ dropped
//!                            ▲                                                          └─▶ (reuse) empty and never used?
//!                            └─────────────────────────── yes ─────────────────────────────────────┘   no ─▶ dropped
//! ```
//! They belong to the launcher's user namespace, in which no sandbox has a capability: nothing in one can be configured
//! from inside. What could be left of a sandbox are sockets (also ones that were passed on, or that the kernel still
//! closes) and what its packets did to counters, routes and TCP's memory of peers. So one is used again only when the
//! kernel counts no socket in it and its only device has never moved a packet; what one program said to itself over
//! loopback costs the namespace, not the next sandbox's isolation.

use crate::steps::{AtStep, Faults, Step, StepError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::io;

/// A network namespace with nothing but its loopback device, which is up.
#[derive(Debug)]
pub struct Network {
    namespace: OwnedFd,
    /// Socket statistics of the namespace; open since it was made, because the kernel binds the file to the namespace
    /// then.
    sockets: OwnedFd,
    /// Packet counters of its devices.
    devices: OwnedFd,
}

/// Sizes of the pools of a launcher process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolConfig {
    /// Most networks that wait for a launch. None means that each launch makes its own.
    pub networks: usize,
    /// Lets a network whose sandbox left nothing in it serve another one. Otherwise each serves one sandbox.
    pub reuse: bool,
    /// Maximum number of warm sandboxes. Each serves once.
    pub sandboxes: usize,
}

/// Those that wait to be used.
#[derive(Debug)]
pub struct Pool {
    home: OwnedFd,
    ready: Vec<Network>,
    sizes: PoolConfig,
    /// Making one in advance failed; not tried again before a launch has made one.
    is_exhausted: bool,
}

impl Pool {
    /// A pool for networks of this process's user namespace.
    pub fn new(sizes: PoolConfig) -> Result<Self, StepError> {
        let home = open_own("/proc/self/ns/net").at(Step::NetworkPool, "/proc/self/ns/net")?;
        Ok(Self { home, ready: Vec::new(), sizes, is_exhausted: false })
    }

    /// Returns whether one more should be made. Where they come back, one for the next launch is enough.
    pub fn wants_more(&self) -> bool {
        !self.is_exhausted && self.ready.len() < if self.sizes.reuse { 1 } else { self.sizes.networks }
    }

    /// Makes one more ready.
    pub fn refill(&mut self, faults: Faults) -> Result<(), StepError> {
        self.is_exhausted = true;
        let network = self.make(faults)?;
        self.is_exhausted = false;
        self.ready.push(network);
        Ok(())
    }

    /// A ready one, or a new one.
    pub fn take(&mut self, faults: Faults) -> Result<Network, StepError> {
        faults.check(Step::NetworkPool)?;
        if let Some(network) = self.ready.pop() {
            return Ok(network);
        }
        let made = self.make(faults)?;
        self.is_exhausted = false;
        Ok(made)
    }

    /// Takes one back whose sandbox is dead, if nothing of the sandbox is left in it.
    pub fn give_back(&mut self, network: Network) -> io::Result<()> {
        if self.sizes.reuse && self.ready.len() < self.sizes.networks && network.is_untouched()? {
            self.ready.push(network);
        }
        Ok(())
    }

    fn make(&self, faults: Faults) -> Result<Network, StepError> {
        // SAFETY: changes only which network this process, which has one thread, is in; `home` leads back.
        let apart = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
        apart.at(Step::NetworkPool, "unshare")?;
        let made = faults
            .check(Step::Loopback)
            .and_then(|()| crate::net::loopback_up().at(Step::Loopback, "lo"))
            .and_then(|()| Network::of_this_process().at(Step::NetworkPool, "files of the network"));
        self.leave()?;
        made
    }

    /// Moves this process into one.
    pub fn enter(network: &Network) -> Result<(), StepError> {
        move_into_link_name_space(network.namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .at(Step::NetworkPool, "entering a pooled network")
    }

    /// Moves this process back to its own.
    pub fn leave(&self) -> Result<(), StepError> {
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))
            .at(Step::NetworkPool, "leaving a pooled network")
    }
}

impl Network {
    fn of_this_process() -> io::Result<Self> {
        Ok(Self {
            namespace: open_own("/proc/self/ns/net")?,
            sockets: open_own("/proc/self/net/sockstat")?,
            devices: open_own("/proc/self/net/dev")?,
        })
    }

    /// Returns whether no socket is in it and no packet ever was.
    fn is_untouched(&self) -> io::Result<bool> {
        Ok(has_no_sockets(&read_all(&self.sockets)?) && has_moved_nothing(&read_all(&self.devices)?))
    }
}

fn open_own(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// One page holds either file; a longer one is cut, and then does not read as empty.
fn read_all(file: &OwnedFd) -> io::Result<String> {
    let mut page = [0u8; 4096];
    let length = rustix::io::pread(file, &mut page, 0)?;
    String::from_utf8(page[..length].to_vec()).map_err(io::Error::other)
}

/// `sockets: used 0`, and no TCP connection that lingers without a socket.
fn has_no_sockets(sockstat: &str) -> bool {
    let value = |line: &str, name: &str| -> Option<u64> {
        let fields = sockstat.lines().find_map(|text| text.strip_prefix(line))?;
        let mut fields = fields.split_ascii_whitespace();
        fields.find(|field| *field == name)?;
        fields.next()?.parse().ok()
    };
    value("sockets:", "used") == Some(0) && value("TCP:", "tw") == Some(0) && value("TCP:", "inuse") == Some(0)
}

/// One device, all of whose counters are zero.
fn has_moved_nothing(devices: &str) -> bool {
    let mut lines = devices.lines().skip(2);
    let Some(counters) = lines.next().and_then(|line| line.trim_start().strip_prefix("lo:")) else { return false };
    lines.next().is_none() && counters.split_ascii_whitespace().count() >= 16 && {
        counters.split_ascii_whitespace().all(|counter| counter == "0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 5 mem 0\nUDP: inuse 0 mem 0\n";
    const QUIET: &str = "Inter-|   Receive      |  Transmit\n face |bytes packets\n    \
                         lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n";

    #[test]
    fn a_socket_or_a_lingering_connection_is_seen() {
        assert!(has_no_sockets(EMPTY));
        for (from, to) in [("used 0", "used 1"), ("tw 0", "tw 3"), ("TCP: inuse 0", "TCP: inuse 1")] {
            assert!(!has_no_sockets(&EMPTY.replace(from, to)), "{to}");
        }
        assert!(!has_no_sockets("") && !has_no_sockets("sockets: used 0\n"));
    }

    #[test]
    fn a_packet_or_another_device_is_seen() {
        assert!(has_moved_nothing(QUIET));
        assert!(!has_moved_nothing(&QUIET.replacen("lo:       0", "lo:      84", 1)));
        assert!(!has_moved_nothing(&format!("{QUIET}  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")));
        assert!(!has_moved_nothing(""));
    }
}
