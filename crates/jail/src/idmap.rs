//! User namespaces that only carry an id map, for idmapped mounts (mount_setattr(2)).
//!
//! Started by root, a sandbox has an own host uid that owns nothing. So that the owner of a workspace can still be
//! the user inside, the workspace is mounted through a map from its owner to that uid; on disk the owner stays.

use crate::clone::{Child, exit_now};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use std::ffi::{c_int, c_void};
use std::io;

/// User namespaces by file owner and host ids, made when first asked for and kept: making one takes a process.
#[derive(Debug, Default)]
pub struct Maps {
    known: Vec<(Key, OwnedFd)>,
}

/// File owner (uid, gid) and the host ids (uid, gid) that it is shown as.
type Key = ((u32, u32), (u32, u32));

/// A launcher for many owners does not keep a descriptor for each of them for ever.
const MOST: usize = 64;

impl Maps {
    /// The user namespace that maps file owner `from` to the host ids `to`.
    pub fn namespace(&mut self, from: (u32, u32), to: (u32, u32)) -> io::Result<&OwnedFd> {
        let index = if let Some(index) = self.known.iter().position(|(key, _)| *key == (from, to)) {
            index
        } else {
            let made = make(from, to)?;
            if self.known.len() == MOST {
                self.known.remove(0);
            }
            self.known.push(((from, to), made));
            self.known.len() - 1
        };
        Ok(&self.known[index].1)
    }
}

/// Makes one. The process that it takes shares our memory and ends at once (as for vfork(2), so that no page table is
/// copied); until it is waited for its namespace can still be opened and its maps written.
fn make(from: (u32, u32), to: (u32, u32)) -> io::Result<OwnedFd> {
    let child = spawn_keeper()?;
    let opened = open_mapped(child.pid.as_raw_nonzero().get(), from, to);
    child.wait()?;
    opened
}

/// Runs nothing but an exit: a page is more than it needs.
const STACK: usize = 16 * 1024;

extern "C" fn end_at_once(_: *mut c_void) -> c_int {
    exit_now(0)
}

fn spawn_keeper() -> io::Result<Child> {
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / 16);
    let mut pidfd: c_int = -1;
    // SAFETY: the stack is memory of ours of STACK bytes, used from its upper end, aligned to 16. CLONE_VFORK keeps this
    // process, which has one thread, still until the child has ended, so the stack lives and nothing is touched from both
    // sides at once. The kernel writes the pidfd before the child runs.
    let pid = unsafe {
        let top = stack.as_mut_ptr().byte_add(STACK).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_NEWUSER | libc::CLONE_PIDFD | libc::SIGCHLD;
        libc::clone(end_at_once, top, flags, std::ptr::null_mut(), &raw mut pidfd)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    match Pid::from_raw(pid) {
        // SAFETY: the kernel wrote a new descriptor of ours there (CLONE_PIDFD).
        Some(pid) => Ok(Child { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
        None => Err(io::Error::other("clone gave no pid")),
    }
}

fn open_mapped(pid: i32, from: (u32, u32), to: (u32, u32)) -> io::Result<OwnedFd> {
    write_map(pid, "uid_map", &format!("{} {} 1", from.0, to.0))?;
    write_map(pid, "gid_map", &format!("{} {} 1", from.1, to.1))?;
    let path = format!("/proc/{pid}/ns/user");
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Writes one of the map files of a process; the kernel takes it in one write.
pub fn write_map(pid: i32, file: &str, map: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("/proc/{pid}/{file}"), flags, Mode::empty())?;
    if rustix::io::write(&file, map.as_bytes())? == map.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
