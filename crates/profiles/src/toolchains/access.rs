//! Finds out whether other users can write to a directory of PATH.

use crate::host::Host;
use crate::owned::is_owner;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Reports whether another user could put a program into this directory, or another directory in its place. The path
/// has its links resolved.
pub(super) fn is_open_to_others(caller: &Host, directory: &Path) -> bool {
    directory.ancestors().enumerate().any(|(above, path)| {
        let Ok(meta) = path.metadata() else { return true };
        // A directory with the sticky bit lets others make entries and leaves those of their owners alone.
        let is_kept = above > 0 && meta.mode() & 0o1000 != 0;
        // Many systems give each user a group of the same number, which holds that user alone.
        let by_group = meta.mode() & 0o020 != 0 && meta.gid() != 0 && meta.gid() != caller.uid;
        !is_owner(caller, meta.uid()) || (!is_kept && (meta.mode() & 0o002 != 0 || by_group))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_can_write_to_or_replace_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let bin = root.join("tools/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(&bin, 0o755);
        mode(&root.join("tools"), 0o755);
        assert!(!is_open_to_others(&host(), &bin));
        mode(&bin, 0o757);
        assert!(is_open_to_others(&host(), &bin));
        mode(&bin, 0o1777);
        assert!(is_open_to_others(&host(), &bin), "others can add a program");
        mode(&bin, 0o755);
        mode(&root.join("tools"), 0o777);
        assert!(is_open_to_others(&host(), &bin), "others can replace it");
        mode(&root.join("tools"), 0o1777);
        assert!(!is_open_to_others(&host(), &bin));
        let other = Host { uid: host().uid + 1, ..host() };
        assert!(host().uid == 0 || is_open_to_others(&other, &bin), "it is another user's");
        assert!(is_open_to_others(&host(), &root.join("missing")));
    }
}
