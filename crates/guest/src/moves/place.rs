//! A path of a call as an open directory and a name in it.

use super::call::End;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
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

/// Reports whether a path leads through the directory of a process: `/proc/self` and `/dev/fd` are the caller's for the
/// caller, and this process's own here. (openat2(2), which could tell, is not there in a sandbox; a link of the workspace that
/// leads there is not found.)
fn is_of_a_process(path: &[u8]) -> bool {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    parts.windows(2).any(|pair| match pair[0] {
        b"proc" => pair[1].ends_with(b"self") || pair[1].iter().all(u8::is_ascii_digit),
        b"dev" => pair[1] == b"fd",
        _ => false,
    })
}

impl Place {
    /// Opens the directory of a path as the thread would reach it.
    pub(super) fn of(thread: u32, end: &End) -> Result<Self, Errno> {
        let (parent, name) = split(&end.path).ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if is_of_a_process(parent) {
            return Err(Errno::INVAL);
        }
        let open = |at: BorrowedFd<'_>| rustix::fs::openat(at, OsStr::from_bytes(parent), flags, Mode::empty());
        let directory = if parent.starts_with(b"/") {
            open(CWD)?
        } else {
            let from = match end.directory {
                None => format!("/proc/{thread}/cwd"),
                Some(number) => format!("/proc/{thread}/fd/{number}"),
            };
            open(rustix::fs::openat(CWD, from, flags, Mode::empty())?.as_fd())?
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
    fn a_path_through_a_process_is_found() {
        for path in ["/proc/self/cwd/a", "proc/self/cwd", "//proc/./thread-self/root", "/proc/17/cwd/", "/dev/fd/3/x"] {
            assert!(is_of_a_process(path.as_bytes()), "{path}");
        }
        for path in ["/proc", "a/proc/b", "/work/self/proc", "/dev/shm/x", "fd/dev"] {
            assert!(!is_of_a_process(path.as_bytes()), "{path}");
        }
    }

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
