//! The first stage of a run: recorded, with a layer and a network, and with no sandbox yet.

use crate::net::service::{CallerSide, Service};
use crate::notices::Notice;
use crate::plan::resolve::ResolvedRun;
use crate::run::error::RunError;
use crate::run::held::Held;
use crate::run::surroundings::Surroundings;
use crate::secrets::Secrets;
use crate::settle::create;
use crate::state::commit_lock::{self, Mounting};
use crate::state::record::{Content, Record};
use nexus_driver::Driver;
use nexus_model::plan::Writes;
use nexus_receipt::Issuer;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time after which a caller hears that a run waits for a commit of another one.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// A run with record, layer and network, and no sandbox yet.
pub struct Prepared<'a> {
    pub(super) held: Held<'a>,
    pub(super) mounting: Mounting,
    pub(super) service: Option<Service>,
    pub(super) preparation: Duration,
}

impl<'a> Prepared<'a> {
    /// Records the run, then makes its layer and its network. `clock` is the instant at which the run began. What earlier runs
    /// left in the workspace is recovered before.
    pub fn new(
        run: &'a ResolvedRun,
        driver: &'a dyn Driver,
        issuer: Issuer,
        side: CallerSide,
        around: Surroundings<'a>,
        clock: Instant,
    ) -> Result<Self, RunError> {
        let handle = driver.prepare(&run.plan).map_err(RunError::Prepare)?;
        let content = Content {
            handle: handle.clone(),
            workspace: run.plan.workspace.source.clone(),
            directory: run.site.identity,
            layered: is_layered(run),
            reviewing: false,
            rejecting: false,
        };
        let runs = &run.site.places.runs;
        let record =
            Record::create(runs, &content).map_err(|source| RunError::Record { path: runs.clone(), source })?;
        let mut held = Held {
            run,
            driver,
            around,
            handle,
            record,
            layer: None,
            has_started: false,
            is_noted: false,
            kernel_holds_it: false,
            checkpoint: None,
            secrets: Secrets::default(),
            issuer: Some(issuer),
            clock,
        };
        match made(&mut held, side) {
            Ok((mounting, service)) => {
                let preparation = clock.elapsed();
                tracing::debug!(
                    run = %run.plan.run_id,
                    layered = is_layered(run),
                    network = service.is_some(),
                    ms = preparation.as_millis() as u64,
                    "the run is prepared"
                );
                Ok(Self { held, mounting, service, preparation })
            }
            Err(error) => Err(held.fail(error)),
        }
    }

    /// Names the state of the workspace that the caller kept, for the receipt.
    pub fn note_checkpoint(&mut self, hash: String) {
        self.held.checkpoint = Some(hash);
    }

    /// Takes the values of the secrets that the run names. Without them it does not start.
    pub fn give_secrets(&mut self, secrets: Secrets) {
        self.held.secrets = secrets;
    }

    /// Removes the run again, because its caller cannot attend it.
    pub fn give_up(self) -> Result<(), RunError> {
        let Self { held, mounting, service, .. } = self;
        // The network and the workspace are let go before the rest is cleared.
        drop((mounting, service));
        held.clear(false)
    }
}

fn made(held: &mut Held<'_>, side: CallerSide) -> Result<(Mounting, Option<Service>), RunError> {
    let run = held.run;
    let places = &run.site.places;
    // Neither the layer's beginning nor the mount may fall into a commit of another run.
    let path = run.plan.workspace.source.as_path().to_owned();
    let frontend = held.around.frontend;
    let is_said = Cell::new(false);
    let goes_on = |waited: Duration| {
        if waited >= NOTICE_AFTER && !is_said.replace(true) {
            tracing::debug!(run = %run.plan.run_id, "the run waits for a commit of another one");
            frontend.tell(&Notice::WaitsForCommit);
        }
        !frontend.is_ended()
    };
    let lock = commit_lock::after_commits(places, run.site.identity, &goes_on)
        .map_err(|source| RunError::Lock { path: path.clone(), source })?;
    let mounting = Mounting { lock, path, directory: run.site.identity };
    if is_layered(run) {
        let layer = create::create(run, &frontend.host(), &|notice| frontend.tell(notice))
            .map_err(|why| RunError::Layer { why })?;
        held.layer = Some(layer);
    }
    let service = run.network.as_ref().map(|network| {
        let service = Service::prepare(network, places, run.plan.run_id, side);
        service.map(|service| service.within(run.plan.limits.memory_bytes)).map_err(RunError::NetworkRecord)
    });
    Ok((mounting, service.transpose()?))
}

fn is_layered(run: &ResolvedRun) -> bool {
    !matches!(run.plan.workspace.writes, Writes::Direct { .. })
}
