//! Carries the steps out.

use super::decide::{Decision, Left, Step, Trees3};
use super::displaced::is_kept;
use super::trees::file_of;
use crate::attributes;
use crate::build::{build_part, stamps};
use crate::error::SnapshotError;
use crate::object::{Attributes, Entry, Node};
use crate::store::Store;
use nexus_beneath::meta::{EntryType, Meta, stat, stat_if_there};
use nexus_beneath::{Doing as _, Workspace, chmod, is_gone, is_no_way, join, names, open_dir, pin, proc_path, split};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, mkdirat, renameat_with};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Names that are tried for an entry that is put beside.
const TRIES: usize = 100;
/// Longest name of a file, in bytes.
const MAX_NAME: usize = 255;

/// An entry that came to be at a path after the present tree was kept, and that was put beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// Path that went back.
    pub path: Vec<u8>,
    /// The path of what was there.
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
}

struct Work<'a> {
    place: Place<'a>,
    root: Workspace,
    staging: OwnedFd,
    store: &'a mut Store,
    trees: Trees3,
    applied: Applied,
    /// Called between any two changes; an error stops at once, as a kill would.
    pause: &'a mut dyn FnMut() -> Result<(), SnapshotError>,
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
    mkdirat(place.root, place.staging, Mode::RWXU).doing("make", place.staging.as_bytes())?;
    let open = || open_dir(place.root, place.staging.as_bytes(), OFlags::RDONLY);
    let staging = open().doing("open", place.staging.as_bytes())?;
    let root = open_dir(place.root, b"", OFlags::RDONLY).doing("open", b"")?;
    let applied = Applied { left, ..Applied::default() };
    let mut work = Work { place, root: Workspace::from_fd(root), staging, store, trees, applied, pause };
    for (number, step) in steps.iter().enumerate() {
        if let Step::Put { path, wanted: Some(wanted), .. } = step {
            work.build(number, path, wanted)?;
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
    if !work.applied.keeps_staging {
        remove_staging(place.root, place.staging)?;
    }
    if let Some(attributes) = directories.get(b"".as_slice()) {
        work.directory(b"", attributes)?;
    }
    rustix::fs::fsync(place.root).doing("write", b"")?;
    Ok(work.applied)
}

/// Removes a staging directory with everything in it, where there is one. Enters no other file system.
pub fn remove_staging(root: BorrowedFd<'_>, staging: &str) -> Result<(), SnapshotError> {
    let Some(meta) = stat_if_there(root, staging.as_bytes()).doing("look at", staging.as_bytes())? else {
        return Ok(());
    };
    Ok(remove(root, staging.as_bytes(), &meta, staging.as_bytes())?)
}

fn remove(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta, at: &[u8]) -> Result<(), nexus_beneath::IoFailure> {
    if meta.kind == EntryType::Directory {
        if !rustix::process::geteuid().is_root() && meta.mode & 0o700 != 0o700 {
            let pinned = pin(dir, name).doing("open", at)?;
            chmod(pinned.as_fd(), meta.mode | 0o700).doing("open", at)?;
        }
        let inner = open_dir(dir, name, OFlags::RDONLY).doing("open", at)?;
        for name in names(inner.as_fd()).doing("list", at)? {
            let at = join(at, &name);
            if let Some(meta) = stat_if_there(inner.as_fd(), &name).doing("look at", &at)? {
                remove(inner.as_fd(), &name, &meta, &at)?;
            }
        }
    }
    let flags = if meta.kind == EntryType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        other => other.doing("remove", at),
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
            Err(error) => Ok(Err(error).doing("open the directory of", path)?),
        }
    }

    fn leave(&mut self, path: &[u8], why: impl Into<String>) {
        self.applied.left.push(Left { path: path.to_vec(), why: why.into() });
    }

    fn step(&mut self, number: usize, step: &Step) -> Result<(), SnapshotError> {
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
                match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
                    Ok(()) => self.applied.done += 1,
                    Err(Errno::NOENT) => {}
                    Err(error) => self.leave(path, format!("it cannot be removed: {}", io::Error::from(error))),
                }
                Ok(())
            }
            Step::RemoveSpecial { .. } => {
                let meta = stat_if_there(dir, name).doing("look at", path)?;
                let is_special =
                    |meta: &Meta| matches!(meta.kind, EntryType::Fifo | EntryType::Socket | EntryType::Device);
                if meta.is_some_and(|meta| is_special(&meta)) {
                    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                        Ok(()) => self.applied.done += 1,
                        Err(Errno::NOENT) => {}
                        Err(error) => self.leave(path, format!("it cannot be removed: {}", io::Error::from(error))),
                    }
                }
                Ok(())
            }
        }
    }

    /// Puts what was built, or nothing, in the place of what is there.
    fn put(
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
        open_up(dir, name, present, path)?;
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
                return Ok(());
            }
        }
        self.applied.done += 1;
        (self.pause)()?;
        let staging = (self.staging.as_fd(), own.as_bytes());
        if is_kept(self.store, &self.trees.present, path, present, staging)? {
            return Ok(());
        }
        // The kept tree does not have what was there a moment ago.
        if !comes && renameat_with(&self.staging, own.as_str(), dir, name, RenameFlags::NOREPLACE).is_ok() {
            self.applied.done -= 1;
            self.leave(path, "it was changed meanwhile");
            return Ok(());
        }
        self.put_beside(&own, (dir, name, path));
        Ok(())
    }

    /// Gives what was displaced a name of its own beside.
    fn put_beside(&mut self, own: &str, (dir, name, path): (BorrowedFd<'_>, &[u8], &[u8])) {
        for attempt in 1..=TRIES {
            let ending =
                if attempt == 1 { self.place.ending.to_owned() } else { format!("{}-{attempt}", self.place.ending) };
            let most = MAX_NAME - ending.len();
            let mut beside = name.get(..most).unwrap_or(name).to_vec();
            beside.extend_from_slice(ending.as_bytes());
            match renameat_with(&self.staging, own, dir, beside.as_slice(), RenameFlags::NOREPLACE) {
                Ok(()) => {
                    let beside = join(split(path).0, &beside);
                    self.applied.aside.push(Aside { path: path.to_vec(), beside });
                    return;
                }
                Err(Errno::EXIST) => {}
                Err(_) => break,
            }
        }
        self.applied.keeps_staging = true;
        let beside = join(self.place.staging.as_bytes(), own.as_bytes());
        self.applied.aside.push(Aside { path: path.to_vec(), beside });
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
        let is_linked = match linked() {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let staging = (self.staging.as_fd(), own.as_bytes());
                is_kept(self.store, &self.trees.wanted, path, wanted, staging)?
            }
            Err(_) => false,
        };
        if !is_linked {
            rustix::fs::unlinkat(&self.staging, own.as_str(), AtFlags::empty()).ok();
            self.build(number, path, wanted)?;
            rustix::fs::syncfs(&self.staging).doing("write", path)?;
        }
        self.put(number, at, true, present)
    }

    /// Gives the very entry that was kept its wanted attributes.
    fn attributes(
        &mut self,
        number: usize,
        at: (BorrowedFd<'_>, &[u8], &[u8]),
        wanted: &Entry,
        present: &Entry,
    ) -> Result<(), SnapshotError> {
        let (dir, name, path) = at;
        let Ok(pinned) = pin(dir, name) else {
            self.leave(path, "it went away meanwhile");
            return Ok(());
        };
        let meta = stat(pinned.as_fd(), b"").doing("look at", path)?;
        if !is_as(&meta, present) {
            self.leave(path, "it was changed meanwhile");
            return Ok(());
        }
        if meta.kind == EntryType::Symlink {
            // A link has neither a mode nor attributes; its owner and time come with a new one.
            self.build(number, path, wanted)?;
            return self.put(number, at, true, Some(present));
        }
        set(pinned.as_fd(), &wanted.attributes).doing("set the attributes of", path)?;
        self.applied.done += 1;
        Ok(())
    }

    fn directory(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), SnapshotError> {
        let opened = self.root.dir_by_force(path);
        match opened {
            Ok(dir) => Ok(set(dir.as_fd(), attributes).doing("set the attributes of", path)?),
            Err(error) if is_no_way(&error) || is_gone(&error) => Ok(()),
            Err(error) => Ok(Err(error).doing("open", path)?),
        }
    }
}

/// Reports whether an entry has the attributes of a kept one.
fn is_as(meta: &Meta, kept: &Entry) -> bool {
    let kind = match kept.node {
        Node::File(_) | Node::Same(_) => EntryType::File,
        Node::Directory(_) => EntryType::Directory,
        Node::Link(_) => EntryType::Symlink,
    };
    let Attributes { mode, uid, gid, mtime, .. } = &kept.attributes;
    meta.kind == kind
        && (meta.mode, meta.uid, meta.gid, (meta.mtime.sec, meta.mtime.nsec)) == (*mode, *uid, *gid, *mtime)
}

/// Opens a directory up for its owner, who can move it only then.
fn open_up(dir: BorrowedFd<'_>, name: &[u8], present: &Entry, path: &[u8]) -> Result<(), SnapshotError> {
    let mode = present.attributes.mode;
    if !matches!(present.node, Node::Directory(_)) || mode & 0o200 != 0 || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Ok(pinned) = pin(dir, name) else { return Ok(()) };
    let meta = stat(pinned.as_fd(), b"").doing("look at", path)?;
    if is_as(&meta, present) {
        chmod(pinned.as_fd(), mode | 0o700).doing("open", path)?;
    }
    Ok(())
}

/// Sets attributes of an open file or directory, also one opened with `O_PATH`.
fn set(entry: BorrowedFd<'_>, wanted: &Attributes) -> io::Result<()> {
    let meta = stat(entry, b"")?;
    attributes::make(entry, &wanted.extended)?;
    if rustix::process::geteuid().is_root() && (meta.uid, meta.gid) != (wanted.uid, wanted.gid) {
        let (user, group) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        rustix::fs::chownat(entry, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    // After the owner: a change of it takes the bits setuid and setgid away.
    chmod(entry, wanted.mode)?;
    Ok(rustix::fs::utimensat(rustix::fs::CWD, proc_path(entry), &stamps(wanted), AtFlags::empty())?)
}
