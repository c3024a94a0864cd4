//! A narrow wire: a network namespace for one daemon, whose only way out is a pair of devices with a token bucket at both ends.
//!
//! ```text
//!  daemon ── its loopback ── device of the namespace (tbf) ═══ device of this machine (tbf) ── bad network ── balancer
//! ```
//! Root alone can make it.

use super::relay::carry;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::mpsc::channel;

/// Bits that the wire carries in a second, in each direction.
const RATE: &str = "500kbit";

pub struct NarrowWire {
    namespace: String,
    device: String,
    /// This machine's end.
    pub here: IpAddr,
}

impl Drop for NarrowWire {
    fn drop(&mut self) {
        // The devices go with the namespace.
        Command::new("ip").args(["netns", "delete", &self.namespace]).status().ok();
    }
}

impl NarrowWire {
    /// Makes one; `None` for a user who is not root.
    pub fn make() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let id = std::process::id();
        // Names of devices have 15 letters at most. Each process has four addresses of a private network.
        let (namespace, device) = (format!("nexus-far-{id}"), format!("nxfar{id}"));
        let [.., high, low] = (id * 4).to_be_bytes();
        let [here, there] = [1, 2].map(|end| IpAddr::from(Ipv4Addr::new(10, 231, high, low + end)));
        let wire = Self { namespace, device, here };
        let (namespace, device) = (wire.namespace.as_str(), wire.device.as_str());
        let (ours, theirs) = (format!("{here}/30"), format!("{there}/30"));
        let bucket = ["root", "tbf", "rate", RATE, "burst", "4kb", "latency", "2s"];
        for words in [
            &["ip", "netns", "add", namespace][..],
            &["ip", "link", "add", device, "type", "veth", "peer", "name", "far", "netns", namespace],
            &["ip", "addr", "add", &ours, "dev", device],
            &["ip", "link", "set", device, "up"],
            &["ip", "-n", namespace, "addr", "add", &theirs, "dev", "far"],
            &["ip", "-n", namespace, "link", "set", "far", "up"],
            &["ip", "-n", namespace, "link", "set", "lo", "up"],
            &[&["tc", "qdisc", "add", "dev", device][..], &bucket].concat(),
            &[&["tc", "-n", namespace, "qdisc", "add", "dev", "far"][..], &bucket].concat(),
        ] {
            let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        Some(wire)
    }

    /// Leads the port of an address to it, from the loopback of the namespace over the wire.
    pub fn lead_to(&self, address: SocketAddr) {
        let namespace = File::open(format!("/run/netns/{}", self.namespace)).unwrap();
        let (ready, is_ready) = channel();
        std::thread::spawn(move || {
            // This thread alone: its sockets are made in the namespace, and stay there.
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let listener = TcpListener::bind(("127.0.0.1", address.port())).unwrap();
            ready.send(()).unwrap();
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(address) {
                    carry(client, server);
                }
            }
        });
        is_ready.recv().unwrap();
    }

    /// Returns the command as one of the namespace. The process is the same: `nsenter` becomes the program.
    pub fn behind(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/run/netns/{}", self.namespace)).arg(command.get_program()).args(command.get_args());
        inside.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside
    }

    /// Pieces that had to wait for the wire, over both directions.
    pub fn waited(&self) -> u64 {
        let ends = [
            &["-s", "qdisc", "show", "dev", &self.device][..],
            &["-n", &self.namespace, "-s", "qdisc", "show", "dev", "far"],
        ];
        ends.map(|words| {
            let said = String::from_utf8(Command::new("tc").args(words).output().unwrap().stdout).unwrap();
            let count = said.split("overlimits ").nth(1).and_then(|rest| rest.split(' ').next());
            count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{said}"))
        })
        .iter()
        .sum()
    }
}
