//! The foreground attendant of a run: prints notices, asks about the changes, and handles signals while the run ends slowly.

use super::ask;
use super::slow_end::SlowEnd;
use crate::driver::Local;
use crate::notices::print;
use crate::signals::Signals;
use nexus_driver::Handle;
use nexus_layer::Workspace;
use nexus_model::RunId;
use nexus_runner::host::Host;
use nexus_runner::notices::Notice;
use nexus_runner::recover::finish::finish_others;
use nexus_runner::recover::layers::{Parked, park};
use nexus_runner::recover::recovery::Recovery;
use nexus_runner::request::ChangeMode;
use nexus_runner::settle::frontend::{Frontend, Question};
use nexus_runner::state::directory::StateDir;
use std::any::Any;
use std::path::Path;
use std::time::Duration;

/// The terminal of this process, and its signals.
pub struct Terminal<'a> {
    /// Signals to this process.
    pub signals: &'a Signals,
    /// The driver of the run.
    pub driver: &'a Local,
}

impl Frontend for Terminal<'_> {
    fn host(&self) -> Host {
        crate::host::here()
    }

    fn tell(&self, notice: &Notice) {
        print(notice);
    }

    fn is_ended(&self) -> bool {
        self.signals.pending().is_ok_and(|pending| pending.ending().is_some())
    }

    fn decide(&self, question: &Question<'_>) -> Result<ChangeMode, String> {
        ask::ask(question, self.signals)
    }

    fn watch_end(&self, run: RunId, layer: &Path, discards: bool) -> Option<Box<dyn Any>> {
        let watching = SlowEnd::watch(self.signals, run, layer, discards).ok()?;
        Some(Box::new(watching))
    }
}

impl Recovery for Terminal<'_> {
    fn finish_others(&self, places: &StateDir, own: &str, path: &Path, directory: &Workspace) -> Result<(), String> {
        finish_others(places, own, path, directory, &print)
    }

    fn finds(&self, run: RunId, handle: &Handle) -> bool {
        let shown = self.driver.end(&[(run, Some(handle))], Duration::ZERO);
        shown.is_ok_and(|shown| !shown.is_empty())
    }

    fn park(&self, places: &StateDir, run: &str) -> Result<(), String> {
        match park(places, run, &print)? {
            Parked::Done => Ok(()),
            Parked::NoRoom { why } => Err(why),
        }
    }
}
