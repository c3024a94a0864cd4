//! Ends of a run: by its time limit, by requests, and not by signals that the caller ignores.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, benches, on_each_bench, processes_with, random, stderr, stdout};

/// Far more than any of these needs, far less than the graces that must not count.
const PATIENCE: Duration = Duration::from_secs(20);
const DEAF: &str = "trap '' TERM INT HUP; echo up; while :; do sleep 0.05; done";

/// Starts a program whose first line of output is `up`, and waits for that.
fn up(command: &mut Command) -> (Child, impl BufRead + use<>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    (child, lines)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn a_request_after_the_time_limit_ends_the_run_at_once() {
    for bench in benches() {
        let began = Instant::now();
        let (mut child, _lines) = up(&mut bench.nexus(["run", "--timeout", "1s", "--grace", "60s", "--shell", DEAF]));
        let end = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "{}: each request put the end off", bench.who());
            // The first one may come before the time limit: then that is the second request.
            if began.elapsed() > Duration::from_millis(700) {
                signal(&child, Signal::INT);
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        assert!(!end.success());
    }
}

#[test]
fn a_small_share_of_the_processor_delays_no_end() {
    const MANY: &str = "import os\nfor _ in range(600):\n    if os.fork() == 0: break\nwhile True: pass";
    if !support::needs_root() {
        return;
    }
    let bench = Bench::new(None);
    let began = Instant::now();
    let limits = ["--cpus", "0.02", "--timeout", "3s", "--grace", "1s", "--changes", "discard"];
    let words = ["run"].into_iter().chain(limits).chain(["--", "python3", "-c", MANY]);
    let output = bench.run(words);
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    // The killed ones need half a minute at a fiftieth of a processor.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

/// Takes a descriptor over the socket, and writes to it with many processes for as long as anybody reads.
const WRITER: &str = r"
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
server.listen()
print('up', flush=True)
client, _ = server.accept()
_, held, _, _ = socket.recv_fds(client, 1, 1)
for _ in range(2):
    if os.fork() == 0:
        while True:
            os.write(held[0], b'x' * (1 << 20))
client.send(b'k')
";

/// Writes more than a pipe holds by default, hands its standard output on, and ends.
const HANDS_ON: &str = r"
import os, socket
left = 300_000
while left:
    left -= os.write(1, b'L' * left)
other = socket.socket(socket.AF_UNIX)
other.connect('/sh/s')
socket.send_fds(other, [b'f'], [1])
other.recv(1)
";

#[test]
fn output_from_outside_after_the_death_holds_up_no_end() {
    for bench in benches() {
        let shared = bench.base.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        bench.give(&shared);
        let socket = shared.join("s");
        let (mut writer, _lines) = up(bench.command("python3").args(["-c", WRITER]).arg(&socket).process_group(0));
        let mut command = bench.nexus(["run", "--changes", "discard", "--rw"]);
        command.arg(format!("{}:/sh", shared.display())).arg("--allow-socket").arg(&socket);
        command.args(["--", "python3", "-c", HANDS_ON]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut output, mut of_the_command) = (child.stdout.take().unwrap(), 0_u32);
        let mut buffer = vec![0; 1 << 16];
        let began = Instant::now();
        let ended = loop {
            let count = output.read(&mut buffer).unwrap();
            of_the_command += buffer[..count].iter().map(|byte| u32::from(*byte == b'L')).sum::<u32>();
            if count == 0 || began.elapsed() > PATIENCE {
                break count == 0;
            }
            // A slow reader: the pipe inside is never empty.
            std::thread::sleep(Duration::from_millis(2));
        };
        drop(output);
        kill_process_group(Pid::from_child(&writer), Signal::KILL).unwrap();
        writer.wait().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(ended, "{}: the run lived as long as the writer", bench.who());
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(of_the_command, 300_000, "{}", bench.who());
    }
}

#[test]
fn the_time_limit_holds_after_a_stop_with_a_long_grace() {
    for bench in benches() {
        let id = bench.detach(&["--timeout", "2s", "--grace", "300ms", "--shell", DEAF]);
        let began = Instant::now();
        let stopped = bench.run(["stop", "--grace", "120s", &id]);
        assert_eq!(stopped.status.code(), Some(0), "{}", stderr(&stopped));
        assert!(began.elapsed() < PATIENCE, "{}: the stop put the time limit off", bench.who());
        bench.run(["rm", "-f", &id]);
    }
}

#[test]
fn the_time_limit_holds_while_nexus_is_stopped() {
    // As by Ctrl-Z, and by output to a terminal with `tostop`.
    on_each_bench(|bench| {
        for (script, asked) in
            [("trap 'echo asked > asked; exit 3' TERM; echo up; while :; do sleep 0.05; done", true), (DEAF, false)]
        {
            let marker = format!("marker-{}", random());
            let limits = ["run", "--direct", "--timeout", "2s", "--grace", "1s", "--", "sh", "-c", script, &marker];
            let (mut child, _lines) = up(&mut bench.nexus(limits));
            signal(&child, Signal::STOP);
            let began = Instant::now();
            // The stopped process has the label among its own arguments.
            let inside = || processes_with(&marker).into_iter().filter(|pid| *pid != child.id()).count();
            assert!(inside() > 0, "{}", bench.who());
            while inside() > 0 && began.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
            let took = began.elapsed();
            signal(&child, Signal::CONT);
            assert!(took < Duration::from_secs(6), "{}: {took:?}", bench.who());
            assert_eq!(child.wait().unwrap().code(), Some(124), "{}: {script}", bench.who());
            assert_eq!(bench.workspace.join("asked").exists(), asked, "{}: it was asked first", bench.who());
            std::fs::remove_file(bench.workspace.join("asked")).ok();
        }
    });
}

#[test]
fn signals_that_the_caller_ignores_end_no_run() {
    for bench in benches() {
        let script = "echo up; read line; echo $line";
        let ignoring = "trap '' HUP INT; exec \"$@\"";
        let nexus = bench.nexus(["run", "--stdin", "--shell", script]);
        let mut command = bench.command("sh");
        command.args(["-c", ignoring, "sh"]).arg(nexus.get_program()).args(nexus.get_args()).stdin(Stdio::piped());
        command.current_dir(&bench.workspace);
        let (mut child, mut lines) = up(&mut command);
        signal(&child, Signal::HUP);
        signal(&child, Signal::INT);
        child.stdin.take().unwrap().write_all(b"still here\n").unwrap();
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), rest.as_str()), (Some(0), "still here\n"), "{}", stderr(&output));
    }
}

#[test]
fn a_number_that_is_no_signal_ends_no_sandbox() {
    // Only root's: a supervisor answers only its own user.
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let id = bench.detach(&["--shell", "while :; do sleep 0.05; done"]);
        let hello: &[u8] = b"\x02\x00\x00\x00\x00\x01";
        // Attach and then Signal, Stop.
        for ask in [&b"\x03\x00\x00\x00\x01\x00\x00\x02\x00\x00\x00\x09\xc8"[..], b"\x03\x00\x00\x00\x04\xc8\x00"] {
            let mut socket = bench.connect(&id);
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.write_all(&[hello, ask].concat()).unwrap();
            // Dropped without a report of an end.
            socket.read_to_end(&mut Vec::new()).unwrap();
            assert_eq!(stdout(&bench.exec(&id, "echo alive")), "alive\n");
        }
        bench.run(["rm", "-f", &id]);
    }
}

/// A terminal whose reader stops, and `nexus` on it. Returns the master, which no process reads.
fn on_a_terminal_that_stands_still(bench: &Bench, arguments: &[&str]) -> (std::process::Child, std::fs::File) {
    use rustix::fs::OFlags;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    if let Some(uid) = bench.user {
        std::os::unix::fs::chown(std::path::Path::new(name.to_str().unwrap()), Some(uid), None).unwrap();
    }
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, rustix::fs::Mode::empty()).unwrap();
    let end = || Stdio::from(slave.try_clone().unwrap());
    let mut command = bench.command("setsid");
    command.args(["--ctty", "--"]).arg(bench.program()).args(arguments).env("TERM", "xterm");
    (command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap(), master.into())
}

#[test]
fn a_terminal_that_stands_still_holds_up_no_end() {
    let flood = "trap '' INT; yes a long line of output; sleep 60";
    // How it is ended, the arguments, the exit code.
    let cases: [(&str, &[&str], i32); 6] = [
        ("limit", &["run", "--timeout", "2s", "--grace", "1s", "--", "yes", "some output"], 124),
        ("limit", &["run", "--timeout", "2s", "--grace", "1s", "--max-output", "1M", "--shell", flood], 124),
        ("limit", &["run", "--tty", "--timeout", "2s", "--grace", "1s", "--", "yes", "some output"], 124),
        // A document of many megabytes.
        (
            "document",
            &["run", "--json", "--max-output", "16M", "--timeout", "2s", "--grace", "1s", "--", "yes", "some output"],
            124,
        ),
        ("signal", &["run", "--grace", "1s", "--", "yes", "some output"], 143),
        ("ctrl-c", &["run", "--grace", "1s", "--", "yes", "some output"], 130),
    ];
    for bench in benches() {
        for (how, arguments, code) in cases {
            let began = Instant::now();
            let (mut child, mut master) = on_a_terminal_that_stands_still(&bench, arguments);
            // Full: it has taken something, and then nothing more for a while.
            let (mut taken, mut since) = (0, Instant::now());
            while how != "document" && (taken == 0 || since.elapsed() < Duration::from_millis(300)) {
                let now = rustix::io::ioctl_fionread(&master).unwrap();
                if now != taken {
                    (taken, since) = (now, Instant::now());
                }
                assert!(began.elapsed() < PATIENCE, "{arguments:?}: nothing was shown");
                std::thread::sleep(Duration::from_millis(10));
            }
            match how {
                "signal" => signal(&child, Signal::TERM),
                "ctrl-c" => master.write_all(b"\x03").unwrap(),
                _ => {}
            }
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if began.elapsed() > PATIENCE {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    panic!("{} {arguments:?} {how}: still there", bench.who());
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            assert_eq!(status.code(), Some(code), "{} {arguments:?} {how}", bench.who());
            // Pieces of a document that were waited for one by one took 13 seconds.
            let bound = Duration::from_secs(if how == "document" { 9 } else { 6 });
            assert!(began.elapsed() < bound, "{arguments:?} {how}: {:?}", began.elapsed());
        }
    }
}

/// The system calls by which `nexus run` sets up its signal handlers, with how many of the same name came before each.
fn set_up_calls(bench: &Bench) -> Vec<(String, usize)> {
    let log = bench.home.join("calls");
    let mut traced = bench.command("strace");
    traced.args(["-qq", "-e", "trace=rt_sigaction,rt_sigprocmask,fcntl,clone3", "-e", "signal=none", "-o"]).arg(&log);
    let traced =
        traced.arg(bench.program()).args(["run", "--", "true"]).current_dir(&bench.workspace).output().unwrap();
    assert_eq!(traced.status.code(), Some(0), "{}: {}", bench.who(), stderr(&traced));
    let text = std::fs::read_to_string(&log).unwrap();
    let names = text.lines().map_while(|line| line.split_once('(')).map(|(name, _)| name.to_owned());
    let before_the_sandbox: Vec<_> = names.take_while(|name| name != "clone3").collect();
    assert!(text.contains("clone3("), "{}: no sandbox: {text}", bench.who());
    let count = |at: usize| before_the_sandbox[..=at].iter().filter(|name| **name == before_the_sandbox[at]).count();
    before_the_sandbox.iter().enumerate().map(|(at, name)| (name.clone(), count(at))).collect()
}

#[test]
fn a_signal_while_its_handler_is_set_up_is_followed() {
    for bench in benches() {
        let calls = set_up_calls(&bench);
        assert!(calls.iter().any(|(name, _)| name == "rt_sigaction"), "{}: {calls:?}", bench.who());
        for (name, nth) in calls {
            let mut traced = bench.command("strace");
            traced.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={name}"), "-e"]);
            traced.arg(format!("inject={name}:signal=TERM:when={nth}")).arg(bench.program());
            let began = Instant::now();
            let traced = traced.args(["run", "--", "sleep", "30"]).current_dir(&bench.workspace).output().unwrap();
            assert!(began.elapsed() < PATIENCE, "{}: {name} {nth}: the signal was lost", bench.who());
            assert!(!traced.status.success(), "{}: {name} {nth}: {}", bench.who(), stderr(&traced));
            assert!(bench.leftovers().is_empty(), "{}: {name} {nth}: {:?}", bench.who(), bench.leftovers());
        }
    }
}
