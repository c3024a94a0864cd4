//! Carries out the steps of a journal. Every step may run for the second time, after a crash in the middle of the first.
//!
//! ```text
//!  Put with something in its place:
//!   compare, lease ──▶ exchange ──▶ look at what came out ─┬─ as expected: it stays at the source until the commit is done
//!                          ▲                               └─ changed: exchange back ─┬─ ours came back: kept back, both stay
//!                          └──────────── again, a newer version came out ◀────────────┘
//!                                        (a newer version stands there: the older one goes beside)
//!  Put at a free name, Take:  compare ──▶ rename that replaces nothing ──▶ look at what came out
//! ```
//! A path that changed since the plan is kept back: the workspace has the other process's version, the layer ours. All
//! steps below it are kept back with it. An error that is about one path keeps this path back as well; any other error
//! stops the commit, which then goes on or back as a whole.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, is_gone, pin, split};
use crate::changes::{Conflict, Outside};
use crate::commit::beside::{found_beside, put_beside};
use crate::commit::calls::{Exchanged, Moved, Spot, exchange, move_out, move_to_free};
use crate::commit::displaced::{Quiet, quiet_inside};
use crate::commit::journal::{Journal, KeptBack, Outcome};
use crate::commit::ops::{Op, Origin, Put, SetDir, Slot};
use crate::commit::seen::Seen;
use crate::commit::writers::{Writers, writers};
use crate::copy::times;
use crate::faults::Faults;
use crate::meta::{EntryType, FileId, FsTime, Meta, stat, stat_if_there};
use crate::tree::Own;
use crate::xattr;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Gid, Uid};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Directories that are synced one by one; with more of them the whole file system is.
const SYNCED_ONE_BY_ONE: usize = 256;

/// How often another process may replace an entry while a commit takes its own version back.
const CONTESTED: usize = 16;

/// Why a step was not carried out.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The path is kept back.
    Keep(Keeping),
    /// The commit cannot go on.
    Io(io::Error),
}

/// How a path is kept back.
#[derive(Debug)]
pub(crate) struct Keeping {
    outside: Outside,
    beside: Option<ByteText>,
    detail: Option<String>,
    in_layer: bool,
}

impl Stop {
    fn keep(outside: Outside) -> Self {
        Self::Keep(Keeping { outside, beside: None, detail: None, in_layer: true })
    }

    /// For a call that moves or opens one path and has changed nothing.
    fn blocked(error: io::Error) -> Self {
        use rustix::io::Errno;
        let of_path = [
            Errno::BUSY,
            Errno::PERM,
            Errno::ACCESS,
            Errno::ROFS,
            Errno::XDEV,
            Errno::TXTBSY,
            Errno::NOTDIR,
            Errno::LOOP,
            Errno::NOENT,
            Errno::ISDIR,
            Errno::NAMETOOLONG,
            Errno::MLINK,
            Errno::OVERFLOW,
        ];
        if !of_path.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            return Self::Io(error);
        }
        let detail = Some(error.to_string());
        Self::Keep(Keeping { outside: Outside::Blocked, beside: None, detail, in_layer: true })
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

type Done = Result<(), Stop>;

/// The result of [`Apply::take_back`].
enum Taken {
    /// Our version is back at its source.
    Ours,
    /// Something else stood there: look again.
    Again,
}

/// The name that holds an old version while an exchange is made of three renames.
pub(crate) fn side_name(name: &[u8]) -> Vec<u8> {
    const PREFIX: &[u8] = b".nexus-side-";
    [PREFIX, &name[..name.len().min(255 - PREFIX.len())]].concat()
}

/// Brings the steps of a journal to the workspace.
pub(crate) struct Apply<'a> {
    base: &'a Workspace,
    upper: &'a Workspace,
    slots: Option<&'a Workspace>,
    started: FsTime,
    journal: &'a Journal,
    faults: &'a Faults,
    /// An earlier pass was interrupted.
    again: bool,
    parents: Parents<'a>,
    layer_parents: Parents<'a>,
    parent_ids: HashMap<&'a [u8], FileId>,
    /// The ctime that the commit last gave to an inode that has further names.
    own: HashMap<FileId, FsTime>,
    /// Inodes with several names that the steps displace.
    shared: HashSet<FileId>,
    /// Directories in which steps act.
    worked: HashSet<FileId>,
    /// What was put, as it was right after the call.
    written: HashMap<&'a [u8], Meta>,
    dead_slots: HashSet<Slot>,
    kept_paths: HashSet<Vec<u8>>,
    kept: Vec<KeptBack>,
    unwatched: u64,
    left_at: Vec<(ByteText, FsTime)>,
    touched: BTreeSet<Vec<u8>>,
    sync_all: bool,
}

/// The directory used last, opened up if it kept its owner out.
struct Parents<'a> {
    tree: &'a Workspace,
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Parents<'_> {
    fn get(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            self.last = Some((path.to_vec(), self.tree.dir_by_force(path)?));
        }
        self.last.as_ref().map(|(_, dir)| dir.as_fd()).ok_or_else(|| io::Error::other("no directory"))
    }
}

/// The places that a commit works with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rooms<'a> {
    /// The workspace.
    pub(crate) base: &'a Workspace,
    /// The layer's upper directory.
    pub(crate) upper: &'a Workspace,
    /// The staging directory, if the commit has one.
    pub(crate) slots: Option<&'a Workspace>,
    /// The latest time stamp that counts as older than the run.
    pub(crate) started: FsTime,
}

impl<'a> Apply<'a> {
    pub(crate) fn new(rooms: Rooms<'a>, journal: &'a Journal, faults: &'a Faults, again: bool) -> Self {
        let Rooms { base, upper, slots, started } = rooms;
        let displaced = journal.ops.iter().filter_map(|op| match op {
            Op::Hold { old, .. } => Some(old),
            other => other.displaces(),
        });
        let shared = displaced.filter(|old| old.links > 1 && old.kind != EntryType::Directory).map(|old| old.id);
        let header = &journal.header;
        Self {
            base,
            upper,
            slots,
            started,
            journal,
            faults,
            again,
            parents: Parents { tree: base, last: None },
            layer_parents: Parents { tree: upper, last: None },
            parent_ids: header.parents.iter().map(|one| (one.path.0.as_slice(), one.id)).collect(),
            own: HashMap::new(),
            shared: shared.collect(),
            worked: header.parents.iter().map(|one| one.id).collect(),
            written: HashMap::new(),
            dead_slots: HashSet::new(),
            kept_paths: HashSet::new(),
            kept: Vec::new(),
            unwatched: 0,
            left_at: Vec::new(),
            touched: BTreeSet::new(),
            sync_all: false,
        }
    }

    /// Does everything.
    pub(crate) fn run(&mut self) -> Result<(), IoFailure> {
        let journal = self.journal;
        for op in &journal.ops {
            self.faults.action();
            let below = op.path().is_some_and(|path| self.is_kept(&path.0));
            let done = if below { Ok(()) } else { self.one(op) };
            match done {
                Ok(()) if below => self.hang(op),
                Ok(()) => {}
                Err(Stop::Keep(keeping)) => self.keep(op, keeping),
                Err(Stop::Io(error)) => return Err(error).doing(verb(op), op.path().map_or(&b""[..], |path| &path.0)),
            }
        }
        Ok(())
    }

    /// What became of it.
    pub(crate) fn outcome(mut self) -> Result<Outcome, IoFailure> {
        let mut stamps: Vec<Own> = Vec::new();
        for path in &self.journal.header.rewritten {
            if self.is_kept(&path.0) {
                continue;
            }
            let found = match self.written.remove(path.0.as_slice()) {
                Some(meta) => Some(meta),
                None => match self.base.stat(&path.0) {
                    // A directory on the way was just closed to its owner: the next accept cannot get there either.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
                    other => other.doing("look at", &path.0)?,
                },
            };
            let Some(meta) = found else { continue };
            let is_dir = meta.kind == EntryType::Directory;
            // What another process wrote after us is not ours.
            let ctime = if is_dir { Some(meta.ctime) } else { self.own.get(&meta.id).copied() };
            let Some(ctime) = ctime else { continue };
            let size = (!is_dir).then_some(meta.size);
            stamps.push(Own { path: path.clone(), ctime, id: Some(meta.id), size });
        }
        Ok(Outcome { kept: self.kept, stamps, unwatched: self.unwatched, left_at: self.left_at })
    }

    /// Makes the result durable.
    pub(crate) fn sync(&self) -> Result<(), IoFailure> {
        let everything = || self.faults.sync(|| Ok(rustix::fs::syncfs(self.base.fd())?)).doing("sync", b"");
        if self.sync_all || self.touched.len() > SYNCED_ONE_BY_ONE {
            return everything();
        }
        for path in &self.touched {
            match self.base.readable_dir(path) {
                Ok(dir) => self.faults.sync(|| Ok(rustix::fs::fsync(&dir)?)).doing("sync", path)?,
                // Renamed or closed to us since: let the file system decide what is left to write.
                Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                    return everything();
                }
                Err(error) => return Err(error).doing("sync", path),
            }
        }
        Ok(())
    }

    fn is_kept(&self, path: &[u8]) -> bool {
        if self.kept_paths.is_empty() {
            return false;
        }
        let mut path = path;
        loop {
            if self.kept_paths.contains(path) {
                return true;
            }
            if path.is_empty() {
                return false;
            }
            path = split(path).0;
        }
    }

    /// Keeps back a step whose directory was kept back.
    fn hang(&mut self, op: &Op) {
        let path = match op {
            Op::Take { slot, renamed: true, mark, .. } => {
                self.dead_slots.insert(*slot);
                self.kept.extend(mark.clone().map(mark_of));
                return;
            }
            Op::Take { at, .. } => at.clone(),
            Op::Put(put) => put.path.clone(),
            Op::SetDir(_) | Op::Hold { .. } | Op::Strip { .. } => return,
        };
        let subtree = is_directory(op);
        let in_layer = !matches!(op, Op::Put(put) if put.only_staged);
        self.kept.push(KeptBack { path, conflict: None, in_layer, subtree, arrived: false });
    }

    fn keep(&mut self, op: &Op, keeping: Keeping) {
        let Some(path) = op.path() else {
            if let Op::Hold { slot, .. } = op {
                self.dead_slots.insert(*slot);
            }
            return;
        };
        if let Op::Take { slot, renamed: true, mark, .. } = op {
            self.dead_slots.insert(*slot);
            self.kept.extend(mark.clone().map(mark_of));
        }
        let Keeping { outside, beside, detail, in_layer } = keeping;
        let subtree = is_directory(op);
        // A renamed directory that stays at its old place does not keep back what happens below that place.
        if !matches!(op, Op::Take { renamed: true, .. } | Op::SetDir(_)) {
            self.kept_paths.insert(path.0.clone());
        }
        let conflict = Some(Conflict { path: path.clone(), outside, beside, detail });
        // A renamed directory and a directory's attributes are no entries of the layer at this path.
        let in_layer = in_layer && !matches!(op, Op::Take { renamed: true, .. });
        self.kept.push(KeptBack { path: path.clone(), conflict, in_layer, subtree, arrived: false });
    }

    fn touch(&mut self, dir: &[u8]) {
        if self.touched.len() <= SYNCED_ONE_BY_ONE && !self.touched.contains(dir) {
            self.touched.insert(dir.to_vec());
        }
    }

    fn one(&mut self, op: &'a Op) -> Done {
        match op {
            Op::Hold { at, old, slot } => self.hold(&at.0, old, *slot),
            Op::Take { at, old, slot, renamed, .. } => self.take(&at.0, old, *slot, *renamed),
            Op::Strip { path, names } => Ok(self.strip(&path.0, names)?),
            Op::Put(put) => self.put(put),
            Op::SetDir(set) => self.set_dir(set),
        }
    }

    fn slots(&self) -> io::Result<&'a Workspace> {
        self.slots.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the staging directory is gone"))
    }

    /// Whether an entry is still as it was planned for.
    fn is_untouched(&self, old: &Seen, now: &Meta) -> bool {
        let own = self.own.get(&now.id).copied();
        if own.is_none() && self.again && self.shared.contains(&old.id) {
            // The interrupted pass may have changed the number of its names, and with it the ctime.
            return old.is_same_version(now);
        }
        old.is_untouched(now, own)
    }

    fn remember(&mut self, meta: &Meta) {
        if meta.links > 1 || self.shared.contains(&meta.id) {
            self.own.insert(meta.id, meta.ctime);
        }
    }

    /// Notes when a directory left the workspace: its move set its ctime.
    fn left(&mut self, path: &[u8], old: &Seen, out: &Meta) {
        if old.kind == EntryType::Directory {
            self.left_at.push((ByteText(path.to_vec()), out.ctime));
        }
    }

    fn hold(&mut self, at: &[u8], old: &Seen, slot: Slot) -> Done {
        let name = slot.to_string().into_bytes();
        let slots = self.slots()?;
        if stat_if_there(slots.fd(), &name)?.is_some_and(|meta| meta.id == old.id) {
            return Ok(());
        }
        let (parent, file) = split(at);
        let dir = self.parents.get(parent).map_err(Stop::blocked)?;
        let now = stat_if_there(dir, file)?.ok_or_else(|| Stop::keep(Outside::Vanished))?;
        let own = self.own.get(&now.id).copied();
        let untouched = old.is_untouched(&now, own) || (self.again && old.is_same_version(&now));
        if !untouched {
            return Err(Stop::keep(Outside::Changed));
        }
        self.faults.action();
        rustix::fs::linkat(dir, file, slots.fd(), &*name, AtFlags::empty()).map_err(|e| Stop::blocked(e.into()))?;
        self.faults.action();
        let linked = stat(slots.fd(), &name)?;
        if linked.id != old.id {
            // Another file took the name since the look: only this further name of it goes again.
            rustix::fs::unlinkat(slots.fd(), &*name, AtFlags::empty()).map_err(io::Error::from)?;
            return Err(Stop::keep(Outside::Changed));
        }
        self.own.insert(linked.id, linked.ctime);
        Ok(())
    }

    /// Opens the directory of a path, if it is still the one that was planned for.
    fn enter(&mut self, parent: &[u8]) -> Done {
        let dir = match self.parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Err(Stop::keep(Outside::Vanished)),
            Err(error) => return Err(Stop::blocked(error)),
        };
        if let Some(wanted) = self.parent_ids.get(parent)
            && stat(dir, b"")?.id != *wanted
        {
            self.parents.last = None;
            return Err(Stop::keep(Outside::Replaced));
        }
        Ok(())
    }

    fn take(&mut self, at: &[u8], old: &Seen, slot: Slot, renamed: bool) -> Done {
        let slot_name = slot.to_string().into_bytes();
        let slots = self.slots()?;
        let there = Spot { dir: slots.fd(), name: &slot_name };
        let found = stat_if_there(there.dir, there.name)?;
        let taken = found.as_ref().is_some_and(|meta| meta.id == old.id);
        if let Some(found) = found.filter(|_| !taken) {
            // An interrupted pass took out what another process had put there in that moment.
            return Err(self.return_foreign(there, at, &found)?);
        }
        let (parent, name) = split(at);
        match self.enter(parent) {
            Ok(()) => {}
            // Taken before the interruption, from a directory that is elsewhere by now.
            Err(Stop::Keep(_)) if taken => return Ok(()),
            // Perhaps it is at its new place already: the later step looks.
            Err(Stop::Keep(_)) if renamed && self.again => return Ok(()),
            // Its directory is gone, and it with it.
            Err(Stop::Keep(Keeping { outside: Outside::Vanished, .. })) if !renamed => return Ok(()),
            Err(stop) => return Err(stop),
        }
        let mut lease = None;
        if !taken {
            let dir = self.parents.get(parent)?;
            let Some(now) = stat_if_there(dir, name)? else {
                // Another process deleted it too.
                return if renamed && !self.again { Err(Stop::keep(Outside::Vanished)) } else { Ok(()) };
            };
            if renamed && self.again && now.id != old.id {
                return Ok(());
            }
            if old.kind == EntryType::File {
                lease = self.lease(parent, name)?;
            }
            self.faults.action();
            let dir = self.parents.get(parent)?;
            let now = stat_if_there(dir, name)?.unwrap_or(now);
            if !self.is_untouched(old, &now) {
                return Err(Stop::keep(Outside::Changed));
            }
            let dir = self.parents.get(parent)?;
            make_movable(dir, name, &now).map_err(Stop::blocked)?;
            match move_out(Spot { dir, name }, there, self.faults).map_err(Stop::blocked)? {
                Moved::Yes => {}
                Moved::Occupied => return Err(io::Error::other("a slot of the staging directory is taken").into()),
            }
            if now.kind == EntryType::Directory {
                self.parents.last = None;
            }
        }
        self.faults.action();
        let out = stat(there.dir, there.name)?;
        let quiet = if renamed {
            if out.id == old.id { Quiet::Yes } else { Quiet::No }
        } else {
            self.is_quiet(old, slots, &slot_name, &out, lease.is_some())?
        };
        drop(lease);
        self.touch(parent);
        if quiet == Quiet::Yes {
            self.left(at, old, &out);
            self.remember(&out);
            return Ok(());
        }
        Self::restore_mode(there, old)?;
        let back = Spot { dir: self.parents.get(parent).map_err(Stop::Io)?, name };
        let beside = match move_to_free(there, back, self.faults)? {
            Moved::Yes => None,
            Moved::Occupied => Some(put_beside(there, self.base, at, &self.journal.header.run, self.faults)?),
        };
        let outside = if quiet == Quiet::Written { Outside::Open } else { Outside::Changed };
        Err(Stop::Keep(Keeping { outside, beside, detail: None, in_layer: true }))
    }

    /// Puts an entry of another process back where it was, or beside.
    fn return_foreign(&mut self, there: Spot<'_>, at: &[u8], found: &Meta) -> Result<Stop, Stop> {
        let (parent, name) = split(at);
        let moved = match self.parents.get(parent) {
            Ok(dir) => move_to_free(there, Spot { dir, name }, self.faults)?,
            Err(_) => Moved::Occupied,
        };
        if found.kind == EntryType::Directory {
            self.parents.last = None;
        }
        let beside = match moved {
            Moved::Yes => None,
            Moved::Occupied => Some(put_beside(there, self.base, at, &self.journal.header.run, self.faults)?),
        };
        self.touch(parent);
        Ok(Stop::Keep(Keeping { outside: Outside::Changed, beside, detail: None, in_layer: true }))
    }

    /// A lease on a file of the workspace that goes away, unless somebody writes to it.
    fn lease(&mut self, parent: &[u8], name: &[u8]) -> Result<Option<Writers>, Stop> {
        let dir = self.parents.get(parent)?;
        match writers(self.base.leases(), dir, name) {
            Writers::Some => Err(Stop::keep(Outside::Open)),
            Writers::Unknown => {
                self.unwatched += u64::from(self.base.leases().is_some());
                Ok(None)
            }
            held @ Writers::None(_) => Ok(Some(held)),
        }
    }

    /// Looks at what came out of the workspace.
    fn is_quiet(&self, old: &Seen, tree: &Workspace, path: &[u8], out: &Meta, leased: bool) -> io::Result<Quiet> {
        if !old.is_same_version(out) {
            return Ok(Quiet::No);
        }
        match old.kind {
            EntryType::Directory => {
                let known = |meta: &Meta| {
                    self.worked.contains(&meta.id)
                        || self.own.get(&meta.id) == Some(&meta.ctime)
                        || (self.again && self.shared.contains(&meta.id))
                        || meta.id == old.id
                };
                quiet_inside(tree, path, self.base.leases(), &|meta| meta.ctime > self.started && !known(meta))
            }
            EntryType::File if !leased => {
                let (parent, name) = split(path);
                let dir = tree.dir(parent)?;
                Ok(match writers(self.base.leases(), dir.as_fd(), name) {
                    Writers::Some => Quiet::Written,
                    Writers::None(_) | Writers::Unknown => Quiet::Yes,
                })
            }
            _ => Ok(Quiet::Yes),
        }
    }

    fn strip(&mut self, path: &[u8], names: &[ByteText]) -> io::Result<()> {
        let (parent, name) = split(path);
        let dir = match self.layer_parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        strip_marks(dir, name, names)
    }

    fn put(&mut self, put: &'a Put) -> Done {
        let path: &'a [u8] = &put.path.0;
        let new = put.new.ok_or_else(|| io::Error::other("a step without an entry"))?;
        if let Origin::Slot(slot) = &put.from
            && self.dead_slots.contains(slot)
        {
            return Err(Stop::keep(Outside::Vanished));
        }
        let (parent, name) = split(path);
        if let Err(stop) = self.enter(parent) {
            return Err(self.without_target(put, &new, stop)?);
        }
        if matches!(put.from, Origin::Slot(_)) && self.slots.is_none() {
            let now = stat_if_there(self.parents.get(parent)?, name)?;
            // Somebody removed the staging directory. What had arrived has; the rest stays in the layer.
            return match now {
                Some(now) if now.id == new.id => Ok(()),
                _ => Err(Stop::Keep(Keeping {
                    outside: Outside::Blocked,
                    beside: None,
                    detail: Some("the staging directory is gone".to_owned()),
                    in_layer: !put.only_staged,
                })),
            };
        }
        // Descriptors of their own: opening one directory must not close the other.
        let target_dir = own_fd(self.parents.get(parent)?)?;
        let target = Spot { dir: target_dir.as_fd(), name };
        let slot_name;
        let (source_dir, source_name, source_tree, source_path) = match &put.from {
            Origin::Layer => match self.layer_parents.get(parent) {
                Ok(dir) => (own_fd(dir)?, name, self.upper, path.to_vec()),
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            },
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                let slots = self.slots()?;
                (own_fd(slots.fd())?, slot_name.as_slice(), slots, slot_name.clone())
            }
        };
        let source = Spot { dir: source_dir.as_fd(), name: source_name };
        let found = stat_if_there(source.dir, source.name)?;
        let now = stat_if_there(target.dir, target.name)?;
        let is_new = |meta: &Option<Meta>| meta.as_ref().is_some_and(|meta| meta.id == new.id);
        let side = match &put.old {
            Some(old) => stat_if_there(source.dir, &side_name(source.name))?.filter(|meta| meta.id == old.id),
            None => None,
        };
        let side_spot = side_name(source.name);
        let side_spot = Spot { dir: source.dir, name: &side_spot };
        if stat_if_there(side_spot.dir, side_spot.name)?.is_some_and(|meta| meta.id == new.id) {
            // A taking back by side names was interrupted: it goes on.
            if found.is_some() && move_to_free(source, target, self.faults)? == Moved::Occupied {
                self.put_beside(put, source)?;
            }
            if move_out(side_spot, source, self.faults)? == Moved::Occupied {
                return Err(io::Error::other("the place of the new version is taken").into());
            }
            return Err(self.keep_staged(put, source, Stop::keep(Outside::Changed))?);
        }
        let mut lease = None;
        if let (Some(old), Some(_)) = (&put.old, &side) {
            // An exchange by side names was interrupted.
            if is_new(&found) {
                self.swap_by_side(put, source, target, old)?;
            } else {
                let name = side_name(source.name);
                if move_out(Spot { dir: source.dir, name: &name }, source, self.faults)? == Moved::Occupied {
                    return Err(io::Error::other("the place of the new version is taken").into());
                }
            }
        } else if !is_new(&found) {
            if !is_new(&now) {
                // Put before the interruption, and replaced or removed by another process since.
                let beside = found_beside(self.base, path, &self.journal.header.run)?;
                return match beside {
                    Some(_) => {
                        Err(Stop::Keep(Keeping { outside: Outside::Changed, beside, detail: None, in_layer: false }))
                    }
                    None if found.is_none() && !self.again => {
                        Err(io::Error::new(io::ErrorKind::NotFound, "an entry of the layer is gone").into())
                    }
                    // A renamed directory that another process moved elsewhere before or after.
                    None if new.kind == EntryType::Directory => Err(Stop::keep(Outside::Vanished)),
                    None => Ok(()),
                };
            }
        } else if put.old.is_none() {
            if now.is_some() {
                return Err(self.keep_staged(put, source, Stop::keep(Outside::Changed))?);
            }
            Self::ready(put, source, found.as_ref())?;
            match move_to_free(source, target, self.faults) {
                Ok(Moved::Yes) => {}
                Ok(Moved::Occupied) => return Err(self.keep_staged(put, source, Stop::keep(Outside::Changed))?),
                Err(error) => return Err(self.keep_staged(put, source, Stop::blocked(error))?),
            }
        } else if let Some(old) = &put.old {
            match self.check(parent, name, old, now) {
                Ok(held) => lease = held,
                Err(stop) => return Err(self.keep_staged(put, source, stop)?),
            }
            Self::ready(put, source, found.as_ref())?;
            if let Err(stop) = self.swap(put, source, target, old) {
                return Err(self.keep_staged(put, source, stop)?);
            }
        }
        self.touch(parent);
        if new.kind == EntryType::Directory || put.old.is_some_and(|old| old.kind == EntryType::Directory) {
            self.parents.last = None;
            self.layer_parents.last = None;
        }
        self.faults.action();
        if let Some(old) = &put.old {
            let out = stat_if_there(source.dir, source.name)?;
            let quiet = match &out {
                // Only the second pass finds nothing: it was removed after the journal was marked done.
                None => Quiet::Yes,
                Some(out) => self.is_quiet(old, source_tree, &source_path, out, lease.is_some())?,
            };
            drop(lease);
            if quiet != Quiet::Yes {
                return Err(self.give_back(put, (source, target), (&new, old), quiet)?);
            }
            if let Some(out) = &out {
                self.left(path, old, out);
                self.remember(out);
            }
        }
        if let Some(meta) = stat_if_there(target.dir, target.name)?.filter(|meta| new.is_same_version(meta)) {
            self.own.insert(meta.id, meta.ctime);
            self.written.insert(path, meta);
        }
        Ok(())
    }

    /// The directory of a path is not the one any more: an interrupted pass may have displaced something from it, which is
    /// then no version of ours.
    fn without_target(&mut self, put: &Put, new: &Seen, stop: Stop) -> Result<Stop, Stop> {
        let Stop::Keep(keeping) = stop else { return Err(stop) };
        let (parent, name) = split(&put.path.0);
        let slot_name;
        let (dir, name) = match &put.from {
            Origin::Layer => match self.layer_parents.get(parent) {
                Ok(dir) => (own_fd(dir)?, name),
                Err(_) => return Ok(Stop::Keep(keeping)),
            },
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                let Some(slots) = self.slots else { return Ok(Stop::Keep(keeping)) };
                (own_fd(slots.fd())?, slot_name.as_slice())
            }
        };
        let source = Spot { dir: dir.as_fd(), name };
        let in_layer = matches!(put.from, Origin::Slot(_)) && !put.only_staged;
        match stat_if_there(source.dir, source.name)? {
            Some(found) if found.id == new.id => Ok(self.keep_staged(put, source, Stop::Keep(keeping))?),
            Some(_) => {
                let beside = Some(self.put_beside(put, source)?);
                Ok(Stop::Keep(Keeping { beside, in_layer, ..keeping }))
            }
            None => Ok(Stop::Keep(Keeping { in_layer, ..keeping })),
        }
    }

    /// Compares what is about to be displaced, with a lease on it from before the look.
    fn check(&mut self, parent: &[u8], name: &[u8], old: &Seen, now: Option<Meta>) -> Result<Option<Writers>, Stop> {
        let Some(first) = now else { return Err(Stop::keep(Outside::Vanished)) };
        let mut lease = None;
        if first.kind == EntryType::File && first.id == old.id {
            lease = self.lease(parent, name)?;
        }
        self.faults.action();
        let dir = self.parents.get(parent)?;
        let now = stat_if_there(dir, name)?.ok_or_else(|| Stop::keep(Outside::Vanished))?;
        if !self.is_untouched(old, &now) {
            return Err(Stop::keep(Outside::Changed));
        }
        let dir = self.parents.get(parent)?;
        make_movable(dir, name, &now).map_err(Stop::blocked)?;
        Ok(lease)
    }

    /// Gives the source the form that it has in the workspace.
    fn ready(put: &Put, source: Spot<'_>, found: Option<&Meta>) -> io::Result<()> {
        if let (Some(mode), Some(found)) = (put.mode, found)
            && found.mode != mode
        {
            // A crash left it opened up.
            chmod(pin(source.dir, source.name)?.as_fd(), mode)?;
        }
        strip_marks(source.dir, source.name, &put.strip)
    }

    fn swap(&self, put: &Put, source: Spot<'_>, target: Spot<'_>, old: &Seen) -> Done {
        match exchange(source, target, self.faults).map_err(Stop::blocked)? {
            Exchanged::Yes => Ok(()),
            Exchanged::Gone => Err(Stop::keep(Outside::Vanished)),
            Exchanged::Unsupported => self.swap_by_side(put, source, target, old),
        }
    }

    /// An exchange in three renames: the old version goes to a side name, ours comes, the old one takes our place. Goes
    /// on where an earlier pass was interrupted.
    fn swap_by_side(&self, put: &Put, source: Spot<'_>, target: Spot<'_>, old: &Seen) -> Done {
        let name = side_name(source.name);
        let side = Spot { dir: source.dir, name: &name };
        if stat_if_there(side.dir, side.name)?.is_none_or(|meta| meta.id != old.id) {
            match move_out(target, side, self.faults).map_err(Stop::blocked)? {
                Moved::Yes => {}
                Moved::Occupied => return Err(io::Error::other("a side name is taken").into()),
            }
        }
        self.faults.action();
        match move_to_free(source, target, self.faults)? {
            Moved::Yes => {}
            Moved::Occupied => {
                // Another process made a new version in the gap: the older one goes beside it.
                return Err(Stop::Keep(Keeping {
                    outside: Outside::Changed,
                    beside: Some(self.put_beside(put, side)?),
                    detail: None,
                    in_layer: true,
                }));
            }
        }
        match move_out(side, source, self.faults)? {
            Moved::Yes => Ok(()),
            Moved::Occupied => Err(io::Error::other("the place of the new version is taken").into()),
        }
    }

    fn put_beside(&self, put: &Put, from: Spot<'_>) -> io::Result<ByteText> {
        put_beside(from, self.base, &put.path.0, &self.journal.header.run, self.faults)
    }

    /// Takes our version out of the workspace again. What came out instead is put back, or beside.
    fn take_back(&self, put: &Put, source: Spot<'_>, target: Spot<'_>, new: &Seen) -> io::Result<Taken> {
        match exchange(source, target, self.faults)? {
            Exchanged::Gone => return Ok(Taken::Again),
            Exchanged::Yes => {
                self.faults.action();
                if stat(source.dir, source.name)?.id == new.id {
                    return Ok(Taken::Ours);
                }
                // A newer version came out instead of ours: it goes back to its place.
                exchange(source, target, self.faults)?;
                return Ok(Taken::Again);
            }
            Exchanged::Unsupported => {}
        }
        let name = side_name(source.name);
        let side = Spot { dir: source.dir, name: &name };
        if move_out(target, side, self.faults)? == Moved::Occupied {
            return Err(io::Error::other("a side name is taken"));
        }
        self.faults.action();
        if stat(side.dir, side.name)?.id != new.id {
            if move_to_free(side, target, self.faults)? == Moved::Occupied {
                self.put_beside(put, side)?;
            }
            return Ok(Taken::Again);
        }
        let back = move_to_free(source, target, self.faults)?;
        if back == Moved::Occupied {
            self.put_beside(put, source)?;
        }
        match move_out(side, source, self.faults)? {
            Moved::Yes => Ok(Taken::Ours),
            Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
        }
    }

    /// Another process changed what was displaced: its version goes back, and ours stays in the layer.
    fn give_back(
        &mut self,
        put: &Put,
        (source, target): (Spot<'_>, Spot<'_>),
        (new, old): (&Seen, &Seen),
        quiet: Quiet,
    ) -> Result<Stop, Stop> {
        Self::restore_mode(source, old)?;
        let outside = if quiet == Quiet::Written { Outside::Open } else { Outside::Changed };
        let ours_in_layer = matches!(put.from, Origin::Slot(_)) && !put.only_staged;
        let kept = |beside, in_layer| Stop::Keep(Keeping { outside, beside, detail: None, in_layer });
        for _ in 0..CONTESTED {
            let Some(now) = stat_if_there(target.dir, target.name)? else {
                // Another process removed our version: its own older one goes back.
                match move_to_free(source, target, self.faults)? {
                    Moved::Yes => return Ok(kept(None, ours_in_layer)),
                    Moved::Occupied => continue,
                }
            };
            if now.id != new.id {
                break;
            }
            match self.take_back(put, source, target, new)? {
                Taken::Ours => return Ok(self.keep_staged(put, source, kept(None, true))?),
                Taken::Again => {}
            }
        }
        // A newer version of another process stands there. Both stay.
        let beside = self.put_beside(put, source)?;
        Ok(kept(Some(beside), ours_in_layer))
    }

    /// A version of ours that only the slot has is put beside its place, since the layer cannot keep it.
    fn keep_staged(&mut self, put: &Put, source: Spot<'_>, stop: Stop) -> io::Result<Stop> {
        let Stop::Keep(keeping) = stop else { return Ok(stop) };
        if !put.only_staged || keeping.beside.is_some() {
            return Ok(Stop::Keep(keeping));
        }
        strip_marks(source.dir, source.name, &put.strip)?;
        let beside = put_beside(source, self.base, &put.path.0, &self.journal.header.run, self.faults)?;
        Ok(Stop::Keep(Keeping { beside: Some(beside), in_layer: false, ..keeping }))
    }

    /// A directory may have been opened up so that it could be moved.
    fn restore_mode(at: Spot<'_>, old: &Seen) -> io::Result<()> {
        if old.kind == EntryType::Directory
            && let Some(meta) = stat_if_there(at.dir, at.name)?
            && meta.id == old.id
            && meta.mode == old.mode | 0o700
            && meta.mode != old.mode
        {
            chmod(pin(at.dir, at.name)?.as_fd(), old.mode)?;
        }
        Ok(())
    }

    fn set_dir(&mut self, set: &SetDir) -> Done {
        let path = &set.path.0;
        let dir = match self.base.dir_by_force(path) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) && set.was.is_none() => return Ok(()),
            Err(error) => return Err(Stop::blocked(error)),
        };
        let now = stat(dir.as_fd(), b"")?;
        if set.id != Some(now.id) {
            return if set.was.is_some() { Err(Stop::keep(Outside::Replaced)) } else { Ok(()) };
        }
        if let Some(was) = &set.was {
            // Opened up by us on the way, at most.
            let modes = [was.mode, was.mode | 0o700, set.mode, set.mode | 0o700];
            let mode = modes.contains(&now.mode);
            let owner = [(was.uid, was.gid), (set.uid, set.gid)].contains(&(now.uid, now.gid));
            if !mode || !owner {
                return Err(Stop::keep(Outside::Changed));
            }
        }
        self.faults.action();
        apply_dir_state(dir.as_fd(), set, &now).map_err(Stop::blocked)?;
        // The cached descriptor stays valid, but the directory may be closed to us now.
        self.parents.last = None;
        self.touch(path);
        Ok(())
    }
}

/// Sets the attributes of an open directory.
pub(crate) fn apply_dir_state(dir: BorrowedFd<'_>, set: &SetDir, now: &Meta) -> io::Result<()> {
    if let Some(attrs) = &set.attrs {
        for old in xattr::list(dir, b"")? {
            let content =
                matches!(crate::marks::attr(crate::marks::LayerMode::Root, &old), crate::marks::Attr::Copy(_));
            if content && !attrs.iter().any(|(name, _)| name.0 == old) {
                xattr::remove(dir, b"", &old)?;
            }
        }
        for (name, value) in attrs {
            xattr::set(dir, b"", &name.0, &value.0)?;
        }
    }
    if (now.uid, now.gid) != (set.uid, set.gid) {
        let (uid, gid) = (Uid::from_raw(set.uid), Gid::from_raw(set.gid));
        rustix::fs::chownat(dir, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    chmod(dir, set.mode)?;
    if let Some(mtime) = set.mtime {
        let stamps = times(&Meta { mtime, ..now.clone() });
        rustix::fs::utimensat(rustix::fs::CWD, crate::beneath::proc_path(dir), &stamps, AtFlags::empty())?;
    }
    Ok(())
}

/// The mark at the old place of a renamed directory, which stays with it.
fn mark_of(path: ByteText) -> KeptBack {
    KeptBack { path, conflict: None, in_layer: true, subtree: false, arrived: false }
}

/// Whether a step brings a directory, which stays in the layer with all that is in it.
fn is_directory(op: &Op) -> bool {
    matches!(op, Op::Put(put) if put.new.is_some_and(|new| new.kind == EntryType::Directory))
}

fn own_fd(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(dir, 0)?)
}

fn verb(op: &Op) -> &'static str {
    match op {
        Op::Hold { .. } => "hold",
        Op::Take { .. } => "take away",
        Op::Strip { .. } => "clean",
        Op::Put(_) => "put in place",
        Op::SetDir(_) => "set the attributes of",
    }
}

/// A directory that changes its parent has its `..` rewritten, for which its owner needs the write bit.
pub(crate) fn make_movable(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> io::Result<()> {
    let closed = meta.kind == EntryType::Directory && meta.mode & 0o700 != 0o700;
    if closed && !rustix::process::geteuid().is_root() {
        chmod(pin(dir, name)?.as_fd(), meta.mode | 0o700)?;
    }
    Ok(())
}

pub(crate) fn strip_marks(dir: BorrowedFd<'_>, name: &[u8], names: &[ByteText]) -> io::Result<()> {
    for one in names {
        match xattr::remove(dir, name, &one.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}
