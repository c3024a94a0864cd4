//! `--allow-host-port`: services of this machine's loopback, reached from inside at their own address, and nothing beside them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use support::net::{Named, proxy};
use support::{Bench, benches, report, stderr, stdout, wait_until};

/// A service that answers each line with `+` and the line, like Redis; at the end of its input it says how many lines came.
struct Service {
    port: u16,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Service {
    fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (accepted, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let service = Self { port, accepted: Arc::clone(&accepted), open: Arc::clone(&open) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                accepted.fetch_add(1, Ordering::SeqCst);
                open.fetch_add(1, Ordering::SeqCst);
                let open = Arc::clone(&open);
                thread::spawn(move || {
                    // A client that is cut off is part of some tests.
                    serve(stream).ok();
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        service
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut count = 0;
    for line in BufReader::new(stream.try_clone()?).split(b'\n') {
        let line = line?;
        count += 1;
        stream.write_all(&[b"+", &line[..], b"\n"].concat())?;
    }
    stream.write_all(format!("{count} lines\n").as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Speaks with the service, ends its half, and reads to the end.
const TALK: &str = "import socket, sys
def talk(host, port, text):
    s = socket.create_connection((host, port), timeout=20)
    s.sendall(text)
    s.shutdown(socket.SHUT_WR)
    got = b''
    while True:
        more = s.recv(65536)
        if not more: break
        got += more
    s.close()
    return got
def attempt(host, port):
    try:
        return talk(host, port, b'x\\n').decode() or 'end'
    except OSError as error:
        return type(error).__name__
";

fn python(bench: &Bench, flags: &[&str], script: &str) -> Output {
    let script = format!("{TALK}{script}");
    let arguments = [&["run", "--changes", "discard", "--json"], flags, &["--", "python3", "-c", &script]].concat();
    bench.nexus(arguments).output().unwrap()
}

fn printed(bench: &Bench, flags: &[&str], script: &str) -> (String, Value) {
    let output = python(bench, flags, script);
    let told = report(&output);
    let text = told["output"]["stdout"]["text"].as_str().unwrap_or_else(|| panic!("{}", stderr(&output))).to_owned();
    (text, told)
}

#[test]
fn a_service_of_the_host_is_reached_at_its_own_address() {
    let service = Service::at("127.0.0.1:0");
    let port = service.port.to_string();
    for bench in benches() {
        for mode in [&[][..], &["--net", "none"], &["--net", "allowlist"], &["--net", "unrestricted"]] {
            let flags = [&["--allow-host-port", &port], mode].concat();
            let script = format!(
                "for host in ('127.0.0.1', 'localhost', '::1'):\n    print(talk(host, {port}, b'PING\\nSET a b\\n'))\n\
                 print(len(talk('127.0.0.1', {port}, b'y' * 3000000 + b'\\n')))"
            );
            let (text, told) = printed(&bench, &flags, &script);
            let answer = "b'+PING\\n+SET a b\\n2 lines\\n'\n";
            assert_eq!(text, answer.repeat(3) + "3000010\n", "{}: {mode:?}: {told}", bench.who());
            let allowed = &told["egress"]["allowed"][0];
            assert_eq!((&allowed["host"], &allowed["port"]), (&json!("127.0.0.1"), &json!(service.port)), "{told}");
            assert_eq!(allowed["connections"], 4, "{told}");
            let guarantees = told["sandbox"]["guarantees"].as_array().unwrap();
            assert!(!guarantees.contains(&"net.none".into()), "{told}");
        }
    }
}

#[test]
fn a_service_on_ipv6_alone_is_reached_by_every_address() {
    let Ok(probe) = TcpListener::bind("[::1]:0") else { return };
    drop(probe);
    let service = Service::at("[::1]:0");
    let port = service.port.to_string();
    for bench in benches() {
        let script = format!("print([talk(host, {port}, b'x\\n') for host in ('127.0.0.1', '::1')])");
        let (text, told) = printed(&bench, &["--allow-host-port", &port], &script);
        assert_eq!(text, "[b'+x\\n1 lines\\n', b'+x\\n1 lines\\n']\n", "{}: {told}", bench.who());
    }
}

#[test]
fn a_thousand_connections_in_turn_and_many_at_once_are_served() {
    let service = Service::at("127.0.0.1:0");
    let port = service.port.to_string();
    for bench in benches() {
        let before = service.accepted();
        let script = format!(
            "assert all(talk('localhost', {port}, b'x\\n') == b'+x\\n1 lines\\n' for _ in range(1000))\n\
             many = [socket.create_connection(('127.0.0.1', {port})) for _ in range(200)]\n\
             for s in many: s.sendall(b'y\\n')\n\
             print(sum(s.recv(100) == b'+y\\n' for s in many))"
        );
        let (text, told) = printed(&bench, &["--allow-host-port", &port], &script);
        assert_eq!(text, "200\n", "{}: {told}", bench.who());
        assert_eq!(service.accepted() - before, 1200, "{}", bench.who());
        wait_until("the connections end with the run", Duration::from_secs(20), || service.open() == 0);
    }
}

/// The rows of an attacker: neither another port nor another address of the host, and no network.
#[test]
fn an_open_port_opens_nothing_beside_itself() {
    let service = Service::at("127.0.0.1:0");
    let others = [Service::at("127.0.0.1:0"), Service::at("0.0.0.0:0"), Service::at("127.0.0.1:0")];
    let own = own_address();
    for bench in benches() {
        for mode in [&[][..], &["--net", "allowlist"], &["--net", "unrestricted"]] {
            let mut targets: Vec<(String, u16)> =
                others.iter().map(|other| ("127.0.0.1".to_owned(), other.port)).collect();
            targets.push(("localhost".to_owned(), others[0].port));
            targets.push(("127.0.0.2".to_owned(), service.port));
            targets.push(("::1".to_owned(), others[0].port));
            for port in [service.port, others[1].port] {
                targets.extend(own.iter().map(|address| (address.clone(), port)));
                targets.push(("10.255.255.1".to_owned(), port));
                targets.push(("::ffff:10.255.255.1".to_owned(), port));
            }
            let before: usize = others.iter().map(Service::accepted).sum();
            let (was, flag) = (service.accepted(), service.port.to_string());
            let list: Vec<String> = targets.iter().map(|(host, port)| format!("('{host}', {port})")).collect();
            let script = format!(
                "for to in [{}]:\n    print(attempt(*to))\n\
                 proxy = socket.socket()\nproxy.settimeout(20)\n\
                 if not proxy.connect_ex(('127.0.0.1', 3128)):\n    \
                 proxy.sendall(b'CONNECT 127.0.0.1:{} HTTP/1.1\\r\\nHost: 127.0.0.1:{}\\r\\n\\r\\n')\n    \
                 print(proxy.recv(12).decode())",
                list.join(", "),
                others[0].port,
                others[0].port
            );
            let (text, told) = printed(&bench, &[&["--allow-host-port", &flag], mode].concat(), &script);
            for (line, target) in text.lines().zip(&targets) {
                assert!(line.ends_with("Error"), "{}: {mode:?}: {target:?}: {line}", bench.who());
            }
            assert!(text.ends_with("HTTP/1.1 403\n"), "{}: {mode:?}: {text}", bench.who());
            assert_eq!(others.iter().map(Service::accepted).sum::<usize>(), before, "{}: {told}", bench.who());
            assert_eq!(service.accepted(), was, "{}: {mode:?}: {told}", bench.who());
        }
    }
}

/// An address of this host that is not the loopback, where it has one.
fn own_address() -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Only asks for a route; a datagram socket sends nothing by it.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

#[test]
fn a_command_that_binds_the_port_gets_eaddrinuse() {
    let service = Service::at("127.0.0.1:0");
    let port = service.port.to_string();
    for bench in benches() {
        let script = format!(
            "import errno\nfor host in ('127.0.0.1', '0.0.0.0'):\n    s = socket.socket()\n    \
             s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n    \
             s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n    \
             try:\n        s.bind((host, {port}))\n        s.listen()\n        print('bound')\n    \
             except OSError as error: print(errno.errorcode[error.errno])"
        );
        let (text, told) = printed(&bench, &["--allow-host-port", &port], &script);
        assert_eq!(text, "EADDRINUSE\nEADDRINUSE\n", "{}: {told}", bench.who());
    }
}

#[test]
fn a_service_that_is_away_is_a_reset_and_recorded() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for bench in benches() {
        let script = format!("print(attempt('127.0.0.1', {gone}))");
        let (text, told) = printed(&bench, &["--allow-host-port", &gone.to_string()], &script);
        assert_eq!(text, "ConnectionResetError\n", "{}: {told}", bench.who());
        let log = stdout(&bench.nexus(["net", "log", "--json"]).output().unwrap());
        let fail = log.lines().find(|line| line.contains("\"event\":\"fail\"")).unwrap_or_else(|| panic!("{log}"));
        assert!(fail.contains("host_port") && fail.contains("cannot be reached"), "{}: {log}", bench.who());
    }
}

#[test]
fn the_receipt_and_the_record_name_an_open_port() {
    let service = Service::at("127.0.0.1:0");
    let port = service.port.to_string();
    for bench in benches() {
        let (_, told) = printed(&bench, &["--allow-host-port", &port], &format!("talk('127.0.0.1', {port}, b'x\\n')"));
        let run = told["run_id"].as_str().unwrap();
        let shown = stdout(&bench.nexus(["receipt", "show", run]).output().unwrap());
        assert!(shown.contains(&format!("none, allow-host-port {port}")), "{}: {shown}", bench.who());
        let log = stdout(&bench.nexus(["net", "log", run, "--json"]).output().unwrap());
        let allow = log.lines().find(|line| line.contains("\"event\":\"allow\"")).unwrap_or_else(|| panic!("{log}"));
        let event: Value = serde_json::from_str(allow).unwrap();
        assert_eq!((&event["way"], &event["host"]), (&json!("host_port"), &json!("127.0.0.1")), "{event}");
        assert_eq!(event["rule"]["source"]["text"], format!("--allow-host-port {port}"), "{event}");
        let mut replay = nexus_policy::net::Replay::default();
        for line in log.lines() {
            replay.line(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
        let (_, other) = printed(&bench, &[], "pass");
        let hash = |told: &Value| {
            let run = told["run_id"].as_str().unwrap();
            let receipt = stdout(&bench.nexus(["receipt", "show", run, "--json"]).output().unwrap());
            serde_json::from_str::<Value>(&receipt).unwrap()["spec_hash"].clone()
        };
        assert_ne!(hash(&told), hash(&other), "{}", bench.who());
    }
}

#[test]
fn flags_that_look_like_it_name_the_right_one() {
    for bench in benches() {
        let said = |flags: &[&str]| {
            let output = bench.nexus([&["run"], flags, &["--", "true"]].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{}: {flags:?}: {}", bench.who(), stderr(&output));
            stderr(&output)
        };
        for (flag, value) in [
            ("--allow", "localhost:5432"),
            ("--allow", "127.0.0.1:5432"),
            ("--allow", "[::1]:5432"),
            ("--allow-private", "localhost:5432"),
            ("--allow-private", "127.0.0.1:5432"),
            ("--allow-private", "[::1]:5432"),
        ] {
            let text = said(&[flag, value]);
            assert!(
                text.to_lowercase().contains("use --allow-host-port 5432"),
                "{}: {flag} {value}: {text}",
                bench.who()
            );
        }
        for (port, word) in
            [("0", "not a port"), ("53", "Nexus itself"), ("3128", "Nexus itself"), ("localhost:1", "one PORT")]
        {
            let text = said(&["--allow-host-port", port]);
            assert!(text.contains(word), "{}: {port}: {text}", bench.who());
        }
        let ports: Vec<String> = (2000..2017).map(|port| format!("--allow-host-port={port}")).collect();
        let text = said(&ports.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text.contains("too many (16 at most)"), "{}: {text}", bench.who());
        let text = said(&["--allow-host-port", "5432", "--require", "net.none"]);
        assert!(text.contains("--allow-host-port opens the network"), "{}: {text}", bench.who());
        let output = bench.nexus(["net", "proxy", "--allow-host-port", "5432"]).output().unwrap();
        assert!(stderr(&output).contains("is for sandboxes"), "{}: {}", bench.who(), stderr(&output));
        let check = |target: &str| bench.nexus(["net", "check", target, "--allow-host-port", "5432"]).output().unwrap();
        assert_eq!(check("localhost:5432").status.code(), Some(0), "{}", bench.who());
        let other = check("localhost:5433");
        assert_eq!(other.status.code(), Some(1), "{}", bench.who());
        assert!(stdout(&other).contains("allow it with: --allow-host-port 5433"), "{}", stdout(&other));
        // What the program would refuse, or what would lead back into the sandbox, is not offered.
        for target in ["127.0.0.1:3128", "localhost:15001", "192.0.0.8:80"] {
            let none = check(target);
            assert_eq!(none.status.code(), Some(1), "{}: {target}", bench.who());
            assert!(!stdout(&none).contains("allow it with"), "{}: {}", bench.who(), stdout(&none));
        }
    }
}

#[test]
fn ports_on_which_nexus_listens_are_refused() {
    for bench in benches() {
        let named = Named::new(&bench);
        let (_proxy, address) = proxy(&named, &bench, &["--net", "unrestricted"]);
        let port = address.rsplit_once(':').unwrap().1.trim_end_matches('/').to_owned();
        let output = bench.nexus(["run", "--allow-host-port", &port, "--", "true"]).output().unwrap();
        let text = stderr(&output);
        assert!(text.contains(&format!("Nexus itself listens on port {port}")), "{}: {text}", bench.who());
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let publish = format!("{free}:80");
        let output =
            bench.nexus(["run", "--allow-host-port", &free, "--publish", &publish, "--", "true"]).output().unwrap();
        assert!(stderr(&output).contains("back into the sandbox"), "{}: {}", bench.who(), stderr(&output));
    }
}

#[test]
fn a_file_of_the_workspace_can_only_close_the_port() {
    let service = Service::at("127.0.0.1:0");
    let port = service.port.to_string();
    for bench in benches() {
        let script = format!("print(attempt('127.0.0.1', {port}))");
        let file = |text: &str| std::fs::write(bench.workspace.join("nexus.yaml"), text).unwrap();
        for (text, word) in [
            (format!("net: {{allow_host_port: [{port}]}}\n"), "allow_host_port"),
            (format!("net: {{host_ports: [{port}]}}\n"), "host_ports"),
            ("net: {mode: none}\n".to_owned(), "closes all of them"),
        ] {
            file(&text);
            let output = python(&bench, &["--allow-host-port", &port], &script);
            let said = stderr(&output) + &stdout(&output);
            assert!(said.contains(word), "{}: {text}: {said}", bench.who());
        }
        assert_eq!(service.accepted(), 0, "{}", bench.who());
        std::fs::remove_file(bench.workspace.join("nexus.yaml")).unwrap();
    }
}

#[test]
fn a_stopped_sandbox_lets_go_of_the_service() {
    let service = Service::at("127.0.0.1:0");
    let port = service.port.to_string();
    for bench in benches() {
        let started = bench
            .nexus(["run", "-d", "--name", "hp", "--allow-host-port", &port, "--", "sleep", "1000"])
            .output()
            .unwrap();
        assert!(started.status.success(), "{}: {}", bench.who(), stderr(&started));
        let script = format!(
            "{TALK}s = socket.create_connection(('localhost', {port}))\ns.sendall(b'a\\n')\ns.recv(9)\n\
             print('up', flush=True)\nprint(s.recv(9))"
        );
        let mut client = bench.nexus(["exec", "hp", "--", "python3", "-c", &script]);
        let mut client = client.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(client.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!((line.as_str(), service.open()), ("up\n", 1), "{}", bench.who());
        let stopped = bench.nexus(["stop", "hp"]).output().unwrap();
        assert!(stopped.status.success(), "{}: {}", bench.who(), stderr(&stopped));
        wait_until("the connection ends with the sandbox", Duration::from_secs(20), || service.open() == 0);
        client.wait().unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(bench.nexus(["rm", "hp"]).output().unwrap().status.success(), "{}", bench.who());
    }
}
