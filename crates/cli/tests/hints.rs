//! Advice at the end of a run: it names a flag that works, and changes neither the exit code nor what is committed.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use support::{Bench, on_each_bench, report, stderr, stdout};

/// Writes a program of the bench's home.
fn program(bench: &Bench, name: &str, text: &str) -> PathBuf {
    let path = bench.home.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    for place in path.ancestors().take_while(|place| *place != bench.home) {
        bench.give(place);
    }
    path
}

/// `nexus run` with this directory of the home first on PATH, and without the toolchains that PATH leads to.
fn with_path(bench: &Bench, directory: &str, arguments: &[&str]) -> Output {
    let path = format!("{}:/usr/bin:/bin", bench.home.join(directory).display());
    bench.nexus(["run", "--profile", "none"]).args(arguments).env("PATH", path).output().unwrap()
}

const VERSION: &str = ".nvm/versions/node/v22.1.0/bin";

/// A home with a Node of nvm and a program that npm installed beside it.
fn with_node(bench: &Bench) {
    program(bench, &format!("{VERSION}/node"), "#!/bin/sh\n");
    program(bench, &format!("{VERSION}/odd-tool"), "#!/bin/sh\necho ran\n");
}

#[test]
fn a_command_that_is_not_shown_names_its_profile() {
    on_each_bench(|bench| {
        with_node(&bench);
        let missing = with_path(&bench, VERSION, &["--", "odd-tool"]);
        assert_eq!(missing.status.code(), Some(127), "{}", stderr(&missing));
        let advice = "outside, and the sandbox does not show it. --profile node shows it.";
        assert!(stderr(&missing).contains(advice), "{}", stderr(&missing));
        let shown = with_path(&bench, VERSION, &["--profile", "node", "--", "odd-tool"]);
        assert_eq!((stdout(&shown).as_str(), shown.status.code()), ("ran\n", Some(0)), "{}", stderr(&shown));
        let document = report(&with_path(&bench, VERSION, &["--json", "--", "odd-tool"]));
        assert_eq!(document["hints"][0]["code"], "not_found", "{document}");
    });
}

#[test]
fn a_command_that_a_shell_misses_names_its_profile() {
    on_each_bench(|bench| {
        with_node(&bench);
        for shell in ["sh", "bash"] {
            let missing = with_path(&bench, VERSION, &["--", shell, "-c", "odd-tool"]);
            assert_eq!(missing.status.code(), Some(127));
            let advice = "nexus: perhaps: odd-tool is ";
            assert!(stderr(&missing).contains(advice) && stderr(&missing).contains("--profile node"), "{missing:?}");
        }
        // A name that is no plain name is not looked up, and a command that succeeds needs no advice.
        for text in ["echo 'sh: 1: ../odd-tool: not found' >&2; exit 127", "odd-tool; true"] {
            let other = with_path(&bench, VERSION, &["--shell", text]);
            assert!(!stderr(&other).contains("perhaps"), "{}", stderr(&other));
        }
    });
}

#[test]
fn the_bind_that_is_named_shows_the_command() {
    on_each_bench(|bench| {
        program(&bench, "bin/odd", "#!/bin/sh\necho ran\n");
        let missing = with_path(&bench, "bin", &["--", "odd"]);
        assert_eq!(missing.status.code(), Some(127));
        let told = stderr(&missing);
        let bind = told.split("--ro ").nth(1).unwrap_or_else(|| panic!("{told}")).split(" shows").next().unwrap();
        let call = told.split("call it as ").nth(1).unwrap().trim_end().trim_end_matches('.');
        let shown = with_path(&bench, "bin", &["--ro", bind, "--", call]);
        assert_eq!((stdout(&shown).as_str(), shown.status.code()), ("ran\n", Some(0)), "{}", stderr(&shown));
    });
}

#[test]
fn a_command_that_is_nowhere_gets_no_advice() {
    on_each_bench(|bench| {
        let missing = bench.run(["run", "--", "no-such-program"]);
        assert_eq!(missing.status.code(), Some(127));
        assert!(!stderr(&missing).contains("outside") && !stderr(&missing).contains("--ro"), "{}", stderr(&missing));
        let line = bench.run(["run", "--", "echo a && ls"]);
        assert!(stderr(&line).contains("--shell"), "{}", stderr(&line));
    });
}

const INPUT: &str = "standard input holds data that was not passed to the command";

fn hints(document: &Value) -> Vec<&str> {
    document["hints"].as_array().unwrap().iter().map(|hint| hint["code"].as_str().unwrap()).collect()
}

#[test]
fn packets_that_are_not_passed_on_are_said() {
    on_each_bench(|bench| {
        let with = |arguments: &[&str], input: &[u8]| {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            ours.send(input).unwrap();
            bench.nexus(arguments).stdin(Stdio::from(OwnedFd::from(theirs))).output().unwrap()
        };
        let silent = with(&["run", "--", "true"], b"data");
        assert!(silent.status.success() && stderr(&silent).contains(INPUT), "{}", stderr(&silent));
        assert!(stderr(&silent).contains("--stdin"), "{}", stderr(&silent));
        let document = report(&with(&["run", "--json", "--", "true"], b"data"));
        assert_eq!(hints(&document), ["input_not_passed"]);
        for arguments in [&["run", "--stdin", "--", "head", "-c4"][..], &["run", "--no-stdin", "--", "true"]] {
            let quiet = with(arguments, b"data");
            assert!(quiet.status.success() && !stderr(&quiet).contains(INPUT), "{arguments:?}: {}", stderr(&quiet));
        }
    });
}

/// Asks for the address of each word.
const LOOK_UP: &str = "import socket, sys\n\
    for name in sys.argv[1:]:\n\
    \x20   try: socket.getaddrinfo(name, 443)\n\
    \x20   except socket.gaierror as error: print(error.errno == socket.EAI_NONAME)\n";

#[test]
fn names_that_were_asked_for_without_a_network_are_said() {
    on_each_bench(|bench| {
        let asked = bench.run(["run", "--", "python3", "-c", LOOK_UP, "a.test", "b.test", "localhost"]);
        assert_eq!(stdout(&asked), "True\nTrue\n", "no name exists, and nobody tries again: {}", stderr(&asked));
        let line = "the command asked for a.test, b.test, and the run has no network. --allow a.test allows one.";
        assert!(stderr(&asked).contains(line), "{}", stderr(&asked));
        let json = bench.run(["run", "--json", "--", "python3", "-c", LOOK_UP, "a.test"]);
        let document = report(&json);
        assert_eq!(document["hints"][0]["names"], serde_json::json!(["a.test"]), "{document}");
        let silent = bench.run(["run", "--", "python3", "-c", LOOK_UP, "localhost"]);
        assert!(!stderr(&silent).contains("no network"), "{}", stderr(&silent));
        let with = bench.run(["run", "--net", "allowlist", "--", "python3", "-c", LOOK_UP, "a.test"]);
        assert!(!stderr(&with).contains("has no network"), "{}", stderr(&with));
    });
}

#[test]
fn names_from_inside_are_bounded_and_cannot_draw() {
    on_each_bench(|bench| {
        let flood = "import socket, struct\n\
            def ask(name):\n\
            \x20   s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
            \x20   s.settimeout(5)\n\
            \x20   s.sendto(struct.pack('>6H', 7, 256, 1, 0, 0, 0) + bytes([len(name)]) + name + b'\\x04test\\0\\0\\1\\0\\1', ('127.0.0.1', 53))\n\
            \x20   s.recv(512)\n\
            ask(b'\\x1b[2Jx')\n\
            for number in range(40): ask(b'n%d' % number)\n";
        let output = bench.run(["run", "--", "python3", "-c", flood]);
        assert!(output.status.success(), "{}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains("asked for n0.test") && told.contains("and more than 15 more"), "{told}");
        assert!(!told.contains('\u{1b}'), "{told:?}");
    });
}
