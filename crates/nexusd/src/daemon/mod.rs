//! The threads of one territory.
//!
//! ```text
//!  start: recover, reconcile ─▶ poll thread: replay ─▶ first heartbeat ─▶ poll … poll ─claim─▶ worker
//!           │                └▶ a commit that cannot be finished now: its facility stays locked, another thread tries it again
//!           └────────────────▶ heartbeat thread: all claims, one request; verdicts to the claims and the launcher
//!  stop:  no more polls ─▶ SIGTERM, 30 s, SIGKILL ─▶ reports ─▶ threads end; what is not acknowledged stays noted
//! ```

mod beat;
mod context;
mod ends;
mod error;
mod poll;
mod replay;
mod unfinished;
mod upload;
mod waiting;
mod worker;

use crate::claims::Claims;
use crate::lease::LeaseDriver;
use crate::run::engine::Engine;
use crate::source::WorkSource;
use crate::spool::Spool;
use crate::territory::{Settings, Territory};
use crate::trial::Health;
use crate::upkeep::Upkeep;
use context::{Shared, SharedParts};
pub use error::DaemonError;
use nexus_facility::Facilities;
use nexus_policy::settings::EgressSettings;
use nexus_runner::state::directory::StateDir;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at claims that end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The parts that a composition root brings.
pub struct Parts {
    /// The control plane.
    pub source: Arc<dyn WorkSource>,
    /// Starts sandboxes, in another process.
    pub driver: Arc<dyn LeaseDriver>,
    /// Recovers, and tells the operator.
    pub upkeep: Arc<dyn Upkeep>,
    /// The data directory.
    pub territory: Territory,
    /// Settings of the daemon.
    pub settings: Settings,
    /// The operator's settings of networks.
    pub egress: EgressSettings,
}

/// A daemon that runs.
pub struct Daemon {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Daemon {
    /// Recovers what an earlier daemon left, and starts the threads.
    pub fn start(parts: Parts) -> Result<Self, DaemonError> {
        let Parts { source, driver, upkeep, territory, settings, egress } = parts;
        upkeep.raise_limits();
        let host = territory.host();
        let places = StateDir::find(&host)?.ensure(&host)?;
        let claims = Claims::open(&territory.path().join("claims")).map_err(DaemonError::Claims)?;
        let facilities = Facilities::open(&territory.path().join("facilities"))?;
        let mut committed = |run, left_out: Option<&str>| replay::note_commit(&claims, &facilities, run, left_out);
        let left = upkeep.recover(&places, &mut committed).map_err(|why| DaemonError::Recovery { why })?;
        for one in &left {
            upkeep.tell(&one.why);
        }
        let held = unfinished::hold(&left, &claims, &facilities)?;
        facilities.sweep()?;
        let spool = Spool::open(&territory.path().join("spool")).map_err(DaemonError::Claims)?;
        let health = Health::new(&territory.path().join("trial"));
        let engine = Engine { driver, upkeep, host, facilities, egress, claims, spool };
        let parts = SharedParts { source, territory, unfinished: unfinished::names(&held) };
        let shared = Arc::new(Shared::new(parts, settings, health, engine));
        let mut threads = Vec::new();
        if !left.is_empty() {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("nexusd-finish".to_owned());
            let thread = thread.spawn(move || unfinished::run(&shared, &places, left, held));
            threads.push(thread.map_err(DaemonError::Thread)?);
        }
        for (name, body) in [("nexusd-beat", beat::run as fn(&Arc<Shared>)), ("nexusd-poll", poll::run)] {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared));
            threads.push(thread.map_err(DaemonError::Thread)?);
        }
        Ok(Self { shared, threads })
    }

    /// Claims no more work. What runs goes on.
    pub fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::SeqCst);
        self.shared.source.stop_polls();
    }

    /// Puts other settings in force, without a word to what runs.
    pub fn reload(&self, settings: Settings) {
        self.shared.set_settings(settings);
        self.shared.table.wake();
    }

    /// Returns the number of directives that it works on.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.table.len()
    }

    /// Ends the daemon: no more work, SIGTERM to what runs, SIGKILL after 30 s, reports. What the control plane does not
    /// acknowledge within a few seconds stays noted, and the next daemon sends it.
    pub fn stop(self) {
        self.drain();
        for live in self.shared.table.all() {
            live.control.shut_down();
        }
        self.shared.table.wake();
        self.wait_for_claims();
        self.shared.stop.set();
        for live in self.shared.table.all() {
            live.control.kill();
        }
        let workers = std::mem::take(&mut *self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in self.threads.into_iter().chain(workers) {
            if thread.join().is_err() {
                self.shared.tell("a thread of the daemon ended in a panic");
            }
        }
    }

    /// Waits until no claim is left: as long as commands have for their end, and then for reports alone.
    fn wait_for_claims(&self) {
        let end = Instant::now() + crate::run::attendant::SHUTDOWN_GRACE + worker::REPORT_WITHIN;
        let mut reports = None;
        while Instant::now() < end && !self.shared.table.wait_below(1, LOOK_EVERY) {
            if !self.shared.table.all().iter().all(|live| live.is_reporting()) {
                reports = None;
            } else if reports.get_or_insert_with(Instant::now).elapsed() >= worker::REPORT_WITHIN {
                return;
            }
        }
    }

    /// Returns the path of the data directory.
    #[must_use]
    pub fn data_dir(&self) -> &std::path::Path {
        self.shared.territory.path()
    }
}
