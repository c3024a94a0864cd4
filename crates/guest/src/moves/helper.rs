//! The helper: takes one call after the other, does those that the kernel cannot do, and answers all.

use super::call::{Call, Kind};
use super::directory::How;
use super::listener::{Answer, Listener};
use super::note::{Note, send_note};
use super::place::Place;
use super::{directory, link};
use nexus_channel::codec::{self, HEADER};
use nexus_model::moving::Numbers;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// A message has two paths of at most 4,096 bytes.
const MAX_MESSAGE: usize = 3 * 4096;

/// The name of the process in process lists.
const NAME: &std::ffi::CStr = c"nexus-rename";

/// Serves until PID 1 has closed the socket.
pub(super) fn serve(listener: &Listener, socket: &OwnedFd, numbers: Numbers) {
    // A process list shows another name then; nothing depends on it.
    rustix::thread::set_name(NAME).ok();
    if !keep_only([listener.as_fd().as_raw_fd(), socket.as_raw_fd()]) {
        return;
    }
    let mut message = vec![0; MAX_MESSAGE];
    while let Ok((_, length @ 1..)) = rustix::net::recv(socket, &mut message[..], RecvFlags::empty()) {
        let Some(Ok(call)) = message[..length].get(HEADER..).map(codec::decode::<Call>) else { return };
        // PID 1 then knows of a call that may be half done, should this process be killed.
        let note = |made| send_note(socket, Note { id: call.id, made });
        listener.answer(call.id, answer(listener, &call, numbers, &note));
    }
}

/// Does a call, or leaves it to the kernel.
fn answer(listener: &Listener, call: &Call, numbers: Numbers, note: &dyn Fn(u64) -> Result<(), Errno>) -> Answer {
    let (old, new) = (Place::of(call.thread, &call.old), Place::of(call.thread, &call.new));
    // Asked after the directories were opened: until then they may be those of another process with its number.
    let (Ok(old), Ok(new), true) = (old, new, listener.is_waiting(call.id)) else { return Answer::GoOn };
    match (call.kind, call.half_done) {
        (Kind::Rename, Some(made)) => directory::finish(&old, &new, made),
        (Kind::Rename, None) => {
            let how = How { flags: call.flags, id: call.id, numbers };
            directory::rename(&old, &new, how, note)
        }
        (Kind::Link, _) if call.old.path.ends_with(b"/") || call.new.path.ends_with(b"/") => Answer::GoOn,
        (Kind::Link, _) => link::link(&old, &new, call.flags),
    }
}

/// Closes every descriptor above 2 but these: the channel to the host, terminals and reports are PID 1's.
fn keep_only(mut kept: [i32; 2]) -> bool {
    kept.sort_unstable();
    let [first, second] = kept.map(|number| number as u32);
    [(3, first - 1), (first + 1, second - 1), (second + 1, u32::MAX)].into_iter().filter(|(from, to)| from <= to).all(
        |(from, to)| {
            // SAFETY: this copy of PID 1 uses none of them, and never returns to code that does.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0u32) == 0 }
        },
    )
}
