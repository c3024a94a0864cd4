//! Nothing that a command does holds up the end of its run: hostile programs on every stream, a terminal, forwarded
//! connections, further commands and stop signals, in the foreground and detached, as root and as an ordinary user.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::screen::Screen;
use support::{Bench, benches, stderr};

const PROGRAM: &str = include_str!("hostile/hold.py");
const LIMIT: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(1);
/// What an end may take beyond both.
const MORE: Duration = Duration::from_secs(1);
/// Far more than that: a run that lives so long is held up for ever.
const PATIENCE: Duration = Duration::from_secs(15);
/// Runs at one time: each of them may keep a processor busy.
const AT_ONCE: usize = 4;

/// What the host's side does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// Reads what is printed.
    Reads,
    /// And types without an end.
    Types,
    /// And has connections that pour and never read.
    Connects,
    /// And starts further commands with long arguments.
    Executes,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    /// What `hold.py` does.
    way: &'static str,
    flags: &'static [&'static str],
    host: Host,
}

const fn case(way: &'static str, flags: &'static [&'static str], host: Host) -> Case {
    Case { way, flags, host }
}

const CASES: &[Case] = &[
    case("deaf", &[], Host::Reads),
    case("stdout", &[], Host::Reads),
    case("stderr", &[], Host::Reads),
    case("flood", &[], Host::Reads),
    case("deaf", &["--stdin"], Host::Types),
    case("stdin", &["--stdin"], Host::Types),
    case("stopped", &["--stdin"], Host::Types),
    case("stopped", &[], Host::Reads),
    case("stopped-children", &[], Host::Reads),
    case("vfork", &[], Host::Reads),
    case("deaf", &["--tty"], Host::Types),
    case("flood", &["--tty"], Host::Types),
    case("stopped", &["--tty"], Host::Types),
    case("terminal-flaps", &["--tty"], Host::Types),
    case("terminal-stops", &["--tty"], Host::Types),
    case("server", &[], Host::Connects),
    case("storm", &[], Host::Executes),
    case("storm", &["--tty"], Host::Executes),
];

/// A port of the host that nobody has now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The arguments for a case, and the port that is published.
fn arguments(case: &Case) -> (Vec<String>, Option<u16>) {
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    let mut all: Vec<String> = ["--changes", "discard", "--timeout"].map(str::to_owned).into();
    all.extend([seconds(LIMIT), "--grace".into(), seconds(GRACE)]);
    all.extend(case.flags.iter().map(|&flag| flag.to_owned()));
    let port = (case.host == Host::Connects).then(free_port);
    all.extend(port.into_iter().flat_map(|port| ["--publish".to_owned(), format!("{port}:7000")]));
    all.extend(["--", "/usr/bin/python3", "hold.py", case.way].map(str::to_owned));
    (all, port)
}

/// Connections that pour and never read, until the run is over.
fn connect(port: u16) {
    for _ in 0..8 {
        std::thread::spawn(move || {
            let end = Instant::now() + PATIENCE;
            let Some(mut socket) = std::iter::from_fn(|| Some(TcpStream::connect(("127.0.0.1", port))))
                .take_while(|_| Instant::now() < end)
                .find_map(Result::ok)
            else {
                return;
            };
            while socket.write_all(&[7; 16384]).is_ok() {}
        });
    }
}

/// Waits for the end of a process; returns its code and how long after `began` it ended.
fn end_of(child: &mut Child, began: Instant) -> Result<(Option<i32>, Duration), String> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok((status.code(), began.elapsed()));
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("not ended after {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read_all(mut from: impl Read + Send + 'static) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while matches!(from.read(&mut buffer), Ok(1..)) {}
    });
}

fn in_the_foreground(bench: &Bench, case: &Case) -> Result<(Option<i32>, Duration), String> {
    let (more, port) = arguments(case);
    let all: Vec<String> = std::iter::once("run".to_owned()).chain(more).collect();
    if case.flags.contains(&"--tty") {
        let mut screen = Screen::run(bench, &all);
        screen.wait_for("up");
        let began = Instant::now();
        screen.send_until_full("typed\n");
        return end_of(&mut screen.child, began);
    }
    let mut command = bench.nexus(&all);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    read_all(child.stderr.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let began = Instant::now();
    read_all(out);
    if line != "up\n" {
        child.kill().unwrap();
        child.wait().unwrap();
        return Err(format!("it printed {line:?}"));
    }
    let mut input = child.stdin.take().unwrap();
    match case.host {
        Host::Types => drop(std::thread::spawn(move || while input.write_all(&[b'x'; 4096]).is_ok() {})),
        Host::Connects => connect(port.unwrap()),
        Host::Reads | Host::Executes => {}
    }
    end_of(&mut child, began)
}

fn detached(bench: &Bench, case: &Case) -> Result<(Option<i32>, Duration), String> {
    let (more, port) = arguments(case);
    let output = bench.run(["run", "--detach"].map(str::to_owned).into_iter().chain(more));
    let began = Instant::now();
    if output.status.code() != Some(0) {
        return Err(stderr(&output));
    }
    let id = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let quiet = |mut command: Command| {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut clients = Vec::new();
    match case.host {
        Host::Types => {
            let mut client = quiet(bench.nexus(["attach", &id]));
            let mut input = client.stdin.take().unwrap();
            std::thread::spawn(move || while input.write_all(&[b'x'; 4096]).is_ok() {});
            clients.push(client);
        }
        Host::Connects => connect(port.unwrap()),
        Host::Executes => {
            let long = "x".repeat(120_000);
            clients.extend((0..4).map(|_| quiet(bench.nexus(["exec", &id, "--", "/bin/echo", &long, &long, &long]))));
        }
        Host::Reads => {}
    }
    let known = bench.session_folder(&id).join("ending.json");
    let ended = loop {
        if let Ok(text) = std::fs::read(&known)
            && let Ok(ending) = serde_json::from_slice::<serde_json::Value>(&text)
        {
            break Ok((ending["exit"].as_i64().map(|exit| exit as i32), began.elapsed()));
        }
        if began.elapsed() > PATIENCE {
            let killed = Command::new("kill").args(["-KILL", &bench.supervisor(&id).to_string()]).status().unwrap();
            break Err(format!("not ended after {PATIENCE:?}; its supervisor was killed: {killed}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    for mut client in clients {
        // It may have ended.
        client.kill().ok();
        client.wait().unwrap();
    }
    ended
}

type Job = (Arc<Bench>, &'static str, &'static Case);

/// Plays a case; `None` when it ended as it should, and in time.
fn play((bench, place, case): &Job) -> Option<String> {
    let ended = if *place == "detached" { detached(bench, case) } else { in_the_foreground(bench, case) };
    let is_right = matches!(ended, Ok((Some(124), took)) if took <= LIMIT + GRACE + MORE);
    (!is_right).then(|| format!("{} {place} {case:?}: {ended:?}", bench.who()))
}

#[test]
fn nothing_that_a_command_does_holds_up_the_end_of_its_run() {
    let benches: Vec<Arc<Bench>> = benches().into_iter().map(Arc::new).collect();
    let mut jobs = Vec::new();
    for bench in &benches {
        bench.write("hold.py", PROGRAM);
        for case in CASES {
            jobs.push((Arc::clone(bench), "detached", case));
            if case.host != Host::Executes {
                jobs.push((Arc::clone(bench), "foreground", case));
            }
        }
    }
    let count = jobs.len();
    let (jobs, late) = (Arc::new(Mutex::new(jobs)), Arc::new(Mutex::new(Vec::new())));
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (jobs, late) = (Arc::clone(&jobs), Arc::clone(&late));
            std::thread::spawn(move || {
                loop {
                    let Some(job) = jobs.lock().unwrap().pop() else { return };
                    if play(&job).is_some() {
                        late.lock().unwrap().push(job);
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    // Beside the others a machine with few processors may be late. Alone, each ends in time.
    let wrong: Vec<String> = late.lock().unwrap().iter().filter_map(play).collect();
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
