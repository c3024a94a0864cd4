//! Resolves the path arguments of `nexus changes` relative to the current directory, as git does.

use crate::failure::Failure;
use nexus_model::ByteText;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Returns the chosen paths relative to the workspace; `None` for everything (no path, or the workspace itself).
pub fn read(paths: &[PathBuf], workspace: &Path) -> Result<Option<Vec<ByteText>>, Failure> {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    // A user who names a run from elsewhere means the workspace of that run.
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

/// Compares the names alone and follows no link: the change is at the path, and not at the target of a link.
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
