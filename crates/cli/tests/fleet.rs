//! `nexus up` with the real program: directives from their creation to their receipt, and a restart after a kill.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_nexus"))
}

/// A fleet of one machine in directories of its own.
struct Fleet {
    base: tempfile::TempDir,
    process: Option<Child>,
    url: String,
    key: String,
}

impl Fleet {
    fn new() -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        Self { base, process: None, url: String::new(), key: String::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("NEXUS_CONFIG_DIR", self.path("config")).env("NEXUS_STATE_DIR", self.path("state"));
        command
    }

    /// Starts `nexus up` and waits until it is ready.
    fn up(&mut self) -> Duration {
        let clock = Instant::now();
        let mut command = self.command();
        command.args(["up", "--json", "--listen", "127.0.0.1:0", "--data-dir"]).arg(self.path("data"));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        ready["api_url"].as_str().unwrap().clone_into(&mut self.url);
        if let Some(key) = ready["api_key"].as_str() {
            assert!(self.key.is_empty(), "the key is printed once");
            key.clone_into(&mut self.key);
        }
        assert!(ready["territory_id"].is_string());
        self.process = Some(process);
        clock.elapsed()
    }

    fn nexus(&self, arguments: &[&str]) -> Output {
        let mut command = self.command();
        command.env("NEXUS_SERVER", &self.url).env("NEXUS_API_KEY", &self.key).args(arguments).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.nexus(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(arguments)).unwrap()
    }

    fn create(&self, facility: &str, more: &[&str], script: &str) -> String {
        let arguments = [&["directive", "create", "--facility", facility][..], more, &["--", script]].concat();
        self.ok(&arguments).trim().to_owned()
    }

    /// Waits for a state of a directive.
    fn until(&self, id: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let one = self.json(&["directive", "show", "--json", id]);
            if is_it(&one) {
                return one;
            }
            assert!(Instant::now() < deadline, "{one}");
        }
    }

    fn ended(&self, id: &str) -> Value {
        self.until(id, |one| !["queued", "leased", "running"].contains(&one["state"].as_str().unwrap()))
    }

    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

fn tree(fleet: &Fleet, facility: &str) -> PathBuf {
    fleet.path("data/territory/facilities").join(facility).join("tree")
}

/// Checks a receipt with the keys of the territory.
fn is_valid(fleet: &Fleet, receipt: &Path) -> bool {
    let mut command = fleet.command();
    command.env("NEXUS_STATE_DIR", fleet.path("data/territory/state"));
    command.args(["receipt", "verify"]).arg(receipt).output().unwrap().status.success()
}

#[test]
fn a_directive_goes_from_its_creation_to_a_verified_receipt() {
    let mut fleet = Fleet::new();
    fleet.up();
    let facility = fleet.ok(&["facility", "create", "project"]).trim().to_owned();
    let script = "pwd; echo some >&2; echo content > file; exit 3";
    let followed = fleet.nexus(&["directive", "create", "--facility", &facility, "--follow", "--", script]);
    assert_eq!(followed.status.code(), Some(3), "{followed:?}");
    assert_eq!(String::from_utf8_lossy(&followed.stdout), "/workspace\n");
    assert!(String::from_utf8_lossy(&followed.stderr).starts_with("some\n"), "{followed:?}");
    assert_eq!(std::fs::read_to_string(tree(&fleet, &facility).join("file")).unwrap(), "content\n");
    let list = fleet.json(&["directive", "ls", "--json"]);
    let id = list["directives"][0]["directive_id"].as_str().unwrap().to_owned();
    let one = fleet.json(&["directive", "show", "--json", &id]);
    assert_eq!((one["state"].as_str(), one["exit_code"].as_i64()), (Some("failed"), Some(3)), "{one}");
    assert!(fleet.ok(&["directive", "diff", &id]).contains("+content"));
    let receipt = fleet.path("receipt.json");
    std::fs::write(&receipt, fleet.ok(&["directive", "receipt", &id])).unwrap();
    assert!(is_valid(&fleet, &receipt));
    let text = std::fs::read_to_string(&receipt).unwrap();
    std::fs::write(&receipt, text.replacen("\"payload\":\"e", "\"payload\":\"f", 1)).unwrap();
    assert!(!is_valid(&fleet, &receipt), "a changed receipt");
    // A cancel and a time limit.
    let id = fleet.create(&facility, &[], "echo ready; sleep 60");
    fleet.until(&id, |one| one["state"] == "running");
    fleet.ok(&["directive", "cancel", &id]);
    assert_eq!(fleet.ended(&id)["state"], "canceled");
    let id = fleet.create(&facility, &["--timeout", "1s"], "echo before; sleep 60");
    let timed_out = fleet.nexus(&["directive", "logs", "-f", &id]);
    assert_eq!((timed_out.status.code(), &timed_out.stdout[..]), (Some(124), &b"before\n"[..]));
    let territories = fleet.json(&["territory", "ls", "--json"]);
    assert_eq!(territories["territories"][0]["status"], "online");
    fleet.ok(&["facility", "rm", &facility, "--data-dir", fleet.path("data").to_str().unwrap()]);
    assert!(!tree(&fleet, &facility).exists());
}

#[test]
fn after_a_kill_nothing_is_lost_and_nothing_runs_twice() {
    let mut fleet = Fleet::new();
    fleet.up();
    let facility = fleet.ok(&["facility", "create"]).trim().to_owned();
    let other = fleet.ok(&["facility", "create"]).trim().to_owned();
    let marks = "/workspace/marks";
    let first = fleet.create(&facility, &[], &format!("echo done >> {marks}"));
    assert_eq!(fleet.ended(&first)["state"], "succeeded");
    let running = fleet.create(&other, &[], &format!("echo began >> {marks}; echo began; sleep 60"));
    fleet.until(&running, |one| one["state"] == "running");
    fleet.until(&running, |_| fleet.ok(&["directive", "logs", &running]).contains("began"));
    // It waits for its facility, and so for the restart.
    let waiting = fleet.create(&other, &[], &format!("echo next >> {marks}"));
    fleet.kill();
    let ready = fleet.up();
    println!("ready again after {ready:?}");
    let lost = fleet.ended(&running);
    assert_eq!((lost["state"].as_str(), lost["reason"].as_str()), (Some("failed"), Some("lease_lost")), "{lost}");
    assert_eq!(fleet.ended(&waiting)["state"], "succeeded");
    assert_eq!(fleet.ok(&["directive", "logs", &running]), "began\n");
    assert_eq!(fleet.json(&["directive", "show", "--json", &first])["state"], "succeeded");
    let content = |facility: &str| std::fs::read_to_string(tree(&fleet, facility).join("marks")).unwrap();
    assert_eq!((content(&facility), content(&other)), ("done\n".to_owned(), "next\n".to_owned()));
}

#[test]
fn a_login_is_kept_from_other_users_and_used_afterwards() {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    let mut fleet = Fleet::new();
    fleet.up();
    let login = |key: &str| {
        let mut command = fleet.command();
        let mut child =
            command.args(["login", &fleet.url]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
        child.wait().unwrap().success()
    };
    let file = fleet.path("config/login.json");
    assert!(!login("nxk_wrong") && !file.exists(), "a key that opens nothing is not remembered");
    assert!(login(&fleet.key));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let list = || fleet.command().args(["directive", "ls"]).output().unwrap();
    assert!(list().status.success());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = list();
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("nexus login"),
        "{refused:?}"
    );
}

#[test]
fn a_fleet_of_one_machine_listens_on_loopback_only() {
    let fleet = Fleet::new();
    for arguments in [["up", "--listen"], ["mothership serve", "--listen"]] {
        let mut command = fleet.command();
        command
            .args(arguments[0].split(' '))
            .arg(arguments[1])
            .arg("0.0.0.0:0")
            .arg("--data-dir")
            .arg(fleet.path("data"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    assert!(!fleet.path("data").exists());
}

/// Prints the figures of docs/performance.md; run by hand.
#[test]
#[ignore = "measures"]
fn cost_of_a_directive_beside_a_run() {
    let mut fleet = Fleet::new();
    println!("ready after {:?}", fleet.up());
    let facility = fleet.ok(&["facility", "create"]).trim().to_owned();
    let workspace = fleet.path("w");
    std::fs::create_dir(&workspace).unwrap();
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (mut runs, mut directives, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..40 {
        let mut command = fleet.command();
        command.args(["run", "--profile", "none", "--workspace"]).arg(&workspace).args(["--", "/bin/sh", "-c", "true"]);
        let clock = Instant::now();
        assert!(command.output().unwrap().status.success());
        runs.push(clock.elapsed().as_secs_f64() * 1000.0);
        let id = fleet.create(&facility, &[], "true");
        let one = fleet.ended(&id);
        directives.push(one["timing"]["duration_ms"].as_f64().unwrap());
        let at = |name: &str| {
            let text = one[name].as_str().unwrap();
            let seconds = text.split('T').nth(1).unwrap().trim_end_matches('Z');
            seconds.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
        };
        whole.push((at("ended_at") - at("created_at")) * 1000.0);
    }
    println!(
        "nexus run {:.1} ms; a directive from create to finished {:.1} ms, of it the run {:.1} ms",
        median(runs),
        median(whole),
        median(directives)
    );
}
