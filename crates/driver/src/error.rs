//! One error for each operation of a driver, each with a code that does not change.

use nexus_model::Guarantee;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// A step of the set-up that failed. A driver names its own steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {detail}{}", errno_text(*errno))]
pub struct SetupError {
    /// Name of the step.
    pub step: String,
    /// Error number of the kernel, or 0.
    pub errno: i32,
    /// Detail of the failure, for a person to read.
    pub detail: String,
}

fn errno_text(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(" ({})", io::Error::from_raw_os_error(errno)) }
}

/// A plan cannot be run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PrepareError {
    /// The driver does not know this sandbox profile.
    #[error("the {driver} driver has no sandbox profile {profile}")]
    Profile {
        /// Name of the driver.
        driver: String,
        /// Name of the profile.
        profile: String,
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
        limit: String,
        /// Reason for which it cannot be held.
        reason: String,
    },
    /// A crash inside would reach a service of the host.
    #[error("{reason}")]
    CoreHandler {
        /// Says which pattern, or why it is unknown.
        reason: String,
    },
    /// A step that changes nothing failed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The process that launches for this driver cannot be asked.
    #[error("{reason}")]
    Launcher {
        /// Reason, for a person to read.
        reason: String,
    },
}

impl PrepareError {
    /// Returns the code of this error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Profile { .. } => "profile",
            Self::Guarantee { .. } => "guarantee",
            Self::Limit { .. } => "limit",
            Self::CoreHandler { .. } => "core_pattern",
            Self::Setup(_) => "set_up",
            Self::Launcher { .. } => "launcher",
        }
    }
}

/// A sandbox could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StartError {
    /// A step of the set-up failed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A resource that the user has only a number of is used up.
    #[error("{reason}")]
    Limit {
        /// Resource that is used up.
        limit: String,
        /// Reason, for a person to read.
        reason: String,
    },
    /// The handle is not of this driver.
    #[error("the handle names the driver {found}, not {expected}")]
    WrongDriver {
        /// Driver that the handle names.
        found: String,
        /// Driver that was given the handle.
        expected: String,
    },
    /// The handle is damaged, or of another run.
    #[error("the handle of the sandbox cannot be used: {reason}")]
    Handle {
        /// Reason for which it cannot be used.
        reason: String,
    },
    /// The process that launches for this driver cannot be asked.
    #[error("{reason}")]
    Launcher {
        /// Reason, for a person to read.
        reason: String,
    },
}

impl StartError {
    /// Returns the code of this error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Setup(_) => "set_up",
            Self::Limit { .. } => "limit",
            Self::WrongDriver { .. } => "driver",
            Self::Handle { .. } => "handle",
            Self::Launcher { .. } => "launcher",
        }
    }
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

impl InventoryError {
    /// Returns the code of this error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "inventory"
    }
}

/// A sandbox could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum DestroyError {
    /// A process or a control group is left.
    #[error("cannot remove {what}: {source}")]
    Left {
        /// Process or control group that is left.
        what: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The handle is not of this driver. Nothing was removed.
    #[error("the handle names the driver {found}, not {expected}")]
    WrongDriver {
        /// Driver that the handle names.
        found: String,
        /// Driver that was given the handle.
        expected: String,
    },
    /// The handle is damaged, or names what is not of its run. Nothing was removed.
    #[error("the handle of the sandbox cannot be used: {reason}")]
    Handle {
        /// Reason for which it cannot be used.
        reason: String,
    },
}

impl DestroyError {
    /// Returns the code of this error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Left { .. } => "destroy",
            Self::WrongDriver { .. } => "driver",
            Self::Handle { .. } => "handle",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_error_of_a_driver_has_its_stable_code() {
        let text = String::new;
        let setup = || SetupError { step: text(), errno: 0, detail: text() };
        let prepare = [
            PrepareError::Profile { driver: text(), profile: text() },
            PrepareError::Guarantee { guarantee: Guarantee::KernelSeparate, reason: text() },
            PrepareError::Limit { limit: text(), reason: text() },
            PrepareError::CoreHandler { reason: text() },
            PrepareError::Setup(setup()),
            PrepareError::Launcher { reason: text() },
        ];
        let codes: Vec<_> = prepare.iter().map(PrepareError::code).collect();
        assert_eq!(codes, ["profile", "guarantee", "limit", "core_pattern", "set_up", "launcher"]);
        let start = [
            StartError::Setup(setup()),
            StartError::Limit { limit: text(), reason: text() },
            StartError::WrongDriver { found: text(), expected: text() },
            StartError::Handle { reason: text() },
            StartError::Launcher { reason: text() },
        ];
        let codes: BTreeSet<_> = start.iter().map(StartError::code).collect();
        assert_eq!(codes, BTreeSet::from(["set_up", "limit", "driver", "handle", "launcher"]));
        let source = || io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(DestroyError::Left { what: text(), source: source() }.code(), "destroy");
        assert_eq!(DestroyError::Handle { reason: text() }.code(), "handle");
        assert_eq!(InventoryError { place: PathBuf::new(), source: source() }.code(), "inventory");
    }
}
