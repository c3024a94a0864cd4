//! Checks receipts: one against its run, its output and its report, and all of a state directory against their chain.
//!
//! A check has three answers: it holds, it does not ([`Invalid`]), or there was nothing to look at ([`ReadError`]).

use crate::chain::{ChainEnd, ChainProblem, Ring, check_chain};
use crate::form::{
    ChainPlace, Changes, Egress, Link, LinkError, MAX_BYTES, Opened, Receipt, StreamDigest, VerifyError, open,
};
use crate::keys::Keyring;
use crate::store::{Breaks, Store, files};
use nexus_model::{Digest, RunId};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Source of a receipt to verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file at any path.
    File(PathBuf),
    /// The state directory's own.
    Run(RunId),
}

impl Source {
    /// Reads a run's id; any other text is taken as the name of a file.
    #[must_use]
    pub fn of(text: &Path) -> Self {
        match text.to_str().and_then(|text| text.parse().ok()) {
            Some(run) => Self::Run(run),
            None => Self::File(text.to_owned()),
        }
    }

    /// Opens the receipt. A receipt that was asked for by its run must be of that run: a process that can write the
    /// directory can give one valid receipt the name of another, and a success would stand for a failure.
    pub fn open(&self, file: &[u8], ring: &Keyring) -> Result<Opened, Invalid> {
        let opened = open(file, ring).map_err(Invalid::Envelope)?;
        match self {
            Self::Run(run) if opened.receipt.run_id != *run => Err(renamed(*run, &opened)),
            Self::Run(_) | Self::File(_) => Ok(opened),
        }
    }
}

/// Opens a file that the caller named: a regular one, or what a descriptor of the caller's own leads to.
pub fn open_named(path: &Path) -> io::Result<File> {
    files::open_named(path)
}

/// Reads a file that may be a receipt, up to a byte more than a receipt can have.
pub fn read_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut content = Vec::new();
    let read = files::open_named(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut content));
    read.map_err(|source| ReadError::of(path, source))?;
    Ok(content)
}

/// Reason why an input of a verification cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be read: {source}")]
pub struct ReadError {
    /// A path, or words.
    pub what: String,
    /// The answer of the system.
    pub source: io::Error,
}

impl ReadError {
    /// Makes the error for a file.
    pub fn of(path: &Path, source: io::Error) -> Self {
        Self { what: path.display().to_string(), source }
    }

    /// Makes the error for the receipt of a run.
    pub fn of_run(run: RunId, source: io::Error) -> Self {
        Self { what: format!("the receipt of the run {run}"), source }
    }

    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        NOTHING
    }
}

/// Code of an answer where there is no receipt at all: neither valid nor forged.
const NOTHING: &str = "nothing_to_verify";

/// One of the two streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The stream of descriptor 1.
    Stdout,
    /// The stream of descriptor 2.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Reason why a receipt, or a file beside it, is not valid.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// The file is not a receipt, or not one signed by a known key.
    #[error(transparent)]
    Envelope(VerifyError),
    /// A receipt of the state directory is not valid on its own.
    #[error("{run}: {source}")]
    Stored {
        /// The run by which the file is named.
        run: RunId,
        /// The reason why the file is refused.
        source: VerifyError,
    },
    /// A receipt has the name of another run.
    #[error("{run}: it is the receipt of the run {found}")]
    Renamed {
        /// The run by which the file is named.
        run: RunId,
        /// The run that the receipt is of.
        found: RunId,
    },
    /// A file is not what the command printed.
    #[error(
        "{} is not the {} of the run: it has {} bytes, {}; the receipt says {} bytes, {}",
        path.display(), stream.name(), found.bytes, found.hash, said.bytes, said.hash
    )]
    Output {
        /// The path of the file.
        path: PathBuf,
        /// The stream that it was to be.
        stream: Stream,
        /// Length and hash of the file.
        found: StreamDigest,
        /// Length and hash in the receipt.
        said: StreamDigest,
    },
    /// The receipt has no record of the network.
    #[error("the receipt says nothing of a record of the network: {why}")]
    NoNetRecord {
        /// The reason why there is none.
        why: &'static str,
    },
    /// A file is not the record of the network.
    #[error(
        "{} is not the record of the run's network: it has {} bytes, {}; the receipt says {} bytes, {}",
        path.display(), found.bytes, found.hash, said.bytes, said.hash
    )]
    NetRecord {
        /// The path of the file.
        path: PathBuf,
        /// Length and hash of the file.
        found: StreamDigest,
        /// Length and hash in the receipt.
        said: StreamDigest,
    },
    /// A document is not the report of the run.
    #[error("{} is not the report of the run: its {part} is another", path.display())]
    Report {
        /// The path of the report.
        path: PathBuf,
        /// The first part that differs.
        part: &'static str,
    },
    /// The receipts do not form a whole chain.
    #[error(transparent)]
    Chain(ChainProblem),
    /// Another receipt stands in place of the last one of a closed chain.
    #[error("the last receipt of the chain of {chain} is another than when it was closed")]
    LastReplaced {
        /// The chain that was closed.
        chain: RunId,
    },
    /// The state directory has no receipts and no chain.
    #[error(
        "there is nothing to verify: no receipts and no chain; either no run has ended here yet, or all of them were taken away"
    )]
    Nothing,
}

impl Invalid {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Envelope(source) | Self::Stored { source, .. } => source.code(),
            Self::Renamed { .. } => "renamed",
            Self::Output { stream: Stream::Stdout, .. } => "stdout_mismatch",
            Self::Output { stream: Stream::Stderr, .. } => "stderr_mismatch",
            Self::NoNetRecord { .. } | Self::NetRecord { .. } => "net_record_mismatch",
            Self::Report { .. } => "report_mismatch",
            Self::Chain(_) | Self::LastReplaced { .. } => "chain",
            Self::Nothing => NOTHING,
        }
    }
}

fn renamed(run: RunId, opened: &Opened) -> Invalid {
    Invalid::Renamed { run, found: opened.receipt.run_id }
}

/// Reason why a statement about a key's successor is ignored: no trusted key signed it.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct RefusedLink {
    /// The file that it stands in.
    pub path: PathBuf,
    /// The reason why the link is refused.
    pub source: LinkError,
}

/// Adds the keys that `links` lead to from the keys of `ring`. Each link comes with the path of its file; their order
/// does not matter, as long as one of them leads on.
pub fn follow_links(mut ring: Keyring, mut links: Vec<(PathBuf, String)>) -> Result<Keyring, RefusedLink> {
    loop {
        let before = links.len();
        let mut refused = None;
        links.retain(|(path, link)| match Link::open(link.as_bytes(), &ring) {
            Ok((key, _)) => {
                ring.add(key);
                false
            }
            Err(source) => {
                refused.get_or_insert_with(|| RefusedLink { path: path.clone(), source });
                true
            }
        });
        match refused {
            None => return Ok(ring),
            Some(refused) if links.len() == before => return Err(refused),
            Some(_) => {}
        }
    }
}

/// Compares a file with what the command printed.
pub fn check_output(receipt: &Receipt, stream: Stream, path: &Path) -> Result<Option<Invalid>, ReadError> {
    let said = match stream {
        Stream::Stdout => receipt.output.stdout,
        Stream::Stderr => receipt.output.stderr,
    };
    let found = digest(path)?;
    Ok((found != said).then(|| Invalid::Output { path: path.to_owned(), stream, found, said }))
}

/// Compares a file with the record of the network, as it was when the run ended.
pub fn check_net_record(receipt: &Receipt, path: &Path) -> Result<Option<Invalid>, ReadError> {
    let Some(said) = receipt.egress.as_ref().and_then(|egress| egress.record) else {
        let why = if receipt.egress.is_some() { "its form is older" } else { "the run had no network" };
        return Ok(Some(Invalid::NoNetRecord { why }));
    };
    let found = digest(path)?;
    Ok((found != said).then(|| Invalid::NetRecord { path: path.to_owned(), found, said }))
}

fn digest(path: &Path) -> Result<StreamDigest, ReadError> {
    files::digest(path).map_err(|source| ReadError::of(path, source))
}

/// Compares a `nexus run --json` document, read from `path`, with the receipt. `no_network` is the part `egress` of the
/// report of a run without a network.
#[must_use]
pub fn check_report(receipt: &Receipt, path: &Path, report: &Value, no_network: &Value) -> Option<Invalid> {
    differs(report, receipt, no_network).map(|part| Invalid::Report { path: path.to_owned(), part })
}

/// Returns the first part of a `nexus run --json` document that differs from the receipt.
fn differs(report: &Value, receipt: &Receipt, no_network: &Value) -> Option<&'static str> {
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
        ("network", is_egress(&report["egress"], receipt.egress.as_ref(), no_network)),
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

/// Compares the network of a report with that of a receipt. A run without a network has no such part in its receipt,
/// and an empty one in its report.
fn is_egress(report: &Value, said: Option<&Egress>, no_network: &Value) -> bool {
    match said {
        Some(said) => Digest::of_json(report) == Some(said.hash),
        None => report == no_network,
    }
}

/// Reports whether a report's text can be the stream that the receipt describes. A text that was cut is compared by its
/// length alone. The length shows that it was cut; the report's own word is not trusted, since a report is not signed.
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

/// Reports whether some of the stream is missing.
fn is_cut(text: &[u8], said: &StreamDigest) -> bool {
    (text.len() as u64) < said.bytes
}

/// Names the streams of which a report has only a part, so that nothing but their length could be compared.
#[must_use]
pub fn compared_by_length(report: &Value, receipt: &Receipt) -> Vec<&'static str> {
    let streams = [("stdout", &receipt.output.stdout), ("stderr", &receipt.output.stderr)];
    let cut = streams.iter().filter(|(name, said)| shown_of(report, name).is_some_and(|text| is_cut(&text, said)));
    cut.map(|(name, _)| *name).collect()
}

/// Returns the hash of a change set, from the report's `changes`.
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

/// Every receipt of a state directory, as far as it is valid.
#[derive(Debug)]
pub struct Collected {
    /// All runs with a receipt.
    runs: Vec<RunId>,
    /// Valid receipts with a place in a chain.
    pub rings: Vec<Ring>,
    /// The number of valid receipts without a place in a chain.
    unchained: usize,
    wrong: Vec<Invalid>,
    /// The note of the end.
    pub end: Option<ChainEnd>,
    /// The recorded breaks.
    pub breaks: Breaks,
}

impl Collected {
    /// Reads and checks all receipts of `store`.
    pub fn of(store: &Store, ring: &Keyring) -> Result<Self, ReadError> {
        let failed = |source: io::Error| ReadError { what: "the receipts".to_owned(), source };
        // The end is looked at first: what is issued meanwhile is beyond it.
        let end = store.end().map_err(failed)?;
        let breaks = store.breaks().map_err(failed)?;
        let runs = store.runs().map_err(failed)?;
        let mut found = Self { rings: Vec::new(), unchained: 0, wrong: Vec::new(), end, breaks, runs };
        for run in &found.runs {
            let file = match store.read(*run) {
                Ok(file) => file,
                // Pruned since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(ReadError::of_run(*run, source)),
            };
            match open(&file, ring) {
                Ok(opened) if opened.receipt.run_id != *run => found.wrong.push(renamed(*run, &opened)),
                Ok(Opened { receipt: Receipt { chain: Some(place), .. }, hash, .. }) => {
                    found.rings.push(Ring { run_id: *run, hash, place });
                }
                Ok(_) => found.unchained += 1,
                Err(source) => found.wrong.push(Invalid::Stored { run: *run, source }),
            }
        }
        // Issued while we looked.
        let is_later = |place: &ChainPlace| end.is_some_and(|end| place.chain == end.chain && place.seq >= end.next);
        found.rings.retain(|ring| !is_later(&ring.place));
        Ok(found)
    }
    /// Checks all receipts, and that none was taken out. Returns every problem; the list is never empty.
    pub fn check(self) -> Result<AllValid, Vec<Invalid>> {
        let Self { runs, rings, unchained, mut wrong, end, breaks } = self;
        // With everything taken away the evidence of it is gone, too: that is not valid, only unknown.
        if runs.is_empty() && end.is_none() {
            return Err(vec![Invalid::Nothing]);
        }
        let report = check_chain(&rings, end, &breaks.ends());
        wrong.extend(report.problems.into_iter().map(Invalid::Chain));
        // A receipt in place of the last one, after the break was recorded.
        for one in &breaks.all {
            let is_last = |ring: &&Ring| ring.place.chain == one.chain && ring.place.seq + 1 == one.next;
            if rings.iter().find(is_last).is_some_and(|ring| ring.hash != one.last) {
                wrong.push(Invalid::LastReplaced { chain: one.chain });
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(AllValid { receipts: runs.len(), unchained, side_branches: report.side_branches.len(), breaks })
    }
}

/// The receipts of a state directory, of which none is wrong and none is missing.
#[derive(Debug)]
pub struct AllValid {
    /// The number of receipts.
    pub receipts: usize,
    /// The number of those without a place in the chain.
    pub unchained: usize,
    /// The number of those that runs wrote that were killed just then.
    pub side_branches: usize,
    /// The recorded breaks.
    pub breaks: Breaks,
}
