//! States of a directive and the facts that decide its next one.

use super::fence::Fence;
use crate::exit::ExitReason;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// State of a directive, as programs and people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A person has to approve the directive.
    AwaitingApproval,
    /// The directive waits for a territory.
    Queued,
    /// A territory has claimed the directive and has not reported its start.
    Leased,
    /// A territory has reported its start.
    Running,
    /// The command exited with 0.
    Succeeded,
    /// The command failed, or Nexus could not run it.
    Failed,
    /// A user ended the directive.
    Canceled,
    /// A time limit ended the directive.
    TimedOut,
    /// A policy or a person refused the directive.
    Rejected,
}

impl State {
    /// All states, in the order of a life.
    pub const ALL: &'static [State] = &[
        Self::AwaitingApproval,
        Self::Queued,
        Self::Leased,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
        Self::TimedOut,
        Self::Rejected,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AwaitingApproval => "awaiting_approval",
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::TimedOut => "timed_out",
            Self::Rejected => "rejected",
        }
    }

    /// Returns whether the state never changes.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled | Self::TimedOut | Self::Rejected)
    }

    /// Returns whether a territory holds the directive.
    #[must_use]
    pub fn is_held(self) -> bool {
        matches!(self, Self::Leased | Self::Running)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a state was not known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name:?} is not a state of a directive")]
pub struct UnknownState {
    /// Name that is not a state.
    pub name: String,
}

impl FromStr for State {
    type Err = UnknownState;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|state| state.name() == name)
            .ok_or_else(|| UnknownState { name: name.to_owned() })
    }
}

/// End of a directive as a daemon reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishStatus {
    /// The command exited with 0.
    Succeeded,
    /// The command failed, or Nexus could not run it.
    Failed,
    /// A user ended the directive.
    Canceled,
    /// The time limit ended the directive.
    TimedOut,
}

impl FinishStatus {
    /// The state that the report leads to.
    #[must_use]
    pub fn state(self) -> State {
        match self {
            Self::Succeeded => State::Succeeded,
            Self::Failed => State::Failed,
            Self::Canceled => State::Canceled,
            Self::TimedOut => State::TimedOut,
        }
    }
}

/// Treatment of a running directive whose territory is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnLeaseLoss {
    /// The directive fails: with the reason `commit_unknown`, as its changes may be committed.
    #[default]
    Fail,
    /// Another territory runs the directive again.
    Requeue,
}

/// Reason for which a directive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The daemon reported the end; its own reason stands in the report.
    Reported,
    /// A user canceled the directive, and nothing of it is committed.
    CanceledBeforeStart,
    /// A user canceled the directive, and its daemon was silent: it may have ended otherwise.
    Unconfirmed,
    /// The territory was lost before it was allowed to commit changes.
    LeaseLost,
    /// The territory was lost, and may have committed changes.
    CommitUnknown,
    /// The daemon kept the directive longer than all of its limits together.
    Overrun,
    /// The directive waited longer than its `queue_timeout_seconds`.
    QueueTimeout,
    /// A policy forbids the directive.
    PolicyDenied,
    /// A person refused the approval.
    ApprovalRejected,
    /// The approval was not answered, or not used, in time.
    ApprovalExpired,
    /// The specification differs from the approved one.
    ApprovalVoid,
}

impl EndReason {
    /// The name on the wire; `None` for the reason that the daemon reports.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Reported => None,
            Self::CanceledBeforeStart => Some("canceled"),
            Self::Unconfirmed => Some("unconfirmed"),
            Self::LeaseLost => Some("lease_lost"),
            Self::CommitUnknown => Some("commit_unknown"),
            Self::Overrun => Some("timeout"),
            Self::QueueTimeout => Some("queue_timeout"),
            Self::PolicyDenied => Some("policy_denied"),
            Self::ApprovalRejected => Some("approval_rejected"),
            Self::ApprovalExpired => Some("approval_expired"),
            Self::ApprovalVoid => Some("approval_void"),
        }
    }

    /// Returns whether the server ended the directive without knowing how it ended on its territory.
    #[must_use]
    pub fn is_assumed(self) -> bool {
        matches!(self, Self::CommitUnknown | Self::Unconfirmed)
    }
}

/// State in which a directive is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Initial {
    /// The directive may run at once.
    Queued,
    /// A person has to approve the directive.
    AwaitingApproval,
    /// A policy forbids the directive.
    Forbidden,
}

/// Facts about a directive that decide its next state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Directive {
    /// Present state of the directive.
    pub state: State,
    /// Reason of the end, in a terminal state.
    pub reason: Option<EndReason>,
    /// Fence of the latest claim or cancellation.
    pub fence: Fence,
    /// Number of claims so far.
    pub attempt: u32,
    /// Number of claims whose start was reported.
    pub starts: u32,
    /// The daemon commits the changes: the directive is never queued again.
    pub settling: bool,
    /// A user asked for the end of the directive.
    pub cancel_requested: bool,
    /// Treatment of a lost territory.
    pub on_lease_loss: OnLeaseLoss,
}

impl Directive {
    /// Returns whether the directive has an end that its territory may correct.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        self.reason.is_some_and(EndReason::is_assumed)
    }

    /// Returns a new directive.
    #[must_use]
    pub fn new(initial: Initial, on_lease_loss: OnLeaseLoss) -> Self {
        let (state, reason) = match initial {
            Initial::Queued => (State::Queued, None),
            Initial::AwaitingApproval => (State::AwaitingApproval, None),
            Initial::Forbidden => (State::Rejected, Some(EndReason::PolicyDenied)),
        };
        Self {
            state,
            reason,
            fence: Fence::default(),
            attempt: 0,
            starts: 0,
            settling: false,
            cancel_requested: false,
            on_lease_loss,
        }
    }
}

/// Returns the state and the reason with which an own command's end is reported: `succeeded` means exit 0, any other exit of
/// the command is `failed` with the reason `exit`.
impl From<ExitReason> for FinishStatus {
    fn from(reason: ExitReason) -> Self {
        match reason {
            ExitReason::Timeout => Self::TimedOut,
            ExitReason::Canceled => Self::Canceled,
            _ => Self::Failed,
        }
    }
}
