//! Detached sandboxes as a test sees them.

use super::{Bench, stderr, stdout, wait_until};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

/// Longest time that anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

impl Bench {
    /// Starts a detached sandbox with these further arguments and returns what was printed: id or name.
    pub fn detach(&self, arguments: &[&str]) -> String {
        let output = self.run([&["run", "--detach"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}: {}", self.who(), stderr(&output));
        stdout(&output).trim().to_owned()
    }

    /// All sandboxes, as `nexus ps --all --json` tells them.
    pub fn sessions(&self) -> Vec<serde_json::Value> {
        let output = self.run(["ps", "--all", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["sessions"].as_array().unwrap().clone()
    }

    /// One of them, by id or name.
    pub fn session(&self, which: &str) -> serde_json::Value {
        let found = self.sessions().into_iter().find(|session| session["id"] == which || session["name"] == which);
        found.unwrap_or_else(|| panic!("there is no {which}"))
    }

    /// Waits until it is in this state.
    pub fn wait_for_state(&self, which: &str, state: &str) {
        wait_until(&format!("{which} to be {state}"), PATIENCE, || self.session(which)["state"] == state);
    }

    /// The number of its supervisor.
    pub fn supervisor(&self, which: &str) -> i32 {
        self.session(which)["pid"].as_i64().unwrap() as i32
    }

    /// `nexus exec` of a shell script.
    pub fn exec(&self, which: &str, script: &str) -> Output {
        self.run(["exec", which, "--", "sh", "-c", script])
    }

    /// The directory in which everything about it lies.
    pub fn session_folder(&self, id: &str) -> PathBuf {
        self.state.join("sessions").join(id)
    }

    /// A connection to its supervisor, as this process.
    pub fn connect(&self, id: &str) -> UnixStream {
        UnixStream::connect(self.session_folder(id).join("socket")).unwrap()
    }
}
