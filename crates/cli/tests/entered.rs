//! Directories in binds in which a command may use the names that it knows and list none: on file systems without maps of owners
//! and with stamps of whole seconds, with access lists, below closed directories, and with few descriptors.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Output;
use support::{Bench, benches, needs_root, skip, stderr, stdout};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Prepares a directory, and does something in it when the directory `n` of one in it is opened. Says at its end whether the latter
/// directory has the stamp that it had before.
const WHEN_OPENED: &str = "import ctypes, os, sys, time
top, directory, ready, prepare, act = sys.argv[1:]
os.chdir(top)
libc = ctypes.CDLL(None)
seen = libc.inotify_init()
exec(prepare)
libc.inotify_add_watch(seen, (directory + '/n').encode(), 0x20)
before = os.stat(directory).st_ctime_ns
open(ready, 'w').close()
os.read(seen, 4096)
exec(act)
open(ready, 'w').write('same' if os.stat(directory).st_ctime_ns == before else 'other')
";

/// Tries to reach the socket at each path.
const REACHES: &str = "import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print('reached', path)
    except OSError as e: pass
print('tried')
";

fn as_root_of_mounts(bench: &Bench, script: &str) -> Output {
    fs::write(bench.base.path().join("when.py"), WHEN_OPENED).unwrap();
    bench.write("reaches.py", REACHES);
    bench
        .command_as_root("unshare")
        .args(["-m", "bash", "-c", script])
        .env("BASE", bench.base.path())
        .env("NEXUS", bench.program())
        .output()
        .unwrap()
}

/// On overlayfs the command owns nothing, also nothing of the owner of what is bound.
#[test]
fn a_busy_directory_of_the_owner_keeps_no_run_from_starting_where_owners_are_not_mapped() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let layers = bench.base.path().join("layers");
        for directory in ["lower/home/n", "upper", "work", "shown"] {
            fs::create_dir_all(layers.join(directory)).unwrap();
        }
        mode(&layers.join("lower/home"), 0o711);
        let script = r#"cd "$BASE/layers" && mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work shown || exit 99
            for i in 1 2 3 4; do
                python3 "$BASE/when.py" "$BASE/layers/shown" home "$BASE/ready" "" "open('home/f$i', 'w').close()" &
                while ! [ -e "$BASE/ready" ]; do sleep 0.02; done
                sleep 0.05
                (cd "$BASE/ws" && "$NEXUS" run -q --changes discard --ro "$BASE/layers/shown:/shown" -- echo ran)
                wait $! || exit 98
                rm "$BASE/ready"
            done"#;
        let output = as_root_of_mounts(&bench, script);
        let told = format!("{:?} {}{}", output.status, stdout(&output), stderr(&output));
        assert_eq!(stdout(&output), "ran\nran\nran\nran\n", "{told}");
        assert!(output.status.success(), "{told}");
    }
}

/// ext4 with inodes of 128 bytes, on a loop device that is gone with the mount namespace.
#[test]
fn what_is_renamed_in_the_second_of_the_start_is_not_reached_where_stamps_are_seconds() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let base = bench.base.path();
        let image = base.join("image");
        fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        let made = bench.command("mke2fs").args(["-q", "-t", "ext4", "-I", "128"]).arg(&image).status().unwrap();
        assert!(made.success(), "mke2fs (e2fsprogs) is needed");
        fs::create_dir(base.join("shown")).unwrap();
        let owner = support::user();
        for (act, back) in [("os.rename('z/h', 'z/i')", "mv z/i z/h"), ("open('z/g', 'w').close()", "rm z/g")] {
            // Tries in which the second ended before the act say nothing.
            let script = format!(
                r#"mount -o loop "$BASE/image" "$BASE/shown" || exit 77
                cd "$BASE/shown" && mkdir -p z/n && chown {owner} z && chmod 711 z || exit 99
                exec 3> "$BASE/told"
                python3 -c "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('z/h'); s.listen(64); open('bound', 'w'); time.sleep(600)" &
                service=$!
                while ! [ -e bound ]; do sleep 0.02; done
                chmod 777 z/h
                same=0
                for i in $(seq 30); do
                    python3 "$BASE/when.py" "$BASE/shown" z "$BASE/ready" "while time.time() % 1 > 0.1: time.sleep(0.01)
open('z/f', 'w').close(); os.unlink('z/f')" "{act}" &
                    while ! [ -e "$BASE/ready" ]; do sleep 0.01; done
                    (cd "$BASE/ws" && "$NEXUS" run -q --changes discard --ro "$BASE/shown:/shown" -- \
                        python3 reaches.py /shown/z/i /shown/z/h 2>&1)
                    wait $! || exit 98
                    [ "$(cat "$BASE/ready")" = same ] && same=$((same + 1))
                    rm "$BASE/ready"
                    {back}
                    [ $same = 3 ] && break
                done
                kill $service
                rm -r z bound
                [ $same -gt 0 ] || exit 97"#
            );
            let output = as_root_of_mounts(&bench, &script);
            let told = format!("{act}: {:?} {}{}", output.status, stdout(&output), stderr(&output));
            if output.status.code() == Some(77) {
                skip::skipped(&format!("this machine gives no loop device: {told}"));
                return;
            }
            assert_ne!(output.status.code(), Some(97), "no start and act fell into one second: {told}");
            assert!(output.status.success(), "{told}");
            for line in stdout(&output).lines() {
                let is_refused = act.contains("rename") && line.contains("was moved or replaced");
                assert!(line == "tried" || is_refused, "{told}");
            }
        }
    }
}

/// An access list of a directory of mode 0750 that lets one more user enter it.
fn let_enter(directory: &Path, user: u32) {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, NOBODY), (2, 1, user), (4, 5, NOBODY), (0x10, 5, NOBODY), (0x20, 0, NOBODY)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(directory, "system.posix_acl_access", &list, flags).unwrap();
    assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o750);
}

#[test]
fn a_directory_that_an_access_list_lets_a_command_enter_keeps_no_run_from_starting() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let (data, owner) = (bench.home.join("data"), support::user());
        let bob = data.join("bob");
        fs::create_dir_all(bob.join("n")).unwrap();
        let service = UnixListener::bind(bob.join("h")).unwrap();
        service.set_nonblocking(true).unwrap();
        mode(&bob.join("h"), 0o777);
        fs::write(bob.join("file"), "read\n").unwrap();
        chown(&data, Some(owner), Some(owner)).unwrap();
        chown(&bob, Some(owner + 1), Some(owner + 1)).unwrap();
        mode(&bob, 0o750);
        let_enter(&bob, owner);
        bench.write("reaches.py", REACHES);
        fs::write(bench.base.path().join("when.py"), WHEN_OPENED).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let bind = format!("{}:/shown", data.display());
        let run = |flag: &str| {
            let script = "cat /shown/bob/file; ls /shown/bob; python3 reaches.py /shown/bob/h /shown/bob/i";
            bench.run(["run", "-q", "--changes", "discard", flag, &bind, "--shell", script])
        };
        for flag in ["--ro", "--rw"] {
            let output = run(flag);
            let told = format!("{flag}: {:?} {}{}", output.status, stdout(&output), stderr(&output));
            assert_eq!(stdout(&output), "read\ntried\n", "{told}");
            assert!(stderr(&output).contains("Permission denied"), "it is listed: {told}");
        }
        // The twin: a name in it changes during the start.
        for flag in ["--ro", "--rw"] {
            let ready = bench.base.path().join("ready");
            let mut mover = std::process::Command::new("python3")
                .arg(bench.base.path().join("when.py"))
                .args([
                    data.as_os_str(),
                    "bob".as_ref(),
                    ready.as_os_str(),
                    "".as_ref(),
                    "os.rename('bob/h', 'bob/i')".as_ref(),
                ])
                .spawn()
                .unwrap();
            while !ready.exists() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let output = run(flag);
            assert!(mover.wait().unwrap().success());
            let told = format!("{flag}: {:?} {}{}", output.status, stdout(&output), stderr(&output));
            assert!(!told.contains("reached"), "{told}");
            assert!(stdout(&output) == "read\ntried\n" || told.contains("was moved or replaced"), "{told}");
            fs::rename(bob.join("i"), bob.join("h")).unwrap();
            fs::remove_file(&ready).unwrap();
        }
        assert!(service.accept().is_err(), "the service was reached");
    }
}

#[test]
fn a_mount_in_a_directory_of_another_user_in_a_closed_one_keeps_no_run_from_starting() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_some()) {
        let (data, user) = (bench.home.join("data"), bench.user.unwrap());
        let other = data.join("c/other");
        fs::create_dir_all(other.join("m")).unwrap();
        fs::write(other.join("f"), "").unwrap();
        let service = UnixListener::bind(bench.base.path().join("s")).unwrap();
        service.set_nonblocking(true).unwrap();
        mode(&bench.base.path().join("s"), 0o777);
        fs::write(other.join("s"), "").unwrap();
        for path in [&data, &data.join("c")] {
            bench.give(path);
        }
        chown(&other, Some(user + 1), Some(user + 1)).unwrap();
        for closed in [0o700, 0o711] {
            mode(&other, closed);
            mode(&data.join("c"), 0o000);
            let script = format!(
                r#"cd "$BASE/home/data/c/other" && mount -t tmpfs none m && mount --bind /etc/hostname f && mount --bind "$BASE/s" s || exit 99
                cd "$BASE/ws"
                for flag in --ro --rw; do
                    setpriv --reuid {user} --regid {user} --clear-groups "$NEXUS" run -q --changes discard $flag "$BASE/home/data:/shown" --shell \
                        'chmod 755 /shown/c 2>/dev/null; python3 reaches.py /shown/c/other/s'
                done"#
            );
            let output = as_root_of_mounts(&bench, &script);
            let told = format!("{closed:o}: {:?} {}{}", output.status, stdout(&output), stderr(&output));
            assert_eq!(stdout(&output), "tried\ntried\n", "{told}");
            assert!(output.status.success(), "{told}");
        }
        mode(&data.join("c"), 0o755);
        assert!(service.accept().is_err(), "the service was reached");
    }
}

/// The set-up keeps the descriptors that it needs.
#[test]
fn many_directories_that_are_only_entered_take_no_descriptors_from_the_set_up() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let data = bench.home.join("data");
        let directories: Vec<_> = (0..146).map(|number| data.join(number.to_string())).collect();
        for directory in &directories {
            fs::create_dir_all(directory).unwrap();
            chown(directory, Some(support::user()), Some(support::user())).unwrap();
        }
        let run = |limit: u32| {
            let line = format!(
                "exec prlimit --nofile={limit}:{limit} \"$0\" run -q --profile none --changes discard --ro {} -- echo ran",
                data.display()
            );
            bench.command("bash").args(["-c", &line]).arg(bench.program()).output().unwrap()
        };
        // Each of them takes one more where it is only entered, so that the first limits from this one on tell.
        let least = (50..120).find(|limit| run(*limit).status.success()).unwrap();
        for directory in &directories {
            mode(directory, 0o711);
        }
        for limit in (least..least + 4).chain([80, 100]) {
            let output = run(limit);
            assert_eq!(stdout(&output), "ran\n", "{limit}, {least}: {}", stderr(&output));
        }
    }
}

/// Root's search lists the directory, and the set-up has no right to enter it.
#[test]
fn a_socket_that_the_set_up_has_no_way_to_is_refused_with_the_cause() {
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let data = bench.home.join("data");
        fs::create_dir_all(data.join("closed")).unwrap();
        fs::create_dir_all(data.join("beside")).unwrap();
        let _service = UnixListener::bind(data.join("closed/s")).unwrap();
        chown(data.join("closed"), Some(support::user()), Some(support::user())).unwrap();
        mode(&data.join("closed"), 0o700);
        for flag in ["--ro", "--rw"] {
            let output = bench.run(["run", "-q", flag, &format!("{}:/shown", data.display()), "--", "echo", "ran"]);
            let told = stderr(&output);
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(125), ""), "{flag}: {told}");
            let cause = "/shown/closed/s cannot be covered, because a directory above it is closed to the sandbox";
            assert!(told.contains(cause) && told.contains("Nothing was run") && told.contains("beside"), "{told}");
            let beside = format!("{}:/shown", data.join("beside").display());
            let output = bench.run(["run", "-q", flag, &beside, "--", "echo", "ran"]);
            assert_eq!(stdout(&output), "ran\n", "{flag}: {}", stderr(&output));
        }
    }
}
