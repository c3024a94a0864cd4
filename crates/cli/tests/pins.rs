//! Sockets of the host in writable binds stay where they are, so that no other bind shows one without a cover.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use support::{Bench, on_each_bench, stderr, stdout, wait_until};

fn made(bench: &Bench, path: &Path) -> PathBuf {
    assert!(bench.command("mkdir").arg("-p").arg(path).status().unwrap().success());
    path.to_owned()
}

/// A service that everybody may connect to, and that notices whether a process did.
fn service(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    listener
}

/// Does one thing after another in the directories that the two arguments name, and prints what came of each.
const MOVES: &str = "\
import errno, os, socket, sys
seen, other = sys.argv[1:]
def attempt(call, *words):
    try:
        call(*words)
        print('done')
    except OSError as e:
        print(errno.errorcode[e.errno])
connect = lambda path: socket.socket(socket.AF_UNIX).connect(path)
attempt(connect, seen + '/a/deep/h.sock')
for old, new in [('a', 'x/m'), ('a', 'm'), ('a/deep', 'a/m'), ('a/deep/h.sock', 'a/deep/m'), ('a/deep', 'x/m')]:
    attempt(os.rename, seen + '/' + old, seen + '/' + new)
attempt(os.link, seen + '/a/deep/h.sock', seen + '/x/m')
for path in ['m/deep/h.sock', 'm/h.sock', 'm']:
    attempt(connect, other + '/' + path)
attempt(os.rename, seen + '/plain', seen + '/x/plain')
attempt(os.rename, seen + '/a/deep/f', seen + '/a/deep/g')
attempt(os.stat, other + '/plain/f')
";

#[test]
fn a_covered_socket_is_not_moved_to_where_another_bind_shows_it() {
    const SAID: &str = "EACCES\nEBUSY\nEBUSY\nEBUSY\nEBUSY\nEBUSY\nEXDEV\nENOENT\nENOENT\nENOENT\ndone\ndone\ndone\n";
    on_each_bench(|bench| {
        bench.write("moves.py", MOVES);
        for (at, (outer, inner)) in [
            (["--rw", ""], ["--ro", ":/etc/app"]),
            (["--rw", ""], ["--rw", ":/y"]),
            (["--rw", ""], ["--rw", ":/home/nexus/y"]),
            (["--rw", ":/r"], ["--ro", ""]),
        ]
        .into_iter()
        .enumerate()
        {
            let data = bench.home.join(format!("data{at}"));
            for directory in ["a/deep", "x", "plain"] {
                made(&bench, &data.join(directory));
            }
            for file in ["plain/f", "a/deep/f"] {
                fs::write(data.join(file), "").unwrap();
            }
            let listener = service(&data.join("a/deep/h.sock"));
            let bind = |source: &Path, place: &str| format!("{}{place}", source.display());
            let seen = |source: &Path, place: &str| match place.strip_prefix(':') {
                Some(target) => target.to_owned(),
                None => source.display().to_string(),
            };
            let x = data.join("x");
            let flags = [outer[0], &bind(&data, outer[1]), inner[0], &bind(&x, inner[1])];
            let command = ["--", "python3", "moves.py", &seen(&data, outer[1]), &seen(&x, inner[1])];
            let output = bench.run([&["run"][..], &flags, &command].concat());
            let what = format!("{} {flags:?}: {}", bench.who(), stderr(&output));
            assert_eq!(stdout(&output), SAID, "{what}");
            assert!(listener.accept().is_err(), "{what}: the service was reached");
            // The host keeps no trace of it, and moves what it likes.
            fs::rename(data.join("a"), data.join("moved")).unwrap();
            assert!(data.join("moved/deep/h.sock").exists(), "{what}");
        }
    });
}

/// Waits up to twenty seconds for a file.
const WAIT: &str = "wait_for() { for i in $(seq 400); do [ -e $1 ] && break; sleep 0.05; done; }";

#[test]
fn a_run_moves_no_covered_socket_to_where_another_run_has_no_cover() {
    on_each_bench(|bench| {
        bench.write("connects.py", CONNECTS);
        let beside = made(&bench, &bench.home.join("beside"));
        for (at, (moves, other_flags)) in [
            (["a", "x/a"], &["--ro", "DATA/x"][..]),
            (["a", "x/a"], &["--rw", "DATA/x"]),
            (["run/a", "n/a"], &["--rw", "DATA", "--ro", "DATA/empty:DATA/run"]),
            (["run", "n/a"], &["--rw", "DATA", "--ro", "DATA/empty:DATA/run"]),
        ]
        .into_iter()
        .enumerate()
        {
            let data = bench.home.join(format!("data{at}"));
            for directory in [moves[0], "x", "n", "empty", "run"] {
                made(&bench, &data.join(directory));
            }
            let signals = made(&bench, &bench.home.join(format!("signals{at}"))).display().to_string();
            let listener = service(&data.join(moves[0]).join("h.sock"));
            let own = data.display().to_string();
            let script = format!(
                "{WAIT}; touch {signals}/first; wait_for {signals}/second; python3 -c \"import os; os.rename(*['{own}/' + p \
                 for p in ('{}', '{}')])\"; touch {signals}/moved; wait_for {signals}/over",
                moves[0], moves[1]
            );
            let mut first = bench.nexus(["run", "--rw", &own, "--rw", &signals, "--shell", &script]);
            let first = first.current_dir(&beside).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            wait_until("the first run", Duration::from_secs(20), || Path::new(&signals).join("first").exists());
            let flags: Vec<String> = other_flags.iter().map(|word| word.replace("DATA", &own)).collect();
            let script = format!(
                "{WAIT}; touch {signals}/second; wait_for {signals}/moved; ls -d {signals}/moved; python3 connects.py \
                 {own}/{}/h.sock; touch {signals}/over",
                moves[1]
            );
            let output =
                bench.nexus(["run", "--rw", &signals]).args(&flags).args(["--shell", &script]).output().unwrap();
            let first = first.wait_with_output().unwrap();
            let what = format!("{} {flags:?}: {} | {}", bench.who(), stderr(&output), stderr(&first));
            assert_eq!(stdout(&output), format!("{signals}/moved\nNo such file or directory\n"), "{what}");
            assert!(stderr(&first).contains("Device or resource busy"), "{what}");
            assert!(listener.accept().is_err(), "{what}: the service was reached");
        }
    });
}

/// Connects to each path.
const CONNECTS: &str = "\
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print('connected')
    except OSError as e:
        print(e.strerror)
";

/// Moves a socket into a directory and closes that, as soon as the search has read the directory of the socket.
const CLOSES: &str = "\
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
watch = libc.inotify_init1(0)
assert libc.inotify_add_watch(watch, b'n/a', 0x10) > 0
print('ready', flush=True)
os.read(watch, 4096)
os.rename('n/a', 'z/a')
os.chmod('z', int(sys.argv[2], 8))
";

/// The directory has another group than the caller's, so that the set-up does not list it when it is closed.
#[test]
fn a_directory_that_its_owner_closes_during_the_start_is_no_hiding_place() {
    on_each_bench(|bench| {
        // Root's own group is the group of what it makes.
        let Some(user) = bench.user else { return };
        bench.write("connects.py", CONNECTS);
        let mut refused = BTreeSet::new();
        for number in 0..12 {
            let mode = ["311", "000", "644"][number / 4];
            let data = bench.home.join(format!("data{number}"));
            for directory in ["n/a", "z"] {
                made(&bench, &data.join(directory));
                std::os::unix::fs::chown(data.join(directory), Some(user), Some(user + 1)).unwrap();
            }
            let listener = service(&data.join("n/a/h.sock"));
            let mut closer = bench
                .command("python3")
                .args(["-c", CLOSES])
                .arg(&data)
                .arg(mode)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = String::new();
            BufReader::new(closer.stdout.take().unwrap()).read_line(&mut ready).unwrap();
            assert_eq!(ready, "ready\n");
            let flag = ["--rw", "--ro"][number % 2];
            let from = format!("{}:/shown", data.display());
            let paths = ["/shown/n/a/h.sock", "/shown/z/a/h.sock"];
            let output = bench.run([&["run", flag, &from, "--", "python3", "connects.py"][..], &paths].concat());
            assert!(closer.wait().unwrap().success());
            assert!(!stdout(&output).contains("connected"), "{flag} {mode}: {}", stderr(&output));
            assert!(listener.accept().is_err(), "{flag} {mode}: the service was reached");
            if output.status.code() == Some(125) {
                assert!(stderr(&output).contains("was moved or replaced"), "{}", stderr(&output));
                refused.insert(mode);
            }
        }
        assert_eq!(refused.len(), 3, "of {refused:?} alone a directory was closed in time and refused");
    });
}

/// Exchanges two directories until its input ends.
const EXCHANGES: &str = "\
import ctypes, os, select, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
print('ready', flush=True)
while not select.select([0], [], [], 0.004)[0]:
    libc.syscall(316, -100, b'right', -100, b'decoy', 2)
";

/// Moves what has either name to where the other bind shows it, and back.
const TAKES: &str = "\
import os, socket, sys
own, other = sys.argv[1:]
for _ in range(3):
    for name in ['right', 'decoy']:
        try:
            os.rename(own + '/' + name, own + '/x/m')
        except OSError:
            continue
        try:
            socket.socket(socket.AF_UNIX).connect(other + '/m/h.sock')
            print('connected')
        except OSError:
            pass
        os.rename(own + '/x/m', own + '/' + name)
";

/// Many other sockets make the time long between the pins and the covers.
#[test]
fn a_directory_that_is_exchanged_during_the_start_is_pinned_or_the_start_is_refused() {
    on_each_bench(|bench| {
        bench.write("takes.py", TAKES);
        let data = bench.home.join("data");
        for directory in ["right", "decoy", "x"] {
            made(&bench, &data.join(directory));
        }
        let _others: Vec<_> =
            (0..150).map(|number| service(&made(&bench, &data.join(format!("other{number}"))).join("s"))).collect();
        let listener = service(&data.join("right/h.sock"));
        let mut exchanger = bench.command("python3");
        exchanger.args(["-c", EXCHANGES]).arg(&data).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut exchanger = exchanger.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(exchanger.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let own = data.display().to_string();
        let shown = format!("{own}/x:/y");
        let runs: Vec<_> = (0..8)
            .map(|_| bench.run(["run", "--rw", &own, "--ro", &shown, "--", "python3", "takes.py", &own, "/y"]))
            .collect();
        drop(exchanger.stdin.take());
        assert!(exchanger.wait().unwrap().success());
        for output in &runs {
            let (code, said) = (output.status.code(), stderr(output));
            assert!(!stdout(output).contains("connected"), "{}: {said}", bench.who());
            assert!(code == Some(0) || said.contains("was moved or replaced"), "{}: {code:?} {said}", bench.who());
        }
        assert!(listener.accept().is_err(), "{}: the service was reached", bench.who());
    });
}

#[test]
fn a_directory_that_keeps_its_place_is_named_with_the_reason() {
    on_each_bench(|bench| {
        let data = made(&bench, &bench.home.join("data"));
        made(&bench, &data.join("a/deep"));
        made(&bench, &data.join("plain"));
        let _listener = service(&data.join("a/deep/h.sock"));
        let place = data.display();
        for (script, name) in [
            (format!("rm -r {place}/a"), "h.sock"),
            (format!("cd {place} && mv a m"), "a"),
            (format!("cd {place} && mv a/deep m"), "a/deep"),
            (format!("python3 -c 'import os; os.rename(\"{place}/a\", \"{place}/m\")'"), "data/a"),
        ] {
            let output = bench.run(["run", "--rw", &place.to_string(), "--shell", &script]);
            let said = stderr(&output);
            let hint = said.lines().find(|line| line.contains("keeps its place")).unwrap_or_default();
            assert!(hint.contains("perhaps: ") && hint.contains(name), "{}: {script}: {said}", bench.who());
        }
        // Nothing is said about another place that is in use.
        let output = bench.run([
            "run",
            "--rw",
            &place.to_string(),
            "--shell",
            "echo 'rm: plain: Device or resource busy' >&2; exit 1",
        ]);
        assert!(!stderr(&output).contains("keeps its place"), "{}: {}", bench.who(), stderr(&output));
    });
}
