//! Describes a supervisor that does not answer.

use nexus_model::RunId;

/// Error: a supervisor has not answered for some time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the supervisor of the sandbox {id} (process {pid}) has not answered for {seconds} s{}{}",
    if *is_stopped { ", because it is stopped" } else { "" },
    if *is_exec { "; nothing was run" } else { "" }
)]
pub struct Silent {
    /// The id of the sandbox.
    pub id: RunId,
    /// The process id of the supervisor.
    pub pid: u32,
    /// The seconds without an answer.
    pub seconds: u64,
    /// True if the process is known to be stopped.
    pub is_stopped: bool,
    /// True if the client asked for an exec.
    pub is_exec: bool,
}
