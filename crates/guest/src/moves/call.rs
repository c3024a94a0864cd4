//! One call, read from the registers and the memory of its process.
//!
//! Memory is read once. What the helper does it does with these copies; where the kernel goes on, it reads them
//! again. So a process that changes them meanwhile gets one of the calls that it wrote, with its own rights.

use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

/// Longest path that the kernel takes, with its end (PATH_MAX).
const MAX_PATH: usize = 4096;

/// One end of a rename or link: a path, and the directory in which it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// A descriptor of the process; `None` is its working directory.
    pub(super) directory: Option<i32>,
    /// Neither empty nor longer than the kernel takes.
    pub(super) path: Vec<u8>,
}

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// rename(2) and its kin.
    Rename,
    /// link(2) and linkat(2).
    Link,
}

/// A call that waits for its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) id: u64,
    /// Its thread, as this pid namespace numbers it.
    pub(super) thread: u32,
    pub(super) kind: Kind,
    pub(super) old: End,
    pub(super) new: End,
    pub(super) flags: u32,
    /// The inode of a directory that a helper made for this call and that has come to its new name. The rest is to be done.
    pub(super) half_done: Option<u64>,
}

/// A call as its registers say it: the addresses of its paths.
#[derive(Debug, PartialEq, Eq)]
struct Registers {
    kind: Kind,
    old: (Option<i32>, u64),
    new: (Option<i32>, u64),
    flags: u32,
}

impl Registers {
    fn of(data: &libc::seccomp_data) -> Option<Self> {
        let [first, second, third, fourth, fifth, _] = data.args;
        let directory = |register: u64| (register as i32 != libc::AT_FDCWD).then_some(register as i32);
        let at = |kind, flags| Self { kind, old: (directory(first), second), new: (directory(third), fourth), flags };
        let plain = |kind| Self { kind, old: (None, first), new: (None, second), flags: 0 };
        match i64::from(data.nr) {
            libc::SYS_rename => Some(plain(Kind::Rename)),
            libc::SYS_renameat => Some(at(Kind::Rename, 0)),
            libc::SYS_renameat2 => Some(at(Kind::Rename, fifth as u32)),
            libc::SYS_link => Some(plain(Kind::Link)),
            libc::SYS_linkat => Some(at(Kind::Link, fifth as u32)),
            _ => None,
        }
    }
}

impl Call {
    /// Reads a call that the helper may have to do. `None` leaves it to the kernel: memory that cannot be read, and links
    /// of programs other than git, which alone compares what a link made.
    pub(super) fn read(notice: &libc::seccomp_notif) -> Option<Self> {
        let Registers { kind, old, new, flags } = Registers::of(&notice.data)?;
        if kind == Kind::Link && !is_git(notice.pid) {
            return None;
        }
        let place = format!("/proc/{}/mem", notice.pid);
        let memory = rustix::fs::openat(CWD, place, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?.into();
        let end = |(directory, address)| Some(End { directory, path: text(&memory, address)? });
        Some(Self { id: notice.id, thread: notice.pid, kind, old: end(old)?, new: end(new)?, flags, half_done: None })
    }
}

/// Returns a text of a process's memory, without the zero at its end.
fn text(memory: &std::fs::File, address: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; MAX_PATH];
    // Ends early where the next page is not there.
    let read = memory.read_at(&mut bytes, address).ok()?;
    bytes.truncate(read);
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    (!bytes.is_empty()).then_some(bytes)
}

/// Returns whether a thread runs git, by the name of its program: `git`, or one of git's own such as `git-remote-https`.
fn is_git(thread: u32) -> bool {
    let Ok(program) = rustix::fs::readlinkat(CWD, format!("/proc/{thread}/exe"), Vec::new()) else { return false };
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(program.as_bytes()));
    path.file_name().is_some_and(|name| name.as_bytes() == b"git" || name.as_bytes().starts_with(b"git-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(number: libc::c_long, args: [u64; 6]) -> libc::seccomp_data {
        libc::seccomp_data { nr: number as i32, arch: 0, instruction_pointer: 0, args }
    }

    #[test]
    fn every_form_of_a_call_says_where_its_paths_are() {
        let here = libc::AT_FDCWD as u32;
        let plain = |kind| Some(Registers { kind, old: (None, 7), new: (None, 8), flags: 0 });
        let at = |kind, flags| Some(Registers { kind, old: (Some(3), 7), new: (None, 8), flags });
        let arguments = [3, 7, here.into(), 8, 1 | (9 << 32), 0];
        assert_eq!(Registers::of(&data(libc::SYS_rename, [7, 8, 0, 0, 0, 0])), plain(Kind::Rename));
        assert_eq!(Registers::of(&data(libc::SYS_link, [7, 8, 0, 0, 0, 0])), plain(Kind::Link));
        assert_eq!(Registers::of(&data(libc::SYS_renameat, arguments)), at(Kind::Rename, 0));
        assert_eq!(Registers::of(&data(libc::SYS_renameat2, arguments)), at(Kind::Rename, 1));
        assert_eq!(Registers::of(&data(libc::SYS_linkat, arguments)), at(Kind::Link, 1));
        assert_eq!(Registers::of(&data(libc::SYS_unlink, arguments)), None);
    }

    #[test]
    fn a_path_is_read_up_to_its_end_and_never_further() {
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let read = |bytes: &[u8]| text(&memory, bytes.as_ptr() as u64);
        assert_eq!(read(b"a/b\0more"), Some(b"a/b".to_vec()));
        assert_eq!(read(b"\0"), None);
        assert_eq!(read(&[b'x'; MAX_PATH + 1]), None, "no end within what the kernel takes");
        assert_eq!(text(&memory, 8), None, "nothing is there");
    }
}
