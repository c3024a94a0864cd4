//! Messages between a caller and a warm launcher.
//!
//! ```text
//!  door     ── Greeting ──▶ caller                    at once; nothing to a stranger, whose connection is closed
//!  caller   ── Start ─────▶ launcher                  once, at most; comes with its claim
//!  launcher ── Answer ────▶ caller                    Started comes with channel, pidfd and then those of `extras`
//! ```
//! The connection stays open as long as the run: when it is closed, the launcher kills the sandbox.

use crate::launcher::wire::Started;
use nexus_driver::StartError;
use nexus_model::Plan;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The first words of a door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Greeting {
    /// The launcher starts a sandbox for this caller.
    Ready {
        /// Number of sandboxes that it has started.
        started: u64,
        /// Time after which it ends unless it starts another one, in seconds.
        idle_s: u64,
    },
    /// The caller is not like the process that started the launcher.
    Unlike {
        /// The facts that differ.
        what: Vec<String>,
        /// Number of sandboxes that it has started.
        started: u64,
    },
}

/// A request to start a sandbox. The plan comes without the command and its variables: the launcher needs neither, and what
/// it does not have cannot be in the memory of a sandbox of another run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The plan of the sandbox.
    pub plan: Plan,
    /// The handle of the sandbox, as JSON.
    pub handle: String,
    /// Time of CLOCK_BOOTTIME after which the caller does not wait any more.
    pub until: Duration,
}

/// The answer to it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The sandbox was cloned.
    Started {
        /// Statements of the driver about it.
        started: Started,
        /// Comes with the upper directory of a layer in memory.
        has_upper: bool,
        /// Comes with a watch of the overlay.
        has_watch: bool,
    },
    /// It was not, and nothing of it is left.
    NotStarted(StartError),
    /// The launcher did nothing: it has nothing ready for this plan.
    Declined,
}
