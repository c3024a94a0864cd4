//! Brings a workspace back to a state that was kept.
//!
//! ```text
//!  an undo that was cut off? ─ yes ─▶ its own words ─┐
//!                            └ no ──▶ decided ─▶ present state into the record ─▶ undo/DIRECTORY ─┴▶ entries ─▶ undo/DIRECTORY removed
//! ```

use super::error::CheckpointError;
use super::record::{LiveRun, State, Unfinished, VERSION};
use super::states::{Checkpoints, Read, later, since_end, top_of};
use nexus_model::{ByteText, RunId};
use nexus_snapshot::put_back::{Applied, Aside, Choice, Decision, Left, Place, Trees3, apply, decide, remove_staging};
use nexus_snapshot::{Hold, LeftOut, Most, ObjectId, ScanOptions, SnapshotError, Store};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

/// Most bytes of paths that an undo goes around because they were changed since the run ended.
const MAX_CHANGED: usize = 2 << 20;

/// The choices of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoRequest {
    /// The paths; empty means all.
    pub only: Vec<ByteText>,
    /// The state, by the beginning of its hash; `None` means the checkpoint.
    pub to: Option<String>,
    /// Takes back what was changed since the run, too.
    pub overwrites: bool,
    /// The most that it reads of what no state of the run has; `None` means all.
    pub most: Option<Most>,
}

/// The result of an undo.
#[derive(Debug)]
pub struct Undone {
    /// An earlier undo was cut off, and this call went on with it, and did nothing else.
    pub went_on: Option<RunId>,
    /// The state before it; `None` where nothing had to be done.
    pub kept: Option<State>,
    /// The entries that went back, and those that did not.
    pub applied: Applied,
    /// Paths that only other processes changed since the run ended.
    pub theirs: u64,
    /// Files and directories that the run removed or replaced and that no state keeps.
    pub lost: Vec<ByteText>,
}

/// Called between any two changes; an error stops at once, as a kill would.
pub type Pause<'a> = &'a mut dyn FnMut() -> Result<(), SnapshotError>;

impl Checkpoints {
    /// Brings a workspace back to the checkpoint of a run, or to another state of it. The present state is kept first. An undo in this
    /// directory that was cut off is finished instead. The caller keeps commits of other runs away.
    pub fn undo(
        &self,
        run: RunId,
        root: BorrowedFd<'_>,
        ask: &UndoRequest,
        pause: Pause<'_>,
    ) -> Result<Undone, CheckpointError> {
        let record = self.run(run)?;
        let mut store = self.store(Hold::Use)?;
        if let Some(unfinished) = self.files.unfinished(&record.directory)? {
            return self.go_on(&mut store, root, &record.directory, &unfinished, ask.most, pause);
        }
        let minds_changes = record.end.is_none() && !ask.overwrites && ask.to.is_none();
        let changed_since = if minds_changes { since_end(&record) } else { None };
        if minds_changes && changed_since.is_none() {
            return Err(CheckpointError::EndUnknown { run });
        }
        let options = ScanOptions { changed_since, ..later(&record, ask.most) };
        let Read { state: now, mut changed, unkept } =
            self.scanned(&mut store, &record.directory, root, options, &mut |_, _| Ok(()))?;
        changed.extend(unkept.iter().map(|one| one.path.clone()));
        let wanted = match &ask.to {
            None => record.checkpoint.clone(),
            Some(which) => record
                .state(which)
                .flatten()
                .cloned()
                .ok_or_else(|| CheckpointError::NoState { run, which: which.chars().take(80).collect() })?,
        };
        // Without a state that the run left, everything counts as its own but what was changed since.
        let left = match &record.end {
            Some(end) if !ask.overwrites && ask.to.is_none() => end.clone(),
            _ => now.clone(),
        };
        let mut special = special(&wanted, &left, &now);
        special.retain(|path| !changed.contains(&path.0));
        let mut unfinished = Unfinished {
            version: VERSION,
            run,
            id: RunId::new(),
            workspace: record.workspace.clone(),
            wanted: wanted.tree.clone(),
            left: left.tree.clone(),
            only: ask.only.clone(),
            special,
            changed: changed.into_iter().map(ByteText).collect(),
        };
        let trees = trees_of(&unfinished, &now)?;
        let mut decision = decided(&mut store, trees, &unfinished)?;
        decision.left.extend(left_unkept(&unkept, &unfinished));
        for one in &ask.only {
            let is_named = |path: &[u8]| path == one.0 || path.starts_with(&[one.0.as_slice(), b"/"].concat());
            if !decision.paths().any(is_named) {
                return Err(CheckpointError::Unchanged { path: one.as_path().display().to_string() });
            }
        }
        if decision.is_empty() {
            let applied = Applied { left: decision.left, ..Applied::default() };
            return Ok(Undone { went_on: None, kept: None, applied, theirs: decision.theirs, lost: Vec::new() });
        }
        // Another pass needs only those that made a difference.
        let is_of_difference = |path: &[u8]| decision.paths().any(|one| one == path);
        unfinished.changed.retain(|path| is_of_difference(&path.0));
        if unfinished.changed.iter().map(|path| path.0.len()).sum::<usize>() > MAX_CHANGED {
            return Err(CheckpointError::ManyChanged { run });
        }
        let lost = lost(&wanted, root);
        let mut record = record;
        keep(&mut record, &now);
        self.files.put_run(&record)?;
        self.files.put_unfinished(&record.directory, &unfinished)?;
        pause()?;
        let theirs = decision.theirs;
        let applied = self.carried_out(&mut store, root, (&unfinished, trees), decision, &mut *pause)?;
        pause()?;
        self.files.remove_unfinished(&record.directory)?;
        Ok(Undone { went_on: None, kept: Some(now), applied, theirs, lost })
    }

    /// Gives an undo of a directory up that was cut off. Everything stays as that one left it, also what it displaced. Returns its run, and the
    /// name in the directory of what it displaced and built, if there is anything. The caller keeps other undos away.
    pub fn abandon(
        &self,
        directory: &str,
        root: BorrowedFd<'_>,
    ) -> Result<Option<(RunId, Option<String>)>, CheckpointError> {
        let Some(unfinished) = self.files.unfinished(directory)? else { return Ok(None) };
        let staging = unfinished.staging();
        let rest = match rustix::fs::unlinkat(root, staging.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => None,
            Err(_) => Some(staging),
        };
        self.files.remove_unfinished(directory)?;
        Ok(Some((unfinished.run, rest)))
    }

    /// Goes on with an undo that was cut off, after keeping the state that it left.
    fn go_on(
        &self,
        store: &mut Store,
        root: BorrowedFd<'_>,
        directory: &str,
        unfinished: &Unfinished,
        most: Option<Most>,
        pause: Pause<'_>,
    ) -> Result<Undone, CheckpointError> {
        let mut record = self.run(unfinished.run)?;
        let options = later(&record, most);
        // With what the cut-off one displaced and did not come to look at.
        let Read { state: now, .. } = self.scanned(store, directory, root, options, &mut |_, _| Ok(()))?;
        keep(&mut record, &now);
        self.files.put_run(&record)?;
        pause()?;
        let present = top_of(&now, unfinished.run)?;
        let aside: Option<Aside> =
            self.placed(root, unfinished, |place| remove_staging(place, store, &present, &mut *pause))?;
        pause()?;
        // Without it again: names of files in it were further names of files elsewhere.
        let Read { state: without, unkept, .. } = self.scanned(store, directory, root, options, &mut |_, _| Ok(()))?;
        // What was marked since the first look may go with its marks.
        keep(&mut record, &without);
        self.files.put_run(&record)?;
        let trees = trees_of(unfinished, &without)?;
        let mut decision = decided(store, trees, unfinished)?;
        decision.left.extend(left_unkept(&unkept, unfinished));
        let theirs = decision.theirs;
        let mut applied = if decision.is_empty() {
            // It was cut off right before its end. To make anything would set the time of the directory.
            Applied { left: decision.left, ..Applied::default() }
        } else {
            self.carried_out(store, root, (unfinished, trees), decision, pause)?
        };
        applied.aside.splice(0..0, aside);
        self.files.remove_unfinished(directory)?;
        let went_on = Some(unfinished.run);
        Ok(Undone { went_on, kept: Some(now), applied, theirs, lost: Vec::new() })
    }

    fn carried_out(
        &self,
        store: &mut Store,
        root: BorrowedFd<'_>,
        (unfinished, trees): (&Unfinished, Trees3),
        decision: Decision,
        pause: Pause<'_>,
    ) -> Result<Applied, CheckpointError> {
        Ok(self.placed(root, unfinished, |place| apply(place, store, trees, decision, pause))?)
    }

    /// Calls a function with the names that an undo makes in the directory.
    fn placed<T>(
        &self,
        root: BorrowedFd<'_>,
        unfinished: &Unfinished,
        with: impl FnOnce(Place<'_>) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        let id = unfinished.id.to_string();
        let ending = format!(".kept-{}", id.get(id.len().saturating_sub(12)..).unwrap_or(&id));
        with(Place { root, staging: &unfinished.staging(), ending: &ending, leases: self.leases })
    }
}

fn decided(store: &mut Store, trees: Trees3, unfinished: &Unfinished) -> Result<Decision, SnapshotError> {
    let (only, special, changed) = (paths(&unfinished.only), paths(&unfinished.special), paths(&unfinished.changed));
    let staging = unfinished.staging();
    decide(store, trees, Choice { only: &only, special: &special, staging: staging.as_bytes(), changed: &changed })
}

/// Names what cannot be kept and is of the paths that go back: it stays.
fn left_unkept(unkept: &[LeftOut], unfinished: &Unfinished) -> Vec<Left> {
    let is_chosen = |path: &[u8]| {
        let is_of = |one: &ByteText| path == one.0 || path.starts_with(&[one.0.as_slice(), b"/"].concat());
        unfinished.only.is_empty() || unfinished.only.iter().any(is_of)
    };
    let all = unkept.iter().filter(|one| is_chosen(&one.path));
    all.map(|one| Left { path: one.path.clone(), why: format!("no state can keep it: {}", one.why) }).collect()
}

fn keep(record: &mut LiveRun, state: &State) {
    let known = std::iter::once(&record.checkpoint).chain(&record.end).chain(&record.kept);
    if !known.into_iter().any(|one| one.tree == state.tree) {
        record.kept.push(state.clone());
    }
}

fn paths(all: &[ByteText]) -> Vec<Vec<u8>> {
    all.iter().map(|path| path.0.clone()).collect()
}

fn trees_of(unfinished: &Unfinished, now: &State) -> Result<Trees3, CheckpointError> {
    let damaged = || CheckpointError::Damaged { file: "undo".to_owned(), why: "a state has no name".to_owned() };
    let wanted = ObjectId::from_hex(&unfinished.wanted).ok_or_else(damaged)?;
    let left = ObjectId::from_hex(&unfinished.left).ok_or_else(damaged)?;
    Ok(Trees3 { wanted, left, present: top_of(now, unfinished.run)? })
}

/// Returns the FIFOs, sockets and devices that came with the run. None where a list is not whole.
fn special(wanted: &State, left: &State, now: &State) -> Vec<ByteText> {
    let is_whole = |state: &State| state.left_out.len() as u64 == state.left_out_count;
    if ![wanted, left, now].into_iter().all(is_whole) {
        return Vec::new();
    }
    let is_of_run = |path: &&ByteText| left.left_out.contains(path) && !wanted.left_out.contains(path);
    now.left_out.iter().filter(is_of_run).cloned().collect()
}

/// Returns the entries that were there at a state and are gone, and that no state keeps.
fn lost(wanted: &State, root: BorrowedFd<'_>) -> Vec<ByteText> {
    let is_there = |path: &ByteText| {
        let (parent, name) = match path.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path.0[..at], &path.0[at + 1..]),
            None => (&b"."[..], path.0.as_slice()),
        };
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let resolve = rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_SYMLINKS;
        let dir = rustix::fs::openat2(root, parent, flags, rustix::fs::Mode::empty(), resolve);
        dir.and_then(|dir| statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)).is_ok()
    };
    wanted.left_out.iter().filter(|path| !is_there(path)).cloned().collect()
}
