//! Many sandboxes of one user at the same time: they share one kernel key, and none of another user.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{Bench, stderr, stdout};

/// Number of sandboxes, unless `NEXUS_CROWD` gives another. 300 is more than the keys of a user (200) and more than its inotify instances
/// (128).
const USUAL: usize = 12;
const AT_ONCE: usize = 4;

/// Held by a test for as long as it runs: the kernel finds a keyring by its name and not by its maker, so the decoy of one test
/// would change which keyring the sandboxes of the other have.
static NAMED_KEYRINGS: Mutex<()> = Mutex::new(());

/// A user of this test alone: other tests have sandboxes of the usual one.
fn lone_bench() -> Option<Bench> {
    support::needs_root().then(|| Bench::new(Some(support::user() + 1)))
}

/// The keyrings of sandboxes that a user can see, as lines of `/proc/keys`.
fn keyrings(bench: &Bench) -> Vec<String> {
    let output = bench.command("cat").arg("/proc/keys").output().unwrap();
    let uid = bench.user.unwrap().to_string();
    let is_own = |line: &&str| line.contains("nexus-sandboxes") && line.split_whitespace().nth(5) == Some(&uid);
    // A key without a user waits to be collected.
    let is_used = |line: &&str| line.split_whitespace().nth(2) != Some("0");
    stdout(&output).lines().filter(is_own).filter(is_used).map(str::to_owned).collect()
}

/// Does something for each number, several at a time.
fn each<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    let result = act(number);
                    done.lock().unwrap().push(result);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

#[test]
fn a_crowd_of_sandboxes_of_one_user_shares_a_key_and_ends_right() {
    let _alone = NAMED_KEYRINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(bench) = lone_bench() else { return };
    let count = std::env::var("NEXUS_CROWD").map_or(USUAL, |count| count.parse().unwrap());
    let start = |number: usize| {
        bench.detach(&[
            "--name",
            &format!("s{number}"),
            "--shell",
            &format!("echo {number} > f{number}; exec sleep 1000"),
        ]);
    };
    start(0);
    each(count - 1, |number| start(number + 1));
    assert_eq!(bench.sessions().iter().filter(|session| session["state"] == "running").count(), count);
    let keys = keyrings(&bench);
    assert_eq!(keys.len(), 1, "{keys:#?}");
    let codes = each(count, |number| {
        let name = format!("s{number}");
        let stopped = bench.run(["stop", "--grace", "20s", &name]);
        assert_eq!(stopped.status.code(), Some(0), "{}", stderr(&stopped));
        bench.session(&name)["exit_code"].as_i64()
    });
    assert!(codes.iter().all(|code| *code == Some(143)), "{codes:?}");
    each(count, |number| assert_eq!(bench.run(["rm", &format!("s{number}")]).status.code(), Some(0)));
    for number in 0..count {
        let brought = std::fs::read_to_string(bench.workspace.join(format!("f{number}")));
        assert_eq!(brought.unwrap(), format!("{number}\n"));
    }
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
}

/// Makes a session keyring of the name that sandboxes use, open for everybody, and with a key in it if an argument says so.
const DECOY: &str = "\
import ctypes, sys, time
call = ctypes.CDLL(None).syscall
ring = call(250, 1, b'nexus-sandboxes')
if 'key' in sys.argv:
    call(248, b'user', b'planted', b'x', ctypes.c_size_t(1), ring)
assert call(250, 5, ring, 0x3f3f3f3f) == 0
print('%08x' % ring, end='', flush=True)
time.sleep(1000)
";

/// Reports whether a sandbox of this bench has a keyring that a process of `owner` made before.
fn joins(bench: &Bench, owner: u32, arguments: &[&str]) -> bool {
    let mut decoy = bench.command_as_root("/usr/bin/python3");
    decoy.args(["-c", DECOY]).args(arguments).uid(owner).gid(owner);
    let mut decoy = decoy.stdout(Stdio::piped()).spawn().unwrap();
    let mut serial = [0; 8];
    decoy.stdout.as_mut().unwrap().read_exact(&mut serial).unwrap();
    let serial = String::from_utf8(serial.to_vec()).unwrap();
    let uses = || {
        let text = std::fs::read_to_string("/proc/keys").unwrap();
        let line = text.lines().find(|line| line.starts_with(&serial)).unwrap();
        line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()
    };
    // What the decoy itself let go of may still count for a moment.
    let settled = || (0..20).map(|_| (thread::sleep(Duration::from_millis(5)), uses()).1).min().unwrap();
    let before = settled();
    bench.detach(&["--name", "x", "--", "sleep", "1000"]);
    // The kernel drops a keyring that was left a little later.
    let end = Instant::now() + Duration::from_secs(20);
    while uses() > before && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    let is_joined = uses() > before;
    bench.run(["rm", "-f", "x"]);
    decoy.kill().unwrap();
    decoy.wait().unwrap();
    // The next decoy would join it while the kernel still counts the last use of it.
    let is_gone = || {
        let text = std::fs::read_to_string("/proc/keys").unwrap();
        let line = text.lines().find(|line| line.starts_with(&serial)).map(str::to_owned);
        line.is_none_or(|line| line.split_whitespace().nth(2) == Some("0"))
    };
    let end = Instant::now() + Duration::from_secs(10);
    while !is_gone() && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    is_joined
}

#[test]
fn a_keyring_that_another_user_made_is_not_joined() {
    let _alone = NAMED_KEYRINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(bench) = lone_bench() else { return };
    assert!(!joins(&bench, support::user() + 2, &["key"]), "a sandbox has the keyring of another user");
    assert!(!joins(&bench, support::user() + 2, &[]), "a sandbox has the keyring of another user");
}

#[test]
fn an_own_keyring_with_a_key_in_it_is_not_joined() {
    let _alone = NAMED_KEYRINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(bench) = lone_bench() else { return };
    assert!(!joins(&bench, bench.user.unwrap(), &["key"]), "a sandbox has a keyring with a key in it");
}
