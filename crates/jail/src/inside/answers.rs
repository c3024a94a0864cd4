//! Reads the errors and the kinds of files that calls on a path return while binds are covered.

use crate::mount_targets::show;
use crate::steps::{Step, StepError};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Reports whether an open file is something that a command connects to or writes into.
pub(super) fn is_endpoint(stat: &Stat) -> bool {
    matches!(FileType::from_raw_mode(stat.st_mode), FileType::Socket | FileType::Fifo)
}

/// Reports whether nothing is at a path, or something else than a directory on the way to it.
pub(super) fn is_gone(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

pub(super) fn is_denied(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ACCESS.raw_os_error())
}

/// The error about a path that another process moved.
pub(super) fn moved(path: &Path) -> StepError {
    refused(path, "was moved or replaced while the sandbox was set up")
}

pub(super) fn refused(path: &Path, why: &str) -> StepError {
    StepError::new(Step::HidePaths, format!("{} {why}", show(path)))
}
