//! Decides how the end of a run is reported.

use nexus_model::ExitReason;
use nexus_model::directive::{FinishStatus, NOT_COMMITTED};

/// The end of a run, as far as it decides the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The engine made a report.
    Ran {
        /// Exit code of the command, or of Nexus.
        exit: u8,
        /// Reason for the end.
        reason: ExitReason,
        /// True if the changes are not where the directive wanted them.
        unsettled: bool,
    },
    /// The engine failed.
    Broke,
    /// The repository could not be cloned.
    PrepareFailed,
    /// The territory does not run the directive.
    Refused,
    /// The daemon was shut down, or a daemon before it died.
    LeaseLost,
    /// Nothing is committed, and the directive may run again: its commit was announced, and no answer came.
    NotCommitted,
    /// A daemon before it died while it committed, and the recovery finished the commit; how the command ended is not known.
    CommittedAtRecovery,
}

/// The part of the report that says how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Status on the wire.
    pub status: FinishStatus,
    /// Exit code on the wire.
    pub exit_code: Option<i64>,
    /// Reason on the wire.
    pub reason: &'static str,
}

/// Exit code of a run that did not come to its command.
const REFUSED: i64 = nexus_model::exit::REFUSED as i64;

/// Returns the report of an end. `canceled` says that the control plane asked for it, `stopped` that the daemon shuts down.
#[must_use]
pub fn verdict(end: &End, canceled: bool, stopped: bool) -> Verdict {
    let failed = |exit_code, reason| Verdict { status: FinishStatus::Failed, exit_code, reason };
    let (exit, reason, unsettled) = match end {
        End::LeaseLost => return failed(None, "lease_lost"),
        End::NotCommitted => return failed(None, NOT_COMMITTED),
        End::CommittedAtRecovery => return failed(None, "committed_at_recovery"),
        End::Refused => return failed(None, "policy_denied"),
        End::PrepareFailed if !canceled && !stopped => return failed(None, "prepare_failed"),
        End::Broke if !canceled && !stopped => return failed(Some(REFUSED), "driver_failed"),
        End::PrepareFailed | End::Broke => (nexus_model::exit::REFUSED, ExitReason::Canceled, false),
        End::Ran { exit, reason, unsettled } => (*exit, *reason, *unsettled),
    };
    let code = Some(i64::from(exit));
    match reason {
        ExitReason::Canceled if canceled => {
            Verdict { status: FinishStatus::Canceled, exit_code: code, reason: "canceled" }
        }
        ExitReason::Canceled | ExitReason::LeaseLost => failed(code, "lease_lost"),
        ExitReason::Timeout => Verdict { status: FinishStatus::TimedOut, exit_code: code, reason: "timeout" },
        ExitReason::Exit if unsettled => failed(code, "driver_failed"),
        ExitReason::Exit if exit == 0 => Verdict { status: FinishStatus::Succeeded, exit_code: code, reason: "exit" },
        ExitReason::Exit => failed(code, "exit"),
        ExitReason::Oom => failed(code, "oom"),
        ExitReason::DiskQuota => failed(code, "disk_quota"),
        ExitReason::PolicyDenied => failed(code, "policy_denied"),
        ExitReason::PrepareFailed => failed(code, "prepare_failed"),
        ExitReason::ImagePull => failed(code, "image_pull"),
        ExitReason::GuestLost => failed(code, "guest_lost"),
        ExitReason::DriverFailed | ExitReason::ProtectionLost => failed(code, "driver_failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(exit: u8, reason: ExitReason) -> End {
        End::Ran { exit, reason, unsettled: false }
    }

    fn told(end: &End, canceled: bool, stopped: bool) -> (FinishStatus, Option<i64>, &'static str) {
        let Verdict { status, exit_code, reason } = verdict(end, canceled, stopped);
        (status, exit_code, reason)
    }

    #[test]
    fn only_an_exit_of_zero_whose_changes_are_there_succeeds() {
        use FinishStatus::{Canceled, Failed, Succeeded, TimedOut};
        assert_eq!(told(&ran(0, ExitReason::Exit), false, false), (Succeeded, Some(0), "exit"));
        assert_eq!(told(&ran(3, ExitReason::Exit), false, false), (Failed, Some(3), "exit"));
        let parked = End::Ran { exit: 125, reason: ExitReason::Exit, unsettled: true };
        assert_eq!(told(&parked, false, false), (Failed, Some(125), "driver_failed"));
        assert_eq!(told(&ran(124, ExitReason::Timeout), false, false), (TimedOut, Some(124), "timeout"));
        assert_eq!(told(&ran(143, ExitReason::Canceled), true, false), (Canceled, Some(143), "canceled"));
        assert_eq!(told(&ran(143, ExitReason::Canceled), false, true), (Failed, Some(143), "lease_lost"));
        assert_eq!(told(&ran(137, ExitReason::Oom), false, false), (Failed, Some(137), "oom"));
        assert_eq!(told(&End::Broke, false, false), (Failed, Some(125), "driver_failed"));
        assert_eq!(told(&End::Broke, true, false).0, Canceled);
        assert_eq!(told(&End::Refused, true, false), (Failed, None, "policy_denied"));
        assert_eq!(told(&End::LeaseLost, false, false), (Failed, None, "lease_lost"));
        assert_eq!(told(&End::NotCommitted, true, true), (Failed, None, "not_committed"));
        assert_eq!(told(&End::CommittedAtRecovery, false, false), (Failed, None, "committed_at_recovery"));
        assert_eq!(told(&End::PrepareFailed, false, false), (Failed, None, "prepare_failed"));
    }

    #[test]
    fn a_command_that_ended_before_its_cancel_keeps_its_end() {
        assert_eq!(told(&ran(0, ExitReason::Exit), true, false).0, FinishStatus::Succeeded);
        assert_eq!(told(&ran(1, ExitReason::Exit), true, true), (FinishStatus::Failed, Some(1), "exit"));
    }
}
