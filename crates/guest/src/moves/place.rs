//! A path of a call as an open directory and a name in it.

use super::call::End;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags};
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

/// Links on one way, as the kernel counts them at most.
const MAX_LINKS: usize = 40;

/// Opens the directory that a path leads to, part by part. A way through procfs is left to the kernel: `/proc/self` and `/dev/fd` are the
/// caller's for the caller, and this process's own here, also where a link of the workspace leads there. (openat2(2), which could
/// tell, is not there in a sandbox.)
fn walk(start: OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = start;
    let mut links = 0;
    // The next part is the last one of the list.
    let mut rest: Vec<Vec<u8>> = Vec::new();
    let push = |rest: &mut Vec<Vec<u8>>, path: &[u8]| {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        rest.extend(parts.rev().map(<[u8]>::to_vec));
    };
    push(&mut rest, path);
    leave_procfs(&at)?;
    while let Some(part) = rest.pop() {
        let next = rustix::fs::openat(&at, OsStr::from_bytes(&part), flags, Mode::empty())?;
        leave_procfs(&next)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) {
            FileType::Directory => at = next,
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                let target = rustix::fs::readlinkat(&next, c"", Vec::new())?.into_bytes();
                if target.starts_with(b"/") {
                    at = root()?;
                }
                push(&mut rest, &target);
            }
            _ => return Err(Errno::NOTDIR),
        }
    }
    Ok(at)
}

fn root() -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn leave_procfs(place: &OwnedFd) -> Result<(), Errno> {
    if rustix::fs::fstatfs(place)?.f_type == rustix::fs::PROC_SUPER_MAGIC { Err(Errno::INVAL) } else { Ok(()) }
}

impl Place {
    /// Opens the directory of a path as the thread would reach it.
    pub(super) fn of(thread: u32, end: &End) -> Result<Self, Errno> {
        let (parent, name) = split(&end.path).ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = if parent.starts_with(b"/") {
            walk(root()?, parent)?
        } else {
            let from = match end.directory {
                None => format!("/proc/{thread}/cwd"),
                Some(number) => format!("/proc/{thread}/fd/{number}"),
            };
            walk(rustix::fs::openat(CWD, from, flags, Mode::empty())?, parent)?
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
    fn a_way_through_a_process_is_left_to_the_kernel() {
        let dir = std::env::temp_dir().join(format!("nexus-place-{}", std::process::id()));
        let base = dir.to_str().unwrap();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::os::unix::fs::symlink("/proc/self/cwd", dir.join("lnk")).unwrap();
        std::os::unix::fs::symlink("lnk/x", dir.join("two")).unwrap();
        std::os::unix::fs::symlink("a/../a", dir.join("plain")).unwrap();
        std::os::unix::fs::symlink("loop", dir.join("loop")).unwrap();
        std::fs::write(dir.join("file"), "").unwrap();
        let walked = |path: &str| walk(root().unwrap(), path.as_bytes());
        for through in ["/proc/self/cwd", "/proc", "/proc/tty/../self/cwd/tmp", "/dev/fd/3/..", "/proc/1/root/tmp"] {
            assert_eq!(walked(through).err(), Some(Errno::INVAL), "{through}");
        }
        for through in ["lnk", "lnk/tmp", "two", "a/../lnk"] {
            assert_eq!(walked(&format!("{base}/{through}")).err(), Some(Errno::INVAL), "{through}");
        }
        for plain in ["a/b", "plain/b", "./a//b/", "a/../plain/b"] {
            let found = rustix::fs::fstat(walked(&format!("{base}/{plain}")).unwrap()).unwrap();
            let meta = rustix::fs::stat(dir.join("a/b")).unwrap();
            assert_eq!((found.st_dev, found.st_ino), (meta.st_dev, meta.st_ino), "{plain}");
        }
        for (path, error) in [("loop", Errno::LOOP), ("file/x", Errno::NOTDIR), ("none/x", Errno::NOENT)] {
            assert_eq!(walked(&format!("{base}/{path}")).err(), Some(error), "{path}");
        }
        assert!(walk(root().unwrap(), b"/dev/shm").is_ok());
        std::fs::remove_dir_all(dir).unwrap();
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
