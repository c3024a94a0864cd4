//! Targets of mounts: paths under a root, made where they are missing and the directory is ours.

use crate::mounts::{self, Depth};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode};
use std::io;
use std::path::Path;

/// Opens the target of a mount, and makes the directories (or the file) on the way where the root is ours.
pub fn ensure_place(root: &OwnedFd, path: &Path, is_dir: bool) -> io::Result<OwnedFd> {
    match mounts::place(root, path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        found => return found,
    }
    let name = path.file_name().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let above = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => Some(ensure_place(root, parent, true)?),
        None => None,
    };
    let parent = above.as_ref().unwrap_or(root);
    if is_dir {
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    } else {
        rustix::fs::mknodat(parent, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?;
    }
    mounts::place(parent, Path::new(name))
}

/// Returns the first component of a path.
pub fn top(path: &Path) -> &Path {
    path.iter().next().map_or(Path::new(""), Path::new)
}

/// Strips the leading slash of a path in the sandbox.
pub fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Renders a path for messages.
pub fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Returns whether a descriptor is a directory.
pub fn is_dir(fd: impl AsFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Directory)
}

/// Opens a host directory or file as a detached mount.
pub fn open_source(path: &Path, attributes: u64) -> io::Result<OwnedFd> {
    mounts::open_tree_fd(mounts::open_canonical(path)?, attributes, Depth::Recursive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_place_is_made_in_the_directories_above_it_and_through_no_link() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("there")).unwrap();
        symlink("there", base.path().join("link")).unwrap();
        let root = mounts::open_path(base.path()).unwrap();
        let made = |path: &str, is_directory| ensure_place(&root, Path::new(path), is_directory).and_then(is_dir);
        assert!(made("a/b/c", true).unwrap() && made("there/new", true).unwrap() && made("top", true).unwrap());
        assert!(!made("a/b/file", false).unwrap() && base.path().join("a/b/file").is_file());
        assert!(made("a/b/c", true).unwrap(), "what is there is taken");
        for refused in ["link/x", "link/x/y", "../x", "a/../../x"] {
            assert!(made(refused, true).is_err(), "{refused}");
        }
        assert!(!base.path().join("there/x").exists());
    }

    #[test]
    fn the_first_part_of_a_path_is_its_top() {
        assert_eq!(top(below_root(Path::new("/srv/a/b"))), Path::new("srv"));
        assert_eq!(top(below_root(Path::new("/srv"))), Path::new("srv"));
        assert_eq!(top(below_root(Path::new("/"))), Path::new(""));
    }
}
