//! `nexus run --facility` with the real program: a workspace that outlives its runs, one run at a time.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

struct Scene {
    base: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { base: tempfile::tempdir_in("/var/tmp").unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("NEXUS_CONFIG_DIR", self.path("config")).env("NEXUS_STATE_DIR", self.path("state"));
        command.current_dir(self.base.path()).args(["run", "--profile", "none"]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }
}

#[test]
fn a_facility_outlives_its_runs_and_has_one_at_a_time() {
    let scene = Scene::new();
    let first = scene.run(&["--facility", "cache", "--", "/bin/sh", "-c", "pwd; echo kept > file"]);
    assert!(first.status.success(), "{first:?}");
    assert_eq!(String::from_utf8_lossy(&first.stdout), "/workspace\n");
    let tree = scene.path("state-facilities/cache/tree");
    assert_eq!(std::fs::read_to_string(tree.join("file")).unwrap(), "kept\n");
    let second = scene.run(&["--facility", "cache", "--changes", "discard", "--shell", "cat file; echo lost > file"]);
    assert_eq!(String::from_utf8_lossy(&second.stdout), "kept\n", "{second:?}");
    assert_eq!(std::fs::read_to_string(tree.join("file")).unwrap(), "kept\n");
    // While a run works in it, another one is refused and changes nothing.
    let mut holder = scene.command(&["--facility", "cache", "--shell", "echo ready; sleep 60"]);
    let mut holder = holder.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let refused = scene.run(&["--facility", "cache", "--shell", "echo other > file"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another run works in it"), "{refused:?}");
    assert!(scene.run(&["--facility", "other", "--", "/bin/true"]).status.success(), "another facility is free");
    // A holder that is killed lets go.
    holder.kill().unwrap();
    holder.wait().unwrap();
    let next = scene.run(&["--facility", "cache", "--shell", "cat file"]);
    assert_eq!(String::from_utf8_lossy(&next.stdout), "kept\n", "{next:?}");
}

#[test]
fn a_detached_run_keeps_its_facility_until_it_ends() {
    let scene = Scene::new();
    let begun = scene.run(&["--facility", "cache", "--detach", "--name", "long", "--shell", "sleep 60"]);
    assert!(begun.status.success(), "{begun:?}");
    let refused = scene.run(&["--facility", "cache", "--", "/bin/true"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    let mut stop = Command::new(env!("CARGO_BIN_EXE_nexus"));
    stop.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", scene.path("home"));
    stop.env("NEXUS_CONFIG_DIR", scene.path("config")).env("NEXUS_STATE_DIR", scene.path("state"));
    let stopped = stop.args(["stop", "long"]).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    let waited = std::time::Instant::now();
    while !scene.run(&["--facility", "cache", "--", "/bin/true"]).status.success() {
        assert!(waited.elapsed().as_secs() < 30, "the facility is not free");
    }
}

#[test]
fn the_name_of_a_facility_is_no_path_and_excludes_a_workspace() {
    let scene = Scene::new();
    for bad in ["../x", "/etc", ".hidden", ""] {
        let refused = scene.run(&["--facility", bad, "--", "/bin/true"]);
        assert_eq!(refused.status.code(), Some(2), "{bad:?}: {refused:?}");
    }
    let both = scene.run(&["--facility", "a", "--workspace", "/var/tmp", "--", "/bin/true"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    assert!(!scene.path("state-facilities").exists());
}
