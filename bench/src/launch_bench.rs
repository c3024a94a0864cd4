//! The example `launch_bench` of the driver crate, which times launches through a launcher process: what is asked of it,
//! and what it answers, a JSON object on each line.
//!
//! ```text
//!  launch_bench RUNS HEAP_MIB                            {"spawn_us":…,"launch_us":…,"launch_p99_us":…}
//!  launch_bench --rows RUNS SECONDS [-- COMMAND WORD…]   {"mode":"fresh","workers":1,"median_us":…,"p99_us":…}
//!                                                        {"mode":"fresh","workers":8,"runs_per_s":…}
//! ```
//! Modes are `posix_spawn`, `bwrap`, `cold`, `fresh`, `pooled` and `live`, taken in turn. With a command of ours each line must
//! name it (`"command":"…"`), so that figures of another one cannot pass for it. What it cannot do is reported as not
//! measured, never filled in.

use crate::failed;
use crate::failure::Failure;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// All lines, or why there are none.
pub type Answer = Result<Vec<Value>, String>;

/// Fresh launches by a user with a heap of so many MiB.
pub fn with_heap(program: &Path, runs: usize, heap: usize) -> Result<Answer, Failure> {
    call(program, &[&runs.to_string(), &heap.to_string()])
}

/// Every mode; runs per second too when there are seconds for it.
pub fn rows(program: &Path, runs: usize, seconds: usize, command: &[&str]) -> Result<Answer, Failure> {
    let (runs, seconds) = (runs.to_string(), seconds.to_string());
    let mut words = vec!["--rows", &runs, &seconds];
    if !command.is_empty() {
        words.push("--");
        words.extend(command);
    }
    Ok(call(program, &words)?.and_then(|lines| only_of(lines, command)))
}

/// A program that takes no command must not have its figures taken for those of one.
fn only_of(lines: Vec<Value>, command: &[&str]) -> Answer {
    let ours = command.join(" ");
    if command.is_empty() || lines.iter().all(|line| line["command"].as_str() == Some(&ours)) {
        return Ok(lines);
    }
    Err("launch_bench runs /bin/true only".to_owned())
}

fn call(program: &Path, words: &[&str]) -> Result<Answer, Failure> {
    let mut command = Command::new(program);
    command.args(words).env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
    let output = command.output().map_err(|error| failed(&format!("launch_bench: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        return Ok(Err(format!("launch_bench {}: {reason}", words.join(" "))));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| line.starts_with('{')).map(serde_json::from_str);
    let lines: Vec<Value> =
        lines.collect::<Result<_, _>>().map_err(|error| failed(&format!("launch_bench: {error}")))?;
    Ok(if lines.is_empty() { Err(format!("launch_bench {} said nothing", words.join(" "))) } else { Ok(lines) })
}

/// A number of the line of this mode with so many workers.
pub fn figure(lines: &[Value], mode: &str, workers: usize, name: &str) -> Option<f64> {
    let fits = |line: &&Value| line["mode"].as_str() == Some(mode) && line["workers"].as_u64() == Some(workers as u64);
    lines.iter().filter(fits).find_map(|line| line[name].as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_figure_belongs_to_its_mode_and_its_workers() {
        let lines = [
            json!({"mode": "fresh", "workers": 1, "median_us": 7}),
            json!({"mode": "fresh", "workers": 1, "runs_per_s": 9}),
            json!({"mode": "fresh", "workers": 8, "runs_per_s": 11}),
        ];
        assert_eq!(figure(&lines, "fresh", 1, "runs_per_s"), Some(9.0));
        assert_eq!(figure(&lines, "fresh", 8, "median_us"), None);
        assert_eq!(figure(&lines, "live", 1, "median_us"), None);
    }

    #[test]
    fn figures_of_another_command_are_refused() {
        let lines = || vec![json!({"mode": "fresh"})];
        assert!(only_of(lines(), &[]).is_ok());
        assert!(only_of(lines(), &["python3"]).is_err());
        assert!(only_of(vec![json!({"command": "python3 -V"})], &["python3", "-V"]).is_ok());
    }
}
