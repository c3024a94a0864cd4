//! The data directory of a control plane or a daemon: made, or looked at before anything in it is used.
//!
//! A user who can write to it, or can move it or a directory above it away, decides what the control plane holds: its keys,
//! its directives, its territories.

use crate::failure::Failure;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The parts that a control plane reads first, where they exist. All else is below directories of these.
const PARTS: &[&str] = &["mothership", "mothership/mothership.db", "mothership.db", "blobs", "mothership/blobs"];

/// The user who may decide about a directory beside root, with the group.
#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// Makes the directory where it is missing, and returns its real path. Refuses one that another user decides about.
pub fn open(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| refused(&format!("{} cannot be used: {error}", path.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    existing(path)
}

/// Returns the real path of a directory that is there, by the same rules.
pub fn existing(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| refused(&format!("{} cannot be used: {error}", path.display()));
    let real = path.canonicalize().map_err(failed)?;
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let mut below = real.symlink_metadata().map_err(failed)?;
    if below.is_dir() && below.uid() != owner.uid {
        return Err(of_another_user(&real, Owner { uid: below.uid(), gid: below.gid() }));
    }
    if !is_own(&below, owner) {
        return Err(refused(&format!("{} is not a directory that only you can write", real.display())));
    }
    for directory in real.ancestors().skip(1) {
        let found = directory.symlink_metadata().map_err(failed)?;
        if !is_safe_above(&found, &below, owner) {
            let message = format!("another user can put something else in the place of {}", real.display());
            return Err(refused(&format!("{message}: {} is open to others", directory.display())));
        }
        below = found;
    }
    for part in PARTS.iter().map(|part| real.join(part)) {
        match part.symlink_metadata() {
            Ok(found) if is_own(&found, owner) => {}
            Ok(_) => return Err(refused(&format!("{} is not yours alone to write", part.display()))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(real)
}

/// Reports whether an entry is the caller's own and closed to the writing of others. A link says nothing about its end.
fn is_own(found: &Metadata, owner: Owner) -> bool {
    !found.is_symlink() && found.uid() == owner.uid && found.mode() & 0o022 == 0
}

/// Reports whether in a directory no user but root and the caller can replace an entry. In a sticky one, such as `/tmp`, only its
/// owner and the entry's can.
fn is_safe_above(directory: &Metadata, entry: &Metadata, owner: Owner) -> bool {
    let is_trusted = |uid: u32| uid == 0 || uid == owner.uid;
    let mode = directory.mode();
    // A group of the user's own is usual, and so are directories that it can write.
    let is_foreign_group = mode & 0o020 != 0 && directory.gid() != 0 && directory.gid() != owner.gid;
    let is_open = mode & 0o002 != 0 || is_foreign_group;
    is_trusted(directory.uid()) && (!is_open || (mode & 0o1000 != 0 && is_trusted(entry.uid())))
}

/// Root does not work in a directory of another user either: what it wrote there would not be that user's.
fn of_another_user(real: &Path, owner: Owner) -> Failure {
    let Owner { uid, gid } = owner;
    let message = format!("{} belongs to the user with the id {uid}", real.display());
    let hint = format!(
        "As root, put this before the same command: setpriv --reuid {uid} --regid {gid} --clear-groups. Or `sudo -u '#{uid}'`."
    );
    Failure::refused("data_dir", message, &hint)
}

fn refused(message: &str) -> Failure {
    Failure::refused("data_dir", message, "chmod 700 it if it is yours, or name a directory in your home.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_of_the_callers_own_is_taken_and_made() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let made = open(&base.join("a/b")).unwrap();
        assert_eq!((made.clone(), made.metadata().unwrap().mode() & 0o777), (base.join("a/b"), 0o700));
        // In a sticky directory only the owner of an entry moves it.
        mode(&base.join("a"), 0o1777);
        open(&base.join("a/b")).unwrap();
        // By a link of the caller's own.
        symlink("a/b", base.join("link")).unwrap();
        assert_eq!(open(&base.join("link")).unwrap(), base.join("a/b"));
    }

    #[test]
    fn one_that_others_can_write_or_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let data = base.join("a/b");
        open(&data).unwrap();
        let refusal = || open(&data).unwrap_err().message;
        mode(&base.join("a"), 0o777);
        assert!(refusal().contains("is open to others"), "{}", refusal());
        mode(&base.join("a"), 0o755);
        for open_to in [0o770, 0o702] {
            mode(&data, open_to);
            assert!(refusal().contains("only you can write"), "{open_to:o}: {}", refusal());
        }
        mode(&data, 0o700);
        for part in ["mothership", "blobs"] {
            std::fs::create_dir(base.join("other")).unwrap();
            symlink(base.join("other"), data.join(part)).unwrap();
            assert!(refusal().contains("yours alone"), "{}", refusal());
            std::fs::remove_file(data.join(part)).unwrap();
            std::fs::rename(base.join("other"), data.join(part)).unwrap();
            mode(&data.join(part), 0o777);
            assert!(refusal().contains("yours alone"), "{}", refusal());
            mode(&data.join(part), 0o755);
        }
        std::fs::write(data.join("mothership/mothership.db"), "").unwrap();
        mode(&data.join("mothership/mothership.db"), 0o666);
        assert!(refusal().contains("mothership.db is not yours alone"), "{}", refusal());
        mode(&data.join("mothership/mothership.db"), 0o600);
        open(&data).unwrap();
    }

    #[test]
    fn a_directory_of_another_user_names_the_owner_and_a_missing_one_is_not_made() {
        let failure = of_another_user(Path::new("/var/lib/x"), Owner { uid: 4711, gid: 4712 });
        assert_eq!(failure.message, "/var/lib/x belongs to the user with the id 4711");
        assert!(failure.text().contains("setpriv --reuid 4711 --regid 4712"), "{}", failure.text());
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        existing(&base.join("nowhere")).unwrap_err();
        assert!(!base.join("nowhere").exists());
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir(base.join("foreign")).unwrap();
            mode(&base.join("foreign"), 0o700);
            std::os::unix::fs::chown(base.join("foreign"), Some(4711), Some(4711)).unwrap();
            let failure = open(&base.join("foreign")).unwrap_err();
            assert!(failure.text().contains("setpriv --reuid 4711"), "{}", failure.text());
        }
    }

    #[test]
    fn owners_above_count() {
        // Facts of directories of root and of this user, compared as another user would.
        let dir = tempfile::tempdir().unwrap();
        let (root, own) = (Path::new("/").metadata().unwrap(), dir.path().metadata().unwrap());
        let owner = Owner { uid: own.uid(), gid: own.gid() };
        let stranger = Owner { uid: own.uid() + 4711, gid: own.gid() + 4711 };
        assert!(is_safe_above(&own, &own, owner) && is_safe_above(&root, &own, stranger));
        let of_other = own.uid() == 0 || !is_safe_above(&own, &own, stranger);
        assert!(of_other && !is_own(&own, stranger) && is_own(&own, owner));
    }
}
