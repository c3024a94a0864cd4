//! The recovery of runs whose caller was killed, without a command line and without a sandbox: the driver is a list of answers.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_driver::{DestroyError, Handle, InventoryError};
use nexus_layer::Workspace;
use nexus_model::RunId;
use nexus_runner::host::Host;
use nexus_runner::notices::Notice;
use nexus_runner::recover::clear::{before_run, interrupted};
use nexus_runner::recover::error::ClearError;
use nexus_runner::recover::remains::{Lingering, Remains};
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::record::{Content, Record};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The name of the driver that is there.
const DRIVER: &str = "listed";

/// A driver that notes what the recovery asks of it.
#[derive(Default)]
struct Listed {
    ended: RefCell<Vec<RunId>>,
    cleared: RefCell<Vec<RunId>>,
    /// Set when what a sandbox has on the host cannot be removed.
    is_stuck: bool,
}

impl Remains for Listed {
    fn end(&self, sandboxes: &[(RunId, Option<&Handle>)], _: Duration) -> Result<Vec<Lingering>, InventoryError> {
        self.ended.borrow_mut().extend(sandboxes.iter().map(|(run, _)| *run));
        Ok(Vec::new())
    }

    fn clear_away(&self, handle: &Handle) -> Result<(), DestroyError> {
        if handle.driver != DRIVER {
            return Err(DestroyError::WrongDriver { found: handle.driver.clone(), expected: DRIVER.to_owned() });
        }
        if self.is_stuck {
            let source = std::io::ErrorKind::ResourceBusy.into();
            return Err(DestroyError::Left { what: "the control group".to_owned(), source });
        }
        self.cleared.borrow_mut().push(handle.run_id);
        Ok(())
    }
}

struct World {
    _dir: TempDir,
    places: StateDir,
    workspace: PathBuf,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (state, workspace) = (dir.path().join("state"), dir.path().join("workspace"));
        std::fs::create_dir(&workspace).unwrap();
        let variables = BTreeMap::from([("NEXUS_STATE_DIR".into(), state.into())]);
        let uid = rustix::process::geteuid().as_raw();
        let host = Host { variables, home: Some(dir.path().to_owned()), uid };
        let places = StateDir::find(&host).unwrap().ensure(&host).unwrap();
        Self { _dir: dir, places, workspace }
    }

    fn id(&self) -> nexus_layer::DirectoryIdentity {
        Workspace::open(&self.workspace).unwrap().identity().unwrap()
    }

    /// Leaves the record of a run without a layer, as a caller does that is killed.
    fn leave(&self, driver: &str) -> RunId {
        let run = RunId::new();
        let content = Content {
            handle: Handle::new(driver, run, Vec::new()),
            workspace: self.workspace.clone().into(),
            directory: self.id().into(),
            layered: false,
            reviewing: false,
            rejecting: false,
        };
        drop(Record::create(&self.places.runs, &content).unwrap());
        run
    }

    fn has_record(&self, run: RunId) -> bool {
        Record::place(&self.places.runs, run).exists()
    }
}

/// Runs the recovery of a command that decides, and returns what it reported.
fn recovered(world: &World, driver: &Listed) -> Vec<Notice> {
    let notices = RefCell::new(Vec::new());
    let found = interrupted(&world.places, driver, &|notice| notices.borrow_mut().push(notice.clone())).unwrap();
    assert!(found.is_empty(), "{found:?}");
    notices.into_inner()
}

#[test]
fn what_a_killed_caller_left_is_ended_and_removed() {
    let (world, driver) = (World::new(), Listed::default());
    let run = world.leave(DRIVER);
    assert!(world.has_record(run));
    assert_eq!(recovered(&world, &driver), []);
    assert_eq!((driver.ended.take(), driver.cleared.take()), (vec![run], vec![run]));
    assert!(!world.has_record(run));
}

#[test]
fn a_sandbox_of_another_driver_is_reported_and_its_record_stays() {
    let (world, driver) = (World::new(), Listed::default());
    let run = world.leave("other");
    let notices = recovered(&world, &driver);
    let [Notice::NotCleared(error @ ClearError::OtherDriver { run: found, driver: other, record })] = &notices[..]
    else {
        panic!("{notices:?}");
    };
    assert_eq!((*found, other.as_str(), error.code()), (run, "other", "driver"));
    assert_eq!(*record, Record::place(&world.places.runs, run));
    assert!(world.has_record(run));
}

#[test]
fn what_cannot_be_cleared_stops_runs_in_its_directory_alone() {
    let (world, driver) = (World::new(), Listed { is_stuck: true, ..Listed::default() });
    let run = world.leave(DRIVER);
    let notices = RefCell::new(Vec::new());
    let tell = |notice: &Notice| notices.borrow_mut().push(notice.clone());
    let error = before_run(&world.places, &driver, &world.workspace, world.id(), &tell).unwrap_err();
    assert!(matches!(&error, ClearError::NotCleared { why } if why.contains("the control group")), "{error}");
    assert!(notices.take().is_empty() && world.has_record(run));
    let elsewhere = tempfile::tempdir().unwrap();
    let id = Workspace::open(elsewhere.path()).unwrap().identity().unwrap();
    before_run(&world.places, &driver, Path::new(elsewhere.path()), id, &tell).unwrap();
    assert_eq!(notices.take(), [Notice::NotCleared(error)]);
}
