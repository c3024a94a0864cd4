//! One run from its request to its report, in this process, without a command line. The fake driver isolates nothing, so
//! that the attendant writes to the layer what a command would write.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_driver::fake::{Fake, Script};
use nexus_driver::{Driver, Handle};
use nexus_layer::Workspace;
use nexus_model::RunId;
use nexus_model::plan::Writes as WorkspaceWrites;
use nexus_policy::profile::Grants;
use nexus_receipt::{Issuer, Maker};
use nexus_runner::host::Host;
use nexus_runner::live::attendant::{Attendant, Interrupts, KeptOutput, SandboxEvent, Watched};
use nexus_runner::live::control::SandboxControl;
use nexus_runner::live::output::Stream;
use nexus_runner::net::service::CallerSide;
use nexus_runner::notices::Notice;
use nexus_runner::plan::resolve::{ResolvedRun, resolve};
use nexus_runner::plan::site::Site;
use nexus_runner::plan::workspace::WorkspaceChoice;
use nexus_runner::recover::recovery::Recovery;
use nexus_runner::request::{ChangeMode, RunRequest, Shows, Streams, Tools, WriteMode};
use nexus_runner::run::error::RunError;
use nexus_runner::run::finished::{Failed, Finished};
use nexus_runner::run::prepared::Prepared;
use nexus_runner::run::report::RunReport;
use nexus_runner::run::running::Running;
use nexus_runner::run::surroundings::Surroundings;
use nexus_runner::settle::frontend::{Frontend, Question};
use nexus_runner::settle::settled::ChangesState;
use nexus_runner::state::directory::StateDir;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A workspace and a state directory.
struct Place {
    _dir: TempDir,
    workspace: PathBuf,
    host: Host,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (workspace, state) = (dir.path().join("w"), dir.path().join("state"));
        for one in [&workspace, &state] {
            std::fs::create_dir(one).unwrap();
            std::fs::set_permissions(one, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let variables = BTreeMap::from([("NEXUS_STATE_DIR".into(), state.into())]);
        let uid = rustix::process::geteuid().as_raw();
        let home = Some(dir.path().to_owned());
        Self { _dir: dir, workspace, host: Host { variables, home, uid } }
    }

    fn resolved(&self, argv: &[&str], changes: ChangeMode) -> ResolvedRun {
        let site = Site::open(WorkspaceChoice::Named(self.workspace.clone()), &self.host).unwrap();
        let request = RunRequest {
            argv: argv.iter().map(|word| (*word).into()).collect(),
            image: None,
            mount: None,
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
            changes,
            names_readers: false,
            grace: Duration::from_secs(1),
            streams: Streams::default(),
            profiles: Vec::new(),
        };
        resolve(site, &request, &self.host).unwrap()
    }
}

/// A caller without a user.
struct Silent {
    wake: UnixStream,
    _other: UnixStream,
}

impl Silent {
    fn new() -> Self {
        let (wake, other) = UnixStream::pair().unwrap();
        Self { wake, _other: other }
    }

    fn around(&self) -> Surroundings<'_> {
        Surroundings { frontend: self, recovery: self, interrupts: self, was_ended: Arc::default() }
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
        panic!("{notice}");
    }

    fn decide(&self, question: &Question<'_>) -> Result<ChangeMode, String> {
        assert_eq!(question.changes.counts(), (1, 0, 0));
        Ok(ChangeMode::Discard)
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

/// When the attendant writes, and what becomes of its run then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    /// When the command has started.
    AtStart,
    /// When there is output, which it cannot pass on.
    AtOutput,
    /// At the first turn, and then it fails.
    Immediately,
}

/// An attendant that writes a file to the layer.
struct Writer {
    file: Option<PathBuf>,
    writes: Writes,
}

impl Writer {
    /// Writes the file if it is time for it.
    fn writes(&self, now: Writes) -> io::Result<()> {
        match &self.file {
            Some(file) if self.writes == now => std::fs::write(file, "by the command\n"),
            _ => Ok(()),
        }
    }
}

impl Attendant for Writer {
    type Token = ();

    fn takes(&self, _: Stream) -> bool {
        true
    }

    fn take(&mut self, _: Stream, _: &[u8]) -> io::Result<bool> {
        self.writes(Writes::AtOutput)?;
        if self.writes == Writes::AtOutput { Err(io::ErrorKind::StorageFull.into()) } else { Ok(false) }
    }

    fn watch<'a>(&'a self, _: &SandboxControl, _: &mut Watched<'a, ()>) {}

    fn ready(&mut self, (): (), _: PollFlags, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn signal(&mut self, _: u8, _: &mut SandboxControl) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, event: SandboxEvent, _: &mut SandboxControl) -> io::Result<()> {
        if matches!(event, SandboxEvent::Started) { self.writes(Writes::AtStart) } else { Ok(()) }
    }

    fn next_event(&self) -> Option<Instant> {
        None
    }

    fn tick(&mut self, _: Instant, _: &mut SandboxControl) -> io::Result<()> {
        self.writes(Writes::Immediately)?;
        if self.writes == Writes::Immediately { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
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

fn issuer(run: &ResolvedRun) -> Issuer {
    let maker = Maker { version: "0".to_owned(), kernel: "0".to_owned(), identity: "user".to_owned() };
    Issuer::open(&run.site.places.state, maker, 1).unwrap()
}

fn prepared<'a>(run: &'a ResolvedRun, driver: &'a Fake, caller: &'a Silent) -> Prepared<'a> {
    let side = CallerSide { questions: None, before_serving: || {} };
    Prepared::new(run, driver, issuer(run), side, caller.around(), Instant::now()).unwrap()
}

/// Takes a run to its report. `name` is the file that its command writes.
fn report(run: &ResolvedRun, driver: &Fake, name: Option<&str>) -> Result<RunReport, RunError> {
    ended(run, driver, name, Writes::AtStart).map_err(|failed| failed.error)
}

/// The same with the time at which the file is written, and with the receipt of a run that failed.
fn ended(run: &ResolvedRun, driver: &Fake, name: Option<&str>, writes: Writes) -> Result<RunReport, Box<Failed>> {
    let caller = Silent::new();
    let WorkspaceWrites::Layer { root } = &run.plan.workspace.writes else { panic!("a layer on the disk") };
    let mut writer = Writer { file: name.map(|name| root.as_path().join("upper").join(name)), writes };
    let without_receipt = |error| Box::new(Failed { error, receipt: None });
    let running = Running::start(prepared(run, driver, &caller)).map_err(without_receipt)?;
    Finished::attend(running, &mut writer).map_err(without_receipt)?.settle()
}

/// Lists what a run left: records, layers, sandboxes.
fn left(run: &ResolvedRun, driver: &Fake) -> Vec<String> {
    let list = |directory: &Path| {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let sandboxes = driver.inventory().unwrap().into_iter().map(|found| found.what);
    let places = &run.site.places;
    list(&places.runs).into_iter().chain(list(&places.layers)).chain(sandboxes).collect()
}

/// Lists all but the sandbox, which the fake driver knows until it is destroyed.
fn left_on_disk(run: &ResolvedRun) -> Vec<String> {
    left(run, &Fake::new(Script::Obey))
}

#[test]
fn a_request_becomes_a_report_with_a_receipt() {
    let place = Place::new();
    let driver = Fake::new(Script::Obey);
    let run = place.resolved(&["exit", "0"], ChangeMode::Commit);
    let report = report(&run, &driver, Some("new")).unwrap();
    assert_eq!((report.exit, report.settled.state), (0, ChangesState::Committed));
    assert_eq!(std::fs::read_to_string(place.workspace.join("new")).unwrap(), "by the command\n");
    let issued = report.receipt.unwrap().unwrap();
    assert!(issued.path.exists() && issued.unchained.is_none());
    assert_eq!(left_on_disk(&run), [""; 0]);
}

#[test]
fn a_command_that_fails_keeps_its_exit_code() {
    let place = Place::new();
    let run = place.resolved(&["exit", "3"], ChangeMode::Commit);
    let report = report(&run, &Fake::new(Script::Obey), None).unwrap();
    assert_eq!((report.exit, report.settled.state), (3, ChangesState::None));
    assert_eq!(left_on_disk(&run), [""; 0]);
}

#[test]
fn changes_wait_for_a_review() {
    let place = Place::new();
    let run = place.resolved(&["exit", "0"], ChangeMode::Review);
    let report = report(&run, &Fake::new(Script::Obey), Some("new")).unwrap();
    assert_eq!((report.exit, report.settled.state), (0, ChangesState::Parked));
    assert!(!place.workspace.join("new").exists());
    assert_eq!(left_on_disk(&run), [run.plan.run_id.to_string()], "the layer, and no record");
}

#[test]
fn the_frontend_decides_about_changes() {
    let place = Place::new();
    let run = place.resolved(&["exit", "0"], ChangeMode::Ask);
    let report = report(&run, &Fake::new(Script::Obey), Some("new")).unwrap();
    assert_eq!((report.exit, report.settled.state), (0, ChangesState::Discarded));
    assert_eq!(left_on_disk(&run), [""; 0]);
}

#[test]
fn a_set_up_that_fails_leaves_nothing() {
    let place = Place::new();
    let driver = Fake::new(Script::SetUpFails);
    let run = place.resolved(&["exit", "0"], ChangeMode::Commit);
    let error = report(&run, &driver, None).unwrap_err();
    assert_eq!(error.code(), "set_up", "{error}");
    assert_eq!(left(&run, &driver), [""; 0]);
}

#[test]
fn a_run_without_an_attendant_leaves_nothing() {
    let place = Place::new();
    let driver = Fake::new(Script::Obey);
    let run = place.resolved(&["exit", "0"], ChangeMode::Commit);
    let caller = Silent::new();
    let prepared = prepared(&run, &driver, &caller);
    assert_eq!(left_on_disk(&run).len(), 2, "a record and a layer");
    prepared.give_up().unwrap();
    assert_eq!(left(&run, &driver), [""; 0]);
}

#[test]
fn output_shows_that_the_command_ran_before_its_start_is_reported() {
    let place = Place::new();
    let run = place.resolved(&["echo", "x"], ChangeMode::Commit);
    let failed = ended(&run, &Fake::new(Script::SpeaksFirst), Some("new"), Writes::AtOutput).unwrap_err();
    assert_eq!(failed.error.code(), "output", "{}", failed.error);
    assert!(failed.receipt.unwrap().path.exists());
    assert_eq!(left_on_disk(&run), [run.plan.run_id.to_string()], "the layer, and no record");
}

#[test]
fn work_in_a_layer_stays_also_when_no_start_was_seen() {
    let place = Place::new();
    let run = place.resolved(&["wait"], ChangeMode::Commit);
    let failed = ended(&run, &Fake::new(Script::Vanishes), Some("new"), Writes::Immediately).unwrap_err();
    assert!(failed.error.to_string().contains("left work that was not settled"), "{}", failed.error);
    let layer = run.plan.run_id.to_string();
    assert_eq!(left_on_disk(&run), [layer.clone(), layer], "the record and the layer");
}
