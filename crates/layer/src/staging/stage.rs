//! Makes what a commit needs next to the workspace's entries, before the commit is decided: copies for a layer on
//! another file system, new directories, files with other bytes than the layer's.
//!
//! A failure here changes nothing: the workspace is untouched, and the layer is as before.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, join, split, unlink_if_there};
use crate::disk::copy::{Attrs, apply_metadata, copy_entry};
use crate::disk::opened::Notes;
use crate::disk::remove::{remove_known, remove_tree};
use crate::disk::xattr;
use crate::entries::marks::{Attr, LayerMode, attr};
use crate::entries::tree::Source;
use crate::faults::Faults;
use crate::journal::file::{SLOTS, SlotPlace, slots_in_workspace, sync_directory, write};
use crate::journal::seen::Seen;
use crate::journal::step::{AttrList, Slot, Staged};
use crate::meta::{EntryType, stat};
use crate::moves::leftover::{Leftover, set_aside_in_workspace};
use crate::notes::marks_back;
use crate::notes::withdrawn;
use crate::staging::sweep::is_known_name;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

/// Files that are synced one by one; with more of them the whole file system is.
pub(crate) const SYNCED_ONE_BY_ONE: usize = 1000;

/// Tells git to pass the staging directory by, and a person what it is.
const IGNORE: &[u8] =
    b"# Nexus keeps files of a commit here, also the old versions of files that it replaces or deletes.\n\
# It removes this directory when the commit is done: do not work in it. One with the name .nexus-kept-RUN stays, because a\n\
# program may have saved something in it: look at it, and remove it when it is not needed.\n\
# After a crash, nexus changes recover finishes the commit, and nexus changes reject takes it back.\n*\n";

/// The trees that staging reads from and writes to.
pub(crate) struct StagingTrees<'a> {
    pub(crate) root: &'a Workspace,
    pub(crate) upper: &'a Workspace,
    pub(crate) index: Option<&'a Workspace>,
    pub(crate) base: &'a Workspace,
    pub(crate) run: &'a str,
    pub(crate) mode: LayerMode,
    pub(crate) faults: &'a Faults,
}

/// Opens the staging directory of a commit; `None` when it has none (any more).
pub(crate) fn open_slots(
    root: &Workspace,
    base: &Workspace,
    run: &str,
    place: SlotPlace,
) -> Result<Option<Workspace>, IoFailure> {
    let (tree, name) = slots_at(root, base, run, place);
    match tree.readable_dir(name.as_bytes()) {
        Ok(dir) => Ok(Some(Workspace::from_fd(dir))),
        Err(error) if crate::beneath::is_gone(&error) => Ok(None),
        Err(error) => Err(error).doing("open", name.as_bytes()),
    }
}

/// Returns the tree that has the staging directory, and its name there.
pub(crate) fn slots_at<'a>(
    root: &'a Workspace,
    base: &'a Workspace,
    run: &str,
    place: SlotPlace,
) -> (&'a Workspace, String) {
    match place {
        SlotPlace::Layer => (root, SLOTS.to_owned()),
        SlotPlace::Workspace => (base, slots_in_workspace(run)),
    }
}

/// Says in a layer's directory that its staging directory in the workspace has something that a finished commit had to
/// keep, and could not be moved.
const STAYS: &str = "slots.stay";

/// Leaves the mark [`STAYS`], on the disk.
pub(crate) fn mark_stays(root: &Workspace, faults: &Faults) -> Result<(), IoFailure> {
    faults.between_calls();
    write(root, STAYS, &true, faults)?;
    sync_directory(root, faults)
}

/// Takes the mark [`STAYS`] off, when the staging directory is gone or has another name.
pub(crate) fn unmark_stays(root: &Workspace) -> Result<(), IoFailure> {
    unlink_if_there(root.fd(), STAYS.as_bytes()).doing("remove", STAYS.as_bytes())
}

/// Removes the staging directory with what a commit has left in it. A directory in it goes only while it is empty, and
/// what has another name is not the commit's: where that is found, the staging directory is kept. So is one that a
/// finished commit had to leave.
pub(crate) fn remove_slots(
    root: &Workspace,
    base: &Workspace,
    run: &str,
    place: SlotPlace,
    faults: &Faults,
) -> Result<Option<Leftover>, IoFailure> {
    faults.between_calls();
    let (tree, name) = slots_at(root, base, run, place);
    let found = tree.stat(name.as_bytes()).doing("look at", name.as_bytes())?;
    if place == SlotPlace::Workspace && root.stat(STAYS.as_bytes()).doing("look at", STAYS.as_bytes())?.is_some() {
        let kept = found.map(|_| keep_slots(root, base, run, place, faults)).transpose()?.flatten();
        unmark_stays(root)?;
        return Ok(kept);
    }
    if found.is_some_and(|meta| meta.kind != EntryType::Directory) {
        return remove_tree(tree, name.as_bytes()).doing("remove", name.as_bytes()).map(|()| None);
    }
    match remove_known(tree, name.as_bytes(), &is_known_name) {
        Ok(()) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::NOTEMPTY.raw_os_error()) => {
            keep_slots(root, base, run, place, faults)
        }
        Err(error) => Err(error).doing("remove", name.as_bytes()),
    }
}

/// Renames the staging directory, so that no later command removes it. What is in the workspace is returned, to be
/// named; the rest stays with the layer, which is marked.
pub(crate) fn keep_slots(
    root: &Workspace,
    base: &Workspace,
    run: &str,
    place: SlotPlace,
    faults: &Faults,
) -> Result<Option<Leftover>, IoFailure> {
    let (_, name) = slots_at(root, base, run, place);
    match place {
        SlotPlace::Layer => withdrawn::keep_slots(root, faults).map(|()| None),
        SlotPlace::Workspace => {
            faults.between_calls();
            let at = set_aside_in_workspace(base, run, &name, faults).doing("set aside", name.as_bytes())?;
            Ok(Some(Leftover::new(&at, None, withdrawn::WHY.to_owned())))
        }
    }
}

impl<'a> StagingTrees<'a> {
    /// Makes the staging directory for `count` entries.
    pub(crate) fn begin(self, place: SlotPlace, count: usize) -> Result<Staging<'a>, IoFailure> {
        let slots = Workspace::from_fd(self.make_directory(place)?);
        let (tree, _) = slots_at(self.root, self.base, self.run, place);
        Ok(Staging { notes: Notes::new(Some(self.root)), stage: self, tree, slots, count, opened: Vec::new() })
    }

    /// Makes the staging directory, and returns it.
    pub(crate) fn make_directory(&self, place: SlotPlace) -> Result<OwnedFd, IoFailure> {
        // What an earlier try left behind.
        remove_slots(self.root, self.base, self.run, place, self.faults)?;
        let (tree, name) = slots_at(self.root, self.base, self.run, place);
        rustix::fs::mkdirat(tree.fd(), &*name, Mode::from_raw_mode(0o700)).doing("make", name.as_bytes())?;
        let slots = tree.readable_dir(name.as_bytes()).doing("open", name.as_bytes())?;
        // The workspace's default access list must not become that of the copies.
        for one in [&b"system.posix_acl_default"[..], b"system.posix_acl_access"] {
            match xattr::remove(slots.as_fd(), b"", one) {
                Err(error) if is_no_attr(&error) => {}
                other => other.doing("clean", name.as_bytes())?,
            }
        }
        chmod(slots.as_fd(), 0o700).doing("set the mode of", name.as_bytes())?;
        if place == SlotPlace::Workspace {
            // A git clean or git add of the user passes it by.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&slots, ".gitignore", flags, Mode::from_raw_mode(0o600));
            let file = file.doing("make", b".gitignore")?;
            std::fs::File::from(file).write_all(IGNORE).doing("write", b".gitignore")?;
        }
        Ok(slots)
    }

    /// Opens the directories of the layer on the way to `path` up for their owner, and notes their modes.
    fn open_up(&self, path: &[u8], opened: &mut Vec<(Vec<u8>, u32)>, notes: &mut Notes<'_>) -> io::Result<()> {
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let mut at = Vec::new();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = join(&at, name);
            let dir = self.upper.dir(&at)?;
            let mode = stat(dir.as_fd(), b"")?.mode;
            if mode & 0o700 != 0o700 {
                notes.add(&at, mode)?;
                opened.push((at.clone(), mode));
                chmod(dir.as_fd(), mode | 0o700)?;
            }
        }
        Ok(())
    }

    /// Notes the mode of a file that its copy opens up for a moment.
    fn note_file(&self, path: &ByteText, notes: &mut Notes<'_>) -> io::Result<()> {
        let (parent, name) = split(&path.0);
        let found = stat(self.upper.dir(parent)?.as_fd(), name)?;
        let is_closed = found.kind == EntryType::File && found.mode & 0o400 == 0;
        if is_closed && !rustix::process::geteuid().is_root() {
            notes.add(&path.0, found.mode)?;
        }
        Ok(())
    }

    fn one(&self, slots: &Workspace, name: &[u8], staged: &Staged, of: usize) -> io::Result<()> {
        let attrs = Attrs::Content(self.mode);
        match staged {
            Staged::Directory => {
                rustix::fs::mkdirat(slots.fd(), name, Mode::from_raw_mode(0o700))?;
            }
            Staged::Copy(source) => {
                let (dir, from) = self.source(source)?;
                copy_entry(dir.as_fd(), &from, slots.fd(), name, attrs)?;
            }
            Staged::Name(source) => {
                let (dir, from) = self.source(source)?;
                rustix::fs::linkat(dir.as_fd(), &*from, slots.fd(), name, AtFlags::empty())?;
                return Ok(());
            }
            Staged::Twin(first) => {
                let first = first.to_string().into_bytes();
                rustix::fs::linkat(slots.fd(), &*first, slots.fd(), name, AtFlags::empty())?;
                return Ok(());
            }
            Staged::Bytes { content, like } => self.write(slots, name, content, like)?,
        }
        // The file must be whole on the disk before the decision to use it is.
        if of <= SYNCED_ONE_BY_ONE && stat(slots.fd(), name)?.kind == EntryType::File {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match rustix::fs::openat(slots.fd(), name, flags, Mode::empty()) {
                Ok(file) => self.faults.sync(|| Ok(rustix::fs::fsync(&file)?))?,
                // Its own mode keeps its owner out.
                Err(Errno::ACCESS) => self.faults.sync(|| Ok(rustix::fs::syncfs(slots.fd())?))?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn source(&self, source: &Source) -> io::Result<(OwnedFd, Vec<u8>)> {
        match source {
            Source::Upper(path) => {
                let (parent, name) = split(&path.0);
                Ok((self.upper.dir(parent)?, name.to_vec()))
            }
            Source::Index(name) => {
                let index = self.index.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no index"))?;
                Ok((index.dir(b"")?, name.0.clone()))
            }
        }
    }

    fn write(&self, slots: &Workspace, name: &[u8], content: &[u8], like: &ByteText) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(slots.fd(), name, flags, Mode::from_raw_mode(0o600))?;
        let mut file = std::fs::File::from(file);
        file.write_all(content)?;
        let (parent, like_name) = split(&like.0);
        let dir = self.upper.dir(parent)?;
        apply_metadata(dir.as_fd(), like_name, file.as_fd(), Attrs::Content(self.mode))
    }
}

/// A staging directory that is being filled.
pub(crate) struct Staging<'a> {
    stage: StagingTrees<'a>,
    tree: &'a Workspace,
    slots: Workspace,
    count: usize,
    /// Directories of the layer that were opened up for their owner, with their modes.
    opened: Vec<(Vec<u8>, u32)>,
    /// The same on the disk, for the process that comes after a kill.
    notes: Notes<'a>,
}

impl Staging<'_> {
    /// Makes an entry, and tells what it is.
    pub(crate) fn make(&mut self, slot: Slot, staged: &Staged) -> Result<Seen, IoFailure> {
        let stage = &self.stage;
        stage.faults.between_calls();
        let name = slot.to_string().into_bytes();
        if let Staged::Copy(Source::Upper(path)) | Staged::Bytes { like: path, .. } = staged {
            stage.open_up(split(&path.0).0, &mut self.opened, &mut self.notes).doing("open", &path.0)?;
            stage.note_file(path, &mut self.notes).doing("note the mode of", &path.0)?;
        }
        stage.one(&self.slots, &name, staged, self.count).doing("stage", &name)?;
        Ok(Seen::from(&stat(self.slots.fd(), &name).doing("look at", &name)?))
    }

    /// Lists overlay's marks of a slot that is a name of a file in the index. They go only after the decision: without
    /// them the file would not be known as the new version of one in the workspace.
    pub(crate) fn marks(&self, slot: Slot, staged: &Staged) -> Result<Vec<ByteText>, IoFailure> {
        if !matches!(staged, Staged::Name(Source::Index(_))) {
            return Ok(Vec::new());
        }
        let name = slot.to_string().into_bytes();
        let all = xattr::list(self.slots.fd(), &name).doing("list the attributes of", &name)?;
        Ok(all.into_iter().filter(|one| attr(self.stage.mode, one) == Attr::Mark).map(ByteText).collect())
    }

    /// Reads the values of overlay's marks of a slot.
    pub(crate) fn values(&self, slot: Slot, names: &[ByteText]) -> Result<AttrList, IoFailure> {
        marks_back::values(&self.slots, &slot.to_string().into_bytes(), names)
    }

    /// Gives the directories that were opened up their modes again.
    pub(crate) fn close(&mut self) -> Result<(), IoFailure> {
        for (path, mode) in self.opened.drain(..).rev() {
            let dir = self.stage.upper.dir(&path).doing("open", &path)?;
            chmod(dir.as_fd(), mode).doing("set the mode of", &path)?;
        }
        self.notes.close()
    }

    /// Brings everything to the disk.
    pub(crate) fn sync(&self) -> Result<(), IoFailure> {
        let faults = self.stage.faults;
        if self.count > SYNCED_ONE_BY_ONE {
            faults.sync(|| Ok(rustix::fs::syncfs(self.slots.fd())?)).doing("sync", b"")?;
        } else {
            faults.sync(|| Ok(rustix::fs::fsync(self.slots.fd())?)).doing("sync", b"")?;
        }
        faults.sync(|| Ok(rustix::fs::fsync(self.tree.fd())?)).doing("sync", b"")
    }
}

fn is_no_attr(error: &io::Error) -> bool {
    [Errno::NODATA, Errno::NOTSUP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
