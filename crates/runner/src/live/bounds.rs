//! The bounds that a pump gets and the outcome that it returns.

use crate::live::covers::Covers;
use crate::live::input::Feed;
use crate::live::names::AskedNames;
use crate::live::tally::Tally;
use crate::secrets::Redactor;
use crate::state::commit_lock::Mounting;
use nexus_driver::{Ended, NotStarted};
use nexus_layer::BaseSurvey;
use nexus_model::ExitReason;
use nexus_model::proof::ProofItem;
use rustix::fd::OwnedFd;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Time in which a sandbox reports the start of its command: a set-up takes milliseconds, also on a busy machine seldom a
/// second.
const SET_UP_WITHIN: Duration = Duration::from_secs(60);

/// Returns the time that a set-up has.
#[must_use]
pub fn set_up_within() -> Duration {
    #[cfg(feature = "inject")]
    if let Some(ms) = std::env::var("NEXUS_INJECT_SET_UP_MS").ok().and_then(|ms| ms.parse().ok()) {
        return Duration::from_millis(ms);
    }
    SET_UP_WITHIN
}

/// Bounds a run.
pub struct Bounds {
    /// The time until the start has to be reported.
    pub set_up: Duration,
    /// The time until SIGTERM.
    pub timeout: Option<Duration>,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// True if the kernel may kill for memory.
    pub watch_memory: bool,
    /// Measures the layer; an answer of `true` is too much.
    pub over_disk: Option<Box<dyn FnMut(Look) -> io::Result<bool>>>,
    /// Looks at the files that git had when the run began.
    pub survey: Option<BaseSurvey>,
    /// The workspace, until the sandbox has mounted it.
    pub mounting: Option<Mounting>,
    /// Paths whose covers a process of the host can take away.
    pub covers: Option<Covers>,
    /// Set when the run was ended from outside or by its time limit: then output that is not taken is waited for only a short
    /// time. A signal handler of the caller may set it.
    pub was_ended: Arc<AtomicBool>,
    /// Keep secrets out of both streams of output; `None` for a run without secrets.
    pub redactors: Option<[Redactor; 2]>,
}

/// Selects how much of the layer is measured at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// A part of the layer, from where the last look stopped.
    On,
    /// All of the layer.
    AtAll,
}

/// Holds our ends of the streams of a command.
pub struct Ends {
    /// The end of stdout; the master of its terminal comes later.
    pub out: Option<OwnedFd>,
    /// The end of stderr.
    pub err: Option<OwnedFd>,
    /// The end of stdin that the attendant's input goes to.
    pub input: Option<OwnedFd>,
    /// Passes the caller's standard input on.
    pub feed: Option<Feed>,
    /// True if the command has a terminal.
    pub terminal: bool,
}

/// Describes a run that is over.
#[derive(Debug)]
pub struct Outcome {
    /// The end of the command, if it started.
    pub ended: Option<Ended>,
    /// The reason for the end of the run.
    pub reason: ExitReason,
    /// The reason why the command did not start.
    pub not_started: Option<NotStarted>,
    /// The proof of the confinement.
    pub proof: Vec<ProofItem>,
    /// The upper directory of a layer in memory.
    pub layer: Option<OwnedFd>,
    /// The time at which the command had been started.
    pub spawned: Option<Instant>,
    /// The time of the first output.
    pub first_output: Option<Instant>,
    /// All bytes of stdout and stderr, also those that were not passed on.
    pub output: Tally,
    /// True if the command was killed without its grace, because the end was asked for twice.
    pub hurried: bool,
    /// The sandbox was killed, and the kernel had not taken it apart a second later.
    pub kernel_holds_it: bool,
    /// A covered path that a process of the host replaced, which ended the run.
    pub uncovered: Option<PathBuf>,
    /// Protected files that changed while the run went on.
    pub altered: Vec<PathBuf>,
    /// Names that the command asked for, where there is no network.
    pub names: AskedNames,
    /// The look at the files that git had when the run began, as far as it came.
    pub survey: Option<BaseSurvey>,
}

/// An error that ended the run from our side.
#[derive(Debug)]
pub struct Broken {
    /// The call that failed.
    pub error: io::Error,
    /// The run before that; `None` when the command cannot have started.
    pub outcome: Option<Box<Outcome>>,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self { error, outcome: None }
    }
}
