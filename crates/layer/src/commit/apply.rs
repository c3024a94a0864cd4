//! Carries out the steps of a journal. After a crash, recovery runs the same steps again, so each step is idempotent.
//!
//! ```text
//!  Put with something in its place:
//!   compare, lease ──▶ exchange ──▶ look at what came out ─┬─ as expected: it stays at the source until the end
//!                          ▲                               └─ changed: swap back ─┬─ ours back: kept back, both stay
//!                          └──────────── again, a newer version came out ◀────────┘
//!                                        (a newer version stands there: the older one goes beside)
//!  Put at a free name, Take:  compare ──▶ rename that replaces nothing ──▶ look at what came out
//! ```
//! A path that changed since the plan is kept back: the workspace has the other process's version, the layer ours. All
//! steps below it are kept back with it.
//!
//! An errno in `Stop::blocked` keeps its path back as well. EXDEV of a call that moves an entry (`Stop::moving`) takes the
//! whole commit back; of any other call it keeps the path back. Any other error ends this pass: `committing` starts a second
//! one, the engine a third one (`recover`, `runner::settle::interrupted`) and, if that fails too, `roll_back`. After a kill the
//! next command does this.
//!
//! | File | Its part |
//! |---|---|
//! | `take`, `put`, `attrs` | the three kinds of steps |
//! | `inspect` | compares an entry with the one that the plan saw |
//! | `as_put` | finds out whether an entry is still the one that this commit put there |
//! | `side` | exchanges two entries where the file system has no call for it |
//! | `give_back` | undoes a step |
//! | `earlier` | tells what an interrupted pass did |
//! | `files` | reads what a step brings |
//! | `sources` | keeps back what holds a last copy |
//! | `objects` | keeps back what needs an object of git that was kept back |
//! | `needs`, `waiting` | keeps back what needs an object that is gone or waits; lists of the latter |
//! | `packed` | keeps back what hides a packed ref |
//! | `together` | keeps back what goes with a path that was kept back |
//! | `renamed` | follows renamed directories |
//! | `stop` | the reasons to keep a path back |
//! | `trace` | follows the times of directories |

pub(crate) mod as_put;
mod attrs;
mod earlier;
mod files;
mod give_back;
mod inspect;
mod needs;
mod objects;
mod packed;
mod put;
mod renamed;
mod side;
mod sources;
mod stop;
mod take;
mod together;
mod trace;
mod waiting;

use crate::beneath::{Doing as _, IoFailure, Workspace, split};
use crate::entries::changes::{Conflict, Outside};
use crate::entries::tree::CommittedEntry;
use crate::entries::verdict::shown;
use crate::faults::Faults;
use crate::journal::file::{JOURNAL, Journal, KeptBack, Outcome};
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put, Slot, Step};
use crate::journal::units::{Allows, Units};
use crate::meta::{EntryType, FileId, FsTime, Meta, stat};
use crate::moves::beside::Beside;
use crate::places::commit_places::CommitPlaces;
use nexus_model::ByteText;
use renamed::{Brought, Renamed, Returned, renamed, whiteout_of};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use stop::{Done, Keeping, Stop};
use trace::Traces;

/// Directories that are synced one by one; with more of them the whole file system is.
const SYNCED_ONE_BY_ONE: usize = 256;

/// Brings the steps of a journal to the workspace.
pub(crate) struct Apply<'a> {
    root: &'a Workspace,
    base: &'a Workspace,
    upper: &'a Workspace,
    slots: Option<&'a Workspace>,
    started: FsTime,
    beside: Beside<'a>,
    /// The number of the step.
    at: usize,
    journal: &'a Journal,
    faults: &'a Faults,
    /// An earlier pass was interrupted.
    again: bool,
    parents: Parents<'a>,
    layer_parents: Parents<'a>,
    parent_ids: HashMap<&'a [u8], FileId>,
    /// The ctime that the commit last gave to an inode that has further names.
    own: HashMap<FileId, FsTime>,
    /// By identity: positions in the list of the entries that earlier commits of this layer left behind.
    ours: HashMap<FileId, Vec<usize>>,
    /// Files with several names that the steps hold or displace.
    shared: HashMap<FileId, Seen>,
    /// Those of them that an interrupted pass moved or linked, which set their ctime.
    moved: HashSet<FileId>,
    /// Directories in which steps act.
    worked: HashSet<FileId>,
    /// The times of the directories in which steps act.
    traces: Traces,
    /// Attributes of the entries that were put, as they were right after the call; of the paths that a later accept
    /// must know.
    written: HashMap<&'a [u8], Option<Meta>>,
    dead_slots: HashSet<Slot>,
    /// On a second pass, once it was asked for: the steps that use what was held or taken.
    brought: Option<Brought>,
    /// Renamed directories by their slot.
    renamed: HashMap<Slot, Renamed>,
    /// Renamed directories that are back at their old places.
    returned: Vec<CommittedEntry>,
    kept_paths: HashSet<Vec<u8>>,
    /// The steps that are not carried out either, since what they take away has its only copy in the layer.
    awaited: HashSet<ByteText>,
    /// Git directories with an object that was kept back.
    without_objects: HashSet<Vec<u8>>,
    /// Steps that are carried out together or not at all.
    units: Units,
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

impl<'a> Apply<'a> {
    pub(crate) fn new(places: CommitPlaces<'a>, journal: &'a Journal, faults: &'a Faults, again: bool) -> Self {
        let CommitPlaces { root, base, upper, slots, started } = places;
        let several = journal.steps.several().iter().map(|one| one.old);
        let shared = several.filter(|old| old.kind != EntryType::Directory).map(|old| (old.id, old));
        let header = &journal.header;
        let mut ours: HashMap<FileId, Vec<usize>> = HashMap::new();
        for (at, one) in header.ours.iter().enumerate() {
            if let Some(id) = one.id {
                ours.entry(id).or_default().push(at);
            }
        }
        Self {
            root,
            base,
            upper,
            slots,
            started,
            beside: places.beside(&journal.header.run, faults),
            at: 0,
            journal,
            faults,
            again,
            parents: Parents { tree: base, last: None },
            layer_parents: Parents { tree: upper, last: None },
            parent_ids: header.parents.iter().map(|one| (one.path.0.as_slice(), one.id)).collect(),
            own: HashMap::new(),
            ours,
            shared: shared.collect(),
            moved: HashSet::new(),
            worked: header.parents.iter().map(|one| one.id).chain(header.moved_from.iter().copied()).collect(),
            traces: Traces::default(),
            written: header.rewritten.iter().map(|path| (path.0.as_slice(), None)).collect(),
            dead_slots: HashSet::new(),
            brought: None,
            renamed: HashMap::new(),
            returned: Vec::new(),
            kept_paths: HashSet::new(),
            awaited: HashSet::new(),
            without_objects: HashSet::new(),
            units: Units::default(),
            kept: Vec::new(),
            unwatched: 0,
            left_at: Vec::new(),
            touched: BTreeSet::new(),
            sync_all: false,
        }
    }

    /// Carries out all steps of the journal.
    pub(crate) fn run(&mut self) -> Result<(), IoFailure> {
        let journal = self.journal;
        if self.again && !self.shared.is_empty() {
            self.find_moved().doing("read", JOURNAL.as_bytes())?;
        }
        self.units = Units::find(&journal.steps, self.base, &journal.header.borrowers, true)
            .doing("read", JOURNAL.as_bytes())?;
        for (at, step) in journal.steps.each().enumerate() {
            self.at = at;
            let step = &step.doing("read", JOURNAL.as_bytes())?;
            self.faults.between_calls();
            let unit = self.unit_of_step(step)?;
            self.renamed.extend(renamed(step));
            let mut below = step.path().is_some_and(|path| self.is_kept(&path.0));
            let waits = |apply: &Self| apply.is_awaited(step) && !apply.is_carried_out(step);
            let is_held = |apply: &Self| unit == Allows::Broken && !(apply.again && apply.is_done(step));
            if !below && (waits(self) || self.misses_objects(step) || is_held(self)) {
                self.kept_paths.extend(step.path().map(|path| path.0.clone()));
                below = true;
            }
            let done = match unit {
                _ if below => Ok(()),
                Allows::Changed(cause) if !(self.again && self.is_done(step)) => Err(Stop::because(cause)),
                _ => self.traced(step),
            };
            if below || done.is_err() {
                self.units.break_at(at);
            }
            match done {
                Ok(()) if below => {
                    let returned = self.bring_home(step)?;
                    match self
                        .foreign(step)
                        .map_err(into_io)
                        .doing("put beside", step.path().map_or(b"", |path| &path.0))?
                    {
                        Some(keeping) => self.keep(step, keeping, returned),
                        None => self.hang(step, returned),
                    }
                }
                Ok(()) => {}
                Err(Stop::KeepBack(keeping)) => {
                    let returned = self.bring_home(step)?;
                    self.keep(step, keeping, returned);
                }
                Err(Stop::Io(error)) => {
                    return Err(error).doing(verb(step), step.path().map_or(&b""[..], |path| &path.0));
                }
            }
        }
        self.find_lost_objects()?;
        self.return_sources()?;
        self.return_units()
    }

    fn bring_home(&mut self, step: &Step) -> Result<Returned, IoFailure> {
        match step {
            Step::Put(put) => self.return_renamed(put).doing("put back", &put.path.0),
            _ => Ok(Returned::NotRenamed),
        }
    }

    /// Returns the details with which a step that is not carried out has to be kept back, when an earlier pass left a
    /// version of another process at its source.
    fn foreign(&mut self, step: &Step) -> Result<Option<Keeping>, Stop> {
        let Step::Put(put) = step else { return Ok(None) };
        let Some(new) = put.new.filter(|_| self.again) else { return Ok(None) };
        match self.without_target(put, &new, Stop::keep(Outside::Changed))? {
            Stop::KeepBack(keeping) if keeping.beside.is_some() => Ok(Some(keeping)),
            Stop::KeepBack(_) => Ok(None),
            stop @ Stop::Io(_) => Err(stop),
        }
    }

    /// Returns the result of the commit.
    pub(crate) fn outcome(mut self) -> Outcome {
        let mut stamps: Vec<CommittedEntry> = std::mem::take(&mut self.returned);
        for path in &self.journal.header.rewritten {
            if self.is_kept(&path.0) {
                continue;
            }
            let found = match self.written.remove(path.0.as_slice()).flatten() {
                Some(meta) => Some(meta),
                // A directory on the way was closed to its owner, or mounted over: the next accept cannot get there
                // either.
                None => self.base.stat(&path.0).ok().flatten(),
            };
            let Some(meta) = found else { continue };
            let is_dir = meta.kind == EntryType::Directory;
            // It may have another path since the commit that left it.
            let is_unchanged = meta.ctime <= self.started || self.is_as_left(&meta);
            // What another process wrote after us is not ours. An entry that no process wrote loses other names with what is removed.
            let ctime = if is_dir || is_unchanged { Some(meta.ctime) } else { self.own.get(&meta.id).copied() };
            let Some(ctime) = ctime else { continue };
            stamps.push(CommittedEntry { ctime, ..CommittedEntry::new(path, &meta) });
        }
        if !self.kept.is_empty() {
            let header = &self.journal.header;
            let planned: HashSet<&ByteText> = header.rewritten.iter().collect();
            let others = header
                .parents
                .iter()
                .filter(|one| one.is_unchanged && !one.path.0.is_empty() && !planned.contains(&one.path));
            for one in others {
                // What is kept back is to be accepted later, when the directory has the time of this commit.
                let now = self.base.stat(&one.path.0).ok().flatten().filter(|now| now.id == one.id);
                stamps.extend(now.map(|now| CommittedEntry::new(&one.path, &now)));
            }
        }
        Outcome { kept: self.kept, stamps, unwatched: self.unwatched, left_at: self.left_at, ..Outcome::default() }
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
                // Renamed, mounted over or closed to us since: let the file system decide what is left to write.
                Err(_) => return everything(),
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
    fn hang(&mut self, step: &Step, returned: Returned) {
        let path = match step {
            Step::Take { slot, renamed: true, whiteout, .. } => {
                self.dead_slots.insert(*slot);
                self.kept.extend(whiteout.clone().map(whiteout_of));
                return;
            }
            Step::Take { at, .. } => at.clone(),
            Step::Put(put) => put.path.clone(),
            Step::SetDir(_) | Step::Hold { .. } | Step::Strip { .. } => return,
        };
        let subtree = is_directory(step);
        let in_layer = !matches!(step, Step::Put(put) if put.only_staged);
        self.wait(step, in_layer);
        self.note_object(step);
        let conflict = match returned {
            Returned::Beside(at) => {
                Some(Conflict { beside: Some(at), ..Conflict::new(path.clone(), Outside::Changed) })
            }
            Returned::NotRenamed | Returned::Home => None,
        };
        self.kept.push(KeptBack { path, conflict, in_layer, subtree, arrived: false });
    }

    fn keep(&mut self, step: &Step, mut keeping: Keeping, returned: Returned) {
        let Some(path) = step.path() else {
            if let Step::Hold { slot, .. } = step {
                self.dead_slots.insert(*slot);
            }
            return;
        };
        if let Step::Take { slot, renamed: true, whiteout, .. } = step {
            self.dead_slots.insert(*slot);
            self.kept.extend(whiteout.clone().map(whiteout_of));
        }
        // The layer's entry leads to the old place of a renamed directory, wherever that is now.
        keeping.in_layer |= !matches!(returned, Returned::NotRenamed);
        if let Returned::Beside(at) = returned
            && let Some(other) = keeping.beside.replace(at)
        {
            // Two versions could not stay in their places.
            let conflict = Some(Conflict { beside: Some(other), ..Conflict::new(path.clone(), Outside::Changed) });
            let (path, in_layer, subtree) = (path.clone(), false, false);
            self.kept.push(KeptBack { path, conflict, in_layer, subtree, arrived: false });
        }
        let Keeping { outside, beside, detail, in_layer } = keeping;
        let subtree = is_directory(step);
        // A renamed directory that stays at its old place does not keep back what happens below that place.
        if !matches!(step, Step::Take { renamed: true, .. } | Step::SetDir(_)) {
            self.kept_paths.insert(path.0.clone());
        }
        let conflict = Some(Conflict { path: shown(&path.0), outside, beside, detail });
        // A renamed directory and a directory's attributes are not entries of the layer at this path.
        let in_layer = in_layer && !matches!(step, Step::Take { renamed: true, .. });
        self.wait(step, in_layer);
        self.note_object(step);
        self.kept.push(KeptBack { path: path.clone(), conflict, in_layer, subtree, arrived: false });
    }

    fn touch(&mut self, dir: &[u8]) {
        if self.touched.len() <= SYNCED_ONE_BY_ONE && !self.touched.contains(dir) {
            self.touched.insert(dir.to_vec());
        }
    }

    /// Carries out a step and notes how it changed the time of its directory.
    fn traced(&mut self, step: &Step) -> Done {
        let path = match step {
            Step::Take { at, .. } => at,
            Step::Put(put) => &put.path,
            Step::Hold { .. } | Step::Strip { .. } | Step::SetDir(_) => return self.one(step),
        };
        let parent = split(&path.0).0;
        let inspect = |apply: &mut Self| apply.parents.get(parent).ok().and_then(|dir| stat(dir, b"").ok());
        if let Some(dir) = inspect(self) {
            let late = dir.ctime > self.started && !self.is_as_left(&dir);
            self.traces.before((dir.id, dir.dev), dir.mtime, late);
        }
        let done = self.one(step);
        if let Some(dir) = inspect(self) {
            self.traces.after((dir.id, dir.dev), dir.mtime);
            if let Step::Put(Put { from: Origin::Slot(_), new: Some(new), .. }) = step {
                self.traces.before((new.id, dir.dev), new.mtime, false);
            }
        }
        done
    }

    fn one(&mut self, step: &Step) -> Done {
        match step {
            Step::Hold { at, old, slot } => self.hold(&at.0, old, *slot),
            Step::Take { at, old, slot, renamed, .. } => self.take(&at.0, old, *slot, *renamed),
            Step::Strip { path, names, .. } => Ok(self.strip(&path.0, names)?),
            Step::Put(put) => self.put(put),
            Step::SetDir(set) => self.set_dir(set),
        }
    }

    fn slots(&self) -> io::Result<&'a Workspace> {
        self.slots.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the staging directory is gone"))
    }
}

/// Reports whether a step brings a directory, which stays in the layer with all that is in it.
fn is_directory(step: &Step) -> bool {
    matches!(step, Step::Put(put) if put.new.is_some_and(|new| new.kind == EntryType::Directory))
}

/// Returns the error of a step that was not to be carried out.
fn into_io(stop: Stop) -> io::Error {
    match stop {
        Stop::Io(error) => error,
        Stop::KeepBack(_) => io::Error::other("the path is kept back"),
    }
}

fn own_fd(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(dir, 0)?)
}

fn verb(step: &Step) -> &'static str {
    match step {
        Step::Hold { .. } => "hold",
        Step::Take { .. } => "take away",
        Step::Strip { .. } => "clean",
        Step::Put(_) => "put in place",
        Step::SetDir(_) => "set the attributes of",
    }
}
