//! What binds refuse, and the sockets in what they show, with the real program.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use support::{Bench, benches, is_root, stderr, stdout};

fn made(bench: &Bench, path: &Path) -> PathBuf {
    assert!(bench.command("mkdir").arg("-p").arg(path).status().unwrap().success());
    path.to_owned()
}

#[track_caller]
fn refused(bench: &Bench, flags: &[&str], said: &str) {
    let output = bench.run([&["run"][..], flags, &["--", "touch", "ran"]].concat());
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{} {flags:?}: {told}", bench.who());
    assert!(told.contains(said), "{} {flags:?}: {told}", bench.who());
    assert!(!bench.workspace.join("ran").exists());
}

#[test]
fn binds_refuse_the_system_credentials_and_what_holds_them() {
    for bench in benches() {
        let ssh = made(&bench, &bench.home.join(".ssh"));
        fs::write(ssh.join("config"), "x").unwrap();
        made(&bench, &bench.home.join("data"));
        symlink(&ssh, bench.home.join("data/link")).unwrap();
        let home = bench.home.display();
        for path in ["/etc", "/proc", "/sys", "/dev", "/dev/null", "/etc/shadow"] {
            refused(&bench, &["--ro", &format!("{path}:/shown")], "cannot be shown");
        }
        for path in ["", "/.ssh", "/.ssh/config", "/data/link"] {
            for flag in ["--ro", "--rw"] {
                refused(&bench, &[flag, &format!("{home}{path}:/shown")], "cannot be shown: it holds");
            }
        }
        refused(&bench, &["--rw", "/etc/alternatives:/shown"], "write to the system of the host");
        let shown = bench.run(["run", "--ro", &format!("{home}/data:/shown"), "--", "ls", "/shown"]);
        assert_eq!(stdout(&shown), "link\n", "{}", stderr(&shown));
        assert!(bench.run(["run", "--ro", "/etc/alternatives:/shown", "--", "ls", "/shown"]).status.success());
    }
}

#[test]
fn profiles_and_explain_refuse_the_same_binds() {
    for bench in benches() {
        made(&bench, &bench.home.join(".aws"));
        let folder = made(&bench, &bench.home.join(".config/nexus/profiles"));
        fs::write(folder.join("cloud.yaml"), "fs: {ro: [\"~/.aws\"]}\n").unwrap();
        bench.give(&folder.join("cloud.yaml"));
        refused(&bench, &["--profile", "cloud"], "cloud.yaml:1:11");
        let explained = bench.run(["explain", "--profile", "cloud"]);
        assert_eq!(explained.status.code(), Some(125));
        assert!(stderr(&explained).contains("holds credentials"), "{}", stderr(&explained));
    }
}

#[test]
fn the_operator_opens_one_by_name_and_the_receipt_says_so() {
    for bench in benches() {
        let aws = made(&bench, &bench.home.join(".aws"));
        fs::write(aws.join("config"), "region\n").unwrap();
        let settings = made(&bench, &bench.home.join("settings"));
        let file = settings.join("config.toml");
        fs::write(&file, format!("[binds]\nallow = [\"{}\"]\n", aws.display())).unwrap();
        bench.give(&file);
        let copy = bench.home.join("receipt");
        let from = format!("{}:/aws", aws.display());
        let words = ["run", "--ro", &from, "--receipt", copy.to_str().unwrap(), "--", "cat", "/aws/config"];
        let output = bench.nexus(words).env("NEXUS_CONFIG_DIR", &settings).output().unwrap();
        if bench.user.is_some() || !is_root() {
            // A user's own file cannot open what the operator keeps closed.
            assert!(stderr(&output).contains("binds.allow belongs to the operator"), "{}", stderr(&output));
            continue;
        }
        assert_eq!(stdout(&output), "region\n", "{}", stderr(&output));
        let shown = stdout(&bench.run(["receipt", "show", copy.to_str().unwrap()]));
        let line = shown.lines().find(|line| line.starts_with("opened")).unwrap_or_default();
        assert!(line.contains(aws.to_str().unwrap()) && line.contains("by the operator"), "{shown}");
    }
}

/// Connects to each socket that it is given and prints what the kernel said.
const CLIENT: &str = r"
import socket, sys
for path in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        print('connected')
    except OSError as e:
        print(e.strerror)
";

#[test]
fn a_socket_in_a_bind_is_covered_unless_it_is_named() {
    for bench in benches() {
        let data = made(&bench, &bench.home.join("data/deep"));
        let sockets = [bench.home.join("data/top.sock"), data.join("low.sock")];
        let _listeners = sockets.clone().map(|path| {
            let listener = UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            listener
        });
        bench.write("client.py", CLIENT);
        let from = format!("{}:/shown", bench.home.join("data").display());
        let run = |flags: &[&str]| {
            let command = ["--", "python3", "client.py", "/shown/top.sock", "/shown/deep/low.sock"];
            let output = bench.run([&["run", "--changes", "discard"][..], flags, &command].concat());
            stdout(&output) + &stderr(&output)
        };
        for flag in ["--ro", "--rw"] {
            assert_eq!(run(&[flag, &from]), "Permission denied\nPermission denied\n", "{} {flag}", bench.who());
            let low = sockets[1].to_str().unwrap();
            let some = run(&[flag, &from, "--allow-socket", low]);
            // As root the command has another user on the host, and the mode of the socket decides.
            assert_eq!(some, "Permission denied\nconnected\n", "{} {flag}", bench.who());
        }
        refused(&bench, &["--ro", sockets[0].to_str().unwrap()], "--allow-socket");
        refused(&bench, &["--allow-socket", sockets[0].to_str().unwrap()], "no bind shows it");
        refused(&bench, &["--ro", &from, "--allow-socket", bench.home.join("data").to_str().unwrap()], "not a socket");
        let copy = bench.home.join("receipt");
        let both = ["run", "--ro", &from, "--allow-socket", sockets[0].to_str().unwrap(), "--receipt"];
        let output = bench.run([&both[..], &[copy.to_str().unwrap(), "--", "true"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let shown = stdout(&bench.run(["receipt", "show", copy.to_str().unwrap()]));
        assert!(shown.lines().any(|line| line.starts_with("sockets") && line.contains("top.sock")), "{shown}");
    }
}

/// Puts what is written to a named pipe into a file, and lets nothing wait for it.
const PIPES: &str = "for p in $PIPES; do (: <> $p) 2>/dev/null && echo opened || echo refused; done";

#[test]
fn a_named_pipe_is_covered_where_a_bind_is_read_only() {
    for bench in benches() {
        // Below a place that Landlock opens for writing, and elsewhere.
        let data = made(&bench, &bench.home.join("data/deep"));
        for pipe in [bench.home.join("data/top"), data.join("low")] {
            assert!(bench.command("mkfifo").args(["-m", "666"]).arg(&pipe).status().unwrap().success());
        }
        fs::write(data.join("plain"), "plain\n").unwrap();
        let source = bench.home.join("data");
        for target in ["/tmp/shown", "/srv/shown"] {
            let script = format!("PIPES='{target}/top {target}/deep/low'; {PIPES}; cat {target}/deep/plain");
            for (flag, said) in [("--ro", "refused\nrefused\nplain\n"), ("--rw", "opened\nopened\nplain\n")] {
                let from = format!("{}:{target}", source.display());
                let output = bench.run(["run", flag, &from, "--shell", &script]);
                assert_eq!(stdout(&output), said, "{} {flag} {target}: {}", bench.who(), stderr(&output));
            }
        }
        let pipe = format!("{}:/srv/pipe", source.join("top").display());
        refused(&bench, &["--ro", &pipe], "is a named pipe");
        let output = bench.run(["run", "--rw", &pipe, "--shell", &format!("PIPES=/srv/pipe; {PIPES}")]);
        assert_eq!(stdout(&output), "opened\n", "{} {}", bench.who(), stderr(&output));
    }
}

#[test]
fn a_directory_that_may_be_entered_and_not_listed_is_covered() {
    for bench in benches() {
        let private = made(&bench, &bench.home.join("data/private"));
        let listed = made(&bench, &bench.home.join("data/listed"));
        let socket = private.join("known.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
        for path in [private.join("file"), listed.join("file")] {
            fs::write(path, "read\n").unwrap();
        }
        // Its owner could still list it by a chmod; root's own sandboxes are searched with root's rights.
        let is_listed_by_all = bench.user.is_none() && is_root();
        fs::set_permissions(&private, fs::Permissions::from_mode(if is_listed_by_all { 0o755 } else { 0o311 }))
            .unwrap();
        bench.write("client.py", CLIENT);
        let from = format!("{}:/shown", bench.home.join("data").display());
        let script = "python3 client.py /shown/private/known.sock; cat /shown/private/file; cat /shown/listed/file";
        let output = bench.run(["run", "--ro", &from, "--shell", script]);
        let read = if is_listed_by_all { "read\n" } else { "" };
        assert_eq!(stdout(&output), format!("Permission denied\n{read}read\n"), "{}", stderr(&output));
        if is_listed_by_all {
            continue;
        }
        let path = socket.to_str().unwrap();
        refused(&bench, &["--ro", &from, "--allow-socket", path], "cannot be listed, and is covered as a whole");
        let inner = format!("{}:/shown/private/file", private.join("file").display());
        refused(&bench, &["--ro", &from, "--ro", &inner], "cannot be listed, and is covered as a whole");
        refused(&bench, &["--ro", &format!("{}:/shown", private.display())], "cannot be listed, so that sockets");
        let alone = format!("{path}:/srv/known.sock");
        let script = "python3 client.py /srv/known.sock";
        let output = bench.run(["run", "--ro", &alone, "--allow-socket", path, "--shell", script]);
        assert_eq!(stdout(&output), "connected\n", "{}", stderr(&output));
    }
}

#[test]
fn the_socket_of_an_agent_is_not_allowed_by_a_flag() {
    for bench in benches() {
        let data = made(&bench, &bench.home.join("data"));
        let agent = data.join("agent.sock");
        let _listener = UnixListener::bind(&agent).unwrap();
        let path = agent.to_str().unwrap();
        let words = ["run", "--ro", data.to_str().unwrap(), "--allow-socket", path, "--", "true"];
        let output = bench.nexus(words).env("SSH_AUTH_SOCK", path).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert!(stderr(&output).contains("cannot be shown"), "{}", stderr(&output));
    }
}

#[test]
fn directories_above_a_bind_in_a_bind_cannot_be_moved() {
    for bench in benches() {
        for (flags, outer, inner) in [
            (&["--rw", "d", "--ro", "d/keep/deep/sub"][..], "d", "keep/deep/sub"),
            (&["--rw", "app/d", "--ro", "app/d/keep/sub"], "app/d", "keep/sub"),
            (&["--ro", "app/keep/sub"], "app", "keep/sub"),
            (&["--direct", "--ro", "app/keep/sub"], "app", "keep/sub"),
        ] {
            let what = format!("{} {flags:?}", bench.who());
            let app = bench.workspace.display().to_string();
            let path = |name: &str| match name.strip_prefix("app") {
                Some(rest) => format!("{app}{rest}"),
                None => bench.home.join(name).display().to_string(),
            };
            let outer = PathBuf::from(path(outer));
            let sub = outer.join(inner);
            made(&bench, &sub);
            fs::write(sub.join("f"), "old\n").unwrap();
            let top = outer.join("keep");
            let script = format!(
                "mv {outer}/keep {outer}/moved; mkdir -p {sub}; echo evil > {sub}/f; echo evil > {sub}/g; echo mine > {top}/mine; \
                 mv {top}/mine {top}/renamed; true",
                outer = outer.display(),
                sub = sub.display(),
                top = top.display()
            );
            let flags = flags.iter().map(|word| if word.starts_with("--") { (*word).to_owned() } else { path(word) });
            let words: Vec<String> = std::iter::once("run".to_owned()).chain(flags).collect();
            let output = bench.nexus(&words).args(["--shell", &script]).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{what}: {}", stderr(&output));
            assert!(stderr(&output).contains("Device or resource busy"), "{what}: {}", stderr(&output));
            assert_eq!(fs::read_to_string(sub.join("f")).unwrap(), "old\n", "{what}");
            assert!(!sub.join("g").exists() && !outer.join("moved").exists(), "{what}");
            // What lies beside the bind is the command's to write.
            assert_eq!(fs::read_to_string(top.join("renamed")).unwrap(), "mine\n", "{what}");
            fs::remove_dir_all(&top).unwrap();
        }
    }
}
