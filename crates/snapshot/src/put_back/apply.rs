//! Carries the steps out.

use super::attributed::{Opened, is_of_entry, of_entry, open_up};
use super::decide::{Decision, Left, Step, Trees3};
use super::displaced::kept;
use super::remove::leave_name;
use super::seen::Seen;
use super::trees::file_of;
use crate::build::build_part;
use crate::error::SnapshotError;
use crate::object::Entry;
use crate::store::Store;
use nexus_beneath::meta::{EntryType, Meta, stat, stat_if_there};
use nexus_beneath::{Doing as _, LeaseCall, Workspace, chmod, is_gone, is_no_way, join, open_dir, split};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, mkdirat, renameat_with};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Names that are tried for an entry that is put beside.
const TRIES: usize = 100;
/// Longest name of a file, in bytes.
const MAX_NAME: usize = 255;

/// An entry that came to be at a path, or in what was displaced from it, after the present tree was kept, and that was put beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// Path that went back.
    pub path: Vec<u8>,
    /// The path of what was there. Where it stays in the staging directory, which then stays too, a path in that.
    pub beside: Vec<u8>,
}

/// The result of the steps.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Entries that went back.
    pub done: u64,
    /// Entries that were put beside.
    pub aside: Vec<Aside>,
    /// Paths that are left as they are.
    pub left: Vec<Left>,
    /// The staging directory stays, since something in it could be put nowhere.
    pub keeps_staging: bool,
}

/// Names the directory, and what is made in it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The directory that goes back.
    pub root: BorrowedFd<'a>,
    /// Name in it for what is being built and what was displaced. Nothing has this name.
    pub staging: &'a str,
    /// Ends the name of an entry that is put beside.
    pub ending: &'a str,
    /// Finds out which displaced files a process has open for writing. Without it no file counts as open.
    pub leases: Option<LeaseCall>,
}

pub(super) struct Work<'a> {
    pub(super) place: Place<'a>,
    pub(super) root: Workspace,
    pub(super) staging: OwnedFd,
    pub(super) store: &'a mut Store,
    pub(super) trees: Trees3,
    pub(super) applied: Applied,
    /// Entries that were displaced and that the present tree has: they may be removed.
    pub(super) seen: Seen,
    /// Steps whose entry in the staging directory was displaced; that of another one was built.
    pub(super) is_displaced: HashSet<usize>,
    /// Steps whose entry could not be built. A part of it may be in the staging directory.
    pub(super) unbuilt: HashSet<usize>,
    /// Called between any two changes; an error stops at once, as a kill would.
    pub(super) pause: &'a mut dyn FnMut() -> Result<(), SnapshotError>,
}

/// Carries a decision out. `pause` is called between any two changes, and an error of it stops everything at once.
pub fn apply(
    place: Place<'_>,
    store: &mut Store,
    trees: Trees3,
    decision: Decision,
    pause: &mut dyn FnMut() -> Result<(), SnapshotError>,
) -> Result<Applied, SnapshotError> {
    let Decision { steps, directories, left, .. } = decision;
    let mut opened = OpenedRoot::new(place.root)?;
    mkdirat(place.root, place.staging, Mode::RWXU).doing("make", place.staging.as_bytes())?;
    let open = || open_dir(place.root, place.staging.as_bytes(), OFlags::RDONLY);
    let staging = open().doing("open", place.staging.as_bytes())?;
    let root = open_dir(place.root, b"", OFlags::RDONLY).doing("open", b"")?;
    let applied = Applied { left, ..Applied::default() };
    let (root, seen, is_displaced) = (Workspace::from_fd(root), Seen::default(), HashSet::new());
    let unbuilt = HashSet::new();
    let mut work = Work { place, root, staging, store, trees, applied, seen, is_displaced, unbuilt, pause };
    for (number, step) in steps.iter().enumerate() {
        if let Step::Put { path, wanted: Some(wanted), .. } = step {
            work.built(number, path, wanted)?;
        }
    }
    (work.pause)()?;
    // What comes is on the disk before anything goes.
    rustix::fs::syncfs(&work.staging).doing("write", place.staging.as_bytes())?;
    for (number, step) in steps.iter().enumerate() {
        work.step(number, step)?;
        (work.pause)()?;
    }
    for (path, attributes) in directories.iter().rev().filter(|(path, _)| !path.is_empty()) {
        work.directory(path, attributes)?;
        (work.pause)()?;
    }
    rustix::fs::syncfs(place.root).doing("write", b"")?;
    work.clear_staging(&steps)?;
    if let Some(attributes) = directories.get(b"".as_slice())
        && work.directory(b"", attributes)?
    {
        opened.mode = None;
    }
    drop(opened);
    rustix::fs::fsync(place.root).doing("write", b"")?;
    Ok(work.applied)
}

/// The directory that goes back, opened up for its owner, whom a run may have kept out of it: the staging directory is made in it. It gets its
/// mode again also where the undo ends early.
struct OpenedRoot<'a> {
    root: BorrowedFd<'a>,
    /// The mode of before, where it was changed.
    mode: Option<u32>,
}

impl<'a> OpenedRoot<'a> {
    fn new(root: BorrowedFd<'a>) -> Result<Self, SnapshotError> {
        let mode = stat(root, b"").doing("look at", b"")?.mode;
        if rustix::process::geteuid().is_root() || mode & 0o300 == 0o300 {
            return Ok(Self { root, mode: None });
        }
        chmod(root, mode | 0o700).doing("open", b"")?;
        Ok(Self { root, mode: Some(mode) })
    }
}

impl Drop for OpenedRoot<'_> {
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            // It had this mode a moment ago.
            chmod(self.root, mode).ok();
        }
    }
}

fn staged(number: usize) -> String {
    number.to_string()
}

impl Work<'_> {
    fn build(&mut self, number: usize, path: &[u8], wanted: &Entry) -> Result<(), SnapshotError> {
        let top = self.trees.wanted;
        let name = staged(number);
        let mut elsewhere = |store: &mut Store, first: &[u8]| file_of(store, &top, first);
        build_part(self.staging.as_fd(), self.store, wanted, (path, name.as_bytes()), &mut elsewhere)
    }

    /// Builds an entry. Returns false, with the path noted, where that cannot be done, as on a full disk.
    pub(super) fn built(&mut self, number: usize, path: &[u8], wanted: &Entry) -> Result<bool, SnapshotError> {
        let made = self.build(number, path, wanted);
        if let Err(why) = &made
            && let Some(why) = of_entry(why)
        {
            self.leave(path, format!("it cannot be made again: {why}"));
            self.unbuilt.insert(number);
            self.remove_unbuilt(number, path)?;
            return Ok(false);
        }
        made.map(|()| true)
    }

    /// Opens the directory of a step; `None`, with the path noted, where it cannot be reached any more.
    fn parent(&mut self, step: &Step) -> Result<Option<OwnedFd>, SnapshotError> {
        let path = step.path();
        let is_link = |error: &io::Error| error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        match self.root.dir_by_force(split(path).0) {
            Ok(dir) => Ok(Some(dir)),
            // It went with its directory, before an undo was cut off.
            Err(error) if matches!(step, Step::RemoveSpecial { .. }) && (is_gone(&error) || is_link(&error)) => {
                Ok(None)
            }
            Err(error) if is_no_way(&error) => {
                self.leave(path, format!("its directory cannot be used any more: {error}"));
                Ok(None)
            }
            Err(error) if is_of_entry(&error) => {
                self.leave(path, format!("its directory cannot be opened: {error}"));
                Ok(None)
            }
            Err(error) => Ok(Err(error).doing("open the directory of", path)?),
        }
    }

    pub(super) fn leave(&mut self, path: &[u8], why: impl Into<String>) {
        self.applied.left.push(Left { path: path.to_vec(), why: why.into() });
    }

    fn step(&mut self, number: usize, step: &Step) -> Result<(), SnapshotError> {
        if self.unbuilt.contains(&number) {
            return Ok(());
        }
        let path = step.path();
        let Some(dir) = self.parent(step)? else { return Ok(()) };
        let (dir, name) = (dir.as_fd(), split(path).1);
        match step {
            Step::Put { wanted, present, .. } => {
                self.put(number, (dir, name, path), wanted.is_some(), present.as_ref())
            }
            Step::Link { first, wanted, present, .. } => {
                self.link(number, (dir, name, path), first, wanted, present.as_ref())
            }
            Step::Attributes { wanted, present, .. } => self.attributes(number, (dir, name, path), wanted, present),
            Step::RemoveDirectory { .. } => {
                if self.is_marked(dir, name, path)? {
                    self.leave(path, "its mode, owner or attributes were changed meanwhile");
                    return Ok(());
                }
                match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
                    Ok(()) => self.applied.done += 1,
                    Err(Errno::NOENT) => {}
                    Err(error) => self.leave(path, format!("it cannot be removed: {}", io::Error::from(error))),
                }
                Ok(())
            }
            Step::RemoveSpecial { .. } => self.remove_special((dir, name, path)),
        }
    }

    /// Removes a FIFO, a socket or a device. It leaves its name first: a file that another process puts in its place at that moment stays.
    fn remove_special(&mut self, (dir, name, path): (BorrowedFd<'_>, &[u8], &[u8])) -> Result<(), SnapshotError> {
        let is_special = |meta: Option<Meta>| {
            meta.is_some_and(|meta| matches!(meta.kind, EntryType::Fifo | EntryType::Socket | EntryType::Device))
        };
        if !is_special(stat_if_there(dir, name).doing("look at", path)?) {
            return Ok(());
        }
        (self.pause)()?;
        let leaving = match leave_name(dir, name) {
            Ok(Some(leaving)) => leaving,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.leave(path, format!("it cannot be removed: {error}"));
                return Ok(());
            }
        };
        if is_special(stat_if_there(dir, &leaving).doing("look at", path)?) {
            if let Err(error) = rustix::fs::unlinkat(dir, leaving.as_slice(), AtFlags::empty()) {
                renameat_with(dir, leaving.as_slice(), dir, name, RenameFlags::NOREPLACE).ok();
                self.leave(path, format!("it cannot be removed: {}", io::Error::from(error)));
                return Ok(());
            }
            self.applied.done += 1;
            return Ok(());
        }
        if renameat_with(dir, leaving.as_slice(), dir, name, RenameFlags::NOREPLACE).is_ok() {
            self.leave(path, "it was changed meanwhile");
        } else if let Some(beside) =
            beside((dir, &leaving), (dir, name), self.place.ending).doing("put beside", path)?
        {
            self.applied.aside.push(Aside { path: path.to_vec(), beside: join(split(path).0, &beside) });
        }
        Ok(())
    }

    /// Puts what was built, or nothing, in the place of what is there.
    pub(super) fn put(
        &mut self,
        number: usize,
        (dir, name, path): (BorrowedFd<'_>, &[u8], &[u8]),
        comes: bool,
        present: Option<&Entry>,
    ) -> Result<(), SnapshotError> {
        let own = staged(number);
        let Some(present) = present else {
            let put = renameat_with(&self.staging, own.as_str(), dir, name, RenameFlags::NOREPLACE);
            match put {
                Ok(()) => self.applied.done += 1,
                Err(error) => self.leave(path, format!("it came to be there meanwhile: {}", io::Error::from(error))),
            }
            return Ok(());
        };
        let opened = match open_up(dir, name, present) {
            Ok(opened) => opened,
            Err(error) => {
                self.leave(path, format!("it cannot be opened for its owner: {error}"));
                return Ok(());
            }
        };
        let taken = if comes {
            renameat_with(&self.staging, own.as_str(), dir, name, RenameFlags::EXCHANGE)
        } else {
            renameat_with(dir, name, &self.staging, own.as_str(), RenameFlags::NOREPLACE)
        };
        match taken {
            Ok(()) => {}
            Err(Errno::NOENT) => {
                if comes {
                    self.leave(path, "it went away meanwhile");
                }
                return Ok(());
            }
            Err(error) => {
                self.leave(path, format!("it cannot be replaced: {}", io::Error::from(error)));
                opened.iter().for_each(Opened::close);
                return Ok(());
            }
        }
        self.applied.done += 1;
        self.is_displaced.insert(number);
        (self.pause)()?;
        let staging = (self.staging.as_fd(), own.as_bytes());
        if let Some(seen) = kept(self.store, &self.trees.present, path, present, staging)? {
            self.seen.add(seen);
            return Ok(());
        }
        // The kept tree does not have what was there a moment ago.
        if !comes && renameat_with(&self.staging, own.as_str(), dir, name, RenameFlags::NOREPLACE).is_ok() {
            self.applied.done -= 1;
            self.leave(path, "it was changed meanwhile");
            opened.iter().for_each(Opened::close);
            return Ok(());
        }
        self.put_beside(&own, (dir, name, path));
        Ok(())
    }

    /// Gives what was displaced a name of its own beside.
    fn put_beside(&mut self, own: &str, (dir, name, path): (BorrowedFd<'_>, &[u8], &[u8])) {
        match beside((self.staging.as_fd(), own.as_bytes()), (dir, name), self.place.ending) {
            Ok(Some(beside)) => {
                let beside = join(split(path).0, &beside);
                self.applied.aside.push(Aside { path: path.to_vec(), beside });
            }
            // Another process took it away.
            Ok(None) => {}
            Err(_) => self.stays(path, join(self.place.staging.as_bytes(), own.as_bytes())),
        }
    }

    /// As [`Self::put_beside`], after the steps.
    pub(super) fn put_displaced_beside(&mut self, own: &[u8], path: &[u8]) {
        let own = String::from_utf8_lossy(own).into_owned();
        let (parent, name) = split(path);
        match self.root.dir_by_force(parent) {
            Ok(dir) => self.put_beside(&own, (dir.as_fd(), name, path)),
            Err(_) => self.stays(path, join(self.place.staging.as_bytes(), own.as_bytes())),
        }
    }

    /// Notes an entry that stays in the staging directory.
    pub(super) fn stays(&mut self, path: &[u8], at: Vec<u8>) {
        self.applied.keeps_staging = true;
        self.applied.aside.push(Aside { path: path.to_vec(), beside: at });
    }

    /// Makes a further name of a file, or a copy where the file is not as wanted.
    fn link(
        &mut self,
        number: usize,
        at: (BorrowedFd<'_>, &[u8], &[u8]),
        first: &[u8],
        wanted: &Entry,
        present: Option<&Entry>,
    ) -> Result<(), SnapshotError> {
        let (dir, name, path) = at;
        let own = staged(number);
        let linked = || -> io::Result<bool> {
            let of = self.root.dir_by_force(split(first).0)?;
            let of_name = split(first).1;
            let id = |meta: Meta| (meta.kind == EntryType::File).then_some(meta.id);
            let there = stat_if_there(dir, name)?.and_then(id);
            if there.is_some() && there == stat_if_there(of.as_fd(), of_name)?.and_then(id) {
                return Ok(true);
            }
            rustix::fs::linkat(of, of_name, &self.staging, own.as_str(), AtFlags::empty())?;
            Ok(false)
        };
        let made = linked();
        let is_linked = match &made {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let staging = (self.staging.as_fd(), own.as_bytes());
                kept(self.store, &self.trees.wanted, path, wanted, staging)?.is_some()
            }
            Err(_) => false,
        };
        if !is_linked {
            // A name of a file that has another one. Anything else that has this name is of another process.
            if made.is_ok()
                && let Err(error) = rustix::fs::unlinkat(&self.staging, own.as_str(), AtFlags::empty())
            {
                self.leave(path, format!("what has its place cannot be removed: {}", io::Error::from(error)));
                return Ok(());
            }
            if !self.built(number, path, wanted)? {
                return Ok(());
            }
            rustix::fs::syncfs(&self.staging).doing("write", path)?;
        }
        self.put(number, at, true, present)
    }
}

/// Moves an entry to a name beside another one. Returns that name; `None` where the entry is gone.
pub(super) fn beside(
    (from, own): (BorrowedFd<'_>, &[u8]),
    (dir, name): (BorrowedFd<'_>, &[u8]),
    ending: &str,
) -> io::Result<Option<Vec<u8>>> {
    for attempt in 1..=TRIES {
        let ending = if attempt == 1 { ending.to_owned() } else { format!("{ending}-{attempt}") };
        let most = MAX_NAME - ending.len();
        let mut beside = name.get(..most).unwrap_or(name).to_vec();
        beside.extend_from_slice(ending.as_bytes());
        match renameat_with(from, own, dir, beside.as_slice(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Some(beside)),
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("no name is free"))
}
