//! `nexus audit`: exports the audit chain of an account, keeps its signed heads, and checks an export without a server.

use crate::args::{AuditAction, AuditArgs, AuditFormat};
use crate::client::access::Access;
use crate::failure::{Failure, one_line};
use crate::print::{print, print_json};
use nexus_api::audit::{AuditEvent, AuditHead, Check, END_ACTION, Fault, HeadFault, origin, signed_head};
use nexus_api::audit_head::{HEAD_ACTION, HeadProblem, SignedHead};
use nexus_model::digest::Digest;
use nexus_mothership::{check_head, head_key};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Longest line of an export.
const MAX_LINE: u64 = 1024 * 1024;
/// Longest file of heads, of a key or of a receipt.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// Runs it and returns the exit code.
pub fn command(args: &AuditArgs) -> Result<u8, Failure> {
    match &args.action {
        AuditAction::Export { format } => export(args, *format),
        AuditAction::Head { save } => {
            let head = head_of(args)?;
            if let Some(path) = save {
                add(path, &head)?;
            }
            print_json(&head)
        }
        AuditAction::Key => {
            let head = head_of(args)?;
            if args.json { print_json(&serde_json::json!({"key": head.key})) } else { print(head.key.as_bytes()) }
        }
        AuditAction::Verify { file, head, key, receipt } => {
            let expected = Expected::read(head, key.as_deref(), receipt)?;
            match file {
                Some(path) => verify(args, File::open(path).map_err(|error| unreadable(path, &error))?, &expected),
                None => verify(args, std::io::stdin().lock(), &expected),
            }
        }
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage("audit_file", format!("{} cannot be read: {error}", path.display()), "name another file")
}

/// Asks the control plane for its head, and takes none whose signature is not good.
fn head_of(args: &AuditArgs) -> Result<SignedHead, Failure> {
    let access = Access::of(&args.access)?;
    let head = access.wait(access.client.audit_events(None, 1))?.signed_head.ok_or_else(|| {
        let message = "The server signs no heads";
        Failure::refused("audit_unsigned", message, "A control plane of this version signs them: replace the server.")
    })?;
    counts(&head, None, "The head of the server")?;
    Ok(head)
}

/// Adds a head to a file, in one write at its end: what the file held before is never touched.
fn add(path: &Path, head: &SignedHead) -> Result<(), Failure> {
    let line = serde_json::to_string(head).map(|line| line + "\n");
    let written = line.map_err(std::io::Error::from).and_then(|line| {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        let message = format!("{} cannot be written: {error}", path.display());
        Failure::refused("audit_file", message, "name a file in a directory of yours")
    })
}

fn counts(head: &SignedHead, key: Option<&str>, what: &str) -> Result<(), Failure> {
    check_head(head, key).map_err(|problem| {
        let (code, hint) = match problem {
            HeadProblem::Unreadable => ("audit_unreadable", "Name a file that nexus audit head --save wrote."),
            HeadProblem::WrongKey => (
                "audit_wrong_key",
                "Compare nexus audit key with the key that you kept: another server may have signed it.",
            ),
            HeadProblem::BadSignature => ("audit_bad_signature", "Take another head that was kept."),
        };
        Failure::refused(code, format!("{what} (event {}) does not count: {problem}", head.seq), hint)
    })
}

/// Heads, key and receipts that a chain is compared with.
#[derive(Default)]
struct Expected {
    heads: Vec<AuditHead>,
    /// Key of the heads, in the chain too.
    key: Option<String>,
    receipts: Vec<(PathBuf, Digest)>,
}

impl Expected {
    fn read(heads: &[PathBuf], key: Option<&Path>, receipts: &[PathBuf]) -> Result<Self, Failure> {
        let named = key.map(|path| {
            let key = head_key(&text_of(path)?);
            key.ok_or_else(|| unreadable(path, &"it holds no Ed25519 public key (-----BEGIN PUBLIC KEY-----)"))
        });
        let mut expected = Self { key: named.transpose()?, ..Self::default() };
        for path in heads {
            let text = text_of(path)?;
            let before = expected.heads.len();
            for value in serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>() {
                let value = value.map_err(|error| unreadable(path, &error))?;
                expected.add_head(value, path)?;
            }
            if expected.heads.len() == before {
                return Err(unreadable(path, &"it holds no head"));
            }
        }
        for path in receipts {
            let value: serde_json::Value =
                serde_json::from_str(&text_of(path)?).map_err(|error| unreadable(path, &error))?;
            let hash = Digest::of_json(&value).ok_or_else(|| unreadable(path, &"it is not a receipt"))?;
            expected.receipts.push((path.clone(), hash));
        }
        Ok(expected)
    }

    fn add_head(&mut self, value: serde_json::Value, path: &Path) -> Result<(), Failure> {
        if value.get("signature").is_none() && self.key.is_none() {
            // The form before heads were signed.
            self.heads.push(serde_json::from_value(value).map_err(|error| unreadable(path, &error))?);
            return Ok(());
        }
        let signed: SignedHead = serde_json::from_value(value).map_err(|error| unreadable(path, &error))?;
        counts(&signed, self.key.as_deref(), &format!("A head in {}", path.display()))?;
        self.key.get_or_insert_with(|| signed.key.clone());
        self.heads.push(signed.head());
        Ok(())
    }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let read = || {
        let mut text = String::new();
        let length = File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
        Ok((text, length as u64 > MAX_FILE))
    };
    match read().map_err(|error: std::io::Error| unreadable(path, &error))? {
        (text, false) => Ok(text),
        (_, true) => Err(unreadable(path, &format!("it is longer than {MAX_FILE} bytes"))),
    }
}

fn export(args: &AuditArgs, format: AuditFormat) -> Result<u8, Failure> {
    let access = Access::of(&args.access)?;
    let is_ocsf = format == AuditFormat::Ocsf;
    let mut after = 0;
    loop {
        let lines = access.wait(access.client.audit_lines(after, is_ocsf))?;
        let Some(last) = lines.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()) else { return Ok(0) };
        let fault = || Failure::refused("audit_answer", "The server sent a line that is not an event", "run it again");
        let last: serde_json::Value = serde_json::from_slice(last).map_err(|_| fault())?;
        let seq = if is_ocsf { &last["metadata"]["sequence"] } else { &last["seq"] };
        // Numbers grow: an answer that repeats one would be printed for ever.
        after = seq.as_u64().filter(|seq| *seq > after).ok_or_else(fault)?;
        print(&lines)?;
    }
}

/// A chain that was read to its end.
struct Checked {
    count: u64,
    faults: Vec<Fault>,
    first: u64,
    last: Option<AuditHead>,
    /// Signed heads that stand in the chain.
    signed: u64,
    /// Event and directive of each receipt.
    receipts: Vec<Option<(u64, String)>>,
}

fn verify(args: &AuditArgs, input: impl Read, expected: &Expected) -> Result<u8, Failure> {
    let Some(checked) = check(input, expected)? else {
        return Err(Failure::refused("audit_empty", "There are no events", "pass an export of nexus audit export"));
    };
    let (count, faults) = (checked.count, &checked.faults);
    if args.json {
        let list: Vec<_> = faults
            .iter()
            .map(|fault| serde_json::json!({"code": fault.code(), "message": fault.to_string()}))
            .collect();
        let receipts: Vec<_> = expected
            .receipts
            .iter()
            .zip(&checked.receipts)
            .map(|((path, hash), at)| {
                let event = at.as_ref().map(|(seq, _)| seq);
                let object = at.as_ref().map(|(_, object)| object);
                serde_json::json!({"file": path.display().to_string(), "hash": hash, "event": event, "object": object})
            })
            .collect();
        print_json(&serde_json::json!({
            "events": count, "first_seq": checked.first, "last": checked.last, "heads": expected.heads,
            "signed_heads": checked.signed, "receipts": receipts, "faults": list,
        }))?;
    } else {
        let text: String = faults.iter().map(|fault| one_line(&fault.to_string()) + "\n").collect();
        print(text.as_bytes())?;
    }
    if !faults.is_empty() {
        let message = format!("The chain was changed: {} faults in {count} events", faults.len());
        let is_absent = faults.iter().all(|fault| matches!(fault, Fault::NoReceipt { .. }));
        let message = if is_absent { "The chain does not name a receipt".to_owned() } else { message };
        return Err(Failure::refused("audit_chain", message, "Compare it with an earlier export."));
    }
    if !args.json {
        print(summary(&checked, expected).as_bytes())?;
    }
    Ok(0)
}

fn summary(checked: &Checked, expected: &Expected) -> String {
    let Checked { count, first, last, .. } = checked;
    let end = last.map(|last| format!(", up to event {} with the hash {}", last.seq, last.hash));
    let mut text = format!("{count} events are whole, from event {first}{}\n", end.unwrap_or_default());
    if let Some(latest) = expected.heads.iter().map(|head| head.seq).max() {
        let kept = expected.heads.len();
        text = format!("{text}They go on from {kept} heads that were kept, the latest of them event {latest}\n");
    }
    for ((path, _), at) in expected.receipts.iter().zip(&checked.receipts) {
        if let Some((seq, object)) = at {
            text += &one_line(&format!("Event {seq} names the receipt {}, of {object}", path.display()));
            text.push('\n');
        }
    }
    text
}

/// Reads a chain and holds it against what is expected; `None` if nothing is there to look at.
fn check(input: impl Read, expected: &Expected) -> Result<Option<Checked>, Failure> {
    let mut input = BufReader::new(input);
    let begin = |account| {
        let mut check = Check::new(account, None);
        expected.heads.iter().for_each(|head| check.contains(head));
        expected.receipts.iter().for_each(|(_, hash)| check.names_receipt(*hash));
        check
    };
    let mut check: Option<Check> = None;
    let (mut number, mut first, mut last, mut signed) = (0_u64, 0, None, 0);
    let mut receipts = vec![None; expected.receipts.len()];
    let mut key = expected.key.clone();
    loop {
        let mut line = Vec::new();
        number += 1;
        let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let fault = |why: &dyn std::fmt::Display| {
            Failure::refused(
                "audit_line",
                format!("line {number} is not an audit event: {why}"),
                "pass an export of nexus audit export",
            )
        };
        if read.map_err(|error| fault(&error))? == 0 {
            break;
        }
        let event: AuditEvent = serde_json::from_slice(&line).map_err(|error| fault(&error))?;
        let check = check.get_or_insert_with(|| {
            first = event.seq;
            begin(expected.heads.first().map_or(event.account, |head| head.account))
        });
        check.push(&event);
        if event.action == HEAD_ACTION {
            signed += 1;
            if let Some(problem) = problem_inside(&event, &mut key) {
                check.fault(Fault::OfHead(HeadFault::Unsigned { seq: event.seq, problem }));
            }
        }
        if event.action == END_ACTION {
            let named = |place: &(usize, &Option<u64>)| *place.1 == Some(event.seq);
            for (place, _) in check.receipts().iter().enumerate().filter(named) {
                receipts[place] = Some((event.seq, event.object.clone()));
            }
        }
        last = Some(AuditHead { account: event.account, seq: event.seq, hash: event.hash });
    }
    // A chain without events is cut, where a head says that it had some.
    let Some(check) = check.or_else(|| expected.heads.first().map(|head| begin(head.account))) else { return Ok(None) };
    let last = last.or_else(|| {
        let account = expected.heads.first()?.account;
        Some(AuditHead { account, seq: 0, hash: origin(account) })
    });
    let (count, faults) = check.end(None);
    Ok(Some(Checked { count, faults, first, last, signed, receipts }))
}

/// Checks the signature of the head that an event holds. Without a known key the first one of the chain is the key of all.
fn problem_inside(event: &AuditEvent, key: &mut Option<String>) -> Option<HeadProblem> {
    let Some(head) = signed_head(event) else { return Some(HeadProblem::Unreadable) };
    if head.account != event.account {
        return Some(HeadProblem::BadSignature);
    }
    let problem = check_head(&head, key.as_deref()).err();
    if problem.is_none() {
        key.get_or_insert(head.key);
    }
    problem
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
