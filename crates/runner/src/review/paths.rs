//! Checks the paths that a review names.

use nexus_layer::meta::EntryType;
use nexus_layer::{Change, ChangeKind};
use nexus_model::ByteText;
use std::path::{Path, PathBuf};

/// Error: a path that nothing can be decided about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A directory was deleted, replaced or renamed together with the path.
    #[error("{} can only be accepted or rejected together with {}, which was {what} as a whole", path.display(), whole.display())]
    Together {
        /// The path that was named.
        path: PathBuf,
        /// The directory that changed as a whole.
        whole: PathBuf,
        /// The change of the directory, as a participle.
        what: &'static str,
    },
    /// No change has the path.
    #[error("nothing that waits has the path {}", path.display())]
    Unknown {
        /// The path that was named.
        path: PathBuf,
    },
}

impl PathError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        "paths"
    }
}

/// Refuses a path that cannot be decided about: one that no change has, and one inside a directory that was deleted,
/// replaced or renamed as a whole. Neither may look like a decision.
pub fn must_stand_alone(chosen: &[ByteText], changes: &[Change]) -> Result<(), PathError> {
    for path in chosen {
        let has_own = changes.iter().any(|change| change.path.as_path().starts_with(path.as_path()));
        if let Some((whole, what)) = changes.iter().find_map(|change| whole(change, path, has_own)) {
            return Err(PathError::Together { path: path.as_path().to_owned(), whole: whole.to_owned(), what });
        }
        if !has_own {
            return Err(unknown(path));
        }
    }
    Ok(())
}

/// Returns the directory that a change deletes, replaces or moves together with what is at this path, and what
/// happens to it.
fn whole<'a>(change: &'a Change, path: &ByteText, has_own: bool) -> Option<(&'a Path, &'static str)> {
    let (place, path) = (change.path.as_path(), path.as_path());
    let is_inside = path.starts_with(place) && path != place;
    match &change.kind {
        ChangeKind::Deleted if is_inside => Some((place, "deleted")),
        ChangeKind::Type { was: EntryType::Directory } if is_inside => Some((place, "replaced")),
        ChangeKind::Renamed { .. } if is_inside => Some((place, "renamed")),
        ChangeKind::Renamed { from } if !has_own && path.starts_with(from.as_path()) => Some((place, "renamed")),
        _ => None,
    }
}

/// Returns the change that takes this path along without naming it.
pub fn taken_along<'a>(path: &ByteText, changes: &'a [Change]) -> Option<&'a Change> {
    changes.iter().find(|change| whole(change, path, true).is_some())
}

fn unknown(path: &ByteText) -> PathError {
    PathError::Unknown { path: path.as_path().to_owned() }
}

/// Refuses a path argument that matches no change, for commands that only read.
pub fn must_match(chosen: &[ByteText], changes: &[Change]) -> Result<(), PathError> {
    for path in chosen {
        let touches = |change: &Change| {
            change.path.as_path().starts_with(path.as_path()) || path.as_path().starts_with(change.path.as_path())
        };
        if !changes.iter().any(touches) {
            return Err(unknown(path));
        }
    }
    Ok(())
}
