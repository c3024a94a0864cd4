//! Work of a launcher while no request waits: networks for its pool, and warm sandboxes.

use crate::inside::setup as inside_setup;
use crate::launcher::prefork::WarmSandbox;
use crate::launcher::start;
use crate::launcher::state::LauncherState;
use crate::request::{Here, Setup};
use crate::steps::StepError;
use std::sync::Arc;

impl LauncherState {
    /// Makes one network or one warm sandbox, whichever is missing. If it fails nothing is lost: the next launch does it itself, and says why it cannot.
    pub fn work(&mut self, setup: &Setup) {
        let Some(mode) = &mut self.mode else { return };
        let done = match (mode.build_wanted(setup.faults), &mut mode.networks) {
            (Some(built), _) => built,
            (None, Some(pool)) if pool.wants_more() => pool.refill(setup.faults),
            (None, _) => self.push_warm(setup),
        };
        // The error may come from any step. A launcher that cannot return to the host's namespaces sets `is_lost` and refuses
        // every launch, so the error is reported then.
        if done.is_err() && self.leave().is_err() {
            debug_assert!(self.mode.as_ref().is_some_and(|mode| mode.is_lost), "remembered");
        }
    }

    /// Adds a warm sandbox, if the template is one that a later launch can still use.
    fn push_warm(&mut self, setup: &Setup) -> Result<(), StepError> {
        let Some(mode) = self.mode.as_mut().filter(|mode| mode.wants_warm()) else { return Ok(()) };
        let Some(scratch_bytes) = mode.scratch_bytes.take() else { return Ok(()) };
        if mode.is_lost || !mode.has_current_template()? {
            return Ok(());
        }
        let warm = prefork(setup, self, scratch_bytes)?;
        if let Some(mode) = &mut self.mode {
            mode.scratch_bytes = Some(scratch_bytes);
            mode.warm.push(warm);
        }
        Ok(())
    }
}

/// Prepares a warm sandbox on the template of a launcher.
fn prefork(setup: &Setup, kept: &mut LauncherState, scratch_bytes: u64) -> Result<WarmSandbox, StepError> {
    start::check_single_thread(setup.faults)?;
    let (channel, theirs) = start::channel(setup.faults)?;
    let (strings, quotas) = (kept.strings()?, kept.quotas()?);
    let cloned = kept.enter_at(true, Some(&[]), setup.faults).and_then(|inside| {
        let own_network = inside.network.is_none();
        let here = Here { on_template: true, own_network, strings, parent_acts: true, quotas: Arc::clone(&quotas) };
        let run = move || inside_setup::run_warm(setup, &here, scratch_bytes, theirs);
        start::clone_inside(&setup.identity, own_network, &channel, None, run).map(|child| (child, inside.network))
    });
    let back = kept.leave();
    let (child, network) = cloned?;
    let warm = WarmSandbox { child, channel, network, identity: setup.identity, scratch_bytes };
    match back.and_then(|()| start::finish_as_parent(setup, None, &warm.child, &warm.channel, Some(&*quotas))) {
        Ok(()) => Ok(warm),
        Err(error) => Err(start::end_after(&warm.child, error)),
    }
}
