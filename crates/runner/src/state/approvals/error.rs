//! Errors of approvals.

use nexus_model::approval::ApprovalRefusal;
use nexus_receipt::DirectoryError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Largest number of approvals that are kept. Of those that are over the oldest make room for a new one.
pub(super) const MAX_APPROVALS: usize = 1000;
/// Time that another process may hold the lock.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Approvals cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// The directory cannot be used.
    #[error("{source}")]
    Directory {
        /// The reason why it cannot be used.
        source: DirectoryError,
    },
    /// A call failed.
    #[error("the approvals in {} cannot be used: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// A file cannot be understood.
    #[error("the approval {} cannot be understood: {why}", path.display())]
    Broken {
        /// Path of the file.
        path: PathBuf,
        /// The reason why it cannot be understood.
        why: String,
    },
    /// Another process holds the lock.
    #[error("another process has used the approvals for {} s", LOCK_WAIT.as_secs())]
    Busy,
    /// There are too many.
    #[error("there are more than {MAX_APPROVALS} approvals")]
    TooMany,
    /// No approval has this id.
    #[error("there is not an approval whose id begins with {text:?}, or more than one")]
    Unknown {
        /// The id as written.
        text: String,
    },
    /// A file of the command cannot be hashed.
    #[error("{} cannot become part of what is approved: {why}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason for which it cannot.
        why: String,
    },
    /// The event cannot happen.
    #[error(transparent)]
    Refused(#[from] ApprovalRefusal),
}

impl ApprovalError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Unknown { .. } => "no_approval",
            _ => "approvals",
        }
    }
}
