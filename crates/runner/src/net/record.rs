//! The record of every attempt of a run: `net/RUN.jsonl` in the state directory, one line of JSON each.
//!
//! The record is made before the sandbox, so that a run that could not be recorded does not start, and bounded, so that a
//! command cannot fill the disk with refusals. When it is full, or the disk is, nothing new is connected.

use crate::state::directory::StateDir;
use nexus_model::RunId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bounds the bytes of one record.
pub const MAX_BYTES: u64 = 64 << 20;
/// Bounds the number of records; the oldest go first.
const MAX_RECORDS: usize = 500;
/// Bounds the bytes of all records.
const MAX_TOTAL_BYTES: u64 = 1 << 30;

/// Returns the directory of the records.
pub fn directory(places: &StateDir) -> PathBuf {
    places.state.join("net")
}

/// Returns the path that the record of a run has.
pub fn place(places: &StateDir, run: RunId) -> PathBuf {
    directory(places).join(format!("{run}.jsonl"))
}

/// A record cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("the network cannot be recorded in {}: {source}", path.display())]
pub struct CreateError {
    /// The path of the record.
    pub path: PathBuf,
    /// The answer of the system.
    pub source: io::Error,
}

impl CreateError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "net_record"
    }
}

/// Makes the record of a run.
pub fn create(places: &StateDir, run: RunId) -> Result<File, CreateError> {
    let path = place(places, run);
    let made = open(&path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(directory(places)).and_then(|()| open(&path))
        }
        _ => Err(error),
    });
    made.map_err(|source| CreateError { path, source })
}

/// Opens a record and locks it while a process writes to it: a record that is pruned meanwhile would be written and never found.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Reports whether a process still writes to a record.
pub fn is_written(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => flock(file, FlockOperation::Unlock).map(|()| false).map_err(io::Error::from),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Returns the runs with a record, the latest first.
pub fn runs(places: &StateDir) -> io::Result<Vec<RunId>> {
    let entries = match std::fs::read_dir(directory(places)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let run =
            name.to_str().and_then(|name| name.strip_suffix(".jsonl")).and_then(|name| name.parse::<RunId>().ok());
        found.extend(run);
    }
    // The ids begin with their time.
    found.sort_unstable_by_key(|run| std::cmp::Reverse(run.to_string()));
    Ok(found)
}

/// Removes the record of a run that tried nothing, or never started.
pub fn forget_if_empty(places: &StateDir, run: RunId) -> io::Result<()> {
    let path = place(places, run);
    match std::fs::metadata(&path) {
        Ok(meta) if meta.len() == 0 => std::fs::remove_file(&path),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Counts the old records that were removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of records that were removed since all together had too many bytes.
    for_room: usize,
    /// The bytes that are left, where they are more than all may have.
    over: Option<u64>,
}

impl Pruned {
    /// Returns sentences for the user of the run that has ended.
    pub fn notes(&self) -> Vec<String> {
        let max = MAX_TOTAL_BYTES >> 20;
        let gone = (self.for_room > 0).then(|| {
            format!("the oldest {} records of the network were removed: all together may have {max} MiB", self.for_room)
        });
        let over = self.over.map(|bytes| {
            format!(
                "the records of the network have {} MiB, more than {max}: those of running sandboxes and of waiting changes \
                 stay. Accept or reject with nexus changes",
                bytes >> 20
            )
        });
        gone.into_iter().chain(over).collect()
    }
}

/// Removes the oldest records beyond what is kept, but not that of `run`, which has just ended. Called when no user waits for it.
pub fn prune(places: &StateDir, run: RunId) -> io::Result<Pruned> {
    ended(places, run)?;
    beyond(places, run, MAX_RECORDS, MAX_TOTAL_BYTES)
}

/// Makes the end of a run the time of its record. A sandbox that lived long may have tried nothing for long.
fn ended(places: &StateDir, run: RunId) -> io::Result<()> {
    match File::open(place(places, run)) {
        Ok(file) => file.set_modified(SystemTime::now()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn beyond(places: &StateDir, run: RunId, kept: usize, max_bytes: u64) -> io::Result<Pruned> {
    let mut found = Vec::new();
    for run in runs(places)? {
        match std::fs::symlink_metadata(place(places, run)) {
            Ok(meta) => found.push(((meta.mtime(), meta.mtime_nsec()), run, meta.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // By their ends, the oldest first. The ids begin with the time of the start, and tell those of one moment apart.
    found.sort_unstable_by_key(|(ended, run, _)| (*ended, run.to_string()));
    let mut bytes = found.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
    let mut pruned = Pruned::default();
    let beyond = found.len().saturating_sub(kept);
    for (earlier, (_, old, length)) in found.into_iter().enumerate() {
        let is_beyond = earlier < beyond;
        if !is_beyond && bytes <= max_bytes {
            break;
        }
        if old == run || is_needed(places, old)? {
            continue;
        }
        match std::fs::remove_file(place(places, old)) {
            // Another run was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        pruned.for_room += usize::from(!is_beyond);
        bytes -= length;
    }
    pruned.over = (bytes > max_bytes).then_some(bytes);
    Ok(pruned)
}

/// Reports whether a process still writes to a record, or that changes of its run wait for a decision that it may matter for.
fn is_needed(places: &StateDir, run: RunId) -> io::Result<bool> {
    if places.layers.join(run.to_string()).try_exists()? {
        return Ok(true);
    }
    match File::open(place(places, run)) {
        Ok(file) => is_written(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn old_records_go_and_one_that_is_written_stays() {
        let state = tempfile::tempdir().unwrap();
        let places = StateDir::below(state.path().to_owned());
        let ids: Vec<RunId> = (0..4).map(|_| RunId::new()).collect();
        let mut files: Vec<File> = ids.iter().map(|run| create(&places, *run).unwrap()).collect();
        files.truncate(1);
        assert!(is_written(&File::open(place(&places, ids[0])).unwrap()).unwrap());
        let now = RunId::new();
        beyond(&places, now, 2, u64::MAX).unwrap();
        let mut left = runs(&places).unwrap();
        left.sort_unstable();
        assert_eq!(left, [ids[0], ids[2], ids[3]]);
        files.clear();
        assert_eq!(beyond(&places, now, 2, u64::MAX).unwrap(), Pruned::default());
        assert_eq!(runs(&places).unwrap().len(), 2);
    }

    #[test]
    fn the_record_of_a_long_run_counts_from_its_end() {
        let state = tempfile::tempdir().unwrap();
        let places = StateDir::below(state.path().to_owned());
        let ids: Vec<RunId> = (0..4).map(|_| RunId::new()).collect();
        for (later, run) in ids.iter().enumerate() {
            let at = SystemTime::now() - Duration::from_secs(1000 - 100 * later as u64);
            create(&places, *run).unwrap().set_modified(at).unwrap();
        }
        // The first one lived longest, and has tried nothing for long.
        ended(&places, ids[0]).unwrap();
        ended(&places, RunId::new()).unwrap();
        beyond(&places, RunId::new(), 2, u64::MAX).unwrap();
        let mut left = runs(&places).unwrap();
        left.sort_unstable();
        assert_eq!(left, [ids[0], ids[3]]);
    }

    #[test]
    fn all_records_together_are_bounded_and_waiting_ones_stay() {
        let state = tempfile::tempdir().unwrap();
        let places = StateDir::below(state.path().to_owned());
        let ids: Vec<RunId> = (0..6).map(|_| RunId::new()).collect();
        for run in &ids {
            create(&places, *run).unwrap().set_len(100).unwrap();
        }
        std::fs::create_dir_all(places.layers.join(ids[0].to_string())).unwrap();
        let left = || {
            let mut left = runs(&places).unwrap();
            left.sort_unstable();
            left
        };
        let latest = ids[5];
        assert_eq!(beyond(&places, latest, 10, 600).unwrap(), Pruned::default());
        let pruned = beyond(&places, latest, 10, 399).unwrap();
        assert_eq!((pruned.for_room, pruned.over), (3, None));
        assert_eq!(left(), [ids[0], ids[4], ids[5]], "the oldest first, and not that of waiting changes");
        let pruned = beyond(&places, latest, 10, 150).unwrap();
        assert_eq!((pruned.for_room, pruned.over, left()), (1, Some(200), vec![ids[0], ids[5]]));
        assert_eq!(pruned.notes().len(), 2, "both are said");
        // Decided: it goes like others.
        std::fs::remove_dir(places.layers.join(ids[0].to_string())).unwrap();
        beyond(&places, latest, 10, 150).unwrap();
        assert_eq!(left(), [latest]);
    }
}
