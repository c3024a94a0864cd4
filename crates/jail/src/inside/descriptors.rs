//! Closes what a sandbox must not keep open.

use crate::leave_out::{Wall, stands};
use crate::steps::{AtStep, Faults, Step, StepError};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;

/// Closes every descriptor but these; 0 to 2 lead nowhere then.
pub(super) fn keep_only(kept: &[&OwnedFd]) -> io::Result<()> {
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.extend([2, null.as_raw_fd() as u32]);
    numbers.sort_unstable();
    numbers.dedup();
    let ends = numbers.iter().skip(1).map(|next| next - 1).chain([u32::MAX]);
    for (first, last) in numbers.iter().map(|number| number + 1).zip(ends).filter(|(first, last)| first <= last) {
        // SAFETY: the code that owned these in this copy of the launcher never runs again; what this child goes on with is
        // kept.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The guest's channel becomes descriptor 3 and is the only one but 0 to 2, which lead nowhere.
pub(super) fn close_descriptors(faults: Faults, channel: &OwnedFd) -> Result<OwnedFd, StepError> {
    faults.check(Step::CloseDescriptors)?;
    let close = || -> io::Result<OwnedFd> {
        let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        const PLACE: i32 = 3;
        if channel.as_raw_fd() != PLACE {
            // SAFETY: dup3 with plain numbers. The code that held descriptor 3 in this copy of the launcher never runs
            // again: from here only the guest does, which owns nothing but the channel.
            if unsafe { libc::dup3(channel.as_raw_fd(), PLACE, libc::O_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if stands(Wall::LauncherDescriptors) {
            // SAFETY: as above; `null` is closed here as well, so it is forgotten.
            if unsafe { libc::syscall(libc::SYS_close_range, PLACE as u32 + 1, u32::MAX, 0u32) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        std::mem::forget(null);
        // SAFETY: descriptor 3 is open and no other value owns it.
        Ok(unsafe { rustix::fd::FromRawFd::from_raw_fd(PLACE) })
    };
    close().at(Step::CloseDescriptors, "descriptors above 2")
}
