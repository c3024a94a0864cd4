//! `bench`: the figures of the README, each beside every peer that is installed, measured in one run.
//!
//! Whole processes are timed in turn (A B C A B C …), so that a machine whose speed drifts slows all of them alike;
//! medians and ratios are printed, never a verdict. Nothing is installed: a missing peer is named with its package.

use crate::failure::Failure;
use crate::workspace::{Workspace, cargo};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 100;
const WARM_UP: usize = 5;
const LAUNCHES: &str = "300";
/// Heap of the daemon in MiB that a launch must not pay for.
const HEAP: &str = "256";

/// One tool and how it runs `/bin/true`.
struct Tool {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    times: Vec<Duration>,
}

/// P1 with peers, P3, and where a cold start goes.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    build(workspace, &["static"])?;
    build(workspace, &["build", "--release", "--package", "nexus-driver", "--example", "launch_bench"])?;
    let folder = workspace.target.join(format!("nexus-bench-{}", std::process::id()));
    let project = folder.join("project");
    std::fs::create_dir_all(&project).map_err(|error| failed(&format!("{}: {error}", project.display())))?;
    let done = measure(workspace, &folder, &project);
    let removed = std::fs::remove_dir_all(&folder).map_err(|error| failed(&format!("{}: {error}", folder.display())));
    done.and(removed)
}

fn measure(workspace: &Workspace, folder: &Path, project: &Path) -> Result<(), Failure> {
    println!("machine: {} processors, Linux {}", processors(), kernel());
    let nexus = workspace.target.join("release/nexus");
    let mut tools = tools(&nexus);
    for round in 0..ROUNDS + WARM_UP {
        for tool in &mut tools {
            let taken = time(tool, folder, project)?;
            if round >= WARM_UP {
                tool.times.push(taken);
            }
        }
    }
    print_table(&mut tools);
    print_launches(workspace)?;
    print_change_sets(&nexus, folder)?;
    print_breakdown(&nexus, folder, project)
}

fn build(workspace: &Workspace, arguments: &[&str]) -> Result<(), Failure> {
    let status = Command::new(cargo()).args(arguments).current_dir(&workspace.root).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(&format!("the release build ended with {status}"))),
        Err(error) => Err(failed(&format!("cargo did not start: {error}"))),
    }
}

fn failed(what: &str) -> Failure {
    Failure::new(what, "mend that and run `cargo xtask bench` again")
}

fn tools(nexus: &Path) -> Vec<Tool> {
    let words = |text: &str| text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let mut tools = vec![
        Tool { name: "/bin/true", program: "/bin/true".into(), arguments: Vec::new(), times: Vec::new() },
        Tool { name: "nexus run", program: nexus.into(), arguments: words("run -- /bin/true"), times: Vec::new() },
        Tool {
            name: "nexus run --direct",
            program: nexus.into(),
            arguments: words("run --direct -- /bin/true"),
            times: Vec::new(),
        },
    ];
    let peers = [
        (
            "bwrap",
            "bubblewrap",
            "--unshare-all --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
             --proc /proc --dev /dev --tmpfs /tmp --die-with-parent /bin/true",
        ),
        (
            "unshare",
            "util-linux",
            "--user --map-current-user --mount --pid --net --ipc --uts --cgroup --fork /bin/true",
        ),
        ("firejail", "firejail", "--quiet --noprofile --net=none /bin/true"),
        ("codex", "", "sandbox linux /bin/true"),
        ("srt", "", "/bin/true"),
    ];
    for (name, package, arguments) in peers {
        match find(name) {
            Some(program) => tools.push(Tool { name, program, arguments: words(arguments), times: Vec::new() }),
            None if package.is_empty() => println!("not installed: {name}"),
            None => println!("not installed: {name} (Debian package {package})"),
        }
    }
    tools
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn time(tool: &Tool, folder: &Path, project: &Path) -> Result<Duration, Failure> {
    let mut command = Command::new(&tool.program);
    command.args(&tool.arguments).current_dir(project).env("NEXUS_STATE_DIR", folder.join("state"));
    // Cargo sets it for what it runs; it would cost every dynamic program some lookups.
    command.env_remove("LD_LIBRARY_PATH");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|error| failed(&format!("{}: {error}", tool.name)))?;
    let taken = start.elapsed();
    if status.success() { Ok(taken) } else { Err(failed(&format!("{} ended with {status}", tool.name))) }
}

fn print_table(tools: &mut [Tool]) {
    let medians: Vec<f64> = tools.iter_mut().map(|tool| median_ms(&mut tool.times)).collect();
    let spawn = medians[0];
    let bwrap = tools.iter().position(|tool| tool.name == "bwrap").map(|index| medians[index]);
    println!("\nP1  one cold command, {ROUNDS} rounds in turn, medians");
    println!("{:<22} {:>9} {:>9} {:>9}", "", "ms", "x true", "x bwrap");
    for (tool, median) in tools.iter().zip(&medians) {
        let to_bwrap = bwrap.map_or("-".to_owned(), |bwrap| format!("{:.2}", median / bwrap));
        println!("{:<22} {median:>9.2} {:>9.2} {to_bwrap:>9}", tool.name, median / spawn);
    }
}

fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

fn print_launches(workspace: &Workspace) -> Result<(), Failure> {
    println!("\nP3  through the launcher process, everything fresh, no change layer ({LAUNCHES} launches)");
    for heap in ["0", HEAP] {
        let output = Command::new(workspace.target.join("release/examples/launch_bench"))
            .args([LAUNCHES, heap])
            .output()
            .map_err(|error| failed(&format!("launch_bench: {error}")))?;
        if !output.status.success() {
            return Err(failed(&format!("launch_bench: {}", String::from_utf8_lossy(&output.stderr))));
        }
        let figures: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(&format!("launch_bench: {error}")))?;
        let us = |name: &str| figures[name].as_f64().unwrap_or(f64::NAN) / 1000.0;
        println!(
            "daemon heap {heap:>3} MiB: posix_spawn {:.2} ms, launch {:.2} ms (p99 {:.2}), {:.2} x spawn",
            us("spawn_us"),
            us("launch_us"),
            us("launch_p99_us"),
            figures["ratio"].as_f64().unwrap_or(f64::NAN),
        );
    }
    Ok(())
}

/// P10: the same ten changes in a small and in a large workspace, committed.
fn print_change_sets(nexus: &Path, folder: &Path) -> Result<(), Failure> {
    println!("\nP10  ten changed files, run and commit, {CHANGE_ROUNDS} rounds in turn, medians");
    let mut sizes = [(200, Vec::new()), (200_000, Vec::new())];
    for (files, _) in &sizes {
        make_tree(&folder.join(format!("tree-{files}")), *files)?;
    }
    for round in 0..CHANGE_ROUNDS + 2 {
        for (files, times) in &mut sizes {
            let script = format!("for i in 0 1 2 3 4 5 6 7 8 9; do echo {round} > d$i/f$i; done");
            let mut command = Command::new(nexus);
            command.args(["run", "--changes", "commit", "--shell", &script]);
            command.current_dir(folder.join(format!("tree-{files}"))).env("NEXUS_STATE_DIR", folder.join("state"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let start = Instant::now();
            let status = command.status().map_err(|error| failed(&format!("nexus: {error}")))?;
            if !status.success() {
                return Err(failed(&format!("nexus run in a tree of {files} files ended with {status}")));
            }
            if round >= 2 {
                times.push(start.elapsed());
            }
        }
    }
    let [small, large] = sizes.map(|(_, mut times)| median_ms(&mut times));
    println!("200 files: {small:.2} ms, 200,000 files: {large:.2} ms, ratio {:.2}", large / small);
    Ok(())
}

const CHANGE_ROUNDS: usize = 30;

/// Files in folders of a hundred, named so that the first ten folders each hold the file that is changed.
fn make_tree(root: &Path, files: usize) -> Result<(), Failure> {
    let made = (0..files).try_for_each(|number| {
        let folder = root.join(format!("d{}", number % (files / 100).max(10)));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(
            folder.join(format!("f{}", number % (files / 100).max(10) + number / (files / 100).max(10) * 1000)),
            b"x",
        )
    });
    made.map_err(|error| failed(&format!("{}: {error}", root.display())))
}

/// Counts system calls of each process of a run, and names the slowest: a profile, not a time.
fn print_breakdown(nexus: &Path, folder: &Path, project: &Path) -> Result<(), Failure> {
    if find("strace").is_none() {
        println!("\nno breakdown: strace is not installed (Debian package strace)");
        return Ok(());
    }
    let log = folder.join("strace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-T", "-o"]).arg(&log).arg(nexus).args(["run", "--", "/bin/true"]);
    strace.current_dir(project).env("NEXUS_STATE_DIR", folder.join("state"));
    let status = strace.stdin(Stdio::null()).status().map_err(|error| failed(&format!("strace: {error}")))?;
    if !status.success() {
        return Err(failed(&format!("strace ended with {status}")));
    }
    let text = std::fs::read_to_string(&log).map_err(|error| failed(&format!("{}: {error}", log.display())))?;
    println!("\nwhere a cold command goes (strace -f -T; times under strace are too long, their order counts)");
    for (process, count) in calls_by_process(&text) {
        println!("{count:>5} system calls of {process}");
    }
    for (seconds, call) in slowest(&text) {
        println!("{:>8.0} us  {call}", seconds * 1e6);
    }
    Ok(())
}

/// Processes in order of appearance.
fn calls_by_process(log: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for line in log.lines().filter(|line| !line.contains("resumed>") && !line.contains("+++") && !line.contains("---"))
    {
        let pid = line.split_ascii_whitespace().next().unwrap_or_default();
        match found.iter_mut().find(|(known, _)| known == pid) {
            Some((_, count)) => *count += 1,
            None => found.push((pid.to_owned(), 1)),
        }
    }
    found
}

/// The twelve calls that took longest, waiting apart.
fn slowest(log: &str) -> Vec<(f64, String)> {
    let waits = ["poll(", "wait", "read(", "recvmsg(", "resumed>", "clone("];
    let mut found: Vec<(f64, String)> = log
        .lines()
        .filter(|line| !waits.iter().any(|wait| line.contains(wait)))
        .filter_map(|line| {
            let (call, time) = line.rsplit_once(" <")?;
            let seconds = time.strip_suffix('>')?.parse().ok()?;
            Some((seconds, call.chars().take(100).collect()))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(12);
    found
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
7 openat(1) = 3 <0.000100>
8 fsconfig(4) = 0 <0.002000>
8 poll([]) = 1 <1.000000>
8 <... poll resumed>) = 1 <1.5>
7 +++ exited with 0 +++
";

    #[test]
    fn calls_are_counted_by_process() {
        assert_eq!(calls_by_process(LOG), [("7".to_owned(), 1), ("8".to_owned(), 2)]);
    }

    #[test]
    fn the_slowest_call_comes_first_and_waiting_does_not_count() {
        let found = slowest(LOG);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], (0.002, "8 fsconfig(4) = 0".to_owned()));
    }

    #[test]
    fn a_median_is_the_middle() {
        let mut times: Vec<Duration> = [5, 1, 100].map(Duration::from_millis).to_vec();
        assert!((median_ms(&mut times) - 5.0).abs() < 1e-9);
    }
}
