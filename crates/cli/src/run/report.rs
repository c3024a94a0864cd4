//! The report of a run, for people and for programs, and the receipt of the run, which states the same.

mod document;
mod print;
mod words;

use super::direct::{appeared_line, held_line, some_of, uncovered_line};
use super::input::Input;
use super::open_files::readers_line;
use super::parsed_run::ParsedRun;
use crate::change_text;
use crate::failure::Failure;
use crate::failures::INTERNAL_ADVICE;
use nexus_hints::{Ended, Hint, blocked};
use nexus_model::exit::REFUSED;
use nexus_model::{ByteText, ExitReason, ExitStatus};
use nexus_receipt::Issued;
use nexus_runner::change_text::unwatched_line;
use nexus_runner::live::full_output::FullOutput;
use nexus_runner::run::report::{Remark, RunReport};
use nexus_runner::settle::settled::ChangesState;
use std::io::Write;
use words::{Lines, MAX_SHOWN, parked_names};

/// The report of a run that has ended, with what this command adds to it.
pub struct Report {
    run: RunReport,
    exit: u8,
    not_started: Option<String>,
    direct: bool,
    unprotected: Vec<ByteText>,
    changes_by_file: Option<String>,
    notes: Vec<String>,
    /// The hosts that the rules of the run allow by name.
    named_hosts: Vec<blocked::Named>,
    /// The group of the command, if it is a package client.
    client_group: Option<&'static str>,
    problem: Option<Failure>,
    receipt: Option<Result<Issued, Failure>>,
    /// Advice about limits of the sandbox that the command met.
    hints: Vec<Hint>,
    /// The image in place of the host's system: its digest, and the name that the caller gave it.
    image: Option<serde_json::Value>,
}

/// Hands a run over to its advice.
fn ended<'a>(parsed_run: &'a ParsedRun, report: &'a RunReport) -> Ended<'a> {
    let ParsedRun { run, toolchains, shows_auto, .. } = parsed_run;
    Ended { run, report, input_was_left: parsed_run.input == Input::NotPassed, toolchains, shows_auto: *shows_auto }
}

impl Report {
    /// Adds advice, where it is wanted, and what the caller asked for to the report of the engine. `copy` takes a copy of the
    /// receipt.
    pub fn new(parsed_run: &ParsedRun, mut run: RunReport, copy: Option<FullOutput>, advises: bool) -> Self {
        // Nothing is looked up for advice that is not printed.
        let hints = if advises { nexus_hints::for_run(ended(parsed_run, &run)) } else { Vec::new() };
        let asked = &parsed_run.run;
        let argv = &asked.plan.argv;
        let command = argv.first().map(|name| name.as_os_str().display().to_string()).unwrap_or_default();
        let receipt = run.receipt.take().map(|issued| copied(issued?, copy));
        // A run without its receipt has not succeeded, as a run without its changes has not.
        let is_incomplete = match &receipt {
            Some(Err(_)) => true,
            Some(Ok(issued)) => issued.has_lost_its_place(),
            None => false,
        };
        let exit = if run.exit == 0 && is_incomplete { REFUSED } else { run.exit };
        let direct = asked.direct.as_ref();
        Self {
            exit,
            not_started: run.not_started.as_ref().map(|reason| format!("{command}: {reason}")),
            direct: direct.is_some(),
            unprotected: direct.map(|direct| direct.unprotected.clone()).unwrap_or_default(),
            changes_by_file: parsed_run.changes_by_file.clone(),
            notes: std::mem::take(&mut run.remarks).into_iter().map(remark).collect(),
            client_group: blocked::client_group(argv),
            named_hosts: asked.network.as_ref().map(|net| blocked::named(&net.policy)).unwrap_or_default(),
            problem: run.settled.problem.clone().map(Failure::from),
            receipt,
            hints,
            image: asked
                .plan
                .image
                .as_ref()
                .map(|image| serde_json::json!({"digest": image.digest, "reference": parsed_run.image_reference})),
            run,
        }
    }

    /// Adds a line for the user.
    pub fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    /// Returns the exit code.
    pub fn exit_code(&self) -> u8 {
        self.exit
    }

    /// Returns the reason why the run ended.
    pub fn reason(&self) -> ExitReason {
        self.run.reason
    }

    /// Renders the report for the user; `summary` adds the line that sums up the run, `advises` the advice.
    pub fn text(&self, summary: bool, advises: bool) -> String {
        let mut lines = Lines::default();
        if let Some(reason) = &self.not_started {
            lines.add(reason);
        }
        match self.run.reason {
            ExitReason::Timeout => lines.add("the time limit ended the command; raise it with --timeout"),
            ExitReason::Oom => lines.add("the memory limit killed the command; raise it with --memory"),
            ExitReason::DiskQuota => lines
                .add("the command used more disk than it may and nothing was committed; raise the limit with --disk"),
            ExitReason::GuestLost => lines.add("the sandbox was lost and nothing was committed"),
            _ => {}
        }
        if let Some(problem) = &self.problem {
            lines.add(&problem.text());
        } else if !self.run.settled.parked.is_empty() {
            let shown = parked_names(&self.run.settled.parked, 5);
            let show_command = format!("nexus changes show --run {}", self.run.run_id);
            lines.add(&format!("not committed, waiting for a decision: {shown} ({show_command})"));
        }
        for line in
            [unwatched_line(self.run.settled.unwatched), readers_line(&self.run.settled.readers)].iter().flatten()
        {
            lines.add(line);
        }
        if let Some(line) = self.kept_out_by_file() {
            lines.add(&line);
        }
        if let Some(path) = &self.run.uncovered {
            lines.add(&uncovered_line(path, self.direct));
        }
        if !self.run.altered.is_empty() {
            lines.add(&format!("protected files changed during the run: {}", some_of(&self.run.altered)));
        }
        if !self.run.left.appeared.is_empty() {
            lines.add(&appeared_line(&self.run.left.appeared));
        }
        for index in &self.run.left.held {
            lines.add(&held_line(index));
        }
        for line in
            self.run.network.iter().flat_map(|ended| blocked::lines(ended, &self.named_hosts, self.client_group))
        {
            lines.add(&line);
        }
        for hint in self.hints.iter().filter(|_| advises) {
            lines.add(&hint.message);
        }
        for note in &self.notes {
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
        } else if advises {
            self.deletions(&mut lines);
        }
        lines.0
    }

    /// Adds a line when a commit deleted files without asking.
    fn deletions(&self, lines: &mut Lines) {
        let (_, _, deleted) = self.run.settled.changes.counts();
        if self.run.settled.state == ChangesState::Committed && deleted > 0 {
            let counts = self.counts();
            lines.add(&format!("committed: {counts} (-v lists them, --changes review lets you decide)"));
        }
    }

    fn counts(&self) -> String {
        let changes = &self.run.settled.changes;
        let (added, modified, deleted) = changes.counts();
        let sockets = match changes.left_out() {
            0 => String::new(),
            1 => ", 1 socket left out".to_owned(),
            more => format!(", {more} sockets left out"),
        };
        format!("{added} added, {modified} modified, {deleted} deleted{sockets}")
    }

    /// Returns the note that the workspace's nexus.yaml kept the changes out, if it did.
    fn kept_out_by_file(&self) -> Option<String> {
        let by = self.changes_by_file.as_ref()?;
        let (what, advice) = match self.run.settled.state {
            ChangesState::Discarded if !self.run.settled.changes.changes.is_empty() => {
                ("discarded", "take the line out")
            }
            ChangesState::Parked => ("not committed", "decide with nexus changes"),
            ChangesState::None | ChangesState::Committed | ChangesState::Discarded | ChangesState::Failed => {
                return None;
            }
        };
        Some(format!("the changes were {what} because the workspace's own nexus.yaml says so: {by} ({advice})"))
    }

    fn summary(&self, lines: &mut Lines) {
        let ended = match self.run.status {
            Some(ExitStatus::Code(code)) => format!("exit {code}"),
            Some(ExitStatus::Signal(signal)) => format!("killed by signal {signal}"),
            None => format!("exit {}", self.exit),
        };
        let counts = self.counts();
        let changes = match self.run.settled.state {
            ChangesState::None if self.direct => "written directly".to_owned(),
            ChangesState::None => "no changes".to_owned(),
            ChangesState::Committed => format!("committed: {counts}"),
            ChangesState::Parked => "nothing committed".to_owned(),
            ChangesState::Discarded => format!("discarded: {counts}"),
            ChangesState::Failed => "changes neither committed nor kept".to_owned(),
        };
        lines.add(&format!("{ended} after {:.2} s; {changes}", self.run.duration.as_secs_f64()));
        let all = &self.run.settled.changes.changes;
        for change in all.iter().take(MAX_SHOWN) {
            lines.add(&format!("  {}", change_text::line(change)));
        }
        if all.len() > MAX_SHOWN {
            lines.add(&format!("  … and {} more", all.len() - MAX_SHOWN));
        }
        if !self.unprotected.is_empty() {
            lines.add(&format!("not there and so not protected with --direct: {}", some_of(&self.unprotected)));
        }
    }
}

/// Writes the copy of a receipt that the user asked for.
pub fn copied(issued: Issued, copy: Option<FullOutput>) -> Result<Issued, Failure> {
    let Some(mut copy) = copy else { return Ok(issued) };
    copy.file.write_all(&issued.sealed.file).and_then(|()| copy.finish()).map_err(|error| {
        let hint = format!("the receipt itself is {}", issued.path.display());
        Failure::refused("receipt", format!("the copy of the receipt cannot be written: {error}"), hint)
    })?;
    Ok(issued)
}

/// Says what went wrong beside a run.
fn remark(remark: Remark) -> String {
    match remark {
        Remark::Unseen(error) => Failure::from(error).text(),
        Remark::Pool { path, why } => {
            format!("what earlier runs left in {} could not be removed: {why}", path.display())
        }
        Remark::Record { why } => {
            Failure::refused("internal", format!("the run's record: {why}"), INTERNAL_ADVICE).text()
        }
    }
}
