//! Runs a client to read its built-in default.
//!
//! The client runs outside of any sandbox, so it must be the user's own: found on PATH without the workspace's
//! directories, started in `/`, where no file of the workspace is in its way (`python -c` looks for modules in the
//! current directory), with few variables (`PYTHONPATH` and `NODE_OPTIONS` name code).

use crate::toolchains::ToolHost;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a client's answer; npm on a busy machine needs a second or two.
const TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Upper bound for an answer, in bytes; no real answer comes near it.
const MAX_BYTES: usize = 64 * 1024;

/// Runs the program with these arguments and returns its output. Fails if the program is missing, too slow or
/// unsuccessful.
pub fn answer(host: &ToolHost, name: &str, arguments: &[&str]) -> Result<String, String> {
    let tool = host.find(&[name]).ok_or_else(|| format!("{name} was not found on PATH"))?;
    let outside = host.path.iter().filter(|entry| host.directory(entry).is_some());
    let path = std::env::join_paths(outside).map_err(|error| format!("PATH: {error}"))?;
    let mut command = Command::new(&tool.file);
    command.args(arguments).current_dir("/").env_clear().env("PATH", path).env("LANG", "C.UTF-8");
    command.envs(host.home.iter().map(|home| ("HOME", home)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{name} could not be asked: {error}"))?;
    let read = until_its_end(&mut child).map_err(|error| format!("{name} could not be asked: {error}"));
    if read.is_err() {
        // The client may have ended meanwhile; waiting reports it.
        child.kill().map_err(|error| format!("{name} could not be ended: {error}"))?;
    }
    let status = child.wait().map_err(|error| format!("{name} could not be asked: {error}"))?;
    let text = read?;
    if status.success() { Ok(text) } else { Err(format!("{name} was asked for its default and ended with {status}")) }
}

fn until_its_end(child: &mut Child) -> std::io::Result<String> {
    let Some(mut out) = child.stdout.take() else { return Ok(String::new()) };
    let end = Instant::now() + TIMEOUT;
    let mut bytes = Vec::new();
    let mut piece = [0u8; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&out, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(std::io::Error::other(format!("no answer within {} s", TIMEOUT.as_secs()))),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let count = out.read(&mut piece)?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > MAX_BYTES {
            return Err(std::io::Error::other("it answers too much"));
        }
    }
    // A client that closes its output and keeps running has the same time limit.
    while child.try_wait()?.is_none() {
        if Instant::now() >= end {
            return Err(std::io::Error::other(format!("it did not end within {} s", TIMEOUT.as_secs())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    String::from_utf8(bytes).map_err(std::io::Error::other)
}
