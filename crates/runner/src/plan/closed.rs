//! Directories that a search cannot look through, although the command may use names in them.
//!
//! ```text
//!  mode 0111   the command uses the names that it knows
//!  mode 0444   its links are read and lead nowhere for the search
//!  mode 0000   its owner, who is the user inside, opens it by a chmod where the mount can be written
//! ```
//! An earlier run may have closed a directory so that the search of the next one misses what lies in it.

use rustix::fs::Access;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Reports whether a search sees all that lies in a directory: it can be listed, and its names can be used.
pub fn is_open(directory: &Path) -> bool {
    rustix::fs::access(directory, Access::READ_OK | Access::EXEC_OK).is_ok()
}

/// Reports whether the caller owns a directory, so that each process of theirs may open it.
pub fn is_own(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory).is_ok_and(|meta| meta.uid() == rustix::process::geteuid().as_raw())
}

/// Reports whether a directory that could not be listed hides names from the search that a command uses. `can_be_opened`: the
/// mount lets its owner change the mode.
pub fn hides_names(directory: &Path, error: &io::Error, can_be_opened: bool) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => false,
        io::ErrorKind::PermissionDenied => can_be_opened || rustix::fs::access(directory, Access::EXEC_OK).is_ok(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_listed_hides_names_unless_it_is_gone() {
        let top = tempfile::tempdir().unwrap();
        let hides = |path: &Path, kind| hides_names(path, &io::Error::from(kind), false);
        assert!(hides(top.path(), io::ErrorKind::PermissionDenied));
        assert!(!hides(&top.path().join("missing"), io::ErrorKind::PermissionDenied));
        assert!(!hides(top.path(), io::ErrorKind::NotFound));
        assert!(hides(top.path(), io::ErrorKind::Other));
        let closed = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(hides_names(&top.path().join("closed"), &closed, true), "its owner may open it");
        assert!(is_open(top.path()) && !is_open(&top.path().join("missing")));
    }
}
