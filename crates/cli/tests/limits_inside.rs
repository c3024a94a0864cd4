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

/// A memory group of cgroup v1 that belongs to a user; it goes at the end.
struct Delegated(std::path::PathBuf);

impl Delegated {
    /// `None` where this machine has no such hierarchy.
    fn to(uid: u32) -> Option<Self> {
        let mount = Path::new("/sys/fs/cgroup/memory");
        if !mount.join("memory.limit_in_bytes").exists() {
            skip::partial("the memory controller of cgroup v1 is not mounted here");
            return None;
        }
        let path = mount.join(format!("nexus-test-{}-{uid}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        for owned in [path.clone(), path.join("cgroup.procs")] {
            std::os::unix::fs::chown(owned, Some(uid), Some(uid)).unwrap();
        }
        Some(Self(path))
    }

    /// Runs `nexus` of this bench from within the group.
    fn run(&self, bench: &Bench, arguments: &[&str]) -> Output {
        let uid = bench.user.unwrap().to_string();
        let script = "echo $$ > \"$1/cgroup.procs\" && shift && uid=$1 && shift && \
                      exec setpriv --reuid $uid --regid $uid --clear-groups \"$@\"";
        let mut command = bench.command_as_root("sh");
        command.args(["-c", script, "sh"]).arg(&self.0).arg(uid).arg(bench.program()).args(arguments);
        command.output().unwrap()
    }

    fn children(&self) -> usize {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir()).count()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.0) {
            eprintln!("{} is left: {error}", self.0.display());
        }
    }
}

#[test]
fn a_user_in_a_delegated_group_has_limits() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(Some(support::user()));
    let Some(group) = Delegated::to(bench.user.unwrap()) else { return };
    let without = bench.run(["run", "--memory", "64M", "--", "true"]);
    assert_eq!(without.status.code(), Some(125), "from another group: {}", stderr(&without));
    let large = ["run", "--memory", "64M", "--", "/usr/bin/python3", "-c", "x = bytearray(300000000)"];
    let killed = group.run(&bench, &large);
    assert_eq!(killed.status.code(), Some(137), "{}", stderr(&killed));
    assert!(stderr(&killed).contains("the memory limit killed the command"), "{}", stderr(&killed));
    // The group is the user's, and the command has the user's uid: what keeps it from its limit is the mount.
    let script = "file=/sys/fs/cgroup/memory/memory.limit_in_bytes; cat $file; echo 999999999 > $file";
    let raising = group.run(&bench, &["run", "--memory", "64M", "--shell", script]);
    assert_eq!(stdout(&raising), "67108864\n");
    assert!(stderr(&raising).contains("Read-only file system"), "{}", stderr(&raising));
    assert_eq!(group.children(), 0, "no group is left");
}

#[test]
fn a_run_without_limits_has_no_control_groups_inside() {
    support::on_each_bench(|bench| {
        let output = bench.run(["run", "--", "ls", "/sys"]);
        assert!(!output.status.success(), "{}", stdout(&output));
    });
}
