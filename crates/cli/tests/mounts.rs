//! Workspaces with mounts in them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use support::{benches, needs_root, stderr, stdout};

/// Mounts in the mount namespace of one `sh`, which then runs `nexus`: nothing is left on the host, however it ends.
#[test]
fn a_mount_inside_the_workspace_is_refused_by_name() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let (dir, file) = (bench.workspace.join("m n"), bench.write("file", "under\n"));
        fs::create_dir(&dir).unwrap();
        bench.give(&dir);
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        let other = bench.base.path().join("other");
        fs::write(&other, "over\n").unwrap();
        for (mount, at) in [
            (format!("mount -t tmpfs none '{0}' && chmod 777 '{0}'", dir.display()), &dir),
            (format!("mount --bind '{}' '{}'", other.display(), file.display()), &file),
        ] {
            let run = |flags: &str, script: &str| {
                let nexus = bench.program().display();
                let line = format!("{mount} && exec {identity}{nexus} run {flags} --shell '{script}'");
                let mut command: Command = bench.command_as_root("unshare");
                command.args(["-m", "sh", "-c", &line]).output().unwrap()
            };
            let refused = run("--changes=commit", "touch made");
            let text = stderr(&refused);
            assert_eq!(refused.status.code(), Some(125), "{} {at:?}: {text}", bench.who());
            let name = at.display().to_string();
            assert!(text.contains(&name) && text.contains("--direct"), "{} {at:?}: {text}", bench.who());
            assert!(!bench.workspace.join("made").exists());
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
            // What the message advises works.
            let direct = run("--direct", "echo x > \"m n/x\"; cat \"m n/x\" file");
            assert_eq!(direct.status.code(), Some(0), "{} {at:?}: {}", bench.who(), stderr(&direct));
            assert_eq!(stdout(&direct), if *at == dir { "x\nunder\n" } else { "x\nover\n" }, "{}", bench.who());
            fs::remove_file(dir.join("x")).ok();
        }
        let smaller = bench.workspace.join("sub");
        fs::create_dir(&smaller).unwrap();
        bench.give(&smaller);
        let line = format!(
            "mount -t tmpfs none '{}' && cd sub && exec {identity}{} run --shell 'echo x > x'",
            dir.display(),
            bench.program().display()
        );
        let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(smaller.join("x").exists());
    }
}

/// A mount whose program never answers, in the mount namespace of the script alone.
const SILENT: &str = "import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
at, uid = sys.argv[1], int(sys.argv[2])
fd = os.open('/dev/fuse', os.O_RDWR)
options = b'fd=%d,rootmode=%s,user_id=%d,group_id=%d' % (fd, sys.argv[4].encode(), uid, uid)
if libc.mount(b'silent', at.encode(), b'fuse', 0, options):
    sys.exit('mount: %d' % ctypes.get_errno())
open(sys.argv[3], 'w').close()
time.sleep(60)
";

#[test]
fn no_advice_waits_for_a_file_system_that_does_not_answer() {
    if !needs_root() || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    for bench in benches() {
        let at = bench.home.join("silent");
        fs::create_dir(&at).unwrap();
        bench.give(&at);
        let script = bench.base.path().join("silent.py");
        fs::write(&script, SILENT).unwrap();
        let (user, at) = (bench.user.unwrap_or(0), at.display());
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        bench.write(".git", format!("gitdir: {at}/main/.git/worktrees/lw\n"));
        let complaint = format!("echo \"cat: {at}/x: No such file or directory\" >&2; exit 1");
        let worktree = "echo \"fatal: not a git repository\" >&2; exit 1".to_owned();
        for (number, (flags, words)) in
            [("", &complaint), ("-q", &complaint), ("", &worktree), ("-q", &worktree)].into_iter().enumerate()
        {
            let ready = bench.base.path().join(format!("ready{number}"));
            let nexus = bench.program().display();
            let line = format!(
                "python3 {} '{at}' {user} '{ready}' 40000 & server=$!; while ! [ -e '{ready}' ]; do kill -0 $server || exit 99; sleep 0.05; done; \
                 timeout -s KILL 20 {identity}{nexus} run --changes discard {flags} --shell '{words}'; code=$?; \
                 kill $server; exit $code",
                script.display(),
                ready = ready.display(),
            );
            let begun = std::time::Instant::now();
            let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
            let (code, told) = (output.status.code(), stderr(&output));
            assert_eq!(code, Some(1), "{} {flags} {words}: {:?}: {told}", bench.who(), begun.elapsed());
            assert!(!told.contains("is there outside"), "{}: {told}", bench.who());
        }
    }
}

/// Its root is a file, mounted over a file that a bind shows, with and without a program that serves it.
#[test]
fn a_file_system_over_a_file_that_does_not_answer_holds_up_no_start() {
    if !needs_root() || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    for bench in benches() {
        let shown = bench.home.join("shown");
        fs::create_dir(&shown).unwrap();
        fs::write(shown.join("f"), "").unwrap();
        for path in [&shown, &shown.join("f")] {
            bench.give(path);
        }
        let script = bench.base.path().join("silent.py");
        fs::write(&script, SILENT).unwrap();
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        for (number, (user, end)) in
            [(bench.user.unwrap_or(0), ""), (bench.user.unwrap_or(0), "kill -9 $server; wait $server;"), (4711, "")]
                .into_iter()
                .enumerate()
        {
            // FUSE maps no owners, as a writable bind of root needs.
            for flag in if bench.user.is_some() { &["--ro", "--rw"][..] } else { &["--ro"] } {
                let ready = bench.base.path().join(format!("ready{number}{flag}"));
                let line = format!(
                    "python3 {} '{at}/f' {user} '{ready}' 100000 & server=$!; \
                     while ! [ -e '{ready}' ]; do kill -0 $server || exit 99; sleep 0.05; done; {end} \
                     timeout -s KILL 20 {identity}{nexus} run -q {flag} '{at}' -- true; code=$?; \
                     kill $server 2>/dev/null; exit $code",
                    script.display(),
                    at = shown.display(),
                    ready = ready.display(),
                    nexus = bench.program().display(),
                );
                let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
                let told = format!("{} {flag} {user} {end}: {}", bench.who(), stderr(&output));
                assert_eq!(output.status.code(), Some(0), "{told}");
            }
        }
    }
}

#[test]
fn without_home_the_machines_own_table_names_the_home() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        // The state of root is not in a home.
        let Some(user) = bench.user else { continue };
        let file = |name: &str, text: String| {
            let path = bench.base.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let table =
            file("passwd", format!("root:x:0:0::/:/bin/sh\nx:x:{user}:{user}::{}:/bin/sh\n", bench.home.display()));
        let other = file("other", "y:x:4:4::/:/bin/sh\n".to_owned());
        // A program that asked the C library would load this module and find no user.
        let modules = file("nsswitch.conf", "passwd: nosuchmodule\n".to_owned());
        let identity = format!("setpriv --reuid {user} --regid {user} --clear-groups ");
        let run = |table: &str, home: &str| {
            let nexus = bench.program().display();
            let line = format!(
                "mount --bind {table} /etc/passwd && mount --bind {modules} /etc/nsswitch.conf && \
                 exec env -u HOME -u NEXUS_STATE_DIR {home} {identity}{nexus} run -- pwd"
            );
            bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap()
        };
        for home in ["", "HOME="] {
            let found = run(&table, home);
            assert_eq!(found.status.code(), Some(0), "{} {home}: {}", bench.who(), stderr(&found));
        }
        assert!(bench.home.join(".local/state/nexus").exists(), "{}", bench.who());
        let missing = run(&other, "");
        assert_eq!(missing.status.code(), Some(125), "{}", bench.who());
        assert!(stderr(&missing).contains("HOME"), "{}: {}", bench.who(), stderr(&missing));
    }
}

/// The host of the test below: what is mounted below the base is compared before and after a run, and it mounts the secret
/// directory while the command runs.
const SHARED_HOST: &str = r#"
cd "$BASE" && mount --bind "$BASE" "$BASE" && mount --make-shared "$BASE" && cd "$WORKSPACE" || exit 90
own() { grep -F "$BASE" /proc/self/mountinfo | cut -d" " -f4-7 | sort; }
own > "$BASE/before"
(
    for i in $(seq 500); do [ -e "$BASE/signal/begun" ] && break; sleep 0.02; done
    own > "$BASE/during"
    for place in "$BASE/shown" "$WORKSPACE"; do mount --bind "$BASE/secret" "$place/later" || exit 91; done
    touch "$BASE/signal/mounted"
) &
$IDENTITY "$NEXUS" run $FLAGS --hide-secrets --rw "$BASE/signal" "$SHOWN_AS" "$BASE/shown" --shell "
    touch $BASE/signal/begun
    for i in \$(seq 500); do [ -e $BASE/signal/mounted ] && break; sleep 0.02; done
    find $BASE/shown/later $WORKSPACE/later -mindepth 1
    cat $WORKSPACE/.env 2>/dev/null
    echo ended"
wait $!
for place in "$BASE/shown" "$WORKSPACE"; do umount "$place/later" || exit 92; done
own > "$BASE/after"
rm "$BASE"/signal/*
"#;

/// With systemd every mount of the host is shared, so that a copy of one takes part in what is mounted on either side.
#[test]
fn shared_mounts_of_the_host_carry_no_mount_in_or_out() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let base = bench.base.path();
        let places = ["shown", "secret", "signal"].map(|name| base.join(name));
        for place in places.iter().chain([&bench.workspace]) {
            fs::create_dir_all(place.join("later")).unwrap();
        }
        fs::remove_dir(base.join("signal/later")).unwrap();
        fs::write(base.join("secret/of-the-host"), "secret\n").unwrap();
        let socket = std::os::unix::net::UnixListener::bind(base.join("shown/socket")).unwrap();
        bench.write(".env", "key\n");
        bench.write(".git/x", "key\n");
        bench.write(".git/config", "[core]\n\tbare = false\n");
        places.iter().chain([&bench.workspace]).for_each(|place| bench.give(place));
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        for flags in ["", "--direct", "--direct --hide .git/x"] {
            for shown_as in ["--ro", "--rw"] {
                fs::remove_file(base.join("during")).ok();
                let what = format!("{} {flags} {shown_as}", bench.who());
                let output = bench
                    .command_as_root("unshare")
                    .args(["-m", "bash", "-c", SHARED_HOST])
                    .env("BASE", base)
                    .env("WORKSPACE", &bench.workspace)
                    .env("IDENTITY", &identity)
                    .env("NEXUS", bench.program())
                    .env("FLAGS", flags)
                    .env("SHOWN_AS", shown_as)
                    .output()
                    .unwrap();
                assert_eq!(output.status.code(), Some(0), "{what}: {}", stderr(&output));
                assert_eq!(stdout(&output), "ended\n", "{what}: {}", stderr(&output));
                let mounts = ["before", "during", "after"].map(|name| fs::read_to_string(base.join(name)).unwrap());
                assert!(mounts[0].contains("shared:"), "{what}: {}", mounts[0]);
                assert_eq!(mounts[0], mounts[1], "{what}, while the command runs");
                assert_eq!(mounts[0], mounts[2], "{what}, after the run");
            }
        }
        drop(socket);
    }
}

/// Tries to reach the socket or named pipe at each path.
const REACHES: &str = "import os, socket, stat, sys
for path in sys.argv[1:]:
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode): os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        else: socket.socket(socket.AF_UNIX).connect(path)
        print('reached', path)
    except OSError as e: pass
print('tried')
";

/// A container engine mounts its socket over an empty file. The directory lists that file, and not the socket.
#[test]
fn a_socket_or_pipe_that_is_mounted_over_a_file_is_not_reached() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let (base, data) = (bench.base.path(), bench.home.join("data"));
        let outside = base.join("outside");
        for directory in [&data.join("deep"), &data.join("closed"), &outside] {
            fs::create_dir_all(directory).unwrap();
        }
        let listener = std::os::unix::net::UnixListener::bind(outside.join("s")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mkfifoat(rustix::fs::CWD, outside.join("p"), mode).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
        let reader = rustix::fs::open(outside.join("p"), flags, rustix::fs::Mode::empty()).unwrap();
        for name in ["s", "p"] {
            fs::set_permissions(outside.join(name), fs::Permissions::from_mode(0o777)).unwrap();
        }
        for file in ["s", "p", "deep/s", "deep/p", "closed/s", "under"] {
            fs::write(data.join(file), "").unwrap();
        }
        for directory in [&data, &data.join("deep"), &data.join("closed")] {
            bench.give(directory);
        }
        bench.write("reaches.py", REACHES);
        let (own, identity) = (
            data.display().to_string(),
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups ")),
        );
        let places = ["s", "p", "deep/s", "deep/p", "closed/s"];
        let mount = places.map(|place| {
            format!("mount --bind '{}/{1}' '{own}/{place}'", outside.display(), &place[place.len() - 1..])
        });
        let nexus = format!("{identity}{}", bench.program().display());
        let shell = |line: &str| {
            let mut command: Command = bench.command_as_root("unshare");
            command.args(["-m", "sh", "-c", &format!("{} && {line}", mount.join(" && "))]);
            command
        };
        let reach = |at: &str, places: &[&str]| {
            places.iter().fold("python3 reaches.py".to_owned(), |line, place| format!("{line} {at}/{place}"))
        };
        let deep = format!("{own}/deep");
        for (flags, at, places) in [
            (format!("--ro {own}"), &*own, &places[..]),
            (format!("--ro {own}:/shown"), "/shown", &places[..]),
            (format!("--ro {deep}"), &deep, &["s", "p"]),
            // To write into a pipe of a writable bind is what such a bind is for.
            (format!("--rw {own}"), &own, &["s", "deep/s", "closed/s"]),
            (format!("--ro {own}:/shown --rw {deep}"), &deep, &["s"]),
        ] {
            let output = shell(&format!("exec {nexus} run {flags} -- {}", reach(at, places))).output().unwrap();
            assert_eq!(stdout(&output), "tried\n", "{} {flags}: {}", bench.who(), stderr(&output));
        }
        let allowed = format!("--ro {own} --allow-socket {own}/s --changes discard");
        let output = shell(&format!("exec {nexus} run {allowed} -- {}", reach(&own, &places))).output().unwrap();
        assert_eq!(stdout(&output), format!("reached {own}/s\ntried\n"), "{}: {}", bench.who(), stderr(&output));

        // A program of the host renames the files below the mounts while the command of a detached run is there.
        fs::set_permissions(data.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        let (started, moved) = (base.join("started"), base.join("moved"));
        let line = format!(
            "{nexus} run -q --detach --name m --rw {own} -- sleep 60 > /dev/null && touch {} && while ! [ -e {} ]; do sleep 0.05; done; \
             {nexus} exec m -- {}; {nexus} stop m > {base}/end 2>&1; {nexus} rm m >> {base}/end 2>&1",
            started.display(),
            moved.display(),
            reach(&own, &["moved-s", "deep/s", "moved-closed", "s"]),
            base = base.display(),
        );
        let child =
            shell(&line).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let begun = std::time::Instant::now();
        while !started.exists() && begun.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for (from, to) in [("s", "moved-s"), ("closed/s", "moved-closed")] {
            fs::rename(data.join(from), data.join(to)).unwrap();
        }
        fs::write(&moved, "").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(stdout(&output), "tried\n", "{}: {}", bench.who(), stderr(&output));
        fs::set_permissions(data.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
        listener.set_nonblocking(true).unwrap();
        // That of the run with --allow-socket.
        assert!(listener.accept().is_ok() && listener.accept().is_err(), "{}: the service was reached", bench.who());
        drop(reader);
    }
}

/// Moves a file into a closed directory and out of it, again and again.
const IN_AND_OUT: &str = "import itertools, os, sys, time
os.chdir(sys.argv[1])
open(sys.argv[2], 'w').close()
present = 'z/f'
for after in itertools.cycle(['n/f', 'z/g', 'n/f', 'z/f']):
    os.rename(present, after)
    present = after
    time.sleep(0.002)
";
/// Tries for a while, so that the file comes out of the directory meanwhile.
const TRIES: &str = "import socket, time
end = time.time() + 0.25
while time.time() < end:
    for path in ['n/f', 'z/f', 'z/g']:
        # Nobody takes the connections.
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(1)
        try:
            client.connect('/shown/' + path)
            print('reached', path)
        except OSError as e: pass
print('tried')
";

/// A program of an older mount namespace renames the file below a mount, and the mount goes with it.
#[test]
fn a_mounted_socket_that_comes_out_of_a_closed_directory_is_not_reached() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_some()) {
        let (base, data) = (bench.base.path(), bench.home.join("data"));
        for directory in ["n", "z"].map(|name| data.join(name)) {
            fs::create_dir_all(&directory).unwrap();
            bench.give(&directory);
        }
        bench.give(&data);
        let (socket, file) = (base.join("s"), data.join("z/f"));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(&file, "").unwrap();
        bench.give(&file);
        std::os::unix::fs::chown(data.join("z"), Some(0), Some(0)).unwrap();
        fs::set_permissions(data.join("z"), fs::Permissions::from_mode(0o711)).unwrap();
        bench.write("tries.py", TRIES);
        let script = base.join("in-and-out.py");
        fs::write(&script, IN_AND_OUT).unwrap();
        let (data, ready, uid) = (data.display(), base.join("ready"), bench.user.unwrap_or_default());
        let run = format!(
            "setpriv --reuid {uid} --regid {uid} --clear-groups {} run -q --changes discard",
            bench.program().display()
        );
        // The mover is still while the mount is made, or it would be made over nothing.
        let line = format!(
            "unshare -m python3 '{}' '{data}' '{ready}' & mover=$!; while ! [ -e '{ready}' ]; do sleep 0.05; done; \
             kill -STOP $mover; mount --bind '{}' \"$(find '{data}' -type f)\"; kill -CONT $mover; \
             for flag in --ro --rw --ro --rw --ro --rw --ro --rw --ro --rw --ro --rw; do \
             {run} $flag '{data}:/shown' -- python3 tries.py 2> '{base}/err' || grep -q 'was moved' '{base}/err' || cat '{base}/err'; \
             done; kill $mover",
            script.display(),
            socket.display(),
            ready = ready.display(),
            base = base.display(),
        );
        let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
        let text = stdout(&output);
        assert!(!text.is_empty() && text.lines().all(|line| line == "tried"), "{text}{}", stderr(&output));
        assert!(listener.accept().is_err(), "the service was reached");
    }
}

#[test]
fn an_ordinary_mount_in_a_closed_directory_refuses_no_start() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let data = bench.home.join("data");
        for (number, mode) in [0o700, 0o710, 0o711].into_iter().enumerate() {
            let closed = data.join(format!("z{number}"));
            fs::create_dir_all(closed.join("m")).unwrap();
            fs::write(closed.join("f"), "").unwrap();
            std::os::unix::fs::chown(&closed, Some(54_999), Some(54_999)).unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        }
        bench.give(&data);
        let (data, nexus) = (data.display(), bench.program().display());
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        let line = format!(
            "for z in {data}/z*; do mount -t tmpfs none $z/m; mount --bind /etc/hostname $z/f; done; \
             for flag in --ro --rw; do {identity}{nexus} run -q --changes discard $flag {data} -- echo ran; done",
        );
        let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
        assert_eq!(stdout(&output), "ran\nran\n", "{}: {}", bench.who(), stderr(&output));
    }
}

/// Renames `a/h` to `n/h` when the first search of a run has listed `a`. One that it never saw counts as new on overlayfs, which tells
/// no birth (THREAT_MODEL).
const ONE_RENAME: &str = "import ctypes, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None)
seen = libc.inotify_init()
libc.inotify_add_watch(seen, b'a', 0x10)
open(sys.argv[2], 'w').close()
os.read(seen, 4096)
os.rename('a/h', 'n/h')
";

/// A rename on overlayfs copies a file of a lower layer up, and the copy has another time of birth.
#[test]
fn what_a_rename_copies_up_is_not_new() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let mover = bench.base.path().join("mover.py");
        fs::write(&mover, ONE_RENAME).unwrap();
        for number in 0..4 {
            let layers = bench.base.path().join(format!("layers{number}"));
            for directory in ["lower/a", "lower/n", "upper", "work", "shown"] {
                fs::create_dir_all(layers.join(directory)).unwrap();
            }
            let pipe = layers.join("lower/a/h");
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
            fs::set_permissions(&pipe, fs::Permissions::from_mode(0o666)).unwrap();
            bench.give(&layers);
            let identity =
                bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
            let line = format!(
                "cd {layers} && mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work shown || exit 99
                 python3 {mover} {layers}/shown {layers}/ready & moves=$!
                 while ! [ -e ready ]; do sleep 0.02; done; sleep 0.1; cd {workspace}
                 {identity}{nexus} run --ro {layers}/shown:/shown --shell '[ -p /shown/n/h ] || [ -p /shown/a/h ] && echo shown; echo tried'
                 code=$?
                 wait $moves || exit 98; exit $code",
                layers = layers.display(),
                mover = mover.display(),
                workspace = bench.workspace.display(),
                nexus = bench.program().display(),
            );
            let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
            let told = format!("{}: {:?} {}{}", bench.who(), output.status, stdout(&output), stderr(&output));
            assert!(!matches!(output.status.code(), Some(98 | 99)), "{told}");
            assert!(!stdout(&output).contains("shown"), "{told}");
            assert!(stdout(&output) == "tried\n" || told.contains("was moved or replaced"), "{told}");
        }
    }
}
