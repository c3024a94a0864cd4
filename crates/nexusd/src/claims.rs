//! Notes about claims, one file each, which outlive the daemon.
//!
//! ```text
//!  begin: {directive, fence, token}  ─▶ runs: [ID] ─▶ result: the body of `finished` ─▶ acknowledged: gone
//! ```
//! A note is on the disk before the control plane hears of the step that it describes. Room for a result is kept free, so that a
//! full disk loses none.

use nexus_api::conduits::FinishedRequest;
use nexus_model::RunId;
use nexus_model::directive::Fence;
use nexus_model::ids::DirectiveId;
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Version of the form.
const FORM: u32 = 1;
/// Bytes that are kept free for results.
const ROOM: u64 = 8 << 20;
const RESERVE: &str = "reserve";
/// Longest note, in bytes.
const MAX_NOTE: u64 = 64 << 20;

/// A claim that was not acknowledged as ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Version of the form.
    pub version: u32,
    /// Directive of the claim.
    pub directive: DirectiveId,
    /// Number of the claim.
    pub fence: Fence,
    /// Token of the directive, the latest one.
    pub token: String,
    /// Runs that were made for it.
    #[serde(default)]
    pub runs: Vec<RunId>,
    /// The report of the end.
    #[serde(default)]
    pub result: Option<FinishedRequest>,
}

impl Note {
    /// Makes the note of a claim that begins.
    #[must_use]
    pub fn new(directive: DirectiveId, fence: Fence, token: &str) -> Self {
        Self { version: FORM, directive, fence, token: token.to_owned(), runs: Vec::new(), result: None }
    }

    fn name(&self) -> String {
        format!("{}-{}", self.directive, self.fence)
    }
}

/// The directory of the notes.
#[derive(Debug)]
pub struct Claims {
    path: PathBuf,
}

impl Claims {
    /// Opens the directory, and makes it where it is missing.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let claims = Self { path: path.to_owned() };
        claims.reserve()?;
        Ok(claims)
    }

    /// Keeps room free on the disk. An error means that no work may be claimed.
    pub fn reserve(&self) -> io::Result<()> {
        let file =
            File::options().write(true).create(true).truncate(false).mode(0o600).open(self.path.join(RESERVE))?;
        match fallocate(&file, FallocateFlags::empty(), 0, ROOM) {
            // A file system without this call keeps no room.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => {
                // An empty file must not be taken for the room.
                std::fs::remove_file(self.path.join(RESERVE)).ok();
                Err(error.into())
            }
        }
    }

    /// Writes a note and brings it to the disk. On a full disk the room goes first.
    pub fn write(&self, note: &Note) -> io::Result<()> {
        match self.write_once(note) {
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                std::fs::remove_file(self.path.join(RESERVE))?;
                self.write_once(note)
            }
            other => other,
        }
    }

    fn write_once(&self, note: &Note) -> io::Result<()> {
        let hidden = self.path.join(format!(".new-{}", note.name()));
        let written = (|| {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&hidden)?;
            file.write_all(&serde_json::to_vec(note)?)?;
            file.sync_data()?;
            std::fs::rename(&hidden, self.path.join(note.name()))?;
            File::open(&self.path)?.sync_all()
        })();
        if written.is_err() {
            // The error that matters is the first one.
            std::fs::remove_file(&hidden).ok();
        }
        written
    }

    /// Forgets a claim whose end was acknowledged, or that the control plane gave to another daemon.
    pub fn forget(&self, note: &Note) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(note.name())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads all notes. One that cannot be read is named and stays.
    pub fn all(&self) -> io::Result<(Vec<Note>, Vec<String>)> {
        let (mut notes, mut damaged) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == RESERVE {
                continue;
            }
            if name.starts_with(".new-") {
                // Never had its name, so nothing was reported by it.
                std::fs::remove_file(entry.path())?;
                continue;
            }
            match read(&entry.path()) {
                Ok(note) if note.version == FORM && note.name() == name => notes.push(note),
                Ok(_) => damaged.push(format!("{}: it is of another version or another claim", entry.path().display())),
                Err(error) => damaged.push(format!("{}: {error}", entry.path().display())),
            }
        }
        notes.sort_by_key(|note| (note.directive, note.fence));
        Ok((notes, damaged))
    }
}

fn read(path: &Path) -> io::Result<Note> {
    let file = File::options()
        .read(true)
        .custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_NOTE).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_outlives_its_writer_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let claims = Claims::open(dir.path()).unwrap();
        let mut note = Note::new(DirectiveId::new(), Fence(3), "token");
        claims.write(&note).unwrap();
        note.runs.push(RunId::new());
        note.result = Some(serde_json::from_str(r#"{"status": "failed", "exit_code": 7}"#).unwrap());
        claims.write(&note).unwrap();
        std::fs::write(dir.path().join(".new-x"), "{").unwrap();
        let again = Claims::open(dir.path()).unwrap();
        assert_eq!(again.all().unwrap(), (vec![note.clone()], Vec::new()));
        let other = dir.path().join(format!("{}-9", note.directive));
        for damaged in ["{", "[]", &serde_json::to_string(&note).unwrap()] {
            std::fs::write(&other, damaged).unwrap();
            let (notes, damaged) = again.all().unwrap();
            assert_eq!((notes.len(), damaged.len()), (1, 1), "{damaged:?}");
        }
        assert!(other.exists(), "what cannot be read stays");
        again.forget(&note).unwrap();
        again.forget(&note).unwrap();
        assert!(again.all().unwrap().0.is_empty());
    }

    #[test]
    fn room_for_results_is_kept_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        Claims::open(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join(RESERVE)).unwrap().len(), ROOM);
    }
}
