//! E11, E12: what the driver says about a command: how much, and how it ended.

use super::options::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Job, Ran};
use crate::host::world::WorldError;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const JSON: &[&str] = &["--changes", "commit", "--json"];

/// 300 MB of output through a bound of one.
pub fn flood(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let flags = ["--changes", "discard", "--json", "--max-output", "1M"];
    let ran = bench.run(&bench.part(&flags, &["act", "flood", "300000000"]), LIMIT)?;
    let memory = match ran.code {
        Some(0) => Answer::choose(ran.peak_kib < 100 * 1024, "bounded", "unbounded"),
        _ => Answer::of(ran.reason()),
    };
    let cut = ran.report().and_then(|report| report.pointer("/output/truncated_bytes")?.as_u64()).unwrap_or(0);
    let marked = cut > 290_000_000 && ran.text().contains("truncated");
    let short = bench.run(&Job::new(&flags, &["/bin/echo", "short"]), LIMIT)?;
    Ok(vec![
        Seen::new("E11", "memory", memory.with(format!("{} MiB", ran.peak_kib / 1024))),
        Seen::new("E11", "marker", Answer::choose(marked, "truncated", "no-marker").with(format!("{cut} bytes cut"))),
        Seen::new(
            "E11",
            "short_output",
            Answer::choose(short.text() == "short\n", "whole", "cut").with(short.summary()),
        ),
    ])
}

/// The code that the process and the report agree on.
fn agreed(ran: &Ran) -> Option<i64> {
    let said = ran.report()?.get("exit_code")?.as_i64()?;
    (ran.code.map(i64::from) == Some(said)).then_some(said)
}

fn exact(wrong: &str) -> Answer {
    Answer::choose(wrong.is_empty(), "exact", "wrong").with(wrong)
}

/// Every way to end.
pub fn exit_codes(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let mut seen = Vec::new();
    let shell = |script: &str| bench.run(&Job::new(JSON, &["/bin/sh", "-c", script]), LIMIT);
    let check = |script: String, wanted: i64| -> Result<String, WorldError> {
        let ran = shell(&script)?;
        Ok(if agreed(&ran) == Some(wanted) { String::new() } else { format!("{script}: {}; ", ran.summary()) })
    };
    let mut wrong = String::new();
    for code in [0, 1, 2, 42, 124, 125, 126, 127, 255] {
        wrong.push_str(&check(format!("exit {code}"), code)?);
    }
    seen.push(Seen::new("E12", "codes", exact(&wrong)));
    let wide = bench.run(&bench.part(JSON, &["act", "exit", "256"]), LIMIT)?;
    let wrong_256 = if agreed(&wide) == Some(0) { String::new() } else { wide.summary() };
    seen.push(Seen::new("E12", "code_256", exact(&wrong_256)));
    let mut wrong = String::new();
    // Every signal whose default is to end the process, and two real-time ones.
    for signal in (1..=16).chain([24, 25, 26, 27, 29, 30, 31, 34, 64]) {
        wrong.push_str(&check(format!("ulimit -c 0; kill -{signal} $$"), 128 + signal)?);
    }
    seen.push(Seen::new("E12", "signals", exact(&wrong)));
    for (case, program, wanted) in [("not_found", "/nonexistent/program", 127), ("not_executable", "/etc/passwd", 126)]
    {
        let ran = bench.run(&Job::new(&["--changes", "commit"], &[program]), LIMIT)?;
        let answer = Answer::choose(ran.code == Some(wanted), "exact", "wrong");
        seen.push(Seen::new("E12", case, answer.with(ran.summary())));
    }
    let forged = bench.run(&bench.part(JSON, &["act", "forge"]), LIMIT)?;
    let detail = format!("{}; report {:?}", forged.summary(), agreed(&forged));
    seen.push(Seen::new(
        "E12",
        "forged_report",
        Answer::choose(agreed(&forged) == Some(42), "exact", "believed").with(detail),
    ));
    let own = shell("exit 124")?;
    let reason = own.report().and_then(|report| report.get("reason")?.as_str().map(str::to_owned));
    let right = own.code == Some(124) && reason.as_deref() == Some("exit");
    seen.push(Seen::new(
        "E12",
        "own_124_is_no_timeout",
        Answer::choose(right, "exact", "wrong").with(format!("{reason:?}")),
    ));
    Ok(seen)
}
