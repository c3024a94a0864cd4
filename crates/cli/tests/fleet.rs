//! `nexus up` with the real program: directives from their creation to their receipt, and a restart after a kill.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
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
        self.up_as(self.command())
    }

    fn up_as(&mut self, mut command: Command) -> Duration {
        let clock = Instant::now();
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

/// A server of another user, which answers as a control plane without directives and prints what it was sent.
struct Stranger {
    process: Child,
    heard: BufReader<std::process::ChildStdout>,
    url: String,
}

impl Stranger {
    const SCRIPT: &str = r#"
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
body = b'{"directives": [], "next_cursor": null}'
head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
while True:
    time.sleep(float(sys.argv[1]))
    client, _ = server.accept()
    client.settimeout(5)
    print(client.recv(65536), flush=True)
    try:
        client.sendall(head + body)
    except OSError:
        pass
    client.close()
"#;

    /// Starts it. It takes each connection after `delay` seconds.
    fn start(user: &str, delay: &str) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "/usr/bin/python3", "-c"]);
        let mut process = command.args([Self::SCRIPT, delay]).stdout(Stdio::piped()).spawn().unwrap();
        let mut heard = BufReader::new(process.stdout.take().unwrap());
        let mut port = String::new();
        heard.read_line(&mut port).unwrap();
        Self { process, heard, url: format!("http://127.0.0.1:{}", port.trim()) }
    }

    /// Returns what one connection brought.
    fn heard(&mut self) -> String {
        let mut line = String::new();
        self.heard.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Runs a command with a secret on its standard input.
fn with_input(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_key_goes_to_no_server_of_another_user() {
    if !support::needs_root() {
        return;
    }
    let mut fleet = Fleet::new();
    let user = support::user().to_string();
    "nxk_secret".clone_into(&mut fleet.key);
    // A connection that no process has accepted has no owner yet.
    for delay in ["0", "0.7"] {
        let mut stranger = Stranger::start(&user, delay);
        fleet.url.clone_from(&stranger.url);
        for arguments in [&["directive", "ls"][..], &["facility", "create", "x"], &["territory", "token"]] {
            let refused = fleet.nexus(arguments);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(
                !refused.status.success() && said.contains("nothing was sent"),
                "{delay} {arguments:?}: {refused:?}"
            );
            assert!(said.contains(&format!("the user {user} ")), "{said}");
            assert_eq!(stranger.heard(), "b''", "{delay} {arguments:?}");
        }
        let mut login = fleet.command();
        login.args(["login", &stranger.url]);
        let mut join = fleet.command();
        join.args(["territory", "join", &stranger.url, "--data-dir"]).arg(fleet.path("joined"));
        for command in [login, join] {
            let refused = with_input(command, "nxk_secret");
            assert!(!refused.status.success(), "{refused:?}");
            assert_eq!(stranger.heard(), "b''", "{delay} {refused:?}");
        }
        let named = fleet.nexus(&["directive", "ls", "--server-uid", &user]);
        assert!(named.status.success() && stranger.heard().contains("Bearer nxk_secret"), "{named:?}");
        let other = fleet.nexus(&["directive", "ls", "--server-uid", "4294967294"]);
        assert!(!other.status.success() && stranger.heard() == "b''", "{other:?}");
    }
}

#[test]
fn a_proxy_on_this_machine_shows_a_secret_that_others_cannot_read() {
    use std::os::unix::fs::PermissionsExt;
    let fleet = Fleet::new();
    let file = fleet.path("secret");
    let serve = |secret: &str, mode: Option<u32>| {
        let mut command = fleet.command();
        command.args(["mothership", "serve", "--json", "--listen", "127.0.0.1:0", "--trusted-proxy", "127.0.0.1"]);
        command.arg("--data-dir").arg(fleet.path("data"));
        if let Some(mode) = mode {
            std::fs::write(&file, secret).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            command.arg("--proxy-secret-file").arg(&file);
        }
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        if !ready.is_empty() {
            process.kill().unwrap();
        }
        let said = process.wait_with_output().unwrap();
        (!ready.is_empty(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    let good = "0123456789abcdef0123456789abcdef\n";
    let (is_ready, said) = serve(good, None);
    assert!(!is_ready && said.contains("--proxy-secret-file"), "{said}");
    for (secret, mode) in [(good, 0o644), (good, 0o604), (good, 0o620), ("short", 0o600), ("", 0o600)] {
        let (is_ready, said) = serve(secret, Some(mode));
        assert!(!is_ready && said.contains("the proxy's secret"), "{secret} {mode:o}: {said}");
    }
    for mode in [0o600, 0o640, 0o400] {
        std::fs::remove_file(&file).ok();
        let (is_ready, said) = serve(good, Some(mode));
        assert!(is_ready, "{mode:o}: {said}");
    }
}

#[test]
fn keys_leave_this_machine_under_tls_alone() {
    let mut fleet = Fleet::new();
    "nxk_secret".clone_into(&mut fleet.key);
    // The kernel leads this address to loopback, and no rule of names or addresses calls it that.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fleet.url = format!("http://0.0.0.0:{}", listener.local_addr().unwrap().port());
    let identity = serde_json::json!({
        "version": 1, "territory_id": "00000000-0000-7000-8000-000000000000", "server": fleet.url });
    let joined = fleet.path("joined");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&joined).unwrap();
    std::fs::write(joined.join("identity.json"), identity.to_string()).unwrap();
    let with = |arguments: &[&str]| {
        let mut command = fleet.command();
        command.env("NEXUS_SERVER", &fleet.url).args(arguments);
        command
    };
    let other = fleet.path("other");
    let calls = [
        vec!["login", &fleet.url],
        vec!["territory", "join", &fleet.url, "--data-dir", other.to_str().unwrap()],
        vec!["daemon", "run", "--data-dir", joined.to_str().unwrap()],
    ];
    listener.set_nonblocking(true).unwrap();
    for call in &calls {
        let refused = with_input(with(call), "nxk_secret");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("no TLS") && said.contains("--insecure-http"),
            "{refused:?}"
        );
        assert!(listener.accept().is_err(), "{call:?} connected");
    }
    let refused = fleet.nexus(&["directive", "ls"]);
    assert!(!refused.status.success() && listener.accept().is_err(), "{refused:?}");
    listener.set_nonblocking(false).unwrap();
    let server = std::thread::spawn(move || {
        let body = r#"{"directives": [], "next_cursor": null}"#;
        let heard = |_| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = vec![0; 65536];
            let count = stream.read(&mut heard).unwrap();
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + body).as_bytes()).unwrap();
            String::from_utf8_lossy(&heard[..count]).contains("Bearer nxk_secret")
        };
        (0..2).all(heard)
    });
    let login = with_input(with(&["login", &fleet.url, "--insecure-http"]), "nxk_secret");
    assert!(login.status.success(), "{login:?}");
    let remembered = with(&["directive", "ls"]).output().unwrap();
    assert!(remembered.status.success() && server.join().unwrap(), "{remembered:?}");
}

#[test]
fn silent_connections_keep_no_other_client_out() {
    let mut fleet = Fleet::new();
    let mut limited = Command::new("/bin/sh");
    limited.args(["-c", "ulimit -n 600; exec \"$0\" \"$@\""]).arg(program());
    for (name, value) in fleet.command().get_envs() {
        limited.env(name, value.unwrap());
    }
    fleet.up_as(limited);
    let address = fleet.url.trim_start_matches("http://").to_owned();
    let mut known = TcpStream::connect(&address).unwrap();
    known.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let request = format!(
        "GET /mothership/api/v1/territories HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\r\n",
        fleet.key
    );
    let mut ask = || {
        let mut answer = vec![0; 65536];
        known.write_all(request.as_bytes()).unwrap();
        let count = known.read(&mut answer).unwrap();
        assert!(answer[..count].starts_with(b"HTTP/1.1 200"), "{count}");
    };
    ask();
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.extend((0..400).map(|_| TcpStream::connect(&address).unwrap()));
        let clock = Instant::now();
        fleet.ok(&["directive", "ls"]);
        assert!(clock.elapsed() < Duration::from_secs(4), "{:?}", clock.elapsed());
        ask();
    }
}

/// Prints the figures of docs/performance.md; run by hand.
#[test]
#[ignore = "prints figures of docs/performance.md, and a time is no test"]
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

#[test]
fn a_data_directory_that_another_user_decides_about_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let fleet = Fleet::new();
    let open = fleet.path("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut places = vec![(open.clone(), "only you can write"), (open.join("data"), "is open to others")];
    if support::is_root() {
        let foreign = fleet.path("foreign");
        std::fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(30_099), Some(30_099)).unwrap();
        places.extend([
            (foreign.clone(), "belongs to the user with the id 30099"),
            (foreign.join("data"), "is open to others"),
        ]);
    } else {
        support::skip::partial("only root can make a directory of another user");
    }
    for (place, said) in places {
        let place = place.to_str().unwrap();
        for arguments in [
            &["up", "--listen", "127.0.0.1:0", "--data-dir", place][..],
            &["mothership", "serve", "--listen", "127.0.0.1:0", "--data-dir", place],
            &["daemon", "run", "--data-dir", place],
            &["territory", "join", "http://127.0.0.1:9", "--data-dir", place],
        ] {
            let mut command = fleet.command();
            let mut child = command.args(arguments).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(b"nxe_token\n").ok();
            let began = Instant::now();
            while child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(10));
            }
            // One that serves goes on.
            child.kill().ok();
            let output = child.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(125) && told.contains(said), "{arguments:?}: {told}");
        }
    }
}
