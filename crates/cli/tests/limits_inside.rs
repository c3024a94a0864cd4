//! A run's own limits can be read inside where programs look for them, and nothing else of the control groups.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::path::Path;
use std::process::Output;
use support::{Bench, needs_root, skip, stderr, stdout};

/// A program that sizes itself: it finds its group as the JVM and libuv do, by /proc/self/cgroup below /sys/fs/cgroup.
const READER: &str = r"
import os
def own(controller):
    for line in open('/proc/self/cgroup'):
        number, names, path = line.rstrip('\n').split(':', 2)
        if number == '0' and not names: unified = path
        elif controller in names.split(','): return '/sys/fs/cgroup/' + controller + path
    return '/sys/fs/cgroup' + unified
def first(controller, names):
    for name in names:
        path = os.path.join(own(controller), name)
        if os.path.exists(path): return open(path).read().split()
print(first('memory', ['memory.max', 'memory.limit_in_bytes'])[0])
quota = first('cpu', ['cpu.max', 'cpu.cfs_quota_us'])
period = quota[1:] or first('cpu', ['cpu.cfs_period_us'])
print(int(quota[0]) / int(period[0]))
";

fn limited(bench: &Bench, command: &[&str]) -> Output {
    bench.nexus(["run", "--memory", "256M", "--cpus", "1.5", "--"]).args(command).output().unwrap()
}

/// The program, where this machine has it.
fn has(program: &str) -> bool {
    let is_there = Path::new(program).exists();
    if !is_there {
        skip::partial(&format!("{program} is not on this machine"));
    }
    is_there
}

#[test]
fn programs_find_their_limits_inside() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(None);
    let read = limited(&bench, &["/usr/bin/python3", "-c", READER]);
    assert_eq!(stdout(&read), "268435456\n1.5\n", "{}", stderr(&read));
    if has("/usr/bin/node") {
        let script = "console.log(v8.getHeapStatistics().heap_size_limit < 512 << 20)";
        let heap = limited(&bench, &["/usr/bin/node", "-e", script]);
        assert_eq!(stdout(&heap), "true\n", "{}", stderr(&heap));
    }
}

#[test]
fn limits_inside_can_be_read_and_not_changed() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(None);
    let script = "cd /sys/fs/cgroup || exit 9; ls | wc -l; \
                  for file in $(find . -name memory.max -o -name memory.limit_in_bytes -o -name cgroup.procs); do \
                  echo 1 2> /dev/null > $file && echo CHANGED $file; done; \
                  mkdir new 2> /dev/null && echo MADE; find . -mindepth 2 -type d; ls /sys /sys/fs";
    let output = limited(&bench, &["sh", "-c", script]);
    assert!(!stdout(&output).contains("CHANGED") && !stdout(&output).contains("MADE"), "{}", stdout(&output));
    assert!(stdout(&output).ends_with("/sys:\nfs\n\n/sys/fs:\ncgroup\n"), "{}{}", stdout(&output), stderr(&output));
    assert!(!stdout(&output).contains("./memory/") && !stdout(&output).contains("./cpu/"), "{}", stdout(&output));
}

#[test]
fn a_run_without_limits_has_no_control_groups_inside() {
    support::on_each_bench(|bench| {
        let output = bench.run(["run", "--", "ls", "/sys"]);
        assert!(!output.status.success(), "{}", stdout(&output));
    });
}
