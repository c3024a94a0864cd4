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
        // A name that is not a plain name is not looked up, and a command that succeeds needs no advice.
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

#[test]
fn a_command_that_is_nowhere_says_so_and_names_what_was_meant() {
    on_each_bench(|bench| {
        program(&bench, "bin/odd-tool", "#!/bin/sh\n");
        let told = |words: &[&str]| {
            let words: Vec<&str> = ["--"].iter().chain(words).copied().collect();
            let missing = with_path(&bench, "bin", &words);
            assert_eq!(missing.status.code(), Some(127), "{words:?}");
            stderr(&missing)
        };
        let nowhere = told(&["no-such-program"]);
        let line = "nexus: no-such-program is neither in the sandbox nor on your PATH.";
        assert!(nowhere.contains(line) && !nowhere.contains("did you mean"), "{nowhere}");
        for (written, meant) in [("pyhton3", "python3"), ("odd-tol", "odd-tool")] {
            let line = format!("{written} is neither in the sandbox nor on your PATH; did you mean {meant}?");
            assert!(told(&[written, "x"]).contains(&line), "{}", told(&[written, "x"]));
        }
        for word in [&["cd", "sub"][..], &["ll"], &["source", "x"]] {
            let told = told(word);
            assert!(
                told.contains(&format!("{} is a word of the shell", word[0])) && told.contains("--shell"),
                "{told}"
            );
        }
        let told = told(&["ODD=1", "make"]);
        assert!(told.contains("--env ODD=VALUE") && told.contains("--shell"), "{told}");
        bench.write("node_modules/.bin/odd-runner", "");
        let missing = with_path(&bench, "bin", &["--", "odd-runner"]);
        assert!(stderr(&missing).contains("call it as node_modules/.bin/odd-runner."), "{}", stderr(&missing));
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
        let line = "the command asked for a.test, b.test, and the run has no network. --allow a.test allows that host.";
        assert!(stderr(&asked).contains(line), "{}", stderr(&asked));
        let json = bench.run(["run", "--json", "--", "python3", "-c", LOOK_UP, "a.test"]);
        let document = report(&json);
        assert_eq!(document["hints"][0]["names"], serde_json::json!(["a.test"]), "{document}");
        // The group of a package client, and none for another program.
        bench.write("npm", format!("#!/usr/bin/env python3\n{LOOK_UP}"));
        fs::set_permissions(bench.workspace.join("npm"), fs::Permissions::from_mode(0o755)).unwrap();
        let client = bench.run(["run", "--", "./npm", "a.test"]);
        let line = "--allow-group pkg:npm allows the hosts of your own settings; --allow a.test allows that host.";
        assert!(stderr(&client).contains(line), "{}", stderr(&client));
        assert!(!stderr(&asked).contains("--allow-group"), "{}", stderr(&asked));
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

#[test]
fn a_path_that_is_read_only_or_hidden_is_named() {
    on_each_bench(|bench| {
        bench.write(".env", "secret");
        let shown = bench.home.join("shown");
        fs::create_dir(&shown).unwrap();
        fs::write(shown.join("file"), "x").unwrap();
        let (bind, file) = (shown.to_str().unwrap(), shown.join("file").display().to_string());
        let advised = |arguments: &[&str]| {
            let output = bench.nexus(["run"]).args(arguments).output().unwrap();
            assert_ne!(output.status.code(), Some(0));
            stderr(&output)
        };
        let told = advised(&["--shell", "echo x > /etc/new"]);
        assert!(told.contains("nexus: perhaps: /etc/new is read-only"), "{told}");
        let told = advised(&["--ro", bind, "--", "python3", "-c", &format!("open('{file}', 'a')")]);
        assert!(told.contains(&format!("nexus: perhaps: {file} is read-only")) && told.contains("--rw"), "{told}");
        let told = advised(&["--hide-secrets", "--", "cat", ".env"]);
        assert!(told.contains("nexus: perhaps: .env is hidden") && told.contains("--hide-secrets"), "{told}");
        // The name of the program that complains is not the path that it complains about.
        let told = advised(&["--hide-secrets", "--shell", "echo x > .env"]);
        assert!(told.contains("nexus: perhaps: .env is hidden") && !told.contains("sh is read-only"), "{told}");
        let told = advised(&["--hide-secrets", "--", "rm", ".env"]);
        assert!(told.contains("nexus: perhaps: .env is hidden"), "{told}");
        let up = "../".repeat(bench.workspace.components().count() - 1);
        let told = advised(&["--shell", &format!("echo x > {up}usr/new")]);
        assert!(told.contains(&format!("nexus: perhaps: {up}usr/new is read-only")), "{told}");
        assert!(told.contains("/tmp or $HOME (private, gone afterwards)"), "{told}");
        // A file of the workspace that the command itself closed is not of the sandbox.
        let told = advised(&["--shell", "echo 'cat: own: Permission denied' >&2; exit 1"]);
        assert!(!told.contains("perhaps"), "{told}");
        let quiet = advised(&["--quiet", "--shell", "echo x > /etc/new"]);
        assert!(!quiet.contains("perhaps"), "{quiet}");
        let succeeded = bench.run(["run", "--shell", "echo x > /etc/new; true"]);
        assert!(!stderr(&succeeded).contains("perhaps"), "{}", stderr(&succeeded));
        let document = report(&bench.run(["run", "--json", "--shell", "echo x > /etc/new"]));
        assert_eq!(hints(&document), ["read_only"]);
    });
}

#[test]
fn a_refused_call_and_a_limit_of_processes_are_named() {
    on_each_bench(|bench| {
        let refused = bench.run(["run", "--", "unshare", "--user", "true"]);
        assert!(stderr(&refused).contains("perhaps: the command makes namespaces"), "{}", stderr(&refused));
        let threads = "import threading, time\n\
            for number in range(100): threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()";
        let flood = bench.run(["run", "--pids", "20", "--", "python3", "-c", threads]);
        assert!(
            stderr(&flood).contains("limit of 20 processes") && stderr(&flood).contains("--pids 80"),
            "{}",
            stderr(&flood)
        );
        let fits = bench.run(["run", "--pids", "200", "--", "python3", "-c", threads]);
        assert!(fits.status.success() && !stderr(&fits).contains("perhaps"), "{}", stderr(&fits));
        let words =
            bench.run(["run", "--shell", "printf '\\033[2J/etc/\\033]0;x: Read-only file system\\n' >&2; exit 1"]);
        let advice = stderr(&words);
        assert!(!advice.lines().any(|line| line.starts_with("nexus:") && line.contains('\u{1b}')), "{advice:?}");
    });
}

#[test]
fn clients_of_registries_fail_at_once_without_a_network() {
    on_each_bench(|bench| {
        let shown = "env | grep -E '^(npm_config_|PIP_|UV_HTTP_|NO_UPDATE)[A-Za-z_]*=' | LC_ALL=C sort";
        let alone = bench.run(["run", "--shell", shown]);
        assert_eq!(
            stdout(&alone),
            "NO_UPDATE_NOTIFIER=1\nPIP_DISABLE_PIP_VERSION_CHECK=1\nPIP_RETRIES=0\nUV_HTTP_RETRIES=0\n\
             npm_config_fetch_retries=0\nnpm_config_update_notifier=false\n",
            "{}",
            stderr(&alone)
        );
        let own = bench.run(["run", "--env", "PIP_RETRIES=7", "--shell", shown]);
        assert!(stdout(&own).contains("PIP_RETRIES=7"), "{}", stdout(&own));
        let with = bench.run(["run", "--allow", "a.test", "--shell", shown]);
        assert_eq!(stdout(&with), "", "{}", stderr(&with));
        let began = std::time::Instant::now();
        let npm = bench.run(["run", "--", "npm", "view", "left-pad"]);
        assert!(stderr(&npm).contains("and the run has no network"), "{}", stderr(&npm));
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "npm took {:?}", began.elapsed());
    });
}

#[test]
fn npm_does_not_ask_for_a_newer_npm_without_a_network() {
    on_each_bench(|bench| {
        bench.write("package.json", r#"{"scripts": {"test": "echo passed"}}"#);
        // The user's own settings of the project stay, and leave the notifier off all the same.
        for own in [None, Some("fetch-retries=5\n")] {
            if let Some(text) = own {
                bench.write(".npmrc", text);
            }
            let npm = bench.run(["run", "--", "npm", "test"]);
            assert!(npm.status.success() && stdout(&npm).contains("passed"), "{}", stderr(&npm));
            assert!(!stderr(&npm).contains("asked for"), "{}", stderr(&npm));
        }
    });
}

#[test]
fn a_path_that_is_outside_alone_is_named() {
    on_each_bench(|bench| {
        let beside = bench.workspace.with_file_name("beside");
        fs::create_dir_all(&beside).unwrap();
        let data = beside.join("data.txt");
        fs::write(&data, "seen\n").unwrap();
        bench.give(&beside);
        bench.give(&data);
        let whole = data.to_str().unwrap();
        let line = format!("is there outside, and the sandbox does not show it. --ro {whole} shows it.");
        for command in [
            &["cat", whole][..],
            &["cat", "../beside/data.txt"],
            &["sh", whole],
            &["python3", "-c", "open('../beside/data.txt')"],
        ] {
            let failed = bench.nexus(["run", "--"]).args(command).output().unwrap();
            assert!(stderr(&failed).contains(&line), "{command:?}: {}", stderr(&failed));
        }
        let shown = bench.run(["run", "--ro", whole, "--", "cat", whole]);
        assert_eq!(stdout(&shown), "seen\n", "{}", stderr(&shown));
        let document = report(&bench.run(["run", "--json", "--", "cat", whole]));
        assert_eq!(hints(&document), ["not_shown"]);
        // What is nowhere, what is in the workspace, what was not complained of, and a command that succeeded.
        let key = bench.home.join(".ssh/id_odd");
        fs::create_dir_all(key.parent().unwrap()).unwrap();
        fs::write(&key, "").unwrap();
        bench.give(key.parent().unwrap());
        bench.give(&key);
        let link = beside.join("link");
        std::os::unix::fs::symlink(&key, &link).unwrap();
        for text in [
            "cat ../beside/nothing".to_owned(),
            "cat gone".to_owned(),
            format!("echo {whole}: wrong; exit 1"),
            format!("cat {whole}; true"),
            format!("cat {}", key.display()),
            format!("cat {}", link.display()),
            "echo /proc/1/exe /dev/kmsg: No such file or directory; exit 1".to_owned(),
        ] {
            let silent = bench.run(["run", "--shell", &text]);
            assert!(!stderr(&silent).contains("is there outside"), "{text}: {}", stderr(&silent));
        }
    });
}

#[test]
fn a_sandbox_that_lives_on_says_that_files_stay() {
    on_each_bench(|bench| {
        let line = "A file that was read inside stays as it was";
        let said = |arguments: &[&str]| {
            let output = bench.nexus(["run", "--detach"]).args(arguments).args(["--", "true"]).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            bench.run(["wait", stdout(&output).trim()]);
            stderr(&output).contains(line)
        };
        assert!(said(&[]) && !said(&["--direct"]) && !said(&["--quiet"]));
        let published = bench.run(["run", "--publish", "0:8000", "--", "true"]);
        assert!(stderr(&published).contains(line) && stderr(&published).contains("--direct"), "{}", stderr(&published));
        let plain = bench.run(["run", "--", "true"]);
        assert!(!stderr(&plain).contains(line), "{}", stderr(&plain));
    });
}
