//! A driver that isolates nothing: it takes the command line of `nexus` and runs the command as it is.
//! The suite must fail on it; a case that passes here would pass on anything.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Plays `run FLAGS -- COMMAND`, or one of the commands about detached sandboxes, and returns the exit code.
pub fn run(arguments: &[String]) -> i32 {
    let split = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (flags, command) = (&arguments[..split], arguments.get(split + 1..).unwrap_or_default());
    let value = |flag: &str| flags.iter().position(|word| word == flag).and_then(|at| flags.get(at + 1));
    let has = |flag: &str| flags.iter().any(|word| word == flag);
    let name = flags.last().map_or("", String::as_str);
    let shell = ["/bin/sh".to_owned()];
    let command = match flags.first().map(String::as_str) {
        Some("logs") => return copy_out(&kept(name, "log")),
        Some("attach") => return attach(name),
        Some("rm") => return remove(name),
        Some("shell") => &shell,
        Some("run") if has("--detach") => {
            return detach(value("--name").map_or("", String::as_str), command, has("--tty"));
        }
        _ => command,
    };
    let Some(program) = command.first() else {
        eprintln!("leaky: no command");
        return 2;
    };
    let mut child = Command::new(program);
    child.args(&command[1..]);
    if let Some(directory) = value("--cwd").or_else(|| value("--workspace")) {
        child.current_dir(directory);
    }
    if let Some((name, text)) = value("--env").and_then(|word| word.split_once('=')) {
        child.env(name, text);
    }
    litter();
    if !has("--json") {
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

/// Returns the file for one fact about a detached command.
fn kept(name: &str, what: &str) -> PathBuf {
    let state = std::env::var_os("NEXUS_STATE_DIR").unwrap_or_default();
    Path::new(&state).join(format!("{name}.{what}"))
}

/// Starts the command with its output in a file. One with a terminal waits for the terminal of the client that
/// attaches: here it would get the terminal of the suite.
fn detach(name: &str, command: &[String], terminal: bool) -> i32 {
    let start = || {
        std::fs::write(kept(name, "command"), command.join("\0"))?;
        let log = std::fs::File::create(kept(name, "log"))?;
        match command.split_first() {
            Some((program, rest)) if !terminal => Command::new(program)
                .args(rest)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .map(drop),
            _ => Ok(()),
        }
    };
    start().map_or_else(|error| refused(&error), |()| 0)
}

fn attach(name: &str) -> i32 {
    let saved = match std::fs::read_to_string(kept(name, "command")) {
        Ok(saved) => saved,
        Err(error) => return refused(&error),
    };
    let mut words = saved.split('\0');
    let status = Command::new(words.next().unwrap_or_default()).args(words).status();
    status.map_or_else(|error| refused(&error), code)
}

fn copy_out(path: &Path) -> i32 {
    match std::fs::read(path).and_then(|bytes| std::io::stdout().write_all(&bytes)) {
        Ok(()) => 0,
        Err(error) => refused(&error),
    }
}

/// Forgets it; what runs is left running.
fn remove(name: &str) -> i32 {
    let files = [kept(name, "command"), kept(name, "log")];
    files.iter().try_for_each(std::fs::remove_file).map_or_else(|error| refused(&error), |()| 0)
}

/// Leaves a directory behind for every run: E10 must notice.
fn litter() {
    if let Some(state) = std::env::var_os("NEXUS_STATE_DIR") {
        let directory = Path::new(&state).join("layers").join(std::process::id().to_string());
        if let Err(error) = std::fs::create_dir_all(directory) {
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
