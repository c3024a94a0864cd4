//! Programs of the test in directories of their own.

use super::Repository;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Programs of the test in directories of their own.
pub struct Scene {
    pub base: tempfile::TempDir,
    pub processes: Vec<Option<Child>>,
    /// Arguments of every client that name the authority of a server with TLS.
    pub trust: Vec<String>,
    /// The only authority of the machines of the territories.
    pub authority: Option<PathBuf>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

impl Scene {
    pub fn new() -> Self {
        Self {
            base: tempfile::tempdir_in("/var/tmp").unwrap(),
            processes: Vec::new(),
            trust: Vec::new(),
            authority: None,
        }
    }

    /// Kills a service.
    pub fn kill(&mut self, at: usize) {
        let mut process = self.processes[at].take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("NEXUS_CONFIG_DIR", self.path("config")).env("NEXUS_STATE_DIR", self.path("state")).args(words);
        command
    }

    /// Starts a service and returns its line of JSON.
    pub fn serve(&mut self, at: usize, words: &[&str], data: &Path) -> Value {
        let command = self.command(words);
        self.start(at, command, data)
    }

    /// Starts a command as a service and returns its line of JSON.
    pub fn start(&mut self, at: usize, mut command: Command, data: &Path) -> Value {
        command.arg("--data-dir").arg(data).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.processes.resize_with(self.processes.len().max(at + 1), || None);
        self.processes[at] = Some(process);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{at} said {line:?}: {error}"))
    }

    pub fn territory(&self, number: usize) -> PathBuf {
        self.path(&format!("territory{number}"))
    }

    pub fn daemon(&mut self, number: usize) -> String {
        self.daemon_by(number, |command| command)
    }

    /// Starts a daemon by a command that begins with another program.
    pub fn daemon_by(&mut self, number: usize, change: impl FnOnce(Command) -> Command) -> String {
        let data = self.territory(number);
        let command = self.command(&["daemon", "run", "--max-concurrent", "3", "--json"]);
        let trusted = self.authority.as_ref().map(|certificate| Repository::trusted_by(certificate, &command));
        let command = change(trusted.unwrap_or(command));
        self.start(1 + number, command, &data)["territory_id"].as_str().unwrap().to_owned()
    }

    pub fn join(&self, number: usize, url: &str, key: &str) {
        self.join_by(number, url, key, |command| command);
    }

    /// Lets a machine join by commands that begin with another program.
    pub fn join_by(&self, number: usize, url: &str, key: &str, change: impl Fn(Command) -> Command) {
        let mut token = self.command(&["territory", "token"]);
        token.args(&self.trust).env("NEXUS_SERVER", url).env("NEXUS_API_KEY", key);
        let token = change(token).output().unwrap();
        let mut join = self.command(&["territory", "join", url, "--data-dir"]);
        join.arg(self.territory(number)).args(&self.trust);
        let mut join = change(join).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        join.stdin.take().unwrap().write_all(&token.stdout).unwrap();
        assert!(join.wait().unwrap().success(), "{token:?}");
    }
}
