//! The network of a run, with real clients and a real server: what is allowed works by every way, what is not is
//! refused at once and reported with the flag that would allow it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_policy::net::{Replay, Replayed};
use serde_json::Value;
use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};
use support::net::{Named, Server, proxy};
use support::screen::Screen;
use support::{Bench, benches, report, stderr, stdout, wait_until};

/// The flag of the summary's line about this destination.
fn offered(bench: &Bench, output: &Output, destination: &str) -> Vec<String> {
    let text = stderr(output);
    let line = text.lines().find(|line| line.contains(&format!("blocked: {destination}")));
    let line = line.unwrap_or_else(|| panic!("{}: nothing about {destination}: {text}", bench.who()));
    let (_, flag) = line.split_once("allow it with ").unwrap_or_else(|| panic!("no flag: {line}"));
    flag.split(' ').map(str::to_owned).collect()
}

/// Three clients: one that uses the proxy, one that looks the name up and connects, one without a library for either.
const CLIENTS: &[&str] = &[
    "curl -sS --max-time 20 http://web.test:PORT/",
    "curl -sS --max-time 20 --noproxy '*' http://web.test:PORT/",
    "exec 3<>/dev/tcp/web.test/PORT; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; tail -n 1 <&3",
    "python3 -c \"import urllib.request as u; print(u.urlopen('http://web.test:PORT/', timeout=20).read().decode(), end='')\"",
];

#[test]
fn an_allowed_destination_is_reached_by_every_client_and_another_is_refused_at_once() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        for client in CLIENTS {
            let client = client.replace("PORT", &server.port.to_string());
            let allow = format!("web.test:{}", server.port);
            let output = named.run(&bench, ["run", "--json", "--allow-private", &allow, "--", "bash", "-c", &client]);
            let told = report(&output);
            assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {client}: {told}", bench.who());
            let allowed = &told["egress"]["allowed"];
            assert_eq!(allowed[0]["host"], "web.test", "{}: {told}", bench.who());
            assert_eq!(allowed[0]["port"], server.port, "{}: {told}", bench.who());
            assert!(told["egress"]["bytes_in"].as_u64().unwrap() >= 6, "{told}");
            let guarantees = told["sandbox"]["guarantees"].as_array().unwrap();
            assert!(guarantees.contains(&"net.destination_checked".into()), "{told}");
            assert!(!guarantees.contains(&"net.none".into()), "{told}");

            let before = server.accepted();
            let began = Instant::now();
            let other = format!("db.test:{}", server.port);
            let output = named.run(&bench, ["run", "--json", "--allow-private", &other, "--", "bash", "-c", &client]);
            let told = report(&output);
            assert!(!told.to_string().contains("hello"), "{}: {client}: {told}", bench.who());
            let denied = &told["egress"]["denied"][0];
            assert_eq!(denied["host"], "web.test", "{}: {client}: {told}", bench.who());
            assert!(["NOT_IN_ALLOWLIST", "DNS_DENIED"].contains(&denied["code"].as_str().unwrap()), "{told}");
            assert!(began.elapsed() < Duration::from_secs(15), "{client}: {:?}", began.elapsed());
            assert_eq!(server.accepted(), before, "{}: {client} came through", bench.who());
        }
    }
}

/// Vectors I07 and I15: a client that is sent elsewhere asks again, and what is inside is reached beside the egress.
#[test]
fn a_redirect_is_evaluated_as_its_own_request_and_loopback_stays_inside() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let port = server.port;
        let allow = format!("web.test:{port}");
        let to = |host: &str| format!("http://web.test:{port}/to/{host}");
        let fetch = |url: &str, more: &[&str]| {
            let flags = [&["run", "--changes", "discard", "--allow-private", &allow][..], more].concat();
            let output = named.run(&bench, [&flags[..], &["--", "curl", "-sSL", "--max-time", "20", url]].concat());
            stdout(&output) + &stderr(&output)
        };
        let denied = fetch(&to("db.test"), &[]);
        assert!(!denied.contains("hello") && denied.contains("blocked: db.test"), "{}: {denied}", bench.who());
        let both = fetch(&to("db.test"), &["--allow-private", &format!("db.test:{port}")]);
        assert!(both.contains("hello"), "{}: {both}", bench.who());
        let script = "python3 -m http.server --bind 127.0.0.1 7001 >/dev/null 2>&1 & \
            for i in $(seq 200); do curl -sS --max-time 20 http://localhost:7001/ 2>/dev/null | grep -q Directory && break; \
            sleep 0.05; done; curl -sS http://localhost:7001/ | grep -c 'Directory listing for'; echo $HTTP_PROXY";
        let output = named.run(&bench, ["run", "--json", "--allow-private", &allow, "--shell", script]);
        let told = report(&output);
        let text = told["output"]["stdout"]["text"].as_str().unwrap();
        // By the proxy's variables, and yet not through the proxy: it would refuse, and record it.
        assert!(text.starts_with("2\nhttp://") || text.starts_with("1\nhttp://"), "{}: {told}", bench.who());
        assert_eq!(told["egress"]["denied"], serde_json::json!([]), "{}", bench.who());
        assert_eq!(told["egress"]["allowed"], serde_json::json!([]), "{}", bench.who());
    }
}

#[test]
fn the_flag_that_the_summary_offers_allows_it() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let client = format!("curl -sS --max-time 20 http://web.test:{}/", server.port);
        // A name that no rule has; then one that leads to a private address.
        let mut flags = vec!["--net".to_owned(), "allowlist".to_owned()];
        for _ in 0..2 {
            let output = named.run(
                &bench,
                ["run"]
                    .iter()
                    .map(ToString::to_string)
                    .chain(flags.clone())
                    .chain(["--", "sh", "-c", &client].map(str::to_owned)),
            );
            assert!(!stdout(&output).contains("hello"), "{}: {flags:?}", bench.who());
            flags = offered(&bench, &output, &format!("web.test:{}", server.port));
        }
        assert_eq!(flags[0], "--allow-private", "{flags:?}");
        let all: Vec<String> =
            ["run".to_owned()].into_iter().chain(flags).chain(["--", "sh", "-c", &client].map(str::to_owned)).collect();
        let output = named.run(&bench, &all);
        assert_eq!(stdout(&output), "hello\n", "{}: {all:?}: {}", bench.who(), stderr(&output));
        assert!(!stderr(&output).contains("blocked"), "{}", stderr(&output));
    }
}

#[test]
fn a_name_that_no_rule_allows_has_no_address_and_the_question_is_recorded() {
    for bench in benches() {
        let named = Named::new(&bench);
        let script = "getent hosts db.test && echo FOUND; getent hosts web.test >/dev/null && echo ALLOWED";
        let output = named.run(&bench, ["run", "--allow", "web.test:1", "--shell", script]);
        assert_eq!(stdout(&output), "ALLOWED\n", "{}", bench.who());
        assert_eq!(offered(&bench, &output, "db.test"), ["--allow", "db.test:443"]);
        let log = stdout(&bench.run(["net", "log"]));
        assert!(log.contains("db.test  DNS_DENIED"), "{}: {log}", bench.who());
        let lines = stdout(&bench.run(["net", "log", "--json"]));
        let mut replay = Replay::default();
        for (at, line) in lines.lines().enumerate() {
            let event = if at == 0 { "policy" } else { "dns" };
            assert_eq!(serde_json::from_str::<Value>(line).unwrap()["event"], event, "{line}");
            let replayed = if at == 0 { Replayed::Policy } else { Replayed::Same };
            assert_eq!(replay.line(line).unwrap(), replayed, "{line}");
        }
    }
}

/// Both names lead to one server here.
#[test]
fn check_and_a_run_know_the_server_behind_a_denied_name() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let target = format!("db.test:{}", server.port);
        let client = format!("curl -sS --max-time 20 --noproxy '*' http://{target}/");
        let open = ["--net", "unrestricted", "--allow-private", &target];
        let deny = ["--deny", "web.test", "--deny", "*.web.test"];
        for (flags, passes) in [(open.to_vec(), true), ([&open[..], &deny[..]].concat(), false)] {
            let checked = named.run(&bench, [&["net", "check", &target], &flags[..]].concat());
            assert_eq!(checked.status.code(), Some(i32::from(!passes)), "{}", stdout(&checked));
            let ran = named.run(&bench, [&["run"], &flags[..], &["--", "sh", "-c", &client]].concat());
            assert_eq!(stdout(&ran) == "hello\n", passes, "{}: {}", bench.who(), stderr(&ran));
            if !passes {
                let why =
                    format!("{target} leads to 127.0.0.1, an address of web.test, which the rule web.test denies");
                assert!(stdout(&checked).contains(&why), "{}", stdout(&checked));
                assert!(stderr(&ran).contains(&why), "{}", stderr(&ran));
                let wide = "--deny *.web.test closes names and not every way to the servers behind them";
                assert!(stderr(&ran).contains(wide), "{}", stderr(&ran));
            }
        }
    }
}

#[test]
fn the_operator_bounds_the_network_of_every_run() {
    for bench in benches() {
        let settings = "[egress]\nmax_mode = \"allowlist\"\ndeny = [\"web.test\", \"10.0.0.0/8\"]\n";
        let check = |arguments: &[&str]| {
            let all = [&["net", "check"], arguments].concat();
            Named::new(&bench).with_settings(settings).run(&bench, all)
        };
        let open = check(&["a.test:443", "--net", "unrestricted"]);
        let said = stderr(&open);
        assert!(open.status.code() == Some(125) && said.contains("at most --net allowlist"), "{said}");
        assert!(said.contains("config.toml:2"), "{said}");
        for denied in ["web.test:443", "10.1.2.3:443"] {
            let told = check(&[denied, "--allow-private", denied]);
            assert_eq!(told.status.code(), Some(1), "{}", stderr(&told));
            assert!(stdout(&told).contains("is denied by the rule "), "{}", stdout(&told));
        }
        let fine = check(&["a.test:443", "--allow", "a.test", "--resolve", "93.184.216.34"]);
        assert_eq!(fine.status.code(), Some(0), "{}", stderr(&fine));
    }
}

/// A prefix that is routed to the machine itself stands in no list of its addresses.
#[test]
fn check_asks_the_kernel_what_is_this_host() {
    let setup = "ip link set lo up && ip route add local 93.184.219.0/24 dev lo && exec \"$0\" \"$@\"";
    for bench in benches() {
        for (address, exit) in [("93.184.219.5", 1), ("93.184.216.34", 0)] {
            let check = ["net", "check", "--json", "a.test:443", "--allow", "a.test", "--resolve", address];
            let nexus = bench.nexus(check);
            let mut command = std::process::Command::new("unshare");
            command.args(["-rn", "sh", "-c", setup]).arg(nexus.get_program()).args(nexus.get_args());
            command.envs(nexus.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let output = command.current_dir(&bench.workspace).output().unwrap();
            let told = report(&output);
            assert_eq!(output.status.code(), Some(exit), "{}: {address}: {told}", bench.who());
            let code = if exit == 0 { "OK" } else { "PRIVATE_DESTINATION" };
            assert_eq!(told["code"], code, "{}: {address}: {told}", bench.who());
        }
    }
}

/// The usual way to find one's own address: connect a UDP socket to something far away, which sends nothing.
#[test]
fn a_program_finds_an_address_of_its_own() {
    let script = "import socket as s, threading as t\n\
                  u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.connect(('93.184.216.34', 80)); own = u.getsockname()[0]\n\
                  for at in (own, '192.0.0.8', '0.0.0.0'):\n    \
                  l = s.create_server((at, 8080))\n    \
                  t.Thread(target=lambda: l.accept()[0].sendall(b'worker'), daemon=True).start()\n    \
                  print(at, s.create_connection((at, 8080), 20).recv(9))\n    \
                  l.close()\n";
    for bench in benches() {
        for network in [["--net", "unrestricted"], ["--allow", "a.test"]] {
            let run = ["run", "--json", "--changes", "discard"];
            let output = bench.run([&run[..], &network, &["--", "python3", "-c", script]].concat());
            let told = report(&output);
            let wanted = "127.0.0.1 b'worker'\n192.0.0.8 b'worker'\n0.0.0.0 b'worker'\n";
            assert_eq!(told["output"]["stdout"]["text"], wanted, "{}: {told}", bench.who());
            assert_eq!(told["egress"]["denied"], serde_json::json!([]), "{}: {told}", bench.who());
            assert_eq!(told["egress"]["allowed"], serde_json::json!([]), "{}: {told}", bench.who());
        }
    }
}

/// Programs ask for what a machine can use (AI_ADDRCONFIG), and for one family or any.
#[test]
fn an_allowed_name_is_found_for_every_family_that_a_program_asks_for() {
    let script = "import socket as s\n\
                  for family in (s.AF_UNSPEC, s.AF_INET, s.AF_INET6):\n    \
                  for flags in (0, s.AI_ADDRCONFIG):\n        \
                  try: print(len(s.getaddrinfo('a.test', 443, family, s.SOCK_STREAM, 0, flags)) > 0)\n        \
                  except s.gaierror: print(False)\n";
    for bench in benches() {
        let output = bench.run(["run", "--changes", "discard", "--allow", "a.test", "--", "python3", "-c", script]);
        // There is no IPv6 address but the loopback's, as on most machines without it.
        let wanted = "True\nTrue\nTrue\nTrue\nTrue\nFalse\n";
        assert_eq!(stdout(&output), wanted, "{}: {}", bench.who(), stderr(&output));
    }
}

#[test]
fn git_clones_from_an_allowed_server_and_gets_a_hint_about_another() {
    for bench in benches() {
        let named = Named::new(&bench);
        let site = bench.base.path().join("site");
        let make = format!(
            "git init -q -b main {0}/work && cd {0}/work && echo x > file && git add file && \
             git -c user.name=a -c user.email=a@b commit -qm one && git clone -q --bare . {0}/repo.git && \
             cd {0}/repo.git && git update-server-info",
            site.display()
        );
        fs::create_dir(&site).unwrap();
        let made = std::process::Command::new("sh").args(["-c", &make]).env("HOME", &site).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        let files = Files::serve(&site);
        let clone = format!("git clone -q http://web.test:{}/repo.git clone && cat clone/file", files.port);
        let allow = format!("web.test:{}", files.port);
        let output = named.run(&bench, ["run", "--allow-private", &allow, "--changes", "discard", "--shell", &clone]);
        assert_eq!(stdout(&output), "x\n", "{}: {}", bench.who(), stderr(&output));
        let output = named.run(&bench, ["run", "--allow", "web.test", "--changes", "discard", "--shell", &clone]);
        assert!(stderr(&output).contains("403"), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(offered(&bench, &output, &allow), ["--allow", &allow]);
    }
}

/// A server of files, which ends with it.
struct Files {
    port: u16,
    child: std::process::Child,
}

impl Files {
    fn serve(folder: &std::path::Path) -> Self {
        let mut child = std::process::Command::new("python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
            .arg(folder)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        // Serving HTTP on 127.0.0.1 port N (…)
        let port = line.split(' ').skip_while(|word| *word != "port").nth(1).unwrap().parse().unwrap();
        Self { port, child }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_killed_nexus_leaves_no_connection_and_no_process() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let allow = format!("web.test:{}", server.port);
        let url = format!("http://web.test:{}/endless", server.port);
        let mut child = named
            .nexus(&bench, ["run", "--allow-private", &allow, "--", "curl", "-sS", "-o", "/dev/null", &url])
            .spawn()
            .unwrap();
        wait_until("a connection", Duration::from_secs(20), || server.open() == 1);
        // setpriv and nexus took the place of unshare, so this is nexus itself.
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("its end", Duration::from_secs(10), || server.open() == 0);
        wait_until("the end of the command", Duration::from_secs(10), || support::processes_with(&url).is_empty());
        let output =
            named.run(&bench, ["run", "--allow-private", &allow, "--", "curl", "-sS", &url.replace("endless", "")]);
        assert_eq!(stdout(&output), "hello\n", "{}: {}", bench.who(), stderr(&output));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_record_that_takes_no_more_stops_new_connections() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let net = bench.state.join("net");
        fs::create_dir(&net).unwrap();
        bench.give(&net);
        let mount = format!(
            "mount -t tmpfs -o size=4k,mode=700,uid={0},gid={0} none {1}",
            bench.user.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            net.display()
        );
        let allow = format!("web.test:{}", server.port);
        let url = format!("http://web.test:{}/", server.port);
        let script = format!("for i in $(seq 12); do curl -sS --max-time 20 {url}; done | sort | uniq -c");
        let output = named
            .prepared(&bench, &mount, ["run", "--json", "--allow-private", &allow, "--shell", &script])
            .output()
            .unwrap();
        let told = report(&output);
        let allowed = told["egress"]["allowed"][0]["connections"].as_u64().unwrap();
        assert!((1..12).contains(&allowed), "{}: {told}", bench.who());
        let denied = &told["egress"]["denied"][0];
        assert_eq!(denied["code"], "INTERNAL_ERROR", "{told}");
        assert_eq!(denied["count"].as_u64().unwrap() + allowed, 12, "{told}");
        assert!(told["egress"]["unrecorded"].as_u64().unwrap() > 0, "{told}");
        assert!(stderr(&output).is_empty() && told["exit_code"] == 0, "{told}");
    }
}

#[test]
fn a_budget_ends_the_connection_that_uses_it_up() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let allow = format!("web.test:{}", server.port);
        let url = format!("http://web.test:{}", server.port);
        let flags = ["run", "--allow-private", &allow, "--max-egress-bytes", "64K", "--shell"];
        let script = format!("curl -sS --max-time 20 {url}/endless | wc -c");
        let output = named.run(&bench, flags.into_iter().chain([script.as_str()]));
        let came: u64 = stdout(&output).trim().parse().unwrap();
        assert!((1..=64 << 10).contains(&came), "{}: {came}", bench.who());
        let script = format!("curl -sS --max-time 20 {url}/; curl -sS --max-time 20 {url}/");
        let flags = ["run", "--allow-private", &allow, "--max-connections", "1", "--shell", &script];
        let output = named.run(&bench, flags);
        assert_eq!(stdout(&output).matches("hello").count(), 1, "{}: {}", bench.who(), stdout(&output));
        assert!(stderr(&output).contains("the budget of 1 connections is used up"), "{}", stderr(&output));
    }
}

#[test]
fn a_detached_sandbox_has_its_network_as_long_as_it_lives() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let allow = format!("web.test:{}", server.port);
        let url = format!("http://web.test:{}/", server.port);
        let output =
            named.run(&bench, ["run", "--detach", "--name", "d", "--allow-private", &allow, "--", "sleep", "1000"]);
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        let output = bench.run(["exec", "d", "--", "curl", "-sS", &url]);
        assert_eq!(stdout(&output), "hello\n", "{}: {}", bench.who(), stderr(&output));
        let output = bench.run(["exec", "d", "--", "curl", "-sS", &url.replace("web", "db")]);
        assert!(stdout(&output).contains("no rule allows db.test"), "{}: {}", bench.who(), stdout(&output));
        assert!(bench.run(["stop", "d"]).status.success());
        let log = stdout(&bench.run(["net", "log"]));
        assert!(log.contains("allow    web.test") && log.contains("deny     db.test"), "{log}");
        bench.run(["rm", "d"]);
    }
}

#[test]
fn check_decides_as_a_run_would_and_its_exit_code_says_so() {
    for bench in benches() {
        let cases: &[(&[&str], i32, &str, &str)] = &[
            (&["a.test:443"], 1, "deny", "NET_MODE_NONE"),
            (&["a.test:443", "--allow", "a.test", "--resolve", "93.184.216.34"], 0, "allow", "OK"),
            (&["a.test:80", "--allow", "a.test"], 1, "deny", "PORT_NOT_ALLOWED"),
            (&["b.test:443", "--allow", "a.test"], 1, "deny", "NOT_IN_ALLOWLIST"),
            (&["b.test:443", "--ask"], 1, "ask", "APPROVAL_REQUIRED"),
            (&["a.test:443", "--allow", "a.test", "--resolve", "10.0.0.1"], 1, "deny", "PRIVATE_DESTINATION"),
            (&["a.test:443", "--allow", "a.test", "--resolve", "127.0.0.1"], 1, "deny", "PRIVATE_DESTINATION"),
            (&["a.test:443", "--allow-private", "a.test", "--resolve", "10.0.0.1"], 0, "allow", "OK"),
            (&["a.test:443", "--allow", "*.test.example", "--deny", "a.test"], 1, "deny", "NOT_IN_ALLOWLIST"),
            (&["10.1.2.3:5432", "--allow-private", "10.0.0.0/8:5432"], 0, "allow", "OK"),
            (&["10.1.2.3:5432", "--net", "unrestricted"], 1, "deny", "PRIVATE_DESTINATION"),
            (&["a.test:25", "--net", "unrestricted", "--resolve", "93.184.216.34"], 0, "allow", "OK"),
            (&["a.test:443", "--allow", "a.test", "--net-methods", "read-only"], 1, "deny", "METHOD_NOT_ALLOWED"),
            (
                &["a.test:80", "--allow", "a.test:80", "--net-methods", "read-only", "--resolve", "93.184.216.34"],
                0,
                "allow",
                "OK",
            ),
        ];
        for (arguments, exit, decision, code) in cases {
            let output = bench.nexus(["net", "check", "--json"]).args(*arguments).output().unwrap();
            let told = report(&output);
            assert_eq!(output.status.code(), Some(*exit), "{arguments:?}: {told}");
            assert_eq!((told["decision"].as_str(), told["code"].as_str()), (Some(*decision), Some(*code)), "{told}");
        }
        for wrong in [
            &["a.test"][..],
            &["a.test:443", "--allow", "10.0.0.1"],
            &["a.test:443", "--allow", "http://x/"],
            &["a.test:443", "--net", "none", "--allow", "a.test"],
            &["a.test:443", "--net", "unrestricted", "--allow", "a.test"],
            &["a.test:443", "--allow-group", "pkg:nothing"],
        ] {
            let output = bench.nexus(["net", "check"]).args(wrong).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", stderr(&output));
        }
        let text = stdout(&bench.run(["net", "check", "a.test:80", "--allow", "a.test"]));
        assert!(text.contains("denied: a.test is allowed on port 443, not on 80"), "{text}");
        assert!(text.contains("allow it with: --allow a.test:80"), "{text}");
    }
}

#[test]
fn a_network_for_reading_lets_requests_that_read_through_and_nothing_else() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let url = format!("http://web.test:{}/", server.port);
        let allow = format!("web.test:{}", server.port);
        let flags = ["run", "--json", "--allow-private", &allow, "--net-methods", "read-only", "--", "curl", "-sS"];
        let run = |more: &[&str]| report(&named.run(&bench, [&flags[..], more, &[&url]].concat()));
        let told = run(&[]);
        assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {told}", bench.who());
        assert_eq!(told["egress"]["denied"].as_array().map_or(0, Vec::len), 0, "{told}");
        let before = server.accepted();
        // Another method; a tunnel, and a way around the proxy, in which no method can be seen.
        for more in [&["-d", "x"][..], &["--proxytunnel"], &["--noproxy", "*"]] {
            let told = run(more);
            assert!(!told["output"]["stdout"]["text"].as_str().unwrap().contains("hello"), "{more:?}: {told}");
            assert_eq!(told["egress"]["denied"][0]["code"], "METHOD_NOT_ALLOWED", "{}: {more:?}: {told}", bench.who());
        }
        assert_eq!(server.accepted(), before, "{}: something came through", bench.who());
    }
}

#[test]
fn a_profile_opens_the_network_and_the_workspaces_file_only_narrows_it() {
    for bench in benches() {
        let folder = bench.home.join(".config/nexus/profiles");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("web.yaml"), "net: {allow: [a.test, b.test]}\n").unwrap();
        for path in
            [bench.home.join(".config"), bench.home.join(".config/nexus"), folder.clone(), folder.join("web.yaml")]
        {
            bench.give(&path);
        }
        let check = |target: &str| {
            let arguments = ["net", "check", "--json", "--profile", "web", "--resolve", "93.184.216.34", target];
            let output = bench.run(arguments);
            (output.status.code(), report(&output))
        };
        let (code, told) = check("b.test:443");
        assert_eq!(code, Some(0), "{told}");
        assert!(told["rule"]["source"]["file"].as_str().unwrap().ends_with("web.yaml"), "{told}");
        assert_eq!(told["rule"]["source"]["line"], 1, "{told}");
        bench.write("nexus.yaml", "net: {allow: [a.test]}\n");
        assert_eq!(check("a.test:443").0, Some(0));
        assert_eq!(check("b.test:443").0, Some(1));
        let private = ["net", "check", "10.0.0.1:443", "--profile", "web", "--allow-private", "10.0.0.1:443"];
        assert_eq!(bench.run(private).status.code(), Some(1), "the file's list is all that stays");
        bench.write("nexus.yaml", "net: {deny: [a.test]}\n");
        assert_eq!(bench.run(private).status.code(), Some(0));
        let (code, told) = check("a.test:443");
        assert_eq!(code, Some(1), "{told}");
        assert!(told["rule"]["source"]["file"].as_str().unwrap().ends_with("nexus.yaml"), "{told}");
        bench.write("nexus.yaml", "net: {methods: read_only}\n");
        assert_eq!(check("a.test:443").1["code"], "METHOD_NOT_ALLOWED");
        bench.write("nexus.yaml", "net: {methods: any}\n");
        let flags = ["run", "--profile", "web", "--net-methods", "read-only", "--", "true"];
        assert_eq!(bench.run(flags).status.code(), Some(0), "the flag is the last word");
        assert_eq!(check("a.test:443").0, Some(0));
        bench.write("nexus.yaml", "net: {allow: [c.test]}\n");
        let output = bench.run(["run", "--profile", "web", "--", "true"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("would reach c.test"), "{}", stderr(&output));
        bench.write("nexus.yaml", "net: none\n");
        let output = bench.run(["run", "--profile", "web", "--allow", "a.test", "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let output = bench.run(["run", "--require", "net.none", "--profile", "web", "--", "true"]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn a_guarantee_that_a_flag_breaks_is_refused() {
    for bench in benches() {
        let output = bench.run(["run", "--require", "net.none", "--allow", "a.test", "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("--allow opens the network"), "{}", stderr(&output));
        let output = bench.run(["run", "--require", "net.destination_checked", "--allow", "a.test", "--", "true"]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn pip_installs_from_the_users_own_index_by_its_group_and_the_login_stays_outside() {
    for bench in benches() {
        let named = Named::new(&bench);
        let site = bench.base.path().join("index");
        let make = "import zipfile, os, sys\n\
                    os.makedirs(sys.argv[1] + '/simple/tiny-thing')\n\
                    name = 'tiny_thing-1.0-py3-none-any.whl'\n\
                    w = zipfile.ZipFile(sys.argv[1] + '/simple/tiny-thing/' + name, 'w')\n\
                    w.writestr('tiny_thing.py', 'WORD = \"tiny\"')\n\
                    w.writestr('tiny_thing-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny-thing\\nVersion: 1.0\\n')\n\
                    w.writestr('tiny_thing-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
                    w.writestr('tiny_thing-1.0.dist-info/RECORD', '')\n\
                    w.close()\n\
                    open(sys.argv[1] + '/simple/tiny-thing/index.html', 'w').write(f'<a href=\"{name}\">{name}</a>')\n";
        let made = std::process::Command::new("python3").args(["-c", make]).arg(&site).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        let files = Files::serve(&site);
        let pip = bench.home.join(".config/pip");
        fs::create_dir_all(&pip).unwrap();
        let index = format!("http://me:hunter2@web.test:{}/simple", files.port);
        fs::write(pip.join("pip.conf"), format!("[global]\nindex-url = {index}\ntrusted-host = web.test\n")).unwrap();
        bench.give(&bench.home.join(".config"));
        // The mirror has a private address here: that takes a flag of its own.
        let allow = format!("web.test:{}", files.port);
        let script = "env | grep -i hunter2; python3 -m pip download -q --no-deps -d /tmp/d tiny-thing && ls /tmp/d";
        let flags = ["run", "--allow-group", "pkg:pip", "--allow-private", &allow, "--shell", script];
        let output = named.run(&bench, flags);
        assert_eq!(stdout(&output), "tiny_thing-1.0-py3-none-any.whl\n", "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains(&format!("the login for {allow} stays outside")), "{}", stderr(&output));
        assert!(!stderr(&output).contains("hunter2"), "{}", stderr(&output));
        let told = stdout(&bench.run(["explain", "--allow-group", "pkg:pip", "--", "true"]));
        assert!(told.contains(&format!("pkg:pip: {allow}  ← index-url")), "{told}");
        assert!(!told.contains("hunter2") && !told.contains("pypi"), "{told}");
        let check = bench.run(["net", "check", &allow, "--allow-group", "pkg:pip", "--resolve", "93.184.216.34"]);
        assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    }
}

#[test]
fn cargos_group_opens_no_index_that_cargo_does_not_use() {
    for bench in benches() {
        let home = bench.home.join(".cargo");
        let index = |name: &str, dl: Option<&str>| {
            let directory = home.join("registry/index").join(name);
            fs::create_dir_all(&directory).unwrap();
            match dl {
                Some(dl) => fs::write(directory.join("config.json"), format!("{{\"dl\":\"{dl}\"}}")).unwrap(),
                None => fs::create_dir(directory.join(".git")).unwrap(),
            }
        };
        let opened = || {
            bench.give(&home);
            let arguments = ["explain", "--allow-group", "pkg:cargo", "--", "true"];
            let output = bench.nexus(arguments).env("CARGO_HOME", &home).output().unwrap();
            let said = stdout(&output) + &stderr(&output);
            let mut hosts: Vec<String> = said
                .lines()
                .filter_map(|line| Some(line.split_once("pkg:cargo: ")?.1.split(' ').next()?.to_owned()))
                .collect();
            hosts.sort();
            (hosts, said)
        };
        // What cargo before 1.70 leaves behind is an index by git, which says no host of downloads.
        index("github.test-1ecc6299db9ec823", None);
        let (hosts, said) = opened();
        assert!(!hosts.iter().any(|host| host.starts_with("github.test")) && said.contains("over HTTPS"), "{said}");
        index("index.test-6f17d22bba15001f", Some("https://files.test/crates"));
        index("old-mirror.test-0123456789abcdef", Some("https://old-files.test/crates"));
        let (hosts, said) = opened();
        assert_eq!(hosts, ["files.test:443", "index.test:443"], "{}: {said}", bench.who());
        // One that the settings name is used, and the default one too.
        let named = "[registries.mine]\nindex = \"sparse+https://old-mirror.test/\"\n";
        fs::write(home.join("config.toml"), named).unwrap();
        let (hosts, said) = opened();
        let all = ["files.test:443", "index.test:443", "old-files.test:443", "old-mirror.test:443"];
        assert_eq!(hosts, all, "{}: {said}", bench.who());
        // And a replacement leaves the default one out.
        let replaced =
            "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://old-mirror.test/\"\n";
        fs::write(home.join("config.toml"), replaced).unwrap();
        let (hosts, said) = opened();
        assert_eq!(hosts, ["old-files.test:443", "old-mirror.test:443"], "{}: {said}", bench.who());
    }
}

#[test]
fn a_group_never_runs_or_reads_what_lies_in_the_workspace() {
    for bench in benches() {
        let ran = bench.base.path().join("ran");
        fs::create_dir(&ran).unwrap();
        bench.give(&ran);
        let program = format!("#!/bin/sh\ntouch {}/it\necho https://evil.test/\n", ran.display());
        for name in ["python3", "npm", "node"] {
            let path = bench.write(&format!("bin/{name}"), &program);
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        bench.write("pip/__init__.py", format!("open('{}/it', 'w')\n", ran.display()));
        bench.write(".npmrc", "registry=https://evil.test/\n");
        bench.write("pip.conf", "[global]\nindex-url=https://evil.test/\n");
        for group in ["pkg:pip", "pkg:npm"] {
            let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bench.workspace.join("bin").display());
            let mut command = bench.nexus(["explain", "--allow-group", group, "--", "true"]);
            // What a shell of the project would have.
            let venv = ("VIRTUAL_ENV", bench.workspace.as_os_str());
            let code = ("PYTHONPATH", bench.workspace.as_os_str());
            let output = command.env("PATH", path).envs([venv, code]).output().unwrap();
            let said = stdout(&output) + &stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{}: {group}: {said}", bench.who());
            let opened = |line: &str| line.contains("evil.test") && !line.contains("--allow evil.test:443");
            assert!(!said.lines().any(opened), "{}: {group}: {said}", bench.who());
            assert!(said.contains("opens nothing"), "{}: {group}: {said}", bench.who());
            assert!(!ran.join("it").exists(), "{}: {group} ran a program of the workspace", bench.who());
        }
        // The harmless twin: the user's own file decides, and no program of a directory of PATH is run for it.
        let tools = bench.base.path().join("tools");
        fs::create_dir(&tools).unwrap();
        for name in ["npm", "node"] {
            fs::copy(bench.workspace.join("bin").join(name), tools.join(name)).unwrap();
            bench.give(&tools.join(name));
        }
        bench.give(&tools);
        fs::write(bench.home.join(".npmrc"), "registry=https://mine.test/\n").unwrap();
        bench.give(&bench.home.join(".npmrc"));
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", tools.display());
        let output =
            bench.nexus(["explain", "--allow-group", "pkg:npm", "--", "true"]).env("PATH", path).output().unwrap();
        let said = stdout(&output) + &stderr(&output);
        assert!(said.contains("pkg:npm: mine.test:443") && !ran.join("it").exists(), "{}: {said}", bench.who());
    }
}

#[test]
fn explain_names_every_network_rule_with_who_said_it() {
    for bench in benches() {
        let flags = [
            "explain",
            "--allow",
            "a.test",
            "--deny",
            "b.test",
            "--allow-private",
            "10.0.0.0/8:5432",
            "--allow-group",
            "code:github",
            "--max-connections",
            "5",
            "--net-methods",
            "read-only",
            "--",
            "true",
        ];
        let text = stdout(&bench.run(flags));
        for row in [
            "allowlist  ← --allow",
            "allow a.test  ← --allow",
            "deny b.test  ← --deny",
            "allow private 10.0.0.0/8:5432  ← --allow-private",
            "group code:github  ← --allow-group",
            "at most 5 connections  ← --max-connections",
            "methods read_only  ← --net-methods",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
        assert!(text.lines().any(|line| line.contains("code:github: ") && line.contains("built-in")), "{text}");
    }
}

fn signal(child: &std::process::Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn the_proxy_serves_other_programs_reads_its_rules_again_and_ends() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let folder = bench.home.join(".config/nexus/profiles");
        fs::create_dir_all(&folder).unwrap();
        let write = |text: &str| fs::write(folder.join("p.yaml"), text).unwrap();
        write("net: {allow: [x.test]}\n");
        for path in [".config", ".config/nexus", ".config/nexus/profiles", ".config/nexus/profiles/p.yaml"] {
            bench.give(&bench.home.join(path));
        }
        let allow = format!("web.test:{}", server.port);
        let (child, address) = proxy(&named, &bench, &["--profile", "p", "--allow-private", &allow]);
        let fetch = |host: &str| {
            let url = format!("http://{host}:{}/", server.port);
            let output =
                std::process::Command::new("curl").args(["-sS", "--max-time", "20", "-x", &address, &url]).output();
            stdout(&output.unwrap())
        };
        assert_eq!(fetch("web.test"), "hello\n", "{}", bench.who());
        assert!(fetch("db.test").contains("no rule allows db.test"), "{}", bench.who());
        // The proxy itself is not a destination, whatever the rules allow.
        let own = address.trim_start_matches("http://");
        let output =
            std::process::Command::new("curl").args(["-sS", "-x", &address, &format!("http://{own}/")]).output();
        assert!(!stdout(&output.unwrap()).contains("hello"));

        write("net: {deny: [web.test]}\n");
        signal(&child, rustix::process::Signal::HUP);
        wait_until("the new rules", Duration::from_secs(20), || fetch("web.test").contains("denied by the rule"));
        write("net: {deny: [}\n");
        signal(&child, rustix::process::Signal::HUP);
        write("net: {allow: [x.test]}\n");
        signal(&child, rustix::process::Signal::HUP);
        wait_until("the old rules", Duration::from_secs(20), || fetch("web.test") == "hello\n");
        // Its flag still allows something; a proxy with nothing but the profile has nothing left without it.
        let (only, at) = proxy(&named, &bench, &["--profile", "p"]);
        let through = |host: &str| {
            let url = format!("http://{host}/");
            let output = std::process::Command::new("curl").args(["-sS", "--max-time", "20", "-x", &at, &url]).output();
            stdout(&output.unwrap())
        };
        assert!(!through("x.test").contains("there is no network"), "{}", bench.who());
        for gone in [false, true] {
            write("net: {allow: [x.test]}\n");
            signal(&only, rustix::process::Signal::HUP);
            wait_until("the rule", Duration::from_secs(20), || !through("x.test").contains("there is no network"));
            if gone {
                fs::remove_file(folder.join("p.yaml")).unwrap();
            } else {
                write("{}\n");
            }
            signal(&only, rustix::process::Signal::HUP);
            wait_until("no rule", Duration::from_secs(20), || through("x.test").contains("there is no network"));
        }
        signal(&only, rustix::process::Signal::TERM);
        assert_eq!(only.wait_with_output().unwrap().status.code(), Some(0));
        signal(&child, rustix::process::Signal::TERM);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("blocked: db.test"), "{}", stderr(&output));
        assert!(std::net::TcpStream::connect(own).is_err(), "nobody listens any more");
        let refused = bench.run(["net", "proxy", "--allow", "a.test", "--listen", "0.0.0.0:0"]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    }
}

#[test]
fn a_question_is_answered_on_the_terminal_and_a_saved_answer_holds_for_the_next_run() {
    let server = Server::start();
    for bench in benches() {
        let named = Named::new(&bench);
        let url = format!("http://web.test:{}/", server.port);
        let other = url.replace("web.test", "db.test");
        let target = format!("web.test:{}", server.port);
        // The rule of an answer opens nothing private: root, who is the operator, trusts the range of this test.
        let operator = bench.user.is_none() && support::is_root();
        let config = bench.base.path().join("config");
        fs::create_dir(&config).unwrap();
        bench.give(&config);
        if operator {
            fs::write(config.join("config.toml"), "[egress]\ntrusted_ranges = [\"127.0.0.0/8\"]\n").unwrap();
        }
        let on_screen = |flags: &[&str], script: &str| {
            let all = [&["run", "--changes", "discard"], flags, &["--shell", script]].concat();
            let mut command = named.on_terminal(&bench, all);
            command.env("NEXUS_CONFIG_DIR", &config);
            Screen::start(command)
        };
        let fetch = format!("curl -sS {url}; curl -sS {url}; curl -sS {other}; echo END");
        // What is typed before the choices are drawn counts for nothing.
        let wait_for_question = |screen: &Screen, about: &str, number: usize| {
            wait_until(&format!("question {number} about {about}"), support::screen::PATIENCE, || {
                let shown = screen.shown();
                shown.matches(&format!("wants to reach {about}")).count() == number && shown.ends_with(" s) ")
            });
        };
        if operator {
            let mut screen = on_screen(&["--ask"], &fetch);
            wait_for_question(&screen, &target, 1);
            screen.send("what?\n");
            screen.wait_for("o, r, s, n or a?");
            screen.send("o\n");
            screen.wait_for("hello");
            wait_for_question(&screen, &target, 2);
            screen.send("s\n");
            screen.wait_for("saved in");
            wait_for_question(&screen, "db.test", 1);
            screen.send("n\n");
            screen.wait_for("END");
            assert!(screen.end().success());
            assert_eq!(screen.shown().matches("hello").count(), 2, "{}", screen.shown());
            let saved = fs::read_to_string(config.join("profiles/asked.yaml")).unwrap();
            assert!(saved.contains(&format!("- \"{target}\"")), "{saved}");
            let mut screen = on_screen(&["--ask", "--ask-timeout", "1s"], &fetch);
            screen.wait_for("nobody answered: no");
            screen.wait_for("END");
            assert!(screen.end().success());
            assert_eq!(screen.shown().matches("hello").count(), 2, "{}", screen.shown());
            assert!(!screen.shown().contains(&format!("reach {target}")), "{}", screen.shown());
            let mut screen = on_screen(&["--ask"], &fetch);
            screen.wait_for("wants to reach db.test");
            // The run ends while a question is open.
            screen.send("\u{3}");
            assert!(!screen.end().success());
        } else {
            let mut screen = on_screen(&["--ask"], &fetch);
            wait_for_question(&screen, &target, 1);
            screen.send("r\n");
            wait_for_question(&screen, "db.test", 1);
            screen.send("n\n");
            screen.wait_for("END");
            assert!(screen.end().success());
            // Allowed by its name; what it leads to is still looked at.
            assert!(screen.shown().contains("that is a loopback address"), "{}", screen.shown());
        }
        for flags in [&["--ask"][..], &["--ask", "--json"], &["--ask", "--stdin"], &["--ask", "--detach"]] {
            let output = bench.nexus(["run"]).args(flags).args(["--", "true"]).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", stderr(&output));
        }
    }
}

/// Addresses that carry 10.0.0.1 and 93.184.216.34 below a prefix of /96 that the resolver shows.
const TRANSLATED: [&str; 2] = ["2a01:db8:122:344::10.0.0.1", "2a01:db8:122:344::93.184.216.34"];

#[test]
fn a_check_knows_the_translator_of_the_network() {
    for bench in benches() {
        let named = Named::new(&bench);
        let hosts = bench.base.path().join("hosts");
        let plain = format!("127.0.0.1 localhost\n{} private.test\n{} public.test\n", TRANSLATED[0], TRANSLATED[1]);
        let shown = "192.0.0.170 ipv4only.arpa\n2a01:db8:122:344::192.0.0.170 ipv4only.arpa\n";
        std::fs::write(&hosts, plain.clone() + shown).unwrap();
        let check = |target: &str, flags: &[&str]| {
            let output = named.run(&bench, [&["net", "check", target, "--net", "unrestricted"], flags].concat());
            (output.status.code(), stdout(&output) + &stderr(&output))
        };
        for target in ["private.test:443".to_owned(), format!("[{}]:443", TRANSLATED[0])] {
            let (code, text) = check(&target, &[]);
            assert!(code == Some(1) && text.contains("a private address"), "{}: {target}: {text}", bench.who());
            assert!(text.contains("leads to 10.0.0.1"), "{}: {target}: {text}", bench.who());
        }
        for target in ["public.test:443".to_owned(), format!("[{}]:443", TRANSLATED[1])] {
            let (code, text) = check(&target, &[]);
            assert!(code == Some(0) && text.contains("leads to 93.184.216.34"), "{}: {target}: {text}", bench.who());
        }
        // The answer is that of a run: where the network shows no prefix the address is an ordinary one.
        std::fs::write(&hosts, plain).unwrap();
        let (code, text) = check("private.test:443", &[]);
        let run = named.run(&bench, ["run", "--net", "unrestricted", "--", "true"]);
        assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
        assert!(!text.contains("leads to") && (code == Some(0) || text.contains("NAT64")), "{}: {text}", bench.who());
    }
}
