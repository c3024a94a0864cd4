//! Notes about claims, which outlive the daemon.
//!
//! ```text
//!  begin: {directive, fence, token, runs: [ID], command: ID} ─▶ result: the body of `finished` ─▶ acknowledged: the slot is free
//! ```
//! A note is on the disk before the control plane hears of the step that it describes. Room for a result is kept free, so that a
//! full disk loses none. Notes lie in slots, files that stay and are written in place (`slot`): a note that needs no
//! change of a directory or of a file's size waits for nothing but its own bytes, however busy the file system is.

pub use crate::slot::text_of as text_of_slot;
use crate::slot::{self, Slot};
use nexus_api::conduits::FinishedRequest;
use nexus_model::directive::Fence;
use nexus_model::ids::DirectiveId;
use nexus_model::{ExitReason, RunId};
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// Runs that are made for it.
    #[serde(default)]
    pub runs: Vec<RunId>,
    /// The one of them that runs the directive's own command. Its receipt states the end of the directive.
    #[serde(default)]
    pub command: Option<RunId>,
    /// The directive is queued again when its lease is lost, unless its changes were about to be committed.
    #[serde(default)]
    pub requeues: bool,
    /// The control plane may have heard of a commit.
    #[serde(default)]
    pub is_announced: bool,
    /// The end of the command, before its changes are committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Names the changes that the commit left out, for the user of the directive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// The report of the end.
    #[serde(default)]
    pub result: Option<FinishedRequest>,
}

impl Note {
    /// Makes the note of a claim that begins, with the ids of its runs: it names them before the first of them exists.
    #[must_use]
    pub fn new(directive: DirectiveId, fence: Fence, token: &str, runs: Runs) -> Self {
        Self {
            version: FORM,
            directive,
            fence,
            token: token.to_owned(),
            runs: runs.clone.into_iter().chain([runs.command]).collect(),
            command: Some(runs.command),
            requeues: false,
            is_announced: false,
            ended: None,
            left_out: None,
            result: None,
        }
    }

    /// Returns the name of the claim, as files of it have it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", self.directive, self.fence)
    }
}

/// The end of a command whose changes are not settled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit code of the command.
    pub exit: u8,
    /// Reason for the end.
    pub reason: ExitReason,
}

/// The ids of the runs of a claim, chosen before the first of them begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// Clones the repository, where the directive names one.
    pub clone: Option<RunId>,
    /// Runs the directive's own command.
    pub command: RunId,
}

impl Runs {
    /// Chooses ids for a claim.
    #[must_use]
    pub fn choose(may_clone: bool) -> Self {
        Self { clone: may_clone.then(RunId::new), command: RunId::new() }
    }
}

/// The directory of the notes.
#[derive(Debug)]
pub struct Claims {
    path: PathBuf,
    /// Slots that exist, by number, and the claim in each.
    slots: Mutex<BTreeMap<usize, Option<String>>>,
}

impl Claims {
    /// Opens the directory, and makes it where it is missing.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let claims = Self { path: path.to_owned(), slots: Mutex::default() };
        claims.reserve()?;
        let mut slots = claims.slots();
        for entry in std::fs::read_dir(path)? {
            if let Some(number) = slot::number(&entry?.file_name().to_string_lossy()) {
                // Until they are read, none is free.
                slots.insert(number, Some(String::new()));
            }
        }
        drop(slots);
        claims.all()?;
        Ok(claims)
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<usize, Option<String>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
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
        let slot = Slot::at(&self.path, self.slot_of(&note.name()));
        let text = serde_json::to_vec(note)?;
        // The beginning is never written twice: what a power cut tears must leave it whole.
        let is_continued = note.result.is_some() || note.ended.is_some() || note.is_announced;
        if is_continued { slot.add_result(&text) } else { slot.begin(&text) }
    }

    /// Returns the slot of a claim, a free one, or a new one.
    fn slot_of(&self, name: &str) -> usize {
        let mut slots = self.slots();
        let of = |slots: &BTreeMap<usize, Option<String>>, wanted: Option<&str>| {
            slots.iter().find(|(_, holder)| holder.as_deref() == wanted).map(|(number, _)| *number)
        };
        let number = of(&slots, Some(name)).or_else(|| of(&slots, None));
        let number = number.unwrap_or_else(|| slots.last_key_value().map_or(0, |(last, _)| last + 1));
        slots.insert(number, Some(name.to_owned()));
        number
    }

    /// Forgets a claim whose end was acknowledged, or that the control plane gave to another daemon. After a power cut the note
    /// may be there again: its report is sent again then, and the control plane knows it.
    pub fn forget(&self, note: &Note) -> io::Result<()> {
        let name = note.name();
        let mut slots = self.slots();
        if let Some((number, holder)) = slots.iter_mut().find(|(_, holder)| holder.as_deref() == Some(&name)) {
            Slot::at(&self.path, *number).clear()?;
            *holder = None;
        }
        drop(slots);
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads all notes. One that cannot be read is named and stays.
    pub fn all(&self) -> io::Result<(Vec<Note>, Vec<String>)> {
        let (mut notes, mut damaged) = (BTreeMap::new(), Vec::new());
        let mut slots = self.slots();
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
            let number = slot::number(&name);
            let found = match number {
                Some(number) => {
                    Slot::at(&self.path, number).read().and_then(|text| text.map(|text| parsed(&text)).transpose())
                }
                // The form of the version before: a file for each claim.
                None => read(&entry.path()).map(Some),
            };
            let known = match found {
                Ok(Some(note)) if note.version == FORM && (number.is_some() || note.name() == name) => {
                    let known = note.name();
                    // A slot says more than the file of the version before.
                    if number.is_some() || !notes.contains_key(&known) {
                        notes.insert(known.clone(), note);
                    }
                    Some(known)
                }
                Ok(None) => None,
                Ok(Some(_)) => {
                    damaged.push(format!("{}: it is of another version or another claim", entry.path().display()));
                    Some(String::new())
                }
                Err(error) => {
                    damaged.push(format!("{}: {error}", entry.path().display()));
                    Some(String::new())
                }
            };
            if let Some(number) = number {
                slots.insert(number, known);
            }
        }
        let mut notes: Vec<Note> = notes.into_values().collect();
        notes.sort_by_key(|note| (note.directive, note.fence));
        Ok((notes, damaged))
    }
}

fn parsed(text: &[u8]) -> io::Result<Note> {
    Ok(serde_json::from_slice(text)?)
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

    fn noted(claims: &Claims) -> Vec<Note> {
        let (notes, damaged) = claims.all().unwrap();
        assert!(damaged.is_empty(), "{damaged:?}");
        notes
    }

    #[test]
    fn a_note_outlives_its_writer_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let claims = Claims::open(dir.path()).unwrap();
        let runs = Runs::choose(true);
        let mut note = Note::new(DirectiveId::new(), Fence(3), "token", runs);
        assert_eq!((note.runs.len(), note.command), (2, Some(runs.command)));
        claims.write(&note).unwrap();
        assert_eq!(noted(&Claims::open(dir.path()).unwrap()), [note.clone()]);
        note.result = Some(serde_json::from_str(r#"{"status": "failed", "exit_code": 7}"#).unwrap());
        claims.write(&note).unwrap();
        std::fs::write(dir.path().join(".new-x"), "{").unwrap();
        let again = Claims::open(dir.path()).unwrap();
        assert_eq!(noted(&again), [note.clone()]);
        // A note of the version before, a file with the name of its claim.
        let old = Note::new(DirectiveId::new(), Fence(9), "token", runs);
        let other = dir.path().join(old.name());
        for damaged in ["{", "[]", &serde_json::to_string(&note).unwrap()] {
            std::fs::write(&other, damaged).unwrap();
            let (notes, damaged) = again.all().unwrap();
            assert_eq!((notes.len(), damaged.len()), (1, 1), "{damaged:?}");
        }
        assert!(other.exists(), "what cannot be read stays");
        std::fs::write(&other, serde_json::to_string(&old).unwrap()).unwrap();
        assert_eq!(noted(&again), [note.clone(), old.clone()]);
        let ended = Note { result: note.result.clone(), ..old };
        again.write(&ended).unwrap();
        assert_eq!(noted(&again), [note.clone(), ended.clone()], "the slot says more than the old file");
        for note in [&note, &note, &ended] {
            again.forget(note).unwrap();
        }
        assert!(noted(&again).is_empty() && noted(&Claims::open(dir.path()).unwrap()).is_empty());
    }

    #[test]
    fn slots_are_used_again_and_a_damaged_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let claims = Claims::open(dir.path()).unwrap();
        let note = |fence| Note::new(DirectiveId::new(), Fence(fence), "token", Runs::choose(false));
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let (first, second) = (note(1), note(2));
        claims.write(&first).unwrap();
        claims.write(&second).unwrap();
        assert_eq!(files(), 3, "two slots beside the reserve");
        claims.forget(&first).unwrap();
        let third = note(3);
        claims.write(&third).unwrap();
        assert_eq!((files(), noted(&claims)), (3, vec![second.clone(), third.clone()]));
        claims.forget(&second).unwrap();
        claims.forget(&third).unwrap();
        std::fs::write(dir.path().join("slot-0"), "damaged").unwrap();
        let again = Claims::open(dir.path()).unwrap();
        assert_eq!(again.all().unwrap().1.len(), 1);
        for fence in 4..7 {
            again.write(&note(fence)).unwrap();
        }
        assert_eq!(std::fs::read(dir.path().join("slot-0")).unwrap(), b"damaged", "what cannot be read stays");
        assert_eq!(again.all().unwrap().0.len(), 3);
    }

    #[test]
    fn room_for_results_is_kept_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        Claims::open(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join(RESERVE)).unwrap().len(), ROOM);
    }
}
