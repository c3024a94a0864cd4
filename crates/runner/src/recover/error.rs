//! Names what keeps the recovery of a killed run from its end.

use nexus_model::RunId;
use std::fmt::Display;
use std::path::PathBuf;

/// A sandbox of another container or machine, whose end cannot be known here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "It cannot be known here whether the sandbox of the run {run} is gone, because it started in another container or on \
     another machine"
)]
pub struct Elsewhere {
    /// The run of the sandbox.
    pub run: RunId,
    /// The files that say so. Without them the sandbox counts as gone.
    pub files: Vec<PathBuf>,
    /// True if changes of the run wait.
    pub waits: bool,
}

impl Elsewhere {
    /// Describes how the user can end the wait for the sandbox.
    pub fn way_out(&self) -> String {
        let Self { run, files, waits } = self;
        let there = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and ");
        let then = if *waits {
            format!(
                " Then nexus changes show --run {run} shows what the run left. nexus changes reject --run {run} removes it \
                 unread."
            )
        } else {
            String::new()
        };
        format!("Use nexus there. If the sandbox is gone for certain, remove {there}.{then}")
    }
}

/// Error: a run that was killed is not cleared up, or nothing may be done with what it left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClearError {
    /// A step failed.
    #[error("an earlier run was killed and could not be cleared up: {why}")]
    NotCleared {
        /// The error of the step.
        why: String,
    },
    /// The changes of a run cannot be parked on a full disk.
    #[error(
        "the run {run} was killed, and its changes cannot be parked because the disk of the state directory is full ({why}). \
         None of them are in the workspace"
    )]
    NoRoom {
        /// The run whose changes they are.
        run: RunId,
        /// The error of the disk.
        why: String,
    },
    /// A sandbox that wrote to a directory without a layer is not known to be gone.
    #[error("{sandbox}; it wrote to {} directly", directory.display())]
    ElsewhereDirect {
        /// The sandbox that wrote.
        sandbox: Elsewhere,
        /// The directory to which it wrote.
        directory: PathBuf,
    },
    /// A sandbox that wrote to a directory without a layer is not gone.
    #[error("The kernel still takes the sandbox of the run {run} apart, which wrote to {} directly", directory.display())]
    LingersDirect {
        /// The run of the sandbox.
        run: RunId,
        /// The directory to which it wrote.
        directory: PathBuf,
    },
    /// A sandbox with a layer is not known to be gone.
    #[error(transparent)]
    Elsewhere(Elsewhere),
    /// A sandbox with a layer is not gone.
    #[error("The sandbox of the run {run} is not gone yet: the kernel still takes it apart")]
    Lingers {
        /// The run of the sandbox.
        run: RunId,
    },
    /// A sandbox is there, and a process holds the record of its run.
    #[error(
        "The sandbox of the run {run} is there, and {} holds its record: the run is not over, or another command works on \
         what it left", owner.map_or_else(|| "a process".to_owned(), |pid| format!("the process {pid}"))
    )]
    Held {
        /// The run of the sandbox.
        run: RunId,
        /// The process id of the holder, if it is one of this pid namespace.
        owner: Option<i32>,
    },
    /// The sandbox is one of a driver that this program does not have.
    #[error("The run {run} has a sandbox of the driver {driver}, which this nexus does not have")]
    OtherDriver {
        /// The run of the sandbox.
        run: RunId,
        /// The name of the driver.
        driver: String,
        /// The file of the record.
        record: PathBuf,
    },
}

impl ClearError {
    /// Makes the error of a step.
    pub fn not_cleared(why: &dyn Display) -> Self {
        Self::NotCleared { why: why.to_string() }
    }

    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotCleared { .. } => "recover",
            Self::NoRoom { .. } => "no_room",
            Self::ElsewhereDirect { .. }
            | Self::LingersDirect { .. }
            | Self::Elsewhere(_)
            | Self::Lingers { .. }
            | Self::Held { .. } => "lingers",
            Self::OtherDriver { .. } => "driver",
        }
    }
}
