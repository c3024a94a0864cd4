//! User namespaces that only carry an id map, for idmapped mounts (mount_setattr(2)).
//!
//! Started by root, a sandbox has an own host uid that owns nothing. So that the owner of a workspace can still be
//! the user inside, the workspace is mounted through a map from its owner to that uid; on disk the owner stays.

use crate::clone::{Child, GONE_WITHIN, NotGone, exit_now};
use crate::identity::Identity;
use crate::leave_out::{Wall, stands};
use crate::steps::{Step, StepError};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use std::ffi::{c_int, c_void};
use std::io;
use std::time::Instant;

/// User namespaces by their maps, made when first asked for and kept: making one takes a process.
#[derive(Debug, Default)]
pub struct Maps {
    known: Vec<(Map, OwnedFd)>,
}

/// Says what a mount makes of the files of other owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Their ids are invalid: the kernel lets no process write such a file, whatever its mode says, and refuses to copy
    /// it into a layer. For what the command reaches on the host itself.
    Invalid,
    /// They keep their ids, so that modes count as they do outside. For the two sides of a layer: without this a layer's
    /// own directory, which belongs to root, cannot be entered, and an overlay copies nothing of other owners.
    LauncherState,
}

/// Shows the files of one owner as those of the sandbox's host ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// File owner (uid, gid).
    pub from: (u32, u32),
    /// Host ids (uid, gid) that the owner is shown as. On disk nothing may belong to them, so as file owners they stay
    /// invalid.
    pub to: (u32, u32),
    /// Treatment of all other ids.
    pub others: Others,
}

/// A launcher for many owners does not keep a descriptor for each of them for ever.
const MAX: usize = 64;

impl Maps {
    /// The user namespace with this map.
    pub fn namespace(&mut self, map: Map) -> io::Result<&OwnedFd> {
        let index = if let Some(index) = self.known.iter().position(|(known, _)| *known == map) {
            index
        } else {
            let made = make(map)?;
            if self.known.len() == MAX {
                self.known.remove(0);
            }
            self.known.push((map, made));
            self.known.len() - 1
        };
        Ok(&self.known[index].1)
    }
}

/// Makes one. The process that it takes shares our memory and ends at once (as for vfork(2), so that no page table is
/// copied); until it is waited for its namespace can still be opened and its maps written. It sends no signal at its end: where the
/// caller has SIGCHLD ignored, the kernel would free its number at once, and another process could get it.
fn make(map: Map) -> io::Result<OwnedFd> {
    let child = spawn_keeper()?;
    let opened = open_mapped(child.pid.as_raw_nonzero().get(), map);
    // It has ended: CLONE_VFORK kept this process still until then, and it runs nothing but its exit.
    if !child.wait_until(Instant::now() + GONE_WITHIN)? {
        let left = NotGone { pid: child.pid.as_raw_nonzero().get() };
        return Err(io::Error::other(StepError::new(Step::IdMapNamespace, left.to_string())));
    }
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
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_NEWUSER | libc::CLONE_PIDFD;
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

fn open_mapped(pid: i32, map: Map) -> io::Result<OwnedFd> {
    write_map(pid, "uid_map", &lines(map.from.0, map.to.0, map.others))?;
    write_map(pid, "gid_map", &lines(map.from.1, map.to.1, map.others))?;
    let path = format!("/proc/{pid}/ns/user");
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the lines of a map file: the id on disk, the id shown, how many.
fn lines(from: u32, to: u32, others: Others) -> String {
    let mut lines = vec![(from, to, 1)];
    if others == Others::LauncherState {
        let mut next = 0;
        // The last id is the invalid one.
        for edge in [from.min(to), from.max(to), u32::MAX] {
            if edge > next {
                lines.push((next, next, edge - next));
            }
            next = edge.saturating_add(1);
        }
    }
    let lines: Vec<String> = lines.iter().map(|(first, shown, count)| format!("{first} {shown} {count}\n")).collect();
    lines.concat()
}

/// Writes one of the map files of a process; the kernel takes it in one write.
fn write_map(pid: i32, file: &str, map: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("/proc/{pid}/{file}"), flags, Mode::empty())?;
    if rustix::io::write(&file, map.as_bytes())? == map.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Writes the maps of a child that root started.
pub fn write_maps(pid: i32, identity: &Identity) -> io::Result<()> {
    let root = if stands(Wall::IdMap) { "" } else { "\n1001 0 1" };
    write_map(pid, "uid_map", &format!("{}{root}", identity.uid_map()))?;
    write_map(pid, "gid_map", &format!("{}{root}", identity.gid_map()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the id that a map shows for an id on disk.
    fn shown(text: &str, id: u32) -> Option<u32> {
        text.lines().find_map(|line| {
            let mut numbers = line.split(' ').map(|number| number.parse::<u32>().unwrap());
            let (first, shown, count) = (numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap());
            id.checked_sub(first).filter(|offset| *offset < count).map(|offset| shown + offset)
        })
    }

    #[test]
    fn a_map_of_one_owner_knows_no_other() {
        let text = lines(1000, 200_000, Others::Invalid);
        assert_eq!(text, "1000 200000 1\n");
    }

    #[test]
    fn other_owners_keep_their_ids_and_the_sandbox_owns_nothing_else() {
        for (from, to) in [(1000, 200_000), (0, 200_000), (300_000, 200_000), (199_999, 200_000), (u32::MAX - 1, 0)] {
            let text = lines(from, to, Others::LauncherState);
            assert_eq!(shown(&text, from), Some(to), "{text}");
            assert_eq!(shown(&text, to), None, "{text}");
            assert_eq!(shown(&text, u32::MAX), None, "{text}");
            for id in [0, 1, 999, 1001, 199_998, 200_001, 300_001, u32::MAX - 1] {
                if id != from && id != to {
                    assert_eq!(shown(&text, id), Some(id), "{text}");
                }
            }
        }
    }

    #[test]
    fn an_owner_that_is_shown_as_itself_is_mapped_once() {
        let text = lines(7, 7, Others::LauncherState);
        assert_eq!(text, "7 7 1\n0 0 7\n8 8 4294967287\n");
    }
}
