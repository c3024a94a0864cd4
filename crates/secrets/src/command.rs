//! The provider `cmd`: the standard output of a program that the caller runs on the host, such as `pass` or `op`.
//!
//! The program gets the caller's environment and standard error, so that it can complain, and an empty standard input. It starts in `/`,
//! not in the workspace. One line end at the end of its output is taken off, as a shell does in `$(…)`.

use crate::source::{Source, leads_through};
use crate::value::MAX_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Time for the end of a program that was killed.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// A program gives no value.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No program of this name is in the directories of PATH.
    #[error("no program {name} is in the directories of PATH")]
    NotFound {
        /// The first word of the command.
        name: String,
    },
    /// The program lies in the workspace, or the path leads through it.
    #[error("{} leads into the workspace, where a command could have put or replaced it", path.display())]
    InWorkspace {
        /// The path of the program.
        path: PathBuf,
    },
    /// The system did not start it, or its output could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the program.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// It ended with an error.
    #[error("{} ended with {end}", path.display())]
    Failed {
        /// The path of the program.
        path: PathBuf,
        /// The exit code or the signal.
        end: String,
    },
    /// It did not end in time.
    #[error("{} did not end within {} seconds and was killed", path.display(), within.as_secs())]
    Timeout {
        /// The path of the program.
        path: PathBuf,
        /// The time that it had.
        within: Duration,
    },
    /// It wrote more than a value may have.
    #[error("{} wrote more than {MAX_BYTES} bytes", path.display())]
    TooMuch {
        /// The path of the program.
        path: PathBuf,
    },
    /// The caller does not wait any more.
    #[error("{} was killed, because the run was ended", path.display())]
    Ended {
        /// The path of the program.
        path: PathBuf,
    },
}

pub(crate) fn run(words: &[String], source: &Source<'_>) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    let (name, arguments) = words.split_first().map_or(("", words), |(name, rest)| (name.as_str(), rest));
    let path = find(name, source)?;
    let mut child = Command::new(&path)
        .args(arguments)
        .env_clear()
        .envs(source.variables)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|source| CommandError::Io { path: path.clone(), source })?;
    let read = read_to_end(&mut child, &path, source);
    if read.is_err() {
        end(&mut child);
    }
    let (mut bytes, status) = read?;
    if !status.success() {
        return Err(CommandError::Failed { path, end: describe(status) });
    }
    let text = bytes.strip_suffix(b"\n").map_or(&bytes[..], |rest| rest.strip_suffix(b"\r").unwrap_or(rest));
    let length = text.len();
    bytes.truncate(length);
    Ok(bytes)
}

/// Finds the program. A name without a slash is looked up in PATH, without its relative directories and those of the workspace.
fn find(name: &str, source: &Source<'_>) -> Result<PathBuf, CommandError> {
    if name.contains('/') {
        let path = source.current.join(name);
        return if leads_through(source.workspace, &path) { Err(CommandError::InWorkspace { path }) } else { Ok(path) };
    }
    let path = source.variables.get(OsStr::new("PATH"));
    path.iter()
        .flat_map(std::env::split_paths)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .filter(|path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())
        .find(|path| !leads_through(source.workspace, path))
        .ok_or_else(|| CommandError::NotFound { name: name.to_owned() })
}

fn read_to_end(
    child: &mut Child,
    path: &Path,
    source: &Source<'_>,
) -> Result<(Zeroizing<Vec<u8>>, ExitStatus), CommandError> {
    let failed = |source: io::Error| CommandError::Io { path: path.to_owned(), source };
    let until = Instant::now() + source.within;
    let ended = pidfd_of(child).map_err(failed)?;
    let mut output = child.stdout.take().map(OwnedFd::from);
    if let Some(output) = &output {
        rustix::io::ioctl_fionbio(output, true).map_err(|error| failed(error.into()))?;
    }
    let mut bytes = Zeroizing::new(vec![0; MAX_BYTES + 3]);
    let mut length = 0;
    loop {
        let is_over = wait(&ended, output.as_ref(), until).map_err(failed)?;
        // Also after the end: what it left in the background may hold the pipe open, and is not waited for.
        while let Some(from) = &output {
            match rustix::io::read(from, &mut bytes[length..]) {
                Ok(0) => output = None,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(failed(error.into())),
            }
            // With the line end that is taken off.
            if length > MAX_BYTES + 2 {
                return Err(CommandError::TooMuch { path: path.to_owned() });
            }
        }
        if is_over && let Some(status) = child.try_wait().map_err(failed)? {
            bytes.truncate(length);
            return Ok((bytes, status));
        }
        if !(source.goes_on)() {
            return Err(CommandError::Ended { path: path.to_owned() });
        }
        if Instant::now() >= until {
            return Err(CommandError::Timeout { path: path.to_owned(), within: source.within });
        }
    }
}

fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits for output or the end of a program until `until`, or for a signal. Reports whether the program has ended.
fn wait(ended: &OwnedFd, output: Option<&OwnedFd>, until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    let mut list = vec![PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
    list.extend(output.map(|output| PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)));
    match poll(&mut list, Some(&left)) {
        Ok(_) => Ok(!list[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Kills a program and collects it, if it is gone in time.
fn end(child: &mut Child) {
    // It may have ended already, and what a program does that the kernel does not end is not the run's matter.
    child.kill().ok();
    if let Ok(ended) = pidfd_of(child) {
        wait(&ended, None, Instant::now() + GONE_WITHIN).ok();
    }
    child.try_wait().ok();
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the exit code {code}"),
        (None, Some(signal)) => format!("the signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
