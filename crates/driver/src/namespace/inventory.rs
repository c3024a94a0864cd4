//! What of ours is on this host: first processes of sandboxes, by their mark, and control groups.

use crate::error::{DestroyError, InventoryError};
use nexus_jail::cgroup::Hierarchies;
use rustix::process::{Pid, Signal};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Lists them as `process MARK PID` and `cgroup PATH`.
pub fn list(uid: u32) -> Result<Vec<String>, InventoryError> {
    let mut found = Vec::new();
    for (pid, mark) in marked()? {
        found.push(format!("process {mark} {pid}"));
    }
    for base in bases(uid) {
        let entries = match std::fs::read_dir(&base) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|source| InventoryError { place: base.clone(), source })?,
        };
        for entry in entries {
            let entry = entry.map_err(|source| InventoryError { place: base.clone(), source })?;
            if entry.file_name().to_str().is_some_and(|name| name.parse::<nexus_model::RunId>().is_ok()) {
                found.push(format!("cgroup {}", entry.path().display()));
            }
        }
    }
    Ok(found)
}

/// Ends the sandbox of this mark, and waits until it is gone.
pub fn kill_marked(mark: &str) -> Result<(), DestroyError> {
    let failed = |source: io::Error| DestroyError { what: format!("the sandbox {mark}"), source };
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let processes = marked().map_err(|error| failed(error.source))?;
        let mut left = processes.iter().filter(|(_, name)| name == mark).peekable();
        if left.peek().is_none() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        for (pid, _) in left {
            match rustix::process::kill_process(*pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes whose name is a mark, and that are the first of a pid namespace below ours: a name alone is nobody's
/// proof, since any process can give itself one.
fn marked() -> Result<Vec<(Pid, String)>, InventoryError> {
    let proc = PathBuf::from("/proc");
    let failed = |source| InventoryError { place: PathBuf::from("/proc"), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&proc).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        // A process may end between the two reads.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        if let Some(mark) = mark_of(&status) {
            found.push((pid, mark.to_owned()));
        }
    }
    Ok(found)
}

fn mark_of(status: &str) -> Option<&str> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mark = field("Name:")?;
    let inner = field("NSpid:")?.split_ascii_whitespace().last()?;
    (mark.starts_with("nx-") && inner == "1" && !field("State:")?.starts_with('Z')).then_some(mark)
}

fn bases(uid: u32) -> Vec<PathBuf> {
    let Ok(hierarchies) = Hierarchies::read() else { return Vec::new() };
    let mounts = hierarchies.v2.into_iter().chain(hierarchies.v1.into_iter().map(|(_, path)| path));
    let below = |mount: PathBuf| {
        let shared = mount.join(Path::new("nexus"));
        if uid == 0 { shared } else { shared.join(uid.to_string()) }
    };
    mounts.map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_process_of_an_inner_namespace_counts() {
        let status = |name: &str, ns: &str, state: &str| format!("Name:\t{name}\nState:\t{state}\nNSpid:\t{ns}\n");
        assert_eq!(mark_of(&status("nx-0123456789ab", "77\t1", "S (sleeping)")), Some("nx-0123456789ab"));
        assert_eq!(mark_of(&status("nx-0123456789ab", "77", "S (sleeping)")), None);
        assert_eq!(mark_of(&status("nx-0123456789ab", "77\t2", "S (sleeping)")), None);
        assert_eq!(mark_of(&status("nx-0123456789ab", "77\t1", "Z (zombie)")), None);
        assert_eq!(mark_of(&status("bash", "77\t1", "S (sleeping)")), None);
    }

    #[test]
    fn killing_what_is_not_there_is_fine() {
        assert!(kill_marked("nx-no-such-run").is_ok());
    }
}
