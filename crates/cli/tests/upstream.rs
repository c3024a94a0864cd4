//! The operator's own proxy (`upstream_proxy` in `config.toml`): everything goes through it, nothing beside it, and its
//! password shows nowhere.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::net::{Named, Server};
use support::{Bench, benches, report, stderr, stdout};

/// Password that must show nowhere: as it is written in the setting, and as it is sent.
const PASSWORD: &str = "hunter%402";
const SENT: &str = "Basic bmV4dXM6aHVudGVyQDI=";
const SECRETS: &[&str] = &["hunter", "bmV4dXM6"];
/// A refusal by a proxy that is away or says no comes sooner than any time limit ends.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Answers of the proxy to a CONNECT.
#[derive(Clone, Copy)]
enum Does {
    /// Connects to this port of loopback, whatever the name.
    Connect(u16),
    /// Answers this and ends the connection.
    Says(&'static str),
    /// Answers 503 with the head that it got, as the error pages of squid do.
    Repeats,
}

/// A proxy that remembers the heads that it saw. It ends with the test's process.
struct Proxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), heads: Arc::default() };
        let heads = Arc::clone(&proxy.heads);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, heads) = (stream.unwrap(), Arc::clone(&heads));
                // A client that leaves early is part of some tests.
                thread::spawn(move || serve(stream, does, &heads).ok());
            }
        });
        proxy
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }

    /// `[egress]` with this proxy.
    fn setting(&self) -> String {
        setting(self.port)
    }
}

fn setting(port: u16) -> String {
    format!("[egress]\nupstream_proxy = \"http://nexus:{PASSWORD}@127.0.0.1:{port}\"\n")
}

fn without_login(port: u16) -> String {
    format!("[egress]\nupstream_proxy = \"http://127.0.0.1:{port}\"\n")
}

fn serve(mut stream: TcpStream, does: Does, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    heads.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    let port = match does {
        Does::Says(answer) => return stream.write_all(answer.as_bytes()),
        Does::Repeats => {
            let answer = format!("HTTP/1.1 503 No\r\nContent-Length: {}\r\n\r\n", head.len());
            return stream.write_all(&[answer.as_bytes(), &head].concat());
        }
        Does::Connect(port) => port,
    };
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from, mut to) = (stream.try_clone()?, server.try_clone()?);
    let up = thread::spawn(move || std::io::copy(&mut from, &mut to).and_then(|_| to.shutdown(Shutdown::Write)));
    std::io::copy(&mut server, &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    up.join().unwrap()
}

/// Fails where the password, or its form on the wire, is a part of this.
fn assert_no_secret(bench: &Bench, what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{}: {what} shows the password: {text}", bench.who());
    }
}

/// The same for everything that is kept of the runs.
fn assert_no_secret_is_kept(bench: &Bench, named: &Named) {
    for arguments in [&["net", "log"][..], &["net", "log", "--json"], &["log"]] {
        let output = named.run(bench, arguments);
        assert!(output.status.success() && !output.stdout.is_empty(), "{}: {arguments:?}", bench.who());
        assert_no_secret(bench, &arguments.join(" "), &(stdout(&output) + &stderr(&output)));
    }
    let all =
        Command::new("grep").args(["-rlF", "-e", SECRETS[0], "-e", SECRETS[1]]).arg(&bench.state).output().unwrap();
    assert_eq!(stdout(&all), "", "{}: the state holds the password", bench.who());
}

/// Every way in with a client for each: the two of the proxy, SOCKS, and one that knows of none.
fn clients(host: &str, port: u16) -> [(&'static str, String); 4] {
    let curl = "curl -sS --max-time 30";
    let url = format!("http://{host}:{port}/");
    [
        ("http_absolute", format!("{curl} {url}")),
        ("connect", format!("{curl} --proxytunnel {url}")),
        ("socks5", format!("{curl} --proxy socks5h://127.0.0.1:1080 {url}")),
        ("transparent", format!("{curl} --noproxy '*' {url}")),
    ]
}

#[test]
fn every_way_out_of_a_run_is_the_operators_proxy_with_its_name_and_password() {
    let server = Server::start();
    for bench in benches() {
        let proxy = Proxy::start(Does::Connect(server.port));
        // No process listens on this port of this host, so what arrives has come through the proxy.
        let port = 7;
        let named = Named::new(&bench).with_settings(&proxy.setting());
        for (way, client) in clients("far.test", port) {
            let allow = format!("far.test:{port}");
            let output =
                named.run(&bench, ["run", "--json", "--net", "allowlist", "--allow", &allow, "--shell", &client]);
            let told = report(&output);
            assert_eq!(told["output"]["stdout"]["text"], "hello\n", "{}: {client}: {told}", bench.who());
            assert_eq!(told["egress"]["allowed"][0]["host"], "far.test", "{told}");
            let heads = proxy.take();
            assert_eq!(heads.len(), 1, "{}: {client}: {heads:?}", bench.who());
            let lines: Vec<&str> = heads[0].lines().collect();
            assert_eq!(lines[0], format!("CONNECT {allow} HTTP/1.1"), "{}: {client}", bench.who());
            assert!(lines.contains(&format!("Proxy-Authorization: {SENT}").as_str()), "{client}: {lines:?}");
            assert_no_secret(&bench, &client, &(stdout(&output) + &stderr(&output)));
            let line = stdout(&named.run(&bench, ["net", "log", "--json"]));
            assert!(line.contains("\"addresses_checked\":false"), "{}: {client}: {line}", bench.who());
            assert!(line.contains(&format!("\"way\":\"{way}\"")), "{}: {client}: {line}", bench.who());

            // What is denied here is not asked of the proxy.
            let denied = ["run", "--json", "--net", "allowlist", "--allow", "db.test", "--shell", &client];
            let told = report(&named.run(&bench, denied));
            assert_eq!(told["egress"]["denied"][0]["host"], "far.test", "{}: {client}: {told}", bench.who());
            assert_eq!(proxy.take(), [] as [&str; 0], "{}: {client}", bench.who());
        }
        // Neither the file nor the setting is to be seen inside.
        let look = "cat /etc/nexus/config.toml; env; grep -rs hunt[e]r /etc /proc/*/cmdline /proc/*/environ; echo END";
        let output = named.run(&bench, ["run", "--allow", "far.test", "--shell", look]);
        assert!(stdout(&output).ends_with("END\n"), "{}: {}", bench.who(), stderr(&output));
        assert_no_secret(&bench, "the inside", &(stdout(&output) + &stderr(&output)));
        // One that goes on has its setting in memory alone.
        let allow = format!("far.test:{port}");
        let flags = ["run", "--detach", "--name", "d", "--allow", &allow, "--", "sleep", "1000"];
        let output = named.run(&bench, flags);
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        let output = bench.run(["exec", "d", "--", "curl", "-sS", &format!("http://{allow}/")]);
        assert_eq!(stdout(&output), "hello\n", "{}: {}", bench.who(), stderr(&output));
        assert_eq!(proxy.take().len(), 1);
        let seen = bench.run(["ps", "--json"]);
        assert!(stdout(&seen).contains("sleep"), "{}", stdout(&seen));
        assert_no_secret(&bench, "ps", &stdout(&seen));
        assert_no_secret_is_kept(&bench, &named);
        assert!(bench.run(["stop", "d"]).status.success());
        assert!(bench.run(["rm", "d"]).status.success());
        assert_no_secret_is_kept(&bench, &named);
    }
}

#[test]
fn a_proxy_that_is_away_or_refuses_ends_the_attempt_at_once_and_nothing_goes_around_it() {
    let server = Server::start();
    let allow = format!("web.test:{}", server.port);
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let says = |answer| Proxy::start(Does::Says(answer)).setting();
    let cases = [
        (setting(gone), "refused"),
        (says("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"), "403"),
        (says("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n\r\n"), "407"),
        (says("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "502"),
        (says(""), "closed the connection"),
        (says("SSH-2.0-x\r\n\r\n"), ""),
    ];
    for bench in benches() {
        for (setting, why) in &cases {
            let trusting = format!("{setting}trusted_ranges = [\"127.0.0.0/8\"]\n");
            let named = Named::new(&bench).with_settings(&trusting);
            for (way, client) in clients("web.test", server.port) {
                let began = Instant::now();
                // The name leads to the server, and it may: a connection beside the proxy would get there.
                let flags = ["run", "--json", "--net", "allowlist", "--allow", &allow, "--shell"];
                let output = named.run(&bench, flags.iter().copied().chain([client.as_str()]));
                let told = report(&output);
                let context = format!("{}: {client}, {why:?}: {told}", bench.who());
                let shown = told["output"]["stdout"]["text"].as_str().unwrap();
                assert!(!shown.contains("hello"), "{context}");
                assert!(began.elapsed() < AT_ONCE, "{:?}: {context}", began.elapsed());
                if !shown.is_empty() {
                    // An absolute-form request has a place for the reason.
                    assert!(shown.contains("the upstream proxy does not connect to web.test"), "{context}");
                    assert!(shown.contains(why), "{context}");
                }
                assert_no_secret(&bench, &client, &(stdout(&output) + &stderr(&output)));
                let log = stdout(&named.run(&bench, ["net", "log"]));
                let fail = log.lines().find(|line| line.contains("fail")).unwrap_or_else(|| panic!("{log} {context}"));
                assert!(fail.contains("OTHER  (the upstream proxy does not connect"), "{fail} {context}");
                assert!(fail.contains(why) && fail.contains(&format!("by {way}")), "{fail} {context}");
            }
            let head = format!("curl -sS -o /dev/null -D - --max-time 30 http://{allow}/");
            let output = named.run(&bench, ["run", "--allow", &allow, "--shell", &head]);
            let head = stdout(&output);
            assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("x-proxy-error: OTHER"), "{head}");
            assert_no_secret_is_kept(&bench, &named);
        }
        assert_eq!(server.accepted(), 0, "{}: a connection went around the proxy", bench.who());
        // The harmless twin: without the setting the same command gets there.
        let named = Named::new(&bench);
        let output =
            named.run(&bench, ["run", "--allow-private", &allow, "--shell", &clients("web.test", server.port)[0].1]);
        assert_eq!(stdout(&output), "hello\n", "{}: {}", bench.who(), stderr(&output));
        assert_eq!(server.accepted(), 1);
        server.forget();
    }
}

#[test]
fn the_proxy_for_other_programs_goes_through_the_operators() {
    let server = Server::start();
    for bench in benches() {
        let allow = format!("far.test:{}", server.port);
        let fetch = |named: &Named| {
            let mut child = named
                .nexus(&bench, ["net", "proxy", "--allow", &allow])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
                .unwrap();
            let url = format!("http://{allow}/");
            let output = Command::new("curl").args(["-sS", "-i", "--max-time", "30", "-x", line.trim(), &url]).output();
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
                .unwrap();
            let ended = child.wait_with_output().unwrap();
            assert!(ended.status.success(), "{}: {}", bench.who(), stderr(&ended));
            let told = stdout(&output.unwrap());
            assert_no_secret(&bench, "net proxy", &(told.clone() + &line + &stdout(&ended) + &stderr(&ended)));
            told
        };
        let other = Server::start();
        let proxy = Proxy::start(Does::Connect(other.port));
        // By its name: that one is looked up here, the destinations' are not.
        let named = Named::new(&bench).with_settings(&proxy.setting().replace("127.0.0.1", "db.test"));
        assert!(fetch(&named).ends_with("hello\n"), "{}", bench.who());
        assert_eq!(other.accepted(), 1);
        assert!(proxy.take()[0].starts_with(&format!("CONNECT {allow} HTTP/1.1\r\n")));
        assert_no_secret_is_kept(&bench, &named);
        let refusing = Proxy::start(Does::Says("HTTP/1.1 407 No\r\n\r\n"));
        let told = fetch(&Named::new(&bench).with_settings(&refusing.setting()));
        assert!(told.starts_with("HTTP/1.1 502 ") && told.contains("it answers 407"), "{}: {told}", bench.who());
        assert_eq!(server.accepted(), 0, "{}: a connection went around the proxy", bench.who());
    }
}

/// The defaults of such proxies allow CONNECT to port 443 alone.
#[test]
fn plain_http_on_port_80_goes_to_the_proxy_as_whole_requests() {
    let hello = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
    for bench in benches() {
        let proxy = Proxy::start(Does::Says(hello));
        let named = Named::new(&bench).with_settings(&without_login(proxy.port));
        for (way, client) in clients("far.test", 80) {
            let output = named.run(&bench, ["run", "--allow", "far.test:80", "--shell", &client]);
            assert_eq!(stdout(&output), "hello\n", "{}: {way}: {}", bench.who(), stderr(&output));
            let heads = proxy.take();
            assert_eq!(heads.len(), 1, "{}: {way}: {heads:?}", bench.who());
            let lines: Vec<&str> = heads[0].lines().collect();
            assert_eq!(lines[0], "GET http://far.test/ HTTP/1.1", "{way}");
            assert_eq!(lines.iter().filter(|line| line.starts_with("Host: ")).collect::<Vec<_>>(), [&"Host: far.test"]);
        }
        // Traffic that is not a request needs a tunnel, and in an open network it may be one.
        let script = "exec 3<>/dev/tcp/11.22.33.44/80; printf '\\001x' >&3; timeout 20 head -n 1 <&3";
        let output = named.run(&bench, ["run", "--net", "unrestricted", "--", "bash", "-c", script]);
        let heads = proxy.take();
        assert!(heads.len() == 1 && heads[0].starts_with("CONNECT 11.22.33.44:80 "), "{heads:?} {}", stderr(&output));
        // Another name behind an address is not a whole request either: the proxy would take the URL for the name.
        let script = "curl -sS --max-time 30 --noproxy '*' -H 'Host: other.test' http://11.22.33.44/";
        named.run(&bench, ["run", "--net", "unrestricted", "--shell", script]);
        let heads = proxy.take();
        assert!(heads.len() == 1 && heads[0].starts_with("CONNECT 11.22.33.44:80 "), "{}: {heads:?}", bench.who());
        // The proxy's question for a login is not an answer of the server's.
        let asking = Proxy::start(Does::Says(
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
        ));
        let named = Named::new(&bench).with_settings(&without_login(asking.port));
        let head = "curl -sS -i --max-time 30 http://far.test/";
        let said = stdout(&named.run(&bench, ["run", "--allow", "far.test:80", "--shell", head]));
        assert!(said.starts_with("HTTP/1.1 502 ") && said.contains("the upstream proxy answers 407"), "{said}");
        assert!(!said.to_lowercase().contains("proxy-authenticate"), "{}: {said}", bench.who());
    }
}

#[test]
fn the_login_reaches_no_request_whose_answer_goes_inside() {
    for bench in benches() {
        let proxy = Proxy::start(Does::Repeats);
        let named = Named::new(&bench).with_settings(&proxy.setting());
        for method in ["GET", "TRACE"] {
            let curl = format!("curl -sS -i -X {method} -H 'Max-Forwards: 0' --max-time 30 http://far.test/");
            let output = named.run(&bench, ["run", "--allow", "far.test:80", "--shell", &curl]);
            let said = stdout(&output) + &stderr(&output);
            assert!(said.contains("it answers 503"), "{}: {method}: {said}", bench.who());
            assert_no_secret(&bench, method, &said);
            let heads = proxy.take();
            assert!(heads.len() == 1 && heads[0].contains(SENT), "{}: {method}: {heads:?}", bench.who());
            assert!(heads[0].starts_with("CONNECT far.test:80 "), "{}: {method}: {heads:?}", bench.who());
        }
    }
}

#[test]
fn the_loopback_of_this_host_is_not_reached_through_the_proxy() {
    let server = Server::start();
    for bench in benches() {
        let proxy = Proxy::start(Does::Connect(server.port));
        let named = Named::new(&bench).with_settings(&proxy.setting().replace("127.0.0.1", "db.test"));
        for (host, port) in [("localhost", 7), ("web.test", 7), ("far.test", 7), ("db.test", proxy.port)] {
            let url = format!("http://{host}:{port}/");
            let curl = ["curl", "-sS", "--noproxy", "", "--max-time", "30", &url];
            let output = named.run(&bench, [&["run", "--net", "unrestricted", "--"][..], &curl].concat());
            assert!(!stdout(&output).contains("hello"), "{}: {host}: {}", bench.who(), stdout(&output));
            assert_eq!(proxy.take(), [] as [&str; 0], "{}: {host}", bench.who());
        }
        // By a rule, a name that is unknown here goes there.
        let curl = "curl -sS --max-time 30 http://far.test:7/";
        let output = named.run(&bench, ["run", "--allow", "far.test:7", "--shell", curl]);
        assert_eq!(stdout(&output), "hello\n", "{}: {}", bench.who(), stderr(&output));
        assert_eq!(proxy.take().len(), 1, "{}", bench.who());
        // A flag does not open the port of the proxy either.
        let port = proxy.port.to_string();
        let output = named.run(&bench, ["run", "--allow-host-port", &port, "--", "true"]);
        let said = stderr(&output);
        assert!(
            said.contains(&format!("port {port} of this machine is the upstream proxy")),
            "{}: {said}",
            bench.who()
        );
        assert_no_secret(&bench, "the refusal", &said);
    }
}

#[test]
fn private_destinations_and_the_bypass_list_go_around_the_proxy() {
    let server = Server::start();
    for bench in benches() {
        let proxy = Proxy::start(Does::Says("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"));
        let allow = format!("web.test:{}", server.port);
        let fetch = |setting: &str, flags: &[&str]| {
            let named = Named::new(&bench).with_settings(setting);
            let url = format!("http://{allow}/");
            let arguments = [&["run"], flags, &["--", "curl", "-sS", "--max-time", "30", &url]].concat();
            stdout(&named.run(&bench, arguments))
        };
        let by_proxy = |said: &str| {
            let heads = proxy.take();
            assert_eq!((heads.len(), said.contains("hello")), (1, false), "{}: {said} {heads:?}", bench.who());
        };
        let direct = |said: &str| {
            assert_eq!((said, proxy.take().len()), ("hello\n", 0), "{}", bench.who());
        };
        direct(&fetch(&proxy.setting(), &["--allow-private", &allow]));
        let said = fetch(&proxy.setting(), &["--allow", &allow]);
        assert!(!said.contains("hello") && proxy.take().is_empty(), "{}: a private name: {said}", bench.who());
        let trusting = proxy.setting() + "trusted_ranges = [\"127.0.0.0/8\"]\n";
        by_proxy(&fetch(&trusting, &["--allow", &allow]));
        for entry in ["web.test", ".test", "*", &allow] {
            direct(&fetch(&format!("{trusting}upstream_bypass = [\"{entry}\"]\n"), &["--allow", &allow]));
        }
        for entry in ["eb.test", ".web.test", "web.test:1"] {
            by_proxy(&fetch(&format!("{trusting}upstream_bypass = [\"{entry}\"]\n"), &["--allow", &allow]));
        }
        // Around the proxy, addresses are checked as without it.
        let said = fetch(&(proxy.setting() + "upstream_bypass = [\"*\"]\n"), &["--allow", &allow]);
        assert!(!said.contains("hello") && proxy.take().is_empty(), "{}: {said}", bench.who());
    }
}

#[test]
fn an_ordinary_user_names_a_proxy_where_the_operator_names_none() {
    let server = Server::start();
    for bench in benches() {
        let proxy = Proxy::start(Does::Connect(server.port));
        let named = Named::new(&bench);
        let folder = bench.home.join(".config/nexus");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), proxy.setting()).unwrap();
        bench.give(&bench.home.join(".config"));
        let look = "curl -sS --max-time 30 http://far.test:7/; cat ~/.config/nexus/config.toml; env; \
                    grep -rs hunt[e]r /etc /proc/*/cmdline /proc/*/environ; echo END";
        let output = named.run(&bench, ["run", "--allow", "far.test:7", "--shell", look]);
        let said = stdout(&output);
        assert!(said.starts_with("hello\n") && said.ends_with("END\n"), "{}: {said}{}", bench.who(), stderr(&output));
        assert_eq!(proxy.take().len(), 1, "{}", bench.who());
        assert_no_secret(&bench, "the inside", &(said + &stderr(&output)));
        assert_no_secret_is_kept(&bench, &named);
        if bench.user.is_some() {
            let operator = Named::new(&bench).with_settings(&setting(1));
            let output = operator.run(&bench, ["run", "--allow", "far.test:7", "--", "true"]);
            assert!(stderr(&output).contains("egress.upstream_proxy belongs to the operator"), "{}", stderr(&output));
            assert_no_secret(&bench, "the refusal", &stderr(&output));
        }
    }
}

#[test]
fn a_wrong_setting_refuses_the_run_and_no_document_repeats_the_password() {
    for bench in benches() {
        let run = |setting: &str, arguments: &[&str]| {
            let output = Named::new(&bench).with_settings(setting).run(&bench, arguments);
            assert_no_secret(&bench, &arguments.join(" "), &(stdout(&output) + &stderr(&output)));
            output
        };
        let good = setting(3128);
        let told = run(&good, &["explain", "--allow", "a.test", "--", "true"]);
        assert!(
            stdout(&told).contains("everything but private destinations goes through an upstream proxy"),
            "{}",
            stdout(&told)
        );
        assert!(run(&good, &["explain", "--json", "--allow", "a.test", "--", "true"]).status.success());
        let told = run(&good, &["net", "check", "a.test:443", "--allow", "a.test"]);
        assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
        assert!(stdout(&told).contains("the upstream proxy resolves it"), "{}", stdout(&told));
        for wrong in [
            good.replace("http:", "https:"),
            good.replace("http:", "socks5:"),
            good.replace(":3128", ""),
            good.replace(":3128", ":3128/path"),
            good.replace("%402", "%4"),
            good.replace("\"http", "[\"http").replace("3128\"", "3128\"]"),
            good.replace("3128\"", "3128"),
        ] {
            for arguments in [
                &["run", "--allow", "a.test", "--", "true"][..],
                &["run", "--json", "--allow", "a.test", "--", "true"],
                &["net", "check", "a.test:443", "--allow", "a.test"],
                &["net", "proxy", "--allow", "a.test"],
            ] {
                let output = run(&wrong, arguments);
                assert!(!output.status.success(), "{}: {arguments:?}: {wrong}", bench.who());
                let said = stdout(&output) + &stderr(&output);
                assert!(said.contains("config.toml:2"), "{}: {arguments:?}: {said}", bench.who());
            }
        }
    }
}
