//! Everything after the commit point: the path of every commit, in its first pass and in a recovery.
//!
//! ```text
//!  journal ─▶ roll_forward: apply ─▶ outcome, journal.done ─▶ finish
//!                            └─ an error ─▶ go_on: the same steps once more
//! ```

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::commit::apply::Apply;
use crate::commit::finish::clean_up::{Split, finish, split_changes};
use crate::disk::upper::open_for_steps;
use crate::entries::changes::{Change, Conflict};
use crate::faults::{Faults, Phase};
use crate::git::stash::Stash;
use crate::journal::file::{DONE, JOURNAL, Journal, OUTCOME, Outcome, read, sync_directory, write};
use crate::moves::beside::unnamed;
use crate::moves::leftover::{Leftover, found_aside};
use crate::places::commit_places::CommitPlaces;
use crate::places::commit_places::LayerDirectories;
use crate::staging::stage::open_slots;
use crate::store::removal::remove_layer;

/// The result of a commit that was finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitFinished {
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

impl CommitFinished {
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

/// Does everything that comes after the commit point.
pub(crate) fn roll_forward(
    directories: &LayerDirectories<'_>,
    journal: &Journal,
    faults: &Faults,
    again: bool,
) -> Result<Outcome, IoFailure> {
    let upper = open_for_steps(directories.root).doing("open", b"upper")?;
    let slots = open_slots(directories.root, directories.base, directories.run, journal.header.slots)?;
    let started = journal.start()?;
    let places =
        CommitPlaces { root: directories.root, base: directories.base, upper: &upper, slots: slots.as_ref(), started };
    faults.check(Phase::Apply).doing("apply", b"")?;
    let mut apply = Apply::new(places, journal, faults, again);
    apply.run()?;
    faults.check(Phase::SyncWorkspace).doing("sync", b"")?;
    apply.sync()?;
    let mut outcome = apply.outcome();
    outcome.beside = places.beside(directories.run, faults).noted()?;
    faults.check(Phase::MarkDone).doing("mark done", b"")?;
    write(directories.root, OUTCOME, &outcome, faults)?;
    faults.between_calls();
    rustix::fs::renameat(directories.root.fd(), JOURNAL, directories.root.fd(), DONE)
        .doing("rename", JOURNAL.as_bytes())?;
    sync_directory(directories.root, faults)?;
    finish(directories, &places, journal, &mut outcome, faults)?;
    Ok(outcome)
}

/// Goes on with a commit of this process that an error stopped.
pub(crate) fn go_on(
    directories: &LayerDirectories<'_>,
    journal: &Journal,
    faults: &Faults,
) -> Result<Outcome, IoFailure> {
    if directories.root.stat(DONE.as_bytes()).doing("look at", DONE.as_bytes())?.is_none() {
        return roll_forward(directories, journal, faults, true);
    }
    let mut outcome = outcome_of(directories.root)?;
    finish_done(directories, journal, &mut outcome, faults)?;
    Ok(outcome)
}

/// Reads what a commit that is marked done kept back, and must not be removed with the layer. Only a layer on its way
/// out may have lost that.
pub(crate) fn outcome_of(root: &Workspace) -> Result<Outcome, IoFailure> {
    match read::<Outcome>(root, OUTCOME)? {
        Some(outcome) => Ok(outcome),
        None if root.stat(b"upper").doing("look at", b"upper")?.is_none() => Ok(Outcome::default()),
        None => {
            Err(std::io::Error::other("it is missing, and says what has to stay")).doing("read", OUTCOME.as_bytes())
        }
    }
}

/// Finishes a commit that is marked done.
pub(crate) fn finish_done(
    directories: &LayerDirectories<'_>,
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
    let places =
        CommitPlaces { root: directories.root, base: directories.base, upper: &upper, slots: slots.as_ref(), started };
    // What the interrupted try had set aside and not yet written down.
    for place in found_aside(directories.layers, directories.run).doing("list", b".kept")? {
        let known = |one: &Leftover| one.at.as_path().starts_with(&place);
        if !outcome.left.iter().any(known) {
            outcome.left.push(Leftover::new(&place, None, "it could not be removed".to_owned()));
        }
    }
    finish(directories, &places, journal, outcome, faults)
}
