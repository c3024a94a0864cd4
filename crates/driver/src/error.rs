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
        /// Which driver.
        driver: &'static str,
        /// Which profile.
        profile: &'static str,
    },
    /// A guarantee that the plan requires is not there.
    #[error("{guarantee} is required and cannot be given here: {reason}")]
    Guarantee {
        /// Which.
        guarantee: Guarantee,
        /// Why not.
        reason: String,
    },
    /// A limit cannot be enforced. Nexus never pretends.
    #[error("the {limit} limit cannot be enforced here: {reason}")]
    Limit {
        /// Which.
        limit: &'static str,
        /// Why not.
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
        /// What the handle says.
        found: String,
        /// Who was asked.
        expected: &'static str,
    },
}

/// What is there could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {place}: {source}", place = place.display())]
pub struct InventoryError {
    /// Where.
    pub place: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Something could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove {what}: {source}")]
pub struct DestroyError {
    /// What is left.
    pub what: String,
    /// Why.
    pub source: io::Error,
}
