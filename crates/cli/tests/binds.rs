//! Refused binds, and sockets in directories that binds show, with the real program.

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

#[test]
fn a_command_writes_no_settings_of_the_callers_programs() {
    for bench in benches() {
        let home = bench.home.clone();
        for directory in
            [".config/git", ".config/pip", ".config/app", ".cargo/registry/index", ".npm", ".m2/repository"]
        {
            made(&bench, &home.join(directory));
        }
        fs::write(home.join(".gitconfig"), "[user]\n").unwrap();
        bench.give(&home.join(".gitconfig"));
        let path = |name: &str| home.join(name).display().to_string();
        for settings in [".gitconfig", ".config/git", ".config/pip", ".cargo/registry", ".cargo/registry/index", ".m2"]
        {
            refused(&bench, &["--rw", &path(settings)], "");
            let told = stderr(&bench.run(["run", "--rw", &path(settings), "--", "true"]));
            let said = told.contains("settings of your programs") || told.contains("holds credentials");
            assert!(said, "{} {settings}: {told}", bench.who());
        }
        let told = stderr(&bench.run(["run", "--rw", &path(".cargo/registry"), "--", "true"]));
        assert!(told.contains("--cache"), "{told}");
        for read in [".gitconfig", ".config/git", ".cargo/registry"] {
            let output = bench.run(["run", "--ro", &path(read), "--", "true"]);
            assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{} {read}", bench.who());
        }
        for (cache, warns) in [(".npm", true), (".m2/repository", true), (".config/app", false)] {
            let output = bench.run(["run", "--rw", &path(cache), "--", "true"]);
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{} {cache}: {told}", bench.who());
            assert_eq!(told.contains("Later builds of yours"), warns, "{} {cache}: {told}", bench.who());
        }
        let variable = home.join("else/nrc");
        made(&bench, &home.join("else"));
        let from = home.join("else").display().to_string();
        let output =
            bench.nexus(["run", "--rw", &from, "--", "true"]).env("Npm_config_UserConfig", &variable).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.run(["run", "--rw", &from, "--", "true"]).status.success(), "{}", bench.who());
    }
}

/// Moves a directory with a socket of the host, as a run beside this one does that may write there too.
const MOVERS: [(&str, &str); 3] = [
    ("renames", "while True:\n  os.rename('a', 'b'); os.rename('b', 'a')\n"),
    (
        "exchanges for another file of its name",
        "os.mkdir('b'); open('b/h.sock', 'w').close()\n\
         call = ctypes.CDLL(None).renameat2\n\
         while True:\n  call(-100, b'a', -100, b'b', 2)\n",
    ),
    (
        "moves far away",
        "os.rename('a', 'n/x')\n\
         while True:\n  os.rename('n/x', 'z/x'); time.sleep(0.01); os.rename('z/x', 'n/x'); time.sleep(0.01)\n",
    ),
];

#[test]
fn a_socket_that_moves_while_a_run_starts_is_not_reached() {
    const CONNECTS: &str = "import glob, socket\n\
        for path in ['/shown/a/h.sock', '/shown/b/h.sock', '/shown/n/x/h.sock', '/shown/z/x/h.sock']:\n\
        \x20 s = socket.socket(socket.AF_UNIX)\n\
        \x20 try:\n    s.connect(path); print('connected')\n\
        \x20 except OSError as e: pass\nprint('tried')\n";
    for bench in benches() {
        bench.write("connects.py", CONNECTS);
        for (at, (way, mover)) in MOVERS.iter().enumerate() {
            let data = made(&bench, &bench.home.join(format!("data{at}")));
            for directory in ["a", "n", "z"] {
                made(&bench, &data.join(directory));
            }
            for number in 0..300 {
                fs::create_dir_all(data.join(format!("m/{number}"))).unwrap();
            }
            let socket = data.join("a/h.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            listener.set_nonblocking(true).unwrap();
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
            let script = format!("import ctypes, os, time\nos.chdir('{}')\n{mover}", data.display());
            let mut moves = std::process::Command::new("python3").args(["-c", &script]).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(300));
            let from = format!("{}:/shown", data.display());
            for number in 0..6 {
                let flag = ["--ro", "--rw"][number % 2];
                let output = bench.run(["run", flag, &from, "--", "python3", "connects.py"]);
                let (told, who) = (stderr(&output), bench.who());
                assert!(!stdout(&output).contains("connected"), "{who} {flag}, {way}: {told}");
                if output.status.success() {
                    assert_eq!(stdout(&output), "tried\n", "{who} {flag}, {way}: {told}");
                    continue;
                }
                let said = "was moved or replaced while the sandbox was set up";
                assert!(told.contains(said), "{who} {way}: {told}");
                assert!(
                    told.to_lowercase().contains("run it again") && !told.contains("doctor"),
                    "{who} {way}: {told}"
                );
            }
            assert!(moves.try_wait().unwrap().is_none(), "{way}: the mover ended");
            moves.kill().unwrap();
            moves.wait().unwrap();
            assert!(listener.accept().is_err(), "{way}: the service was reached");
        }
    }
}

#[test]
fn a_directory_that_waits_for_a_socket_in_it_is_accepted_as_the_refusal_says() {
    for bench in benches() {
        let (waits, service) = (made(&bench, &bench.workspace.join("tmp/sub")), bench.workspace.join("tmp/sub/s"));
        let listener = UnixListener::bind(&service).unwrap();
        let output = bench.run(["run", "--shell", "rm -rf tmp; touch other"]);
        let waiting = format!("{}: {}", bench.who(), stderr(&output));
        assert!(waits.exists(), "{waiting}");
        for words in [&["changes", "accept"][..], &["changes", "accept", "tmp"]] {
            let told = stderr(&bench.run(words));
            let says =
                told.contains("a socket of this machine") && told.contains("nexus changes accept --protected tmp");
            assert!(says && !told.contains("name the paths"), "{waiting} {words:?}: {told}");
            assert!(waits.exists(), "{}", bench.who());
        }
        let accepted = bench.run(["changes", "accept", "--protected", "tmp"]);
        assert!(accepted.status.success(), "{}: {}", bench.who(), stderr(&accepted));
        assert!(!bench.workspace.join("tmp").exists(), "{}", bench.who());
        drop(listener);

        // A socket that the run made does not come, so that it does not count as added.
        let dead = bench.workspace.join("dead");
        drop(UnixListener::bind(&dead).unwrap());
        bench.give(&dead);
        let output = bench.run(["run", "--shell", "mv dead moved"]);
        let counts = "0 added, 0 modified, 1 deleted, 1 socket left out";
        assert!(stderr(&output).contains(counts), "{}: {}", bench.who(), stderr(&output));
    }
}

/// Renames one entry of the directory that it is called for when the first search of a run opens `n`.
const ONE_RENAME: &str = "import ctypes, os, sys\n\
    os.chdir(sys.argv[1])\n\
    libc = ctypes.CDLL(None)\n\
    seen = libc.inotify_init()\n\
    libc.inotify_add_watch(seen, b'n', 0x20)\n\
    print('ready', flush=True)\n\
    os.read(seen, 4096)\n\
    os.rename(sys.argv[2], sys.argv[3])\n";
/// Tries to reach the socket or named pipe at each path.
const REACHES: &str = "import os, socket, stat, sys\n\
    for path in sys.argv[1:]:\n\
    \x20 try:\n\
    \x20   if stat.S_ISFIFO(os.stat(path).st_mode): os.open(path, os.O_WRONLY | os.O_NONBLOCK)\n\
    \x20   else: socket.socket(socket.AF_UNIX).connect(path)\n\
    \x20   print('reached', path)\n\
    \x20 except OSError as e: pass\nprint('tried')\n";

#[test]
fn what_is_renamed_once_while_a_run_starts_is_not_reached() {
    use std::io::Read as _;
    for bench in benches() {
        bench.write("reaches.py", REACHES);
        for (at, what) in ["socket", "pipe", "directory", "entry", "below", "nested"].into_iter().enumerate() {
            let around = made(&bench, &bench.home.join(format!("once{at}")));
            let data = made(&bench, &around.join("shown"));
            for directory in ["a", "n"] {
                made(&bench, &data.join(directory));
            }
            let open = fs::Permissions::from_mode(0o777);
            let (from, to, end) = match what {
                "directory" => ("z", "z2", "z2/h"),
                "entry" => ("z/h", "w/h", "w/h"),
                "below" | "nested" => ("z/sub/h", "z/sub/i", "z/sub/i"),
                _ => ("a/h", "n/h", "n/h"),
            };
            let is_closed = matches!(what, "directory" | "entry" | "below" | "nested");
            let first = match what {
                "directory" | "entry" => "z/h",
                "below" | "nested" => "z/sub/h",
                _ => "a/h",
            };
            let endpoint = data.join(first);
            fs::create_dir_all(endpoint.parent().unwrap()).unwrap();
            let mut kept: (Option<UnixListener>, Option<fs::File>) = (None, None);
            if what == "pipe" {
                rustix::fs::mkfifoat(rustix::fs::CWD, &endpoint, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
                kept.1 = Some(rustix::fs::open(&endpoint, flags, rustix::fs::Mode::empty()).unwrap().into());
            } else {
                kept.0 = Some(UnixListener::bind(&endpoint).unwrap());
            }
            fs::set_permissions(&endpoint, open).unwrap();
            for directory in ["z", "w"].iter().filter(|_| is_closed).map(|name| data.join(name)) {
                fs::create_dir_all(&directory).unwrap();
                // Root lists it, and a command of root does not where it belongs to another user.
                if bench.user.is_none() {
                    std::os::unix::fs::chown(&directory, Some(support::user()), Some(support::user())).unwrap();
                }
                fs::set_permissions(&directory, fs::Permissions::from_mode(0o711)).unwrap();
            }
            // Old enough that no time stamp is that of the run.
            std::thread::sleep(std::time::Duration::from_millis(50));
            // A bind may lie in another one.
            let outer = [format!("--ro={}:/outer", around.display())];
            let (outer, shown) = if what == "nested" { (&outer[..], "/outer/shown") } else { (&[][..], "/shown") };
            let bind = format!("{}:{shown}", data.display());
            for number in 0..6 {
                let flag = if what == "pipe" || what == "nested" { "--ro" } else { ["--ro", "--rw"][number % 2] };
                let mut mover = std::process::Command::new("python3")
                    .args(["-c", ONE_RENAME, data.to_str().unwrap(), from, to])
                    .stdout(std::process::Stdio::piped())
                    .spawn()
                    .unwrap();
                mover.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
                let paths = [format!("{shown}/{end}"), format!("{shown}/{first}")];
                let mut command = bench.nexus(["run", flag, &bind]);
                let output = command.args(outer).args(["--", "python3", "reaches.py"]).args(&paths).output().unwrap();
                let told = format!("{} {flag} {what}: {}{}", bench.who(), stdout(&output), stderr(&output));
                assert!(mover.wait().unwrap().success(), "{told}");
                assert!(!stdout(&output).contains("reached"), "{told}");
                if output.status.success() {
                    assert_eq!(stdout(&output), "tried\n", "{told}");
                } else {
                    assert!(told.contains("was moved or replaced while the sandbox was set up"), "{told}");
                }
                fs::rename(data.join(to), data.join(from)).unwrap();
            }
            drop(kept);
        }
    }
}

/// Closes `z` while the first search of a run works, and opens it again when the command is there.
const ONE_CLOSURE: &str = "import ctypes, os, sys, time
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None)
seen = libc.inotify_init()
libc.inotify_add_watch(seen, b'z', 0x10)
print('ready', flush=True)
os.read(seen, 4096)
os.chmod('z', 0o700)
time.sleep(0.5)
os.chmod('z', 0o755)
";

#[test]
fn a_directory_that_is_closed_while_it_is_searched_hides_no_socket() {
    use std::io::Read as _;
    for bench in benches().into_iter().filter(|bench| bench.user.is_some()) {
        let data = made(&bench, &bench.home.join("data"));
        fs::create_dir(data.join("z")).unwrap();
        let service = UnixListener::bind(data.join("z/h")).unwrap();
        service.set_nonblocking(true).unwrap();
        fs::set_permissions(data.join("z/h"), fs::Permissions::from_mode(0o777)).unwrap();
        bench.write("reaches.py", REACHES);
        let bind = format!("{}:/shown", data.display());
        let mut refused = 0;
        for number in 0..6 {
            fs::set_permissions(data.join("z"), fs::Permissions::from_mode(0o755)).unwrap();
            let mut closer = std::process::Command::new("python3")
                .args(["-c", ONE_CLOSURE, data.to_str().unwrap()])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            closer.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
            let flag = ["--ro", "--rw"][number % 2];
            let script = "sleep 0.7; python3 reaches.py /shown/z/h";
            let output = bench.run(["run", flag, &bind, "--shell", script]);
            assert!(closer.wait().unwrap().success());
            assert!(!stdout(&output).contains("reached"), "{flag}: {}{}", stdout(&output), stderr(&output));
            refused += usize::from(!output.status.success());
        }
        assert!(refused > 0, "the directory was never closed during a search");
        assert!(service.accept().is_err(), "the service was reached");
    }
}

/// Moves `n/h` to a directory that the first search has read, and from there to `z`, which the second search has looked at.
const TWO_RENAMES: &str = "import ctypes, os, struct, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None)
seen = libc.inotify_init()
# The first search takes directories in the order of the list, the second one in the other order.
before = [name for name in os.listdir('.')]
before = [name for name in before[:before.index('z')] if name.startswith('d')]
if len(before) < 3: sys.exit('z is listed too early')
last, turn = before[0], before[-3]
first = libc.inotify_add_watch(seen, b'n', 0x20)
second = libc.inotify_add_watch(seen, turn.encode(), 0x20)
print('ready', flush=True)
opened = {first: 0, second: 0}
at = 'n/h'
while at != 'z/i':
    events, place = os.read(seen, 4096), 0
    while place < len(events):
        watch, _, _, length = struct.unpack_from('iIII', events, place)
        place += 16 + length
        opened[watch] += 1
        if at == 'n/h' and opened[first] and opened[second]:
            os.rename(at, last + '/h')
            at = last + '/h'
        elif at != 'n/h' and watch == second and opened[second] > 1:
            os.rename(at, 'z/i')
            at = 'z/i'
";

#[test]
fn what_is_renamed_twice_while_a_run_starts_is_not_reached() {
    use std::io::Read as _;
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        bench.write("reaches.py", REACHES);
        let (mut moved, mut number) = (0, 0);
        while moved < 6 {
            assert!(number < 40, "moved {moved} times in {number} runs");
            number += 1;
            let data = made(&bench, &bench.home.join(format!("twice{number}")));
            for directory in (0..30).map(|number| format!("d{number}")).chain(["n", "z"].map(str::to_owned)) {
                made(&bench, &data.join(directory));
            }
            let service = UnixListener::bind(data.join("n/h")).unwrap();
            fs::set_permissions(data.join("n/h"), fs::Permissions::from_mode(0o777)).unwrap();
            std::os::unix::fs::chown(data.join("z"), Some(support::user()), Some(support::user())).unwrap();
            fs::set_permissions(data.join("z"), fs::Permissions::from_mode(0o711)).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
            let mut mover = std::process::Command::new("python3")
                .args(["-c", TWO_RENAMES, data.to_str().unwrap()])
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            // It ends at once where the list has another order than it needs.
            let is_ready = mover.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).is_ok();
            if is_ready {
                let bind = format!("{}:/shown", data.display());
                let output =
                    bench.run(["run", "--ro", &bind, "--", "python3", "reaches.py", "/shown/z/i", "/shown/n/h"]);
                assert!(!stdout(&output).contains("reached"), "{}{}", stdout(&output), stderr(&output));
                moved += usize::from(data.join("z/i").exists());
            }
            mover.kill().unwrap();
            mover.wait().unwrap();
            drop(service);
            fs::remove_dir_all(&data).unwrap();
        }
    }
}

/// Only its owner and root list it; a command of root uses the names in it that it knows.
#[test]
fn a_busy_directory_that_a_command_may_only_enter_keeps_no_run_from_starting() {
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let data = made(&bench, &bench.home.join("data"));
        let quiet = data.join("home1/quiet");
        fs::create_dir_all(&quiet).unwrap();
        let service = UnixListener::bind(quiet.join("s")).unwrap();
        fs::set_permissions(quiet.join("s"), fs::Permissions::from_mode(0o777)).unwrap();
        for home in ["home1", "home2"].map(|name| data.join(name)) {
            fs::create_dir_all(&home).unwrap();
            std::os::unix::fs::chown(&home, Some(support::user()), Some(support::user())).unwrap();
            fs::set_permissions(&home, fs::Permissions::from_mode(0o711)).unwrap();
        }
        let script = format!(
            "import os, time\nwhile True:\n for home in ['home1', 'home2']:\n  open(f'{0}/{{home}}/f', 'w').close(); time.sleep(0.003)\n  \
             os.unlink(f'{0}/{{home}}/f'); time.sleep(0.003)\n",
            data.display()
        );
        let mut busy = std::process::Command::new("python3").args(["-c", &script]).spawn().unwrap();
        bench.write("reaches.py", REACHES);
        let bind = format!("{}:/shown", data.display());
        for number in 0..16 {
            let flag = ["--ro", "--rw"][number % 2];
            let output = bench.run(["run", flag, &bind, "--", "python3", "reaches.py", "/shown/home1/quiet/s"]);
            assert_eq!(output.status.code(), Some(0), "{flag}: {}", stderr(&output));
            assert_eq!(stdout(&output), "tried\n", "{flag}");
        }
        assert!(busy.try_wait().unwrap().is_none(), "nothing was busy");
        busy.kill().unwrap();
        busy.wait().unwrap();
        drop(service);
    }
}

#[test]
fn sockets_that_come_and_go_keep_no_run_from_starting() {
    for bench in benches() {
        let data = made(&bench, &bench.home.join("data"));
        let script = format!(
            "import os, socket, time\nwhile True:\n  s = socket.socket(socket.AF_UNIX); s.bind('{0}/s'); time.sleep(0.02)\n  \
             s.close(); os.unlink('{0}/s'); time.sleep(0.02)\n",
            data.display()
        );
        let mut service = std::process::Command::new("python3").args(["-c", &script]).spawn().unwrap();
        for _ in 0..15 {
            let output = bench.run(["run", "--ro", data.to_str().unwrap(), "--", "true"]);
            assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        }
        assert!(service.try_wait().unwrap().is_none(), "the service ended");
        service.kill().unwrap();
        service.wait().unwrap();
    }
}
