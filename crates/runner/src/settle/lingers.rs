//! The end of a run whose sandbox was killed and is not gone: the kernel frees what its processes held, which can take
//! minutes. A process in the kernel may still finish the call in which it was killed, so nothing is read or decided.
//!
//! ```text
//!  run: layer noted left ─▶ report ─▶ exit, the record stays ─▶ a later command: gone? ─┬─ no:  said, and passed over
//!                                                                                       └─ yes: parked or removed
//! ```

use crate::notices::{Notice, Notify};
use crate::settle::problem::SettleProblem;
use crate::settle::settled::{ChangesState, Settled};
use crate::state::first_process::{FirstProcess, ends_until};
use crate::state::note::{self, CutShort, RunNote};
use crate::state::record::Record;
use nexus_driver::SandboxProcess;
use nexus_layer::Layer;
use nexus_model::RunId;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that a sandbox has which an error ended.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Kills a sandbox and waits for its end for a second. Reports whether it is still there.
pub fn outlives_a_kill(process: &dyn SandboxProcess, tell: Notify<'_>) -> io::Result<bool> {
    process.kill()?;
    let Some(ended) = process.ended() else { return Ok(false) };
    let has_ended = ends_until(ended, Instant::now() + GONE_WITHIN)?;
    if !has_ended {
        kill_members(process, tell);
    }
    Ok(!has_ended)
}

/// Kills what a first process that does not die leaves alive.
fn kill_members(process: &dyn SandboxProcess, tell: Notify<'_>) {
    if let Err(error) = process.kill_members() {
        tell(&Notice::NotAllKilled { why: error.to_string() });
    }
}

/// Leaves the layer of a run to a later command, which parks or removes it.
pub fn leave(layer: Option<&Layer>, run: RunId, discards: bool) -> Settled {
    let (state, problem) = match layer.map(|layer| noted(layer.root(), discards)) {
        None => (ChangesState::None, SettleProblem::LingersDirect),
        Some(Ok(())) if discards => (ChangesState::Discarded, SettleProblem::LingersDiscarded),
        Some(Ok(())) => (ChangesState::Parked, SettleProblem::LingersParked { run }),
        // By the record a later command finds the layer, and parks what it cannot remove.
        Some(Err(error)) => (ChangesState::Parked, SettleProblem::LingersUnnoted { run, why: error.to_string() }),
    };
    Settled { state, problem: Some(problem), ..Settled::default() }
}

fn noted(layer: &Path, discards: bool) -> io::Result<()> {
    if discards {
        // Needs no room, and nothing of the note is asked for afterwards.
        return note::mark_gone(layer);
    }
    if let Some(read) = note::read(layer)? {
        RunNote { cut_short: Some(CutShort::Left), ..read }.write(layer)?;
        note::sync(layer)?;
    }
    Ok(())
}

/// Notes the first process of a sandbox in the record of its run. Returns false where it has ended, or has no end that
/// the driver tells.
pub fn note_first(process: &dyn SandboxProcess, record: &Record) -> io::Result<bool> {
    let Some(ended) = process.ended() else { return Ok(false) };
    let Some(first) = FirstProcess::of(ended)? else { return Ok(false) };
    record.note_first(&first).map(|()| true)
}

/// Records the process that a later command has to look for. If this fails, only the label of the sandbox leads to it.
pub fn remember(process: &dyn SandboxProcess, runs: &Path, run: RunId) -> io::Result<()> {
    let ended = process.ended().ok_or_else(|| io::Error::other("the driver tells no end of its process"))?;
    let left = FirstProcess::of(ended)?.ok_or_else(|| io::Error::other("the sandbox is gone"))?;
    left.write(runs, run)
}
