//! Rules for one program, with real programs: an allowed program goes out by every way, and another one learns for which program the
//! rule is. What a process calls itself counts for nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::path::Path;
use support::net::{Named, Server};
use support::{Bench, benches, report, stderr, stdout};

/// By the proxy, redirected, and by SOCKS.
const CURL: &[&str] = &[
    "curl -sS --max-time 20 http://web.test:PORT/",
    "curl -sS --max-time 20 --noproxy '*' http://web.test:PORT/",
    "curl -sS --max-time 20 --noproxy '' -x socks5h://127.0.0.1:1080 http://web.test:PORT/",
    // The network's thread is not the one that started.
    "bash -c 'curl -sS --max-time 20 http://web.test:PORT/ | cat'",
    // Beside what cannot be looked at: a zombie, and a process that made itself private.
    "python3 -c 'import os, time; os.fork() or os._exit(0); time.sleep(20)' & sleep 0.5; \
     curl -sS --max-time 20 http://web.test:PORT/; kill $!",
    "python3 -c 'import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(20)' & sleep 0.5; \
     curl -sS --max-time 20 http://web.test:PORT/; kill $!",
];

/// Other programs, and some that pretend to be curl.
const OTHERS: &[&str] = &[
    "python3 -c \"import urllib.request as u; print(u.urlopen('http://web.test:PORT/', timeout=20).read().decode(), end='')\"",
    "exec 3<>/dev/tcp/web.test/PORT; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; tail -n 1 <&3",
    "bash -c \"exec -a /usr/bin/curl python3 -c \\\"import urllib.request as u; print(u.urlopen('http://web.test:PORT/').read())\\\"\"",
    "cp /usr/bin/curl ./curl && ./curl -sS --max-time 20 http://web.test:PORT/",
    "ln -s /usr/bin/python3 ./curl && ./curl -c \"import urllib.request as u; print(u.urlopen('http://web.test:PORT/').read())\"",
    "/lib64/ld-linux-x86-64.so.2 /usr/bin/curl -sS --max-time 20 http://web.test:PORT/",
];

/// Ways to hide behind a curl that holds a socket and does nothing with it.
const BEHIND_CURL: &str = r"
import ctypes, os, socket, threading, time

def curl():
    r, w = os.pipe()
    os.set_inheritable(r, True)
    words = ['curl', '-sS', 'file:///dev/stdin']
    return os.posix_spawn('/usr/bin/curl', words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, r, 0)])

def ask(s):
    s.sendall(b'GET http://web.test:NUMBER/ HTTP/1.1\r\nHost: web.test:NUMBER\r\nConnection: close\r\n\r\n')

def beside_curl():
    s = socket.socket()
    s.set_inheritable(True)
    child = curl()
    time.sleep(0.2)
    s.connect(('127.0.0.1', 3128))
    ask(s)
    s.settimeout(10)
    print(s.recv(4096), s.recv(4096))
    os.kill(child, 9)
";

const HIDDEN: &[(&str, &str)] = &[
    ("both hold it", "beside_curl()\n"),
    (
        "a thread with a table of its own holds it beside curl",
        r"
def thread():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    beside_curl()
t = threading.Thread(target=thread)
t.start()
t.join()
",
    ),
    (
        "curl holds another one at the same port, and this one is closed at once",
        r"
a, b = socket.socket(), socket.socket()
for s in (a, b):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('127.0.0.1', 40001))
b.connect(('127.0.0.1', 1080))
b.set_inheritable(True)
child = curl()
b.close()
time.sleep(0.2)
a.connect(('127.0.0.1', 3128))
# Nothing leaves before the end of the socket: who is asked about it finds it closed.
a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
ask(a)
a.close()
time.sleep(1)
os.kill(child, 9)
",
    ),
];

fn run(named: &Named, bench: &Bench, flags: &[&str], script: &str) -> Value {
    let flags = [&["run", "--json", "--changes", "discard"][..], flags, &["--", "bash", "-c", script]].concat();
    report(&named.run(bench, &flags))
}

fn real(program: &str) -> String {
    Path::new(program).canonicalize().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_rule_for_one_program_lets_it_out_by_every_ingress_and_no_other() {
    let server = Server::start();
    let port = server.port.to_string();
    for bench in benches() {
        let named = Named::new(&bench);
        // By the real path, and by a link that leads to it.
        for curl in ["/usr/bin/curl", "/bin/curl"] {
            let rule = format!("web.test:{port}@{curl}");
            for client in CURL {
                let told = run(&named, &bench, &["--allow-private", &rule], &client.replace("PORT", &port));
                assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {client}: {told}", bench.who());
            }
        }
        let log = stdout(&bench.run(["net", "log"]));
        assert!(log.lines().any(|line| line.contains("allow") && line.contains("from /usr/bin/curl")), "{log}");

        let rule = format!("web.test:{port}@/usr/bin/curl");
        for client in OTHERS {
            let before = server.accepted();
            let told = run(&named, &bench, &["--allow-private", &rule], &client.replace("PORT", &port));
            assert!(!told.to_string().contains("hello"), "{}: {client}: {told}", bench.who());
            assert_eq!(server.accepted(), before, "{}: {client} came through", bench.who());
            let denied = &told["egress"]["denied"][0];
            assert_eq!(
                (denied["host"].as_str(), denied["code"].as_str()),
                (Some("web.test"), Some("NOT_IN_ALLOWLIST"))
            );
            let log = stdout(&bench.run(["net", "log"]));
            let why = format!("web.test:{port} is allowed for /usr/bin/curl, and ");
            assert!(log.contains(&why), "{}: {client}: {log}", bench.who());
        }
    }
}

#[test]
fn no_program_hides_behind_an_allowed_one_that_has_a_connection_open() {
    let server = Server::start();
    let port = server.port.to_string();
    for bench in benches() {
        let named = Named::new(&bench);
        let rule = format!("web.test:{port}@/usr/bin/curl");
        for (what, how) in HIDDEN {
            let before = server.accepted();
            let file = bench.workspace.join("hidden.py");
            std::fs::write(&file, format!("{BEHIND_CURL}{how}").replace("NUMBER", &port)).unwrap();
            bench.give(&file);
            let told = run(&named, &bench, &["--allow-private", &rule], "exec python3 hidden.py");
            assert_eq!(told["exit_code"], 0, "{}: {what}: {told}", bench.who());
            assert!(!told.to_string().contains("hello"), "{}: {what}: {told}", bench.who());
            assert_eq!(server.accepted(), before, "{}: {what}: it came through", bench.who());
            assert_eq!(told["egress"]["denied"][0]["code"], "NOT_IN_ALLOWLIST", "{}: {what}: {told}", bench.who());
            assert_eq!(told["egress"]["denied"][0]["allow_with"], Value::Null, "{}: {what}: {told}", bench.who());
        }
    }
}

#[test]
fn closed_connections_and_countless_descriptors_delay_no_other_client() {
    let server = Server::start();
    let port = server.port.to_string();
    for bench in benches() {
        let named = Named::new(&bench);
        let rule = format!("web.test:{port}@/usr/bin/curl");
        let flood = "import os, socket, subprocess, sys, time\n\
             fds = [os.open('/dev/null', os.O_RDONLY) for _ in range(900)]\n\
             for _ in range(1500):\n    s = socket.socket(); s.connect(('127.0.0.1', 3128))\n    \
             s.sendall(b'CONNECT web.test:PORT HTTP/1.1\\r\\n\\r\\n'); s.close()\n\
             began = time.time()\nsubprocess.run(sys.argv[1:], check=True)\nassert time.time() - began < 10\n";
        let file = bench.workspace.join("flood.py");
        std::fs::write(&file, flood.replace("PORT", &port)).unwrap();
        bench.give(&file);
        let script = format!("exec python3 flood.py {}", CURL[1].replace("PORT", &port).replace('\'', ""));
        let told = run(&named, &bench, &["--allow-private", &rule], &script);
        assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {told}", bench.who());
        assert_eq!(told["exit_code"], 0, "{}: {told}", bench.who());
    }
}

/// Git leaves the network to a program of its own, which is the one to name.
#[test]
fn a_program_that_another_one_starts_is_the_one_that_counts() {
    let server = Server::start();
    let exec_path = std::process::Command::new("git").arg("--exec-path").output().unwrap();
    let helper = real(&format!("{}/git-remote-http", stdout(&exec_path).trim()));
    for bench in benches() {
        let named = Named::new(&bench);
        let clone = format!("git ls-remote http://web.test:{}/x.git; true", server.port);
        for (program, comes) in [(real("/usr/bin/git"), false), (helper.clone(), true)] {
            let before = server.accepted();
            let rule = format!("web.test:{}@{program}", server.port);
            let told = run(&named, &bench, &["--allow-private", &rule], &clone);
            assert_eq!(server.accepted() > before, comes, "{}: {program}: {told}", bench.who());
        }
    }
}

/// Many threads with many descriptors are looked through as far as there is time; others are known all the same.
#[test]
fn a_busy_neighbour_makes_no_program_unknown() {
    let server = Server::start();
    let port = server.port.to_string();
    for bench in benches() {
        let named = Named::new(&bench);
        let rule = format!("web.test:{port}@/usr/bin/curl");
        let busy = "import os, threading, time\nfor _ in range(800): os.open('/dev/null', os.O_RDONLY)\n\
                    for _ in range(300): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\
                    open('ready', 'w').close()\ntime.sleep(60)\n";
        let file = bench.workspace.join("busy.py");
        std::fs::write(&file, busy).unwrap();
        bench.give(&file);
        let script = format!(
            "python3 busy.py & until [ -e ready ]; do sleep 0.05; done; for i in 1 2 3; do {}; done; kill $!",
            CURL[1].replace("PORT", &port)
        );
        let told = run(&named, &bench, &["--allow-private", &rule, "--pids", "2000"], &script);
        assert_eq!(told["output"]["stdout"]["text"], "hello\n".repeat(3), "{}: {told}", bench.who());
    }
}

/// Inside, `/tmp` is another one: what the host has there says nothing about what lies there in the sandbox.
#[test]
fn a_link_of_the_host_moves_no_rule_to_another_program() {
    let server = Server::start();
    let port = server.port.to_string();
    for bench in benches() {
        let named = Named::new(&bench);
        let tool = format!("/tmp/nexus-tool-{}-{}", std::process::id(), bench.who());
        std::os::unix::fs::symlink("/usr/bin/python3", &tool).unwrap();
        let (allow, deny) = (format!("web.test:{port}"), format!("web.test@{tool}"));
        let client = format!("cp /usr/bin/curl {tool}; {tool} -sS --max-time 20 http://web.test:{port}/");
        let told = run(&named, &bench, &["--allow-private", &allow, "--deny", &deny], &client);
        assert!(!told.to_string().contains("hello"), "{}: {told}", bench.who());
        let only = format!("web.test:{port}@{tool}");
        let told = run(&named, &bench, &["--allow-private", &only], &client);
        assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {told}", bench.who());
        std::fs::remove_file(&tool).unwrap();
    }
}

#[test]
fn the_flag_that_is_offered_is_for_the_program_that_was_refused() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let client = format!("curl -sS --max-time 20 http://web.test:{}/", server.port);
        let told = run(&named, &bench, &["--allow", &format!("web.test:{}@/usr/bin/git", server.port)], &client);
        let offered = told["egress"]["denied"][0]["allow_with"].as_str().unwrap();
        assert_eq!(offered, format!("--allow web.test:{}@/usr/bin/curl", server.port), "{}: {told}", bench.who());
        let flags: Vec<&str> = offered.split(' ').collect();
        let told = run(&named, &bench, &flags, &client);
        // Past the rule; what is left is where the name leads, and that is offered to no more than this program.
        assert_eq!(told["egress"]["denied"][0]["code"], "PRIVATE_DESTINATION", "{}: {told}", bench.who());
        let offered = told["egress"]["denied"][0]["allow_with"].as_str().unwrap();
        let flags: Vec<&str> = offered.split(' ').collect();
        let told = run(&named, &bench, &flags, &client);
        assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {told}", bench.who());
        let told = run(&named, &bench, &flags, &OTHERS[0].replace("PORT", &server.port.to_string()));
        assert!(!told.to_string().contains("hello"), "{}: {told}", bench.who());
    }
}

#[test]
fn a_denial_for_one_program_holds_that_program_and_who_is_not_known() {
    let server = Server::start();
    let port = server.port.to_string();
    let (allow, python) = (format!("web.test:{port}"), real("/usr/bin/python3"));
    for bench in benches() {
        let named = Named::new(&bench);
        let deny = format!("web.test@{python}");
        let flags = ["--allow-private", &allow, "--deny", &deny];
        let told = run(&named, &bench, &flags, &CURL[1].replace("PORT", &port));
        assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {told}", bench.who());
        // Held by two, neither of which is python: it is not known which of them it is, and it could be python.
        let file = bench.workspace.join("hidden.py");
        let text = format!("{BEHIND_CURL}{}", HIDDEN[0].1).replace("NUMBER", &port);
        std::fs::write(&file, text).unwrap();
        bench.give(&file);
        let told = run(&named, &bench, &flags, "cp $(readlink -f /usr/bin/python3) py; exec ./py hidden.py");
        assert!(!told.to_string().contains("hello"), "{}: {told}", bench.who());
        assert_eq!(told["egress"]["denied"][0]["code"], "NOT_IN_ALLOWLIST", "{}: {told}", bench.who());
        let told = run(&named, &bench, &flags, &OTHERS[0].replace("PORT", &port));
        assert!(!told.to_string().contains("hello"), "{}: {told}", bench.who());
        assert_eq!(told["egress"]["denied"][0]["code"], "NOT_IN_ALLOWLIST", "{}: {told}", bench.who());
    }
}

#[test]
fn a_command_of_a_running_sandbox_is_distinguished_from_its_neighbours() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let rule = format!("web.test:{}@/usr/bin/curl", server.port);
        let started = named.run(&bench, ["run", "-d", "--name", "p", "--allow-private", &rule, "--", "sleep", "100"]);
        assert_eq!(started.status.code(), Some(0), "{}: {}", bench.who(), stderr(&started));
        let exec = |script: &str| {
            let script = script.replace("PORT", &server.port.to_string());
            stdout(&bench.run(["exec", "p", "--", "bash", "-c", &script]))
        };
        assert_eq!(exec(CURL[0]), "hello\n", "{}", bench.who());
        assert_eq!(exec(CURL[1]), "hello\n", "{}", bench.who());
        assert!(!exec(OTHERS[0]).contains("hello"), "{}", bench.who());
        bench.run(["rm", "-f", "p"]);
    }
}

#[test]
fn many_programs_at_once_are_each_distinguished() {
    let server = Server::start();
    let port = server.port.to_string();
    for bench in benches() {
        let named = Named::new(&bench);
        let rule = format!("web.test:{port}@/usr/bin/curl");
        let script =
            "for i in $(seq 20); do (CURL 2>/dev/null) & (PYTHON 2>/dev/null | sed s/hello/wrong/) & done; wait"
                .replace("CURL", CURL[1])
                .replace("PYTHON", OTHERS[0])
                .replace("PORT", &port);
        let told = run(&named, &bench, &["--allow-private", &rule], &script);
        assert_eq!(told["output"]["stdout"]["text"], "hello\n".repeat(20), "{}: {told}", bench.who());
    }
}

#[test]
fn a_proxy_knows_the_programs_of_its_own_user() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let rule = format!("web.test:{}@/usr/bin/curl", server.port);
        let (_proxy, address) = support::net::proxy(&named, &bench, &["--allow-private", &rule]);
        let url = format!("http://web.test:{}/", server.port);
        let output = |program: &str, arguments: &[&str]| {
            let output = bench.command(program).args(arguments).output().unwrap();
            stdout(&output) + &stderr(&output)
        };
        let curl = ["-sS", "--max-time", "20", "-x", &address, &url];
        assert_eq!(output("/usr/bin/curl", &curl), "hello\n", "{}", bench.who());
        let script = "import sys, urllib.request as u; o = u.build_opener(u.ProxyHandler({'http': sys.argv[1]})); \
                      print(o.open(sys.argv[2], timeout=20).read())";
        let python = output("python3", &["-c", script, &address, &url]);
        assert!(python.contains("403") && !python.contains("hello"), "{}: {python}", bench.who());
        // At curl's path in a mount namespace of its own lies another program.
        let at_its_path = format!(
            "mount --bind $(readlink -f /usr/bin/python3) /usr/bin/curl && /usr/bin/curl -c \"{}\" {address} {url}",
            script.replace('"', "\\\"")
        );
        let pretended = output("unshare", &["--user", "--map-root-user", "--mount", "sh", "-c", &at_its_path]);
        assert!(pretended.contains("403") && !pretended.contains("hello"), "{}: {pretended}", bench.who());
    }
}

#[test]
fn check_decides_for_a_program() {
    for bench in benches() {
        let check = |arguments: &[&str]| {
            let rules = ["a.test:443", "--allow", "a.test@/usr/bin/curl", "--resolve", "93.184.216.34"];
            let output = bench.nexus(["net", "check"]).args(rules).args(arguments).output().unwrap();
            (output.status.code(), stdout(&output) + &stderr(&output))
        };
        assert_eq!(check(&["--program", "/usr/bin/curl"]).0, Some(0));
        assert_eq!(check(&["--program", "/bin/curl"]).0, Some(0));
        let (code, text) = check(&["--program", "/usr/bin/git"]);
        assert!(code == Some(1) && text.contains("for /usr/bin/curl, and this is /usr/bin/git"), "{text}");
        let (code, text) = check(&[]);
        assert!(code == Some(1) && text.contains("it is not known which program this is"), "{text}");
        let (code, text) = check(&["--program", "curl"]);
        assert!(code == Some(2) && text.contains("Write its whole path"), "{text}");
    }
}
