//! An overlay on kernels that take only attached mounts as layers (seen on Linux 6.1; 6.18 takes detached ones).
//!
//! ```text
//!  launcher ──clone3(new mount namespace)──▶ child: private ─▶ attach the layers where they come from ─▶ overlay
//!           ◀──────────── the overlay, detached, as a descriptor ──────────────┘ ends, its namespace with it
//! ```
//! Nothing is attached on the host; the overlay keeps its own references to the layers.

use crate::clone::{Cloned, clone_process, exit_now, readable_until};
use crate::mounts;
use crate::steps::{Step, StepError};
use nexus_channel::descriptors;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that the mounts have. Nothing inside holds them up, but a file system of the host can: the places are opened again.
const MOUNTED_WITHIN: Duration = Duration::from_secs(10);

/// Attaches each mount over a place in a namespace that passes, runs `mount` there, and returns what it made.
pub fn mount_apart(layers: &[(&OwnedFd, &Path)], mount: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    mount_within(MOUNTED_WITHIN, layers, mount)
}

fn mount_within(
    within: Duration,
    layers: &[(&OwnedFd, &Path)],
    mount: impl FnOnce() -> io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let child = match clone_process(libc::CLONE_NEWNS as u64, None)? {
        Cloned::Child => {
            drop(ours);
            let work = std::panic::AssertUnwindSafe(|| answer(&theirs, &attached(layers).and_then(|()| mount())));
            exit_now(std::panic::catch_unwind(work).map_or(101, |written| i32::from(written.is_err())));
        }
        Cloned::Parent(child) => child,
    };
    drop(theirs);
    let received = if readable_until(&ours, Instant::now() + within)? { receive(&ours) } else { Err(late(within)) };
    // It has nothing to do any more. One that the kernel keeps has a mount namespace of its own, which goes with it.
    match child.end() {
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error),
        Ok(()) | Err(_) => received,
    }
}

fn attached(layers: &[(&OwnedFd, &Path)]) -> io::Result<()> {
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", private)?;
    // Opened here: a place of the launcher's namespace is none of this one.
    layers.iter().try_for_each(|(mount, place)| mounts::attach(mount, mounts::open_canonical(place)?))
}

fn late(within: Duration) -> io::Error {
    let seconds = within.as_secs();
    let text =
        format!("the layers were not mounted within {seconds} s: the file system of one of them does not answer");
    io::Error::other(StepError::new(Step::RootOverlay, text))
}

/// The mount with errno 0, or the errno.
fn answer(socket: &OwnedFd, made: &io::Result<OwnedFd>) -> io::Result<()> {
    let errno = made.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    let mount: Vec<_> = made.as_ref().ok().map(AsFd::as_fd).into_iter().collect();
    descriptors::send(socket, &errno.to_le_bytes(), &mount, SendFlags::empty())?;
    Ok(())
}

fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut errno = [0u8; 4];
    let received = descriptors::receive(socket, &mut errno, RecvFlags::empty())?;
    match (received.bytes, i32::from_le_bytes(errno)) {
        (4, 0) => received.descriptors.into_iter().next().ok_or_else(|| io::Error::other("no mount came")),
        (4, errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::other("the process that mounts ended without an answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_whose_file_system_does_not_answer_hold_up_no_launch() {
        if !rustix::process::geteuid().is_root() {
            crate::skip::skipped("only root makes a mount namespace without a user namespace");
            return;
        }
        let began = Instant::now();
        let silent = || loop {
            // As an open of a place that never comes back.
            std::thread::sleep(Duration::from_secs(600));
        };
        let error = mount_within(Duration::from_millis(100), &[], silent).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(error.to_string().contains("does not answer"), "{error}");
    }
}
