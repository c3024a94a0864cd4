//! Renames of directories and hard links in a layer of an ordinary user.
//!
//! The overlay of an ordinary user cannot rename a directory of the layer below: rename(2) answers EXDEV. `git mv`,
//! `os.rename` and most programs have no other way. So the calls are looked at, and a helper does what the kernel does not:
//!
//! ```text
//!  command ── rename, link ──▶ filter ──notification──▶ PID 1: reads the names ──▶ helper: looks ─┬─▶ "go on": the kernel does it
//!                                                        (waits for nothing)     (waits, may die) └─▶ does it, and answers
//! ```
//! The helper is a process like those of the command: same user, same Landlock rules, same filter of calls. It can do
//! nothing that the command could not do itself, so a command that steers or kills it gains nothing. That ends when a
//! process takes rights from itself and its children by Landlock, as tools do that sandbox their own commands: the helper
//! has these rights, and the kernel does not tell which processes lack them. From then on the kernel does all calls alone. (A filter
//! of a process's own counts before a notification, and every other right is that of the user.) PID 1 starts the helper with
//! the first such call, and again after it died. Where a call cannot be read or understood the kernel goes on with it: then
//! it is as it was without all this.
//!
//! | file | content |
//! |---|---|
//! | `filter.rs` | the filter, and how the helper's own calls pass it |
//! | `listener.rs` | the kernel's notifications |
//! | `call.rs` | one call, read from the memory of its process |
//! | `helper.rs` | the helper's loop, and what it decides |
//! | `note.rs` | notes about moves that may be half done |
//! | `place.rs` | a path of a call as a directory and a name in it |
//! | `directory.rs`, `tree.rs` | the move of a directory |
//! | `names.rs`, `same.rs` | which names are names of one file, and which files are the same |
//! | `entries.rs` | entries as the kernel shows them |
//! | `link.rs` | hard links that git checks |

mod call;
mod directory;
mod entries;
mod filter;
mod helper;
mod link;
mod listener;
mod names;
mod note;
mod place;
mod same;
mod tree;

use call::Call;
use listener::{Answer, Listener};
use nexus_channel::codec;
use nexus_model::moving::Numbers;
use note::{Note, notes};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io;

/// Calls that were handed to the helper and of which PID 1 does not know that they were answered.
const REMEMBERED: usize = 64;

/// PID 1's part: takes the notifications and hands them on.
pub(crate) struct Moves {
    listener: Listener,
    numbers: Numbers,
    helper: Option<Helper>,
    /// Handed on, oldest first.
    handed: Vec<Call>,
    /// Notes of the helper about calls that wait.
    noted: Vec<Note>,
    /// A process has fewer rights than the helper.
    is_over: bool,
}

struct Helper {
    pid: i32,
    socket: OwnedFd,
}

impl Moves {
    /// Puts this process, and all that it starts, under the filter. `None` where the kernel has no notification to give,
    /// for example because a program around this sandbox takes them: renames of directories fail there, as before.
    pub(crate) fn begin(numbers: Numbers) -> Option<Self> {
        let listener = filter::install().ok()?;
        Some(Self { listener, numbers, helper: None, handed: Vec::new(), noted: Vec::new(), is_over: false })
    }

    /// Becomes readable when a call waits.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes one call that waits and sees to it that it is answered. Waits for no process.
    pub(crate) fn take(&mut self) {
        let Some(notice) = self.listener.next() else { return };
        let id = notice.id;
        self.is_over |= i64::from(notice.data.nr) == libc::SYS_landlock_restrict_self;
        let handed = !self.is_over
            && Call::read(&notice).is_some_and(|call| self.listener.is_waiting(id) && self.hand_on(call).is_ok());
        if !handed {
            self.listener.answer(id, Answer::GoOn);
        }
    }

    fn hand_on(&mut self, call: Call) -> io::Result<()> {
        if self.handed.len() >= REMEMBERED {
            self.handed.retain(|call| self.listener.is_waiting(call.id));
        }
        let helper = match self.helper.take() {
            Some(helper) => helper,
            None => self.start_helper()?,
        };
        let message = codec::encode(&call).map_err(io::Error::other)?;
        self.noted.extend(notes(&helper.socket));
        self.noted.retain(|note| self.listener.is_waiting(note.id));
        let sent = rustix::net::send(&helper.socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        self.helper = Some(helper);
        sent?;
        self.handed.push(call);
        Ok(())
    }

    fn start_helper(&self) -> io::Result<Helper> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // SAFETY: a clone without shared memory and without a stack of its own is a fork; all other arguments are unused.
        // This process has one thread, so that its copy may go on with everything, the allocator too.
        let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        match pid {
            0 => {
                helper::serve(&self.listener, &theirs, self.numbers);
                // SAFETY: ends this copy without running anything that belongs to the guest.
                unsafe { libc::_exit(0) }
            }
            pid if pid > 0 => Ok(Helper { pid: pid as i32, socket: ours }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A process ended. If it was the helper, the kernel does the calls that the helper had not answered. Another helper finishes one
    /// that was half done.
    pub(crate) fn ended(&mut self, pid: i32) {
        let Some(helper) = self.helper.take_if(|helper| helper.pid == pid) else { return };
        let noted: Vec<Note> = self.noted.drain(..).chain(notes(&helper.socket)).collect();
        for mut call in std::mem::take(&mut self.handed) {
            let id = call.id;
            call.half_done = noted.iter().find(|note| note.id == id).map(|note| note.made).or(call.half_done);
            let answer = if call.half_done.is_none() { Answer::GoOn } else { Answer::Failed(libc::EIO) };
            let is_handed_on = call.half_done.is_some() && !self.is_over && self.listener.is_waiting(id);
            if !is_handed_on || self.hand_on(call).is_err() {
                self.listener.answer(id, answer);
            }
        }
    }
}
