//! The server of P8, in a network namespace of its own at the other end of a virtual cable: inside a sandbox the
//! addresses of this host mean the sandbox itself, so a server on the host's loopback is behind no proxy.

use crate::failure::Failure;
use crate::{announce, failed};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Addresses of the server and of the host's end of the cable.
pub const RANGE: &str = "10.213.77.0/28";
/// First address of the server; it serves this one and the six after it.
pub const FIRST: &str = "10.213.77.2";
const HOST_END: &str = "10.213.77.1/28";
const ADDRESSES: u8 = 7;

/// A running server; it ends with its input, and its namespace goes with it.
pub struct FarServer {
    /// Port on each address.
    pub port: u16,
    child: Option<Child>,
    space: Space,
}

/// The namespace and the cable, removed when this is dropped.
struct Space {
    name: String,
}

impl FarServer {
    /// Makes the namespace and starts `program target` in it. Needs root.
    pub fn start(program: &Path) -> Result<Self, Failure> {
        let space = Space::make()?;
        let reported = |error: &dyn std::fmt::Display| failed(&format!("the server: {error}"));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &space.name]).arg(program).arg("target").env("NEXUS_BENCH_SERVER", FIRST);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| reported(&error))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(|error| reported(&error))?;
        }
        let mut server = Self { port: 0, child: Some(child), space };
        server.port = line.trim().parse().map_err(|error| reported(&error))?;
        Ok(server)
    }
}

impl Drop for FarServer {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        drop(child.stdin.take());
        if let Err(error) = child.wait() {
            announce(&format!("the server in {} could not be waited for: {error}", self.space.name));
        }
    }
}

impl Space {
    fn make() -> Result<Self, Failure> {
        let number = std::process::id();
        let name = format!("nexus-bench-{number}");
        // The kernel allows 15 bytes for the name of a device.
        let (here, there) = (format!("nxb{number}"), format!("nxp{number}"));
        ip(&["netns", "add", &name])?;
        let space = Self { name };
        let inside = space.name.as_str();
        ip(&["link", "add", &here, "type", "veth", "peer", "name", &there, "netns", inside])?;
        ip(&["address", "add", HOST_END, "dev", &here])?;
        ip(&["link", "set", &here, "up"])?;
        for last in 2..2 + ADDRESSES {
            ip(&["-n", inside, "address", "add", &format!("10.213.77.{last}/28"), "dev", &there])?;
        }
        ip(&["-n", inside, "link", "set", &there, "up"])?;
        Ok(space)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Err(failure) = ip(&["netns", "delete", &self.name]) {
            announce(&format!("the namespace {} stays: {failure}", self.name));
        }
    }
}

fn ip(words: &[&str]) -> Result<(), Failure> {
    let reported = |error: &dyn std::fmt::Display| failed(&format!("ip {}: {error}", words.join(" ")));
    let output = Command::new("ip").args(words).output().map_err(|error| reported(&error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(reported(&String::from_utf8_lossy(&output.stderr).trim()))
}
