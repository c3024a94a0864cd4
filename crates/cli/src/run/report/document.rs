//! The document that `nexus run --json` prints, and the writing of it without another copy of the changes.

use crate::args::RunArgs;
use crate::run::report::Report;
use crate::terminal::sink::write_to_caller;
use nexus_hints::Hint;
use nexus_layer::{Change, Conflict, HeldIndex};
use nexus_model::{ByteText, ExitReason, ExitStatus, RunId};
use nexus_runner::live::output::Stream;
use nexus_runner::net::ended::NetworkEnd;
use nexus_runner::settle::settled::ChangesState;
use serde::Serialize;
use serde_json::json;
use std::io::{self, Write};
use std::time::Duration;

impl Report {
    /// Returns the document of `--json` as a value.
    pub fn json(&self, args: &RunArgs) -> serde_json::Value {
        json!(self.document(args))
    }

    /// Returns the document of `--json`, which is written without another copy of the changes.
    pub(super) fn document(&self, args: &RunArgs) -> Document<'_> {
        let ms = |duration: Duration| duration.as_micros() as f64 / 1000.0;
        let (added, modified, deleted) = self.run.settled.changes.counts();
        let [out, err] = self.run.kept.0.clone().unwrap_or_default();
        Document {
            schema: "nexus.run/1",
            run_id: self.run.run_id,
            exit_code: self.exit,
            signal: match self.run.status {
                Some(ExitStatus::Signal(signal)) => Some(signal),
                _ => None,
            },
            reason: self.run.reason,
            sandbox: json!({
                "profile": "untrusted",
                "driver": self.run.driver,
                "image": self.image,
                "guarantees": self.run.guarantees,
                "proof": self.run.proof,
            }),
            timing: json!({
                "prepared_ms": ms(self.run.prepared),
                "spawned_ms": self.run.spawned.map(ms),
                "time_to_first_output_ms": self.run.first_output.map(ms),
                "duration_ms": ms(self.run.duration),
            }),
            usage: json!({
                "cpu_ms": self.run.usage.0,
                "max_rss_bytes": self.run.usage.1,
                "stdout_bytes": self.run.bytes[0],
                "stderr_bytes": self.run.bytes[1],
            }),
            output: json!({
                "stdout": ByteText(out),
                "stderr": ByteText(err),
                "truncated_bytes": self.run.kept.1,
                "full_output": args.full_output.as_ref().map(|path| ByteText::from(path.as_path())),
            }),
            changes: DocumentChanges {
                state: self.run.settled.state,
                added,
                modified,
                deleted,
                changes: &self.run.settled.changes.changes,
                parked: &self.run.settled.parked,
                conflicts: &self.run.settled.conflicts,
                unwatched: self.run.settled.unwatched,
                open_for_reading: &self.run.settled.readers,
                unprotected: &self.unprotected,
                appeared: &self.run.left.appeared,
                held_indexes: self.run.left.held.iter().map(held_index).collect(),
                altered: &self.run.altered,
                uncovered: self.run.uncovered.as_deref().map(ByteText::from),
                decided_by_file: self.changes_by_file.as_deref(),
            },
            egress: self.run.network.as_ref().unwrap_or(&NetworkEnd::default()).json(),
            receipt: self.receipt.as_ref().and_then(|receipt| receipt.as_ref().ok()).map(|issued| {
                json!({
                    "path": ByteText::from(issued.path.as_path()),
                    "hash": issued.sealed.hash,
                    "key_id": issued.key_id,
                })
            }),
            hints: &self.hints,
            error: self.error(),
        }
    }

    fn error(&self) -> Option<serde_json::Value> {
        if let Some(problem) = &self.problem {
            return Some(json!(problem));
        }
        if let (None, Some(Err(failure))) = (&self.not_started, &self.receipt) {
            return Some(json!(failure));
        }
        match &self.not_started {
            Some(reason) => Some(json!({ "code": "not_started", "message": reason, "hint": "" })),
            None => left_behind(&self.notes),
        }
    }
}

/// Returns the error of a run beside which something went wrong: all of it in one message.
fn left_behind(notes: &[String]) -> Option<serde_json::Value> {
    (!notes.is_empty()).then(|| json!({ "code": "left_behind", "message": notes.join("; "), "hint": "" }))
}

/// The document that [`Report::document`] builds.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    run_id: RunId,
    exit_code: u8,
    signal: Option<u8>,
    reason: ExitReason,
    sandbox: serde_json::Value,
    timing: serde_json::Value,
    usage: serde_json::Value,
    output: serde_json::Value,
    changes: DocumentChanges<'a>,
    egress: serde_json::Value,
    receipt: Option<serde_json::Value>,
    hints: &'a [Hint],
    error: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct DocumentChanges<'a> {
    state: ChangesState,
    added: usize,
    modified: usize,
    deleted: usize,
    changes: &'a [Change],
    parked: &'a [Change],
    conflicts: &'a [Conflict],
    unwatched: u64,
    open_for_reading: &'a [ByteText],
    unprotected: &'a [ByteText],
    appeared: &'a [ByteText],
    held_indexes: Vec<serde_json::Value>,
    altered: &'a [ByteText],
    uncovered: Option<ByteText>,
    decided_by_file: Option<&'a str>,
}

fn held_index(index: &HeldIndex) -> serde_json::Value {
    let aside = index.aside.as_ref().ok();
    json!({ "path": index.path, "why": index.why, "aside": aside })
}

/// The caller's standard output.
pub(super) struct ToCaller;

impl Write for ToCaller {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_to_caller(Stream::Out, bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_went_wrong_beside_a_run_is_in_its_document() {
        assert_eq!(left_behind(&[]), None);
        let notes = ["the pool stays".to_owned(), "the record stays".to_owned()];
        let expected = json!({ "code": "left_behind", "message": "the pool stays; the record stays", "hint": "" });
        assert_eq!(left_behind(&notes), Some(expected));
    }
}
