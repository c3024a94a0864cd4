//! A path of a call as an open directory and a name in it.

use super::call::End;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// The directory that holds an entry, and the entry's name.
#[derive(Debug)]
pub(super) struct Place {
    /// Holds the entry.
    pub(super) directory: OwnedFd,
    /// One name, neither `.` nor `..`.
    pub(super) name: Vec<u8>,
}

/// Splits a path into what leads to the directory, and the name. `None` if the last part does not name an entry.
/// Slashes at the end are left out: only directories are moved here.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = &path[..end];
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at(start);
    let parent = if parent.is_empty() { &b"."[..] } else { parent };
    (name != b"." && name != b"..").then_some((parent, name))
}

impl Place {
    /// Opens the directory of a path as the thread would reach it.
    pub(super) fn of(thread: u32, end: &End) -> Result<Self, Errno> {
        let (parent, name) = split(&end.path).ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |at: &OwnedFd, path: &[u8]| rustix::fs::openat(at, OsStr::from_bytes(path), flags, Mode::empty());
        let directory = if parent.starts_with(b"/") {
            rustix::fs::openat(CWD, OsStr::from_bytes(parent), flags, Mode::empty())?
        } else {
            let from = match end.directory {
                None => format!("/proc/{thread}/cwd"),
                Some(number) => format!("/proc/{thread}/fd/{number}"),
            };
            open(&rustix::fs::openat(CWD, from, flags, Mode::empty())?, parent)?
        };
        Ok(Self { directory, name: name.to_vec() })
    }

    pub(super) fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_a_directory_and_a_name() {
        let split = |path: &'static str| split(path.as_bytes());
        assert_eq!(split("a"), Some((&b"."[..], &b"a"[..])));
        assert_eq!(split("a/b//"), Some((&b"a/"[..], &b"b"[..])));
        assert_eq!(split("/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split("../b/c"), Some((&b"../b/"[..], &b"c"[..])));
        for odd in ["/", "//", ".", "a/..", "a/./"] {
            assert_eq!(split(odd), None, "{odd}");
        }
    }
}
