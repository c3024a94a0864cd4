//! Quotas that the kernel counts for a user over all its processes: a sandbox gets a part of it, and the rest stays for the host.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use support::{Bench, stderr};

const PROGRAM: &str = include_str!("hostile/quotas.py");

/// Held by each test that counts the descriptors under way of one user.
static DESCRIPTORS: Mutex<()> = Mutex::new(());

/// Users of this test alone, and root: what others of the same user take counts here, too.
fn lone_benches() -> Vec<Bench> {
    if support::needs_root() { vec![Bench::new(None), Bench::new(Some(support::user() + 1))] } else { Vec::new() }
}

/// A sandbox that holds all of one kind: its process, how much it got, and the error that ended that.
fn holding(bench: &Bench, prefix: &str, what: &str) -> (Child, u64, String) {
    bench.write("quotas.py", PROGRAM);
    let nexus = bench.nexus(["run", "--stdin", "--", "/usr/bin/python3", "quotas.py", what]);
    let mut command = bench.command("sh");
    command.args(["-c", &format!("{prefix} exec \"$@\""), "sh"]).arg(nexus.get_program()).args(nexus.get_args());
    command.current_dir(&bench.workspace);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut words = line.split_whitespace();
    let Some((took, why)) = words.next().and_then(|took| Some((took.parse().ok()?, words.next()?.to_owned()))) else {
        child.kill().unwrap();
        panic!("{}: {what}: {line:?} {}", bench.who(), stderr(&child.wait_with_output().unwrap()));
    };
    (child, took, why)
}

fn let_go(mut child: Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}

/// Reports whether a process of this user outside of any sandbox gets one more, as a script of Python says.
fn host_gets(bench: &Bench, script: &str) -> bool {
    let script = format!("import ctypes, sys; libc = ctypes.CDLL(None); sys.exit(0 if {script} else 1)");
    bench.command("/usr/bin/python3").args(["-c", &script]).status().unwrap().success()
}

#[test]
fn a_sandbox_uses_up_no_quota_of_its_user_on_the_host() {
    let inotify = "libc.inotify_init1(0) >= 0";
    let timer = "libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0";
    let locked = "libc.mlock(ctypes.create_string_buffer(65536), 65536) == 0";
    // What is taken, how much it may be, the error at the end, and what the host still gets.
    let cases: [(&str, u64, &str, &str); 3] = [
        ("take_inotify", 64, "EMFILE", inotify),
        ("take_signals", 4096, "EAGAIN", timer),
        ("take_memory", 4 << 20, "EAGAIN", locked),
    ];
    for bench in lone_benches() {
        for (what, most, error, still) in cases {
            let (child, took, why) = holding(&bench, "", what);
            assert!(took > 0 && took <= most, "{}: {what}: {took}", bench.who());
            assert_eq!(why, error, "{}: {what}", bench.who());
            assert!(host_gets(&bench, still), "{}: {what}: nothing is left for the host", bench.who());
            let_go(child);
        }
        let (child, watches, _) = holding(&bench, "", "take_watches");
        let_go(child);
        let host: u64 =
            std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap().trim().parse().unwrap();
        assert!(watches <= host.div_ceil(2), "{}: {watches} of {host}", bench.who());
    }
}

#[test]
fn half_of_a_users_watches_stay_for_the_host() {
    let host = || std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap().trim().parse().unwrap();
    let one_more = "libc.inotify_add_watch(libc.inotify_init1(0), b'/', 2) > 0";
    for bench in lone_benches() {
        let most: u64 = host();
        let (child, took, why) = holding(&bench, "", "take_all_watches");
        assert!(took > 0 && took <= most.div_ceil(2), "{}: {took} of {most}", bench.who());
        // Where the host has very many, the instances run out before.
        assert!(["ENOSPC", "EMFILE"].contains(&why.as_str()), "{}: {why}", bench.who());
        assert!(host_gets(&bench, one_more), "{}: nothing is left for the host", bench.who());
        let_go(child);
    }
}

#[test]
fn a_sandbox_gets_no_message_queue_of_posix() {
    let one_more = "libc.mq_open(b'/nexus-quotas', 0o102, 0o600, None) >= 0 and libc.mq_unlink(b'/nexus-quotas') == 0";
    for bench in lone_benches() {
        assert!(host_gets(&bench, one_more), "{}: the host has none", bench.who());
        let (child, took, why) = holding(&bench, "ulimit -q 819200;", "take_queues");
        assert_eq!((took, why.as_str()), (0, "EACCES"), "{}", bench.who());
        assert!(host_gets(&bench, one_more), "{}: nothing is left for the host", bench.who());
        let_go(child);
    }
}

#[test]
fn descriptors_that_one_sandbox_has_under_way_stop_no_other() {
    let _alone = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    for bench in lone_benches() {
        let prefix = "ulimit -Sn 1024; ulimit -Hn 2048;";
        let (child, took, why) = holding(&bench, &format!("{prefix} ulimit -Sn 1024;"), "take_descriptors");
        assert!(took >= 1000 && why == "ETOOMANYREFS", "{}: {took} {why}", bench.who());
        let (other, took, _) = holding(&bench, prefix, "take_watches");
        assert!(took > 0);
        let_go(other);
        let_go(child);
    }
}

/// As [`host_gets`], of a process without capabilities: those of root go beyond what the kernel counts for a user.
fn plain_host_gets(bench: &Bench, script: &str) -> bool {
    let script = format!(
        "import fcntl, os, resource, socket, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)); \
         sys.exit(0 if {script} else 1)"
    );
    let mut command = bench.command(if bench.user.is_some() { "/usr/bin/env" } else { "setpriv" });
    if bench.user.is_none() {
        command.args(["--inh-caps=-all", "--bounding-set=-all"]);
    }
    command.args(["/usr/bin/python3", "-c", &script]).output().unwrap().status.success()
}

#[test]
fn pipes_of_a_sandbox_leave_every_other_pipe_a_page() {
    let size = "fcntl.fcntl(os.pipe()[1], 1032)";
    let pages: u64 = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap().trim().parse().unwrap();
    for bench in lone_benches() {
        let (child, large, _) = holding(&bench, "", "take_pipes");
        assert!(pages == 0 || large <= pages / 256, "{}: {large} pipes of 1 MiB", bench.who());
        let passes = "(lambda pipe: os.write(pipe[1], b'x' * 4096) == len(os.read(pipe[0], 8192)))(os.pipe())";
        assert!(plain_host_gets(&bench, passes), "{}: a pipe of the host takes no page", bench.who());
        let is_root = bench.user.is_none();
        // Documented in docs/guide/limits.md: pipes that an ordinary user makes meanwhile are small.
        let is_whole = plain_host_gets(&bench, &format!("{size} == 65536"));
        assert_eq!(is_whole, is_root || pages == 0, "{}: the pipes of the host", bench.who());
        let script = format!("import fcntl, os; print({size} == 65536)");
        let beside = bench.run(["run", "--", "/usr/bin/python3", "-c", &script]);
        let expected = if is_root || pages == 0 { "True\n" } else { "False\n" };
        assert_eq!(support::stdout(&beside), expected, "{}: {}", bench.who(), stderr(&beside));
        let line = "head -c 10000000 /dev/zero | wc -c";
        let beside = bench.run(["run", "--shell", line]);
        assert_eq!(support::stdout(&beside), "10000000\n", "{}: {}", bench.who(), stderr(&beside));
        let_go(child);
    }
}

#[test]
fn descriptors_under_way_in_a_sandbox_of_root_stop_no_program_of_root() {
    let _alone = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let sends = "(lambda pair: socket.send_fds(pair[0], [b'x'], [0]) == 1)(socket.socketpair())";
    for bench in lone_benches() {
        let prefix = "ulimit -Sn 1024; ulimit -Hn 2048; ulimit -Sn 1024;";
        let (child, took, why) = holding(&bench, prefix, "take_descriptors");
        assert!(took >= 1000 && why == "ETOOMANYREFS", "{}: {took} {why}", bench.who());
        // Documented in docs/guide/limits.md: a program of an ordinary user with a small limit sends none meanwhile.
        assert_eq!(plain_host_gets(&bench, sends), bench.user.is_none(), "{}", bench.who());
        let_go(child);
        assert!(plain_host_gets(&bench, sends), "{}: none is sent later", bench.who());
    }
}

#[test]
fn a_memory_limit_bounds_the_watches_of_epoll() {
    for bench in lone_benches() {
        if !support::stdout(&bench.run(["doctor"])).contains("  yes  limits.memory") {
            support::skip::partial("no control groups here");
            continue;
        }
        bench.write("quotas.py", PROGRAM);
        let run = |what| bench.run(["run", "--memory", "64M", "--", "/usr/bin/python3", "quotas.py", what]);
        let few = run("take_signals");
        assert_eq!(few.status.code(), Some(0), "{}: {}", bench.who(), stderr(&few));
        let all = run("take_epoll");
        assert_eq!(all.status.code(), Some(137), "{}: {}", bench.who(), support::stdout(&all));
        assert!(stderr(&all).contains("memory limit"), "{}: {}", bench.who(), stderr(&all));
    }
}

#[test]
fn no_format_of_programs_is_registered_inside() {
    for bench in lone_benches() {
        let (child, steps, why) = holding(&bench, "", "register_format");
        assert_eq!((steps, why.as_str()), (0, "EPERM"), "{}: a step went", bench.who());
        let_go(child);
    }
}

#[test]
fn a_sandbox_has_no_priority_of_its_caller() {
    for bench in lone_benches() {
        let script = "import resource as r; print(r.getrlimit(13), r.getrlimit(14), r.getrlimit(r.RLIMIT_NOFILE))";
        let nexus = bench.nexus(["run", "--", "/usr/bin/python3", "-c", script]);
        let mut command = bench.command("sh");
        let prefix = "ulimit -Sn 1000; ulimit -Hn 4000; exec \"$@\"";
        command.args(["-c", prefix, "sh"]).arg(nexus.get_program()).args(nexus.get_args());
        let output = command.current_dir(&bench.workspace).output().unwrap();
        assert_eq!(support::stdout(&output), "(0, 0) (0, 0) (1000, 3000)\n", "{}: {}", bench.who(), stderr(&output));
    }
}

#[test]
fn a_caller_that_ignores_the_end_of_children_runs_commands() {
    for bench in lone_benches() {
        for mode in [&["--changes", "discard"][..], &["--direct"], &["--net", "allowlist"]] {
            for round in 0..10 {
                let words = [&["run"], mode, &["--", "/bin/true"]].concat();
                let nexus = bench.nexus(words);
                let mut command = bench.command("env");
                command.arg("--ignore-signal=CHLD").arg(nexus.get_program()).args(nexus.get_args());
                let output = command.current_dir(&bench.workspace).output().unwrap();
                let who = bench.who();
                assert_eq!(output.status.code(), Some(0), "{who} {mode:?} {round}: {}", stderr(&output));
            }
        }
    }
}

#[test]
fn a_low_limit_of_processes_of_the_caller_bounds_a_run() {
    for bench in lone_benches() {
        let with = |flags: &[&str]| {
            let words = [&["run"], flags, &["--", "/bin/bash", "-c", "ulimit -Hu"]].concat();
            let nexus = bench.nexus(words);
            let mut command = bench.command("prlimit");
            command.arg("--nproc=500:500").arg(nexus.get_program()).args(nexus.get_args());
            command.current_dir(&bench.workspace).output().unwrap()
        };
        for (flags, wanted) in [(&[][..], "500\n"), (&["--pids", "300"], "301\n"), (&["--pids", "499"], "500\n")] {
            let output = with(flags);
            assert_eq!(support::stdout(&output), wanted, "{} {flags:?}: {}", bench.who(), stderr(&output));
        }
        let output = with(&["--pids", "500"]);
        assert_eq!(output.status.code(), Some(125), "{}", bench.who());
        assert!(stderr(&output).contains("--pids"), "{}: {}", bench.who(), stderr(&output));
    }
}

/// Locks files that are open for reading, says what a lock for writing gave, and keeps the locks until a line comes.
const LOCKING: &str = "import errno, fcntl, sys
files = [open(path) for path in sys.argv[1:]]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        print(errno.errorcode[error.errno], end=' ')
print(flush=True)
sys.stdin.readline()
";

#[test]
fn a_lock_in_a_bind_is_the_hosts_and_one_in_a_layer_is_not() {
    for bench in support::benches() {
        let own = bench.write("own", "x");
        let shared = bench.home.join("shared");
        std::fs::create_dir(&shared).unwrap();
        let file = shared.join("file");
        std::fs::write(&file, "x").unwrap();
        bench.give(&shared);
        bench.give(&file);
        let is_free =
            |path: &std::path::Path| bench.command("flock").arg("-n").arg(path).arg("true").status().unwrap().success();
        let mut nexus = bench.nexus(["run", "--stdin", "--ro"]);
        nexus.arg(&shared).args(["--", "/usr/bin/python3", "-c", LOCKING, "own"]).arg(&file);
        let mut child = nexus.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "EBADF EBADF \n", "{}", bench.who());
        assert!(is_free(&own) && !is_free(&file), "{}", bench.who());
        let_go(child);
        assert!(is_free(&own) && is_free(&file), "{}", bench.who());
    }
}
