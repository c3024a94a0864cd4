//! One run with a hostile command, from its start to its end.

use super::support::screen::Screen;
use super::support::{Bench, stderr};
use super::{End, GRACE, Host, Job, LIMIT, MORE, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The exit code and how long after its cause the end came, or what went wrong.
pub type Ended = Result<(Option<i32>, Duration), String>;

/// Between `up` and what ends the run from outside: the command is in its hostile state by then, most of the time.
const SETTLES: Duration = Duration::from_millis(200);

/// A port of the host that no process has now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A limit that the host measures: a layer in memory has at most a quarter of the machine's.
fn measured_disk() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit) / 4 + (64 << 20)
}

/// The arguments for a run, and the port that is published.
fn arguments(job: &Job) -> (Vec<String>, Option<u16>) {
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    let mut all: Vec<String> = ["--changes", "discard", "--timeout"].map(str::to_owned).into();
    all.extend([seconds(if job.end == End::Limit { LIMIT } else { PATIENCE }), "--grace".into(), seconds(GRACE)]);
    all.extend(job.case.flags.iter().map(|&flag| flag.to_owned()));
    let port = (job.case.host == Host::Connects).then(free_port);
    all.extend(port.into_iter().flat_map(|port| ["--publish".to_owned(), format!("{port}:7000")]));
    if job.case.host == Host::Serves {
        all.extend(["--allow-host-port".to_owned(), job.server.to_string()]);
    }
    let taken = match job.end {
        End::Memory => Some(("--memory", "memory", 200 << 20)),
        End::Disk => Some(("--disk", "disk", measured_disk())),
        _ => None,
    };
    all.extend(taken.into_iter().flat_map(|(flag, _, most)| [flag.to_owned(), most.to_string()]));
    all.extend(["--", "/usr/bin/python3", "hold.py", job.case.way].map(str::to_owned));
    all.push(job.server.to_string());
    all.extend(taken.into_iter().flat_map(|(_, what, most)| [what.to_owned(), (most + (64 << 20)).to_string()]));
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
fn end_of(child: &mut Child, began: Instant) -> Ended {
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

/// Does from outside what ends this run, if it is that; returns since when the end is awaited.
fn cause(job: &Job, child: &Child) -> Instant {
    if job.end == End::Signal {
        std::thread::sleep(SETTLES);
        kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    }
    Instant::now()
}

fn read_all(mut from: impl Read + Send + 'static) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while matches!(from.read(&mut buffer), Ok(1..)) {}
    });
}

pub fn in_the_foreground(job: &Job) -> Ended {
    let (more, port) = arguments(job);
    let all: Vec<String> = std::iter::once("run".to_owned()).chain(more).collect();
    if job.case.flags.contains(&"--tty") {
        let mut screen = Screen::run(&job.bench, &all);
        screen.wait_for("up");
        let began = Instant::now();
        screen.send_until_full("typed\n");
        let began = if job.end == End::Signal { cause(job, &screen.child) } else { began };
        return end_of(&mut screen.child, began);
    }
    let mut command = job.bench.nexus(&all);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    read_all(child.stderr.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    read_all(out);
    if line != "up\n" {
        child.kill().unwrap();
        child.wait().unwrap();
        return Err(format!("it printed {line:?}"));
    }
    let mut input = child.stdin.take().unwrap();
    match job.case.host {
        Host::Types => drop(std::thread::spawn(move || while input.write_all(&[b'x'; 4096]).is_ok() {})),
        Host::Connects => connect(port.unwrap()),
        Host::Reads | Host::Executes | Host::Ignores | Host::Serves => {}
    }
    let began = cause(job, &child);
    end_of(&mut child, began)
}

fn quiet(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// An exec gets its answer, whatever the first one does.
fn is_answered(job: &Job, id: &str) -> Result<(), String> {
    let mut child = quiet(job.bench.nexus(["exec", id, "--", "/bin/sh", "-c", "exit 7"]));
    match end_of(&mut child, Instant::now())? {
        (Some(7), took) if took <= MORE * 3 => Ok(()),
        other => Err(format!("a further command: {other:?}")),
    }
}

/// Waits for the record of the end of a detached run.
fn end_of_session(bench: &Bench, id: &str, began: Instant) -> Ended {
    let known = bench.session_folder(id).join("ending.json");
    loop {
        if let Ok(text) = std::fs::read(&known)
            && let Ok(ending) = serde_json::from_slice::<serde_json::Value>(&text)
        {
            return Ok((ending["exit"].as_i64().map(|exit| exit as i32), began.elapsed()));
        }
        if began.elapsed() > PATIENCE {
            let killed = Command::new("kill").args(["-KILL", &bench.supervisor(id).to_string()]).status().unwrap();
            return Err(format!("not ended after {PATIENCE:?}; its supervisor was killed: {killed}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn detached(job: &Job) -> Ended {
    let (more, port) = arguments(job);
    let bench = &job.bench;
    let output = bench.run(["run", "--detach"].map(str::to_owned).into_iter().chain(more));
    let mut began = Instant::now();
    if output.status.code() != Some(0) {
        return Err(stderr(&output));
    }
    let id = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let (mut attached, mut further, mut ignored) = (None, Vec::new(), Vec::new());
    match job.case.host {
        Host::Types => {
            let mut client = quiet(bench.nexus(["attach", &id]));
            let mut input = client.stdin.take().unwrap();
            std::thread::spawn(move || while input.write_all(&[b'x'; 4096]).is_ok() {});
            attached = Some(client);
        }
        Host::Connects => connect(port.unwrap()),
        Host::Executes => {
            let long = "x".repeat(120_000);
            further.extend((0..4).map(|_| quiet(bench.nexus(["exec", &id, "--", "/bin/echo", &long, &long, &long]))));
        }
        Host::Ignores => {
            for _ in 0..3 {
                let mut client = bench.nexus(["exec", &id, "--", "/bin/cat", "/dev/zero"]);
                ignored.push(client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
            }
        }
        Host::Reads | Host::Serves => {}
    }
    let mut answered = Ok(());
    let mut stop = None;
    if job.end == End::Stop {
        std::thread::sleep(SETTLES);
        // A storm stops execs, too: they end with the sandbox.
        if job.case.host != Host::Executes {
            answered = is_answered(job, &id);
        }
        began = Instant::now();
        stop = Some(quiet(bench.nexus(["stop", &id])));
    }
    let ended = end_of_session(bench, &id, began);
    let since = Instant::now();
    for client in &mut ignored {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    if let Some(mut client) = attached {
        // It may have ended.
        client.kill().ok();
        client.wait().unwrap();
    }
    // What waits for the sandbox ends with it.
    for client in further.iter_mut().chain(&mut stop) {
        end_of(client, since)?;
    }
    answered.and(ended)
}
