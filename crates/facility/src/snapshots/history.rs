//! The records of the snapshots of one facility, in `NAME/snapshots`.

use super::error::StateError;
use super::record::{MAX_BYTES, Named, NotChosen, Record, VERSION, choose};
use crate::beneath;
use crate::name::FacilityName;
use nexus_snapshot::ObjectId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, mkdirat};
use rustix::io::Errno;
use serde::Deserialize;
use std::io::{self, Write as _};

/// Name of the directory.
const DIRECTORY: &str = "snapshots";
/// File with the name of the snapshot from which the tree goes on.
const BASE: &str = "base";
/// File with what the files of the tree looked like at the last snapshot.
const CACHE: &str = "cache";
/// Largest cache, in bytes.
const MAX_CACHE: u64 = 1 << 30;

/// The records of one facility.
#[derive(Debug)]
pub struct History {
    facility: FacilityName,
    directory: OwnedFd,
}

impl History {
    /// Opens the directory of the records in that of a facility, and makes it where it is missing.
    pub(crate) fn open(facility: &FacilityName, directory: impl AsFd) -> Result<Self, StateError> {
        let opened = || -> io::Result<OwnedFd> {
            match mkdirat(&directory, DIRECTORY, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            beneath::directory(&directory, DIRECTORY)
        };
        let directory = opened().map_err(|source| StateError::Io { facility: facility.clone(), source })?;
        Ok(Self { facility: facility.clone(), directory })
    }

    /// Reads all records, in the order of their numbers, and those that cannot be used.
    pub fn all(&self) -> Result<(Vec<Named>, Vec<StateError>), StateError> {
        let (mut all, mut damaged) = (Vec::new(), Vec::new());
        for name in beneath::names(&self.directory).map_err(|error| self.failed(error))? {
            if ObjectId::from_hex(&name).is_some() {
                match self.read(&name) {
                    Ok(Some(one)) => all.push(one),
                    Ok(None) => {}
                    Err(error @ (StateError::Record { .. } | StateError::Newer { .. })) => damaged.push(error),
                    Err(error) => return Err(error),
                }
            }
        }
        all.sort_by_key(|one| (one.record.number, one.record.created_ms));
        Ok((all, damaged))
    }

    fn read(&self, name: &str) -> Result<Option<Named>, StateError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        let damaged = |why: &str| StateError::Record {
            facility: self.facility.clone(),
            file: name.to_owned(),
            why: why.to_owned(),
        };
        let bytes = match beneath::file(&self.directory, name, false).and_then(|file| beneath::read(&file, MAX_BYTES)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged(&error.to_string())),
            Err(error) => return Err(self.failed(error)),
        };
        if ObjectId::of(&bytes).to_string() != name {
            return Err(damaged("it does not have its hash"));
        }
        let versioned: Versioned = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if versioned.version > u64::from(VERSION) {
            return Err(StateError::Newer { facility: self.facility.clone(), file: name.to_owned() });
        }
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if record.top().is_none() {
            return Err(damaged("its tree has no name"));
        }
        Ok(Some(Named { id: name.to_owned(), record }))
    }

    /// Chooses a snapshot; a damaged record whose name was asked for is the error.
    pub fn find(&self, which: &str) -> Result<Named, StateError> {
        let (all, damaged) = self.all()?;
        let facility = self.facility.clone();
        match choose(&all, which) {
            Ok(one) => Ok(one.clone()),
            Err(NotChosen::Several) => Err(StateError::Ambiguous { facility, which: which.to_owned() }),
            Err(NotChosen::None) => {
                let is_asked_for = |error: &StateError| match error {
                    StateError::Record { file, .. } | StateError::Newer { file, .. } => {
                        which.len() >= 6 && file.starts_with(which)
                    }
                    _ => false,
                };
                if let Some(error) = damaged.into_iter().find(is_asked_for) {
                    return Err(error);
                }
                Err(StateError::Unknown { facility, which: which.chars().take(100).collect() })
            }
        }
    }

    /// Adds a record, which makes the snapshot.
    pub(crate) fn add(&self, record: Record) -> Result<Named, StateError> {
        let bytes = serde_json::to_vec(&record).map_err(|error| self.failed(error.into()))?;
        let id = ObjectId::of(&bytes).to_string();
        beneath::write_whole(&self.directory, &id, &bytes).map_err(|error| self.failed(error))?;
        Ok(Named { id, record })
    }

    /// Removes a record. Its objects stay until the store is cleaned.
    pub(crate) fn remove(&self, id: &str) -> Result<(), StateError> {
        let removed = || -> io::Result<()> {
            rustix::fs::unlinkat(&self.directory, id, AtFlags::empty())?;
            Ok(rustix::fs::fsync(&self.directory)?)
        };
        removed().map_err(|error| self.failed(error))
    }

    /// Returns the snapshot from which the tree goes on.
    pub(crate) fn base(&self) -> Option<String> {
        let file = beneath::file(&self.directory, BASE, false).ok()?;
        let text = String::from_utf8(beneath::read(&file, 100).ok()?).ok()?;
        ObjectId::from_hex(&text).map(|_| text)
    }

    /// Notes the snapshot from which the tree goes on.
    pub(crate) fn set_base(&self, id: &str) -> Result<(), StateError> {
        beneath::write_whole(&self.directory, BASE, id.as_bytes()).map_err(|error| self.failed(error))
    }

    /// Returns the bytes of the cache; none where there is none.
    pub(crate) fn cache(&self) -> Vec<u8> {
        let file = beneath::file(&self.directory, CACHE, false);
        file.and_then(|file| beneath::read(&file, MAX_CACHE)).unwrap_or_default()
    }

    /// Keeps the cache. It has its own hash, so that a power cut costs it alone, and no sync is waited for.
    pub(crate) fn keep_cache(&self, bytes: &[u8]) -> io::Result<()> {
        let hidden = format!(".new-{CACHE}");
        match rustix::fs::unlinkat(&self.directory, hidden.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        beneath::file(&self.directory, &hidden, true)?.write_all(bytes)?;
        Ok(rustix::fs::renameat(&self.directory, hidden.as_str(), &self.directory, CACHE)?)
    }

    fn failed(&self, source: io::Error) -> StateError {
        StateError::Io { facility: self.facility.clone(), source }
    }
}
