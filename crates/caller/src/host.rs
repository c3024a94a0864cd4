//! Collects environment variables, home directory and identity of this process for the engine, which does not read them itself.

use crate::failure::Failure;
use nexus_runner::host::Host;
use nexus_runner::plan::workspace::{self, WorkspaceChoice};
use nexus_runner::state::directory::StateDir;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Takes variables, home and identity from this process.
pub fn here() -> Host {
    let mut variables = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        // Of two with one name the first counts, as for getenv(3).
        variables.entry(name).or_insert(value);
    }
    Host { variables, home: home(), uid: rustix::process::geteuid().as_raw() }
}

/// The session and the process group of this process, as its PID namespace numbers them.
///
/// Each is 0 where its leader is outside that namespace (`credentials(7)`): in a container whose first process made no
/// session of its own, for example. A `Pid` of `rustix` cannot hold that, so `/proc` is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Number of the session.
    pub session: i32,
    /// Number of the process group.
    pub group: i32,
}

/// Reads session and process group of this process.
pub fn membership() -> io::Result<Membership> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    parse_membership(&stat).ok_or_else(|| io::Error::other("/proc/self/stat has another form than proc(5) says"))
}

/// Takes both from the text of `proc_pid_stat(5)`: `PID (NAME) STATE PARENT GROUP SESSION ...`.
fn parse_membership(stat: &str) -> Option<Membership> {
    // The name may hold anything, also a parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(2);
    let group = fields.next()?.parse().ok()?;
    Some(Membership { session: fields.next()?.parse().ok()?, group })
}

/// Returns the caller's home directory: that of the environment, or of the machine's own table of users.
pub fn home() -> Option<PathBuf> {
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Some(PathBuf::from(home)).filter(|home| home.is_absolute()),
        None => nexus_runner::plan::git_host::home_of(rustix::process::getuid().as_raw()),
    }
}

/// Finds the state directory and makes nothing.
pub fn state_dir() -> Result<StateDir, Failure> {
    Ok(StateDir::find(&here())?)
}

/// Finds the state directory and makes its missing parts.
pub fn ready_state_dir() -> Result<StateDir, Failure> {
    let host = here();
    Ok(StateDir::find(&host)?.ensure(&host)?)
}

/// Takes the directory that was named for the workspace, or the current one.
pub fn choice(named: Option<&Path>) -> Result<WorkspaceChoice, Failure> {
    match named {
        Some(path) => Ok(WorkspaceChoice::Named(path.to_owned())),
        None => std::env::current_dir().map(WorkspaceChoice::Current).map_err(|error| {
            let message = format!("the current directory cannot be used: {error}");
            Failure::refused("workspace", message, "name one with --workspace")
        }),
    }
}

/// Finds the workspace: the directory that was named, or the current one.
pub fn workspace(named: Option<&Path>, places: &StateDir) -> Result<PathBuf, Failure> {
    Ok(workspace::find(choice(named)?, &here(), places)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_and_group_are_read_behind_any_name() {
        let read = |name: &str| parse_membership(&format!("7 ({name}) S 1 40 30 0 -1"));
        for name in ["sh", "a b", ") R 9 9 9", "\n) S"] {
            assert_eq!(read(name), Some(Membership { session: 30, group: 40 }), "{name}");
        }
        assert_eq!(parse_membership("7 (sh) S 0 0 0 0 -1"), Some(Membership { session: 0, group: 0 }));
        for odd in ["", "7 sh S 1 40 30", "7 (sh) S 1 40", "7 (sh) S 1 x 30"] {
            assert_eq!(parse_membership(odd), None, "{odd}");
        }
    }

    #[test]
    fn this_process_is_in_the_session_that_the_kernel_names() {
        let here = membership().unwrap();
        let known = |number: i32| if number == 0 { None } else { rustix::process::Pid::from_raw(number) };
        if let Some(session) = known(here.session) {
            assert_eq!(rustix::process::getsid(None).unwrap(), session);
        }
        if let Some(group) = known(here.group) {
            assert_eq!(rustix::process::getpgrp(), group);
        }
    }
}
