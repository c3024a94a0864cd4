//! The user's profile `asked`: the rules that the user saved when asked by `--ask`. It applies with `--ask` and with
//! `--profile asked`.
//!
//! It lies in the user's own configuration directory and never in a workspace. Nexus only adds lines to a file of the
//! form that it made itself; in any other one the user's text would be at risk.

use crate::profile::caller::{configuration_directory, read_owned};
use nexus_model::RunId;
use nexus_policy::profile::parse;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The profile's name.
pub const NAME: &str = "asked";

/// Time for which an answer waits for the lock while another run saves its own.
const LOCK_TIME: Duration = Duration::from_secs(5);

const HEAD: &str = "# Rules that answers to nexus run --ask saved. They count with --ask, and as --profile asked.\n\
                    net:\n  allow:\n";

/// Adds a destination and returns the file.
pub fn add(target: &str) -> Result<PathBuf, String> {
    let directory =
        configuration_directory().ok_or("there is no directory for the configuration; set NEXUS_CONFIG_DIR")?;
    add_in(&directory.join("profiles"), target)
}

fn add_in(directory: &Path, target: &str) -> Result<PathBuf, String> {
    let path = directory.join(format!("{NAME}.yaml"));
    // Two runs may save at one time: each reads what the other has added.
    let lock = lock(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let old = read_owned(&path, None).map_err(|failure| failure.text())?;
    let Some(new) = with(old.as_deref(), target)? else { return Ok(path) };
    put(directory, &path, &new).map_err(|error| format!("{}: {error}", path.display()))?;
    drop(lock);
    Ok(path)
}

/// Locks the directory against other answers until the file is dropped.
fn lock(directory: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let file = File::open(directory)?;
    let end = Instant::now() + LOCK_TIME;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the text with one more line; `None` when it is there already.
fn with(old: Option<&str>, target: &str) -> Result<Option<String>, String> {
    let old = old.unwrap_or(HEAD);
    let before = if old == HEAD { Vec::new() } else { allowed(old)? };
    if before.iter().any(|known| known == target) {
        return Ok(None);
    }
    let new = format!("{old}    - \"{target}\"\n");
    let mut wanted = before;
    wanted.push(target.to_owned());
    // A file of another form would get the line somewhere else.
    if allowed(&new).is_ok_and(|found| found == wanted) {
        Ok(Some(new))
    } else {
        Err(format!("the profile {NAME} was edited and has another form by now: add the line to net.allow there"))
    }
}

fn allowed(text: &str) -> Result<Vec<String>, String> {
    let document = parse(text).map_err(|error| format!("the profile {NAME}: {}: {}", error.place, error.message))?;
    Ok(document.net.allow.into_iter().map(|(rule, _)| rule).collect())
}

/// A new file takes the place of the old one, so that no half of one is ever read.
fn put(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let fresh = directory.join(format!(".{NAME}-{}", RunId::new()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| std::fs::rename(&fresh, path));
    if renamed.is_err() {
        // The first error is the one that matters.
        std::fs::remove_file(&fresh).ok();
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_add_up_once_each_and_can_be_read_as_a_profile() {
        let one = with(None, "a.test:443").unwrap().unwrap();
        let two = with(Some(&one), "b.test:8443").unwrap().unwrap();
        assert_eq!(with(Some(&two), "a.test:443").unwrap(), None);
        assert_eq!(allowed(&two).unwrap(), ["a.test:443", "b.test:8443"]);
        assert!(two.starts_with(HEAD));
    }

    #[test]
    fn answers_of_many_runs_at_one_time_are_all_saved() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("profiles");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let directory = &directory;
                scope.spawn(move || add_in(directory, &format!("n{number}.test:443")).unwrap());
            }
        });
        let text = std::fs::read_to_string(directory.join("asked.yaml")).unwrap();
        assert_eq!(allowed(&text).unwrap().len(), 16, "{text}");
    }

    #[test]
    fn a_file_of_another_form_is_left_alone() {
        for text in
            ["net: {allow: [a.test]}\n", "net:\n  allow:\n    - a.test\n  deny:\n    - b.test\n", "changes: review\n"]
        {
            assert!(with(Some(text), "c.test:443").is_err(), "{text}");
        }
    }
}
