//! Rows of section E that run inside under a limit.

use super::case::{Case, How, Kind, Stage, row};
use crate::answer::Answer;
use crate::context::Context;
use crate::probes::e_limits as e;
use std::path::Path;
use std::time::Duration;

const MIB: usize = 1 << 20;
const FULL: &[&str] = &["ENOSPC", "EDQUOT", "disk_quota"];
/// Answers of directories that are full, or need not be writable at all.
const FULL_OR_CLOSED: &[&str] = &["ENOSPC", "EDQUOT", "disk_quota", "ENOENT", "EROFS", "EACCES"];
/// More than a file system of 16 MiB holds at 512 bytes each.
const FILES: usize = 50_000;

const fn bad(
    id: &'static str,
    name: &'static str,
    stage: Stage,
    probe: fn(&Context) -> Answer,
    expect: &'static [&'static str],
) -> Case {
    row(id, name, Kind::Malicious, How::Probe(stage, probe), expect)
}

const fn good(id: &'static str, name: &'static str, stage: Stage, probe: fn(&Context) -> Answer) -> Case {
    row(id, name, Kind::Harmless, How::Probe(stage, probe), &["ok"])
}

fn fill(context: &Context, directory: &str) -> Answer {
    e::fill(context, Path::new(directory), 96 * MIB, Duration::ZERO)
}

/// Cases of loads on the machine.
pub const CASES: &[Case] = &[
    bad("E01", "forks", Stage::Pids, |_| e::fork_bomb(128), &["bounded"]),
    bad("E01", "threads", Stage::Pids, |_| e::thread_bomb(128), &["bounded"]),
    good("E01", "few", Stage::Pids, e::few_forks),
    // The suite hands an ordinary user a cgroup v1 subtree; that a run without one is refused is a test of the command.
    bad("E02", "touch", Stage::Memory, |_| e::touch_memory(200 * MIB), &["oom"]),
    bad("E02", "shared_memory", Stage::Memory, |c| fill(c, "/dev/shm"), &["oom", "ENOSPC"]),
    good("E02", "small", Stage::Memory, |_| e::touch_memory(16 * MIB)),
    bad("E03", "tmp", Stage::Disk, |c| fill(c, "/tmp"), FULL),
    bad("E03", "shared_memory", Stage::Disk, |c| fill(c, "/dev/shm"), FULL),
    bad("E03", "var_tmp", Stage::Disk, |c| fill(c, "/var/tmp"), FULL_OR_CLOSED),
    bad("E03", "home", Stage::Disk, |c| e::fill_home(c, 96 * MIB), FULL_OR_CLOSED),
    bad("E03", "workspace", Stage::Disk, |c| e::fill(c, &c.workspace, 96 * MIB, Duration::from_secs(1)), FULL),
    bad("E03", "workspace_reserve", Stage::Disk, |c| e::reserve(c, 96 * MIB), FULL),
    good("E03", "small_tmp", Stage::Disk, |c| e::fill(c, Path::new("/tmp"), MIB, Duration::ZERO)),
    good("E03", "small_workspace", Stage::Disk, |c| e::fill(c, &c.workspace, MIB, Duration::ZERO)),
    bad("E04", "tmp", Stage::Inodes, |c| e::exhaust_inodes(c, Path::new("/tmp"), FILES), FULL),
    bad("E04", "shared_memory", Stage::Inodes, |c| e::exhaust_inodes(c, Path::new("/dev/shm"), FILES), FULL),
    bad("E04", "workspace", Stage::Inodes, |c| e::exhaust_inodes(c, &c.workspace, FILES), FULL),
    good("E04", "few_files", Stage::Inodes, |c| e::exhaust_inodes(c, &c.workspace, 100)),
    // More than any workload opens, and few enough for a host without a bound.
    bad("E13", "terminals", Stage::Layered, |_| e::terminals(256), &["bounded"]),
    good("E13", "few_terminals", Stage::Layered, |_| e::terminals_work(16)),
    bad("E05", "busy", Stage::Cpu, |_| e::burn(Duration::from_secs(2)), &["limited"]),
    good("E05", "idle", Stage::Cpu, |_| Answer::of("ok")),
];
