//! The report of a run, as data. The caller renders it.

use crate::live::attendant::KeptOutput;
use crate::live::bounds::Outcome;
use crate::live::last_words::LastWords;
use crate::live::names::AskedNames;
use crate::net::ended::NetworkEnd;
use crate::plan::direct::{DirectError, LeftByDirectRun};
use crate::plan::resolve::ResolvedRun;
use crate::run::error::ReceiptError;
use crate::settle::settled::Settled;
use nexus_driver::{Handle, NotStarted};
use nexus_model::exit::REFUSED;
use nexus_model::proof::ProofItem;
use nexus_model::{ByteText, ExitReason, ExitStatus, Guarantee, RunId};
use nexus_receipt::{Issued, Output};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Something that went wrong beside a run that has a report.
#[derive(Debug)]
pub enum Remark {
    /// The workspace of a direct run cannot be looked through.
    Unseen(DirectError),
    /// Spare directories of earlier runs cannot be removed.
    Pool {
        /// The directory that has them.
        path: PathBuf,
        /// The cause of it.
        why: String,
    },
    /// The record of the run cannot be removed.
    Record {
        /// The answer of the system.
        why: String,
    },
}

/// Everything about a run that has ended.
#[derive(Debug)]
pub struct RunReport {
    /// The id of the run.
    pub run_id: RunId,
    /// The exit code.
    pub exit: u8,
    /// The exit code without what the caller's files were found to be after the run.
    pub command_exit: u8,
    /// The end of the command.
    pub status: Option<ExitStatus>,
    /// The reason for the end of the run.
    pub reason: ExitReason,
    /// The reason why the command did not start, which has an exit code of its own.
    pub not_started: Option<NotStarted>,
    /// The proof of the confinement.
    pub proof: Vec<ProofItem>,
    /// The name of the driver.
    pub driver: String,
    /// The guarantees that were held.
    pub guarantees: Vec<Guarantee>,
    /// The time from the beginning until the sandbox was about to be made.
    pub prepared: Duration,
    /// The time from the beginning until the command ran.
    pub spawned: Option<Duration>,
    /// The time from then until the first output.
    pub first_output: Option<Duration>,
    /// The time from the beginning until the changes were settled.
    pub duration: Duration,
    /// Milliseconds of processor time, and bytes of memory at most.
    pub usage: (u64, u64),
    /// Bytes of stdout and stderr.
    pub bytes: [u64; 2],
    /// The end of both streams.
    pub last_words: LastWords,
    /// Names that the command asked for without a network.
    pub names: AskedNames,
    /// The output that was kept, and the number of bytes that were dropped.
    pub kept: KeptOutput,
    /// The state of the workspace that was kept before a live run, by its hash.
    pub checkpoint: Option<String>,
    /// The outcome of the changes.
    pub settled: Settled,
    /// Entries that a direct run left and that programs of the host may act on.
    pub left: LeftByDirectRun,
    /// Protected files that changed during the run.
    pub altered: Vec<ByteText>,
    /// A path whose cover a process outside took away.
    pub uncovered: Option<PathBuf>,
    /// The network, where there was one.
    pub network: Option<NetworkEnd>,
    /// All that went wrong beside the run.
    pub remarks: Vec<Remark>,
    /// The receipt, or the reason why there is none.
    pub receipt: Option<Result<Issued, ReceiptError>>,
}

/// Facts about a run beside its outcome.
pub struct Facts {
    /// The output that was kept, and the number of bytes that were dropped.
    pub kept: KeptOutput,
    /// The network, where there was one.
    pub network: Option<NetworkEnd>,
    /// The time from the beginning until the sandbox was about to be made.
    pub prepared: Duration,
    /// The instant at which the run began.
    pub clock: Instant,
    /// Guarantees that the driver states for the sandbox.
    pub guarantees: BTreeSet<Guarantee>,
}

impl RunReport {
    /// Puts the report together, without a receipt. `left` is what the examination of the workspace after a direct run found. Returns the
    /// lengths and hashes of the output for the receipt.
    pub(crate) fn new(
        run: &ResolvedRun,
        handle: &Handle,
        outcome: Outcome,
        settled: Settled,
        left: Result<LeftByDirectRun, DirectError>,
        facts: Facts,
    ) -> (Self, Output) {
        let Facts { kept, network, prepared, clock, guarantees } = facts;
        let printed = outcome.output.output();
        let status = outcome.ended.map(|ended| ended.status);
        let exit = match &outcome.not_started {
            Some(reason) => reason.exit_code().unwrap_or(REFUSED),
            None => outcome.reason.exit_code(status),
        };
        // A command that succeeded and whose changes are not there has not succeeded.
        let command_exit = if exit == 0 && settled.problem.is_some() { REFUSED } else { exit };
        let workspace = run.plan.workspace.source.as_path();
        let (left, remarks) = match left {
            Ok(left) => (left, Vec::new()),
            Err(error) => (LeftByDirectRun::default(), vec![Remark::Unseen(error)]),
        };
        // No reader may take the workspace for one that git can work in.
        let is_bad = !remarks.is_empty() || left.held.iter().any(|index| index.aside.is_err());
        let relative = |path: &PathBuf| ByteText::from(path.strip_prefix(workspace).unwrap_or(path));
        let first_output = outcome.first_output.zip(outcome.spawned);
        let report = Self {
            run_id: run.plan.run_id,
            exit: if command_exit == 0 && is_bad { REFUSED } else { command_exit },
            command_exit,
            status,
            reason: outcome.reason,
            not_started: outcome.not_started,
            driver: handle.driver.clone(),
            // A sandbox that proved nothing held nothing for anybody.
            guarantees: if outcome.proof.is_empty() { Vec::new() } else { guarantees.into_iter().collect() },
            proof: outcome.proof,
            prepared,
            spawned: outcome.spawned.map(|at| at - clock),
            first_output: first_output.map(|(at, from)| at.saturating_duration_since(from)),
            duration: clock.elapsed(),
            usage: outcome.ended.map_or((0, 0), |ended| (ended.cpu_us / 1000, ended.max_rss_bytes)),
            bytes: [printed.stdout.bytes, printed.stderr.bytes],
            last_words: outcome.output.into_last_words(),
            names: outcome.names,
            kept,
            checkpoint: None,
            settled,
            left,
            altered: outcome.altered.iter().map(relative).collect(),
            uncovered: outcome.uncovered,
            network,
            remarks,
            receipt: None,
        };
        (report, printed)
    }

    /// Adds the receipt. What was asked for includes it, so that without one the run has not succeeded.
    pub(crate) fn with_receipt(mut self, receipt: Option<Result<Issued, ReceiptError>>) -> Self {
        if self.exit == 0 && matches!(receipt, Some(Err(_))) {
            self.exit = REFUSED;
        }
        self.receipt = receipt;
        self
    }
}
