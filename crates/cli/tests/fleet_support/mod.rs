//! The two halves of a fleet as processes of a test, in directories of its own.

#![allow(dead_code, reason = "each test uses a part")]

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Processes by name. They are killed when the value is dropped.
pub struct Scene {
    pub base: tempfile::TempDir,
    pub processes: BTreeMap<String, Child>,
    pub url: String,
    pub key: String,
    /// Arguments of every call of a user and of every daemon.
    pub trust: Vec<String>,
    /// Variables of every process.
    pub variables: Vec<(&'static str, String)>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            kill_process(Pid::from_child(process), Signal::CONT).ok();
            process.kill().ok();
            process.wait().ok();
        }
    }
}

impl Scene {
    pub fn new() -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let (url, key) = Default::default();
        Self { base, processes: BTreeMap::new(), url, key, trust: Vec::new(), variables: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("NEXUS_CONFIG_DIR", self.path("config")).env("NEXUS_STATE_DIR", self.path("state")).args(words);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value.as_str())));
        command
    }

    /// Starts a service and returns its line of JSON. What it says to people goes to a file of its name.
    pub fn serve(&mut self, name: &str, words: &[&str], data: &Path) -> Value {
        self.serve_by(name, words, data, |command| command)
    }

    /// Starts a service by a command that begins with another program, which becomes it.
    pub fn serve_by(
        &mut self,
        name: &str,
        words: &[&str],
        data: &Path,
        change: impl FnOnce(Command) -> Command,
    ) -> Value {
        let log = std::fs::File::options().create(true).append(true).open(self.path(&format!("{name}.log"))).unwrap();
        let mut command = self.command(words);
        command.arg("--data-dir").arg(data);
        let mut command = change(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.processes.insert(name.to_owned(), process);
        let said = self.said(name);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{words:?}: {line:?}: {error}: {said}"))
    }

    /// Returns the lines that a service has written for people so far.
    pub fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Waits until a service has said it.
    pub fn until_said(&self, name: &str, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.said(name).contains(text) {
            assert!(Instant::now() < deadline, "{name} did not say {text:?}: {}", self.said(name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a control plane, and keeps its address and its key.
    pub fn mothership(&mut self, more: &[&str]) {
        self.mothership_by(more, |command| command);
    }

    /// Starts a control plane by a command that begins with another program.
    pub fn mothership_by(&mut self, more: &[&str], change: impl FnOnce(Command) -> Command) {
        let words = [&["mothership", "serve", "--json"], more].concat();
        let data = self.path("mothership");
        let ready = self.serve_by("mothership", &words, &data, change);
        ready["api_url"].as_str().unwrap().clone_into(&mut self.url);
        if let Some(key) = ready["api_key"].as_str() {
            key.clone_into(&mut self.key);
        }
    }

    pub fn territory(&self, number: usize) -> PathBuf {
        self.path(&format!("territory{number}"))
    }

    /// Lets a machine join, with the address of the control plane or that of a relay before it.
    pub fn join(&self, number: usize, url: &str) {
        let token = self.ok(&["territory", "token"]);
        let mut join = self.command(&["territory", "join", url, "--data-dir"]);
        join.arg(self.territory(number)).args(&self.trust).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut join = join.spawn().unwrap();
        join.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
        assert!(join.wait().unwrap().success());
    }

    /// Starts the daemon of a machine that has joined, and returns the id of its territory.
    pub fn daemon(&mut self, number: usize, more: &[&str]) -> String {
        let words = [&["daemon", "run", "--json"], more].concat();
        let data = self.territory(number);
        let ready = self.serve(&format!("daemon{number}"), &words, &data);
        ready["territory_id"].as_str().unwrap().to_owned()
    }

    /// A command of a user.
    pub fn user(&self, words: &[&str]) -> Command {
        let mut command = self.command(words);
        command.env("NEXUS_SERVER", &self.url).env("NEXUS_API_KEY", &self.key).args(&self.trust);
        command
    }

    pub fn nexus(&self, words: &[&str]) -> Output {
        self.user(words).output().unwrap()
    }

    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.nexus(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    /// Lets commands start only with an approval, for this machine and every service of the scene.
    pub fn ask_for_approvals(&self) {
        let directory = self.path("config/policy");
        std::fs::create_dir_all(&directory).unwrap();
        let text = "policy: nexus.policy/1\nid: asks\nlevel: user\napproval: {exec: needs_approval}\n";
        std::fs::write(directory.join("asks.yaml"), text).unwrap();
    }

    /// Writes files of `/etc` in which web.test and db.test are this host, and the operator trusts it.
    pub fn names(&self) -> PathBuf {
        let etc = self.path("etc");
        // Root reads the nearest file of settings, every other user that of the machine.
        let is_root = rustix::process::geteuid().is_root();
        let settings = if is_root { self.path("config") } else { etc.join("nexus") };
        for directory in [&settings, &etc] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(settings.join("config.toml"), TRUSTED).unwrap();
        std::fs::write(etc.join("hosts"), "127.0.0.1 localhost\n127.0.0.1 web.test db.test\n").unwrap();
        // No process listens there, and the kernel refuses at once.
        std::fs::write(etc.join("resolv.conf"), "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n").unwrap();
        etc
    }

    /// Calls the control plane with a key, and returns the status and the answer.
    pub fn call(&self, key: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        let request = format!(
            "{method} /mothership/api/v1{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    /// Reads a text of the control plane with the key of the scene.
    pub fn text(&self, path: &str) -> String {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("Host: {address}\r\nAuthorization: Bearer {}\r\nConnection: close", self.key);
        write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Makes an API key with a role.
    pub fn make_key(&self, role: &str) -> String {
        let (status, made) = self.call(&self.key, "POST", "/api_keys", &format!("{{\"role\":\"{role}\"}}"));
        assert_eq!(status, 201, "{made}");
        made["api_key"].as_str().unwrap().to_owned()
    }

    /// Runs a command of the user with another key.
    pub fn nexus_as(&self, key: &str, words: &[&str]) -> Output {
        self.user(words).env("NEXUS_API_KEY", key).output().unwrap()
    }

    /// Creates a directive with a key, and returns its id and that of the approval that it waits for.
    pub fn asked(&self, key: &str, facility: &str, words: &[&str]) -> (String, String) {
        let made = self.nexus_as(key, &[&["directive", "create", "--facility", facility], words].concat());
        assert!(made.status.success(), "{made:?}");
        let id = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let (_, list) = self.call(&self.key, "GET", "/approvals", "");
        let found = list["approvals"].as_array().unwrap().iter().find(|one| one["directive_id"] == id.as_str());
        let approval = found.unwrap_or_else(|| panic!("{list}"))["approval_id"].as_str().unwrap().to_owned();
        (id, approval)
    }

    pub fn signal(&self, name: &str, signal: Signal) {
        kill_process(Pid::from_child(&self.processes[name]), signal).unwrap();
    }

    /// Kills a process with SIGKILL.
    pub fn kill(&mut self, name: &str) {
        let mut process = self.processes.remove(name).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Waits until a directive is as wanted.
    pub fn until(&self, id: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let one = self.json(&["directive", "show", id, "--json"]);
            if is_it(&one) {
                return one;
            }
            assert!(Instant::now() < deadline, "{one}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    pub fn ended(&self, id: &str) -> Value {
        self.until(id, |one| !["queued", "leased", "running"].contains(&one["state"].as_str().unwrap()))
    }
}

/// The names lead to loopback, which no answer opens; the operator trusts it.
const TRUSTED: &str = "[egress]\ntrusted_ranges = [\"127.0.0.0/8\"]\n";

/// Lays the files of a directory over `/etc`, in a mount namespace of its own.
const IN_ETC: &str = "mount -t overlay -o ro,lowerdir=\"$1\":/etc none /etc && mount --bind \"$1/hosts\" /etc/hosts && \
                      mount --bind \"$1/resolv.conf\" /etc/resolv.conf && shift && exec \"$@\"";

/// Returns the command in a namespace in which the names of [`Scene::names`] hold.
pub fn named(etc: &Path, command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        inside.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    inside.args(["--mount", "/bin/sh", "-c", IN_ETC, "sh"]).arg(etc);
    inside.arg(command.get_program()).args(command.get_args()).env_clear();
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside
}

/// An authority of the test and the certificates that it signs for 127.0.0.1.
pub struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl TestAuthority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&pem, key).unwrap();
        Self { issuer, pem }
    }

    /// Makes a certificate and its key.
    pub fn server(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A relay before a server. It notes what clients send, and can cut connections.
pub struct Relay {
    pub address: SocketAddr,
    /// The server behind it.
    target: Arc<Mutex<SocketAddr>>,
    sent: Arc<Mutex<Vec<u8>>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// No connection goes through.
    down: Arc<AtomicBool>,
}

impl Relay {
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            address: listener.local_addr().unwrap(),
            target: Arc::new(Mutex::new(target)),
            sent: Arc::default(),
            open: Arc::default(),
            down: Arc::default(),
        };
        let (target, sent, open, down) =
            (Arc::clone(&relay.target), Arc::clone(&relay.sent), Arc::clone(&relay.open), Arc::clone(&relay.down));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if down.load(Ordering::SeqCst) {
                    continue;
                }
                let to = *target.lock().unwrap();
                let Ok(server) = TcpStream::connect(to) else { continue };
                for one in [&client, &server] {
                    open.lock().unwrap().push(one.try_clone().unwrap());
                }
                let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let sent = Arc::clone(&sent);
                std::thread::spawn(move || copy(from_client, to_server, Some(&sent)));
                std::thread::spawn(move || copy(server, client, None));
            }
        });
        relay
    }

    /// Leads to another server from now on.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = target;
    }

    /// Cuts every open connection.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// Lets no connection through, or lets them again.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
        if down {
            self.cut();
        }
    }

    /// Everything that clients have sent, as text.
    pub fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, note: Option<&Mutex<Vec<u8>>>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Some(note) = note {
            note.lock().unwrap().extend(&buffer[..count]);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Both).ok();
    from.shutdown(Shutdown::Both).ok();
}

/// Returns the address of an `http` or `https` URL with a number in it.
pub fn address_of(url: &str) -> SocketAddr {
    url.rsplit("//").next().unwrap().parse().unwrap()
}
