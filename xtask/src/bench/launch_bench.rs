//! The example `launch_bench` of the driver crate: what is asked of it, and what it answers, one JSON object on a line.
//!
//! ```text
//!  launch_bench --mode fresh|pooled|live --workers N --runs N --heap MIB [-- COMMAND ARGUMENT…]
//!  {"mode":"fresh","workers":1,"runs":50,"heap_mib":0,"spawn_us":…,"median_us":…,"p99_us":…,"per_second":…,
//!   "samples_us":[…],"spawn_samples_us":[…]}
//! ```
//! Samples may be absent; then the medians stand for them. A mode that it does not know is reported as not measured,
//! never filled in.

use super::failed;
use crate::failure::Failure;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The answer, or why this program cannot do that. The form without flags is tried for the oldest of all modes.
pub fn ask(
    program: &Path,
    mode: &str,
    workers: usize,
    runs: usize,
    heap: usize,
    command: &[&str],
) -> Result<Result<Value, String>, Failure> {
    let (runs, heap, workers) = (runs.to_string(), heap.to_string(), workers.to_string());
    let mut words = vec!["--mode", mode, "--workers", &workers, "--runs", &runs, "--heap", &heap];
    if !command.is_empty() {
        words.push("--");
        words.extend(command);
    }
    let first = match call(program, &words)? {
        Ok(answer) if answer["mode"].as_str() == Some(mode) => return Ok(Ok(answer)),
        Ok(_) => format!("launch_bench has no mode {mode}"),
        Err(reason) => reason,
    };
    if mode == "fresh" && workers == "1" && command.is_empty() {
        return call(program, &[&runs, &heap]);
    }
    Ok(Err(first))
}

fn call(program: &Path, words: &[&str]) -> Result<Result<Value, String>, Failure> {
    let mut command = Command::new(program);
    command.args(words).env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
    let output = command.output().map_err(|error| failed(&format!("launch_bench: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let reason = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        return Ok(Err(format!("launch_bench {}: {reason}", words.join(" "))));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).map(Ok).map_err(|error| failed(&format!("launch_bench: {error}")))
}

/// The first of these fields that is a number.
pub fn number(answer: &Value, names: &[&str]) -> Option<f64> {
    names.iter().find_map(|name| answer[*name].as_f64())
}

/// A field with many numbers.
pub fn numbers(answer: &Value, name: &str) -> Option<Vec<f64>> {
    Some(answer[name].as_array()?.iter().filter_map(Value::as_f64).collect())
}
