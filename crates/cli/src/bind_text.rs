//! The text of a bind on the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Splits at the first `:/`, so that a path with a colon in it can be bound.
pub fn split(text: &OsStr) -> (PathBuf, Option<PathBuf>) {
    let bytes = text.as_bytes();
    match bytes.windows(2).position(|pair| pair == b":/") {
        Some(at) => (OsStr::from_bytes(&bytes[..at]).into(), Some(OsStr::from_bytes(&bytes[at + 1..]).into())),
        None => (text.into(), None),
    }
}
