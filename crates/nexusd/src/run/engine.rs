//! Runs the commands of one directive, one after the other, through the engine.

use crate::claims::{Claims, Ended, Note, Runs};
use crate::decide::admit::Admitted;
use crate::decide::outcome::End;
use crate::lease::LeaseDriver;
use crate::live::ActiveClaim;
use crate::run::attendant::{self, Reporter};
use crate::run::connections::{Asking, Connections};
use crate::run::frontend::{DirectiveFrontend, NoSignals};
use crate::run::output::Output;
use crate::run::request::{self, Command};
use crate::source::WorkSource;
use crate::spool::Spool;
use crate::stop::Stop;
use crate::tape::Tape;
use crate::upkeep::Upkeep;
use nexus_api::conduits::Stream;
use nexus_facility::artifacts::{self, Bounds, Manifest};
use nexus_facility::diff::Diff;
use nexus_facility::{Claim, Facilities, Facility, Head, Kind, Lock, LockError};
use nexus_model::RunId;
use nexus_model::digest::Digest;
use nexus_model::directive::OnLeaseLoss;
use nexus_model::spec::{DirectiveChanges, DirectiveSpec};
use nexus_policy::settings::EgressSettings;
use nexus_runner::held_text;
use nexus_runner::host::Host;
use nexus_runner::live::output::HeadTail;
use nexus_runner::net::service::{CallerSide, Questions};
use nexus_runner::plan::resolve::{ResolvedRun, resolve_as};
use nexus_runner::plan::site::Site;
use nexus_runner::plan::workspace::WorkspaceChoice;
use nexus_runner::run::finished::Finished;
use nexus_runner::run::prepared::Prepared;
use nexus_runner::run::receipt::open_issuer;
use nexus_runner::run::report::RunReport;
use nexus_runner::run::running::Running;
use nexus_runner::run::surroundings::Surroundings;
use nexus_runner::settle::settled::Settled;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that a directive waits for the holder of its facility, which the control plane takes for over.
const FACILITY_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at the lock of a facility.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest receipt that is passed on, in bytes.
const MAX_RECEIPT: u64 = 1 << 20;

/// The parts of a territory that every run needs.
pub struct Engine {
    /// Starts the sandboxes of runs.
    pub driver: Arc<dyn LeaseDriver>,
    /// Recovers, and tells the operator.
    pub upkeep: Arc<dyn Upkeep>,
    /// Names the state directory of the territory, and no variable of the daemon's own environment.
    pub host: Host,
    /// The workspaces of the territory.
    pub facilities: Facilities,
    /// The operator's settings of networks.
    pub egress: EgressSettings,
    /// Notes about claims.
    pub claims: Claims,
    /// Copies of kept files.
    pub spool: Spool,
}

/// Result of a directive's commands.
pub struct Done {
    /// The end of the directive.
    pub end: End,
    /// Changes of the workspace.
    pub diff: Diff,
    /// The signed receipt.
    pub receipt: Option<Value>,
    /// Times of the run.
    pub timing: Value,
    /// Reports that output of the streams is missing.
    pub truncated: [bool; 2],
    /// The commit of a repository before and after the command.
    pub heads: [Option<Head>; 2],
    /// The kept files.
    pub kept: Option<Manifest>,
    /// The typed events.
    pub tape: Tape,
}

impl Done {
    /// Returns the result of a directive whose command did not come to a report.
    #[must_use]
    pub fn without_report(end: End) -> Self {
        Self {
            end,
            diff: Diff::default(),
            receipt: None,
            timing: Value::Null,
            truncated: [false; 2],
            heads: [None, None],
            kept: None,
            tape: Tape::default(),
        }
    }
}

/// Work on one claim.
pub struct Job<'a> {
    /// The directive as it was claimed.
    pub spec: &'a DirectiveSpec,
    /// The checked parts of it.
    pub admitted: &'a Admitted,
    /// The claim of the directive.
    pub live: &'a Arc<ActiveClaim>,
    /// Hash of the specification as it was claimed, before the limits of this territory.
    pub claimed: Option<Digest>,
    /// The control plane.
    pub source: &'a Arc<dyn WorkSource>,
    /// Makes the next heartbeat leave now.
    pub beats: &'a Stop,
    /// Takes the output.
    pub output: &'a Output,
    /// Ids of its runs, which the note of the claim names.
    pub runs: Runs,
}

/// One command that has ended.
struct Ran {
    report: RunReport,
    diff: Option<Result<Diff, String>>,
    kept: Option<Result<Manifest, String>>,
}

impl Engine {
    /// Runs the directive to its end. Never an error: what goes wrong is an end, with a line in the directive's output.
    pub fn run(&self, job: &Job<'_>, clock: Instant) -> Done {
        let mut limit = HeadTail::new(request::max_output(job.spec));
        let mut done = self.guarded(job, &mut limit, clock).unwrap_or_else(|(end, why)| {
            explain(job.output, &why);
            Done::without_report(end)
        });
        attendant::finish(&mut limit, job.output);
        use nexus_runner::live::output::Stream as Of;
        done.truncated = [limit.dropped_of(Of::Out) > 0, limit.dropped_of(Of::Err) > 0];
        done
    }

    fn guarded(&self, job: &Job<'_>, limit: &mut HeadTail, clock: Instant) -> Result<Done, (End, String)> {
        let broke = |why: String| (End::Broke, why);
        let Job { spec, admitted, live, runs, .. } = *job;
        let kind = match &admitted.repo_url {
            None => Kind::Empty,
            Some(url) => Kind::Repo { repo_url: Some(url.clone()) },
        };
        let facility = self.facilities.ensure(&admitted.facility, kind, now_ms());
        let facility = facility.map_err(|error| broke(error.to_string()))?;
        let lock = locked(&facility, live).map_err(|error| broke(error.to_string()))?;
        let url = admitted.repo_url.as_ref();
        if let Some(url) = url
            && facility.is_empty().map_err(|error| broke(error.to_string()))?
        {
            live.enter("preparing");
            // Every claim with a repository has chosen the id.
            let run = (runs.clone.unwrap_or_else(RunId::new), &Command::Clone(url.as_str()));
            let cloned = self.one(job, run, facility.tree(), (limit, "[prepare] "), clock);
            let failed = |why: String| (End::PrepareFailed, format!("The repository could not be cloned: {why}"));
            let cloned = cloned.map_err(failed)?;
            if cloned.report.exit != 0 {
                return Err(failed(format!("git ended with {}", cloned.report.exit)));
            }
        }
        let head = || if url.is_some() { self.head(&facility) } else { None };
        let before = head();
        live.enter("running");
        let ran =
            self.one(job, (runs.command, &Command::Directive), facility.tree(), (limit, ""), clock).map_err(broke)?;
        let heads = [before, head()];
        // What the next directive of the facility changes is not kept for this one: the copies are made before the lock ends.
        let kept = self.kept(job, ran.kept.as_ref(), facility.tree());
        // A directive whose lease is lost runs again only where it asked for that, and never after its commit was allowed.
        let is_final = spec.on_lease_loss.unwrap_or_default() == OnLeaseLoss::Fail || live.commits_changes();
        if let Err(error) = lock.release(is_final) {
            self.upkeep.tell(&format!("facility {}: its lock could not be released in order: {error}", facility.name));
        }
        Ok(Done { heads, kept, ..as_done(ran, spec, job.output) })
    }

    /// Reads the commit of a repository. What cannot be read is not guessed.
    fn head(&self, facility: &Facility) -> Option<Head> {
        facility.head().unwrap_or_else(|error| {
            self.upkeep.tell(&format!("facility {}: its HEAD cannot be read: {error}", facility.name));
            None
        })
    }

    /// Returns the kept files: those that were copied from the changes of the command, or, when it changed nothing, from the
    /// workspace.
    fn kept(&self, job: &Job<'_>, copied: Option<&Result<Manifest, String>>, tree: &Path) -> Option<Manifest> {
        let globs = &job.admitted.keeps;
        if globs.is_empty() {
            return None;
        }
        let of_tree = || artifacts::of_tree(tree, globs, Bounds::default(), &self.spool.place(&job.live.claim()));
        let kept = copied.cloned().unwrap_or_else(of_tree).unwrap_or_else(|why| {
            explain(job.output, &format!("The files to keep cannot be collected: {why}"));
            Manifest { version: artifacts::FORM, truncated: true, ..Manifest::default() }
        });
        for omitted in &kept.omitted {
            explain(job.output, &format!("{:?} is not kept: {}", omitted.name, omitted.why));
        }
        Some(kept)
    }

    /// Returns the questions about connections, where the directive asks them.
    fn questions(&self, job: &Job<'_>, run: &ResolvedRun) -> Option<Box<dyn Questions>> {
        let waits = run.network.as_ref().and_then(|network| network.ask)?;
        let quorum = self.egress.policies.quorum().map_or(1, |users| users.value);
        let (live, source) = (Arc::clone(job.live), Arc::clone(job.source));
        // Without a hash no answer could be about this directive.
        let asking = Asking { live, source, spec: job.claimed?, quorum, waits };
        Some(Box::new(Connections::new(asking)))
    }

    /// Takes one command along the path of `nexus run`.
    fn one(
        &self,
        job: &Job<'_>,
        (id, command): (RunId, &Command<'_>),
        tree: &Path,
        (limit, prefix): (&mut HeadTail, &'static str),
        clock: Instant,
    ) -> Result<Ran, String> {
        let Job { spec, admitted, live, source, beats, output, .. } = *job;
        let site =
            Site::open(WorkspaceChoice::Named(tree.to_owned()), &self.host).map_err(|error| error.to_string())?;
        let asked = request::request(spec, admitted, command, tree, &self.egress)?;
        let run = resolve_as(id, site, &asked, &self.host).map_err(|error| error.to_string())?;
        // Commits that an earlier daemon left in this directory were finished before any work was asked for, or it is locked.
        let issuer = open_issuer(&run.site.places).map_err(|error| error.to_string())?;
        let spool = self.spool.place(&live.claim());
        let globs = if matches!(command, Command::Directive) { admitted.keeps.as_slice() } else { &[] };
        let requeues = spec.on_lease_loss.unwrap_or_default() == OnLeaseLoss::Requeue;
        let note = |ended| {
            let note = Note::new(live.directive, live.fence, &live.token(), job.runs);
            let note = Note { requeues, is_announced: true, ended, ..note };
            self.claims.write(&note).map_err(|error| error.to_string())
        };
        let caller = DirectiveFrontend {
            live,
            source: &**source,
            upkeep: &*self.upkeep,
            host: &self.host,
            beats,
            requeues,
            note: &note,
            ended: Mutex::new(None),
            max_diff: spec.limits.max_diff_bytes.map_or(nexus_facility::diff::DEFAULT_MAX, |max| {
                usize::try_from(max).unwrap_or(usize::MAX).min(MAX_DIFF)
            }),
            diff: Mutex::new(None),
            keeps: (globs, &spool),
            kept: Mutex::new(None),
        };
        let signals = NoSignals::new().map_err(|error| error.to_string())?;
        let recovery = crate::upkeep::as_recovery(&*self.upkeep);
        let around = Surroundings { frontend: &caller, recovery, interrupts: &signals, was_ended: Arc::default() };
        let side = CallerSide { questions: self.questions(job, &run), before_serving: || {} };
        let driver: &dyn nexus_driver::Driver = &*self.driver;
        let prepared = Prepared::new(&run, driver, issuer, side, around, clock).map_err(|error| error.to_string())?;
        // The launcher knows the end of the lease before the sandbox is there.
        if let Err(why) = self.driver.keep_until(id, live.begin(id)) {
            return Err(match prepared.give_up() {
                Ok(()) => why,
                Err(second) => format!("{why}; and then: {second}"),
            });
        }
        let mut attendant = Reporter::new(output, &live.control, limit, prefix);
        let running = Running::start(prepared).map_err(|error| error.to_string())?;
        let finished = Finished::attend(running, &mut attendant).map_err(|error| error.to_string())?;
        if matches!(command, Command::Directive) {
            let (exit, reason) = finished.end();
            *caller.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ended { exit, reason });
        }
        let report = finished.settle().map_err(|failed| failed.error.to_string())?;
        let diff = caller.diff.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kept = caller.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Ran { report, diff, kept })
    }
}

/// Takes the lock of the facility. An earlier holder that the control plane takes for over may still be ending.
fn locked(facility: &Facility, live: &ActiveClaim) -> Result<Lock, LockError> {
    let deadline = Instant::now() + FACILITY_WITHIN;
    loop {
        match facility.lock(Claim { directive: live.directive, fence: live.fence.0 }) {
            Err(LockError::Busy { .. })
                if Instant::now() < deadline
                    && live.control.wanted() == crate::run::control::Wanted::Nothing
                    && !live.left().is_zero() =>
            {
                std::thread::sleep(LOOK_EVERY);
            }
            other => return other,
        }
    }
}

/// Number of changes that a line names.
const NAMED: usize = 3;
/// Largest diff that a directive may ask for, in bytes.
const MAX_DIFF: usize = 2 << 20;

/// Puts the result together.
fn as_done(ran: Ran, spec: &DirectiveSpec, output: &Output) -> Done {
    let Ran { report, diff, .. } = ran;
    if let Some(problem) = &report.settled.problem {
        let run = report.run_id;
        explain(output, &format!("{problem}. On the territory, nexus changes show --run {run} shows what waits."));
    }
    let wants_commit = spec.changes.unwrap_or_default() == DirectiveChanges::Commit;
    if report.settled.problem.is_none() && wants_commit && !report.settled.parked.is_empty() {
        let names = waiting_names(&report.settled);
        let run = report.run_id;
        explain(
            output,
            &format!(
                "not committed, waiting for a decision: {names}. On the territory, nexus changes show --run {run} shows it."
            ),
        );
    }
    if let Some(reason) = &report.not_started {
        explain(output, &reason.to_string());
    }
    let diff = match diff {
        None => Diff::default(),
        Some(Ok(diff)) => diff,
        Some(Err(why)) => {
            explain(output, &format!("The diff of the changes cannot be made: {why}"));
            Diff { bytes: Vec::new(), truncated: true }
        }
    };
    let receipt = match &report.receipt {
        Some(Ok(issued)) => read_receipt(&issued.path),
        Some(Err(error)) => {
            explain(output, &error.to_string());
            None
        }
        None => None,
    };
    let mut tape = Tape::default();
    let names: Vec<String> = spec.capabilities.env.keys().cloned().collect();
    tape.add_run(&report, &names);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let timing = json!({
        "prepared_ms": ms(report.prepared),
        "spawned_ms": report.spawned.map(ms),
        "time_to_first_output_ms": report.first_output.map(ms),
        "duration_ms": ms(report.duration),
        "run_id": report.run_id,
        "cpu_ms": report.usage.0,
        "max_rss_bytes": report.usage.1,
    });
    let unsettled = report.settled.problem.is_some() && wants_commit;
    let end = End::Ran { exit: report.exit, reason: report.reason, unsettled };
    Done { diff, receipt, timing, tape, ..Done::without_report(end) }
}

/// Names the first changes that wait, with their reasons, and counts the rest.
fn waiting_names(settled: &Settled) -> String {
    let name = |number: usize| {
        let change = &settled.parked[number];
        let path = change.path.as_path().display().to_string();
        change.protected.as_deref().map_or(path.clone(), |why| format!("{path} ({})", held_text::reason(why)))
    };
    let names = (0..settled.parked.len().min(NAMED)).map(name).collect::<Vec<_>>().join(", ");
    let more = settled.parked.len().saturating_sub(NAMED);
    if more == 0 { names } else { format!("{names} and {more} more") }
}

/// Reads a receipt to pass it on; `None` when it is not there or too large.
pub fn read_receipt(path: &Path) -> Option<Value> {
    let length = std::fs::metadata(path).ok()?.len();
    if length > MAX_RECEIPT {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Adds a line of Nexus itself to the log of a directive.
pub fn explain(output: &Output, text: &str) {
    output.push(Stream::Stderr, format!("nexus: {text}\n").as_bytes(), false);
}

/// Reads the machine's clock in milliseconds; a clock before 1970 says 1970.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
