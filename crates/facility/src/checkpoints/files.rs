//! The files of checkpoints, below one directory descriptor.

use super::error::CheckpointError;
use super::record::{LiveRun, MAX_BYTES, Unfinished, VERSION};
use crate::beneath;
use nexus_model::RunId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

const RUNS: &str = "runs";
const CACHES: &str = "caches";
const UNDO: &str = "undo";
/// Largest cache, in bytes.
const MAX_CACHE: u64 = 1 << 30;

/// The directory of the checkpoints.
#[derive(Debug)]
pub(super) struct Files {
    root: OwnedFd,
}

impl Files {
    /// Opens the directory; `None` where it is missing and `makes` is false.
    pub(super) fn open(path: &Path, makes: bool) -> io::Result<Option<Self>> {
        if makes {
            made(CWD, path)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(root) => Ok(Some(Self { root })),
            Err(Errno::NOENT) if !makes => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn part(&self, name: &str) -> io::Result<OwnedFd> {
        made(&self.root, Path::new(name))?;
        beneath::directory(&self.root, name)
    }

    /// Returns all records, the last run first, and those that cannot be used.
    pub(super) fn runs(&self) -> Result<(Vec<LiveRun>, Vec<CheckpointError>), CheckpointError> {
        let runs = self.part(RUNS)?;
        let (mut all, mut damaged) = (Vec::new(), Vec::new());
        for name in beneath::names(&runs)? {
            let Ok(run) = name.parse::<RunId>() else { continue };
            match self.run(run) {
                Ok(one) => all.push(one),
                Err(CheckpointError::Unknown { .. }) => {}
                Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::Newer { .. })) => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.run.to_string()));
        Ok((all, damaged))
    }

    /// Reads the record of a run.
    pub(super) fn run(&self, run: RunId) -> Result<LiveRun, CheckpointError> {
        let name = run.to_string();
        match read::<LiveRun>(&self.part(RUNS)?, RUNS, &name)? {
            Some(one) if one.run == run && one.checkpoint.top().is_some() => Ok(one),
            Some(_) => Err(damaged(RUNS, &name, "it is about another run, or its state has no name")),
            None => Err(CheckpointError::Unknown { run }),
        }
    }

    /// Writes the record of a run: the one of before, or the new one, is there at every moment.
    pub(super) fn put_run(&self, record: &LiveRun) -> Result<(), CheckpointError> {
        write(&self.part(RUNS)?, &record.run.to_string(), record)
    }

    /// Removes the record of a run.
    pub(super) fn remove_run(&self, run: RunId) -> Result<(), CheckpointError> {
        remove(&self.part(RUNS)?, &run.to_string())
    }

    /// Returns the undo of a directory that has not ended.
    pub(super) fn unfinished(&self, directory: &str) -> Result<Option<Unfinished>, CheckpointError> {
        read(&self.part(UNDO)?, UNDO, directory)
    }

    pub(super) fn put_unfinished(&self, directory: &str, undo: &Unfinished) -> Result<(), CheckpointError> {
        write(&self.part(UNDO)?, directory, undo)
    }

    pub(super) fn remove_unfinished(&self, directory: &str) -> Result<(), CheckpointError> {
        remove(&self.part(UNDO)?, directory)
    }

    /// Returns the cache of a directory; nothing where there is none.
    pub(super) fn cache(&self, directory: &str) -> Vec<u8> {
        let read = || beneath::read(&beneath::file(self.part(CACHES)?, directory, false)?, MAX_CACHE);
        read().unwrap_or_default()
    }

    /// Keeps the cache of a directory. Without it the next scan only reads more.
    pub(super) fn keep_cache(&self, directory: &str, bytes: &[u8]) {
        let kept = || beneath::write_whole(self.part(CACHES)?, directory, bytes);
        kept().ok();
    }
}

fn made(parent: impl AsFd, path: &Path) -> io::Result<()> {
    match mkdirat(parent, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn damaged(part: &str, name: &str, why: impl Into<String>) -> CheckpointError {
    CheckpointError::Damaged { file: format!("{part}/{name}"), why: why.into() }
}

/// Reads a file with the hash of its text before the text.
fn read<T: DeserializeOwned>(directory: &OwnedFd, part: &str, name: &str) -> Result<Option<T>, CheckpointError> {
    #[derive(serde::Deserialize)]
    struct Version {
        version: u32,
    }
    let file = match beneath::file(directory, name, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = beneath::read(&file, MAX_BYTES)?;
    let text = bytes.split_at_checked(65).and_then(|(hash, text)| {
        let expected = blake3::hash(text).to_hex();
        (hash.strip_suffix(b"\n") == Some(expected.as_bytes())).then_some(text)
    });
    let text = text.ok_or_else(|| damaged(part, name, "it does not have its hash"))?;
    let form = |error: serde_json::Error| damaged(part, name, error.to_string());
    if serde_json::from_slice::<Version>(text).map_err(form)?.version > VERSION {
        return Err(CheckpointError::Newer { file: format!("{part}/{name}") });
    }
    Ok(Some(serde_json::from_slice(text).map_err(form)?))
}

fn write(directory: &OwnedFd, name: &str, record: &impl Serialize) -> Result<(), CheckpointError> {
    let text = serde_json::to_vec(record).map_err(io::Error::other)?;
    let mut bytes = blake3::hash(&text).to_hex().as_bytes().to_vec();
    bytes.push(b'\n');
    bytes.extend(text);
    Ok(beneath::write_whole(directory, name, &bytes)?)
}

fn remove(directory: &OwnedFd, name: &str) -> Result<(), CheckpointError> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(rustix::fs::fsync(directory).map_err(io::Error::from)?),
        Err(error) => Err(io::Error::from(error).into()),
    }
}
