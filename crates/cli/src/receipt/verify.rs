//! `nexus receipt verify`: whether a receipt is what it says, and whether a file is what it speaks of.
//!
//! Exit 0: valid. 1: not valid, with the reason. 2: there was nothing to look at.

use super::breaks::Breaks;
use super::issue;
use super::keys::{KeyFolder, Known};
use super::store::Store;
use crate::args::VerifyArgs;
use crate::failure::{Failure, one_line};
use crate::net::Ended;
use crate::places::Places;
use crate::run;
use nexus_model::Digest;
use nexus_model::RunId;
use nexus_policy::receipt::{
    ChainEnd, ChainPlace, ChainProblem, Changes, Egress, Keyring, Link, MAX_BYTES, Opened, PublicKey, Receipt, Ring,
    StreamDigest, check_chain, open,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Exit code for what is not valid.
const INVALID: u8 = 1;

/// Where a receipt is.
pub enum Source {
    /// Any file.
    File(PathBuf),
    /// The state directory's own.
    Run(RunId),
}

impl Source {
    /// A run's id, or else a file's name.
    pub fn of(text: &Path) -> Self {
        match text.to_str().and_then(|text| text.parse().ok()) {
            Some(run) => Self::Run(run),
            None => Self::File(text.to_owned()),
        }
    }

    /// Opens it. Asked for by its run, it must be that run's: whoever can write the folder can give one valid receipt
    /// the name of another, and a success would stand for a failure.
    pub fn open(&self, file: &[u8], ring: &Keyring) -> Result<Opened, Invalid> {
        let opened = open(file, ring).map_err(|error| Invalid { code: error.code(), message: error.to_string() })?;
        match self {
            Self::Run(run) if opened.receipt.run_id != *run => Err(renamed(*run, &opened)),
            Self::Run(_) | Self::File(_) => Ok(opened),
        }
    }

    /// Its bytes.
    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::File(path) => {
                let mut content = Vec::new();
                let read = File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut content));
                read.map_err(|error| nothing(&path.display().to_string(), &error))?;
                Ok(content)
            }
            Self::Run(run) => {
                let (store, _) = local()?;
                store.read(*run).map_err(|error| nothing(&format!("the receipt of the run {run}"), &error))
            }
        }
    }
}

/// This state directory's receipts and keys.
pub fn local() -> Result<(Store, Known), Failure> {
    let places = Places::find()?.ensure()?;
    let known = KeyFolder::open(&places.state).and_then(|folder| folder.known());
    let store = Store::open(&places.state).map_err(|error| issue::folder(&error))?;
    Ok((store, known.map_err(|error| issue::key(&error))?))
}

/// The keys that count: the named ones alone, else those of this state directory. Links lead from them to later ones.
pub fn keyring(keys: &[PathBuf], links: &[PathBuf]) -> Result<Keyring, Failure> {
    let mut ring = if keys.is_empty() { local()?.1.ring() } else { Keyring::default() };
    for path in keys {
        let text = text_of(path)?;
        let found = PublicKey::all_from_pem(&text).map_err(|error| {
            Failure::usage("key", format!("--key {}: {error}", path.display()), "nexus receipt keys export prints one")
        })?;
        for key in found {
            ring.add(key);
        }
    }
    let mut waiting: Vec<(PathBuf, String)> = Vec::new();
    for path in links {
        waiting.extend(text_of(path)?.lines().map(|line| (path.clone(), format!("{line}\n"))));
    }
    // In whatever order they were given: as long as one of them leads on.
    loop {
        let before = waiting.len();
        let mut refused = None;
        waiting.retain(|(path, link)| match Link::open(link.as_bytes(), &ring) {
            Ok((key, _)) => {
                ring.add(key);
                false
            }
            Err(error) => {
                refused.get_or_insert((path.clone(), error));
                true
            }
        });
        match refused {
            None => return Ok(ring),
            Some((path, error)) if waiting.len() == before => {
                let message = format!("--link {}: {error}", path.display());
                let failure = Failure::refused("link", message, "a link counts when a key that is trusted signed it");
                return Err(Failure { exit: INVALID, ..failure });
            }
            Some(_) => {}
        }
    }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(1 << 20).read_to_string(&mut text));
    read.map(|_| text).map_err(|error| nothing(&path.display().to_string(), &error))
}

fn nothing(what: &str, error: &std::io::Error) -> Failure {
    Failure::usage("nothing_to_verify", format!("{what} cannot be read: {error}"), "nexus log lists runs")
}

/// Why something is not valid.
pub struct Invalid {
    /// A stable word for programs.
    pub code: &'static str,
    /// The reason.
    pub message: String,
}

/// The code of an answer where there is no receipt at all: neither valid nor forged.
const NOTHING: &str = "nothing_to_verify";

impl Invalid {
    /// What a person is told.
    pub fn failure(&self) -> Failure {
        let message = if self.code == NOTHING { self.message.clone() } else { format!("not valid: {}", self.message) };
        Failure { exit: INVALID, code: self.code, message, hint: String::new() }
    }
}

fn renamed(run: RunId, opened: &Opened) -> Invalid {
    Invalid { code: "renamed", message: format!("{run}: it is the receipt of the run {}", opened.receipt.run_id) }
}

/// Runs it and returns the exit code.
pub fn command(args: &VerifyArgs) -> u8 {
    let answer = match look(args) {
        Ok(answer) => answer,
        Err(failure) => return run::print_failure(&failure, false),
    };
    let (exit, text) = match &answer {
        Ok(text) => (0, format!("{}\n", one_line(text))),
        Err(_) => (INVALID, String::new()),
    };
    let text = match (&answer, args.json) {
        (_, false) => text,
        (Ok(text), true) => document(true, None, text),
        (Err(invalid), true) => document(false, Some(invalid.code), &invalid.message),
    };
    if let (Err(invalid), false) = (&answer, args.json) {
        return run::print_failure(&invalid.failure(), false);
    }
    match super::print(Ok(text)) {
        0 => exit,
        other => other,
    }
}

fn document(valid: bool, reason: Option<&str>, message: &str) -> String {
    format!("{}\n", json!({"schema": "nexus.verify/1", "valid": valid, "reason": reason, "message": message}))
}

fn look(args: &VerifyArgs) -> Result<Result<String, Invalid>, Failure> {
    let ring = keyring(&args.key, &args.link)?;
    let Some(target) = &args.receipt else { return all(&ring) };
    let source = Source::of(target);
    let opened = match source.open(&source.read()?, &ring) {
        Ok(opened) => opened,
        Err(invalid) => return Ok(Err(invalid)),
    };
    if let Some(invalid) = against(args, &opened)? {
        return Ok(Err(invalid));
    }
    let also = [
        (args.stdout.is_some(), "stdout"),
        (args.stderr.is_some(), "stderr"),
        (args.net_record.is_some(), "the record of the network"),
        (args.report.is_some(), "the report"),
    ];
    let also: Vec<&str> = also.into_iter().filter_map(|(asked, what)| asked.then_some(what)).collect();
    let also = if also.is_empty() { String::new() } else { format!("; {} as it says", also.join(" and ")) };
    let also = match &args.report {
        Some(path) => also + &caveat(&only_by_length(&report(path)?, &opened.receipt)),
        None => also,
    };
    Ok(Ok(format!("valid: run {}, signed by the key {}{also}", opened.receipt.run_id, opened.receipt.key_id)))
}

/// Files that are said to belong to the receipt.
fn against(args: &VerifyArgs, opened: &Opened) -> Result<Option<Invalid>, Failure> {
    let receipt = &opened.receipt;
    let streams = [
        (&args.stdout, &receipt.output.stdout, "stdout", "stdout_mismatch"),
        (&args.stderr, &receipt.output.stderr, "stderr", "stderr_mismatch"),
    ];
    for (path, said, what, code) in streams {
        let Some(path) = path else { continue };
        let found = digest(path)?;
        if found != *said {
            let message = format!(
                "{} is not the {what} of the run: it has {} bytes, {}; the receipt says {} bytes, {}",
                path.display(),
                found.bytes,
                found.hash,
                said.bytes,
                said.hash
            );
            return Ok(Some(Invalid { code, message }));
        }
    }
    if let Some(path) = &args.net_record
        && let Some(invalid) = against_record(path, receipt)?
    {
        return Ok(Some(invalid));
    }
    let Some(path) = &args.report else { return Ok(None) };
    Ok(differs(&report(path)?, receipt).map(|what| {
        let message = format!("{} is not the report of the run: its {what} is another", path.display());
        Invalid { code: "report_mismatch", message }
    }))
}

/// The record of the network, as it was when the run ended.
fn against_record(path: &Path, receipt: &Receipt) -> Result<Option<Invalid>, Failure> {
    let code = "net_record_mismatch";
    let Some(said) = receipt.egress.as_ref().and_then(|egress| egress.record) else {
        let why = if receipt.egress.is_some() { "its form is older" } else { "the run had no network" };
        let message = format!("the receipt says nothing of a record of the network: {why}");
        return Ok(Some(Invalid { code, message }));
    };
    let found = digest(path)?;
    let message = format!(
        "{} is not the record of the run's network: it has {} bytes, {}; the receipt says {} bytes, {}",
        path.display(),
        found.bytes,
        found.hash,
        said.bytes,
        said.hash
    );
    Ok((found != said).then_some(Invalid { code, message }))
}

fn report(path: &Path) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| nothing(&path.display().to_string(), &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("--report {}: {error}", path.display());
        Failure::usage("report", message, "give the document that nexus run --json printed")
    })
}

/// What a comparison cannot say.
fn caveat(cut: &[&str]) -> String {
    if cut.is_empty() {
        return String::new();
    }
    format!(" (of its {} only the length was compared: the text is a part)", cut.join(" and "))
}

/// The first part of a `nexus run --json` document that is not what the receipt says.
fn differs(report: &Value, receipt: &Receipt) -> Option<&'static str> {
    let guarantees = json!(receipt.guarantees);
    let proof = json!(receipt.proof);
    let parts = [
        ("run_id", report["run_id"] == json!(receipt.run_id)),
        ("reason", report["reason"] == json!(receipt.exit.reason)),
        ("exit code", report["exit_code"] == json!(receipt.exit.code)),
        ("signal", report["signal"] == json!(receipt.exit.signal)),
        ("guarantees", report["sandbox"]["guarantees"] == guarantees),
        ("proof", report["sandbox"]["proof"] == proof),
        ("counts of changes", are_counts(&report["changes"], &receipt.changes)),
        ("network", is_egress(&report["egress"], receipt.egress.as_ref())),
        ("changes", changes_hash(&report["changes"]) == Some(receipt.changes.hash)),
        ("stdout", is_stream(report, "stdout", &receipt.output.stdout)),
        ("stderr", is_stream(report, "stderr", &receipt.output.stderr)),
    ];
    parts.into_iter().find_map(|(what, same)| (!same).then_some(what))
}

fn are_counts(report: &Value, said: &Changes) -> bool {
    let counts = [("added", said.added), ("modified", said.modified), ("deleted", said.deleted)];
    counts.iter().all(|(name, count)| report[name] == json!(count))
}

/// A run without a network has no such part in its receipt, and an empty one in its report.
fn is_egress(report: &Value, said: Option<&Egress>) -> bool {
    match said {
        Some(said) => Digest::of_json(report) == Some(said.hash),
        None => *report == Ended::default().json(),
    }
}

/// Whether a report's text can be what the receipt says. A text that was cut can be compared by its length alone; whether
/// it was is seen in the text and not believed, since a report is not signed.
fn is_stream(report: &Value, name: &str, said: &StreamDigest) -> bool {
    let same_length = report["usage"][format!("{name}_bytes")] == json!(said.bytes);
    let says_cut = report["output"]["truncated_bytes"] != json!(0);
    let fits = |text: Vec<u8>| if is_cut(&text, said) { says_cut } else { Digest::of(&text) == said.hash };
    same_length && shown_of(report, name).is_some_and(fits)
}

fn shown_of(report: &Value, name: &str) -> Option<Vec<u8>> {
    let text: Result<nexus_model::ByteText, _> = serde_json::from_value(report["output"][name].clone());
    text.ok().map(|text| text.0)
}

/// Whether some of the stream is missing.
fn is_cut(text: &[u8], said: &StreamDigest) -> bool {
    (text.len() as u64) < said.bytes
}

/// The streams of which a report has a part, which nothing says to be the right one.
fn only_by_length(report: &Value, receipt: &Receipt) -> Vec<&'static str> {
    let streams = [("stdout", &receipt.output.stdout), ("stderr", &receipt.output.stderr)];
    let cut = streams.iter().filter(|(name, said)| shown_of(report, name).is_some_and(|text| is_cut(&text, said)));
    cut.map(|(name, _)| *name).collect()
}

/// The hash of a change set, from the report's `changes`.
fn changes_hash(changes: &Value) -> Option<Digest> {
    let part = |name: &str| changes.get(name).cloned();
    let lists = json!({
        "state": part("state")?,
        "changes": part("changes")?,
        "parked": part("parked")?,
        "conflicts": part("conflicts")?,
    });
    Digest::of_json(&lists)
}

fn digest(path: &Path) -> Result<StreamDigest, Failure> {
    crate::net::digest(path).map_err(|error| nothing(&path.display().to_string(), &error))
}

/// Every receipt of a state directory, as far as it is valid.
pub struct Collected {
    /// All runs with a receipt.
    runs: Vec<RunId>,
    /// Valid receipts with a place in a chain.
    pub rings: Vec<Ring>,
    /// How many have no place.
    unchained: usize,
    wrong: Vec<Invalid>,
    /// The note of the end.
    pub end: Option<ChainEnd>,
    /// The recorded breaks.
    pub breaks: Breaks,
}

impl Collected {
    /// Reads them.
    pub fn of(store: &Store, ring: &Keyring) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| nothing("the receipts", &error);
        // The end is looked at first: what is issued meanwhile is beyond it.
        let end = store.end().map_err(failed)?;
        let breaks = store.breaks().map_err(failed)?;
        let runs = store.runs().map_err(failed)?;
        let mut found = Self { rings: Vec::new(), unchained: 0, wrong: Vec::new(), end, breaks, runs };
        for run in &found.runs {
            let file = match store.read(*run) {
                Ok(file) => file,
                // Pruned since.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(nothing(&format!("the receipt of the run {run}"), &error)),
            };
            match open(&file, ring) {
                Ok(opened) if opened.receipt.run_id != *run => found.wrong.push(renamed(*run, &opened)),
                Ok(Opened { receipt: Receipt { chain: Some(place), .. }, hash, .. }) => {
                    found.rings.push(Ring { run_id: *run, hash, place });
                }
                Ok(_) => found.unchained += 1,
                Err(error) => found.wrong.push(Invalid { code: error.code(), message: format!("{run}: {error}") }),
            }
        }
        // Issued while we looked.
        let is_later = |place: &ChainPlace| end.is_some_and(|end| place.chain == end.chain && place.seq >= end.next);
        found.rings.retain(|ring| !is_later(&ring.place));
        Ok(found)
    }
}

/// Every receipt of this state directory, and whether one was taken out.
fn all(ring: &Keyring) -> Result<Result<String, Invalid>, Failure> {
    let (store, _) = local()?;
    let Collected { runs, rings, unchained, mut wrong, end, breaks } = Collected::of(&store, ring)?;
    // Whoever takes everything away takes the evidence of it, too: that is not valid, only unknown.
    if runs.is_empty() && end.is_none() {
        let message = "there is nothing to verify: no receipts and no chain; either no run has ended here yet, or all of them were taken away";
        return Ok(Err(Invalid { code: NOTHING, message: message.to_owned() }));
    }
    let report = check_chain(&rings, end, &breaks.ends());
    wrong.extend(report.problems.iter().map(of_chain));
    // A receipt in place of the last one, after the break was recorded.
    for one in &breaks.all {
        let is_last = |ring: &&Ring| ring.place.chain == one.chain && ring.place.seq + 1 == one.next;
        if rings.iter().find(is_last).is_some_and(|ring| ring.hash != one.last) {
            let message = format!("the last receipt of the chain of {} is another than when it was closed", one.chain);
            wrong.push(Invalid { code: "chain", message });
        }
    }
    if let Some(first) = wrong.first() {
        let more = if wrong.len() > 1 { format!(" (and {} more problems)", wrong.len() - 1) } else { String::new() };
        return Ok(Err(Invalid { code: first.code, message: format!("{}{more}", first.message) }));
    }
    let mut parts = vec![format!("valid: {} receipts, none is missing", runs.len())];
    if unchained > 0 {
        parts.push(format!("{unchained} could not be given a place in the chain"));
    }
    if !report.side_branches.is_empty() {
        parts.push(format!("{} were written by runs that were killed just then", report.side_branches.len()));
    }
    parts.extend(breaks.told());
    Ok(Ok(parts.join("; ")))
}

fn of_chain(problem: &ChainProblem) -> Invalid {
    let message = match problem {
        ChainProblem::NotContinued { chain } => {
            format!("{problem}; look at its receipts, then record the break with nexus receipt close {chain}")
        }
        ChainProblem::Missing { .. } | ChainProblem::Broken { .. } => problem.to_string(),
    };
    Invalid { code: "chain", message }
}
