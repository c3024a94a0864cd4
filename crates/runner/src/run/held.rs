//! The part of a run that every stage holds, and that has to be undone after an error.

use crate::causes::chain;
use crate::net::record as net_record;
use crate::notices::Notify;
use crate::plan::resolve::ResolvedRun;
use crate::recover::remove::remove;
use crate::run::error::RunError;
use crate::run::surroundings::Surroundings;
use crate::secrets::Secrets;
use crate::state::record::Record;
use nexus_driver::{Driver, Handle, Sandbox};
use nexus_layer::Layer;
use nexus_receipt::Issuer;
use std::time::Instant;

/// The end of a sandbox with which nothing of it is left.
pub enum EndOutcome {
    /// It ended as it should.
    Gone,
    /// Its driver could not end it or clear it away at first; everything was killed by its mark then.
    GoneAfter(RunError),
}

/// The part of a run that every stage holds.
pub struct Held<'a> {
    /// The run as it was resolved.
    pub run: &'a ResolvedRun,
    /// Makes and removes the sandbox.
    pub driver: &'a dyn Driver,
    /// The sides of the caller.
    pub around: Surroundings<'a>,
    /// Names all that the driver makes.
    pub handle: Handle,
    /// The record of the run.
    pub record: Record,
    /// The layer, until it is settled.
    pub layer: Option<Layer>,
    /// True if the command ran, so that the layer may hold its work.
    pub has_started: bool,
    /// True if the sandbox was killed and the kernel still holds it: a later command goes on by the record.
    pub kernel_holds_it: bool,
    /// True if the record names the first process of the sandbox.
    pub is_noted: bool,
    /// The state of the workspace that was kept before a live run, by its hash.
    pub checkpoint: Option<String>,
    /// The values of the secrets of the run.
    pub secrets: Secrets,
    /// The issuer of the receipt; `None` after it was issued.
    pub issuer: Option<Issuer>,
    /// The instant at which the run began.
    pub clock: Instant,
}

impl Held<'_> {
    /// Ends a run that failed: clears it away, and adds the errors of that to the failure.
    pub fn fail(self, error: RunError) -> RunError {
        tracing::debug!(run = %self.run.plan.run_id, code = error.code(), "the run failed");
        // Without its record no command would finish a commit that stopped half-way.
        match self.clear(error.is_half_way()) {
            Ok(()) => error,
            Err(second) => error.then(second),
        }
    }

    /// Removes what there is of a run, but for work of its command. The record stays on request, and where something could
    /// not be cleared: without it no command would look for that.
    pub fn clear(mut self, keeps_record: bool) -> Result<(), RunError> {
        if self.kernel_holds_it {
            return Ok(());
        }
        self.undo()?;
        if keeps_record {
            return Ok(());
        }
        self.record.remove().map_err(|error| RunError::internal("the run's record", &error))
    }

    /// Ends a run that has a report: its record goes, unless its sandbox is not gone.
    pub fn close(self) -> Result<(), std::io::Error> {
        if self.kernel_holds_it { Ok(()) } else { self.record.remove() }
    }

    /// Removes all of the sandbox after an error, but not what a command may have written.
    fn undo(&mut self) -> Result<(), RunError> {
        let failed = |why: &dyn std::fmt::Display| RunError::internal("clearing up", why);
        let places = &self.run.site.places;
        self.driver.destroy(&self.handle).map_err(|error| failed(&error))?;
        if self.run.network.is_some() {
            net_record::forget_if_empty(places, self.run.plan.run_id).map_err(|error| failed(&error))?;
        }
        match self.layer.take() {
            None => Ok(()),
            // The start of a command is not always reported before an error: what is in the layer may be its work.
            Some(layer) if self.has_started || !layer.is_bare().map_err(|error| failed(&error))? => {
                drop(layer);
                let parked = self.around.recovery.park(places, &self.run.plan.run_id.to_string());
                parked.map_err(|why| RunError::internal("the changes of the run", &why))
            }
            Some(layer) => {
                let tell: Notify<'_> = &|notice| self.around.frontend.tell(notice);
                // What is kept for later runs may be the room that this one had not.
                let cleared = layer.clear_pool().map_err(|error| failed(&error));
                remove(layer, tell).map_err(|why| failed(&why)).and(cleared)
            }
        }
    }

    /// Ends the sandbox and removes what it has on the host. Where its driver cannot do that, everything is killed by its
    /// mark. After an error the sandbox may still write to the layer.
    pub fn end(&self, sandbox: &Sandbox, kill: bool) -> Result<EndOutcome, RunError> {
        let process = &sandbox.process;
        let killed = if kill { process.kill() } else { Ok(()) };
        let over = killed
            .map_err(|error| RunError::internal("ending the sandbox", &error))
            .and_then(|()| process.wait().map_err(|error| RunError::internal("waiting for the sandbox", &error)))
            .and_then(|()| process.release().map_err(|error| RunError::internal("removing the control group", &error)));
        let Err(error) = over else { return Ok(EndOutcome::Gone) };
        match self.driver.destroy(&self.handle) {
            Ok(()) => Ok(EndOutcome::GoneAfter(error)),
            Err(second) => {
                let RunError::Internal { what, why } = error else { return Err(error) };
                Err(RunError::Internal { what, why: format!("{why}; and then: {}", chain(&second)) })
            }
        }
    }
}
