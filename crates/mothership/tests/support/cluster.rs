//! A PostgreSQL server of the tests: in a temporary directory, run by a user without rights, on a socket and on loopback. It ends
//! with the process of the tests, however that ends: its keeper waits for the end of a pipe.

#![allow(dead_code, reason = "each test uses a part")]

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub const PASSWORD: &str = "a password, of the tests";
const NOBODY: u32 = 65_534;

pub struct Cluster {
    directory: PathBuf,
    port: u16,
    is_durable: bool,
    keeper: Mutex<Child>,
}

/// The server of this process.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(Cluster::start)
}

/// The newest installed version of a program.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("the package postgresql is needed");
    let found = versions.map(|version| version.unwrap().path().join("bin").join(name)).filter(|path| path.exists());
    found.max().expect("the package postgresql is needed")
}

/// The directory of the programs.
pub fn programs() -> PathBuf {
    program("pg_dump").parent().unwrap().to_owned()
}

impl Cluster {
    /// Starts a server of its own, which a test may stop and start.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a server that waits for the disk, as one in use does.
    pub fn start_durable() -> Self {
        Self::start_as(None, true)
    }

    /// Starts a server, with TLS when a certificate and its key are given.
    pub fn start_with(tls: Option<(&str, &str)>) -> Self {
        Self::start_as(tls, false)
    }

    fn start_as(tls: Option<(&str, &str)>, is_durable: bool) -> Self {
        // Short: the path of a socket has about 100 bytes.
        let place = if is_durable { "/var/tmp" } else { "/tmp" };
        let directory = tempfile::Builder::new().prefix("nx-pg-").tempdir_in(place).unwrap().keep();
        let is_root = rustix_uid() == 0;
        if is_root {
            chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        let mut init = Command::new(program("initdb"));
        init.arg("-D").arg(directory.join("data")).args(["-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]);
        init.args(["--auth-local=trust", "--auth-host=scram-sha-256"]).current_dir("/");
        as_nobody(&mut init);
        let output = init.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        if let Some((certificate, key)) = tls {
            for (name, text) in [("server.crt", certificate), ("server.key", key)] {
                let path = directory.join("data").join(name);
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
                if is_root {
                    chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
                }
            }
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Self { keeper: Mutex::new(keeper(&directory, port, is_durable)), directory, port, is_durable };
        cluster.wait();
        cluster.sql("postgres", &format!("CREATE ROLE nexus LOGIN PASSWORD '{PASSWORD}'"));
        cluster
    }

    /// Kills the server as a loss of power would, and starts it again.
    pub fn restart_after(&self, pause: Duration) {
        let mut keeper_now = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        assert!(Command::new("kill").args(["-QUIT", &pid]).status().unwrap().success());
        keeper_now.wait().unwrap();
        std::thread::sleep(pause);
        *keeper_now = keeper(&self.directory, self.port, self.is_durable);
        drop(keeper_now);
        self.wait();
    }

    /// Lets all processes of the server stand still, or go on.
    pub fn stand_still(&self, is_still: bool) {
        let pid = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        let signal = if is_still { "-STOP" } else { "-CONT" };
        // First the one that would start others.
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        Command::new("kill").arg(signal).args(children.split_whitespace()).status().unwrap();
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.psql("postgres", "SELECT 1").status.success() {
            assert!(
                Instant::now() < end,
                "PostgreSQL does not start: {:?}",
                std::fs::read_to_string(self.directory.join("log"))
            );
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Makes a database and returns its name.
    pub fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("fleet{}", NEXT.fetch_add(1, Ordering::SeqCst));
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER nexus"));
        name
    }

    /// The address of a database at the socket, where the user is believed.
    pub fn url(&self, name: &str) -> String {
        format!("postgres:///{name}?user=nexus&port={}&host={}", self.port, self.directory.display())
    }

    /// The address of a database over TCP, with a password.
    pub fn tcp_url(&self, name: &str, password: &str) -> String {
        format!("postgres://nexus:{}@127.0.0.1:{}/{name}", password.replace(' ', "%20"), self.port)
    }

    /// Runs statements as the owner of everything and returns what they print.
    pub fn sql(&self, database: &str, text: &str) -> String {
        let output = self.psql(database, text);
        assert!(output.status.success(), "{text}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn psql(&self, database: &str, text: &str) -> std::process::Output {
        let mut command = self.tool("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text]).output().unwrap()
    }

    /// A program of the package, with the address of this server.
    pub fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.arg("-h").arg(&self.directory).args(["-p", &self.port.to_string(), "-U", "postgres"]).env_clear();
        command
    }
}

fn rustix_uid() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
}

fn as_nobody(command: &mut Command) {
    if rustix_uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
}

fn keeper(directory: &Path, port: u16, is_durable: bool) -> Child {
    // The standard input of the keeper ends with this process. The directory goes then, unless a test has it started again.
    let script = r#"
        tls=off; [ -e data/server.crt ] && tls=on
        "$0" -D data -c ssl=$tls -k "$PWD" -p "$1" -c listen_addresses=127.0.0.1 -c fsync="$3" -c max_connections=200 \
            -c shared_buffers=64MB >>log 2>&1 </dev/null &
        server=$!
        { read -r _; kill -QUIT $server 2>/dev/null; sleep 0.2; cd /; rm -rf "$2"; } <&3 >/dev/null 2>&1 3<&- &
        exec 3<&-
        wait $server
    "#;
    let script = format!("exec 3<&0\n{script}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(program("postgres")).arg(port.to_string()).arg(directory);
    command.arg(if is_durable { "on" } else { "off" });
    command.current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    as_nobody(&mut command);
    let mut keeper = command.spawn().unwrap();
    // Open until this process ends: waiting for a child would close it.
    Box::leak(Box::new(keeper.stdin.take()));
    keeper
}
