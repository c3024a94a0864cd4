//! An accept that goes around conflicts, or decides them.

use crate::causes::chain;
use crate::notices::{Notice, Notify};
use crate::review::error::ReviewError;
use crate::review::pending::Pending;
use nexus_layer::meta::EntryType;
use nexus_layer::{Change, ChangeKind, CommitError, Committed, Conflict, Outside, Rules, Yours};
use nexus_model::ByteText;

/// The treatment of changes in conflict by an accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflicts {
    /// The accept accepts nothing.
    Refuse,
    /// Changes in conflict are left out.
    LeaveOut,
    /// Files in conflict come, and the versions of the workspace are kept beside.
    TakeTheirs,
    /// Files in conflict are merged, and both versions are kept beside.
    Merge,
}

/// Tries of an accept that leaves conflicts out: each names all that it found, and later ones what came meanwhile.
const MAX_TRIES: usize = 5;

/// The outcome of an accept that goes around conflicts, or decides them.
pub struct Around {
    /// The outcome of the last try.
    pub done: Committed,
    /// The conflicts that were left out.
    pub left_out: Vec<LeftOut>,
    /// The conflicts that were decided for the run.
    pub theirs: Vec<Yours>,
}

/// A conflict that an accept left out.
pub struct LeftOut {
    /// The conflict as the commit found it.
    pub conflict: Conflict,
    /// The change of the run to this path, or the removal of a directory above it. `None` if the conflict has no change of its own:
    /// a directory that was renamed, a file with names that the run did not change.
    pub change: Option<ByteText>,
}

/// Commits what the rules choose. Conflicts are left out or decided, as the caller wants it. The caller holds the lock of the
/// workspace.
pub fn commit_around(
    pending: &Pending,
    rules: &Rules,
    conflicts: Conflicts,
    tell: Notify<'_>,
) -> Result<Around, ReviewError> {
    let mut rules = rules.clone();
    let mut left_out = Vec::new();
    let mut tries = 1;
    let done = loop {
        let done = pending.layer.commit(&pending.workspace, &rules);
        let is_over = |done: &Committed| {
            conflicts == Conflicts::Refuse || done.conflicts.is_empty() || !done.changes.changes.is_empty()
        };
        match done {
            Ok(done) if tries < MAX_TRIES && !is_over(&done) => {
                tries += 1;
                // What is kept of versions that changed again is none to decide by.
                let tried: Vec<_> = rules.theirs.extract_if(.., |one| is_in(&done.conflicts, one)).collect();
                forget(pending, &tried)?;
                let mut left = Vec::new();
                for conflict in done.conflicts {
                    let (layer, workspace, from) = (&pending.layer, &pending.workspace, &conflict.path);
                    let path = &in_layer(&done.parked, from);
                    let kept = match conflicts {
                        Conflicts::TakeTheirs => Some(layer.keep_yours_of(workspace, path, from)),
                        // A file whose merge is not enough, because more than its text is in conflict, waits.
                        Conflicts::Merge if tried.iter().all(|one| one.path != *path) => {
                            Some(layer.merge_yours_of(workspace, path, from))
                        }
                        Conflicts::Merge | Conflicts::LeaveOut | Conflicts::Refuse => None,
                    };
                    match kept {
                        Some(Ok(yours)) => rules.theirs.push(yours),
                        Some(Err(error)) => {
                            tell(&Notice::KeepsWaiting { why: error.to_string() });
                            left.push(conflict);
                        }
                        None => left.push(conflict),
                    }
                }
                for conflict in left {
                    let change = change_of(&done.parked, &conflict).cloned();
                    rules.except.push(conflict.path.clone());
                    match &change {
                        Some(change) => rules.except.push(change.clone()),
                        None => rules.except.extend(renames_around(&done.parked, &conflict)),
                    }
                    left_out.push(LeftOut { conflict, change });
                }
            }
            other => break other,
        }
    };
    match done {
        Ok(done) => {
            let came = |one: &Yours| done.changes.changes.iter().any(|change| change.path == one.path);
            let (theirs, unused): (Vec<_>, Vec<_>) = rules.theirs.into_iter().partition(came);
            forget(pending, &unused)?;
            Ok(Around { done, left_out, theirs })
        }
        Err(error) => {
            // After an interruption the commit may still go on: then the copies are what is left of the workspace's versions.
            if !matches!(error, CommitError::Interrupted { .. }) {
                forget(pending, &rules.theirs)?;
            }
            Err(pending.commit_failed(error))
        }
    }
}

/// Returns where the layer has what the workspace has at a path: elsewhere in a directory that the run renamed.
fn in_layer(parked: &[Change], path: &ByteText) -> ByteText {
    let renames = parked.iter().filter_map(|change| match &change.kind {
        ChangeKind::Renamed { from } => Some((from, &change.path)),
        _ => None,
    });
    let around = renames.filter(|(from, _)| path.as_path().starts_with(from.as_path()));
    match around.max_by_key(|(from, _)| from.0.len()) {
        Some((from, to)) => [&to.0[..], &path.0[from.0.len()..]].concat().into(),
        None => path.clone(),
    }
}

/// Returns the change of the run that a conflict is about: to the path itself, or one that takes a directory around it away.
fn change_of<'a>(parked: &'a [Change], conflict: &Conflict) -> Option<&'a ByteText> {
    // What cannot be moved holds up what would be moved around it.
    if conflict.outside == Outside::Blocked && in_layer(parked, &conflict.path) != conflict.path {
        return None;
    }
    let at = in_layer(parked, &conflict.path);
    let takes = |change: &&Change| match change.kind {
        ChangeKind::Renamed { .. } => false,
        ChangeKind::Deleted | ChangeKind::Type { was: EntryType::Directory } => {
            at.as_path().starts_with(change.path.as_path())
        }
        ChangeKind::Added | ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Type { .. } => change.path == at,
    };
    parked.iter().find(takes).map(|change| &change.path)
}

/// Lists the directories that the run renamed, above a conflict that has no change of its own.
fn renames_around<'a>(parked: &'a [Change], conflict: &'a Conflict) -> impl Iterator<Item = ByteText> + 'a {
    let is_around = |change: &&Change| match &change.kind {
        ChangeKind::Renamed { from } => conflict.path.as_path().starts_with(from.as_path()),
        _ => false,
    };
    parked.iter().filter(is_around).map(|change| change.path.clone())
}

fn is_in(conflicts: &[Conflict], one: &Yours) -> bool {
    conflicts.iter().any(|conflict| conflict.path == one.from || conflict.path == one.path)
}

/// Removes copies of versions that stayed at their places.
fn forget(pending: &Pending, all: &[Yours]) -> Result<(), ReviewError> {
    all.iter().try_for_each(|yours| {
        pending.layer.forget_yours(&pending.workspace, yours).map_err(|error| {
            let copy = yours.copy.as_ref().map(|copy| copy.as_path().to_owned()).unwrap_or_default();
            ReviewError::CopyStays { copy, why: chain(&error) }
        })
    })
}
