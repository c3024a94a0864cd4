//! The bounds that a pump gets and the outcome that it gives.

use crate::run::covers::Covers;
use crate::run::names::AskedNames;
use crate::run::tally::Tally;
use nexus_driver::{Ended, NotStarted};
use nexus_model::ExitReason;
use nexus_model::proof::ProofItem;
use nexus_runner::state::commit_lock::Mounting;
use rustix::fd::OwnedFd;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How the run is bounded.
pub struct Bounds {
    /// Until SIGTERM.
    pub timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Whether the kernel may kill for memory.
    pub watch_memory: bool,
    /// Measures the layer; an answer of `true` is too much.
    pub over_disk: Option<Box<dyn FnMut(Look) -> io::Result<bool>>>,
    /// The workspace, until the sandbox has mounted it.
    pub mounting: Option<Mounting>,
    /// Paths whose covers a process of the host can take away.
    pub covers: Option<Covers>,
}

/// How much of the layer is measured at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Some of it, from where the last look stopped.
    On,
    /// All of it.
    AtAll,
}

/// Our ends of what the command has.
pub struct Ends {
    /// Its stdout; the master of its terminal comes later.
    pub out: Option<OwnedFd>,
    /// Its stderr.
    pub err: Option<OwnedFd>,
    /// Its stdin.
    pub input: Option<OwnedFd>,
    /// Whether it has a terminal.
    pub terminal: bool,
}

/// What happened.
#[derive(Debug)]
pub struct Outcome {
    /// How the command ended, if it started.
    pub ended: Option<Ended>,
    /// Why the run ended.
    pub reason: ExitReason,
    /// Why it did not start.
    pub not_started: Option<NotStarted>,
    /// The proof.
    pub proof: Vec<ProofItem>,
    /// The upper folder of a layer in memory.
    pub layer: Option<OwnedFd>,
    /// When the command had been started.
    pub spawned: Option<Instant>,
    /// When its first output came.
    pub first_output: Option<Instant>,
    /// All that came on stdout and stderr, whatever was passed on of it.
    pub output: Tally,
    /// Reports that the command was killed without its grace, because somebody asked twice.
    pub hurried: bool,
    /// The sandbox was killed, and the kernel had not taken it apart a second later.
    pub lingers: bool,
    /// A covered path that a process of the host replaced, which ended the run.
    pub uncovered: Option<PathBuf>,
    /// Protected files that changed while the run went on.
    pub altered: Vec<PathBuf>,
    /// Names that the command asked for, where there is no network.
    pub names: AskedNames,
}

/// An error that ended the run from our side.
#[derive(Debug)]
pub struct Broken {
    /// What failed.
    pub error: io::Error,
    /// What had happened before; `None` when the command cannot have started.
    pub outcome: Option<Box<Outcome>>,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self { error, outcome: None }
    }
}
