//! `nexus audit`: exports the audit chain of an account, and checks an export without a server.

use super::access::Access;
use super::args::{AuditAction, AuditArgs, AuditFormat};
use super::print::{print, print_json};
use crate::failure::{Failure, one_line};
use nexus_api::audit::{AuditEvent, AuditHead, Check, origin};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line of an export.
const MAX_LINE: u64 = 1024 * 1024;

/// Runs it and returns the exit code.
pub fn command(args: &AuditArgs) -> Result<u8, Failure> {
    match &args.action {
        AuditAction::Export { format } => export(args, *format),
        AuditAction::Head => {
            let access = Access::of(&args.access)?;
            print_json(&access.wait(access.client.audit_events(None, 1))?.head)
        }
        AuditAction::Verify { file, head } => {
            let head = head.as_deref().map(read_head).transpose()?;
            match file {
                Some(path) => verify(args, File::open(path).map_err(|error| unreadable(path, &error))?, head),
                None => verify(args, std::io::stdin().lock(), head),
            }
        }
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage("audit_file", format!("{} cannot be read: {error}", path.display()), "name another file")
}

fn read_head(path: &Path) -> Result<AuditHead, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    serde_json::from_str(&text).map_err(|error| unreadable(path, &error))
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

fn verify(args: &AuditArgs, input: impl Read, head: Option<AuditHead>) -> Result<u8, Failure> {
    let mut input = BufReader::new(input);
    let mut check: Option<Check> = None;
    let (mut number, mut first, mut last) = (0_u64, 0, head);
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
            Check::new(head.map_or(event.account, |head| head.account), None)
        });
        check.push(&event);
        last = Some(AuditHead { account: event.account, seq: event.seq, hash: event.hash });
    }
    let empty = || head.map(|head| Check::new(head.account, Some((1, origin(head.account)))));
    let Some(check) = check.or_else(empty) else {
        return Err(Failure::refused("audit_empty", "There are no events", "pass an export of nexus audit export"));
    };
    let (count, faults) = check.end(head);
    if args.json {
        let list: Vec<_> = faults
            .iter()
            .map(|fault| serde_json::json!({"code": fault.code(), "message": fault.to_string()}))
            .collect();
        print_json(&serde_json::json!({"events": count, "first_seq": first, "last": last, "faults": list}))?;
    } else {
        let text: String = faults.iter().map(|fault| one_line(&fault.to_string()) + "\n").collect();
        print(text.as_bytes())?;
    }
    if !faults.is_empty() {
        let message = format!("The chain was changed: {} faults in {count} events", faults.len());
        return Err(Failure::refused("audit_chain", message, "Compare it with an earlier export."));
    }
    if !args.json {
        let end = last.map(|last| format!(", up to event {} with the hash {}", last.seq, last.hash));
        print(format!("{count} events are whole, from event {first}{}\n", end.unwrap_or_default()).as_bytes())?;
    }
    Ok(0)
}
