//! One error for each operation of a driver.

use nexus_jail::StepError;
use nexus_model::Guarantee;
use std::io;
use std::path::PathBuf;

/// A plan cannot be run here.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The driver does not know this sandbox profile.
    #[error("the {driver} driver has no sandbox profile {profile}")]
    Profile {
        /// Name of the driver.
        driver: &'static str,
        /// Name of the profile.
        profile: &'static str,
    },
    /// A guarantee that the plan requires is not there.
    #[error("{guarantee} is required and cannot be given here: {reason}")]
    Guarantee {
        /// Guarantee that cannot be given.
        guarantee: Guarantee,
        /// Reason for which it cannot be given.
        reason: String,
    },
    /// A limit cannot be enforced. Nexus never pretends.
    #[error("the {limit} limit cannot be enforced here: {reason}")]
    Limit {
        /// Limit that cannot be held.
        limit: &'static str,
        /// Reason for which it cannot be held.
        reason: String,
    },
    /// A crash inside would reach a service of the host.
    #[error("{reason}")]
    CoreHandler {
        /// Says which pattern, or why it is unknown.
        reason: String,
    },
    /// A step that only looks failed.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// A sandbox could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A step of the set-up.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The handle is not of this driver.
    #[error("the handle names the driver {found}, not {expected}")]
    WrongDriver {
        /// Driver that the handle names.
        found: String,
        /// Driver that was given the handle.
        expected: &'static str,
    },
}

/// The inventory of this host could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {place}: {source}", place = place.display())]
pub struct InventoryError {
    /// Path that could not be read.
    pub place: PathBuf,
    /// Error of the system call.
    pub source: io::Error,
}

/// Something could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove {what}: {source}")]
pub struct DestroyError {
    /// Process or control group that is left.
    pub what: String,
    /// Error of the system call.
    pub source: io::Error,
}
