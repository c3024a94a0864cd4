//! Reasons to end a tunnel before its ends are done.

use nexus_policy::net::Denial;
use std::io;

/// Reason why a tunnel was ended before its ends were done.
pub(crate) enum Stop {
    /// A decision ended it.
    Denied(Denial),
    /// One end broke, or was silent for too long.
    Broken,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<Denial> for Stop {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}
