//! Polls the limits that the kernel does not enforce itself, and the covers of protected files.

use crate::live::bounds::{Bounds, Look, Outcome};
use crate::live::covers::Covers;
use crate::live::lingers::End;
use nexus_driver::Sandbox;
use nexus_layer::BaseSurvey;
use nexus_model::ExitReason;
use std::io;
use std::time::{Duration, Instant};

/// The time between two measurements of a layer on disk.
const MEASURE_EVERY: Duration = Duration::from_millis(100);
/// The time between two questions whether the kernel killed for memory, which cost a small file.
pub(super) const LOOK_AT_MEMORY_EVERY: Duration = Duration::from_millis(10);

/// Kills a sandbox that is over a limit. Returns the time of the next look.
pub(super) fn at_limits(
    bounds: &mut Bounds,
    sandbox: &Sandbox,
    end: &mut End,
    outcome: &mut Outcome,
) -> io::Result<Instant> {
    let began = Instant::now();
    if bounds.watch_memory && sandbox.process.oom_kills()? > 0 {
        outcome.reason = ExitReason::Oom;
        end.kill(sandbox)?;
    }
    if let Some(over) = &mut bounds.over_disk
        && over(Look::On)?
    {
        outcome.reason = ExitReason::DiskQuota;
        end.kill(sandbox)?;
    }
    // A large layer takes long to measure: at most a tenth of the time goes there.
    let every = if bounds.over_disk.is_some() { MEASURE_EVERY } else { LOOK_AT_MEMORY_EVERY };
    Ok(Instant::now() + every.max(began.elapsed() * 10))
}

/// The time after which a run is looked at as a long one: in a shorter one hardly a file changes outside, and those that did not
/// are looked at when it is parked.
pub(super) const SURVEY_AFTER: Duration = Duration::from_millis(250);
/// The least and the most time between two looks at the files of the workspace.
const SURVEY_EVERY: Duration = Duration::from_millis(5);
const SURVEY_WITHIN: Duration = Duration::from_millis(100);

/// Looks at some more files of the workspace. Returns the time of the next look, until all were looked at.
pub(super) fn at_bases(bounds: &mut Bounds) -> Option<Instant> {
    let began = Instant::now();
    let is_over = bounds.survey.as_mut().is_none_or(BaseSurvey::look_on);
    // A fifth of the time goes there, for a second or two: a file counts only until it changes.
    (!is_over).then(|| Instant::now() + (began.elapsed() * 4).clamp(SURVEY_EVERY, SURVEY_WITHIN))
}

/// Ends the run, without a grace, when a cover is gone.
pub(super) fn at_covers(
    bounds: &mut Bounds,
    sandbox: &Sandbox,
    end: &mut End,
    outcome: &mut Outcome,
) -> io::Result<()> {
    if let Some(path) = bounds.covers.as_mut().and_then(Covers::lost) {
        outcome.reason = ExitReason::ProtectionLost;
        outcome.uncovered = Some(path);
        bounds.covers = None;
        end.kill(sandbox)?;
    }
    Ok(())
}

/// Notes what the kernel did between the last look and the end.
pub(super) fn at_the_end(bounds: &mut Bounds, sandbox: &Sandbox, outcome: &mut Outcome) -> io::Result<()> {
    outcome.survey = bounds.survey.take();
    if let Some(mut covers) = bounds.covers.take() {
        outcome.altered = covers.altered();
        if let Some(path) = covers.lost_at_the_end() {
            outcome.reason = ExitReason::ProtectionLost;
            outcome.uncovered = Some(path);
        }
    }
    if bounds.watch_memory && sandbox.process.oom_kills()? > 0 {
        outcome.reason = ExitReason::Oom;
    }
    if let Some(over) = &mut bounds.over_disk
        && over(Look::AtAll)?
    {
        outcome.reason = ExitReason::DiskQuota;
    }
    Ok(())
}
