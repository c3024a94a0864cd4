//! Proxies that are measured beside the egress: their settings, made for one run, and their processes.
//!
//! Each allows the one server and nothing else, and writes down every connection, as the egress does.

use crate::failed;
use crate::failure::Failure;
use crate::far_server::RANGE;
use crate::runner::Runner;
use crate::tools::find;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time that a proxy may take until it listens.
const TIMEOUT: Duration = Duration::from_secs(15);

/// One proxy that can be installed.
pub struct Peer {
    /// Name of its program.
    pub name: &'static str,
    /// Package that contains it.
    pub install: &'static str,
    words: &'static [&'static str],
    settings: fn(&Path, u16, u16) -> String,
}

/// All of them.
pub const PEERS: &[Peer] = &[
    Peer {
        name: "tinyproxy",
        install: "apt-get install tinyproxy",
        words: &["-d", "-c"],
        settings: |directory, port, server| {
            format!(
                "Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 100\nAllow 127.0.0.1\nConnectPort {server}\n\
                 LogLevel Connect\nLogFile \"{0}/tinyproxy.log\"\n",
                directory.display(),
            )
        },
    },
    Peer {
        name: "squid",
        install: "apt-get install squid",
        words: &["-N", "-f"],
        settings: |directory, port, server| {
            format!(
                "http_port 127.0.0.1:{port}\nacl server dst {RANGE}\nacl server_port port {server}\n\
                 http_access allow server server_port\nhttp_access deny all\ncache deny all\n\
                 access_log stdio:{0}/access.log\ncache_log {0}/cache.log\npid_filename {0}/squid.pid\n\
                 coredump_dir {0}\nvisible_hostname localhost\npinger_enable off\nshutdown_lifetime 0 seconds\n",
                directory.display(),
            )
        },
    },
];

/// A proxy that listens. It is ended when it is dropped.
pub struct Proxy {
    /// Address on which it listens.
    pub address: SocketAddr,
    child: Child,
}

impl Peer {
    /// Starts it as this identity; `None` when it is not installed.
    pub fn start(&self, runner: &Runner, server: u16) -> Result<Option<Proxy>, Failure> {
        // An ordinary user's PATH often lacks the directory of servers.
        let there = || Some(PathBuf::from("/usr/sbin").join(self.name)).filter(|file| file.is_file());
        let Some(program) = find(self.name).or_else(there) else { return Ok(None) };
        let reported = |error: &dyn std::fmt::Display| failed(&format!("{}: {error}", self.name));
        let directory = runner.directory.join(self.name);
        std::fs::create_dir(&directory).map_err(|error| reported(&error))?;
        std::os::unix::fs::chown(&directory, runner.uid, runner.uid).map_err(|error| reported(&error))?;
        let file = directory.join("settings");
        let port = free_port().map_err(|error| reported(&error))?;
        std::fs::write(&file, (self.settings)(&directory, port, server)).map_err(|error| reported(&error))?;
        let mut command = runner.command(&program);
        command.args(self.words).arg(&file);
        Proxy::wait_for(self.name, command, port).map(Some)
    }
}

impl Proxy {
    /// The egress alone, on the host, as `nexus net proxy`.
    pub fn nexus(runner: &Runner, nexus: &str, server: u16) -> Result<Self, Failure> {
        let port = free_port().map_err(|error| failed(&format!("nexus net proxy: {error}")))?;
        let mut command = runner.command(nexus.as_ref());
        command.args(["net", "proxy", "--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--allow-private", &format!("{RANGE}:{server}")]);
        Self::wait_for("nexus net proxy", command, port)
    }

    fn wait_for(name: &str, mut command: Command, port: u16) -> Result<Self, Failure> {
        let reported = |error: &dyn std::fmt::Display| failed(&format!("{name}: {error}"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut proxy = Self { address, child: child.map_err(|error| reported(&error))? };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = proxy.child.try_wait().map_err(|error| reported(&error))? {
                return Err(reported(&format!("it ended with {status} before it listened")));
            }
            if start.elapsed() > TIMEOUT {
                return Err(reported(&"it does not listen"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Squid removes its shared memory only when it is asked to end; without that the next start of another user fails.
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        let start = Instant::now();
        while asked.as_ref().is_ok_and(std::process::ExitStatus::success) && start.elapsed() < TIMEOUT {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It fails only on a process that has ended; waiting takes what is left of it in either case.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
            crate::announce(&format!("a proxy could not be ended: {error}"));
        }
    }
}

/// Returns a free port. No other program is given it before the proxy takes it: the kernel hands free ports out in
/// turn.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proxy_allows_the_server_and_writes_into_its_directory_alone() {
        for peer in PEERS {
            let text = (peer.settings)("/var/tmp/of-its-own".as_ref(), 3001, 3002);
            assert!(text.contains("3001") && text.contains("3002"), "{}: {text}", peer.name);
            for line in text.lines().filter(|line| line.contains("log") && line.contains('/')) {
                assert!(line.contains("/var/tmp/of-its-own/"), "{}: {line}", peer.name);
            }
        }
    }
}
