//! A small world for tests of the network: a server on loopback, and names for it that only the test's own processes
//! know.

use super::{Bench, is_root, user};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Answers every HTTP request with `hello`, and `/endless` with bytes until the client stops reading.
pub struct Server {
    /// Port on 127.0.0.1.
    pub port: u16,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Server {
    /// Starts it; it ends with the test's process.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, accepted: Arc::default(), open: Arc::default() };
        let (accepted, open) = (Arc::clone(&server.accepted), Arc::clone(&server.open));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                accepted.fetch_add(1, Ordering::SeqCst);
                let open = Arc::clone(&open);
                open.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    // A client that leaves early is part of some tests.
                    serve(stream).ok();
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// Connections that ever came.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Counts from zero again.
    pub fn forget(&self) {
        self.accepted.store(0, Ordering::SeqCst);
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(());
        }
        head.push(byte[0]);
    }
    if let Some(rest) = head.strip_prefix(b"GET /to/") {
        let port = stream.local_addr()?.port();
        let host = String::from_utf8_lossy(rest).split(' ').next().unwrap_or_default().to_owned();
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{host}:{port}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        return stream.write_all(answer.as_bytes());
    }
    if head.starts_with(b"GET /endless") {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        loop {
            stream.write_all(&[b'x'; 4096])?;
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")
}

/// Names that stand in the hosts file of the commands that [`Named::nexus`] makes; nothing else resolves there.
pub struct Named {
    hosts: PathBuf,
    resolv: PathBuf,
    /// Lies over `/etc`, where the operator's settings are.
    etc: Option<PathBuf>,
}

/// Script that prepares the namespace before the command. Its arguments are the two files, the uid, the command.
const PREPARE: &str = "mount --bind \"$1\" /etc/hosts && mount --bind \"$2\" /etc/resolv.conf && eval \"$3\" && \
                       uid=$4 && shift 4 && exec setpriv --reuid \"$uid\" --regid \"$uid\" --clear-groups \
                       --inh-caps=-all --ambient-caps=-all \"$@\"";

impl Named {
    /// `web.test` and `db.test` are this host.
    pub fn new(bench: &Bench) -> Self {
        let base = bench.base.path();
        let named = Self { hosts: base.join("hosts"), resolv: base.join("resolv.conf"), etc: None };
        fs::write(&named.hosts, "127.0.0.1 localhost\n127.0.0.1 web.test db.test\n").unwrap();
        // No process listens there, and the kernel refuses at once.
        fs::write(&named.resolv, "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n").unwrap();
        named
    }

    /// The operator's `config.toml` of that machine, for root and for an ordinary user.
    pub fn with_settings(self, text: &str) -> Self {
        let etc = self.hosts.with_file_name("etc");
        fs::create_dir_all(etc.join("nexus")).unwrap();
        fs::write(etc.join("nexus/config.toml"), text).unwrap();
        for file in [&self.hosts, &self.resolv] {
            fs::copy(file, etc.join(file.file_name().unwrap())).unwrap();
        }
        Self { etc: Some(etc), ..self }
    }

    /// `nexus` with these arguments in a mount namespace where the names hold.
    pub fn nexus<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, bench: &Bench, arguments: I) -> Command {
        self.prepared(bench, ":", arguments)
    }

    /// The same after another command of the shell.
    pub fn prepared<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        bench: &Bench,
        before: &str,
        arguments: I,
    ) -> Command {
        let mut command = Command::new("unshare");
        if !is_root() {
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        let nexus = bench.nexus(arguments);
        let before = match &self.etc {
            None => before.to_owned(),
            Some(etc) => format!("mount -t overlay -o ro,lowerdir={}:/etc none /etc && {before}", etc.display()),
        };
        // A process that maps its own id alone keeps its groups (user_namespaces(7): no setgroups).
        let prepare = if is_root() { PREPARE.to_owned() } else { PREPARE.replace("--clear-groups", "--keep-groups") };
        command.args(["--mount", "/bin/sh", "-c", &prepare, "sh"]).arg(&self.hosts).arg(&self.resolv).arg(before);
        let uid = if is_root() { bench.user.unwrap_or(0) } else { rustix::process::geteuid().as_raw() };
        assert!([0, user()].contains(&uid) || !is_root());
        command.arg(uid.to_string()).arg(nexus.get_program()).args(nexus.get_args());
        command.env_clear().current_dir(&bench.workspace).stdin(std::process::Stdio::null());
        command.envs(nexus.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// The same for a terminal: the command is the first of its session there.
    pub fn on_terminal<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, bench: &Bench, arguments: I) -> Command {
        let inner = self.nexus(bench, arguments);
        let mut command = bench.command("setsid");
        command.args(["--ctty", "--"]).arg(inner.get_program()).args(inner.get_args());
        // setsid itself stays root where the namespace needs it.
        if is_root() {
            command.uid(0).gid(0);
        }
        command
    }

    /// Runs it to its end.
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, bench: &Bench, arguments: I) -> Output {
        self.nexus(bench, arguments).output().unwrap()
    }
}

/// A process that ends with the test, however that ends.
pub struct Running(Option<Child>);

impl Running {
    /// Waits for it.
    pub fn wait_with_output(mut self) -> std::io::Result<Output> {
        self.0.take().unwrap().wait_with_output()
    }
}

impl std::ops::Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended on its own.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// `nexus net proxy` with these rules and its address.
pub fn proxy(named: &Named, bench: &Bench, flags: &[&str]) -> (Running, String) {
    let mut child = named
        .nexus(bench, ["net", "proxy"].iter().chain(flags))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (Running(Some(child)), line.trim().to_owned())
}
