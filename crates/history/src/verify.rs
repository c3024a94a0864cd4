//! `nexus receipt verify`: checks the signature and chain of a receipt, and that a file has the content that a receipt states.
//!
//! Exit 0: valid. 1: not valid, with the reason. 2: nothing to verify was found.

use crate::args::VerifyArgs;
use crate::breaks;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::local::{local, nothing};
use nexus_receipt::verify::{
    ReadError, Stream, check_net_record, check_output, check_report, compared_by_length, follow_links, open_named,
    read_file,
};
use nexus_receipt::{AllValid, ChainProblem, Collected, Invalid, Keyring, Opened, PublicKey, Source};
use nexus_runner::net::ended::NetworkEnd;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Exit code for what is not valid.
const INVALID: u8 = 1;

/// Reads a receipt's bytes.
pub fn read(source: &Source) -> Result<Vec<u8>, Failure> {
    match source {
        Source::File(path) => read_file(path).map_err(|error| nothing(&error)),
        Source::Run(run) => {
            let (store, _) = local()?;
            store.read(*run).map_err(|error| nothing(&ReadError::of_run(*run, error)))
        }
    }
}

/// Returns the keys that count: the named ones alone, or those of this state directory if none is named. Links lead
/// from them to later ones.
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
    follow_links(ring, waiting).map_err(|refused| {
        let message = format!("--link {}: {refused}", refused.path.display());
        let failure = Failure::refused("link", message, "a link counts when a key that is trusted signed it");
        Failure { exit: INVALID, ..failure }
    })
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(1 << 20).read_to_string(&mut text));
    read.map(|_| text).map_err(|error| nothing(&ReadError::of(path, error)))
}

/// Makes the failure that a person sees of what is not valid.
pub fn failure(invalid: &Invalid) -> Failure {
    let text = describe(invalid);
    let message = if matches!(invalid, Invalid::Nothing) { text } else { format!("not valid: {text}") };
    Failure { exit: INVALID, code: invalid.code(), message, hint: String::new() }
}

/// Returns the problem as a sentence, with the command that helps.
fn describe(invalid: &Invalid) -> String {
    match invalid {
        Invalid::Chain(ChainProblem::NotContinued { chain }) => {
            format!("{invalid}; look at its receipts, then record the break with nexus receipt close {chain}")
        }
        _ => invalid.to_string(),
    }
}

/// The first problem that was found, and the number of the others.
struct Refused {
    first: Invalid,
    more: usize,
}

impl Refused {
    fn failure(&self) -> Failure {
        let failure = failure(&self.first);
        Failure { message: failure.message + &self.end(), ..failure }
    }

    fn end(&self) -> String {
        if self.more > 0 { format!(" (and {} more problems)", self.more) } else { String::new() }
    }
}

impl From<Invalid> for Refused {
    fn from(first: Invalid) -> Self {
        Self { first, more: 0 }
    }
}

/// Runs it and returns the exit code.
pub fn command(args: &VerifyArgs) -> u8 {
    let answer = match verify_file(args) {
        Ok(answer) => answer,
        Err(failure) => return failures::print_failure(&failure, false),
    };
    let (exit, text) = match &answer {
        Ok(text) if args.json => (0, document(true, None, text)),
        Ok(text) => (0, format!("{}\n", one_line(text))),
        Err(refused) if args.json => {
            let message = describe(&refused.first) + &refused.end();
            (INVALID, document(false, Some(refused.first.code()), &message))
        }
        Err(refused) => return failures::print_failure(&refused.failure(), false),
    };
    match crate::answer::print(Ok(text)) {
        0 => exit,
        other => other,
    }
}

fn document(valid: bool, reason: Option<&str>, message: &str) -> String {
    format!("{}\n", json!({"schema": "nexus.verify/1", "valid": valid, "reason": reason, "message": message}))
}

fn verify_file(args: &VerifyArgs) -> Result<Result<String, Refused>, Failure> {
    let ring = keyring(&args.key, &args.link)?;
    let Some(target) = &args.receipt else { return all(&ring) };
    let source = Source::of(target);
    let opened = match source.open(&read(&source)?, &ring) {
        Ok(opened) => opened,
        Err(invalid) => return Ok(Err(invalid.into())),
    };
    if let Some(invalid) = against(args, &opened)? {
        return Ok(Err(invalid.into()));
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
        Some(path) => also + &caveat(&compared_by_length(&report(path)?, &opened.receipt)),
        None => also,
    };
    Ok(Ok(format!("valid: run {}, signed by the key {}{also}", opened.receipt.run_id, opened.receipt.key_id)))
}

/// Files that are said to belong to the receipt.
fn against(args: &VerifyArgs, opened: &Opened) -> Result<Option<Invalid>, Failure> {
    let receipt = &opened.receipt;
    for (path, stream) in [(&args.stdout, Stream::Stdout), (&args.stderr, Stream::Stderr)] {
        let Some(path) = path else { continue };
        if let Some(invalid) = check_output(receipt, stream, path).map_err(|error| nothing(&error))? {
            return Ok(Some(invalid));
        }
    }
    if let Some(path) = &args.net_record
        && let Some(invalid) = check_net_record(receipt, path).map_err(|error| nothing(&error))?
    {
        return Ok(Some(invalid));
    }
    let Some(path) = &args.report else { return Ok(None) };
    Ok(check_report(receipt, path, &report(path)?, &NetworkEnd::default().json()))
}

fn report(path: &Path) -> Result<Value, Failure> {
    let text = open_named(path).and_then(std::io::read_to_string);
    let text = text.map_err(|error| nothing(&ReadError::of(path, error)))?;
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("--report {}: {error}", path.display());
        Failure::usage("report", message, "give the document that nexus run --json printed")
    })
}

/// Names the streams of which only the length could be compared, as a caveat for the message.
fn caveat(cut: &[&str]) -> String {
    if cut.is_empty() {
        return String::new();
    }
    format!(" (of its {} only the length was compared: the text is a part)", cut.join(" and "))
}

/// Checks every receipt of this state directory, and whether one was taken out.
fn all(ring: &Keyring) -> Result<Result<String, Refused>, Failure> {
    let (store, _) = local()?;
    let found = Collected::of(&store, ring).map_err(|error| nothing(&error))?;
    let AllValid { receipts, unchained, side_branches, breaks } = match found.check() {
        Ok(valid) => valid,
        Err(wrong) => {
            let more = wrong.len().saturating_sub(1);
            let first = wrong.into_iter().next().unwrap_or(Invalid::Nothing);
            return Ok(Err(Refused { first, more }));
        }
    };
    let mut parts = vec![format!("valid: {receipts} receipts, none is missing")];
    if unchained > 0 {
        parts.push(format!("{unchained} could not be given a place in the chain"));
    }
    if side_branches > 0 {
        parts.push(format!("{side_branches} were written by runs that were killed just then"));
    }
    parts.extend(breaks::describe(&breaks));
    Ok(Ok(parts.join("; ")))
}
