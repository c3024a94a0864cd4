//! Rules for one program, with real programs: who may go out goes by every way, and who may not is told for whom the
//! rule is. What a process calls itself counts for nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Output;
use support::net::{Named, Server};
use support::{Bench, benches, is_root, stderr, stdout};

/// By the proxy, redirected, and by SOCKS.
const CURL: &[&str] = &[
    "curl -sS --max-time 20 http://web.test:PORT/",
    "curl -sS --max-time 20 --noproxy '*' http://web.test:PORT/",
    "curl -sS --max-time 20 --noproxy '' -x socks5h://127.0.0.1:1080 http://web.test:PORT/",
    // The network's thread is not the one that started.
    "bash -c 'curl -sS --max-time 20 http://web.test:PORT/ | cat'",
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

fn run(named: &Named, bench: &Bench, flags: &[&str], script: &str) -> Value {
    let flags = [&["run", "--json", "--changes", "discard"][..], flags, &["--", "bash", "-c", script]].concat();
    report(&named.run(bench, &flags))
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)))
}

fn real(program: &str) -> String {
    Path::new(program).canonicalize().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_rule_for_one_program_lets_it_out_by_every_way_and_nobody_else() {
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
        // Past the rule; what is left is where the name leads.
        assert_eq!(told["egress"]["denied"][0]["code"], "PRIVATE_DESTINATION", "{}: {told}", bench.who());
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
        // A second holder of the socket, and nobody can say any more who speaks.
        let both =
            "exec 3<>/dev/tcp/web.test/PORT; sleep 60 <&3 >&3 2>&1 & curl -sS --max-time 20 http://web.test:PORT/";
        let told = run(&named, &bench, &flags, &format!("{}; kill $!", both.replace("PORT", &port)));
        assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {told}", bench.who());
        let told = run(&named, &bench, &flags, &OTHERS[0].replace("PORT", &port));
        assert!(!told.to_string().contains("hello"), "{}: {told}", bench.who());
        assert_eq!(told["egress"]["denied"][0]["code"], "NOT_IN_ALLOWLIST", "{}: {told}", bench.who());
    }
}

#[test]
fn a_command_of_a_running_sandbox_is_told_from_its_neighbours() {
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
fn many_programs_at_once_are_each_told_apart() {
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
fn a_proxy_for_other_programs_knows_them_too() {
    if !is_root() {
        return;
    }
    let server = Server::start();
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let named = Named::new(&bench);
        let rule = format!("web.test:{}@/usr/bin/curl", server.port);
        let (mut child, address) = support::net::proxy(&named, &bench, &["--allow-private", &rule]);
        let url = format!("http://web.test:{}/", server.port);
        let curl = std::process::Command::new("curl").args(["-sS", "--max-time", "20", "-x", &address, &url]).output();
        assert_eq!(stdout(&curl.unwrap()), "hello\n");
        let script = "import sys, urllib.request as u; o = u.build_opener(u.ProxyHandler({'http': sys.argv[1]})); \
                      print(o.open(sys.argv[2], timeout=20).read())";
        let python = std::process::Command::new("python3").args(["-c", script, &address, &url]).output().unwrap();
        assert!(stderr(&python).contains("403") && !stdout(&python).contains("hello"), "{}", stderr(&python));
        child.kill().unwrap();
        child.wait().unwrap();
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
        assert!(code == Some(2) && text.contains("write its whole path"), "{text}");
    }
}
