//! What a launcher does while nobody waits for it: networks for its pool, and sandboxes begun in advance.

use crate::inside::setup as inside_setup;
use crate::launcher::begun::Begun;
use crate::launcher::kept::Kept;
use crate::launcher::start;
use crate::request::{Here, Setup};
use crate::steps::{AtStep, Step, StepError};
use std::rc::Rc;

impl Kept {
    /// Does one such thing. If it fails nothing is lost: the next launch does it itself, and says why it cannot.
    pub fn work(&mut self, setup: &Setup) {
        let Some(workshop) = &mut self.workshop else { return };
        let done = match &mut workshop.networks {
            Some(pool) if pool.wants_more() => pool.refill(setup.faults),
            _ => self.begin(setup),
        };
        // Wherever that stopped. A launcher that cannot go home remembers it (`is_lost`) and refuses every launch, so the
        // error is told then.
        if done.is_err() && self.leave().is_err() {
            debug_assert!(self.workshop.as_ref().is_some_and(|workshop| workshop.is_lost), "remembered");
        }
    }

    /// Begins a sandbox, if the template is one that will still do when it is wanted.
    fn begin(&mut self, setup: &Setup) -> Result<(), StepError> {
        let Some(workshop) = self.workshop.as_mut().filter(|workshop| workshop.wants_begun()) else { return Ok(()) };
        let Some(scratch_bytes) = workshop.scratch_bytes.take() else { return Ok(()) };
        if workshop.is_lost || !workshop.has_current_template()? {
            return Ok(());
        }
        let begun = begin(setup, self, scratch_bytes)?;
        if let Some(workshop) = &mut self.workshop {
            workshop.scratch_bytes = Some(scratch_bytes);
            workshop.begun.push(begun);
        }
        Ok(())
    }
}

/// Begins one on the template of a workshop.
fn begin(setup: &Setup, kept: &mut Kept, scratch_bytes: u64) -> Result<Begun, StepError> {
    start::check_single_thread(setup.faults)?;
    let (channel, theirs) = start::channel(setup.faults)?;
    let (strings, quotas) = (kept.strings()?, kept.quotas()?);
    let cloned = kept.enter_at(true, Some(&[]), setup.faults).and_then(|inside| {
        let own_network = inside.network.is_none();
        let here = Here { on_template: true, own_network, strings, parent_acts: true, quotas: Rc::clone(&quotas) };
        let run = move || inside_setup::run_begun(setup, &here, scratch_bytes, theirs);
        start::clone_inside(&setup.identity, own_network, &channel, None, run).map(|child| (child, inside.network))
    });
    let back = kept.leave();
    let (child, network) = cloned?;
    let begun = Begun { child, channel, network, scratch_bytes };
    match back.and_then(|()| start::finish_as_parent(setup, None, &begun.child, &begun.channel, Some(&*quotas))) {
        Ok(()) => Ok(begun),
        Err(error) => {
            begun.end().at(Step::Clone, "ending a sandbox that could not be begun")?;
            Err(error)
        }
    }
}
