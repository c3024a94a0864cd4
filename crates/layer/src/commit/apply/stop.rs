//! The reasons for which a step of a commit is not carried out.

use crate::beneath::is_other_mount;
use crate::entries::changes::Outside;
use crate::journal::units::Cause;
use nexus_model::ByteText;
use std::io;

/// Detail of a conflict: another process removed the staging directory, and everything in it.
pub(super) const NO_SLOTS: &str = "the staging directory is gone";

/// Reason for which a step was not carried out.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The path is kept back.
    KeepBack(Keeping),
    /// The commit cannot go on.
    Io(io::Error),
}

/// Details of a path that is kept back.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(super) outside: Outside,
    pub(super) beside: Option<ByteText>,
    pub(super) detail: Option<String>,
    pub(super) in_layer: bool,
}

impl Stop {
    pub(super) fn keep(outside: Outside) -> Self {
        Self::with(outside, None)
    }

    /// Returns the reason for a step because of which its unit does not come.
    pub(super) fn because(cause: Cause) -> Self {
        Self::with(cause.outside, cause.detail.map(str::to_owned))
    }

    fn with(outside: Outside, detail: Option<String>) -> Self {
        Self::KeepBack(Keeping { outside, beside: None, detail, in_layer: true })
    }

    /// Returns the reason for a failed call that moves one path and has changed nothing. Where the file system moves nothing
    /// between the two places, the path could never come: the commit is taken back as a whole.
    pub(super) fn moving(error: io::Error) -> Self {
        if is_other_mount(&error) { Self::Io(error) } else { Self::blocked(error) }
    }

    /// Returns the reason for a failed call that opens or changes one path and has changed nothing.
    pub(super) fn blocked(error: io::Error) -> Self {
        use rustix::io::Errno;
        let of_path = [
            Errno::BUSY,
            Errno::PERM,
            Errno::ACCESS,
            Errno::ROFS,
            Errno::XDEV,
            Errno::TXTBSY,
            Errno::NOTDIR,
            Errno::LOOP,
            Errno::NOENT,
            Errno::ISDIR,
            Errno::NAMETOOLONG,
            Errno::MLINK,
            Errno::OVERFLOW,
        ];
        if !of_path.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            return Self::Io(error);
        }
        Self::with(Outside::Blocked, Some(error.to_string()))
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(super) type Done = Result<(), Stop>;
