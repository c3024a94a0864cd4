//! Paths on the command line of `nexus changes`: from where the caller stands, as git takes them.

use crate::failure::Failure;
use nexus_layer::meta::EntryType;
use nexus_layer::{Change, ChangeKind};
use nexus_model::ByteText;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Returns the chosen paths relative to the workspace; `None` for everything (no path, or the workspace itself).
pub fn read(paths: &[PathBuf], workspace: &Path) -> Result<Option<Vec<ByteText>>, Failure> {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    // Somebody who names a run from elsewhere means the workspace of that run.
    let base = if here.starts_with(workspace) { here } else { workspace.to_owned() };
    let mut chosen = Vec::with_capacity(paths.len());
    for path in paths {
        let relative = inside(&base.join(path), workspace).ok_or_else(|| {
            let message = format!("{} is not in the workspace {}", path.display(), workspace.display());
            Failure::usage("paths", message, "name paths as nexus changes show prints them")
        })?;
        if relative.as_os_str().is_empty() {
            return Ok(None);
        }
        chosen.push(ByteText(relative.as_os_str().as_bytes().to_vec()));
    }
    Ok(if chosen.is_empty() { None } else { Some(chosen) })
}

/// By the names alone: what a link leads to is not what changed.
fn inside(path: &Path, workspace: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain.strip_prefix(workspace).ok().map(Path::to_owned)
}

/// Refuses a path that cannot be decided about: one that no change has, and one inside a directory that was deleted,
/// replaced or renamed as a whole. Neither may look like a decision.
pub fn must_stand_alone(chosen: &[ByteText], changes: &[Change]) -> Result<(), Failure> {
    for path in chosen {
        let name = path.as_path().display();
        let has_own = changes.iter().any(|change| change.path.as_path().starts_with(path.as_path()));
        if let Some((whole, what)) = changes.iter().find_map(|change| whole(change, path, has_own)) {
            let whole = whole.display();
            let message =
                format!("{name} can only be accepted or rejected together with {whole}, which was {what} as a whole");
            return Err(Failure::usage("paths", message, format!("nothing was changed; name {whole}, or nothing")));
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

fn unknown(path: &ByteText) -> Failure {
    let message = format!("nothing that waits has the path {}", path.as_path().display());
    Failure::usage("paths", message, "nexus changes show lists what waits")
}

/// Refuses a path that no change has or lies in, for a look.
pub fn must_match(chosen: &[ByteText], changes: &[Change]) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_by_its_names_and_stays_inside() {
        let workspace = Path::new("/srv/w");
        assert_eq!(inside(Path::new("/srv/w/a/../b/./c"), workspace), Some("b/c".into()));
        assert_eq!(inside(Path::new("/srv/w"), workspace), Some("".into()));
        assert_eq!(inside(Path::new("/srv/w/../x"), workspace), None);
        assert_eq!(inside(Path::new("/etc/passwd"), workspace), None);
    }

    #[test]
    fn naming_the_workspace_means_everything() {
        assert_eq!(read(&[], Path::new("/srv/w")).unwrap(), None);
        assert_eq!(read(&["/srv/w".into()], Path::new("/srv/w")).unwrap(), None);
        assert_eq!(read(&["/srv/w/a/".into()], Path::new("/srv/w")).unwrap(), Some(vec!["a".into()]));
        assert!(read(&["/etc".into()], Path::new("/srv/w")).is_err());
    }
}
