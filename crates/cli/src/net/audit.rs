//! The record of every attempt of a run: `net/RUN.jsonl` in the state directory, one line of JSON each.
//!
//! It is made before the sandbox, so that a run that could not be recorded does not start, and bounded, so that a
//! command cannot fill the disk with refusals. When it is full, or the disk is, nothing new is connected.

use crate::failure::Failure;
use crate::places::Places;
use nexus_model::RunId;
use nexus_policy::receipt::{Digest, StreamDigest};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of one run's record.
pub const MOST_BYTES: u64 = 64 << 20;
/// Records that are kept; the oldest go first.
const KEPT: usize = 500;

/// Where the records are.
pub fn folder(places: &Places) -> PathBuf {
    places.state.join("net")
}

/// Where the record of a run is, or would be.
pub fn place(places: &Places, run: RunId) -> PathBuf {
    folder(places).join(format!("{run}.jsonl"))
}

/// Length and hash of a file.
pub fn digest(path: &Path) -> io::Result<StreamDigest> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(StreamDigest { bytes, hash: Digest::finished(&hasher) }),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the record of a run.
pub fn create(places: &Places, run: RunId) -> Result<File, Failure> {
    let path = place(places, run);
    let made = open(&path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder(places)).and_then(|()| open(&path))
        }
        _ => Err(error),
    });
    made.map_err(|error| {
        let message = format!("the network cannot be recorded in {}: {error}", path.display());
        Failure::refused("net_record", message, "make room there, or set NEXUS_STATE_DIR to another folder")
    })
}

/// It is locked while somebody writes to it: a record that is pruned meanwhile would be written and found by nobody.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Whether somebody writes to a record still.
pub fn is_written(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => flock(file, FlockOperation::Unlock).map(|()| false).map_err(io::Error::from),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The runs with a record, the latest first.
pub fn runs(places: &Places) -> io::Result<Vec<RunId>> {
    let entries = match std::fs::read_dir(folder(places)) {
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
pub fn forget_if_empty(places: &Places, run: RunId) -> io::Result<()> {
    let path = place(places, run);
    match std::fs::metadata(&path) {
        Ok(meta) if meta.len() == 0 => std::fs::remove_file(&path),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Removes the oldest records beyond what is kept. Called after a run, when nobody waits for it.
pub fn prune(places: &Places) -> io::Result<()> {
    beyond(places, KEPT)
}

fn beyond(places: &Places, kept: usize) -> io::Result<()> {
    for run in runs(places)?.into_iter().skip(kept) {
        let path = place(places, run);
        let removed =
            File::open(&path).and_then(|file| if is_written(&file)? { Ok(()) } else { std::fs::remove_file(&path) });
        match removed {
            // Another run was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_records_go_and_one_that_is_written_stays() {
        let state = tempfile::tempdir().unwrap();
        let places = Places::below(state.path().to_owned());
        let ids: Vec<RunId> = (0..4).map(|_| RunId::new()).collect();
        let mut files: Vec<File> = ids.iter().map(|run| create(&places, *run).unwrap()).collect();
        files.truncate(1);
        assert!(is_written(&File::open(place(&places, ids[0])).unwrap()).unwrap());
        beyond(&places, 2).unwrap();
        let mut left = runs(&places).unwrap();
        left.sort_unstable();
        assert_eq!(left, [ids[0], ids[2], ids[3]]);
        files.clear();
        beyond(&places, 2).unwrap();
        assert_eq!(runs(&places).unwrap().len(), 2);
    }
}
