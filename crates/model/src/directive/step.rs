//! The transitions of a directive.

use super::fence::Fence;
use super::state::{Directive, EndReason, FinishStatus, OnLeaseLoss, State};

/// Number of started attempts after which a directive is not queued again: a directive that kills each daemon ends.
pub const MAX_STARTS: u32 = 3;
/// Reason of a report that is `Event::NotCommitted`, on the wire.
pub const NOT_COMMITTED: &str = "not_committed";

/// Something that happens to a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A person approves the directive.
    Approve,
    /// A person refuses the directive, or takes the approval back before a territory claims it.
    Reject,
    /// The approval was not answered, or not used, in time.
    ApprovalExpired,
    /// The specification differs from the approved one.
    ApprovalVoid,
    /// The policy in force at the claim forbids the directive.
    PolicyDenied,
    /// The directive waited too long for a territory.
    QueueTimeout,
    /// A territory claims the directive.
    Claim {
        /// Number of this claim, above every earlier one.
        fence: Fence,
    },
    /// The claim was not started in time, or its answer reached no daemon.
    Returned {
        /// Number of the claim.
        fence: Fence,
    },
    /// The daemon reports the start.
    Started {
        /// Number of the claim.
        fence: Fence,
    },
    /// The daemon reports that it commits the changes.
    Settling {
        /// Number of the claim.
        fence: Fence,
    },
    /// The daemon reports the end.
    Finished {
        /// Number of the claim.
        fence: Fence,
        /// End as reported; it is stored as it is.
        status: FinishStatus,
    },
    /// The lease of the claim has passed.
    LeaseLost {
        /// Number of the claim.
        fence: Fence,
        /// Nothing but the directive itself decides whether it runs again. An approval without a use that is left forbids it.
        may_restart: bool,
        /// The directive asks that its changes are committed.
        commits: bool,
    },
    /// The holder of the claim reports that nothing of it is or will be committed, and that it has no end of its own: its commit was
    /// announced, and no answer came.
    NotCommitted {
        /// Number of the claim.
        fence: Fence,
        /// Nothing but the directive itself decides whether it runs again.
        may_restart: bool,
    },
    /// The daemon keeps the directive longer than all of its limits together.
    Overrun {
        /// Number of the claim.
        fence: Fence,
        /// Number that makes every later report of the claim stale.
        next: Fence,
    },
    /// A user asks for the end.
    Cancel {
        /// The daemon that holds the directive reads the verdict of its heartbeat before it starts a claim.
        confirms: bool,
        /// Number that makes every later report of the claim stale.
        next: Fence,
    },
    /// The daemon was silent since the user asked for the end.
    CancelUnconfirmed {
        /// Number of the claim.
        fence: Fence,
    },
}

/// Result of an event that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The directive has changed.
    Changed(Directive),
    /// The event repeats one that has happened already; nothing changes.
    Duplicate,
}

/// Reason why an event was refused. Nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The directive has ended.
    #[error("the directive is over: {state}")]
    Over {
        /// Terminal state of the directive.
        state: State,
    },
    /// The event is for another state.
    #[error("the directive is {state}")]
    WrongState {
        /// Present state of the directive.
        state: State,
    },
    /// The event names a claim that is not the present one.
    #[error("the fence {given} is not the present one, {present}")]
    StaleFence {
        /// Fence of the event.
        given: Fence,
        /// Fence of the directive.
        present: Fence,
    },
}

impl Refusal {
    /// The stable code of the refusal.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Over { .. } => "directive_over",
            Self::WrongState { .. } => "wrong_state",
            Self::StaleFence { .. } => "stale_fence",
        }
    }
}

/// Returns the directive after `event`.
pub fn step(directive: &Directive, event: &Event) -> Result<Step, Refusal> {
    let state = directive.state;
    let tells = matches!(event, Event::Finished { .. } | Event::NotCommitted { .. });
    if state.is_terminal() && !(directive.is_assumed() && tells) {
        return Err(Refusal::Over { state });
    }
    if let Some(given) = event.claim().filter(|given| *given != directive.fence) {
        return Err(Refusal::StaleFence { given, present: directive.fence });
    }
    let wrong = Err(Refusal::WrongState { state });
    if event.claim().is_some() && !state.is_held() && !state.is_terminal() {
        return wrong;
    }
    if let Some(given) = event.new_fence().filter(|given| *given <= directive.fence) {
        return Err(Refusal::StaleFence { given, present: directive.fence });
    }
    let next = match *event {
        Event::Approve if state != State::AwaitingApproval => return wrong,
        Event::Reject | Event::ApprovalExpired | Event::ApprovalVoid | Event::PolicyDenied
            if !matches!(state, State::AwaitingApproval | State::Queued) =>
        {
            return wrong;
        }
        Event::Approve => Directive { state: State::Queued, ..*directive },
        Event::Reject => ended(directive, State::Rejected, EndReason::ApprovalRejected),
        Event::ApprovalExpired => ended(directive, State::Rejected, EndReason::ApprovalExpired),
        Event::ApprovalVoid => ended(directive, State::Rejected, EndReason::ApprovalVoid),
        Event::PolicyDenied => ended(directive, State::Rejected, EndReason::PolicyDenied),
        Event::QueueTimeout | Event::Claim { .. } if state != State::Queued => return wrong,
        Event::QueueTimeout => ended(directive, State::Failed, EndReason::QueueTimeout),
        Event::Claim { fence } => {
            Directive { state: State::Leased, fence, attempt: directive.attempt.saturating_add(1), ..*directive }
        }
        Event::Returned { .. } if state != State::Leased => return wrong,
        Event::Returned { .. } => requeued(directive),
        Event::Started { .. } if state == State::Running => return Ok(Step::Duplicate),
        Event::Started { .. } => started(directive),
        Event::Settling { .. } if state != State::Running => return wrong,
        Event::Settling { .. } if directive.settling => return Ok(Step::Duplicate),
        Event::Settling { .. } => Directive { settling: true, ..*directive },
        Event::Finished { status, .. } => {
            let running = if state == State::Leased { started(directive) } else { *directive };
            ended(&running, status.state(), EndReason::Reported)
        }
        Event::LeaseLost { .. } | Event::NotCommitted { .. } if state == State::Leased => requeued(directive),
        Event::LeaseLost { may_restart, commits, .. } => lost(directive, may_restart, commits),
        Event::NotCommitted { may_restart, .. } => not_committed(directive, may_restart),
        Event::Overrun { next, .. } => {
            Directive { fence: next, ..ended(directive, State::TimedOut, EndReason::Overrun) }
        }
        Event::CancelUnconfirmed { .. } if !directive.cancel_requested => return wrong,
        Event::CancelUnconfirmed { .. } => ended(directive, State::Canceled, EndReason::Unconfirmed),
        Event::Cancel { confirms, next } => match state {
            State::Running => asked_to_end(directive),
            State::Leased if !confirms => asked_to_end(directive),
            _ => Directive { fence: next, ..ended(directive, State::Canceled, EndReason::CanceledBeforeStart) },
        },
    };
    Ok(if next == *directive { Step::Duplicate } else { Step::Changed(next) })
}

impl Event {
    /// Returns the claim that the event is about.
    fn claim(&self) -> Option<Fence> {
        match *self {
            Self::Returned { fence }
            | Self::Started { fence }
            | Self::Settling { fence }
            | Self::Finished { fence, .. }
            | Self::LeaseLost { fence, .. }
            | Self::NotCommitted { fence, .. }
            | Self::Overrun { fence, .. }
            | Self::CancelUnconfirmed { fence } => Some(fence),
            Self::Approve
            | Self::Reject
            | Self::ApprovalExpired
            | Self::ApprovalVoid
            | Self::PolicyDenied
            | Self::QueueTimeout
            | Self::Claim { .. }
            | Self::Cancel { .. } => None,
        }
    }
}

impl Event {
    /// Returns the fence that the event brings.
    fn new_fence(&self) -> Option<Fence> {
        match *self {
            Self::Claim { fence: next } | Self::Overrun { next, .. } | Self::Cancel { next, .. } => Some(next),
            _ => None,
        }
    }
}

fn ended(directive: &Directive, state: State, reason: EndReason) -> Directive {
    Directive { state, reason: Some(reason), ..*directive }
}

fn started(directive: &Directive) -> Directive {
    Directive { state: State::Running, starts: directive.starts.saturating_add(1), ..*directive }
}

/// The fence stays: the next claim takes a larger one, and a report of the returned claim finds a state that has no holder.
fn requeued(directive: &Directive) -> Directive {
    if directive.cancel_requested {
        return ended(directive, State::Canceled, EndReason::CanceledBeforeStart);
    }
    Directive { state: State::Queued, settling: false, ..*directive }
}

fn lost(directive: &Directive, may_restart: bool, commits: bool) -> Directive {
    if directive.cancel_requested {
        return ended(directive, State::Canceled, EndReason::Unconfirmed);
    }
    // A claim that runs again asks for its commit and waits for the answer; any other commits while its own lease lasts, and tells at once
    // or later. So the server knows that nothing was committed only of the former.
    let asks = directive.on_lease_loss == OnLeaseLoss::Requeue;
    if commits && (!asks || directive.settling) {
        return ended(directive, State::Failed, EndReason::CommitUnknown);
    }
    without_commit(directive, may_restart)
}

fn without_commit(directive: &Directive, may_restart: bool) -> Directive {
    if directive.on_lease_loss == OnLeaseLoss::Requeue && may_restart && directive.starts < MAX_STARTS {
        return requeued(directive);
    }
    ended(directive, State::Failed, EndReason::LeaseLost)
}

/// A directive that has ended is not queued again: a user who read the end may have run the work again.
fn not_committed(directive: &Directive, may_restart: bool) -> Directive {
    if directive.cancel_requested || directive.state == State::Canceled {
        return ended(directive, State::Canceled, EndReason::CanceledBeforeStart);
    }
    without_commit(directive, may_restart && !directive.state.is_terminal())
}

fn asked_to_end(directive: &Directive) -> Directive {
    Directive { cancel_requested: true, ..*directive }
}
