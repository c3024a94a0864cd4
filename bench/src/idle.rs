//! P6: what an idle sandbox costs in memory, seen on many that really run at once.
//!
//! Memory of processes is read from `/proc/PID/smaps_rollup`: private pages are what the machine gets back when that one
//! process ends. The kernel's own part (namespaces, mounts, page tables, stacks) has no owner to ask for; it is the growth
//! of the kernel's counters in `/proc/meminfo`, divided by the number of sandboxes, minus the same growth for as many
//! plain processes as each run has: what is left is what isolating them costs.

use crate::failure::Failure;
use crate::machine::{field, meminfo};
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::stats::mib;
use crate::{announce, failed};
use std::collections::HashMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Command that each sandbox runs.
const COMMAND: &[&str] = &["sleep", "infinity"];
/// Processes of one run: `nexus`, the guest, the command.
const PROCESSES: usize = 3;
/// Counters of `/proc/meminfo` that are the kernel's own, and pages of tmpfs.
const KERNEL: &[&str] = &["Slab", "KernelStack", "PageTables", "SecPageTables", "Percpu", "Shmem"];
/// Number of sandboxes that are started before the next check which ones are up.
const AT_ONCE: usize = 20;
const DEADLINE: Duration = Duration::from_secs(300);

/// Memory of the machine at one moment, in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    available: u64,
    kernel: u64,
}

/// Memory that the processes of all sandboxes hold, in bytes.
#[derive(Debug, Default)]
struct Held {
    guest_private: u64,
    guest_pss: u64,
    command_private: u64,
    outside_private: u64,
}

/// Starts them, measures, ends them.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    let count = options.idle;
    announce(&format!("{count} idle sandboxes"));
    let plain = grown_by_plain(count * PROCESSES)?;
    let mut runs = Vec::new();
    let before = Memory::inspect()?;
    let started = start(place, count, &mut runs);
    let found = started.and_then(|()| {
        let after = Memory::settled()?;
        Ok((after, held(&runs)?))
    });
    let ended = end(runs);
    let (after, held) = found?;
    ended?;
    let per = |bytes: u64| bytes as f64 / count as f64;
    let grown = after.kernel.saturating_sub(before.kernel);
    let kernel = per(grown.saturating_sub(plain));
    let all = before.available.saturating_sub(after.available);
    let mebi = f64::from(1 << 20);
    let half = Bound::AtMost(0.5);
    report.evaluate(
        P::Idle,
        "the guest's private memory",
        mib(per(held.guest_private)),
        per(held.guest_private) / mebi,
        "MiB",
        half,
    );
    report.evaluate(
        P::Idle,
        "kernel memory of an idle sandbox, over plain processes",
        mib(kernel),
        kernel / mebi,
        "MiB",
        half,
    );
    let figure = format!("{} in all", mib(all as f64));
    report.evaluate(P::Idle, "idle sandboxes at once", figure, count as f64, "sandboxes", Bound::AtLeast(1000.0));
    let row = |what: &str, bytes: f64| vec![what.to_owned(), mib(bytes)];
    let rows = vec![
        row("guest (PID 1), private", per(held.guest_private)),
        row("guest (PID 1), proportional", per(held.guest_pss)),
        row("the command itself (sleep), private", per(held.command_private)),
        row("kernel, as many plain processes", per(plain)),
        row("kernel, all of it", per(grown)),
        row("the nexus process outside, private", per(held.outside_private)),
        row("less memory available", per(all)),
    ];
    report.table(
        &format!("Memory of one of {count} idle `nexus run --changes discard -- {}`", COMMAND.join(" ")),
        &["", "each"],
        rows,
    );
    Ok(())
}

impl Memory {
    fn inspect() -> Result<Self, Failure> {
        let text =
            std::fs::read_to_string("/proc/meminfo").map_err(|error| failed(&format!("/proc/meminfo: {error}")))?;
        let available = meminfo(&text, "MemAvailable").ok_or_else(|| failed("/proc/meminfo has no MemAvailable"))?;
        // A kernel that lacks one of the counters holds nothing under that name.
        Ok(Self { available, kernel: KERNEL.iter().filter_map(|name| meminfo(&text, name)).sum() })
    }

    /// After the kernel's counters stand still: what is freed by others is freed late.
    fn settled() -> Result<Self, Failure> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut last = Self::inspect()?;
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = Self::inspect()?;
            if now.kernel.abs_diff(last.kernel) < 1 << 18 || Instant::now() > deadline {
                return Ok(now);
            }
            last = now;
        }
    }
}

/// Growth of the kernel's memory by plain processes that do the same as the command.
fn grown_by_plain(count: usize) -> Result<u64, Failure> {
    let before = Memory::settled()?;
    let mut processes = Vec::new();
    let started = (0..count).try_for_each(|_| {
        let sleep = std::process::Command::new(COMMAND[0]).args(&COMMAND[1..]).stdin(Stdio::null()).spawn();
        sleep.map(|process| processes.push(process)).map_err(|error| failed(&format!("{}: {error}", COMMAND[0])))
    });
    let after = Memory::settled();
    let ended = end(processes);
    started.and(ended)?;
    Ok(after?.kernel.saturating_sub(before.kernel))
}

fn start(place: &Place, count: usize, runs: &mut Vec<Child>) -> Result<(), Failure> {
    let Some(runner) = place.runners.first() else { return Ok(()) };
    let deadline = Instant::now() + DEADLINE;
    while runs.len() < count {
        let mut command = runner.command(place.nexus.as_ref());
        command.args(["run", "--changes", "discard", "--"]).args(COMMAND).stdin(Stdio::null()).stdout(Stdio::null());
        runs.push(command.spawn().map_err(|error| failed(&format!("nexus: {error}")))?);
        if runs.len().is_multiple_of(AT_ONCE) || runs.len() == count {
            while commands(runs)? < runs.len() {
                if let Some(status) = runs.iter_mut().find_map(|run| run.try_wait().ok().flatten()) {
                    return Err(failed(&format!("an idle sandbox of {} ended with {status}", runs.len())));
                }
                if Instant::now() > deadline {
                    return Err(failed(&format!("{} idle sandboxes were not up in time", runs.len())));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    Ok(())
}

/// Sends SIGTERM, which `nexus` passes on, and waits: `nexus` removes its files on its own.
fn end(runs: Vec<Child>) -> Result<(), Failure> {
    for run in &runs {
        if let Some(pid) = i32::try_from(run.id()).ok().and_then(rustix::process::Pid::from_raw) {
            match rustix::process::kill_process(pid, rustix::process::Signal::TERM) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(failed(&format!("SIGTERM to an idle sandbox: {error}"))),
            }
        }
    }
    for mut run in runs {
        run.wait().map_err(|error| failed(&format!("an idle sandbox: {error}")))?;
    }
    Ok(())
}

/// One process of the machine, as far as we need it.
struct Process {
    pid: u32,
    parent: u32,
    name: String,
    /// Number of pid namespaces below ours in which the process lives.
    depth: usize,
}

fn processes() -> Result<Vec<Process>, Failure> {
    let entries = std::fs::read_dir("/proc").map_err(|error| failed(&format!("/proc: {error}")))?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    // One that has just ended is none.
    Ok(pids.filter_map(|pid| process(pid, &std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)).collect())
}

fn process(pid: u32, status: &str) -> Option<Process> {
    let parent = field(status, "PPid")?.parse().ok()?;
    let depth = field(status, "NSpid")?.split_whitespace().count().checked_sub(1)?;
    Some(Process { pid, parent, name: field(status, "Name")?.to_owned(), depth })
}

/// Processes below `runs`, each with whether it is the first of its pid namespace.
fn inside(all: Vec<Process>, runs: &[Child]) -> Vec<Process> {
    let parents: HashMap<u32, u32> = all.iter().map(|process| (process.pid, process.parent)).collect();
    let roots: std::collections::HashSet<u32> = runs.iter().map(Child::id).collect();
    let is_ours = |pid: u32| {
        std::iter::successors(Some(pid), |pid| parents.get(pid).copied().filter(|parent| *parent > 1))
            .skip(1)
            .any(|pid| roots.contains(&pid))
    };
    all.into_iter().filter(|process| process.depth > 0 && is_ours(process.pid)).collect()
}

fn is_command(process: &Process) -> bool {
    process.name == COMMAND[0]
}

/// Returns the number of the commands that run.
fn commands(runs: &[Child]) -> Result<usize, Failure> {
    Ok(inside(processes()?, runs).iter().filter(|process| is_command(process)).count())
}

fn held(runs: &[Child]) -> Result<Held, Failure> {
    let mut held = Held::default();
    for process in inside(processes()?, runs) {
        let (private, pss) = rollup(process.pid)?;
        if is_command(&process) {
            held.command_private += private;
        } else {
            held.guest_private += private;
            held.guest_pss += pss;
        }
    }
    for run in runs {
        held.outside_private += rollup(run.id())?.0;
    }
    Ok(held)
}

/// Private and proportional memory in bytes.
fn rollup(pid: u32) -> Result<(u64, u64), Failure> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&format!("{path}: {error}")))?;
    sums(&text).ok_or_else(|| failed(&format!("{path} has another form")))
}

fn sums(rollup: &str) -> Option<(u64, u64)> {
    let private = meminfo(rollup, "Private_Clean")? + meminfo(rollup, "Private_Dirty")?;
    Some((private, meminfo(rollup, "Pss")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_clean_and_dirty() {
        let text = "1000-2000 ---p 00:00 0 [rollup]\nPss: 9 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\n";
        assert_eq!(sums(text), Some((3072, 9216)));
        assert_eq!(sums("Pss: 9 kB\n"), None);
    }

    #[test]
    fn a_process_in_a_pid_namespace_has_more_than_one_number() {
        let of = |ns: &str| process(7, &format!("Name:\tsleep\nPPid:\t3\nNSpid:\t{ns}\n")).unwrap().depth;
        assert_eq!((of("7"), of("7\t1")), (0, 1));
    }
}
