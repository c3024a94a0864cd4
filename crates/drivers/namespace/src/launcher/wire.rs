//! Requests to a launcher process and its answers.
//!
//! A handle goes as JSON: it is made for being saved, and its form there is the one that is versioned.

use nexus_driver::{Handle, PrepareError, StartError};
use nexus_model::proof::Expectation;
use nexus_model::{Guarantee, Plan, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// A request of the launcher's user.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Name everything that a plan will touch.
    Prepare(Plan),
    /// Start a sandbox.
    Start {
        /// Plan of the sandbox.
        plan: Plan,
        /// Handle of the sandbox.
        handle: String,
    },
    /// Kill the sandbox of a run at this time, and start none for the run after it. A later request replaces the time.
    KeepUntil {
        /// Run of the sandbox, which may not have been started yet.
        run: RunId,
        /// Time of CLOCK_BOOTTIME.
        until: Duration,
    },
}

impl Request {
    /// Returns the kind of the request, for the log: a plan holds values that no log may have.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prepare(_) => "prepare",
            Self::Start { .. } => "start",
            Self::KeepUntil { .. } => "keep until",
        }
    }
}

/// The answer to one request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The handle of a plan.
    Prepared(String),
    /// The plan cannot be run here.
    NotPrepared(PrepareError),
    /// The sandbox was cloned. Comes with its channel, its pidfd and perhaps the upper directory of its layer.
    Started(Started),
    /// The sandbox was not started.
    NotStarted(StartError),
    /// The time is noted.
    Noted,
}

/// Statements of the driver about a sandbox that it started.
#[derive(Debug, Serialize, Deserialize)]
pub struct Started {
    /// First process of the sandbox.
    pub pid: i32,
    /// Guarantees that the driver holds.
    pub guarantees: BTreeSet<Guarantee>,
    /// Attempts that the driver expects before a command.
    pub expect: Vec<Expectation>,
}

/// Writes a handle.
pub fn handle_to_json(handle: &Handle) -> Result<String, String> {
    serde_json::to_string(handle).map_err(|error| format!("the handle cannot be written: {error}"))
}

/// Reads a handle.
pub fn handle_from_json(json: &str) -> Result<Handle, String> {
    serde_json::from_str(json).map_err(|error| format!("the handle cannot be read: {error}"))
}
