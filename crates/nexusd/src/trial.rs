//! Health before a claim: a trial sandbox, with its proof, within the last minute.

use crate::lease::{self, LeaseDriver};
use nexus_driver::{Driver, Event, Session, Stdio};
use nexus_model::plan::PlanDraft;
use nexus_model::{ExitStatus, Plan};
use rustix::fd::AsFd;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a trial counts.
const HOLDS_FOR: Duration = Duration::from_secs(60);
/// Time that a trial has. The launcher ends it then.
const WITHIN: Duration = Duration::from_secs(20);

/// The health of the sandbox profile `untrusted`.
#[derive(Debug)]
pub struct Health {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    good_since: Option<Instant>,
    fault: Option<String>,
    /// Guarantees that the driver gives here, as it was asked last.
    guarantees: Option<(Instant, Vec<String>)>,
}

impl Health {
    /// Makes one that knows nothing yet. Trials run in this directory, which they do not change.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), state: Mutex::default() }
    }

    /// Notes that a sandbox of a directive proved its confinement.
    pub fn proved(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.good_since, state.fault) = (Some(Instant::now()), None);
    }

    /// Returns the fault of the last trial; `None` when the profile is healthy or was not tried.
    pub fn fault(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).fault.clone()
    }

    /// Reports whether directives may be claimed, and tries a sandbox where that is not known.
    pub fn check(&self, driver: &dyn LeaseDriver) -> Result<(), String> {
        let known = self.state.lock().unwrap_or_else(PoisonError::into_inner).good_since;
        if known.is_some_and(|since| since.elapsed() < HOLDS_FOR) {
            return Ok(());
        }
        let tried = trial(driver, &self.directory);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.good_since, state.fault) = (tried.is_ok().then(Instant::now), tried.clone().err());
        tried
    }

    /// Returns the guarantees that the driver gives here. It looks at the machine for them, which is done once in the time for
    /// which a trial counts: a poll must not hold up the work that the poll before it brought.
    pub fn guarantees(&self, driver: &dyn LeaseDriver) -> Vec<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, known)) = &state.guarantees
            && asked.elapsed() < HOLDS_FOR
        {
            return known.clone();
        }
        let report = driver.probe();
        let given = report.findings.iter().filter(|finding| finding.given).map(|finding| finding.guarantee.to_string());
        let given: Vec<String> = given.collect();
        state.guarantees = Some((Instant::now(), given.clone()));
        given
    }
}

/// Starts a sandbox that does nothing, and checks its proof.
fn trial(driver: &dyn LeaseDriver, directory: &Path) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let draft = PlanDraft::direct(directory, ["/bin/true"], Path::new("/nowhere"));
    let plan = Plan::new(draft).map_err(|error| text(&error))?;
    let driver_alone: &dyn Driver = driver;
    let handle = driver_alone.prepare(&plan).map_err(|error| text(&error))?;
    driver.keep_until(plan.run_id, lease::boot_time() + WITHIN)?;
    let ended = (|| {
        let sandbox = driver_alone.start(&plan, &handle).map_err(|error| text(&error))?;
        let null = File::options().read(true).write(true).open("/dev/null").map_err(|error| text(&error))?;
        let stdio = Stdio::Pipes([null.as_fd(), null.as_fd(), null.as_fd()]);
        let mut session = Session::start(&sandbox, &plan, stdio).map_err(|error| text(&error))?;
        let end = loop {
            // The launcher kills the sandbox when its time is over, which ends this wait.
            match session.recv() {
                Ok(Event::Ended(ended)) if ended.status == ExitStatus::Code(0) => break Ok(()),
                Ok(Event::Ended(ended)) => break Err(format!("the trial command ended with {:?}", ended.status)),
                Ok(Event::NotStarted(reason)) => break Err(reason.to_string()),
                Ok(_) => {}
                Err(error) => break Err(error.to_string()),
            }
        };
        sandbox.process.wait().map_err(|error| text(&error))?;
        end
    })();
    driver_alone.destroy(&handle).map_err(|error| text(&error))?;
    ended
}
