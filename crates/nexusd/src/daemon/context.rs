//! The parts that all threads of a daemon share.

use crate::live::Table;
use crate::run::engine::Engine;
use crate::source::WorkSource;
use crate::stop::Stop;
use crate::territory::{Settings, Territory};
use crate::trial::Health;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The parts that all threads share.
pub struct Shared {
    /// The control plane.
    pub source: Arc<dyn WorkSource>,
    /// The engine that runs directives.
    pub engine: Engine,
    /// The settings of the daemon.
    pub settings: Settings,
    /// The health of the sandbox profile.
    pub health: Health,
    /// The claims that the daemon works on.
    pub table: Table,
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
    /// Tells the operator something.
    pub fn tell(&self, line: &str) {
        self.engine.upkeep.tell(line);
    }

    /// Reports whether no work is claimed any more.
    pub fn takes_no_work(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }
}
