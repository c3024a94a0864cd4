//! The end of a run whose sandbox was killed and is not gone: the kernel frees what its processes held, which can take
//! minutes. A process in the kernel may still finish the call in which it was killed, so nothing is read or decided.
//!
//! ```text
//!  run: layer noted left ─▶ report ─▶ exit, the record stays ─▶ a later command: gone? ─┬─ no:  said, and passed over
//!                                                                                       └─ yes: parked or removed
//! ```

use super::settle::{Settled, State};
use crate::failure::Failure;
use nexus_driver::SandboxProcess;
use nexus_facility::Layer;
use nexus_model::RunId;
use nexus_runner::state::left::Left;
use nexus_runner::state::note::{self, CutShort, RunNote};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Time that a sandbox has which an error ended.
const GONE_WITHIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Kills a sandbox and waits for its end for a second. Reports whether it is still there.
pub fn outlives_a_kill(process: &dyn SandboxProcess) -> io::Result<bool> {
    process.kill()?;
    let Some(ended) = process.ended() else { return Ok(false) };
    match poll(&mut [PollFd::from_borrowed_fd(ended, PollFlags::IN)], Some(&GONE_WITHIN)) {
        Ok(found) => Ok(found == 0),
        // It is waited for elsewhere.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Leaves the layer of a run to a later command, which parks or removes it.
pub fn leave(layer: Option<&Layer>, run: RunId, discards: bool) -> Result<Settled, Failure> {
    let wait = "The kernel still takes the sandbox apart";
    let Some(layer) = layer else {
        let problem = Failure::refused("lingers", wait, "the next run in this directory looks whether it is gone");
        return Ok(Settled { problem: Some(problem), ..Settled::default() });
    };
    noted(layer.root(), discards).map_err(|error| {
        let message = format!("{wait}, and the note of its changes cannot be written: {error}");
        Failure::refused("lingers", message, format!("nexus changes show --run {run} shows them when it is gone"))
    })?;
    let (state, message, hint) = if discards {
        (
            State::Discarded,
            format!("{wait}, so what it wrote is not removed yet"),
            "later commands remove it".to_owned(),
        )
    } else {
        let hint = format!("nexus changes show --run {run} shows them when it is gone");
        (State::Parked, format!("{wait}, so its changes were not looked at and wait"), hint)
    };
    Ok(Settled { state, problem: Some(Failure::refused("lingers", message, hint)), ..Settled::default() })
}

fn noted(layer: &Path, discards: bool) -> io::Result<()> {
    if let Some(read) = note::read(layer)? {
        RunNote { cut_short: Some(CutShort::Left), ..read }.write(layer)?;
        note::sync(layer)?;
    }
    if discards { note::mark_gone(layer) } else { Ok(()) }
}

/// Records the process that a later command has to look for. If this fails, the sandbox must not be left behind.
pub fn remember(process: &dyn SandboxProcess, runs: &Path, run: RunId) -> io::Result<()> {
    let ended = process.ended().ok_or_else(|| io::Error::other("the driver tells no end of its process"))?;
    Left::of(ended)?.write(runs, run)
}
