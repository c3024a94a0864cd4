//! Rolls back a half-applied commit: undoes the steps of its journal in reverse order.
//!
//! A commit deletes displaced entries only after its journal is marked done, so the old version is complete. A path that another
//! process changed since keeps that process's version; the entry that was there before the commit is placed beside it.

mod put;
mod together;
mod undo;

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::disk::opened::close_again;
use crate::disk::upper::open_for_steps;
use crate::entries::changes::{Conflict, Outside};
use crate::entries::tree::CommittedEntry;
use crate::errors::RecoverError;
use crate::faults::{Comparison, Faults};
use crate::journal::file::{BACK, DONE, JOURNAL, Journal, OURS, SlotPlace, read, sync_directory, write};
use crate::journal::step::Step;
use crate::journal::units::Units;
use crate::moves::beside::{Beside, unnamed};
use crate::moves::leftover::{Leftover, found_in_workspace};
use crate::notes::marks_back;
use crate::notes::only_copies;
use crate::notes::returned;
use crate::notes::withdrawn::{Doubt, doubt, mark_withdrawn};
use crate::places::commit_places::CommitPlaces;
use crate::staging::stage::{keep_slots, open_slots, remove_slots};
use crate::staging::sweep::sweep;
use crate::store::open_for_recovery::{is_decided, is_going_back, known, locked};
use nexus_model::ByteText;
use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use undo::Back;

/// Rolls back the half-applied commit of `<layers_dir>/<run>` and returns the versions that could not be put back to
/// their places. The layer is undecided afterwards. Does nothing if there is no journal.
pub fn roll_back(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Vec<Conflict>, RecoverError> {
    roll_back_with(layers_dir, run, workspace, &Faults::default())
}

/// Runs [`roll_back`] with faults, for tests.
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
    // From here on a recovery goes back as well: forward, it would find half of the old version and take it for
    // changes.
    let is_put_back = is_put_back(root)?;
    if !is_going_back(root)? {
        faults.between_calls();
        write(root, BACK, &true, faults)?;
        sync_directory(root, faults)?;
    }
    let upper = open_for_steps(root).doing("open", b"upper")?;
    let slots = open_slots(root, base, &journal.header.run, journal.header.slots)?;
    let places = CommitPlaces { root, base, upper: &upper, slots: slots.as_ref(), started: journal.start()? };
    let beside = places.beside(&journal.header.run, faults);
    let steps = &journal.steps;
    let (mut taken, mut held) = (HashSet::new(), HashSet::new());
    for step in steps.each() {
        match step.doing("read", JOURNAL.as_bytes())? {
            Step::Take { slot, .. } => drop(taken.insert(slot)),
            Step::Hold { old, .. } => drop(held.insert(old.id)),
            Step::Put(_) | Step::SetDir(_) | Step::Strip { .. } => {}
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
        stays: HashSet::new(),
        units: Units::default(),
        indexes: HashSet::new(),
    };
    // Once every step was undone, there is nothing to find.
    let found = if is_put_back { Ok(()) } else { back.find_what_stays(journal, places.started) };
    let done = found.and_then(|()| back.all());
    let mut ours = journal.header.ours.clone();
    let stamped = returned::stamps(root, base, steps, &mut ours);
    // Also after an error: what was opened up is closed again.
    let closed = back.close(&mut ours);
    done?;
    stamped?;
    closed?;
    let mut conflicts = back.conflicts;
    let mut stuck = Vec::new();
    sweep(&places, journal, &mut stuck, faults)?;
    if let Some((path, why, _)) = stuck.into_iter().next() {
        return Err(io::Error::other(why)).doing("put beside", &path.0);
    }
    conflicts.extend(unnamed(&beside.noted()?, &conflicts));
    marks_back::of_all(&places, steps, conflicts.is_empty(), faults)?;
    only_copies::note_all(&places, steps, faults)?;
    write(root, OURS, &CommittedEntry::sorted(ours), faults)?;
    faults.sync(|| Ok(rustix::fs::syncfs(base.fd())?)).doing("sync", b"")?;
    conflicts.extend(keep_reachable(&places, journal, faults)?);
    close_again(root)?;
    if !is_put_back {
        faults.between_calls();
        write(root, BACK, &PUT_BACK, faults)?;
        sync_directory(root, faults)?;
    }
    let kept = remove_slots(root, base, &journal.header.run, journal.header.slots, faults)?;
    conflicts.extend(kept.map(|kept| named(base, &kept)));
    if journal.header.slots == SlotPlace::Workspace {
        conflicts.extend(kept_before(base, &journal.header.run, &conflicts)?);
    }
    // Last: a process that is killed before leaves it to the next command to name what is beside its path.
    faults.between_calls();
    crate::beneath::unlink_if_there(root.fd(), JOURNAL.as_bytes()).doing("remove", JOURNAL.as_bytes())?;
    sync_directory(root, faults)?;
    returned::clear(root)?;
    // The list of what is beside its path stays until the next commit, or goes with the layer: no command has
    // named it yet.
    crate::beneath::unlink_if_there(root.fd(), BACK.as_bytes()).doing("remove", BACK.as_bytes())?;
    Ok(conflicts)
}

/// Lists the versions that the last rollback of `<layers_dir>/<run>` put beside their paths. A command that was
/// killed right after the rollback has reported none of them.
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

/// Reports whether `nexus` was killed during a rollback of the commit of `<layers_dir>/<run>`: every command that
/// ends the layer continues that rollback.
#[must_use]
pub fn is_being_taken_back(layers_dir: &Path, run: &str) -> bool {
    let has = |name: &str| layers_dir.join(run).join(name).symlink_metadata().is_ok();
    has(JOURNAL) && has(BACK)
}

/// Reports whether the commit of `<layers_dir>/<run>` was completely applied when `nexus` was killed: it can be
/// finished but not rolled back.
#[must_use]
pub fn is_applied(layers_dir: &Path, run: &str) -> bool {
    layers_dir.join(run).join(DONE).symlink_metadata().is_ok()
}

/// Content of the file [`BACK`] when every step was undone: a staging directory that is not there was removed by the
/// way back itself.
const PUT_BACK: &str = "put back";

fn is_put_back(root: &Workspace) -> Result<bool, IoFailure> {
    // One that cannot be read says that the rollback was started.
    Ok(is_going_back(root)?
        && read::<serde_json::Value>(root, BACK).ok().flatten().is_some_and(|said| said == PUT_BACK))
}

/// Keeps what left the workspace and a process may still write to from ever being removed. Returns what of it stays in
/// the workspace.
fn keep_reachable(
    places: &CommitPlaces<'_>,
    journal: &Journal,
    faults: &Faults,
) -> Result<Option<Conflict>, IoFailure> {
    let CommitPlaces { root, base, .. } = *places;
    let doubt = if faults.compares(Comparison::Doubt) { doubt(places, &journal.steps)? } else { Doubt::default() };
    if doubt.upper {
        mark_withdrawn(root, faults)?;
    }
    if !doubt.slots {
        return Ok(None);
    }
    let kept = keep_slots(root, base, &journal.header.run, journal.header.slots, faults)?;
    Ok(kept.map(|kept| named(base, &kept)))
}

/// Names the staging directories that an interrupted pass kept and that no conflict names yet.
fn kept_before(base: &Workspace, run: &str, named_by_now: &[Conflict]) -> Result<Vec<Conflict>, IoFailure> {
    let found = found_in_workspace(base, run).doing("list", b"")?;
    let all = found.iter().map(|kept| named(base, kept));
    Ok(all.filter(|one| named_by_now.iter().all(|known| known.path != one.path)).collect())
}

/// Makes a conflict of a staging directory that stays in the workspace.
fn named(base: &Workspace, kept: &Leftover) -> Conflict {
    let at = kept.at.as_path();
    let path = at.strip_prefix(base.path()).unwrap_or(at);
    let path = ByteText(path.as_os_str().as_bytes().to_vec());
    Conflict { detail: Some(kept.why.clone()), ..Conflict::new(path, Outside::Blocked) }
}
