//! `nexus log`: a line for each past run, from its receipt. What a command chose (its arguments) is escaped, and a
//! receipt that is not valid is reported as such and its content not shown.

use crate::answer::print;
use crate::args::LogArgs;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::local::local;
use crate::show::{changes_in_short, command_line};
use crate::utc::utc;
use nexus_model::RunId;
use nexus_receipt::{Keyring, Opened, Receipt, VerifyError, open};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Exit code of a list in which receipts are missing that could not be read.
const UNREADABLE: u8 = 1;
/// Longest command in a line.
const SHOWN: usize = 120;

/// Runs it and returns the exit code.
pub fn command(args: &LogArgs) -> u8 {
    match log(args) {
        Ok((text, unreadable)) => {
            let printed = print(Ok(text));
            let unreadable_exit = unreadable.iter().map(|failure| failures::print_failure(failure, false)).max();
            printed.max(unreadable_exit.unwrap_or_default())
        }
        Err(failure) => failures::print_failure(&failure, false),
    }
}

/// Returns the list, and the receipts that could not be read: one of them must not hide the others.
fn log(args: &LogArgs) -> Result<(String, Vec<Failure>), Failure> {
    let (store, known) = local()?;
    let ring = known.ring();
    let failed = |error: std::io::Error| {
        let message = format!("the receipts cannot be read: {error}");
        Failure::refused("receipts", message, "look at the state directory's disk and permissions")
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let since = args.since.map(|back| now.saturating_sub(back));
    let mut rows: Vec<(RunId, Result<Opened, VerifyError>)> = Vec::new();
    let mut unreadable = Vec::new();
    for run in store.runs().map_err(failed)? {
        if rows.len() >= args.number {
            break;
        }
        let file = match store.read(run) {
            Ok(file) => file,
            // Pruned since.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                let message = format!("the receipt of the run {run} cannot be read: {error}");
                let hint = format!("look at {}", store.place(run).display());
                unreadable.push(Failure { exit: UNREADABLE, code: "unreadable", message, hint });
                continue;
            }
        };
        let opened = open_receipt(&file, run, &ring);
        if let Ok(opened) = &opened {
            // Ids are ordered by the time at which runs began.
            if since.is_some_and(|since| opened.receipt.timing.started_unix_ms < since) {
                break;
            }
            if args.failed && opened.receipt.exit.code == 0 {
                continue;
            }
        }
        rows.push((run, opened));
    }
    if args.json {
        let rows: Vec<Value> = rows.iter().map(|(run, opened)| object(*run, opened)).collect();
        return Ok((format!("{}\n", Value::Array(rows)), unreadable));
    }
    if rows.is_empty() && unreadable.is_empty() {
        return Ok(("No runs.\n".to_owned(), unreadable));
    }
    Ok((rows.iter().map(|(run, opened)| one_line(&line(*run, opened)) + "\n").collect(), unreadable))
}

/// Opens a receipt, and refuses one that names another run.
fn open_receipt(file: &[u8], run: RunId, ring: &Keyring) -> Result<Opened, VerifyError> {
    let opened = open(file, ring)?;
    if opened.receipt.run_id != run {
        let why = format!("it is the receipt of the run {}", opened.receipt.run_id);
        return Err(VerifyError::BadContent { why });
    }
    Ok(opened)
}

fn line(run: RunId, opened: &Result<Opened, VerifyError>) -> String {
    let receipt = match opened {
        Ok(opened) => &opened.receipt,
        Err(error) => return format!("{:<19}  {run}  receipt not valid: {error}", "?"),
    };
    let ended = match receipt.exit.reason.as_str() {
        "exit" => format!("exit {}", receipt.exit.code),
        reason => format!("exit {} {reason}", receipt.exit.code),
    };
    let changes = changes_in_short(&receipt.changes);
    let (when, took) = (utc(receipt.timing.started_unix_ms), receipt.timing.duration_us as f64 / 1e6);
    format!("{when}  {run}  {ended:<8}  {took:>8.2} s  {changes}  {}", command_text(receipt))
}

fn command_text(receipt: &Receipt) -> String {
    let text = command_line(&receipt.request.argv.items);
    if receipt.request.argv.omitted == 0 && text.chars().count() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN - 1).chain(['…']).collect()
}

fn object(run: RunId, opened: &Result<Opened, VerifyError>) -> Value {
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return json!({"run_id": run, "valid": false, "error": error.to_string(), "reason_invalid": error.code()});
        }
    };
    let receipt = &opened.receipt;
    json!({
        "run_id": run,
        "valid": true,
        "started_unix_ms": receipt.timing.started_unix_ms,
        "duration_ms": receipt.timing.duration_us as f64 / 1000.0,
        "exit_code": receipt.exit.code,
        "signal": receipt.exit.signal,
        "reason": receipt.exit.reason,
        "changes": receipt.changes,
        "workspace": receipt.request.workspace,
        "argv": receipt.request.argv,
        "receipt": opened.hash,
        "key_id": receipt.key_id,
    })
}
