//! One commit at a time on a workspace, and no sandbox that mounts a workspace in the middle of a commit.
//!
//! ```text
//!  commit, recovery ─▶ exclusive        a sandbox that is being set up ─▶ shared, if there is a lock to wait for
//! ```
//!
//! The lock is a file in the state directory, which no other user can open: a lock on the workspace itself could be held
//! by any process that can read the directory, also by a command inside, for as long as it likes.

use crate::state::directory::StateDir;
use crate::state::identity::DirectoryId;
use nexus_layer::disk::state_file::{self, StateFileError};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bounds the time of another commit before this one gives up.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The same where the process of the other commit is stopped: it waits for a signal to go on.
const STOPPED: Duration = Duration::from_secs(5);

/// Holds the lock as long as it lives.
#[derive(Debug)]
pub struct CommitLock {
    path: PathBuf,
    file: File,
}

/// The workspace while its sandbox is being set up.
#[derive(Debug)]
pub struct Mounting {
    /// Keeps commits away, where there was one to wait for.
    pub lock: Option<CommitLock>,
    /// The path that the sandbox mounts.
    pub path: PathBuf,
    /// The identity of the directory that the changes will go to.
    pub directory: DirectoryId,
}

/// The sandbox may have mounted another directory than the one that was opened.
#[derive(Debug, thiserror::Error)]
#[error("{} was moved or replaced while the sandbox was being set up", path.display())]
pub struct Replaced {
    path: PathBuf,
}

impl Mounting {
    /// Ends the set-up. The launcher resolves the path on its own: it still has to mean the directory that was opened.
    pub fn done(self) -> io::Result<()> {
        let Self { lock, path, directory } = self;
        drop(lock);
        if directory.is_at(&path)? { Ok(()) } else { Err(io::Error::other(Replaced { path })) }
    }
}

/// Locks the directory for a commit. Waits for other commits and for sandboxes that waited for one and are being set up.
pub fn lock(places: &StateDir, directory: DirectoryId) -> io::Result<CommitLock> {
    let locked = wait(places, directory, FlockOperation::NonBlockingLockExclusive, true, &|_| true)?;
    locked.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Waits until no commit to the directory is going on, so that a sandbox does not begin with a half of it, and keeps the
/// next commit away as long as the lock lives. `None` when there was none to wait for, which costs one call. `goes_on` gets the time
/// of the wait, and ends the wait with `false`.
pub fn after_commits(
    places: &StateDir,
    directory: DirectoryId,
    goes_on: &dyn Fn(Duration) -> bool,
) -> io::Result<Option<CommitLock>> {
    wait(places, directory, FlockOperation::NonBlockingLockShared, false, goes_on)
}

/// Removes the files of locks whose holders were killed.
pub fn sweep(places: &StateDir) -> io::Result<()> {
    for entry in std::fs::read_dir(&places.locks)? {
        let path = entry?.path();
        let file = match state_file::open_writable(&path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // No lock is held by this; a commit that needs the name says what stands there.
            Err(error) if StateFileError::of(&error).is_some() => continue,
            other => other?,
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&file, &path)? {
            drop(CommitLock { path, file });
        }
    }
    Ok(())
}

fn wait(
    places: &StateDir,
    directory: DirectoryId,
    operation: FlockOperation,
    make: bool,
    goes_on: &dyn Fn(Duration) -> bool,
) -> io::Result<Option<CommitLock>> {
    let path = places.locks.join(directory.name());
    let start = Instant::now();
    let mut looked_after = Duration::ZERO;
    let timed_out = |why: String| Err(io::Error::new(io::ErrorKind::TimedOut, why));
    loop {
        let file = match state_file::open_writable(&path, make) {
            Err(error) if !make && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
            Ok(file) => file,
        };
        match rustix::fs::flock(&file, operation) {
            // The process that had it before has taken the file away with it.
            Ok(()) if is_at(&file, &path)? => return Ok(Some(CommitLock { path, file })),
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                let waited = start.elapsed();
                if waited >= TIMEOUT {
                    return timed_out("another commit to this directory does not end".to_owned());
                }
                if waited >= STOPPED && waited >= looked_after + STOPPED {
                    looked_after = waited;
                    if let Some(pid) = stopped_holder(&file)? {
                        return timed_out(format!(
                            "process {pid} holds it for a commit and is stopped: continue it with kill -CONT {pid}"
                        ));
                    }
                }
                if !goes_on(waited) {
                    return Err(io::Error::new(
                        io::ErrorKind::Interrupted,
                        "a signal ended the wait for another commit",
                    ));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the process that holds a lock on a file and is stopped (proc_locks(5), state `T` or `t` of proc_pid_stat(5)). `None` also
/// where it cannot be seen from this process, in another container for instance.
fn stopped_holder(file: &File) -> io::Result<Option<u32>> {
    let inode = format!(":{}", file.metadata()?.ino());
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5).is_some_and(|place| place.ends_with(&inode));
        words.get(4).filter(|_| is_it)?.parse::<u32>().ok()
    };
    let is_stopped = |pid: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
    };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    Ok(locks.lines().filter_map(holder).find(is_stopped))
}

fn is_at(file: &File, path: &std::path::Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(now) => Ok(now.ino() == file.metadata()?.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for CommitLock {
    /// Removes the file while this process alone holds the lock, so that no process can hold a file that has no name. If that
    /// fails, an empty file stays, which the next one uses. Unlocks explicitly: a process forked meanwhile has the
    /// descriptor, too.
    fn drop(&mut self) {
        let is_last = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_last && is_at(&self.file, &self.path).unwrap_or(false) {
            std::fs::remove_file(&self.path).ok();
        }
        rustix::fs::flock(&self.file, FlockOperation::Unlock).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(dir: &std::path::Path) -> DirectoryId {
        DirectoryId::of_open(&nexus_layer::Workspace::open(dir).unwrap()).unwrap()
    }

    #[test]
    fn a_directory_that_was_replaced_during_the_set_up_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        std::fs::create_dir(&path).unwrap();
        let mounting = || Mounting { lock: None, path: path.clone(), directory: identity(&path) };
        mounting().done().unwrap();
        let before = mounting();
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = before.done().unwrap_err();
        assert!(matches!(error.get_ref(), Some(why) if why.is::<Replaced>()), "{error}");
    }

    #[test]
    fn a_commit_waits_for_a_set_up_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let places = StateDir::below(dir.path().join("state"));
        std::fs::create_dir_all(&places.locks).unwrap();
        let id = identity(dir.path());
        assert!(after_commits(&places, id, &|_| true).unwrap().is_none());
        std::fs::write(places.locks.join(id.name()), "").unwrap();
        let (one, two) =
            (after_commits(&places, id, &|_| true).unwrap(), after_commits(&places, id, &|_| true).unwrap());
        assert!(one.is_some() && two.is_some());
        let (sender, receiver) = std::sync::mpsc::channel();
        let theirs = places.clone();
        let thread = std::thread::spawn(move || {
            let held = lock(&theirs, id).unwrap();
            sender.send(()).unwrap();
            drop(held);
        });
        drop(one);
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "a commit beside a set-up");
        drop(two);
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        thread.join().unwrap();
        assert_eq!(std::fs::read_dir(&places.locks).unwrap().count(), 0);
    }

    /// A process that holds the lock of a directory until it is killed.
    fn holder(places: &StateDir, id: DirectoryId) -> std::process::Child {
        let file = places.locks.join(id.name());
        let mut command = std::process::Command::new("flock");
        let child = command.arg("--no-fork").arg(&file).args(["sleep", "60"]).spawn().unwrap();
        while std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != "sleep\n" {
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    #[test]
    fn a_stopped_process_holds_a_commit_up_for_seconds_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let places = StateDir::below(dir.path().join("state"));
        std::fs::create_dir_all(&places.locks).unwrap();
        let id = identity(dir.path());
        let mut child = holder(&places, id);
        let pid = rustix::process::Pid::from_child(&child);
        // A signal ends the wait for one that goes on.
        let error = after_commits(&places, id, &|waited| waited < Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let start = Instant::now();
        let error = lock(&places, id).unwrap_err().to_string();
        assert!(error.contains(&format!("kill -CONT {}", child.id())) && start.elapsed() < TIMEOUT / 3, "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        lock(&places, id).unwrap();
    }
}
