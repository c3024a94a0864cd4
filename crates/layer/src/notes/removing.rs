//! Records the time stamp changes that the removal of displaced directories itself causes, so that a second pass after a kill can
//! distinguish them from changes by another process.
//!
//! ```text
//!  leaving   the one entry that is on its way out, as it was looked at before
//!  removing  files with several names, of which one was removed; directories that are being emptied; names that files had in
//!            these, and those of them that were left
//! ```
//! Unlinking a name updates the ctime of the file's other names and the times of its directory. The directories are noted, and the notes are
//! synced, before the first of them is emptied: one that is late and not noted came from another process, also after a power failure. The
//! stamps of a file do not tell which of its names is older than the commit. So the names of such files are noted at the same time,
//! where the directory took none since it was displaced, and one that is not noted came from another process. The other notes are not
//! synced. Where a power failure loses one of them, the file that it is about counts as changed and stays.

use crate::beneath::{Doing as _, IoFailure, Workspace, open_file};
use crate::journal::seen::Seen;
use crate::meta::{EntryType, FileId, Meta};
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::FileExt as _;

/// The file of the layer's directory with the entry that is leaving.
pub(crate) const LEAVING_NOTE: &str = "leaving";

/// The file of the layer's directory with the other notes, one a line.
pub(crate) const REMOVING: &str = "removing";

/// The length of the note about the entry that is leaving; a shorter text is filled up with blanks.
const LENGTH: usize = 512;

/// A name of a file in a displaced directory, as it was before the first removal.
#[derive(Debug, Serialize, Deserialize)]
struct NameNote {
    directory: FileId,
    name: ByteText,
    file: FileId,
    /// The number of names that the file had when it was about to leave this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaves: Option<u32>,
}

/// Directory, name and file, with the number of such names: a subvolume of btrfs and its snapshots have the same inodes and times of birth.
type Names = HashMap<(FileId, Vec<u8>, FileId), u32>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Removing<'a> {
    root: &'a Workspace,
    /// The entry that was leaving when an earlier pass was killed.
    left: Option<Seen>,
    known: RefCell<HashMap<FileId, Seen>>,
    /// The names that files had before, without those that they left.
    names: RefCell<Names>,
    /// Those that this pass found.
    found: RefCell<Names>,
    /// The name that a file left last in an earlier pass, or was about to leave, with the number of its names before.
    left_name: RefCell<Option<NameNote>>,
    /// Directories that this pass opened up for a moment to look into them.
    opened: RefCell<HashMap<FileId, Seen>>,
    one: RefCell<Option<File>>,
    all: RefCell<Option<File>>,
}

impl<'a> Removing<'a> {
    /// Reads what an earlier pass noted.
    pub(crate) fn open(root: &'a Workspace) -> Result<Self, IoFailure> {
        let (mut known, mut names, mut left_name) = (HashMap::new(), Names::new(), None);
        if let Some(file) = existing(root, REMOVING)? {
            for line in io::BufReader::new(file).split(b'\n') {
                let line = line.doing("read", REMOVING.as_bytes())?;
                // The last line may be cut off.
                if let Ok(seen) = serde_json::from_slice::<Seen>(&line) {
                    known.insert(seen.id, seen);
                } else if let Ok(note) = serde_json::from_slice::<NameNote>(&line) {
                    let count = names.entry((note.directory, note.name.0.clone(), note.file)).or_default();
                    if note.leaves.is_some() {
                        *count = count.saturating_sub(1);
                        left_name = Some(note);
                    } else {
                        *count += 1;
                    }
                }
            }
        }
        let left = match existing(root, LEAVING_NOTE)? {
            Some(file) => {
                let mut text = [0; LENGTH];
                file.read_exact_at(&mut text, 0).ok().and_then(|()| serde_json::from_slice(&text).ok())
            }
            None => None,
        };
        let (one, all) = (RefCell::new(None), RefCell::new(None));
        let (known, names, left_name) = (RefCell::new(known), RefCell::new(names), RefCell::new(left_name));
        Ok(Self {
            root,
            left,
            known,
            names,
            found: RefCell::default(),
            left_name,
            opened: RefCell::default(),
            one,
            all,
        })
    }

    /// Notes a name in a displaced directory before anything is removed. The caller has made sure that no name came into the directory since
    /// that was displaced.
    pub(crate) fn has(&self, directory: FileId, name: &[u8], file: FileId) {
        let key = (directory, name.to_vec(), file);
        let mut found = self.found.borrow_mut();
        let found = found.entry(key.clone()).or_default();
        *found += 1;
        let mut names = self.names.borrow_mut();
        let noted = names.entry(key).or_default();
        // An earlier pass has noted it.
        if *found > *noted {
            *noted = *found;
            self.add(&NameNote { directory, name: ByteText(name.to_vec()), file, leaves: None });
        }
    }

    /// Notes that an entry of a displaced directory was on its way out when an earlier pass was killed, and left this name, or any name where
    /// that is not known: another process put there what has such a name now.
    pub(crate) fn takes_as_left(&self, directory: FileId, name: Option<&[u8]>) {
        let is_it = |note: &mut NameNote| note.directory == directory && name.is_none_or(|name| name == note.name.0);
        self.left_name.borrow_mut().take_if(is_it);
    }

    /// Reports whether a name in a displaced directory is one that this file had before.
    pub(crate) fn had(&self, directory: FileId, name: &[u8], meta: &Meta) -> bool {
        // An earlier pass was killed before or after the file left: afterwards it has a name less, or another entry is leaving.
        let was_about_to_leave = |note: &NameNote| {
            let is_name = note.directory == directory && note.name.0 == name && note.file == meta.id;
            is_name
                && note.leaves == Some(meta.links)
                && self.left.is_some_and(|left| left.id == meta.id && left.links == meta.links)
        };
        self.names.borrow().get(&(directory, name.to_vec(), meta.id)).is_some_and(|count| *count > 0)
            || self.left_name.borrow().as_ref().is_some_and(was_about_to_leave)
    }

    /// Notes an entry before it leaves its name. Where the disk is full, it leaves all the same.
    pub(crate) fn leaves(&self, directory: FileId, name: &[u8], meta: &Meta) {
        if meta.links > 1 {
            self.known.borrow_mut().insert(meta.id, Seen::from(meta));
            self.add(&Seen::from(meta));
        }
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec(&Seen::from(meta))?;
            text.resize(LENGTH, b' ');
            let mut file = self.one.borrow_mut();
            let file = made(self.root, LEAVING_NOTE, OFlags::WRONLY, &mut file)?;
            file.write_all_at(&text, 0)
        };
        write().ok();
        // After the note about the entry: a name counts as left only where that note is about the same file.
        let mut names = self.names.borrow_mut();
        if let Some(count) = names.get_mut(&(directory, name.to_vec(), meta.id)).filter(|count| **count > 0) {
            *count -= 1;
            let name = ByteText(name.to_vec());
            self.add(&NameNote { directory, name, file: meta.id, leaves: Some(meta.links) });
        }
    }

    /// Notes a directory before something in it is removed. The caller has made sure that the directory is not late.
    pub(crate) fn empties(&self, meta: &Meta) {
        let is_noted = |seen: &Seen| seen.is_same_version(meta) && seen.mode == meta.mode;
        if self.known.borrow().get(&meta.id).is_none_or(|seen| !is_noted(seen)) {
            self.known.borrow_mut().insert(meta.id, Seen::from(meta));
            self.add(&Seen::from(meta));
        }
    }

    /// Remembers a directory that is opened up for a moment, and gets its mode back then.
    pub(crate) fn opens(&self, meta: &Meta) {
        self.opened.borrow_mut().insert(meta.id, Seen::from(meta));
    }

    /// Brings the notes to the disk, where there are any. Where the disk is full, a removal that a power failure interrupts leaves directories
    /// behind, which count as changed.
    pub(crate) fn sync(&self) {
        if let Some(file) = &*self.all.borrow() {
            file.sync_data().and_then(|()| Ok(rustix::fs::fsync(self.root.fd())?)).ok();
        }
    }

    fn add(&self, note: &impl Serialize) {
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec(note)?;
            text.push(b'\n');
            let mut file = self.all.borrow_mut();
            made(self.root, REMOVING, OFlags::WRONLY | OFlags::APPEND, &mut file)?.write_all(&text)
        };
        write().ok();
    }

    /// Reports whether the late times of an entry come from the removal alone.
    pub(crate) fn is_own(&self, meta: &Meta) -> bool {
        let known = self.known.borrow();
        let seen = known.get(&meta.id);
        if meta.kind == EntryType::Directory {
            // Both times of a directory change when a name in it does. Its entries tell what another process did there.
            let is_emptied = seen.is_some_and(|seen| seen.is_same_version(meta) && seen.mode == meta.mode);
            let is_as_opened = |seen: &Seen| (seen.id, seen.mode, seen.mtime) == (meta.id, meta.mode, meta.mtime);
            let was_opened = self.opened.borrow().get(&meta.id).is_some_and(is_as_opened);
            return was_opened || (is_emptied && meta.mtime == meta.ctime);
        }
        seen.is_some_and(|seen| seen.is_same_version(meta))
    }

    /// Returns the files of which a name was removed.
    pub(crate) fn into_known(self) -> HashMap<FileId, Seen> {
        let known = self.known.into_inner().into_iter();
        known.filter(|(_, seen)| seen.kind != EntryType::Directory).collect()
    }

    /// Reports whether an entry at the name of one that leaves is the one that was inspected.
    pub(crate) fn was_leaving(&self, meta: &Meta) -> bool {
        self.left.is_some_and(|left| left.is_same_version(meta)) || self.is_own(meta)
    }
}

fn existing(root: &Workspace, name: &str) -> Result<Option<File>, IoFailure> {
    match open_file(root.fd(), name.as_bytes(), OFlags::RDONLY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => Ok(Some(File::from(other.doing("open", name.as_bytes())?))),
    }
}

/// Opens the file of this name once.
fn made<'f>(root: &Workspace, name: &str, flags: OFlags, file: &'f mut Option<File>) -> io::Result<&'f mut File> {
    if file.is_none() {
        let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        *file = Some(File::from(rustix::fs::openat(root.fd(), name, flags, Mode::from_raw_mode(0o600))?));
    }
    file.as_mut().ok_or_else(|| io::Error::other("no file"))
}
