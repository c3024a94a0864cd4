//! Times launches through a launcher process against posix_spawn(3) of the same program: P3 of the targets.
//!
//! `launch_bench [RUNS] [HEAP_MIB]` prints one JSON line with medians and 99th percentiles in microseconds. `cargo xtask bench`
//! runs it and puts the figures beside those of other tools.

use nexus_driver::namespace::launcher::{Launcher, serve_stdin};
use nexus_driver::{Driver, Event, Namespace, Session, Stdio};
use nexus_model::plan::{PlanDraft, WorkspaceMount, Writes};
use nexus_model::spec::SandboxProfile;
use nexus_model::{Limits, Plan, RunId};
use rustix::fd::AsFd;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let driver = Namespace::with_defaults();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--as-launcher") {
        return Ok(serve_stdin(&driver)?);
    }
    let number = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (runs, heap) = (number(0, 300)?, number(1, 0)?);
    let mut program = Command::new(std::env::current_exe()?);
    program.arg("--as-launcher");
    let launcher = Launcher::start(program)?;
    // A daemon's heap; the launcher must not pay for it.
    let ballast = vec![1u8; heap << 20];
    let folder = tempfile::tempdir_in("/var/tmp")?;
    let workspace = std::fs::canonicalize(folder.path())?;
    let (mut spawn, mut launch) = (Vec::new(), Vec::new());
    for turn in 0..runs + 10 {
        let plain = time_spawn()?;
        let sandboxed = time_launch(&driver, &launcher, &workspace)?;
        if turn >= 10 {
            spawn.push(plain);
            launch.push(sandboxed);
        }
    }
    launcher.stop()?;
    let (spawn, launch) = (summary(spawn), summary(launch));
    println!(
        "{{\"runs\":{runs},\"heap_mib\":{heap},\"spawn_us\":{},\"launch_us\":{},\"launch_p99_us\":{},\"ratio\":{:.3},\"ballast\":{}}}",
        spawn.0,
        launch.0,
        launch.1,
        launch.0 as f64 / spawn.0 as f64,
        ballast.len(),
    );
    Ok(())
}

/// Median and 99th percentile in microseconds.
fn summary(mut times: Vec<Duration>) -> (u128, u128) {
    times.sort_unstable();
    (times[times.len() / 2].as_micros(), times[times.len() * 99 / 100].as_micros())
}

fn time_spawn() -> Result<Duration, Failure> {
    let start = Instant::now();
    let status = Command::new("/bin/true").status()?;
    let taken = start.elapsed();
    if status.success() { Ok(taken) } else { Err("/bin/true failed".into()) }
}

/// From the request to the death of the whole sandbox.
fn time_launch(driver: &Namespace, launcher: &Launcher, workspace: &Path) -> Result<Duration, Failure> {
    let plan = Plan::new(PlanDraft {
        run_id: RunId::new(),
        profile: SandboxProfile::Untrusted,
        workspace: WorkspaceMount {
            source: workspace.into(),
            target: workspace.into(),
            writes: Writes::Direct { protected: Vec::new() },
        },
        hidden: Vec::new(),
        binds: Vec::new(),
        argv: vec!["/bin/true".into()],
        cwd: workspace.into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        limits: Limits::defaults(64 << 20),
        required: BTreeSet::new(),
        marker: "/proc/self/task/no-such".into(),
    })?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let start = Instant::now();
    let handle = driver.prepare(&plan)?;
    let sandbox = launcher.launch(&plan, &handle)?;
    let mut session = Session::start(&sandbox, &plan, Stdio::Pipes([null.as_fd(); 3]))?;
    loop {
        match session.hear()? {
            Event::Ended(_) => break,
            Event::NotStarted(reason) => return Err(reason.into()),
            _ => {}
        }
    }
    sandbox.keeper.wait()?;
    Ok(start.elapsed())
}
