//! The host's side of the first command of a sandbox.
//!
//! ```text
//!  Session::start ─▶ (Layer)? ─▶ Up ─▶ Started ─▶ Ended
//!                        └─▶ NotStarted (set-up, proof, exec) ◀──┘        any other order ends the session
//! ```

use crate::{Channel, ChannelError, Sandbox};
use nexus_model::exit::{NOT_EXECUTABLE, NOT_FOUND};
use nexus_model::frames::{ExecRequest, ExecStage, GuestFrame, HostFrame, ProofPlan, VERSION};
use nexus_model::proof::ProofItem;
use nexus_model::{ExitStatus, Plan};
use rustix::fd::{BorrowedFd, OwnedFd};

/// The command did not start, and why.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The sandbox could not be set up.
    #[error("setting the sandbox up failed at {step}: {detail}{}", errno_text(*errno))]
    SetUp {
        /// The step.
        step: String,
        /// errno, or 0.
        errno: i32,
        /// What it was about.
        detail: String,
    },
    /// A wall was not in force.
    #[error("the proof of the sandbox failed: {}", failed_checks(proof))]
    Proof {
        /// All checks.
        proof: Vec<ProofItem>,
    },
    /// The file could not be executed.
    #[error("{}{}", stage_text(*stage), errno_text(*errno))]
    Exec {
        /// What was being done.
        stage: ExecStage,
        /// errno.
        errno: i32,
    },
    /// The channel ended before anything was said.
    #[error("the sandbox ended before it could say why: {0}")]
    Lost(#[from] ChannelError),
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

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Code or signal.
    pub status: ExitStatus,
    /// Processor time of it and its waited-for children, in microseconds.
    pub cpu_us: u64,
    /// Peak memory of its largest process, in bytes.
    pub max_rss_bytes: u64,
}

/// What the guest told.
#[derive(Debug)]
pub enum Event {
    /// The sandbox stands.
    Up,
    /// The upper folder of a layer in memory.
    Layer(OwnedFd),
    /// The command runs; its proof.
    Started(Vec<ProofItem>),
    /// The command did not start.
    NotStarted(NotStarted),
    /// The command ended.
    Ended(Ended),
}

const LEADER: u32 = 1;

/// One command in one sandbox.
pub struct Session<'a> {
    channel: &'a Channel,
    up: bool,
}

impl<'a> Session<'a> {
    /// Asks for the plan's command at once; the guest reads it when it stands. The three descriptors become stdin,
    /// stdout and stderr.
    pub fn start(sandbox: &'a Sandbox, plan: &Plan, stdio: [BorrowedFd<'_>; 3]) -> Result<Self, NotStarted> {
        let channel = &sandbox.channel;
        let session = Self { channel, up: false };
        let request = leader(plan, sandbox.proof.clone());
        let hello = channel.send(&HostFrame::Hello { version: VERSION }, &[]);
        match hello.and_then(|()| channel.send(&HostFrame::Exec(request), &stdio)) {
            // It may have ended with a reason; that is read as the first event.
            Ok(()) | Err(ChannelError::Closed) => Ok(session),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the next thing that the guest tells. `Err` means that it is lost.
    pub fn hear(&mut self) -> Result<Event, ChannelError> {
        let (frame, mut descriptors) = self.channel.receive::<GuestFrame>()?;
        let wrong = |frame: &GuestFrame| Event::NotStarted(NotStarted::Protocol(format!("{frame:?}")));
        Ok(match frame {
            GuestFrame::Hello { version: VERSION } if !self.up => {
                self.up = true;
                Event::Up
            }
            GuestFrame::Layer if !self.up && descriptors.len() == 1 => Event::Layer(descriptors.remove(0)),
            GuestFrame::SetupFailed { step, errno, detail } if !self.up => {
                Event::NotStarted(NotStarted::SetUp { step, errno, detail })
            }
            GuestFrame::Started { exec: LEADER, proof } if self.up && proof.iter().all(ProofItem::holds) => {
                Event::Started(proof)
            }
            GuestFrame::ProofFailed { exec: LEADER, proof } if self.up => {
                Event::NotStarted(NotStarted::Proof { proof })
            }
            GuestFrame::ExecFailed { exec: LEADER, errno, stage } if self.up => {
                Event::NotStarted(NotStarted::Exec { stage, errno })
            }
            GuestFrame::Exited { exec: LEADER, status, cpu_us, max_rss_bytes } if self.up => {
                Event::Ended(Ended { status, cpu_us, max_rss_bytes })
            }
            other => wrong(&other),
        })
    }

    /// Signals the command and its process group.
    pub fn signal_leader(&self, signal: u8) -> Result<(), ChannelError> {
        self.channel.send(&HostFrame::Signal { exec: Some(LEADER), signal }, &[])
    }

    /// Signals everything inside.
    pub fn signal_all(&self, signal: u8) -> Result<(), ChannelError> {
        self.channel.send(&HostFrame::Signal { exec: None, signal }, &[])
    }
}

fn leader(plan: &Plan, proof: ProofPlan) -> ExecRequest {
    ExecRequest {
        exec: LEADER,
        leader: true,
        argv: plan.argv.clone(),
        env: plan.env.clone(),
        cwd: plan.cwd.clone(),
        proof,
    }
}
