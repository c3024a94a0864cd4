//! `--device`: which devices of the host a command gets, and what it can do with the file of one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;
use support::{Bench, benches, is_root, skip, stderr, stdout};

/// Runs `nexus` as the bench's identity where `/dev/net/tun` can be opened by everybody: in a mount namespace of its own.
fn with_tun(bench: &Bench, mode: &str, arguments: &[&str]) -> Output {
    let prepare = format!(
        "mount -t tmpfs -o mode=755 none /dev/net && mknod -m {mode} /dev/net/tun c 10 200 && ln -s tun /dev/net/link && \
         mknod -m 666 /dev/net/odd c 10 231 && mknod -m 666 /dev/net/disk b 7 7 && exec \"$@\""
    );
    let mut command = bench.command_as_root("unshare");
    command.args(["--mount", "sh", "-c", &prepare, "sh"]);
    if let Some(uid) = bench.user {
        let uid = uid.to_string();
        command.args(["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
    }
    command.arg(bench.program()).args(arguments).output().unwrap()
}

/// Asks the driver what it can do (TUNGETFEATURES), for a device of its own (TUNSETIFF), and tries the file of the device.
const CLIENT: &str = r"
import fcntl, os, struct
def tried(what, call):
    try:
        call()
        print(what, 'done')
    except OSError as e:
        print(what, e.strerror)
path = '/dev/net/tun'
if not os.path.exists(path):
    print('missing')
    raise SystemExit
f = os.open(path, os.O_RDWR)
tried('features', lambda: fcntl.ioctl(f, 0x800454cf, bytearray(4)))
tried('interface', lambda: fcntl.ioctl(f, 0x400454ca, struct.pack('16sH22x', b'nexus0', 2)))
tried('mode', lambda: os.chmod(path, 0o777))
tried('remove', lambda: os.unlink(path))
tried('another', lambda: open('/dev/net/new', 'w'))
print(sorted(os.listdir('/dev/net')))
";

fn can_try() -> bool {
    let can = is_root() && Path::new("/dev/net/tun").exists();
    if !can {
        skip::skipped("only root can make a device that its user may open, and this machine needs /dev/net/tun");
    }
    can
}

#[test]
fn a_device_is_used_and_its_file_stays_as_it_is() {
    if !can_try() {
        return;
    }
    for bench in benches() {
        bench.write("client.py", CLIENT);
        let run = |flags: &[&str]| {
            let output = with_tun(&bench, "666", &[&["run"], flags, &["--", "python3", "client.py"]].concat());
            (stdout(&output), stderr(&output))
        };
        let (said, err) = run(&["--device", "/dev/net/tun"]);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.first(), Some(&"features done"), "{}: {said}{err}", bench.who());
        for (line, refusals) in lines[1..5].iter().zip([
            &["interface Operation not permitted"][..],
            &["mode Read-only file system", "mode Operation not permitted"],
            &["remove Read-only file system", "remove Device or resource busy", "remove Permission denied"],
            &["another Read-only file system", "another Permission denied"],
        ]) {
            assert!(refusals.contains(line), "{}: {said}{err}", bench.who());
        }
        assert_eq!(lines[5], "['tun']", "{}: {said}{err}", bench.who());
        assert_eq!(run(&[]), ("missing\n".to_owned(), String::new()), "{}", bench.who());
    }
}

#[test]
fn a_device_of_a_kind_that_holds_more_is_refused() {
    if !can_try() {
        return;
    }
    for bench in benches() {
        for (path, mode, said) in [
            ("/dev/net/disk", "666", "it is a disk"),
            ("/dev/net/link", "666", "its path has a link in it"),
            ("/dev/net/odd", "666", "it is not of a kind that Nexus knows"),
            ("/dev/net/tun", "600", "the command could not read and write it"),
            ("/dev/net/none", "666", "No such file or directory"),
            ("/dev/null", "666", "every sandbox has"),
            ("/dev/net", "666", "it is not a device"),
        ] {
            let output = with_tun(&bench, mode, &["run", "--device", path, "--", "echo", "STARTED"]);
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(125), ""), "{} {path}", bench.who());
            assert!(stderr(&output).contains(said), "{} {path}: {}", bench.who(), stderr(&output));
        }
        // Binds still show no device, and a file of the workspace gives none.
        let output = with_tun(&bench, "666", &["run", "--ro", "/dev/net/tun", "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        for text in ["device: [/dev/net/tun]\n", "fs: {device: [/dev/net/tun]}\n"] {
            bench.write("nexus.yaml", text);
            let output = with_tun(&bench, "666", &["run", "--", "sh", "-c", "echo /dev/net*"]);
            assert_eq!(output.status.code(), Some(125), "{text}: {}{}", stdout(&output), stderr(&output));
        }
    }
}

#[test]
fn the_receipt_and_explain_name_the_devices() {
    if !can_try() {
        return;
    }
    for bench in benches() {
        let copy = bench.home.join("receipt");
        let words = ["run", "--device", "/dev/net/tun", "--receipt", copy.to_str().unwrap(), "--", "true"];
        let output = with_tun(&bench, "666", &words);
        assert!(output.status.success(), "{}", stderr(&output));
        let shown = stdout(&bench.run(["receipt", "show", copy.to_str().unwrap()]));
        let line = shown.lines().find(|line| line.starts_with("devices")).unwrap_or_default();
        assert!(line.contains("/dev/net/tun of the host"), "{shown}");
        let guarantees = shown.lines().find(|line| line.starts_with("guarantees")).unwrap_or_default();
        assert!(!guarantees.contains("fs.workspace_only"), "{shown}");
        let explained = stdout(&with_tun(&bench, "666", &["explain", "--device", "/dev/net/tun"]));
        assert!(
            explained.lines().any(|line| line.contains("device /dev/net/tun") && line.contains("--device")),
            "{explained}"
        );
        assert!(fs::metadata("/dev/net/odd").is_err(), "the host's /dev is as before");
    }
}
