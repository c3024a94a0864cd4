//! Takes a half-applied commit back: the steps of its journal in reverse order.
//!
//! Nothing that a commit displaced is gone before its journal is marked done, so the old version is whole. A path that
//! another process changed since keeps that process's version; what stood there before goes beside it.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, is_gone, split, widen};
use crate::changes::{Conflict, Outside};
use crate::commit::apply::{AttrState, Rooms, Side, apply_dir_state, found, make_movable};
use crate::commit::as_put::is_as_put;
use crate::commit::beside::{Beside, unnamed};
use crate::commit::calls::{Exchanged, Moved, Spot, exchange, move_out, move_to_free};
use crate::commit::journal::{BACK, DONE, JOURNAL, Journal, OURS, SlotPlace, read, sync_directory, write};
use crate::commit::leftover::{Leftover, found_in_workspace};
use crate::commit::marks_back;
use crate::commit::only_copies;
use crate::commit::ops::{Op, Origin, Put, SetDir, Slot};
use crate::commit::recover::{RecoverError, is_decided, known, locked};
use crate::commit::returned;
use crate::commit::seen::Seen;
use crate::commit::stage::{keep_slots, open_slots, remove_slots};
use crate::commit::steps::Steps;
use crate::commit::sweep::sweep;
use crate::commit::withdrawn::{Doubt, doubt, mark};
use crate::faults::{Comparison, Faults};
use crate::meta::{EntryType, FileId, Meta, stat, stat_if_there};
use crate::tree::Own;
use crate::upper::open_upper;
use nexus_model::ByteText;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Why a path is not as it was.
const LOST: &str = "the staging directory is gone, and the old version with it";

/// How often a step is tried while other processes remove what it works on.
const TRIES: u32 = 5;

/// Takes the half-applied commit of `<layers_dir>/<run>` back and returns what could not be put where it was. The layer
/// is undecided afterwards. Without a journal there is nothing to do.
pub fn roll_back(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Vec<Conflict>, RecoverError> {
    roll_back_with(layers_dir, run, workspace, &Faults::default())
}

/// [`roll_back`] with faults, for tests.
pub fn roll_back_with(
    layers_dir: &Path,
    run: &str,
    workspace: &Workspace,
    faults: &Faults,
) -> Result<Vec<Conflict>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let (_, Some(root)) = locked(layers_dir, run)? else { return Ok(Vec::new()) };
    if root.stat(DONE.as_bytes()).doing("look at", DONE.as_bytes()).map_err(io)?.is_some() {
        return Err(RecoverError::Applied { run: run.to_owned() });
    }
    let Some(journal) = known(&root, JOURNAL, run, workspace)? else { return Ok(Vec::new()) };
    reverse(&root, workspace, &journal, faults).map_err(io)
}

/// Reverses what was applied of a journal and takes the decision away.
pub(crate) fn reverse(
    root: &Workspace,
    base: &Workspace,
    journal: &Journal,
    faults: &Faults,
) -> Result<Vec<Conflict>, IoFailure> {
    // From here on a recovery goes back as well: forward, it would find half of the old version and take it for changes.
    let is_put_back = is_put_back(root)?;
    if !is_going_back(root)? {
        faults.action();
        write(root, BACK, &true, faults)?;
        sync_directory(root, faults)?;
    }
    let upper = Workspace::from_fd(open_upper(root).doing("open", b"upper")?);
    let slots = open_slots(root, base, &journal.header.run, journal.header.slots)?;
    let rooms = Rooms { root, base, upper: &upper, slots: slots.as_ref(), started: journal.start()? };
    let beside = rooms.beside(&journal.header.run, faults);
    let steps = &journal.steps;
    let (mut taken, mut held) = (HashSet::new(), HashSet::new());
    for op in steps.each() {
        match op.doing("read", JOURNAL.as_bytes())? {
            Op::Take { slot, .. } => drop(taken.insert(slot)),
            Op::Hold { old, .. } => drop(held.insert(old.id)),
            Op::Put(_) | Op::SetDir(_) | Op::Strip { .. } => {}
        }
    }
    let mut back = Back {
        root,
        base,
        upper: &upper,
        slots: slots.as_ref(),
        steps,
        taken,
        held,
        faults,
        beside,
        at: 0,
        cleared: is_put_back,
        conflicts: Vec::new(),
    };
    let done = back.all();
    let mut ours = journal.header.ours.clone();
    let stamped = returned::stamps(root, base, steps, &mut ours);
    // Also after an error: what was opened up is closed again.
    let closed = back.close(&mut ours);
    done?;
    stamped?;
    closed?;
    let mut conflicts = back.conflicts;
    let mut stuck = Vec::new();
    sweep(&rooms, journal, &mut stuck, faults)?;
    if let Some((path, why, _)) = stuck.into_iter().next() {
        return Err(io::Error::other(why)).doing("put beside", &path.0);
    }
    conflicts.extend(unnamed(&beside.noted()?, &conflicts));
    marks_back::of_all(&rooms, steps, conflicts.is_empty(), faults)?;
    only_copies::note_all(&rooms, steps, faults)?;
    write(root, OURS, &Own::sorted(ours), faults)?;
    faults.sync(|| Ok(rustix::fs::syncfs(base.fd())?)).doing("sync", b"")?;
    conflicts.extend(keep_reachable(&rooms, journal, faults)?);
    if !is_put_back {
        faults.action();
        write(root, BACK, &PUT_BACK, faults)?;
        sync_directory(root, faults)?;
    }
    let kept = remove_slots(root, base, &journal.header.run, journal.header.slots, faults)?;
    conflicts.extend(kept.map(|kept| named(base, &kept)));
    if journal.header.slots == SlotPlace::Workspace {
        conflicts.extend(kept_before(base, &journal.header.run, &conflicts)?);
    }
    // Last: whoever is killed before leaves it to the next command to name what is beside its path.
    faults.action();
    crate::beneath::unlink_if_there(root.fd(), JOURNAL.as_bytes()).doing("remove", JOURNAL.as_bytes())?;
    sync_directory(root, faults)?;
    returned::clear(root)?;
    // The list of what is beside its path stays until the next commit, or goes with the layer: nobody was told of it yet.
    crate::beneath::unlink_if_there(root.fd(), BACK.as_bytes()).doing("remove", BACK.as_bytes())?;
    Ok(conflicts)
}

/// Lists the versions that the taking back of the last commit of `<layers_dir>/<run>` put beside their paths. A command that
/// was killed right after it has named none of them.
pub fn found_beside(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Vec<Conflict>, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let (_, Some(root)) = locked(layers_dir, run)? else { return Ok(Vec::new()) };
    if is_decided(&root).map_err(io)? {
        return Ok(Vec::new());
    }
    let faults = Faults::default();
    let beside = Beside { base: workspace, root: &root, run, faults: &faults };
    Ok(unnamed(&beside.noted().map_err(io)?, &[]))
}

/// Reports whether the commit of `<layers_dir>/<run>` was being taken back when `nexus` was killed: every command that ends
/// it goes on with that.
#[must_use]
pub fn is_being_taken_back(layers_dir: &Path, run: &str) -> bool {
    let has = |name: &str| layers_dir.join(run).join(name).symlink_metadata().is_ok();
    has(JOURNAL) && has(BACK)
}

/// Reports whether the commit of `<layers_dir>/<run>` was applied when `nexus` was killed: it can be finished and not be taken
/// back.
#[must_use]
pub fn is_applied(layers_dir: &Path, run: &str) -> bool {
    layers_dir.join(run).join(DONE).symlink_metadata().is_ok()
}

/// Whether a commit is being taken back.
pub(crate) fn is_going_back(root: &Workspace) -> Result<bool, IoFailure> {
    Ok(root.stat(BACK.as_bytes()).doing("look at", BACK.as_bytes())?.is_some())
}

/// What the file [`BACK`] says when every step was undone: a staging directory that is not there was removed by the way back
/// itself.
const PUT_BACK: &str = "put back";

fn is_put_back(root: &Workspace) -> Result<bool, IoFailure> {
    // One that cannot be read says that the way back was begun.
    Ok(is_going_back(root)?
        && read::<serde_json::Value>(root, BACK).ok().flatten().is_some_and(|said| said == PUT_BACK))
}

/// Keeps what left the workspace and a process may still write to from ever being removed. Returns what of it stays in the
/// workspace.
fn keep_reachable(rooms: &Rooms<'_>, journal: &Journal, faults: &Faults) -> Result<Option<Conflict>, IoFailure> {
    let Rooms { root, base, .. } = *rooms;
    let doubt = if faults.compares(Comparison::Doubt) { doubt(rooms, &journal.steps)? } else { Doubt::default() };
    if doubt.upper {
        mark(root, faults)?;
    }
    if !doubt.slots {
        return Ok(None);
    }
    let kept = keep_slots(root, base, &journal.header.run, journal.header.slots, faults)?;
    Ok(kept.map(|kept| named(base, &kept)))
}

/// Names the staging directories that an interrupted pass kept and nobody has named.
fn kept_before(base: &Workspace, run: &str, named_by_now: &[Conflict]) -> Result<Vec<Conflict>, IoFailure> {
    let found = found_in_workspace(base, run).doing("list", b"")?;
    let all = found.iter().map(|kept| named(base, kept));
    Ok(all.filter(|one| named_by_now.iter().all(|known| known.path != one.path)).collect())
}

/// A staging directory that stays in the workspace.
fn named(base: &Workspace, kept: &Leftover) -> Conflict {
    let at = kept.at.as_path();
    let path = at.strip_prefix(base.path()).unwrap_or(at);
    let path = ByteText(path.as_os_str().as_bytes().to_vec());
    Conflict { detail: Some(kept.why.clone()), ..Conflict::new(path, Outside::Blocked) }
}

struct Back<'a> {
    root: &'a Workspace,
    base: &'a Workspace,
    upper: &'a Workspace,
    slots: Option<&'a Workspace>,
    steps: &'a Steps,
    /// The slots of what left the workspace.
    taken: HashSet<Slot>,
    /// Files of the workspace that have further names in slots.
    held: HashSet<FileId>,
    faults: &'a Faults,
    beside: Beside<'a>,
    /// The number of the step.
    at: usize,
    /// An earlier pass had undone every step.
    cleared: bool,
    conflicts: Vec<Conflict>,
}

impl<'a> Back<'a> {
    fn side(&self, put: &Put) -> io::Result<Side<'a>> {
        Side::of(&put.from, self.at, self.root, self.slots).ok_or_else(|| io::Error::other("no staging directory"))
    }

    fn all(&mut self) -> Result<(), IoFailure> {
        for step in self.steps.each_back().doing("read", JOURNAL.as_bytes())? {
            let (at, op) = step.doing("read", JOURNAL.as_bytes())?;
            self.at = at;
            self.faults.action();
            let path = op.path().map_or(&b""[..], |path| &path.0);
            self.one_or_again(&op).doing("put back", path)?;
        }
        Ok(())
    }

    /// Takes a step back, and once more when another process removed the entry between two calls: each step begins by
    /// looking at what is there.
    fn one_or_again(&mut self, op: &Op) -> io::Result<()> {
        for _ in 1..TRIES {
            match self.one(op) {
                Err(error) if is_gone(&error) => {}
                ended => return ended,
            }
        }
        self.one(op)
    }

    /// Closes the directories that this or an interrupted pass opened up, the deepest first, and notes the time stamps that
    /// they got.
    fn close(&self, ours: &mut Vec<Own>) -> Result<(), IoFailure> {
        for op in self.steps.each() {
            let Op::SetDir(set) = op.doing("read", JOURNAL.as_bytes())? else { continue };
            let path = &set.path;
            // Otherwise another process removed, closed or mounted over it.
            let Ok(dir) = self.base.dir(&path.0) else { continue };
            let now = stat(dir.as_fd(), b"").doing("look at", &path.0)?;
            let mode = set.was.as_ref().map_or(set.mode, |was| was.mode);
            if set.id != Some(now.id) {
                continue;
            }
            if now.mode != mode && now.mode == mode | 0o700 {
                self.faults.action();
                crate::beneath::chmod(dir.as_fd(), mode).doing("set the mode of", &path.0)?;
            }
            let now = stat(dir.as_fd(), b"").doing("look at", &path.0)?;
            if now.mode == mode {
                ours.push(Own::new(path, &now));
            }
        }
        Ok(())
    }

    fn one(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::SetDir(set) => self.set_dir(set),
            Op::Put(put) => self.put(put),
            Op::Take { at, old, slot, .. } => {
                let Some(slots) = self.slots else { return self.name_lost(at, old, *slot) };
                let name = slot.to_string().into_bytes();
                let from = Spot { dir: slots.fd(), name: &name };
                // Also what another process had put there in the moment of the move.
                match stat_if_there(from.dir, from.name)? {
                    Some(found) if found.id == old.id => self.bring(from, at, old.mode),
                    Some(found) => self.bring(from, at, found.mode),
                    None => Ok(()),
                }
            }
            Op::Hold { at, slot, old } => self.release(at, *slot, old.id),
            Op::Strip { .. } => Ok(()),
        }
    }

    /// Somebody removed the staging directory: names what was in it.
    fn name_lost(&mut self, at: &ByteText, old: &Seen, slot: Slot) -> io::Result<()> {
        if self.cleared || self.base.stat(&at.0)?.is_some_and(|now| now.id == old.id) {
            return Ok(());
        }
        for op in self.steps.each() {
            // A renamed directory that has arrived is named there.
            if let Op::Put(put) = op?
                && put.from == Origin::Slot(slot)
                && self.base.stat(&put.path.0)?.is_some_and(|now| now.id == old.id)
            {
                return Ok(());
            }
        }
        let beside = self.beside.found(&at.0).map_err(|failure| failure.source)?;
        let detail = beside.is_none().then(|| LOST.to_owned());
        self.conflicts.push(Conflict { beside, detail, ..Conflict::new(at.clone(), Outside::Blocked) });
        Ok(())
    }

    /// Removes the further name of a file that is still at its own.
    fn release(&mut self, at: &ByteText, slot: Slot, id: FileId) -> io::Result<()> {
        let Some(slots) = self.slots else { return Ok(()) };
        let name = slot.to_string().into_bytes();
        match stat_if_there(slots.fd(), &name)? {
            Some(meta) if meta.id == id && meta.links > 1 => {
                returned::will(self.root, id);
                crate::beneath::unlink_if_there(slots.fd(), &name)?;
                if let Some(now) = self.base.stat(&at.0)?.filter(|now| now.id == id) {
                    returned::did(self.root, &now);
                }
                Ok(())
            }
            // It is its only name by now.
            Some(meta) => self.bring(Spot { dir: slots.fd(), name: &name }, at, meta.mode),
            None => Ok(()),
        }
    }

    /// Brings an old entry to its place, or beside it.
    fn bring(&mut self, from: Spot<'_>, path: &ByteText, mode: u32) -> io::Result<()> {
        let (parent, name) = split(&path.0);
        let moved = match self.base.dir_by_force(parent) {
            Ok(dir) => {
                self.works_in(dir.as_fd())?;
                returned::will(self.root, stat(from.dir, from.name)?.id);
                let moved = move_to_free(from, Spot { dir: dir.as_fd(), name }, self.faults)?;
                if moved == Moved::Yes {
                    let now = stat(dir.as_fd(), name)?;
                    if now.kind == EntryType::Directory && now.mode != mode {
                        crate::beneath::chmod(crate::beneath::pin(dir.as_fd(), name)?.as_fd(), mode)?;
                    }
                    returned::did(self.root, &now);
                }
                moved
            }
            Err(error) if is_gone(&error) => Moved::Occupied,
            Err(error) => return Err(error),
        };
        if moved == Moved::Occupied {
            let beside = self.beside.put(from, &path.0)?;
            let conflict = Conflict { beside: Some(beside), ..Conflict::new(path.clone(), Outside::Changed) };
            self.conflicts.push(conflict);
        }
        Ok(())
    }

    fn put(&mut self, put: &Put) -> io::Result<()> {
        let Some(new) = put.new else { return Ok(()) };
        let (parent, name) = split(&put.path.0);
        let slot_name;
        let (source_dir, source_name) = match &put.from {
            Origin::Layer => match self.upper.dir_by_force(parent) {
                Ok(dir) => (dir, name),
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error),
            },
            Origin::Slot(slot) => {
                slot_name = slot.to_string().into_bytes();
                let Some(slots) = self.slots else {
                    // Somebody removed the staging directory, and with it what was displaced.
                    if self.base.stat(&put.path.0)?.is_some_and(|now| now.id == new.id) {
                        let detail = Some(LOST.to_owned());
                        self.conflicts.push(Conflict { detail, ..Conflict::new(put.path.clone(), Outside::Blocked) });
                    }
                    return Ok(());
                };
                (slots.dir(b"")?, slot_name.as_slice())
            }
        };
        let source = Spot { dir: source_dir.as_fd(), name: source_name };
        let side = self.side(put)?;
        let side = side.spot();
        let found = stat_if_there(source.dir, source.name)?;
        let at_source = found.as_ref().is_some_and(|meta| meta.id == new.id);
        let on_side = match stat_if_there(side.dir, side.name)? {
            // A withdrawal over the side was interrupted: the old version goes to its place, then ours to its own.
            Some(left) if left.id == new.id => {
                if let Some(found) = found {
                    self.bring(source, &put.path, found.mode)?;
                }
                if !self.is_as_put(put, &new, &left, side)? {
                    return self.hand_back(put, side);
                }
                return match move_out(side, source, self.faults)? {
                    Moved::Yes => Ok(()),
                    Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
                };
            }
            // What another process had put there in that moment goes back first.
            Some(left) if put.old.is_none_or(|old| old.id != left.id) => {
                self.bring(side, &put.path, left.mode)?;
                None
            }
            other => other,
        };
        if at_source && new.kind != EntryType::Directory {
            self.unlink(put, &new)?;
        }
        let withdrawn = found.as_ref().filter(|_| at_source);
        let is_edited = withdrawn.map_or(Ok(false), |found| self.was_edited(put, &new, found, source))?;
        if at_source && on_side.is_none() && !is_edited {
            return Ok(());
        }
        if !at_source {
            self.withdraw(put, &new, source, found.is_none())?;
        }
        // The old version: on the side when an exchange of three renames was interrupted, else at the source.
        if let Some(old) = &put.old
            && on_side.is_some()
        {
            self.bring(side, &put.path, old.mode)?;
            return if is_edited { self.hand_back(put, source) } else { Ok(()) };
        }
        if is_edited {
            return self.hand_back(put, source);
        }
        match stat_if_there(source.dir, source.name)? {
            Some(left) if left.id != new.id => self.bring(source, &put.path, left.mode),
            _ => Ok(()),
        }
    }

    /// Without the flags of renameat2(2) a put may have stopped between its link and its unlink: our version is still at
    /// its source, and what has its name in the workspace is moved out and looked at.
    fn unlink(&mut self, put: &Put, new: &Seen) -> io::Result<()> {
        let (parent, name) = split(&put.path.0);
        let dir = match self.base.dir_by_force(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let target = Spot { dir: dir.as_fd(), name };
        let side = self.side(put)?.second();
        let side = side.spot();
        let is_ours = |meta: Option<Meta>| meta.is_some_and(|meta| meta.id == new.id);
        self.works_in(target.dir)?;
        if is_ours(stat_if_there(target.dir, target.name)?) && move_out(target, side, self.faults)? == Moved::Occupied {
            return Err(io::Error::other("a side name is taken"));
        }
        match stat_if_there(side.dir, side.name)? {
            Some(left) if left.id == new.id => crate::beneath::unlink_if_there(side.dir, side.name),
            Some(left) => self.bring(side, &put.path, left.mode),
            None => Ok(()),
        }
    }

    /// Takes our version out of the workspace, if it still is as we put it. Otherwise it stays, as what another process
    /// made of it.
    fn withdraw(&mut self, put: &Put, new: &Seen, source: Spot<'_>, is_free: bool) -> io::Result<()> {
        let (parent, name) = split(&put.path.0);
        let dir = match self.base.dir_by_force(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let target = Spot { dir: dir.as_fd(), name };
        let Some(now) = stat_if_there(target.dir, target.name)?.filter(|meta| meta.id == new.id) else { return Ok(()) };
        if !self.is_as_put(put, new, &now, target)? {
            if is_free {
                // With nothing to put back, the path itself is all there is to name.
                self.conflicts.push(Conflict::new(put.path.clone(), Outside::Changed));
            }
            return Ok(());
        }
        self.works_in(target.dir)?;
        make_movable(target.dir, target.name, &now)?;
        if is_free {
            return match move_out(target, source, self.faults)? {
                Moved::Yes => self.check_withdrawn(put, new, source),
                Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
            };
        }
        if let Some(old) = &put.old {
            returned::will(self.root, old.id);
        }
        match exchange(source, target, self.faults)? {
            Exchanged::Yes => {
                self.note_returned(put, target)?;
                self.faults.action();
                let out = stat(source.dir, source.name)?;
                if out.id == new.id && self.is_as_put(put, new, &out, source)? {
                    return Ok(());
                }
                // Another version came out instead of ours: it goes back, and the old one beside it.
                match exchange(source, target, self.faults) {
                    Ok(Exchanged::Yes) => Ok(()),
                    // Its place is free by now, or cannot be reached.
                    Ok(Exchanged::Gone | Exchanged::Unsupported) | Err(_) => self.hand_back(put, source),
                }
            }
            Exchanged::Gone => Ok(()),
            Exchanged::Unsupported => {
                let side = self.side(put)?;
                let side = side.spot();
                if move_out(target, side, self.faults)? == Moved::Occupied {
                    return Err(io::Error::other("a side name is taken"));
                }
                let out = stat(side.dir, side.name)?;
                if out.id != new.id || !self.is_as_put(put, new, &out, side)? {
                    return self.bring(side, &put.path, out.mode);
                }
                self.bring(source, &put.path, put.old.map_or(out.mode, |old| old.mode))?;
                match move_out(side, source, self.faults)? {
                    Moved::Yes => Ok(()),
                    Moved::Occupied => Err(io::Error::other("the place of the new version is taken")),
                }
            }
        }
    }

    /// Notes a directory of the workspace whose times a move sets.
    fn works_in(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        returned::will(self.root, stat(dir, b"")?.id);
        Ok(())
    }

    /// Notes the old version of a path that is at its place.
    fn note_returned(&self, put: &Put, at: Spot<'_>) -> io::Result<()> {
        let now = stat_if_there(at.dir, at.name)?.filter(|now| put.old.is_some_and(|old| old.id == now.id));
        if let Some(now) = now {
            returned::did(self.root, &now);
        }
        Ok(())
    }

    /// Looks at what was taken out of a place that is free now.
    fn check_withdrawn(&mut self, put: &Put, new: &Seen, source: Spot<'_>) -> io::Result<()> {
        self.faults.action();
        let out = stat(source.dir, source.name)?;
        if out.id == new.id && self.is_as_put(put, new, &out, source)? {
            return Ok(());
        }
        self.hand_back(put, source)
    }

    /// Brings a version that another process made to its path, or beside it, and names it.
    fn hand_back(&mut self, put: &Put, from: Spot<'_>) -> io::Result<()> {
        let (parent, name) = split(&put.path.0);
        let moved = match self.base.dir_by_force(parent) {
            Ok(dir) => move_to_free(from, Spot { dir: dir.as_fd(), name }, self.faults).unwrap_or(Moved::Occupied),
            Err(_) => Moved::Occupied,
        };
        let beside = match moved {
            Moved::Yes => None,
            Moved::Occupied => Some(self.beside.put(from, &put.path.0)?),
        };
        self.conflicts.push(Conflict { beside, ..Conflict::new(put.path.clone(), Outside::Changed) });
        Ok(())
    }

    /// Whether another process changed an entry that lies at its source: an interrupted pass may have withdrawn it and not
    /// looked at it. What was never put is as the journal says.
    fn was_edited(&self, put: &Put, new: &Seen, found: &Meta, source: Spot<'_>) -> io::Result<bool> {
        // A file that has its own name in the workspace may change there. A directory of which the journal does not say what
        // was in it is never withdrawn.
        if self.held.contains(&new.id) || (put.whole && put.inside.is_none()) {
            return Ok(false);
        }
        Ok(!self.is_as_put(put, new, found, source)?)
    }

    /// Whether an entry that we put is unchanged, and no process writes to it.
    fn is_as_put(&self, put: &Put, new: &Seen, now: &Meta, at: Spot<'_>) -> io::Result<bool> {
        if !self.faults.compares(Comparison::AsPut) {
            return Ok(true);
        }
        is_as_put(put, self.is_made(put), (new, now), at, self.base.leases())
    }

    /// Whether a directory was made for this commit; otherwise it is one of the workspace's that was renamed.
    fn is_made(&self, put: &Put) -> bool {
        let Origin::Slot(slot) = &put.from else { return false };
        !self.taken.contains(slot)
    }

    fn set_dir(&mut self, set: &SetDir) -> io::Result<()> {
        // The directory itself is not opened up: its mode tells whether another process changed it.
        let dir = match self.base.dir_by_force(split(&set.path.0).0).and_then(|_| self.base.dir(&set.path.0)) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let now = stat(dir.as_fd(), b"")?;
        if set.id != Some(now.id) {
            return Ok(());
        }
        match (found(dir.as_fd(), set, &now, true)?, &set.was) {
            (AttrState::Opened, _) => chmod(dir.as_fd(), set.mode),
            (AttrState::Known, Some(was)) => {
                let mtime = (Some(now.mtime) == set.mtime).then_some(was.mtime);
                let (mode, uid, gid) = (was.mode, was.uid, was.gid);
                widen(dir.as_fd())?;
                let before = SetDir { mode, uid, gid, mtime, attrs: Some(was.attrs.clone()), ..set.clone() };
                apply_dir_state(dir.as_fd(), &before, &now)
            }
            (AttrState::Foreign, Some(_)) => {
                self.conflicts.push(Conflict::new(set.path.clone(), Outside::Changed));
                Ok(())
            }
            // A directory that the commit made goes with its own step.
            (AttrState::Known | AttrState::Foreign, None) => Ok(()),
        }
    }
}
