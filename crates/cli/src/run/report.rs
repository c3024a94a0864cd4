//! The report of a run, for people and for programs, and the receipt of the run, which states the same.

mod document;
mod failures;
mod words;

use super::direct::{appeared_line, held_line, some_of, uncovered_line};
use super::full_output::FullOutput;
use super::hints::{self, Hint};
use super::open_files::{readers_line, unwatched_line};
use super::order::Order;
use super::settle::{Settled, State};
use super::sink::write_to_caller;
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::net::{Ended, Network};
use crate::receipt;
use document::{ToCaller, elements};
pub use failures::{failure_document, not_written, print_failure};
use nexus_driver::Handle;
use nexus_facility::HeldIndex;
use nexus_model::Digest;
use nexus_model::canonical::Member;
use nexus_model::exit::REFUSED;
use nexus_model::plan::Writes;
use nexus_model::proof::ProofItem;
use nexus_model::{ByteText, ExitReason, ExitStatus, Guarantee, RunId};
use nexus_receipt::{Exit, Finished, Issued, Issuer, Network as NetworkInForce, Output};
use nexus_runner::live::bounds::Outcome;
use nexus_runner::live::output::Stream;
use nexus_runner::plan::direct::Left;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use words::{Lines, MOST_SHOWN, parked_names, profile_ref, word};

/// Everything about a run that has ended.
pub struct Report {
    run_id: RunId,
    exit: u8,
    status: Option<ExitStatus>,
    reason: ExitReason,
    not_started: Option<String>,
    proof: Vec<ProofItem>,
    driver: String,
    guarantees: Vec<Guarantee>,
    prepared: Duration,
    spawned: Option<Duration>,
    first_output: Option<Duration>,
    duration: Duration,
    usage: (u64, u64),
    bytes: [u64; 2],
    output: Option<[Vec<u8>; 2]>,
    dropped: u64,
    settled: Settled,
    direct: bool,
    unprotected: Vec<ByteText>,
    /// Protected names that came into the workspace during a direct run.
    appeared: Vec<ByteText>,
    /// Index files of git that a direct run left and that were moved aside, or could not be.
    held: Vec<HeldIndex>,
    /// Protected files that changed during the run.
    altered: Vec<ByteText>,
    /// A path whose cover a process outside took away.
    uncovered: Option<PathBuf>,
    changes_by_file: Option<String>,
    note: Option<String>,
    receipt: Option<Result<Issued, Failure>>,
    egress: Option<Ended>,
    /// Advice about limits of the sandbox that the command met.
    hints: Vec<Hint>,
}

/// Facts about a run beside its outcome.
pub struct Facts {
    /// The output that was kept, and the number of bytes that were dropped.
    pub kept: (Option<[Vec<u8>; 2]>, u64),
    /// The network, where there was one.
    pub egress: Option<Ended>,
    /// The time from the beginning until the sandbox was about to be made.
    pub prepared: Duration,
    /// The instant at which the run began.
    pub clock: Instant,
    /// The file for a copy of the receipt.
    pub receipt_copy: Option<FullOutput>,
    /// Guarantees that the driver states for the sandbox.
    pub guarantees: BTreeSet<Guarantee>,
}

impl Report {
    /// Puts it together, and issues the receipt.
    pub fn new(
        order: &Order,
        handle: &Handle,
        outcome: Outcome,
        settled: Settled,
        facts: Facts,
        issuer: Option<Issuer>,
    ) -> Self {
        let Facts { kept: (output, dropped), egress, prepared, clock, receipt_copy, guarantees } = facts;
        let printed = outcome.output.output();
        let status = outcome.ended.map(|ended| ended.status);
        let exit = match &outcome.not_started {
            Some(reason) => reason.exit_code().unwrap_or(REFUSED),
            None => outcome.reason.exit_code(status),
        };
        // A command that succeeded and whose changes are not there has not succeeded.
        let exit = if exit == 0 && settled.problem.is_some() { REFUSED } else { exit };
        let hints = hints::for_run(order, &outcome, exit);
        let command = order.plan.argv.first().map(|name| name.as_os_str().display().to_string()).unwrap_or_default();
        let workspace = order.plan.workspace.source.as_path();
        let left = order.direct.as_ref().map_or(Ok(Left::default()), |direct| direct.left(workspace));
        let (left, unseen) =
            left.map_or_else(|error| (Left::default(), Some(Failure::from(error).text())), |left| (left, None));
        // Nobody may take the workspace for one that git can work in.
        let is_bad = unseen.is_some() || left.held.iter().any(|index| index.aside.is_err());
        let exit = if exit == 0 && is_bad { REFUSED } else { exit };
        let mut report = Self {
            run_id: order.plan.run_id,
            exit,
            status,
            reason: outcome.reason,
            not_started: outcome.not_started.map(|reason| format!("{command}: {reason}")),
            driver: handle.driver.clone(),
            // A sandbox that proved nothing held nothing for anybody.
            guarantees: if outcome.proof.is_empty() { Vec::new() } else { guarantees.into_iter().collect() },
            proof: outcome.proof,
            prepared,
            spawned: outcome.spawned.map(|at| at - clock),
            first_output: outcome
                .first_output
                .zip(outcome.spawned)
                .map(|(at, from)| at.saturating_duration_since(from)),
            duration: clock.elapsed(),
            usage: outcome.ended.map_or((0, 0), |ended| (ended.cpu_us / 1000, ended.max_rss_bytes)),
            bytes: [printed.stdout.bytes, printed.stderr.bytes],
            output,
            dropped,
            settled,
            direct: matches!(order.plan.workspace.writes, Writes::Direct { .. }),
            unprotected: order.direct.as_ref().map(|direct| direct.unprotected.clone()).unwrap_or_default(),
            appeared: left.appeared,
            held: left.held,
            altered: outcome
                .altered
                .iter()
                .map(|path| ByteText::from(path.strip_prefix(workspace).unwrap_or(path)))
                .collect(),
            uncovered: outcome.uncovered,
            changes_by_file: order.changes_by_file.clone(),
            note: unseen,
            receipt: None,
            egress,
            hints,
        };
        report.receipt = issuer.map(|issuer| report.issue(&issuer, order, printed, receipt_copy));
        if report.exit == 0 && matches!(report.receipt, Some(Err(_))) {
            // As with changes: what was asked for includes the receipt.
            report.exit = REFUSED;
        }
        report
    }

    fn issue(
        &self,
        issuer: &Issuer,
        order: &Order,
        output: Output,
        copy: Option<FullOutput>,
    ) -> Result<Issued, Failure> {
        let signal = match self.status {
            Some(ExitStatus::Signal(signal)) => Some(signal),
            _ => None,
        };
        let no_hash = || Failure::refused("receipt", "the run has no receipt: its network summary has no hash", "");
        let issued = receipt::issue(
            issuer,
            Finished {
                plan: &order.plan,
                env_secrets: &order.env_secrets,
                opened_binds: &order.opened_binds,
                allowed_sockets: &order.allowed_sockets,
                wanted_changes: if self.direct { "direct" } else { order.changes.name() },
                timeout: order.timeout,
                profiles: order.profiles.iter().map(profile_ref).collect(),
                driver: &self.driver,
                guarantees: &self.guarantees,
                proof: &self.proof,
                network: order.network.as_ref().map_or_else(NetworkInForce::none, Network::for_receipt),
                egress: self.egress.as_ref().map(|egress| egress.receipt().ok_or_else(no_hash)).transpose()?,
                changes: self.changes_for_receipt()?,
                durable: !matches!(self.settled.state, State::None | State::Discarded),
                output,
                exit: Exit { code: self.exit, signal, reason: word(&self.reason) },
                prepared: self.prepared,
                spawned: self.spawned,
                duration: self.duration,
            },
        )?;
        if let Some(mut copy) = copy {
            copy.file.write_all(&issued.sealed.file).and_then(|()| copy.finish()).map_err(|error| {
                let hint = format!("the receipt itself is {}", issued.path.display());
                Failure::refused("receipt", format!("the copy of the receipt cannot be written: {error}"), hint)
            })?;
        }
        Ok(issued)
    }

    fn changes_for_receipt(&self) -> Result<nexus_receipt::Changes, Failure> {
        let Settled { state, changes, parked, conflicts, .. } = &self.settled;
        let (added, modified, deleted) = changes.counts();
        let no_hash = || Failure::refused("receipt", "the run has no receipt: its changes have no hash", "");
        Ok(nexus_receipt::Changes {
            state: word(state),
            added: added as u64,
            modified: modified as u64,
            deleted: deleted as u64,
            parked: parked.len() as u64,
            conflicts: conflicts.len() as u64,
            hash: Digest::of_members(vec![
                ("state", Member::Value(json!(state))),
                ("changes", elements(&changes.changes)),
                ("parked", elements(parked)),
                ("conflicts", elements(conflicts)),
            ])
            .ok_or_else(no_hash)?,
        })
    }

    /// Returns the failure with which the run ended, with a failure of its receipt added. The report says no more.
    pub fn into_failure(self, mut failure: Failure) -> Failure {
        if let Some(Err(second)) = self.receipt {
            failure.message = format!("{}; and then: {}", failure.message, second.message);
        }
        failure
    }

    /// Something that went wrong after the run.
    #[must_use]
    pub fn with_note(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }

    /// Adds a piece of advice to the report.
    #[must_use]
    pub fn with_hint(mut self, hint: Hint) -> Self {
        self.hints.push(hint);
        self
    }

    /// Prints it where it belongs and returns the exit code.
    pub fn print(&self, args: &RunArgs) -> u8 {
        let printed = if args.json {
            let mut out = BufWriter::with_capacity(1 << 16, ToCaller);
            let document = serde_json::to_writer(&mut out, &self.document(args)).map_err(io::Error::from);
            document.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())
        } else {
            let text = self.text(args.verbose || io::stderr().is_terminal());
            write_to_caller(Stream::Err, text.as_bytes())
        };
        // The run itself is over and settled; only its description could not be delivered.
        match printed {
            Ok(()) => self.exit,
            Err(error) => print_failure(&not_written("the report of the run", &error), false).max(self.exit),
        }
    }

    /// Returns the exit code.
    pub fn exit_code(&self) -> u8 {
        self.exit
    }

    /// Returns the reason why the run ended.
    pub fn reason(&self) -> ExitReason {
        self.reason
    }

    /// Renders the report for the user; `summary` adds the line that sums up the run.
    pub fn text(&self, summary: bool) -> String {
        let mut lines = Lines::default();
        if let Some(reason) = &self.not_started {
            lines.add(reason);
        }
        match self.reason {
            ExitReason::Timeout => lines.add("the time limit ended the command"),
            ExitReason::Oom => lines.add("the memory limit killed the command; raise it with --memory"),
            ExitReason::DiskQuota => lines
                .add("the command used more disk than it may and nothing was committed; raise the limit with --disk"),
            ExitReason::GuestLost => lines.add("the sandbox was lost and nothing was committed"),
            _ => {}
        }
        if let Some(problem) = &self.settled.problem {
            lines.add(&problem.text());
        } else if !self.settled.parked.is_empty() {
            let shown = parked_names(&self.settled.parked, 5);
            let look = format!("nexus changes show --run {}", self.run_id);
            lines.add(&format!("not committed, waiting for a decision: {shown} ({look})"));
        }
        for line in [unwatched_line(self.settled.unwatched), readers_line(&self.settled.readers)].iter().flatten() {
            lines.add(line);
        }
        if let Some(line) = self.kept_out_by_file() {
            lines.add(&line);
        }
        if let Some(path) = &self.uncovered {
            lines.add(&uncovered_line(path));
        }
        if !self.altered.is_empty() {
            lines.add(&format!("protected files changed during the run: {}", some_of(&self.altered)));
        }
        if !self.appeared.is_empty() {
            lines.add(&appeared_line(&self.appeared));
        }
        for index in &self.held {
            lines.add(&held_line(index));
        }
        for line in self.egress.iter().flat_map(Ended::lines) {
            lines.add(&line);
        }
        for hint in &self.hints {
            lines.add(&hint.message);
        }
        if let Some(note) = &self.note {
            lines.add(note);
        }
        match &self.receipt {
            Some(Err(failure)) => lines.add(&failure.text()),
            Some(Ok(Issued { unchained: Some(why), .. })) => {
                lines.add(&format!("the receipt has no sure place in the chain of receipts: {why}"));
            }
            Some(Ok(_)) | None => {}
        }
        if summary {
            self.summary(&mut lines);
        }
        lines.0
    }

    /// Work that is not in the workspace because a file of the workspace wanted it so is never left unsaid.
    fn kept_out_by_file(&self) -> Option<String> {
        let by = self.changes_by_file.as_ref()?;
        let (what, advice) = match self.settled.state {
            State::Discarded if !self.settled.changes.changes.is_empty() => ("discarded", "take the line out"),
            State::Parked => ("not committed", "decide with nexus changes"),
            State::None | State::Committed | State::Discarded | State::Failed => return None,
        };
        Some(format!("the changes were {what} because the workspace's own nexus.yaml says so: {by} ({advice})"))
    }

    fn summary(&self, lines: &mut Lines) {
        let ended = match self.status {
            Some(ExitStatus::Code(code)) => format!("exit {code}"),
            Some(ExitStatus::Signal(signal)) => format!("killed by signal {signal}"),
            None => format!("exit {}", self.exit),
        };
        let (added, modified, deleted) = self.settled.changes.counts();
        let counts = format!("{added} added, {modified} modified, {deleted} deleted");
        let changes = match self.settled.state {
            State::None if self.direct => "written directly".to_owned(),
            State::None => "no changes".to_owned(),
            State::Committed => format!("committed: {counts}"),
            State::Parked => "nothing committed".to_owned(),
            State::Discarded => format!("discarded: {counts}"),
            State::Failed => "changes neither committed nor kept".to_owned(),
        };
        lines.add(&format!("{ended} after {:.2} s; {changes}", self.duration.as_secs_f64()));
        let all = &self.settled.changes.changes;
        for change in all.iter().take(MOST_SHOWN) {
            lines.add(&format!("  {}", crate::changes::line(change)));
        }
        if all.len() > MOST_SHOWN {
            lines.add(&format!("  … and {} more", all.len() - MOST_SHOWN));
        }
        if !self.unprotected.is_empty() {
            lines.add(&format!("not there and so not protected with --direct: {}", some_of(&self.unprotected)));
        }
    }
}
