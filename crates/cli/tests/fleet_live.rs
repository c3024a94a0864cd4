//! A fleet with the real program: TLS of the control plane, live events, settings that are read again.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod fleet_support;
#[path = "../../../tests/support/skip.rs"]
mod skip;

use fleet_support::{Relay, Scene, TestAuthority, address_of};
use nexus_api::client::{TlsFiles, tls_config};
use rustix::process::Signal;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOPBACK: &str = "127.0.0.1:0";

/// Writes a file of its user alone.
fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A control plane with TLS and the certificate of an authority of the test.
fn with_tls(authority: &TestAuthority) -> Scene {
    with_tls_in(Scene::new(), authority)
}

fn with_tls_in(mut scene: Scene, authority: &TestAuthority) -> Scene {
    let (certificate, key) = authority.server();
    write(&scene.path("cert.pem"), &certificate, 0o644);
    write(&scene.path("key.pem"), &key, 0o600);
    write(&scene.path("ca.pem"), &authority.pem, 0o644);
    scene.trust = vec!["--ca".to_owned(), scene.path("ca.pem").to_str().unwrap().to_owned()];
    let (certificate, key) = (scene.path("cert.pem"), scene.path("key.pem"));
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    scene.mothership(&[&["--listen", LOOPBACK][..], &files].concat());
    scene
}

/// A connection over TLS that is kept open.
struct Tls {
    connection: rustls::ClientConnection,
    tcp: TcpStream,
}

impl Tls {
    fn open(url: &str, ca_pem: &str) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = tls_config(&TlsFiles { ca_pem, identity: None }, provider).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = rustls::ClientConnection::new(config, name).unwrap();
        let tcp = TcpStream::connect(address_of(url)).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut tls = Self { connection, tcp };
        assert_eq!(tls.healthz(), 200);
        tls
    }

    fn healthz(&mut self) -> u16 {
        let mut stream = rustls::Stream::new(&mut self.connection, &mut self.tcp);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        let mut answer = [0; 4096];
        let count = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..count]).split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn certificate(&self) -> Vec<u8> {
        self.connection.peer_certificates().unwrap()[0].to_vec()
    }
}

#[test]
fn a_control_plane_with_tls_serves_users_and_daemons() {
    let authority = TestAuthority::new();
    let mut scene = with_tls(&authority);
    assert!(scene.url.starts_with("https://127.0.0.1:"), "{}", scene.url);
    scene.join(0, &scene.url);
    scene.daemon(0, &[]);
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    let words = ["directive", "create", "--facility", &facility, "--follow"];
    let followed = scene.user(&words).args(["--", "echo over tls; exit 5"]).output().unwrap();
    assert_eq!((followed.status.code(), &followed.stdout[..]), (Some(5), &b"over tls\n"[..]), "{followed:?}");
    // A territory is known by its certificate: without one, the id in a header is nothing.
    let identity = std::fs::read_to_string(scene.territory(0).join("identity.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&identity).unwrap()["certificate"].is_string(), "{identity}");
    // Another authority, and no TLS at all.
    write(&scene.path("other.pem"), &TestAuthority::new().pem, 0o644);
    let other = scene.path("other.pem");
    let words = ["directive", "ls", "--ca", other.to_str().unwrap()];
    let refused =
        scene.command(&words).env("NEXUS_SERVER", &scene.url).env("NEXUS_API_KEY", &scene.key).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    let mut plain = TcpStream::connect(address_of(&scene.url)).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).ok();
    assert!(!answer.starts_with(b"HTTP"), "a request in clear has no answer: {answer:?}");
    assert_eq!(alert_for(&scene.url, [3, 3], None), None, "a hello of TLS 1.2 is answered");
    for version in [[3, 2], [3, 1]] {
        // Alert 70: the version of the protocol.
        assert_eq!(alert_for(&scene.url, version, Some(())), Some(70), "{version:?}");
    }
}

/// Sends the first message of a client of one version, and returns the number of the fatal alert that answers it.
fn alert_for(url: &str, version: [u8; 2], expected: Option<()>) -> Option<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    // No session; ECDHE with AES-GCM and with AES-CBC; no compression.
    body.extend([0, 0, 6, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x13, 1, 0]);
    // Groups x25519 and P-256, points, signatures ECDSA and RSA with SHA-256.
    let extensions: &[u8] =
        &[0, 10, 0, 6, 0, 4, 0, 29, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 6, 0, 4, 4, 3, 4, 1, 0, 23, 0, 0];
    body.extend([0, u8::try_from(extensions.len()).unwrap()]);
    body.extend(extensions);
    let mut record = vec![22, 3, 1, 0, u8::try_from(body.len() + 4).unwrap(), 1, 0, 0];
    record.push(u8::try_from(body.len()).unwrap());
    record.extend(body);
    let mut tcp = TcpStream::connect(address_of(url)).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    tcp.write_all(&record).unwrap();
    let mut head = [0; 7];
    tcp.read_exact(&mut head).unwrap();
    assert!(head[0] == 21 || expected.is_none(), "{head:?}");
    (head[0] == 21 && head[5] == 2).then_some(head[6])
}

#[test]
fn a_certificate_is_read_again_on_a_signal() {
    let authority = TestAuthority::new();
    let scene = with_tls(&authority);
    let mut first = Tls::open(&scene.url, &authority.pem);
    let (certificate, key) = authority.server();
    write(&scene.path("cert.pem"), &certificate, 0o644);
    // Between the two writes of a renewal the files do not belong together.
    scene.signal("mothership", Signal::HUP);
    scene.until_said("mothership", "The certificate stays as it was.");
    assert_eq!(Tls::open(&scene.url, &authority.pem).certificate(), first.certificate());
    write(&scene.path("key.pem"), &key, 0o644);
    scene.signal("mothership", Signal::HUP);
    scene.until_said("mothership", "other users can read or change it");
    assert_eq!(Tls::open(&scene.url, &authority.pem).certificate(), first.certificate());
    write(&scene.path("key.pem"), &key, 0o600);
    scene.signal("mothership", Signal::HUP);
    scene.until_said("mothership", "The certificate was read again.");
    let second = Tls::open(&scene.url, &authority.pem);
    assert_ne!(second.certificate(), first.certificate());
    assert_eq!(first.healthz(), 200, "a connection that is open goes on");
    scene.ok(&["directive", "ls"]);
}

/// A control plane whose certificates for territories hold for a few seconds, and a daemon that lives longer.
#[cfg(feature = "inject")]
#[test]
fn a_daemon_renews_its_certificate_before_it_ends() {
    let life = Duration::from_secs(6);
    let mut scene = Scene::new();
    scene.variables.push(("NEXUS_INJECT_CERTIFICATE_MS", life.as_millis().to_string()));
    let mut scene = with_tls_in(scene, &TestAuthority::new());
    let relay = Relay::start(address_of(&scene.url));
    scene.join(0, &format!("https://{}", relay.address));
    let (joined, file) = (Instant::now(), scene.territory(0).join("certificate.json"));
    let read = || serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap();
    let first = read();
    scene.daemon(0, &[]);
    scene.until_said("daemon0", "was renewed");
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    std::thread::sleep((joined + life + Duration::from_secs(1)).saturating_duration_since(Instant::now()));
    // The certificate of the enrolment is over, and open connections do not ask for one again.
    relay.cut();
    let ca = scene.trust[1].clone();
    let id = scene.ok(&["directive", "create", "--facility", &facility, "--ca", &ca, "true"]);
    assert_eq!(scene.ended(id.trim())["state"], "succeeded", "{}", scene.said("daemon0"));
    let last = read();
    assert!(first["certificate"] != last["certificate"] && first["key"] != last["key"], "a new key each time");
    assert_eq!(first["authority"], last["authority"]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// The authority of territories is replaced while a daemon works, with certificates that hold for a few seconds: the daemon works with a
/// certificate of the old one, with one of the new one, and when the old one is trusted no more.
#[cfg(feature = "inject")]
#[test]
fn a_daemon_lives_through_a_rotation_of_the_authority() {
    let mut scene = Scene::new();
    scene.variables.push(("NEXUS_INJECT_CERTIFICATE_MS", "15000".to_owned()));
    let mut scene = with_tls_in(scene, &TestAuthority::new());
    let relay = Relay::start(address_of(&scene.url));
    scene.join(0, &format!("https://{}", relay.address));
    scene.daemon(0, &[]);
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    let works = |scene: &Scene| {
        // A connection that is open does not ask for a certificate again.
        relay.cut();
        let ca = scene.trust[1].clone();
        let id = scene.ok(&["directive", "create", "--facility", &facility, "--ca", &ca, "true"]);
        assert_eq!(scene.ended(id.trim())["state"], "succeeded", "{}", scene.said("daemon0"));
    };
    let until = |what: &str, is_it: &dyn Fn(&[String]) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let all = authorities(&scene);
            if is_it(&all) {
                return all;
            }
            assert!(Instant::now() < deadline, "{what}: {all:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    works(&scene);
    let first = until("one authority", &|all| all.len() == 1);
    let rotated =
        scene.command(&["mothership", "rotate-authority", "--data-dir"]).arg(scene.path("mothership")).output();
    assert!(rotated.as_ref().unwrap().status.success(), "{rotated:?}");
    let both = until("both authorities", &|all| all.len() == 2);
    assert_eq!(both[..1], first[..]);
    works(&scene);
    let last = until("the new authority alone", &|all| all.len() == 1);
    assert_eq!(last[..], both[1..]);
    works(&scene);
    assert!(scene.said("daemon0").contains("was renewed"));
}

/// Returns the certificates of the authorities that sign territories.
#[cfg(feature = "inject")]
fn authorities(scene: &Scene) -> Vec<String> {
    use nexus_api::client::{ClientConfig, ConduitsClient, Http, TerritoryIdentity};
    let ca_pem = std::fs::read_to_string(scene.path("ca.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::new(&scene.url);
    config.tls = Some(tls_config(&TlsFiles { ca_pem: &ca_pem, identity: None }, provider).unwrap());
    let client = ConduitsClient::new(&Http::new(config).unwrap(), &TerritoryIdentity::Certificate).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bundle = runtime.block_on(client.ca()).unwrap().ca_bundle_pem;
    bundle.split_inclusive("-----END CERTIFICATE-----\n").map(ToOwned::to_owned).collect()
}

/// The README is run line by line, with a free port.
#[test]
fn the_fleet_of_the_readme_runs_as_it_is_written() {
    let readme = include_str!("../../../README.md");
    let (_, rest) = readme.split_once("### A fleet of two nodes in five commands\n\n```sh\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let port = std::net::TcpListener::bind(LOOPBACK).unwrap().local_addr().unwrap().port();
    let lines: Vec<String> =
        block.lines().map(|line| line.replace("127.0.0.1:4780", &format!("127.0.0.1:{port}"))).collect();
    let [serve, login, rest @ ..] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(lines.len(), 5, "{lines:?}");
    let scene = Scene::new();
    let program = std::path::PathBuf::from(env!("CARGO_BIN_EXE_nexus"));
    let shell = |script: &str| {
        let mut shell = scene.command(&[]);
        let environment: Vec<_> =
            shell.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        shell = std::process::Command::new("sh");
        shell
            .args(["-ec", script])
            .env_clear()
            .envs(environment.into_iter().filter_map(|(name, value)| Some((name, value?))));
        shell.env("PATH", format!("{}:/usr/bin:/bin", program.parent().unwrap().display()));
        // What runs in the background ends with the group.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        shell
    };
    std::fs::create_dir(scene.path("home")).unwrap();
    // The default address is the one of the README; this test has a port of its own.
    let (command, _) = serve.split_once('#').unwrap();
    let mut server = shell(&format!("exec {} --listen 127.0.0.1:{port}", command.trim()));
    let mut server = Group(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let key = loop {
        let line = said.next().unwrap().unwrap();
        if let Some((_, key)) = line.split_once("shown once: ") {
            break key.to_owned();
        }
    };
    let mut process = shell(login).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
    assert!(process.wait().unwrap().success());
    let output = std::fs::File::create(scene.path("output")).unwrap();
    let mut others = Group(shell(&rest.join("\n")).stdin(Stdio::null()).stdout(output).spawn().unwrap());
    assert!(others.0.wait().unwrap().success());
    let said = std::fs::read_to_string(scene.path("output")).unwrap();
    assert_eq!(said.lines().last(), Some("hello"), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("takes work of")).count(), 2, "two nodes: {said}");
}

/// A shell and what it left in the background.
struct Group(std::process::Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process_group(group, Signal::TERM).ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_key_of_tls_that_others_can_read_is_refused() {
    let authority = TestAuthority::new();
    let (certificate, key) = authority.server();
    let (_, other_key) = authority.server();
    let scene = Scene::new();
    let (cert_file, key_file) = (scene.path("cert.pem"), scene.path("key.pem"));
    let serve = |address: &str, cert: (&str, u32), key: (&str, u32)| {
        write(&cert_file, cert.0, cert.1);
        write(&key_file, key.0, key.1);
        let mut command = scene.command(&["mothership", "serve", "--json", "--listen", address, "--data-dir"]);
        command.arg(scene.path("data")).arg("--tls-cert").arg(&cert_file).arg("--tls-key").arg(&key_file);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        if !ready.is_empty() {
            process.kill().unwrap();
        }
        let said = process.wait_with_output().unwrap();
        (!ready.is_empty(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    let (cert, key) = ((certificate.as_str(), 0o644), key.as_str());
    for (cert, key, why) in [
        (cert, (key, 0o644), "read or change it"),
        (cert, (key, 0o604), "read or change it"),
        (cert, (key, 0o620), "read or change it"),
        ((&certificate, 0o664), (key, 0o600), "change it"),
        (cert, (other_key.as_str(), 0o600), "cannot be used"),
        (cert, ("no key", 0o600), "the server key"),
        (("no certificate", 0o644), (key, 0o600), "the server certificate"),
    ] {
        let (is_ready, said) = serve(LOOPBACK, cert, key);
        assert!(!is_ready && said.contains(why), "{why}: {said}");
    }
    for (address, mode) in [(LOOPBACK, 0o600), (LOOPBACK, 0o640), ("0.0.0.0:0", 0o400)] {
        std::fs::remove_file(&key_file).unwrap();
        let (is_ready, said) = serve(address, cert, (key, mode));
        assert!(is_ready, "{address} {mode:o}: {said}");
    }
    let alone = scene.command(&["mothership", "serve", "--data-dir", "x", "--tls-cert", "y"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
}

/// A control plane, one territory, and a relay before the control plane that users go through.
fn behind_a_relay() -> (Scene, Relay, String) {
    let mut scene = Scene::new();
    scene.mothership(&["--listen", LOOPBACK]);
    scene.join(0, &scene.url);
    scene.daemon(0, &[]);
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    let relay = Relay::start(address_of(&scene.url));
    (scene, relay, facility)
}

#[test]
fn following_goes_on_after_the_last_event_when_the_connection_breaks() {
    let (mut scene, relay, facility) = behind_a_relay();
    let direct = std::mem::replace(&mut scene.url, format!("http://{}", relay.address));
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.2; done; exit 7";
    let id = scene.ok(&["directive", "create", "--facility", &facility, "--", script]).trim().to_owned();
    let mut follow = scene.user(&["directive", "logs", "-f", &id]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut seen: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
    relay.set_down(true);
    std::thread::sleep(Duration::from_millis(300));
    relay.set_down(false);
    seen.extend(lines.map(Result::unwrap));
    let expected: Vec<String> = (1..=10).map(|number| format!("line {number}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(follow.wait().unwrap().code(), Some(7));
    let sent = relay.sent().to_lowercase();
    assert!(sent.matches("/events http/1.1").count() >= 2, "the stream was opened again: {sent}");
    assert!(sent.contains("last-event-id: 1-"), "it goes on after the last event: {sent}");
    scene.url = direct;
}

#[test]
fn a_watched_list_prints_each_change_when_it_comes() {
    let (mut scene, relay, facility) = behind_a_relay();
    scene.ok(&["directive", "create", "--facility", &facility, "--follow", "--", "true"]);
    let direct = std::mem::replace(&mut scene.url, format!("http://{}", relay.address));
    let mut watch = scene.user(&["directive", "ls", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("succeeded exit 0"), "{first}");
    scene.url = direct;
    let script = "while ! test -e go; do sleep 0.05; done; exit 3";
    let id = scene.ok(&["directive", "create", "--facility", &facility, "--", script]).trim().to_owned();
    let mut until = |word: &str| {
        loop {
            let line = lines.next().unwrap().unwrap();
            assert!(line.starts_with(&id), "only what changed is printed again: {line}");
            if line.contains(word) {
                return line;
            }
        }
    };
    until("running");
    scene.ok(&["directive", "cancel", &id]);
    let began = Instant::now();
    let line = until("canceled");
    assert!(began.elapsed() < Duration::from_secs(15), "{line}");
    assert!(relay.sent().contains(&format!("/directives/{id}/events HTTP/1.1")), "a stream follows the directive");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// Status of `/readyz`.
fn ready(scene: &Scene) -> u16 {
    let mut stream = TcpStream::connect(address_of(&scene.url)).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The control plane works in a file system of its own, which is full for a while.
#[test]
fn a_control_plane_whose_disk_was_full_has_everything_afterwards() {
    if !rustix::process::geteuid().is_root() {
        return skip::skipped("only root can mount a small disk");
    }
    let mut scene = Scene::new();
    let data = scene.path("mothership");
    std::fs::create_dir(&data).unwrap();
    let script = "mount -t tmpfs -o size=24m,mode=700 none \"$0\" && exec \"$@\"";
    scene.mothership_by(&["--listen", LOOPBACK], |command| {
        let mut small = std::process::Command::new("unshare");
        small.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&data).arg(command.get_program());
        small.args(command.get_args()).env_clear();
        small.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        small
    });
    scene.join(0, &scene.url);
    scene.daemon(0, &[]);
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    let script = "echo first; sleep 4; seq 1 2000; echo last >&2; echo done > result; exit 3";
    let id = scene.ok(&["directive", "create", "--facility", &facility, "--", script]).trim().to_owned();
    let log = |scene: &Scene| scene.nexus(&["directive", "logs", &id]);
    let until = |what: &str, is_it: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(40);
        while !is_it() {
            assert!(Instant::now() < deadline, "{what}: {}", scene.said("daemon0"));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("no output", &|| log(&scene).stdout == b"first\n");
    assert_eq!(ready(&scene), 200);
    // The disk as the server sees it.
    let inside = format!("/proc/{}/root{}", scene.processes["mothership"].id(), data.display());
    let ballast = Path::new(&inside).join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    until("a server without room is ready", &|| ready(&scene) == 503);
    std::thread::sleep(Duration::from_secs(2));
    std::fs::remove_file(&ballast).unwrap();
    drop(file);
    let end = scene.ended(&id);
    assert_eq!((&end["state"], &end["exit_code"], &end["attempt"]), (&"failed".into(), &3.into(), &1.into()), "{end}");
    assert_eq!(end["stdout_truncated"], false, "{end}");
    let said = log(&scene);
    let expected: String = (1..=2000).fold("first\n".to_owned(), |text, number| format!("{text}{number}\n"));
    assert_eq!((String::from_utf8(said.stdout).unwrap(), &said.stderr[..]), (expected, &b"last\n"[..]));
    assert!(scene.ok(&["directive", "diff", &id]).contains("+done"));
    let again = scene.ok(&["directive", "create", "--facility", &facility, "true"]);
    assert_eq!(scene.ended(again.trim())["state"], "succeeded");
}

#[test]
fn a_daemon_reads_its_settings_again_and_ends_nothing() {
    let mut scene = Scene::new();
    scene.mothership(&["--listen", LOOPBACK]);
    scene.join(0, &scene.url);
    let settings = scene.territory(0).join("nexusd.toml");
    let text = |count: u32, more: &str| format!("version = 1\nmax_concurrent = {count}\n{more}");
    write(&settings, &text(1, "[labels]\nzone = \"a\"\n"), 0o600);
    scene.daemon(0, &["--label", "own=1"]);
    let territory = |scene: &Scene| scene.json(&["territory", "ls", "--json"])["territories"][0].clone();
    let until = |scene: &Scene, is_it: &dyn Fn(&Value) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let one = territory(scene);
            if is_it(&one) {
                return;
            }
            assert!(Instant::now() < deadline, "{one}: {}", scene.said("daemon0"));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until(&scene, &|one| one["capacity"]["max_concurrent"] == 1 && one["labels"]["zone"] == "a");
    let (first, second) = (scene.ok(&["facility", "create"]), scene.ok(&["facility", "create"]));
    let create = |facility: &str, more: &[&str], script: &str| {
        let words = [&["directive", "create", "--facility", facility.trim()], more, &["--", script]].concat();
        scene.ok(&words).trim().to_owned()
    };
    let running = create(&first, &[], "echo began; sleep 8; echo went on");
    scene.until(&running, |one| one["state"] == "running");
    let waiting = create(&second, &[], "echo second");
    assert_eq!(scene.until(&waiting, |one| one["queued_because"].is_string())["state"], "queued");
    // A file with a fault changes nothing, and its fault is named.
    for (bad, why) in [("version = 1\nmax_concurent = 2\n", "max_concurent"), ("version = 9\n", "version 9")] {
        write(&settings, bad, 0o600);
        scene.signal("daemon0", Signal::HUP);
        scene.until_said("daemon0", why);
    }
    write(&settings, &text(3, ""), 0o666);
    scene.signal("daemon0", Signal::HUP);
    scene.until_said("daemon0", "can be written by other users");
    assert!(!scene.said("daemon0").contains("were read again"));
    assert_eq!(territory(&scene)["capacity"]["max_concurrent"], 1);
    // A good one: the next directive has room, what runs goes on, and what needs a restart is named.
    let good = text(2, "[labels]\nzone = \"b\"\n[bounds]\ntimeout = \"2s\"\n[launcher]\nnetworks = 2\n");
    write(&settings, &good, 0o600);
    scene.signal("daemon0", Signal::HUP);
    scene.until_said("daemon0", "The settings were read again.");
    scene.until_said("daemon0", "launcher.networks holds after a restart of the daemon.");
    until(&scene, &|one| {
        one["capacity"]["max_concurrent"] == 2 && one["labels"]["zone"] == "b" && one["labels"]["own"] == "1"
    });
    // The new bound of time refuses what asks for more, and takes what asks for less.
    let refused = scene.ended(&waiting);
    assert_eq!((refused["state"].as_str(), refused["reason"].as_str()), (Some("failed"), Some("policy_denied")));
    let short = create(&second, &["--timeout", "2s"], "echo short");
    assert_eq!(scene.ended(&short)["state"], "succeeded");
    assert_eq!(scene.json(&["directive", "show", &running, "--json"])["state"], "running", "it goes on");
    assert_eq!(scene.ended(&running)["state"], "succeeded");
    assert_eq!(scene.ok(&["directive", "logs", &running]), "began\nwent on\n");
    // SIGTERM still ends it.
    scene.signal("daemon0", Signal::TERM);
    assert!(scene.processes.get_mut("daemon0").unwrap().wait().unwrap().success());
}

#[test]
fn a_check_of_settings_says_what_a_daemon_would_read() {
    let scene = Scene::new();
    let file = scene.path("nexusd.toml");
    let check = |text: Option<(&str, u32)>| {
        if let Some((text, mode)) = text {
            write(&file, text, mode);
        }
        let output = scene.command(&["daemon", "check"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said)
    };
    let (code, said) = check(None);
    assert!(code == Some(2) && said.contains("is not there"), "{said}");
    let text = "version = 1\nmax_concurrent = 3\nheartbeat = \"2500ms\"\npoll_wait = \"10s\"\n[labels]\nzone = \"a\"\n\
                [bounds]\nnetwork = \"none\"\ntimeout = \"1h\"\n[launcher]\nnetworks = 0\n";
    let (code, said) = check(Some((text, 0o644)));
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "max_concurrent 3",
        "heartbeat 2500 ms",
        "poll_wait 10000 ms",
        "labels zone=a",
        "bounds.network none",
        "bounds.timeout 3600 s",
        "launcher.networks 0",
    ] {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
    for (text, mode, why) in [
        (text, 0o664, "can be written by other users"),
        ("", 0o600, "version"),
        ("version = 1\nmax_concurrent = 0\n", 0o600, "max_concurrent"),
        ("version = 1\nmax_concurent = 3\n", 0o600, "max_concurent"),
        ("version = 1\n[launcher]\nnetworks = 65\n", 0o600, "launcher.networks"),
        ("version = 1\n[bounds]\nnetwork = \"open\"\n", 0o600, "open"),
        ("version = 1\n\u{1b}[2J", 0o600, "nexusd.toml"),
    ] {
        std::fs::remove_file(&file).ok();
        let (code, said) = check(Some((text, mode)));
        assert!(code == Some(2) && said.contains(why), "{why}: {said}");
        assert!(!said.contains('\u{1b}'), "nothing of the file reaches the terminal as a control: {said:?}");
    }
    // A start refuses the same file with the same words.
    write(&file, "version = 1\nmax_concurrent = 0\n", 0o600);
    let (_, said) = check(None);
    let data = scene.path("data");
    let start = scene.command(&["daemon", "run", "--config"]).arg(&file).arg("--data-dir").arg(&data).output().unwrap();
    assert_eq!((start.status.code(), String::from_utf8_lossy(&start.stderr).into_owned()), (Some(2), said));
    assert!(!data.exists(), "a refused start makes nothing");
}

/// A territory whose network is away for longer than a lease when a command ends: what the daemon reports afterwards is the end.
#[cfg(feature = "inject")]
#[test]
fn the_end_of_a_territory_that_was_away_for_longer_than_a_lease_is_what_its_daemon_reports() {
    let mut scene = Scene::new();
    // Short, and yet long enough for a commit after the command: a daemon begins none in the last ten seconds of a lease.
    scene.variables.push(("NEXUS_INJECT_LEASE_MS", "20000".to_owned()));
    scene.mothership(&["--listen", LOOPBACK]);
    let relay = Relay::start(address_of(&scene.url));
    scene.join(0, &format!("http://{}", relay.address));
    write(&scene.territory(0).join("nexusd.toml"), "version = 1\npoll_wait = \"2s\"\n", 0o600);
    scene.daemon(0, &[]);
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    let script = "sleep 1; echo kept > file; echo last line; exit 3";
    let id = scene.ok(&["directive", "create", "--facility", &facility, "--", script]).trim().to_owned();
    scene.until(&id, |one| one["state"] == "running");
    relay.set_down(true);
    let unknown = scene.ended(&id);
    assert_eq!((&unknown["state"], &unknown["reason"]), (&"failed".into(), &"commit_unknown".into()), "{unknown}");
    let followed = scene.user(&["directive", "logs", "-f", &id]).output().unwrap();
    assert_eq!(followed.status.code(), Some(125), "{followed:?}");
    assert!(String::from_utf8_lossy(&followed.stderr).contains("It is not known yet"), "{followed:?}");
    let file = scene.territory(0).join("facilities").join(&facility).join("tree/file");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "kept\n", "committed meanwhile");
    relay.set_down(false);
    let end = scene.until(&id, |one| one["reason"] != "commit_unknown");
    assert_eq!((&end["reason"], &end["exit_code"]), (&"exit".into(), &3.into()), "{end}: {}", scene.said("daemon0"));
    assert_eq!((&end["has_diff"], &end["has_receipt"]), (&true.into(), &true.into()), "{end}");
    assert_eq!(end["stdout_truncated"], false, "{end}: {}", scene.said("daemon0"));
    assert_eq!(scene.ok(&["directive", "logs", &id]), "last line\n");
    assert!(scene.ok(&["directive", "diff", &id]).contains("+kept"));
}
