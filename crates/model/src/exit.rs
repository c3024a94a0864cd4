//! End of a run: the exit code that `nexus run` returns, and the typed reason beside it.

use serde::{Deserialize, Serialize};

/// Wrong use of the command line.
pub const USAGE: u8 = 2;
/// The time limit ended the run.
pub const TIMEOUT: u8 = 124;
/// Nexus refused or failed before the command started, the disk quota was hit, or changes could not be committed.
pub const REFUSED: u8 = 125;
/// The command was found and cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;
/// Added to a signal's number.
pub const SIGNAL_BASE: u8 = 128;

/// End of a process, as wait(2) reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It called exit with this code.
    Code(u8),
    /// This signal killed it.
    Signal(u8),
}

impl ExitStatus {
    /// The code that a shell would show.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => SIGNAL_BASE.wrapping_add(signal),
        }
    }
}

/// Reason for which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The command exited, or a signal that Nexus did not send ended it.
    Exit,
    /// A memory limit killed it.
    Oom,
    /// It used more disk than it may.
    DiskQuota,
    /// The time limit ended it.
    Timeout,
    /// The user ended it.
    Canceled,
    /// The lease was lost.
    LeaseLost,
    /// A policy forbids it.
    PolicyDenied,
    /// The workspace could not be prepared.
    PrepareFailed,
    /// An image could not be had.
    ImagePull,
    /// The sandbox could not be set up.
    DriverFailed,
    /// PID 1 of the sandbox was lost.
    GuestLost,
    /// A process outside replaced a path that was covered inside.
    ProtectionLost,
}

impl ExitReason {
    /// The exit code of `nexus run` for this reason, given how the command itself ended.
    #[must_use]
    pub fn exit_code(self, status: Option<ExitStatus>) -> u8 {
        match self {
            Self::Timeout => TIMEOUT,
            Self::DiskQuota
            | Self::LeaseLost
            | Self::PolicyDenied
            | Self::PrepareFailed
            | Self::ImagePull
            | Self::ProtectionLost
            | Self::DriverFailed => REFUSED,
            // Whatever the command made of it: something that it needed was killed, and then everything.
            Self::Oom => SIGNAL_BASE + 9,
            // Killed by us or by the kernel: what a shell would say of SIGKILL, unless the status says better.
            Self::Exit | Self::Canceled | Self::GuestLost => status.map_or(SIGNAL_BASE + 9, ExitStatus::shell_code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let exit = |code| Some(ExitStatus::Code(code));
        assert_eq!(ExitReason::Exit.exit_code(exit(0)), 0);
        assert_eq!(ExitReason::Exit.exit_code(exit(255)), 255);
        assert_eq!(ExitReason::Exit.exit_code(Some(ExitStatus::Signal(15))), 143);
        assert_eq!(ExitReason::Timeout.exit_code(exit(0)), 124);
        assert_eq!(ExitReason::DiskQuota.exit_code(exit(1)), 125);
        assert_eq!(ExitReason::DriverFailed.exit_code(None), 125);
        assert_eq!(ExitReason::ProtectionLost.exit_code(exit(0)), 125);
        assert_eq!(ExitReason::Oom.exit_code(Some(ExitStatus::Signal(9))), 137);
        assert_eq!(ExitReason::Oom.exit_code(exit(0)), 137, "a shell that survives its child hides nothing");
        assert_eq!(ExitReason::Canceled.exit_code(None), 137);
    }
}
