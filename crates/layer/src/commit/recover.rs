//! Recovers layers after a crash: completes or rolls back each interrupted commit.
//!
//! ```text
//!  journal, journal.done ─▶ recover: on to the new version      roll_back: back to the old one (journal only)
//!  journal, journal.back ─▶ both: back to the old one
//!  parked.json           ─▶ left alone                          no journal: undecided, for the caller to park
//! ```
//! Both obey the rules of a first commit: a path that another process changed meanwhile is kept back.

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::changes::{Change, Conflict};
use crate::commit::apply::Apply;
use crate::commit::beside::unnamed;
use crate::commit::decided::{is_decided, is_going_back, known, locked};
use crate::commit::finish::{Directories, GONE, Split, finish, remove_layer, split_changes};
use crate::commit::journal::{
    DONE, JOURNAL, Journal, OUTCOME, Outcome, PARKED, SlotPlace, home_of, read, sync_directory, write,
};
use crate::commit::leftover::{Leftover, found_aside};
use crate::commit::roll_back::reverse;
use crate::commit::rooms::Rooms;
use crate::commit::stage::{open_slots, remove_slots};
use crate::faults::{Faults, Step};
use crate::identity::Home;
use crate::stash::Stash;
use crate::upper::{is_bare, open_for_steps};
use std::path::Path;

pub use crate::commit::errors::RecoverError;

/// The result of a commit that was finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finished {
    /// Changes that reached the workspace.
    pub committed: Vec<Change>,
    /// Changes that wait in the layer.
    pub parked: Vec<Change>,
    /// Paths that were kept back because they had changed.
    pub conflicts: Vec<Conflict>,
    /// Number of files for which no lease could show whether a process writes to them.
    pub unwatched: u64,
    /// Entries that could not be removed and stay.
    pub left: Vec<Leftover>,
    /// Commits with uncommitted changes that only refs name which were kept back.
    pub stashes: Vec<Stash>,
}

impl Finished {
    pub(crate) fn new(journal: Journal, outcome: Outcome) -> Self {
        let Split { arrived, left } = split_changes(journal.header.parked, journal.header.committed, &outcome);
        let mut conflicts: Vec<_> = outcome.kept.into_iter().filter_map(|one| one.conflict).collect();
        conflicts.extend(unnamed(&outcome.beside, &conflicts));
        Self {
            committed: arrived,
            parked: left,
            conflicts,
            unwatched: outcome.unwatched,
            left: outcome.left,
            stashes: outcome.stashes,
        }
    }
}

/// State in which a recovery found a layer, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// There is no such layer (any more).
    Nothing,
    /// A decided commit was brought to its end.
    RolledForward(Box<Finished>),
    /// A commit that was being taken back when `nexus` was killed is taken back now, but for what these conflicts name.
    /// The layer is undecided, or waits for a review as it did before the commit.
    TakenBack(Vec<Conflict>),
    /// No commit was decided: the workspace is the old version. The layer is not empty and was left alone.
    Undecided,
    /// No commit was decided, there was nothing in the layer, and it is gone, but for what could not be removed.
    Discarded(Option<Leftover>),
    /// The layer waits for a review and was left alone.
    Parked,
}

/// Completes or rolls back the commit of the layer `<layers_dir>/<run>`; see [`Recovered`].
pub fn recover(layers_dir: &Path, run: &str, workspace: &Workspace) -> Result<Recovered, RecoverError> {
    recover_with(layers_dir, run, workspace, &Faults::default())
}

/// Runs [`recover`] with faults, for tests.
pub fn recover_with(
    layers_dir: &Path,
    run: &str,
    workspace: &Workspace,
    faults: &Faults,
) -> Result<Recovered, RecoverError> {
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let (layers, Some(root)) = locked(layers_dir, run)? else { return Ok(Recovered::Nothing) };
    let directories = Directories { layers: &layers, root: &root, base: workspace, run };
    if let Some(journal) = known(&root, DONE, run, workspace)? {
        let mut outcome = outcome_of(&root).map_err(io)?;
        finish_done(&directories, &journal, &mut outcome, faults).map_err(io)?;
        return Ok(Recovered::RolledForward(Box::new(Finished::new(journal, outcome))));
    }
    if let Some(journal) = known(&root, JOURNAL, run, workspace)? {
        if is_going_back(&root).map_err(io)? {
            return Ok(Recovered::TakenBack(reverse(&root, workspace, &journal, faults).map_err(io)?));
        }
        let outcome = roll_forward(&directories, &journal, faults, true).map_err(io)?;
        return Ok(Recovered::RolledForward(Box::new(Finished::new(journal, outcome))));
    }
    // Copies that were made for a commit which was never decided.
    remove_slots(&root, workspace, run, SlotPlace::Workspace, faults).map_err(io)?;
    if root.stat(PARKED.as_bytes()).doing("look at", PARKED.as_bytes()).map_err(io)?.is_some() {
        return Ok(Recovered::Parked);
    }
    let removed = root.stat(GONE.as_bytes()).doing("look at", GONE.as_bytes()).map_err(io)?.is_some();
    if !removed && !is_bare(&root).map_err(io)? {
        return Ok(Recovered::Undecided);
    }
    Ok(Recovered::Discarded(remove_layer(&layers, &root, run, faults).map_err(io)?))
}

/// Stage that a layer has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// There is none (any more), or it is being removed.
    Gone,
    /// Nothing was decided: its run was killed.
    Undecided,
    /// It waits for a review.
    Parked,
    /// A commit was decided and not finished; for which workspace, if the journal can be read.
    Decided(Option<Home>),
}

/// Returns the stage that the layer `<layers_dir>/<run>` has reached. Changes nothing.
pub fn stage(layers_dir: &Path, run: &str) -> Result<Stage, RecoverError> {
    let (_, Some(root)) = locked(layers_dir, run)? else { return Ok(Stage::Gone) };
    let io = |source: IoFailure| RecoverError::Io { run: run.to_owned(), source };
    let has = |name: &str| Ok(root.stat(name.as_bytes()).doing("look at", name.as_bytes()).map_err(io)?.is_some());
    Ok(match () {
        () if is_decided(&root).map_err(io)? => Stage::Decided(home_of(&root).unwrap_or_default()),
        () if has(PARKED)? => Stage::Parked,
        () if has(GONE)? => Stage::Gone,
        () => Stage::Undecided,
    })
}

/// Does everything that comes after the commit point.
pub(crate) fn roll_forward(
    directories: &Directories<'_>,
    journal: &Journal,
    faults: &Faults,
    again: bool,
) -> Result<Outcome, IoFailure> {
    let upper = open_for_steps(directories.root).doing("open", b"upper")?;
    let slots = open_slots(directories.root, directories.base, directories.run, journal.header.slots)?;
    let started = journal.start()?;
    let rooms = Rooms { root: directories.root, base: directories.base, upper: &upper, slots: slots.as_ref(), started };
    faults.check(Step::Apply).doing("apply", b"")?;
    let mut apply = Apply::new(rooms, journal, faults, again);
    apply.run()?;
    faults.check(Step::SyncWorkspace).doing("sync", b"")?;
    apply.sync()?;
    let mut outcome = apply.outcome();
    outcome.beside = rooms.beside(directories.run, faults).noted()?;
    faults.check(Step::MarkDone).doing("mark done", b"")?;
    write(directories.root, OUTCOME, &outcome, faults)?;
    faults.action();
    rustix::fs::renameat(directories.root.fd(), JOURNAL, directories.root.fd(), DONE)
        .doing("rename", JOURNAL.as_bytes())?;
    sync_directory(directories.root, faults)?;
    finish(directories, &rooms, journal, &mut outcome, faults)?;
    Ok(outcome)
}

/// Goes on with a commit of this process that an error stopped.
pub(crate) fn go_on(directories: &Directories<'_>, journal: &Journal, faults: &Faults) -> Result<Outcome, IoFailure> {
    if directories.root.stat(DONE.as_bytes()).doing("look at", DONE.as_bytes())?.is_none() {
        return roll_forward(directories, journal, faults, true);
    }
    let mut outcome = outcome_of(directories.root)?;
    finish_done(directories, journal, &mut outcome, faults)?;
    Ok(outcome)
}

/// Reads what a commit that is marked done kept back, and must not be removed with the layer. Only a layer on its way
/// out may have lost that.
fn outcome_of(root: &Workspace) -> Result<Outcome, IoFailure> {
    match read::<Outcome>(root, OUTCOME)? {
        Some(outcome) => Ok(outcome),
        None if root.stat(b"upper").doing("look at", b"upper")?.is_none() => Ok(Outcome::default()),
        None => {
            Err(std::io::Error::other("it is missing, and says what has to stay")).doing("read", OUTCOME.as_bytes())
        }
    }
}

/// Finishes a commit that is marked done.
fn finish_done(
    directories: &Directories<'_>,
    journal: &Journal,
    outcome: &mut Outcome,
    faults: &Faults,
) -> Result<(), IoFailure> {
    let upper = match open_for_steps(directories.root) {
        Ok(upper) => upper,
        // The layer was on its way out already.
        Err(error) if crate::beneath::is_gone(&error) => {
            outcome.left.extend(remove_layer(directories.layers, directories.root, directories.run, faults)?);
            return Ok(());
        }
        Err(error) => return Err(error).doing("open", b"upper"),
    };
    let slots = open_slots(directories.root, directories.base, directories.run, journal.header.slots)?;
    let started = journal.start()?;
    let rooms = Rooms { root: directories.root, base: directories.base, upper: &upper, slots: slots.as_ref(), started };
    // What the interrupted try had set aside and not yet written down.
    for place in found_aside(directories.layers, directories.run).doing("list", b".kept")? {
        let known = |one: &Leftover| one.at.as_path().starts_with(&place);
        if !outcome.left.iter().any(known) {
            outcome.left.push(Leftover::new(&place, None, "it could not be removed".to_owned()));
        }
    }
    finish(directories, &rooms, journal, outcome, faults)
}
