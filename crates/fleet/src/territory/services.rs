//! A daemon of this process: launcher, settings, signals.

use crate::data_dir;
use crate::driver;
use crate::failure::Failure;
use crate::failures;
use crate::profiles::caller;
use crate::signals;
use crate::signals::Signals;
use crate::territory::launcher;
use crate::territory::upkeep::TerritoryUpkeep;
use nexus_driver_namespace::launcher::Launcher;
use nexus_policy::settings::Settings as Operator;
use nexusd::{Daemon, HttpSource, Parts, Settings, Territory, TerritoryError};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// The parts of a daemon that are made before there is a thread.
pub struct Ground {
    /// The launcher process.
    pub launcher: Launcher,
    /// The operator's settings.
    pub operator: Operator,
    /// Signals to this process.
    pub signals: Signals,
}

impl Ground {
    /// Reads the settings, starts the launcher, and catches signals, in this order.
    /// With `reloads`, SIGHUP does not end the process.
    pub fn prepare(networks: u32, reloads: bool) -> Result<Self, Failure> {
        let mut operator = nexus_profiles::settings::load(&caller(), None)?;
        operator.obey(nexus_profiles::policies::load(&caller(), None)?.effective());
        let uid_base = operator.uid_base.as_ref().map_or(nexus_driver_namespace::DEFAULT_UID_BASE, |base| base.value);
        let launcher = launcher::start(uid_base, networks)?;
        let caught = if reloads { Signals::catch_for_service() } else { Signals::catch_all() };
        let signals = caught.map_err(|error| {
            Failure::refused("signals", format!("signals cannot be caught: {error}"), failures::INTERNAL_ADVICE)
        })?;
        Ok(Self { launcher, operator, signals })
    }

    /// Starts the daemon.
    pub fn daemon(
        self,
        territory: Territory,
        source: Arc<HttpSource>,
        settings: Settings,
    ) -> Result<(Daemon, Signals), Failure> {
        let Self { launcher, operator, signals } = self;
        let upkeep = TerritoryUpkeep::new(driver::local());
        let parts = Parts {
            source,
            driver: Arc::new(launcher),
            upkeep: Arc::new(upkeep),
            territory,
            settings,
            egress: operator.egress,
        };
        let daemon = Daemon::start(parts).map_err(|error| {
            let hint = "nothing was claimed; look at the data directory";
            Failure::refused(error.code(), error.to_string(), hint)
        })?;
        Ok((daemon, signals))
    }
}

/// Makes the runtime of a server.
pub fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|error| {
        Failure::refused(
            "runtime",
            format!("the threads of the server cannot be started: {error}"),
            failures::INTERNAL_ADVICE,
        )
    })
}

/// Opens the data directory of a territory.
pub fn territory(path: &std::path::Path) -> Result<Territory, Failure> {
    Territory::open(&data_dir::open(path)?).map_err(|error| of_territory(&error))
}

/// Advises what to do about a data directory.
pub fn of_territory(error: &TerritoryError) -> Failure {
    let hint = match error {
        TerritoryError::InUse { .. } => "Stop that daemon, or name another directory.",
        TerritoryError::OpenToOthers { .. } => "chmod 700 it if no other user can have written there.",
        TerritoryError::Identity { .. } => "Update nexus, or join again with another data directory.",
        TerritoryError::Io { .. } => "Look at its disk and its permissions.",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}

/// Waits for a signal that ends the process.
pub fn wait_for_end(signals: &Signals) -> Result<(), Failure> {
    wait(signals, &mut |came| !came.is_empty())
}

/// Waits for a signal that ends the process; [`signals::RELOAD`] alone calls `reload`.
pub fn wait_for_end_of_service(signals: &Signals, mut reload: impl FnMut()) -> Result<(), Failure> {
    wait(signals, &mut |came| {
        let is_end = came.iter().any(|signal| *signal != signals::RELOAD);
        if !is_end && !came.is_empty() {
            reload();
        }
        is_end
    })
}

/// Hands signals on until one of them is the end.
fn wait(signals: &Signals, is_end: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Failure> {
    loop {
        let mut list = [PollFd::new(signals, PollFlags::IN)];
        let came = match poll(&mut list, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => signals.take(),
            Err(error) => Err(error.into()),
        };
        match came {
            Ok(came) if is_end(&came) => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                let message = format!("signals cannot be waited for: {error}");
                return Err(Failure::refused("signals", message, failures::INTERNAL_ADVICE));
            }
        }
    }
}
