//! The second stage of a run: its sandbox was started.

use crate::live::covers::Covers;
use crate::net::service::Service;
use crate::notices::Notice;
use crate::run::error::RunError;
use crate::run::held::{EndOutcome, Held};
use crate::run::prepared::Prepared;
use crate::settle::lingers;
use crate::state::commit_lock::Mounting;
use nexus_driver::Sandbox;
use std::time::Duration;

/// A run whose sandbox was started.
pub struct Running<'a> {
    pub(super) held: Held<'a>,
    pub(super) mounting: Mounting,
    pub(super) service: Option<Service>,
    pub(super) preparation: Duration,
    pub(super) covers: Option<Covers>,
    pub(super) sandbox: Sandbox,
}

impl<'a> Running<'a> {
    /// Starts the sandbox. Its command starts when the run is attended.
    pub fn start(prepared: Prepared<'a>) -> Result<Self, RunError> {
        let Prepared { mut held, mounting, service, preparation } = prepared;
        match started(&mut held) {
            Ok((covers, sandbox)) => Ok(Self { held, mounting, service, preparation, covers, sandbox }),
            Err(error) => {
                // The network and the workspace are let go before the rest is cleared.
                drop((mounting, service));
                Err(held.fail(error))
            }
        }
    }
}

fn started(held: &mut Held<'_>) -> Result<(Option<Covers>, Sandbox), RunError> {
    let covers = Covers::watch(&held.run.plan).map_err(RunError::Covers)?;
    let sandbox = held.driver.start(&held.run.plan, &held.handle).map_err(RunError::Start)?;
    tracing::debug!(run = %held.run.plan.run_id, "the sandbox was started");
    let noted = lingers::note_first(&*sandbox.process, &held.record);
    held.is_noted = matches!(noted, Ok(true));
    if let Err(error) = noted {
        // A sandbox that a later command may not find must not run.
        let tell = |notice: &Notice| held.around.frontend.tell(notice);
        held.kernel_holds_it = lingers::outlives_a_kill(&*sandbox.process, &tell)
            .map_err(|error| RunError::internal("ending the sandbox", &error))?;
        if !held.kernel_holds_it {
            // The error of the note is the one to report.
            let (EndOutcome::Gone | EndOutcome::GoneAfter(_)) = held.end(&sandbox, false)?;
        }
        return Err(RunError::internal("recording the sandbox", &error));
    }
    Ok((covers, sandbox))
}
