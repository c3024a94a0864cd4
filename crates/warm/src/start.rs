//! Starts the process that listens, and waits until it does.

use super::args::WarmArgs;
use crate::failure::Failure;
use crate::host;
use crate::launcher::directory;
use crate::print::{print, print_json};
use crate::profiles::caller;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Idle time unless a flag says another one.
const IDLE: Duration = Duration::from_secs(600);
/// Time for the process to listen.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Bound for its first line.
const MAX_LINE: usize = 16 << 10;

/// The first line of the process that listens.
#[derive(Debug, Serialize, Deserialize)]
pub enum FirstLine {
    /// The process listens now.
    Ready,
    /// Another process listens for processes like it.
    Taken,
    /// It cannot listen.
    Failed {
        /// Reason for which it cannot listen.
        message: String,
        /// Advice about what to do then.
        hint: String,
    },
}

/// Starts a launcher for processes like this one, unless one is up.
pub fn command(args: &WarmArgs) -> Result<u8, Failure> {
    let places = host::ready_state_dir()?;
    let operator = nexus_profiles::settings::load(&caller(), None)?;
    let uid_base = operator.uid_base.as_ref().map_or(nexus_driver_namespace::DEFAULT_UID_BASE, |base| base.value);
    let idle = args.idle.map_or(IDLE, Duration::from_millis);
    let failed = |error: io::Error| {
        Failure::refused("warm", format!("the launcher cannot be started: {error}"), "Run nexus doctor")
    };
    nexus_driver_namespace::hand_on_nothing().map_err(failed)?;
    let mut program = Command::new("/proc/self/exe");
    program.arg0("nexus").arg("__warm-door").arg(directory(&places)).arg(uid_base.to_string());
    program.arg(idle.as_millis().to_string()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // What the caller's variables hold is nothing for a process that stays.
    program.env_clear().current_dir("/");
    #[cfg(feature = "inject")]
    program.envs(
        std::env::vars_os().filter(|(name, _)| crate::launcher::INJECTED.iter().any(|injected| name == injected)),
    );
    let mut door = program.spawn().map_err(failed)?;
    let output = door.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    let line = match first_line(output) {
        Ok(line) => line,
        Err(error) => {
            // It may still come up: what was not confirmed is not to stay.
            door.kill().map_err(failed)?;
            return Err(failed(error));
        }
    };
    let (state, text) = match line {
        FirstLine::Ready => ("started", "A launcher is up for the next runs of this shell"),
        FirstLine::Taken => ("up", "A launcher for the runs of this shell is up already"),
        FirstLine::Failed { message, hint } => return Err(Failure::refused("warm", message, hint)),
    };
    if args.json {
        return print_json(&json!({ "schema": "nexus.warm/1", "state": state }));
    }
    let end = if state == "started" {
        format!("; it ends when it has started nothing for {} s", idle.as_secs())
    } else {
        String::new()
    };
    print(format!("{text}{end}. nexus warm --stop ends it.\n").as_bytes())
}

/// Reads the first line of the process, at most [`READY_WITHIN`].
fn first_line(mut output: ChildStdout) -> io::Result<FirstLine> {
    let until = Instant::now() + READY_WITHIN;
    let mut text = Vec::new();
    let mut piece = [0u8; 1024];
    while !text.ends_with(b"\n") {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let found = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&left)))?;
        if found == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not come up"));
        }
        let count = output.read(&mut piece)?;
        if count == 0 || text.len() > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended at once"));
        }
        text.extend_from_slice(&piece[..count]);
    }
    serde_json::from_slice(&text).map_err(io::Error::other)
}
