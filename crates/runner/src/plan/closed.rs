//! Directories that a search cannot look through, although the command may use names in them.
//!
//! ```text
//!  mode 0111   the command uses the names that it knows
//!  mode 0444   its links are read and lead nowhere for the search
//!  mode 0000   its owner, who is the user inside, opens it by a chmod where the mount can be written
//! ```
//! An earlier run may have closed a directory so that the search of the next one misses what lies in it.

use crate::plan::access_list;
use nexus_model::plan::FileId;
use nexus_model::stamp::{GRAIN, Stamp, is_recent};
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

/// Returns what tells a directory later from one in which a name has changed, if some user may use names in it and not list them.
/// It is looked at before it is listed. One that has just changed is waited for once, and has no stamp if it changes on.
pub fn entered_only(directory: &Path, has_waited: &mut bool) -> Option<(FileId, Option<Stamp>)> {
    let about = std::fs::symlink_metadata(directory).ok()?;
    let (listed, entered) = (about.mode() >> 2 & 0o111, about.mode() & 0o111);
    if entered & !listed == 0 && !access_list::lets_some_only_enter(directory) {
        return None;
    }
    let changed = (about.ctime(), u32::try_from(about.ctime_nsec()).ok()?);
    // Seconds would be too long to wait.
    if changed.1 != 0 && is_recent(changed, now()) && !std::mem::replace(has_waited, true) {
        std::thread::sleep(GRAIN + GRAIN);
    }
    let stamp = (!is_recent(changed, now())).then_some(changed);
    Some((FileId { device: about.dev(), inode: about.ino() }, stamp))
}

/// Returns the time of the clock by which the kernel stamps files.
pub fn now() -> Stamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_only_entered_has_another_stamp_after_a_change() {
        use std::os::unix::fs::PermissionsExt as _;
        let top = tempfile::tempdir().unwrap();
        let mode = |mode| std::fs::set_permissions(top.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        for (bits, is_entered_only) in
            [(0o711, true), (0o710, true), (0o751, true), (0o755, false), (0o700, false), (0o744, false)]
        {
            mode(bits);
            assert_eq!(entered_only(top.path(), &mut false).is_some(), is_entered_only, "{bits:o}");
        }
        mode(0o711);
        let before = entered_only(top.path(), &mut false).unwrap();
        assert!(before.1.is_some());
        assert_eq!(entered_only(top.path(), &mut true), Some(before));
        std::fs::write(top.path().join("x"), "").unwrap();
        let changing = entered_only(top.path(), &mut true);
        assert_eq!(changing, Some((before.0, None)), "another change may have the same time");
        assert_ne!(entered_only(top.path(), &mut false).unwrap(), before);
        mode(0o700);
    }

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
