//! Directories that a run closed to the search of the next one: what is hidden in them stays hidden.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use support::{Bench, on_each_bench, stderr, stdout};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Opens a directory for the command, and reads a file by its name.
const READS: &str = "chmod 755 config; chmod 755 config/deep; cat config/prod.key config/deep/prod.key plain; true";

fn text(bench: &Bench, arguments: &[&str]) -> String {
    let output = bench.run(arguments);
    stdout(&output) + &stderr(&output)
}

#[test]
fn a_directory_that_a_run_closed_hides_nothing_from_the_search() {
    on_each_bench(|bench| {
        for flags in [&["--hide-secrets"][..], &["--hide", "config/prod.key", "--hide", "**/prod.key"]] {
            for (to_close, closed) in [("111", "config"), ("000", "config"), ("444", "config"), ("000", "config/deep")]
            {
                bench.write("config/prod.key", "PEM\n");
                bench.write("config/deep/prod.key", "PEM\n");
                bench.write("plain", "plain\n");
                let what = format!("{} {flags:?} {to_close} {closed}", bench.who());
                let first = bench.run([&["run"][..], flags, &["--", "chmod", to_close, closed]].concat());
                assert!(first.status.success(), "{what}: {}", stderr(&first));
                let committed = fs::metadata(bench.workspace.join(closed)).unwrap().permissions().mode() & 0o777;
                assert_eq!(format!("{committed:03o}"), to_close, "{what}: nothing to try");
                let next = ["run", "--changes", "discard"];
                let told = text(&bench, &[&next[..], flags, &["--shell", READS]].concat());
                assert!(!told.contains("PEM"), "{what}: {told}");
                assert!(told.contains("plain\n"), "{what}: {told}");
                mode(&bench.workspace.join(closed), 0o755);
            }
        }
    });
}

#[test]
fn a_link_from_a_closed_directory_hides_what_it_leads_to_once_it_is_open() {
    on_each_bench(|bench| {
        bench.write("config/prod", "PEM\n");
        bench.write("links/plain", "plain\n");
        let link = bench.workspace.join("links/.env");
        assert!(bench.command("ln").args(["-s", "../config/prod"]).arg(&link).status().unwrap().success());
        mode(&bench.workspace.join("links"), 0o444);
        let script = "chmod 755 links; cat links/.env links/plain; ls -d config";
        let told = text(&bench, &["run", "--changes", "discard", "--hide-secrets", "--shell", script]);
        mode(&bench.workspace.join("links"), 0o755);
        assert!(!told.contains("PEM"), "{}: {told}", bench.who());
        assert!(told.contains("config\n"), "{}: {told}", bench.who());
    });
}

/// Connects to a socket.
const CLIENT: &str = "\
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
    print('connected')
except OSError as e:
    print(e.strerror)
";

#[test]
fn a_socket_in_a_directory_that_a_run_closed_is_covered() {
    on_each_bench(|bench| {
        let deep = bench.home.join("data/sub/deep");
        assert!(bench.command("mkdir").arg("-p").arg(&deep).status().unwrap().success());
        let places = [bench.home.join("data/sub/s"), deep.join("s")];
        let _listeners = places.clone().map(|path| {
            let listener = UnixListener::bind(&path).unwrap();
            mode(&path, 0o777);
            listener
        });
        bench.write("client.py", CLIENT);
        let data = bench.home.join("data");
        let from = format!("{}:/shown", data.display());
        for (closed, to_close) in [("sub", 0o000), ("sub", 0o444), ("sub/deep", 0o000), ("sub/deep", 0o311)] {
            mode(&data.join(closed), to_close);
            let script = "chmod 755 /shown/sub; chmod 755 /shown/sub/deep; for s in sub/s sub/deep/s; do \
                          python3 client.py /shown/$s; done";
            let output = bench.run(["run", "--rw", &from, "--shell", script]);
            mode(&data.join(closed), 0o755);
            let told = stdout(&output);
            assert!(!told.contains("connected"), "{} {closed} {to_close:o}: {told}", bench.who());
            assert_eq!(told.lines().count(), 2, "{} {closed} {to_close:o}: {}", bench.who(), stderr(&output));
        }
        // The twin: what the search sees is allowed as before.
        let one = places[0].to_str().unwrap();
        let line = ["run", "--rw", &from, "--allow-socket", one, "--", "python3", "client.py", "/shown/sub/s"];
        let output = bench.run(line);
        assert_eq!(stdout(&output), "connected\n", "{}: {}", bench.who(), stderr(&output));
    });
}

/// The directory is closed when the run starts; its owner opens it and takes the socket out while the command waits.
#[test]
fn a_socket_that_leaves_a_closed_directory_stays_covered() {
    on_each_bench(|bench| {
        let data = bench.home.join("data");
        assert!(bench.command("mkdir").arg("-p").arg(data.join("z/a")).arg(data.join("n")).status().unwrap().success());
        let socket = data.join("z/a/s");
        let _listener = UnixListener::bind(&socket).unwrap();
        mode(&socket, 0o777);
        bench.write("client.py", CLIENT);
        let from = format!("{}:/shown", data.display());
        for closed in [0o311, 0o000] {
            mode(&data.join("z"), closed);
            let wait = "for i in $(seq 400); do [ -e started ] && break; sleep 0.05; done";
            let script = format!("{wait}; chmod 755 z && mv z/a n/a && touch moved");
            let mut owner = bench.command("sh").args(["-c", &script]).current_dir(&data).spawn().unwrap();
            let script = "touch /shown/started; for i in $(seq 400); do [ -e /shown/moved ] && break; sleep 0.05; done; \
                          ls -d /shown/moved; python3 client.py /shown/n/a/s";
            let output = bench.run(["run", "--rw", &from, "--shell", script]);
            assert!(owner.wait().unwrap().success(), "{} {closed:o}", bench.who());
            let told = stdout(&output);
            assert!(told.starts_with("/shown/moved\n"), "{} {closed:o}: {told}{}", bench.who(), stderr(&output));
            assert!(!told.contains("connected") && told.lines().count() == 2, "{} {closed:o}: {told}", bench.who());
            fs::rename(data.join("n/a"), data.join("z/a")).unwrap();
            for name in ["started", "moved"] {
                fs::remove_file(data.join(name)).unwrap();
            }
        }
    });
}

/// The set-up lists what its caller owns by user and group, and no other directory that is closed to the caller.
#[test]
fn a_closed_directory_that_the_set_up_cannot_list_shows_no_socket_later() {
    on_each_bench(|bench| {
        let data = bench.home.join("data");
        let other = data.join("z/y/other");
        assert!(bench.command("mkdir").arg("-p").arg(data.join("z/y")).arg(data.join("n")).status().unwrap().success());
        fs::create_dir(&other).unwrap();
        mode(&other, 0o711);
        let socket = other.join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        mode(&socket, 0o777);
        bench.write("client.py", CLIENT);
        let from = format!("{}:/shown", data.display());
        mode(&data.join("z"), 0o311);
        // A directory of another user goes with its cover.
        let script = "touch /shown/started; for i in $(seq 400); do [ -e /shown/moved ] && break; sleep 0.05; done; \
                      ls -d /shown/moved; python3 client.py /shown/n/y/other/s";
        let wait = "for i in $(seq 400); do [ -e started ] && break; sleep 0.05; done";
        let moves = format!("{wait}; chmod 755 z && mv z/y n/y && touch moved");
        let mut owner = bench.command("sh").args(["-c", &moves]).current_dir(&data).spawn().unwrap();
        let output = bench.run(["run", "--rw", &from, "--shell", script]);
        assert!(owner.wait().unwrap().success(), "{}", bench.who());
        let told = stdout(&output);
        assert!(told.starts_with("/shown/moved\n"), "{}: {told}{}", bench.who(), stderr(&output));
        assert!(!told.contains("connected"), "{}: {told}", bench.who());
        // One of the caller's own with a group of another is refused, and it is open to root.
        let Some(user) = bench.user else { return };
        let shared = data.join("shared");
        fs::create_dir(&shared).unwrap();
        std::os::unix::fs::chown(&shared, Some(user), Some(user + 1)).unwrap();
        for (closed, flag) in
            [0o311, 0o000, 0o200, 0o444, 0o600, 0o644].into_iter().flat_map(|m| [(m, "--ro"), (m, "--rw")])
        {
            mode(&shared, closed);
            let output = bench.run(["run", flag, &from, "--", "true"]);
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{flag} {closed:o}: {told}");
            let said = told.contains("/shown/shared is closed, yours") && told.contains("chmod u+rwx");
            assert!(said, "{flag} {closed:o}: {told}");
        }
        mode(&shared, 0o755);
        assert!(bench.run(["run", "--ro", &from, "--", "true"]).status.success());
    });
}

/// As the data of a database or a container: the caller cannot enter it, and its owner alone opens it.
#[test]
fn a_directory_of_another_user_keeps_no_run_from_starting() {
    on_each_bench(|bench| {
        let user = bench.user.unwrap_or_else(support::user);
        bench.write("client.py", CLIENT);
        let closed = [0o711, 0o755, 0o700, 0o750, 0o640, 0o600, 0o644, 0o000];
        // Root finds the socket in one that its command cannot enter, and does not start.
        let tried = if bench.user.is_some() { closed.len() } else { 2 };
        for closed in &closed[..tried] {
            let data = bench.home.join(format!("data-{closed:o}"));
            assert!(bench.command("mkdir").arg("-p").arg(data.join("own")).status().unwrap().success());
            let mut listeners = Vec::new();
            for parent in ["", "own"] {
                let other = data.join(parent).join("other");
                fs::create_dir(&other).unwrap();
                listeners.push(UnixListener::bind(other.join("s")).unwrap());
                mode(&other.join("s"), 0o777);
                std::os::unix::fs::chown(&other, Some(user + 1), Some(user + 1)).unwrap();
                mode(&other, *closed);
            }
            let from = format!("{}:/shown", data.display());
            let script = "for s in other/s own/other/s; do python3 client.py /shown/$s; done";
            for (flag, own) in [("--rw", 0o755), ("--ro", 0o755), ("--rw", 0o311), ("--ro", 0o000)] {
                mode(&data.join("own"), own);
                let output = bench.run(["run", flag, &from, "--shell", script]);
                let what = format!("{flag} {closed:o} in {own:o}: {}", stderr(&output));
                assert_eq!(output.status.code(), Some(0), "{what}");
                assert_eq!(stdout(&output), "Permission denied\nPermission denied\n", "{what}");
            }
            mode(&data.join("own"), 0o755);
        }
    });
}

/// Nothing in a read-only bind opens it, but another run of its owner may.
#[test]
fn a_closed_directory_with_a_socket_in_a_read_only_bind_is_covered() {
    on_each_bench(|bench| {
        let data = bench.home.join("data");
        assert!(bench.command("mkdir").arg("-p").arg(data.join("z")).status().unwrap().success());
        let _listener = UnixListener::bind(data.join("z/s")).unwrap();
        bench.write("client.py", CLIENT);
        let from = format!("{}:/shown", data.display());
        for closed in [0o000, 0o200, 0o444, 0o600] {
            mode(&data.join("z"), closed);
            let output = bench.run(["run", "--ro", &from, "--", "python3", "client.py", "/shown/z/s"]);
            assert!(!stdout(&output).is_empty(), "{} {closed:o}: {}", bench.who(), stderr(&output));
            assert!(!stdout(&output).contains("connected"), "{} {closed:o}", bench.who());
        }
    });
}
