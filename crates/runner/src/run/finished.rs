//! The third stage of a run: its command has ended, and its changes are still to be settled. Where the sandbox lingers the
//! kernel still holds it, and nothing of its layer is read.

use crate::causes::chain;
use crate::live::attendant::{Attendant, NetworkServer};
use crate::live::bounds::{Broken, Outcome};
use crate::live::disk;
use crate::live::lingers::keeps_work;
use crate::net::service::Service;
use crate::notices::Notice;
use crate::plan::direct::LeftByDirectRun;
use crate::run::error::RunError;
use crate::run::held::{EndOutcome, Held};
use crate::run::receipt;
use crate::run::report::{Facts, Remark, RunReport};
use crate::run::running::Running;
use crate::run::streams::{RunParts, has_spoken, pumped};
use crate::settle::end::{Over, settle};
use crate::settle::lingers;
use crate::settle::settled::Settled;
use nexus_driver::Sandbox;
use nexus_model::exit::REFUSED;
use nexus_model::{ExitReason, ExitStatus};
use nexus_receipt::Issued;
use std::io;
use std::time::Duration;

/// A run whose command has ended. Where the sandbox lingers the kernel still holds it: nothing of the layer is read, and a
/// later command goes on.
pub struct Finished<'a> {
    held: Held<'a>,
    ended: Ended,
}

/// A run whose command ran and that has no report.
#[derive(Debug)]
pub struct Failed {
    /// The error with which the run ends.
    pub error: RunError,
    /// The receipt of the run, where one was issued: what the command did is signed all the same.
    pub receipt: Option<Issued>,
}

/// The end of a sandbox.
struct Ended {
    sandbox: Sandbox,
    outcome: Outcome,
    facts: Facts,
    /// The error that cut the run short.
    broken: Option<RunError>,
    /// Spare directories that could not be removed.
    untidied: Option<String>,
}

impl<'a> Finished<'a> {
    /// Starts the command and attends it to its end.
    pub fn attend<A: Attendant>(running: Running<'a>, attendant: &mut A) -> Result<Self, RunError> {
        let Running { mut held, mounting, service, preparation, covers, sandbox } = running;
        let survey = held.layer.as_ref().and_then(|layer| layer.survey_bases(&held.run.site.directory));
        let stage = RunParts { network: None, survey, mounting, covers };
        match attended(&mut held, (stage, service, preparation), sandbox, attendant) {
            Ok(ended) => Ok(Self { held, ended }),
            Err(error) => Err(held.fail(error)),
        }
    }

    /// Returns the exit code and the reason with which the run ends, unless its changes cannot be settled.
    #[must_use]
    pub fn end(&self) -> (u8, ExitReason) {
        let outcome = &self.ended.outcome;
        let of_status = || outcome.reason.exit_code(outcome.ended.map(|ended| ended.status));
        let exit = outcome.not_started.as_ref().map_or_else(of_status, |reason| reason.exit_code().unwrap_or(REFUSED));
        (exit, outcome.reason)
    }

    /// Settles the changes, issues the receipt, and removes the record.
    pub fn settle(self) -> Result<RunReport, Box<Failed>> {
        let Self { mut held, ended } = self;
        let untidied = ended.untidied.clone();
        let mut report = match settle_and_report(&mut held, ended) {
            Ok(report) => report,
            Err(failed) => {
                let Failed { error, receipt } = *failed;
                return Err(Box::new(Failed { error: held.fail(error), receipt }));
            }
        };
        if let Some(why) = untidied {
            report.remarks.push(Remark::Pool { path: held.run.site.places.pool.clone(), why });
        }
        if let Err(error) = held.close() {
            report.remarks.push(Remark::Record { why: error.to_string() });
        }
        Ok(report)
    }
}

fn attended<A: Attendant>(
    held: &mut Held<'_>,
    (stage, mut service, preparation): (RunParts<'_>, Option<Service>, Duration),
    sandbox: Sandbox,
    attendant: &mut A,
) -> Result<Ended, RunError> {
    let run = held.run;
    let mut tidied = Ok(());
    let layer = held.layer.as_ref();
    let meanwhile = || tidied = layer.map_or(Ok(()), |layer| layer.tidy_pool(&mut || has_spoken(&sandbox)));
    let stage = RunParts { network: service.as_mut().map(|service| service as &mut dyn NetworkServer), ..stage };
    let pumped = pumped(run, &sandbox, &held.secrets, attendant, &held.around, stage, meanwhile);
    let has_failed = pumped.is_err();
    let (outcome, broken) = match pumped {
        Ok(outcome) => (Some(outcome), None),
        Err(Broken { error, outcome: None }) => (None, Some(RunError::Unstarted(error))),
        Err(Broken { error, outcome }) => {
            let unserved = service.as_mut().and_then(Service::error).map(RunError::Serve);
            (outcome.map(|outcome| *outcome), Some(unserved.unwrap_or_else(|| RunError::of_pump(error))))
        }
    };
    held.has_started = outcome.as_ref().is_some_and(|outcome| outcome.spawned.is_some());
    held.kernel_holds_it = lingers_on(held, &sandbox, outcome.as_ref(), has_failed)?;
    if held.kernel_holds_it
        && let Err(error) = lingers::remember(&*sandbox.process, &run.site.places.runs, run.plan.run_id)
    {
        // A later command finds it by the record, or by its label, unless /proc hides it.
        held.kernel_holds_it = held.is_noted || held.around.recovery.finds(run.plan.run_id, &held.handle);
        if !held.kernel_holds_it {
            held.around.frontend.tell(&Notice::WaitsForSandbox { why: error.to_string() });
        }
    }
    let not_ended = if held.kernel_holds_it {
        None
    } else {
        match held.end(&sandbox, has_failed)? {
            EndOutcome::Gone => None,
            EndOutcome::GoneAfter(error) => Some(error),
        }
    };
    if !held.kernel_holds_it && not_ended.is_none() {
        // Where the note stays, a later command asks for the process again.
        held.record.forget_first().ok();
    }
    let (outcome, broken) = match (outcome, broken) {
        (Some(outcome), broken) if broken.is_none() || held.has_started => (outcome, broken.or(not_ended)),
        (_, Some(error)) => return Err(error),
        (_, None) => return Err(RunError::of_pump(io::ErrorKind::UnexpectedEof.into())),
    };
    // A log that was cut off gets no name.
    let finished = if has_failed { Ok((None, 0)) } else { attendant.finish() };
    let (kept, broken) = match finished {
        Ok(kept) => (kept, broken),
        Err(error) => ((None, 0), broken.or(Some(RunError::of_pump(error)))),
    };
    let network = service.map(|service| service.finish(&run.site.places, run.plan.run_id));
    tracing::debug!(
        run = %run.plan.run_id,
        reason = ?outcome.reason,
        started = held.has_started,
        lingers = held.kernel_holds_it,
        ms = held.clock.elapsed().as_millis() as u64,
        "the sandbox ended"
    );
    let guarantees = sandbox.guarantees.clone();
    let facts = Facts { kept, network, prepared: preparation, clock: held.clock, guarantees };
    let untidied = tidied.err().map(|error| chain(&error));
    Ok(Ended { sandbox, outcome, facts, broken, untidied })
}

/// Reports whether the sandbox is left to a later command. What was started must not outlive this process, whatever else
/// goes wrong.
fn lingers_on(
    held: &Held<'_>,
    sandbox: &Sandbox,
    outcome: Option<&Outcome>,
    has_failed: bool,
) -> Result<bool, RunError> {
    if !has_failed || outcome.is_some_and(|outcome| keeps_work(sandbox, outcome)) {
        return Ok(outcome.is_some_and(|outcome| outcome.kernel_holds_it));
    }
    lingers::outlives_a_kill(&*sandbox.process, &|notice| held.around.frontend.tell(notice))
        .map_err(|error| RunError::internal("ending the sandbox", &error))
}

fn settle_and_report(held: &mut Held<'_>, ended: Ended) -> Result<RunReport, Box<Failed>> {
    let Ended { sandbox, mut outcome, facts, broken, .. } = ended;
    let run = held.run;
    match outcome.not_started.take() {
        Some(reason) if reason.exit_code().is_none() => {
            return Err(Box::new(Failed { error: RunError::NotStarted(reason), receipt: None }));
        }
        Some(reason) => {
            outcome.reason = ExitReason::Exit;
            outcome.not_started = Some(reason);
        }
        None => {}
    }
    let Sandbox { changes, process, .. } = sandbox;
    let in_memory = outcome.layer.take().or(changes.into_descriptor());
    if let (Some(disk), Some(upper)) = (run.plan.limits.disk_bytes, &in_memory)
        && disk::is_full(upper, disk)
        && outcome.ended.is_some_and(|ended| ended.status != ExitStatus::Code(0))
    {
        outcome.reason = ExitReason::DiskQuota;
    }
    let over = Over {
        run,
        record: &held.record,
        reason: outcome.reason,
        cut_short: outcome.hurried || broken.is_some(),
        kernel_holds_it: held.kernel_holds_it,
        frontend: held.around.frontend,
        recovery: held.around.recovery,
    };
    if let (Some(layer), Some(survey)) = (&mut held.layer, outcome.survey.take()) {
        layer.set_bases(survey);
    }
    let settled = settle(held.layer.take(), in_memory, process.as_ref(), &over);
    if let Some(cache) = run.cache.as_ref().filter(|_| !held.kernel_holds_it) {
        let is_accepted = !over.cut_short && settled.as_ref().is_ok_and(Settled::is_all_there);
        if cache.settle(is_accepted).is_err() {
            // The next run that takes it removes what is there.
            tracing::debug!(run = %run.plan.run_id, "the cache was not settled");
        }
    }
    // The command ran, whatever became of its changes: it gets its receipt.
    let error = match (&settled, broken) {
        (Ok(_), None) => None,
        (Err(problem), None) => Some(RunError::Unsettled(problem.clone())),
        (Ok(settled), Some(broken)) => Some(broken.beside(settled, run.plan.run_id)),
        // The code decides whether the record stays.
        (Err(problem), Some(broken)) => {
            Some(RunError::BrokenUnsettled { broken: Box::new(broken), problem: problem.clone() })
        }
    };
    if let Some(error) = &error {
        tracing::debug!(run = %run.plan.run_id, code = error.code(), "the run has a report and failed");
    } else {
        tracing::debug!(run = %run.plan.run_id, ms = held.clock.elapsed().as_millis() as u64, "the changes are settled");
    }
    let settled = settled.unwrap_or_else(Settled::failed);
    // Moves index files of git aside that git must not read.
    let workspace = run.plan.workspace.source.as_path();
    let left =
        run.direct.as_ref().map_or(Ok(LeftByDirectRun::default()), |direct| direct.examine_and_set_aside(workspace));
    let (mut report, output) = RunReport::new(run, &held.handle, outcome, settled, left, facts);
    report.checkpoint = held.checkpoint.take();
    let receipt = held.issuer.take().map(|issuer| receipt::issue(&issuer, run, &report, output));
    match error {
        None => Ok(report.with_receipt(receipt)),
        Some(error) => Err(Box::new(match receipt {
            Some(Err(second)) => Failed { error: error.then(RunError::Receipt(second)), receipt: None },
            receipt => Failed { error, receipt: receipt.and_then(Result::ok) },
        })),
    }
}
