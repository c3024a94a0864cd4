//! Removes the remains of an attack that SIGKILL ended, so that the attack could not clean up.
//!
//! ```text
//!  name of ours ── owner is the caller ── its process is gone ── its lock is free ──▶ removed, the base directory last
//! ```
//!
//! In `/tmp` any user can make any name, so a name alone is not a reason to remove a file. A process number alone is not
//! one either: an attack in another container that shares the directory has a number that does not exist here; its lock does.

use super::inspect;
use super::leftovers::report;
use crate::sys;
use std::fs::{self, DirEntry, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Texts before a token in the names of the suite's files.
const PREFIXES: &[&str] = &[
    ".nexus-escape-canary-",
    "nexus-escape-canary-",
    "nexus-escape-made-",
    "nexus-escape-fill-",
    "nexus-escape-inodes-",
    "nexus-escape-",
    "",
];

/// The last parts of tokens: the columns of the suite.
const COLUMNS: &[&str] = &["n", "le", "roo", "user"];

/// The token in a name of the suite, and the process that made it.
fn token_of(name: &str) -> Option<(&str, u32)> {
    let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix).filter(|rest| rest.starts_with("nxe")))?;
    let bare = rest.strip_suffix(".sock").unwrap_or(rest);
    let number = bare.strip_prefix("nxe")?;
    let column = number.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let pid = number.strip_suffix(column)?.parse().ok()?;
    // A socket has no prefix, everything else has one.
    let has_form = (rest == name) == (bare != rest);
    (COLUMNS.contains(&column) && has_form).then_some((bare, pid))
}

/// Returns the base directory of a token.
pub fn base_of(token: &str) -> PathBuf {
    Path::new("/var/tmp").join(format!("nexus-escape-{token}"))
}

/// Locks the base directory as long as the returned file is open.
pub fn hold(base: &Path) -> io::Result<File> {
    let directory = File::open(base)?;
    directory.try_lock().map_err(io::Error::from)?;
    Ok(directory)
}

/// Removes what ended attacks of this user left.
pub fn clear() {
    let mut bases = Vec::new();
    let home = if sys::uid() == 0 { Some(Path::new("/root")) } else { None };
    for directory in ["/tmp", "/dev/shm", "/run", "/var/tmp"].into_iter().map(Path::new).chain(home) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((token, pid)) = token_of(&name) else { continue };
            if !is_own(&entry) || !has_ended(token, pid) {
                continue;
            }
            if entry.path() == base_of(token) {
                bases.push((entry.path(), token.to_owned(), pid));
            } else {
                report(&name, remove(&entry));
            }
        }
    }
    // Last: as long as it is there, the lock can be asked.
    for (base, token, pid) in bases {
        inspect::end_strays(&token);
        let column = token.trim_start_matches("nxe").trim_start_matches(|letter: char| letter.is_ascii_digit());
        super::ipc::clear(&token, pid, column);
        report(&base.display().to_string(), inspect::remove_tree(&base));
    }
}

fn is_own(entry: &DirEntry) -> bool {
    entry.metadata().is_ok_and(|meta| meta.uid() == sys::uid())
}

fn has_ended(token: &str, pid: u32) -> bool {
    if Path::new("/proc").join(pid.to_string()).exists() {
        return false;
    }
    match File::open(base_of(token)).map(|base| base.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock | TryLockError::Error(_))) => false,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn remove(entry: &DirEntry) -> io::Result<()> {
    if entry.file_type()?.is_dir() { inspect::remove_tree(&entry.path()) } else { fs::remove_file(entry.path()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_suite_gives_are_known_with_their_process() {
        for (name, token) in [
            ("nexus-escape-nxe12roo", "nxe12roo"),
            ("nexus-escape-canary-nxe12user", "nxe12user"),
            (".nexus-escape-canary-nxe12n", "nxe12n"),
            ("nexus-escape-made-nxe12le", "nxe12le"),
            ("nxe12roo.sock", "nxe12roo"),
        ] {
            assert_eq!(token_of(name), Some((token, 12)), "{name}");
        }
        for name in
            ["nxe12roo", "nxe12.sock", "nexus-escape-nxe12other", "nexus-escape-nxeroo", "nexus-escape-x", "nxe"]
        {
            assert_eq!(token_of(name), None, "{name}");
        }
    }

    #[test]
    fn an_attack_whose_lock_is_held_has_not_ended() {
        // No process can have this number, so that the lock alone decides (proc_sys_kernel(5): at most 2^22).
        let (pid, token) = (u32::MAX, format!("nxe{}n", u32::MAX));
        let base = base_of(&token);
        fs::create_dir_all(&base).unwrap();
        let held = hold(&base).unwrap();
        assert!(!has_ended(&token, pid));
        drop(held);
        assert!(has_ended(&token, pid));
        fs::remove_dir(&base).unwrap();
    }
}
