//! Reasons for which a command did not start.

use crate::ChannelError;
use nexus_channel::frames::ExecStage;
use nexus_model::exit::{NOT_EXECUTABLE, NOT_FOUND};
use nexus_model::proof::ProofItem;
use std::time::Duration;

/// The command did not start, and why.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The sandbox could not be set up.
    #[error("setting the sandbox up failed at {step}: {detail}{}", errno_text(*errno))]
    SetUp {
        /// Name of the step.
        step: String,
        /// errno, or 0.
        errno: i32,
        /// Detail of the failure, for a person to read.
        detail: String,
    },
    /// A wall was not in force.
    #[error("the proof of the sandbox failed: {}", failed_checks(proof))]
    Proof {
        /// All checks of the proof with their answers.
        proof: Vec<ProofItem>,
    },
    /// The file could not be executed.
    #[error("{}{}", stage_text(*stage), errno_text(*errno))]
    Exec {
        /// Stage of the start that failed.
        stage: ExecStage,
        /// Error number, as errno(3) lists them.
        errno: i32,
    },
    /// The channel ended before anything was said.
    #[error("the sandbox ended before it could say why: {0}")]
    Lost(#[from] ChannelError),
    /// No start was reported in time.
    #[error("the sandbox reported no start of the command within {} s, and was ended", within.as_secs_f32())]
    Silent {
        /// Time that a set-up has.
        within: Duration,
    },
    /// The values of secrets are not those that the plan names.
    #[error("the plan names {named} secrets, and {given} values were given")]
    Secrets {
        /// Number of names in the plan.
        named: usize,
        /// Number of values.
        given: usize,
    },
    /// The guest did not keep to the protocol.
    #[error("the guest said {0}, which does not belong here")]
    Protocol(String),
}

fn errno_text(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(" ({})", std::io::Error::from_raw_os_error(errno)) }
}

fn failed_checks(proof: &[ProofItem]) -> String {
    let failed = proof.iter().filter(|item| !item.holds());
    failed
        .map(|item| format!("{} gave {}, not {}", item.check, item.seen, item.expected))
        .collect::<Vec<_>>()
        .join("; ")
}

fn stage_text(stage: ExecStage) -> &'static str {
    match stage {
        ExecStage::Spawn => "the command's process could not be made",
        ExecStage::Prepare => "the command's process could not be prepared",
        ExecStage::Chdir => "the working directory could not be entered",
        ExecStage::Exec => "the command could not be executed",
    }
}

impl NotStarted {
    /// The exit code that a shell would give, when it is the command's own fault.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            // ENOENT, ENOTDIR
            Self::Exec { stage: ExecStage::Exec, errno: 2 | 20 } => Some(NOT_FOUND),
            Self::Exec { stage: ExecStage::Exec, .. } => Some(NOT_EXECUTABLE),
            _ => None,
        }
    }
}
