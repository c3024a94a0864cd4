//! The parts that all threads of a daemon share.

use super::waiting::Waiting;
use crate::live::Table;
use crate::run::engine::Engine;
use crate::source::WorkSource;
use crate::stop::Stop;
use crate::territory::{Settings, Territory};
use crate::trial::Health;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

/// The parts of [`Shared`] that come from outside.
pub struct SharedParts {
    /// The control plane.
    pub source: Arc<dyn WorkSource>,
    /// The lock of the data directory.
    pub territory: Territory,
    /// The claims whose commits could not be finished, by name.
    pub unfinished: BTreeSet<String>,
}

/// The parts that all threads share.
pub struct Shared {
    /// The control plane.
    pub source: Arc<dyn WorkSource>,
    /// The engine that runs directives.
    pub engine: Engine,
    settings: RwLock<Arc<Settings>>,
    /// The health of the sandbox profile.
    pub health: Health,
    /// The claims that the daemon works on.
    pub table: Table,
    /// The kept files that the control plane does not have yet.
    pub uploads: Waiting,
    /// The claims whose commits could not be finished at the start, by name: they are reported when they are.
    pub unfinished: BTreeSet<String>,
    /// Ends waits between two calls.
    pub stop: Stop,
    /// No work is claimed any more.
    pub is_draining: AtomicBool,
    /// The threads that work on claims.
    pub workers: Mutex<Vec<JoinHandle<()>>>,
    /// The lock of the data directory.
    pub territory: Territory,
}

impl Shared {
    /// Puts the parts together.
    pub fn new(parts: SharedParts, settings: Settings, health: Health, engine: Engine) -> Self {
        let SharedParts { source, territory, unfinished } = parts;
        Self {
            source,
            engine,
            settings: RwLock::new(Arc::new(settings)),
            health,
            table: Table::default(),
            uploads: Waiting::default(),
            unfinished,
            stop: Stop::default(),
            is_draining: AtomicBool::new(false),
            workers: Mutex::default(),
            territory,
        }
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other settings in force. What runs keeps the bounds under which it was admitted.
    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Tells the operator something.
    pub fn tell(&self, line: &str) {
        self.engine.upkeep.tell(line);
    }

    /// Reports whether no work is claimed any more.
    pub fn takes_no_work(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }
}
