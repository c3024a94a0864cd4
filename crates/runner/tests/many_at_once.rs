//! 200 runs at once, from a program with many threads through a launcher process: each gets its own output, files, receipt and
//! end. The program starts the launcher, which is this very file, before it has threads.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_driver::{Driver, Handle};
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{Launcher, PoolConfig, serve_stdin};
use nexus_layer::Workspace;
use nexus_model::RunId;
use nexus_policy::profile::Grants;
use nexus_receipt::{Collected, KeyDirectory, Store};
use nexus_runner::host::Host;
use nexus_runner::live::attendant::{Attendant, Interrupts, KeptOutput, SandboxEvent, Watched};
use nexus_runner::live::control::SandboxControl;
use nexus_runner::live::output::Stream;
use nexus_runner::net::service::CallerSide;
use nexus_runner::notices::Notice;
use nexus_runner::plan::resolve::resolve;
use nexus_runner::plan::site::Site;
use nexus_runner::plan::workspace::WorkspaceChoice;
use nexus_runner::recover::recovery::Recovery;
use nexus_runner::request::{ChangeMode, RunRequest, Shows, Streams, Tools, WriteMode};
use nexus_runner::run::finished::Finished;
use nexus_runner::run::prepared::Prepared;
use nexus_runner::run::receipt::open_issuer;
use nexus_runner::run::report::RunReport;
use nexus_runner::run::running::Running;
use nexus_runner::run::surroundings::Surroundings;
use nexus_runner::settle::frontend::{Frontend, Question};
use nexus_runner::settle::settled::ChangesState;
use nexus_runner::state::directory::StateDir;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const RUNS: usize = 200;

/// Argument with which this program is the launcher process.
const AS_LAUNCHER: &str = "as-launcher";

type Test = fn(&Launcher);

const TESTS: [(&str, Test); 2] = [
    ("two_hundred_runs_at_once_keep_apart", two_hundred_runs_at_once_keep_apart),
    ("a_sandbox_ends_when_its_lease_does", a_sandbox_ends_when_its_lease_does),
];

fn main() {
    // Listing is what a test runner asks of a test that it knows nothing of.
    if std::env::args().any(|argument| argument == "--list") {
        for (name, _) in &TESTS {
            println!("{name}: test");
        }
        return;
    }
    if std::env::args().nth(1).as_deref() == Some(AS_LAUNCHER) {
        let pools = PoolConfig { networks: 4, reuse: false, sandboxes: 0 };
        serve_stdin(&Namespace::with_defaults().drawing_each(), pools).unwrap();
        return;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.arg(AS_LAUNCHER);
    let launcher = Launcher::start(program, Namespace::with_defaults()).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    for (name, test) in TESTS {
        test(&launcher);
        println!("test {name} ... ok");
    }
    launcher.stop().unwrap();
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", TESTS.len());
}

/// A state directory and workspaces, as a territory has them.
struct Place {
    dir: tempfile::TempDir,
    host: Host,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
        let variables = BTreeMap::from([("NEXUS_STATE_DIR".into(), state.into())]);
        let uid = rustix::process::geteuid().as_raw();
        Self { host: Host { variables, home: None, uid }, dir }
    }

    fn workspace(&self, number: usize) -> PathBuf {
        let path = self.dir.path().join(format!("w{number}"));
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

/// Plays a caller without a user.
struct Silent {
    wake: UnixStream,
    _other: UnixStream,
}

impl Silent {
    fn new() -> Self {
        let (wake, other) = UnixStream::pair().unwrap();
        Self { wake, _other: other }
    }
}

impl Frontend for Silent {
    fn is_ended(&self) -> bool {
        false
    }

    fn host(&self) -> Host {
        Host { variables: BTreeMap::new(), home: None, uid: rustix::process::geteuid().as_raw() }
    }

    fn tell(&self, notice: &Notice) {
        assert!(matches!(notice, Notice::WaitsForCommit), "{notice}");
    }

    fn decide(&self, _: &Question<'_>) -> Result<ChangeMode, String> {
        Err("no run asks".to_owned())
    }

    fn watch_end(&self, _run: RunId, _layer: &Path, _: bool) -> Option<Box<dyn Any>> {
        None
    }
}

impl Recovery for Silent {
    fn finish_others(&self, _: &StateDir, _: &str, _: &Path, _: &Workspace) -> Result<(), String> {
        Ok(())
    }

    fn finds(&self, _: RunId, _: &Handle) -> bool {
        false
    }

    fn park(&self, _: &StateDir, run: &str) -> Result<(), String> {
        Err(format!("the run {run} left work that was not settled"))
    }
}

impl Interrupts for Silent {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn take(&self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

/// Collects the output.
#[derive(Default)]
struct Collector {
    text: Vec<u8>,
}

impl Attendant for Collector {
    type Token = ();

    fn takes(&self, _: Stream) -> bool {
        true
    }

    fn take(&mut self, _: Stream, bytes: &[u8]) -> io::Result<bool> {
        self.text.extend_from_slice(bytes);
        Ok(false)
    }

    fn watch<'a>(&'a self, _: &SandboxControl, _: &mut Watched<'a, ()>) {}

    fn ready(&mut self, (): (), _: PollFlags, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn signal(&mut self, _: u8, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, _: SandboxEvent, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        None
    }

    fn tick(&mut self, _: Instant, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn give_up(&mut self, _: &mut SandboxControl) {}

    fn sandbox_lingers(&mut self) {}

    fn sandbox_is_dead(&mut self) {}

    fn is_done(&self) -> bool {
        true
    }

    fn finish(&mut self) -> io::Result<KeptOutput> {
        Ok((None, 0))
    }
}

fn request(script: &str) -> RunRequest {
    RunRequest {
        argv: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
        image: None,
        mount: Some("/workspace".into()),
        cwd: None,
        current_directory: None,
        grants: Grants::default(),
        shows: Shows::default(),
        variables: Vec::new(),
        secrets: Vec::new(),
        credentials_only_warn: false,
        hide_secrets: false,
        tools: Tools::default(),
        writes: WriteMode::Layer,
        required: [].into(),
        network: None,
        changes: ChangeMode::Commit,
        names_readers: false,
        grace: Duration::from_secs(1),
        streams: Streams::default(),
        profiles: Vec::new(),
    }
}

/// Takes a script to its report; `keep` gives its sandbox a deadline before it is started.
fn report(
    launcher: &Launcher,
    place: &Place,
    workspace: PathBuf,
    script: &str,
    keep: impl FnOnce(RunId),
) -> (Result<RunReport, String>, String) {
    let site = Site::open(WorkspaceChoice::Named(workspace), &place.host).unwrap();
    let run = resolve(site, &request(script), &place.host).unwrap();
    let caller = Silent::new();
    let around = Surroundings { frontend: &caller, recovery: &caller, interrupts: &caller, was_ended: Arc::default() };
    let side = CallerSide { questions: None, before_serving: || {} };
    let issuer = open_issuer(&run.site.places).unwrap();
    let mut attendant = Collector::default();
    let prepared = Prepared::new(&run, launcher, issuer, side, around, Instant::now()).unwrap();
    keep(run.plan.run_id);
    let finished = Running::start(prepared).and_then(|running| Finished::attend(running, &mut attendant));
    let done = match finished {
        Ok(finished) => finished.settle().map_err(|failed| failed.error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    (done, String::from_utf8(attendant.text).unwrap())
}

fn two_hundred_runs_at_once_keep_apart(launcher: &Launcher) {
    let place = Place::new();
    let together = Barrier::new(RUNS);
    let ended = Mutex::new(Vec::new());
    let clock = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..RUNS {
            let (place, together, ended) = (&place, &together, &ended);
            scope.spawn(move || {
                // Every fourth shares its workspace with another run.
                let workspace = place.workspace(if number % 4 == 0 { number / 8 * 8 } else { number });
                together.wait();
                let script = format!("pwd; echo {number} > {number}; echo run {number}; exit {}", number % 7);
                let (done, text) = report(launcher, place, workspace, &script, |_| {});
                let report = done.unwrap();
                ended.lock().unwrap().push(report.run_id);
                assert_eq!(text, format!("/workspace\nrun {number}\n"));
                assert_eq!(usize::from(report.exit), number % 7, "run {number}");
                assert_eq!(report.settled.state, ChangesState::Committed, "run {number}");
                assert!(matches!(report.receipt, Some(Ok(_))), "run {number}: {:?}", report.receipt);
            });
        }
    });
    println!("{RUNS} runs in {:?}", clock.elapsed());
    for number in 0..RUNS {
        let workspace = place.workspace(if number % 4 == 0 { number / 8 * 8 } else { number });
        assert_eq!(std::fs::read_to_string(workspace.join(number.to_string())).unwrap(), format!("{number}\n"));
    }
    let state = place.dir.path().join("state");
    for part in ["runs", "layers"] {
        let left: Vec<_> =
            std::fs::read_dir(state.join(part)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{part}: {left:?}");
    }
    let keys = KeyDirectory::open(&state).unwrap();
    let receipts = Collected::of(&Store::open(&state).unwrap(), &keys.known().unwrap().ring()).unwrap();
    assert_eq!(receipts.check().unwrap().receipts, RUNS);
    let ended = ended.into_inner().unwrap();
    let found = launcher.inventory().unwrap();
    let left: Vec<_> = found.iter().filter(|one| ended.iter().any(|run| one.is_of(*run))).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The clock of leases.
fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap())
}

fn a_sandbox_ends_when_its_lease_does(launcher: &Launcher) {
    let place = Place::new();
    let clock = Instant::now();
    let short = |run| launcher.keep_until(run, boot_time() + Duration::from_secs(1)).unwrap();
    let (done, text) = report(launcher, &place, place.workspace(0), "echo began; exec sleep 60", short);
    assert!(clock.elapsed() < Duration::from_secs(20), "{:?}", clock.elapsed());
    assert_eq!(text, "began\n");
    assert!(done.is_err() || done.is_ok_and(|report| report.exit != 0));
    // A lease that was renewed does not end at its first time, and one that is over starts nothing.
    let renewed = |run| {
        launcher.keep_until(run, boot_time() + Duration::from_millis(300)).unwrap();
        launcher.keep_until(run, boot_time() + Duration::from_secs(60)).unwrap();
    };
    let (done, text) = report(launcher, &place, place.workspace(1), "sleep 0.6; echo ended", renewed);
    assert_eq!((done.unwrap().exit, text.as_str()), (0, "ended\n"));
    let over = |run| launcher.keep_until(run, boot_time()).unwrap();
    let (done, text) = report(launcher, &place, place.workspace(2), "echo ran", over);
    assert!(done.unwrap_err().contains("lease") && text.is_empty());
}
