//! Times `/bin/true` in a sandbox beside posix_spawn(3) and bubblewrap: P3, P4 and P5 of the targets.
//!
//! * `launch_bench [RUNS] [HEAP_MIB]` prints one JSON line: launches through a launcher process, everything fresh, by a
//!   user with a heap of that size.
//! * `launch_bench --rows [RUNS] [SECONDS]` prints a JSON line for each way: `posix_spawn`, `bwrap` (where installed),
//!   `cold` (nothing is made before it is asked for), `fresh` (what can be made in advance is, for one sandbox each),
//!   `pooled` (networks are used again) and `live` (an exec in a running sandbox), first in turn one by
//!   one with medians and 99th percentiles, then with 1, 2 and 8 workers at once as runs per second.
//!
//! * `launch_bench --only WAY [RUNS]` does nothing but one way, for a profiler.
//!
//! `cargo xtask bench` runs it and puts the figures beside those of other tools.

use nexus_driver::{CommandEvent, Driver, Ended, Event, MAIN_COMMAND, MoreCommand, Sandbox, Session};
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{Launcher, PoolConfig, serve_stdin};
use nexus_model::plan::PlanDraft;
use nexus_model::{ByteText, ExitStatus, Limits, Plan};
use rustix::fd::AsFd;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WARM_UP: usize = 10;
const PAUSE: Duration = Duration::from_millis(8);
const BWRAP: &[&str] = &[
    "--unshare-all",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--die-with-parent",
];
const TRUE: &str = "/bin/true";

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse());
    match arguments.first().map(String::as_str) {
        Some("--as-launcher") => Ok(serve_stdin(&Namespace::with_defaults(), keep(&arguments)?)?),
        Some("--rows") => {
            let words = arguments.iter().position(|word| word == "--").map(|at| &arguments[at + 1..]);
            rows(number(1, 200)?, number(2, 2)?, words.unwrap_or_default())
        }
        Some("--only") => only(arguments.get(1).map_or("", String::as_str), number(2, 200)?),
        _ => one(number(0, 300)?, number(1, 0)?),
    }
}

/// One way alone.
fn only(way: &str, runs: usize) -> Result<(), Failure> {
    let bench = Bench::new(&[])?;
    let mut live = Live::start(&bench)?;
    let mut once = || match way {
        "posix_spawn" => start_plain(&bench.command),
        "cold" => bench.launch(&bench.cold),
        "fresh" => bench.launch(&bench.fresh),
        "pooled" => bench.launch(&bench.pooled),
        "live" => live.run(),
        other => Err(format!("{other} is none of posix_spawn, cold, fresh, pooled, live").into()),
    };
    let times: Result<Vec<Duration>, Failure> = (0..runs).map(|_| timed(&mut once)).collect();
    let Summary { p10, median, p99 } = summary(times?);
    println!("{{\"mode\":\"{way}\",\"runs\":{runs},\"p10_us\":{p10},\"median_us\":{median},\"p99_us\":{p99}}}");
    drop(live);
    bench.stop()
}

/// `--as-launcher SANDBOXES [NETWORKS]`; the networks are used again.
fn keep(arguments: &[String]) -> Result<PoolConfig, Failure> {
    let number = |index: usize| arguments.get(index).map_or(Ok(0), |text| text.parse());
    let networks = number(2)?;
    Ok(PoolConfig { sandboxes: number(1)?, networks, reuse: networks > 0 })
}

/// The launches of a user with a large heap.
fn one(runs: usize, heap: usize) -> Result<(), Failure> {
    let bench = Bench::new(&[])?;
    // A daemon's heap; the launcher must not pay for it.
    let ballast = vec![1u8; heap << 20];
    let (mut spawn, mut launch) = (Vec::new(), Vec::new());
    for turn in 0..runs + WARM_UP {
        let (plain, sandboxed) = (timed(|| start_plain(&bench.command))?, timed(|| bench.launch(&bench.fresh))?);
        if turn >= WARM_UP {
            spawn.push(plain);
            launch.push(sandboxed);
        }
    }
    let (spawn, launch) = (summary(spawn), summary(launch));
    println!(
        "{{\"runs\":{runs},\"heap_mib\":{heap},\"spawn_us\":{},\"launch_us\":{},\"launch_p99_us\":{},\"ratio\":{:.3},\"ballast\":{}}}",
        spawn.median,
        launch.median,
        launch.p99,
        launch.median as f64 / spawn.median as f64,
        ballast.len(),
    );
    bench.stop()
}

/// One way to run the command once.
type Mode<'a> = (&'static str, Box<dyn Fn() -> Result<(), Failure> + Sync + 'a>);

fn rows(runs: usize, seconds: usize, words: &[String]) -> Result<(), Failure> {
    let bench = Bench::new(words)?;
    let named = if words.is_empty() { String::new() } else { format!(",\"command\":{:?}", words.join(" ")) };
    {
        let mut ways: Vec<Mode<'_>> = vec![("posix_spawn", Box::new(|| start_plain(&bench.command)))];
        if find("bwrap").is_some() {
            ways.push(("bwrap", Box::new(|| run(Command::new("bwrap").args(BWRAP).args(&bench.command)))));
        }
        ways.push(("cold", Box::new(|| bench.launch(&bench.cold))));
        ways.push(("fresh", Box::new(|| bench.launch(&bench.fresh))));
        ways.push(("pooled", Box::new(|| bench.launch(&bench.pooled))));
        let mut live = Live::start(&bench)?;
        in_turn(&ways, &mut live, runs, &named)?;
        drop(live);
        for workers in [1, 2, 8].into_iter().filter(|_| seconds > 0) {
            for (name, way) in &ways {
                let rate = rate(workers, seconds, || Ok(()), |()| way())?;
                println!("{{\"mode\":\"{name}\",\"workers\":{workers},\"runs_per_s\":{rate:.0}{named}}}");
            }
            let rate = rate(workers, seconds, || Live::start(&bench), Live::run)?;
            println!("{{\"mode\":\"live\",\"workers\":{workers},\"runs_per_s\":{rate:.0}{named}}}");
        }
    }
    bench.stop()
}

/// A B C A B C …, so that a machine whose speed drifts slows all of them alike.
fn in_turn(ways: &[Mode<'_>], live: &mut Live, runs: usize, named: &str) -> Result<(), Failure> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); ways.len() + 1];
    for turn in 0..runs + WARM_UP {
        for (index, slot) in times.iter_mut().enumerate() {
            let taken = match ways.get(index) {
                Some((_, way)) => timed(way)?,
                None => timed(|| live.run())?,
            };
            if turn >= WARM_UP {
                slot.push(taken);
            }
        }
    }
    let names: Vec<&str> = ways.iter().map(|(name, _)| *name).chain(["live"]).collect();
    let figures: Vec<Summary> = times.into_iter().map(summary).collect();
    let median_of =
        |wanted: &str| names.iter().position(|name| *name == wanted).map(|index| figures[index].median as f64);
    for (name, Summary { p10, median, p99 }) in names.iter().zip(&figures) {
        let ratio = |to: Option<f64>| to.map_or("null".to_owned(), |to| format!("{:.3}", *median as f64 / to));
        println!(
            "{{\"mode\":\"{name}\",\"workers\":1,\"runs\":{runs},\"p10_us\":{p10},\"median_us\":{median},\"p99_us\":{p99},\"x_spawn\":{},\"x_bwrap\":{}{named}}}",
            ratio(median_of("posix_spawn")),
            ratio(median_of("bwrap")),
        );
    }
    Ok(())
}

/// Measures the runs per second of a number of workers, each with a state of its own.
fn rate<S>(
    workers: usize,
    seconds: usize,
    state: impl Fn() -> Result<S, Failure> + Sync,
    way: impl Fn(&mut S) -> Result<(), Failure> + Sync,
) -> Result<f64, Failure> {
    let length = Duration::from_secs(seconds as u64);
    let counts = std::thread::scope(|scope| {
        let worker = || -> Result<f64, Failure> {
            let mut state = state()?;
            let (start, mut count) = (Instant::now(), 0);
            while start.elapsed() < length {
                way(&mut state)?;
                count += 1;
            }
            Ok(f64::from(count) / start.elapsed().as_secs_f64())
        };
        let all: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a worker panicked".into()))).collect::<Vec<_>>()
    });
    counts.into_iter().sum()
}

/// 10th percentile (the machine without other load), median and 99th percentile, in microseconds.
struct Summary {
    p10: u128,
    median: u128,
    p99: u128,
}

fn summary(mut times: Vec<Duration>) -> Summary {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_micros();
    Summary { p10: at(10), median: at(50), p99: at(99) }
}

/// Starts on a quiet machine: what the last one left to clear up, or a launcher makes in advance, is done by then.
fn timed(way: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    std::thread::sleep(PAUSE);
    let start = Instant::now();
    way()?;
    Ok(start.elapsed())
}

fn start_plain(command: &[String]) -> Result<(), Failure> {
    run(Command::new(&command[0]).args(&command[1..]))
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}").into()) }
}

fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Launchers and a workspace.
struct Bench {
    cold: Mutex<Launcher>,
    fresh: Mutex<Launcher>,
    pooled: Mutex<Launcher>,
    command: Vec<String>,
    workspace: PathBuf,
    null: File,
    _directory: tempfile::TempDir,
}

impl Bench {
    /// For these words, or for `true`.
    fn new(words: &[String]) -> Result<Self, Failure> {
        let launcher = |arguments: &[&str]| -> Result<Mutex<Launcher>, Failure> {
            let mut program = Command::new(std::env::current_exe()?);
            program.arg("--as-launcher").args(arguments);
            Ok(Mutex::new(Launcher::start(program, Namespace::with_defaults())?))
        };
        let directory = tempfile::tempdir_in("/var/tmp")?;
        Ok(Self {
            cold: launcher(&["0"])?,
            fresh: launcher(&["2"])?,
            pooled: launcher(&["2", "16"])?,
            command: if words.is_empty() { vec![TRUE.to_owned()] } else { words.to_vec() },
            workspace: std::fs::canonicalize(directory.path())?,
            null: File::options().read(true).write(true).open("/dev/null")?,
            _directory: directory,
        })
    }

    fn stop(self) -> Result<(), Failure> {
        for launcher in [self.cold, self.fresh, self.pooled] {
            launcher.into_inner().map_err(|_| "a worker panicked")?.stop()?;
        }
        Ok(())
    }

    fn start(&self, launcher: &Mutex<Launcher>, command: &[String]) -> Result<(Plan, Sandbox), Failure> {
        let plan = plan(&self.workspace, command)?;
        let handle = Namespace::with_defaults().prepare(&plan)?;
        let launcher = launcher.lock().map_err(|_| "a worker panicked")?;
        let sandbox = launcher.start(&plan, &handle)?;
        Ok((plan, sandbox))
    }

    /// From the request to the death of the whole sandbox.
    fn launch(&self, launcher: &Mutex<Launcher>) -> Result<(), Failure> {
        let (plan, sandbox) = self.start(launcher, &self.command)?;
        let null = self.null.as_fd();
        let mut session = Session::start(&sandbox, &plan, nexus_driver::Stdio::Pipes([null, null, null]))?;
        loop {
            match session.recv()? {
                Event::Ended(_) => break,
                Event::NotStarted(reason) => return Err(reason.into()),
                _ => {}
            }
        }
        Ok(sandbox.process.wait()?)
    }
}

/// A running sandbox that takes execs.
struct Live {
    sandbox: Sandbox,
    session: Session,
    plan: Plan,
    command: Vec<ByteText>,
    null: File,
    last: u32,
}

impl Live {
    fn start(bench: &Bench) -> Result<Self, Failure> {
        let (plan, sandbox) = bench.start(&bench.fresh, &["/bin/sleep".to_owned(), "1000".to_owned()])?;
        let null = bench.null.as_fd();
        let mut session = Session::start(&sandbox, &plan, nexus_driver::Stdio::Pipes([null, null, null]))?;
        while !matches!(session.recv()?, Event::Started(_)) {}
        let command = bench.command.iter().map(|word| word.as_str().into()).collect();
        Ok(Self { sandbox, session, plan, command, null: bench.null.try_clone()?, last: MAIN_COMMAND })
    }

    /// One more command.
    fn run(&mut self) -> Result<(), Failure> {
        self.last += 1;
        let command =
            MoreCommand { argv: self.command.clone(), env: self.plan.env.clone(), cwd: self.plan.cwd.clone() };
        let null = self.null.as_fd();
        self.session.exec(self.last, &command, nexus_driver::Stdio::Pipes([null, null, null]))?;
        loop {
            match self.session.recv()? {
                Event::Command { event: CommandEvent::Started(_), .. } => {}
                Event::Command { event: CommandEvent::Ended(Ended { status: ExitStatus::Code(0), .. }), .. } => {
                    return Ok(());
                }
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Err(error) = self.sandbox.process.kill().and_then(|()| self.sandbox.process.wait()) {
            eprintln!("a sandbox could not be ended: {error}");
        }
    }
}

fn plan(workspace: &Path, command: &[String]) -> Result<Plan, Failure> {
    let words = command.iter().map(String::as_str);
    let mut draft = PlanDraft::direct(workspace, words, Path::new("/proc/self/task/no-such"));
    draft.workspace.target = "/workspace".into();
    draft.cwd = "/workspace".into();
    draft.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    draft.limits = Limits::defaults(64 << 20);
    Ok(Plan::new(draft)?)
}
