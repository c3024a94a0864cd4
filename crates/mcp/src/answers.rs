//! Puts the answers about commands together, for models and for programs.

use crate::call::Outcome;
use crate::commands::{Ending, NotStarted, Run};
use crate::denial;
use crate::names;
use nexus_caller::failure::Failure;
use nexus_model::exit::REFUSED;
use serde_json::{Value, json};

/// Bytes of each stream in the answer to a command.
pub const ROOM: usize = 48 << 10;
/// Entries and hits of one answer.
pub const MAX_ENTRIES: u64 = 1000;

/// Makes one page of a list.
pub fn page(
    name: &str,
    all: Vec<Value>,
    is_cut: bool,
    offset: u64,
    limit: u64,
    line: impl Fn(&Value) -> String,
) -> Outcome {
    let total = all.len() as u64;
    let limit = limit.clamp(1, MAX_ENTRIES);
    let shown: Vec<Value> = all.into_iter().skip(offset as usize).take(limit as usize).collect();
    let next = offset.saturating_add(shown.len() as u64);
    let text = shown.iter().map(line).collect::<Vec<_>>().join("\n");
    let mut structured = json!({ "total": total, "is_cut": is_cut, "next_offset": (next < total).then_some(next) });
    structured[name] = shown.into();
    Outcome::done(text, structured)
}

/// Makes the failure of a command that was refused.
pub fn refusal(ending: &Ending) -> Failure {
    let error = &ending.report["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let message = if text("message").is_empty() { ending.message.trim().to_owned() } else { text("message") };
    Failure::refused("refused", message, text("hint"))
}

/// Makes the outcome of a command that did not start.
pub fn not_started(error: NotStarted) -> Result<Outcome, Failure> {
    let ending = match error {
        NotStarted::Failure(failure) => return Err(failure),
        NotStarted::Refused(ending) => ending,
    };
    let denials = denial::of(&ending.report);
    let text = if denials.is_empty() { ending.message.clone() } else { lines(&denials) };
    let structured = json!({ "run_id": null, "state": "not_started", "exit_code": ending.exit, "denials": denials });
    Ok(Outcome::Done { text, structured, is_error: true })
}

/// Describes a command that runs.
pub fn state(run: &Run) -> Value {
    let ending = run.ending();
    run.look(|state| {
        json!({
            "run_id": run.id,
            "command": run.title,
            "state": if ending.is_some() { "ended" } else { "running" },
            "is_background": run.is_background,
            "exit_code": ending.as_ref().map(|ending| ending.exit),
            "duration_ms": run.started.elapsed().as_millis() as u64,
            "quiet_ms": state.last_output.elapsed().as_millis() as u64,
            "stdout": state.capture.out.text(),
            "stderr": state.capture.err.text(),
            "output_bytes": state.capture.out.total + state.capture.err.total + state.capture.missed,
        })
    })
}

/// The output of a command, as an answer shows it.
struct Shown {
    out: String,
    err: String,
    cut: u64,
    bytes: u64,
    is_joined: bool,
}

/// Takes the output of a command that has ended. Where it came faster than this process followed, the file alone has it, in which both
/// streams are one.
fn shown(run: &Run) -> Shown {
    let (missed, bytes) = run.look(|state| {
        let capture = &state.capture;
        (capture.missed, capture.out.total + capture.err.total + capture.missed)
    });
    if missed > 0
        && let Some(out) = joined(run, bytes)
    {
        let cut = bytes.saturating_sub(2 * ROOM as u64);
        return Shown { out, err: String::new(), cut, bytes, is_joined: true };
    }
    run.look(|state| {
        let capture = &state.capture;
        let cut = capture.out.cut() + capture.err.cut() + capture.missed;
        Shown { out: capture.out.text(), err: capture.err.text(), cut, bytes, is_joined: false }
    })
}

/// Reads the first and the last part of an output of so many bytes from its file. What is longer than the file may be has its end in
/// memory alone.
fn joined(run: &Run, bytes: u64) -> Option<String> {
    let mut stored = run.output().ok()?;
    if stored.end >= bytes {
        return stored.ends(2 * ROOM as u64).ok().map(|(text, _)| text);
    }
    let mut live = run.look(|state| state.capture.source());
    let first = stored.range(0, ROOM as u64).ok()?;
    let last = live.range(live.end.saturating_sub(ROOM as u64), ROOM as u64).ok()?;
    Some(format!(
        "{}\n[... {} bytes left out; read_output shows the first {} of them ...]\n{}",
        String::from_utf8_lossy(&first),
        bytes.saturating_sub((first.len() + last.len()) as u64),
        stored.end.saturating_sub(first.len() as u64),
        String::from_utf8_lossy(&last)
    ))
}

/// Describes a command that has ended.
pub fn ended(run: &Run, ending: &Ending) -> Outcome {
    let report = &ending.report;
    let denials = denial::of(report);
    let Shown { out, err, cut, bytes, is_joined } = shown(run);
    let changes = &report["changes"];
    let structured = json!({
        "run_id": run.id,
        "command": run.title,
        "state": "ended",
        "is_background": run.is_background,
        "exit_code": ending.exit,
        "reason": report["reason"],
        "stdout": out,
        "stderr": err,
        "output_bytes": bytes,
        "cut_bytes": cut,
        "streams_joined": is_joined,
        "duration_ms": report["timing"]["duration_ms"],
        "changes": {
            "state": changes["state"], "added": changes["added"], "modified": changes["modified"],
            "deleted": changes["deleted"], "waiting": names::plain(&changes["parked"]),
        },
        "denials": denials,
    });
    let mut parts = vec![out];
    if !err.is_empty() {
        parts.push(format!("\n[stderr]\n{err}"));
    }
    if ending.exit != 0 {
        parts.push(format!("\n[exit code {}]", ending.exit));
    }
    if !denials.is_empty() {
        parts.push(format!("\n[Nexus]\n{}", lines(&denials)));
    }
    if cut > 0 {
        parts.push(format!("\n[{cut} bytes are not shown; read_output with run_id {} shows them]", run.id));
    }
    let text = parts.concat();
    Outcome::Done { text, structured, is_error: ending.exit == REFUSED }
}

/// Renders denials for a model, a line each.
pub fn lines(denials: &[Value]) -> String {
    let line = |one: &Value| {
        let of = |name: &str| one[name].as_str().unwrap_or_default().trim().to_owned();
        let (cause, remedy) = (of("cause"), of("remedy"));
        if remedy.starts_with(&cause) {
            format!("{remedy} [{}]", of("code"))
        } else {
            format!("{cause} {remedy} [{}]", of("code"))
        }
    };
    denials.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Renders what waits for a model, a line each.
pub fn lines_of_changes(shown: &Value) -> String {
    let line = |change: &Value| {
        let why = change["protected"].as_str().map(|why| format!(" (held back: {why})")).unwrap_or_default();
        format!("{} {}{why}\n", change["kind"].as_str().unwrap_or("changed"), names::text(&change["path"]))
    };
    shown["changes"].as_array().into_iter().flatten().map(line).collect()
}
