//! A driver that isolates nothing: it takes the command line of `nexus run` and runs the command as it is.
//! The suite must fail on it; a case that passes here would pass on anything.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Runs `[run] FLAGS -- COMMAND` and returns the exit code.
pub fn run(arguments: &[String]) -> i32 {
    let split = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (flags, command) = (&arguments[..split], arguments.get(split + 1..).unwrap_or_default());
    let value = |flag: &str| flags.iter().position(|word| word == flag).and_then(|at| flags.get(at + 1));
    let Some(program) = command.first() else {
        eprintln!("leaky: no command");
        return 2;
    };
    let mut child = Command::new(program);
    child.args(&command[1..]);
    if let Some(folder) = value("--cwd").or_else(|| value("--workspace")) {
        child.current_dir(folder);
    }
    litter();
    let json = flags.iter().any(|word| word == "--json");
    if !json {
        return match child.status() {
            Ok(status) => code(status),
            Err(error) => refused(&error),
        };
    }
    // Unbounded, and until the last holder of the pipe lets go: both are mistakes that E08 and E11 must notice.
    let output = match child.stderr(Stdio::inherit()).output() {
        Ok(output) => output,
        Err(error) => return refused(&error),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let forged = serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|found| found.get("exit_code").is_some());
    // A command that prints a report of its own is believed: E12 must notice.
    let report = if forged {
        text.into_owned()
    } else {
        serde_json::json!({ "exit_code": code(output.status), "output": { "stdout": { "text": text } } }).to_string()
    };
    match std::io::stdout().write_all(report.as_bytes()) {
        Ok(()) => code(output.status),
        Err(_) => 125,
    }
}

/// Leaves a folder behind for every run: E10 must notice.
fn litter() {
    if let Some(state) = std::env::var_os("NEXUS_STATE_DIR") {
        let folder = Path::new(&state).join("layers").join(std::process::id().to_string());
        if let Err(error) = std::fs::create_dir_all(folder) {
            eprintln!("leaky: {error}");
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(125)
}

fn refused(error: &std::io::Error) -> i32 {
    eprintln!("leaky: {error}");
    if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
}
