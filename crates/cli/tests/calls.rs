//! System calls of a cold run: counts, which depend on no clock and no load, so that a slow path cannot come back
//! unseen. Only the process that was started is counted here; its children have a test of their own.
//!
//! How often a process waits depends on when others get a processor, so calls that wait are counted apart and bounded
//! loosely. Of the others the median of several runs counts.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use support::{Bench, benches, stderr};

/// Runs of which the median counts.
const RUNS: usize = 3;

/// Calls that wait, or that read what may come in one piece or in several.
const WAITS: &[&str] = &[
    "poll",
    "ppoll",
    "epoll_wait",
    "epoll_pwait",
    "futex",
    "wait4",
    "waitid",
    "read",
    "recvfrom",
    "recvmsg",
    "clock_nanosleep",
    "nanosleep",
    "sched_yield",
    "rt_sigreturn",
    "restart_syscall",
];

/// Calls of one run: those before and after the tidying that do not wait, those of the tidying, and all that wait.
#[derive(Debug)]
struct Counted {
    needed: usize,
    tidying: usize,
    waits: usize,
}

fn counted(calls: &[String]) -> Counted {
    let name = |call: &str| call.split('(').next().unwrap_or_default().to_owned();
    let (needed, tidying) = split(calls);
    let waiting = |calls: &[&String]| calls.iter().filter(|call| WAITS.contains(&name(call).as_str())).count();
    let (before, within) = (waiting(&needed), waiting(&tidying));
    Counted { needed: needed.len() - before, tidying: tidying.len() - within, waits: before + within }
}

fn median(numbers: impl Iterator<Item = usize>) -> usize {
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Directories of the system that hold no toolchain on any machine. What `/usr/bin` has differs: Java and Maven add mounts
/// of their settings, and calls with them.
const SYSTEM: &str = "/usr/local/sbin:/usr/sbin";

/// Makes a toolchain of Rust and one of Node in the home, and returns the PATH that leads to them and to [`SYSTEM`].
fn path_with_toolchains(bench: &Bench) -> String {
    let tools = [
        "rust/bin/cargo",
        "rust/bin/rustc",
        "rust/lib/rustlib/components",
        "node/bin/node",
        "node/bin/npm",
        "node/lib/node_modules/x",
    ];
    for file in tools.map(|name| bench.home.join("tools").join(name)) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut chown = bench.command_as_root("chown");
    chown.arg("-R").arg(format!("--reference={}", bench.home.display())).arg(bench.home.join("tools"));
    assert!(chown.status().unwrap().success());
    let bin = |name: &str| bench.home.join("tools").join(name).join("bin").display().to_string();
    format!("{}:{}:{SYSTEM}", bin("rust"), bin("node"))
}

/// Calls of `nexus` itself, in order. Those of starting a program (the dynamic linker, the runtime) are left out.
fn calls(bench: &Bench, path: &str, arguments: &[&str]) -> Vec<String> {
    let log = bench.home.join("calls");
    let nexus = bench.nexus([] as [&str; 0]).get_program().to_owned();
    // -y names the file of each descriptor.
    let mut strace = bench.command("strace");
    strace.args(["-f", "-qq", "-y", "-E", &format!("PATH={path}"), "-o"]).arg(&log);
    let traced = strace.arg(nexus).args(arguments).output();
    let output = traced.unwrap();
    assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
    let text = fs::read_to_string(&log).unwrap();
    let pid = text.split_ascii_whitespace().next().unwrap();
    let of_nexus = text.lines().filter_map(|line| line.strip_prefix(pid)).map(|line| line.trim_start().to_owned());
    // The first thing that our own code does is to make the socket on which signals arrive.
    of_nexus
        .filter(|line| !line.starts_with("<...") && !line.starts_with("---") && !line.starts_with("+++"))
        // A debug build looks at each descriptor before it closes it.
        .filter(|line| !line.contains("F_GETFD"))
        .filter(|line| !is_about_this_machine(line))
        .skip_while(|line| !line.starts_with("socketpair"))
        .collect()
}

/// Reports that a call looks through what this machine has, which differs from machine to machine: the home that passwd(5)
/// names for root, and git's configuration of the system. The home of the bench is another one.
fn is_about_this_machine(call: &str) -> bool {
    ["\"/root", "</root", "\"/etc/gitconfig", "</etc/gitconfig"].iter().any(|place| call.contains(place))
}

/// Apart from what is done while the sandbox comes up, which is between the taking and the giving back of a lock and
/// takes no time of the run.
fn split(calls: &[String]) -> (Vec<&String>, Vec<&String>) {
    let asked = calls.iter().rposition(|call| call.starts_with("sendmsg(")).unwrap();
    let from = calls[asked..].iter().position(|call| call.contains("LOCK_EX")).map_or(asked, |at| asked + at);
    let to = calls[asked..].iter().position(|call| call.contains("LOCK_UN")).map_or(asked, |at| asked + at);
    let tidying = if calls[from].contains("LOCK_EX") && from < to { from..to + 1 } else { from..from };
    let (within, needed): (Vec<_>, Vec<_>) = calls.iter().enumerate().partition(|(at, _)| tidying.contains(at));
    let calls = |numbered: Vec<(usize, _)>| numbered.into_iter().map(|(_, call)| call).collect();
    (calls(needed), calls(within))
}

#[test]
fn a_run_without_changes_makes_few_calls() {
    for bench in benches() {
        // A direct run looks for protected names before the command, one with a layer only at a commit: through the
        // workspace, the directories above, the homes of its users and git's configurations.
        // The record of a run names the first process of its sandbox, and recovery is locked for one command.
        // A run with a layer watches its overlay, and closes that. A launcher reads what its user may have of the kernel (jail/quotas).
        let with_toolchains = path_with_toolchains(&bench);
        let (layered, direct) = (["run", "--", "/bin/true"], ["run", "--direct", "--", "/bin/true"]);
        let rows = [
            // Of these, 45 look for the programs of toolchains in the two directories of PATH.
            (SYSTEM, &layered[..], 455),
            // Of these, a few look for a warm launcher, and a hundred follow the places of settings that later runs obey.
            (SYSTEM, &direct, 540),
            // A search of two directories, and a mount for each of them.
            (&with_toolchains, &layered, 560),
        ];
        for (path, arguments, most) in rows {
            // The first one makes the state directory, and the second one what the third one takes.
            calls(&bench, path, arguments);
            calls(&bench, path, arguments);
            let runs: Vec<Vec<String>> = (0..RUNS).map(|_| calls(&bench, path, arguments)).collect();
            let counts: Vec<Counted> = runs.iter().map(|calls| counted(calls)).collect();
            let needed = median(counts.iter().map(|count| count.needed));
            let tidying = median(counts.iter().map(|count| count.tidying));
            let waits = median(counts.iter().map(|count| count.waits));
            let all = runs[0].join("\n");
            println!("{} {path} {arguments:?}: {counts:?}", bench.who());
            assert!(needed <= most, "{} {path} {arguments:?}: {needed} calls\n{all}", bench.who());
            assert!(needed > 80, "the log holds too little to judge: {all}");
            assert!(tidying <= 150, "{} {arguments:?}: {tidying} calls of tidying\n{all}", bench.who());
            assert!(waits <= 100, "{} {arguments:?}: {waits} calls that wait\n{all}", bench.who());
            let layered = !arguments.contains(&"--direct");
            assert_eq!(tidying > 0, layered, "only a run with a layer has something to tidy\n{all}");
            for slow in ["fsync", "fdatasync", "syncfs", "rmdir", "mkdir"] {
                // On a busy machine a run may begin before the one before has made the next layer, and makes its own.
                let found = |calls: &&Vec<String>| split(calls).0.iter().any(|call| call.starts_with(slow));
                let slow_runs: Vec<&Vec<String>> = runs.iter().filter(found).collect();
                let is_rare = slow_runs.len() * 2 < runs.len();
                assert!(is_rare, "{} {arguments:?}: {slow}\n{}", bench.who(), slow_runs[0].join("\n"));
            }
        }
    }
}

/// Bytes by which the heap may have grown when a run begins: a third more than the description of `nexus run` takes, and half
/// of what that of all commands takes. Each process of a sandbox copies what it uses of them.
const HEAP: u64 = 300 << 10;

#[test]
fn a_run_begins_with_the_description_of_its_own_command_alone() {
    for bench in benches() {
        let log = bench.home.join("heap");
        let nexus = bench.nexus([] as [&str; 0]).get_program().to_owned();
        let mut strace = bench.command("strace");
        strace.args(["-qq", "-e", "trace=brk,socketpair", "-o"]).arg(&log).arg(nexus).args(["run", "--", "/bin/true"]);
        let output = strace.output().unwrap();
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        let text = fs::read_to_string(&log).unwrap();
        // The first socket is that on which signals arrive, made after the command line was parsed.
        let parsing = text.lines().take_while(|line| !line.starts_with("socketpair"));
        let ends = parsing.filter_map(|line| u64::from_str_radix(line.split_once("= 0x")?.1.trim(), 16).ok());
        let ends: Vec<u64> = ends.collect();
        let (begin, end) = (ends[0], *ends.last().unwrap());
        println!("{}: {} KiB", bench.who(), (end - begin) >> 10);
        assert!(end > begin && end - begin <= HEAP, "{}: {} KiB\n{text}", bench.who(), (end - begin) >> 10);
    }
}

#[test]
fn a_direct_run_asks_the_kernel_nothing_about_a_plain_file() {
    const DIRECTORIES: usize = 60;
    // The search for links and repositories and the two looks, before the command and after it: each opens, checks, lists
    // to the end and closes a directory. The search also asks when a directory was born: the oldest come first.
    const OF_A_DIRECTORY: usize = 5 + 5 + 5;
    for bench in benches() {
        let fill = |files: std::ops::Range<usize>| {
            for directory in 0..DIRECTORIES {
                for file in files.clone() {
                    bench.write(&format!("d{directory}/file-{file}.rs"), "x");
                }
            }
        };
        let count = || {
            let counts =
                (0..RUNS).map(|_| counted(&calls(&bench, SYSTEM, &["run", "--direct", "--", "/bin/true"])).needed);
            median(counts.collect::<Vec<_>>().into_iter())
        };
        let empty = [count(), count()][1];
        fill(0..1);
        let few = count();
        fill(1..40);
        let many = count();
        println!("{}: {empty} {few} {many}", bench.who());
        assert!(many <= few + 10, "{}: {few} calls with few files and {many} with many", bench.who());
        let of_directories = many.saturating_sub(empty);
        assert!(of_directories <= DIRECTORIES * OF_A_DIRECTORY + 20, "{}: {of_directories} calls", bench.who());
    }
}
