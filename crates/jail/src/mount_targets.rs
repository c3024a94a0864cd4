//! Targets of mounts: paths under a root, made where they are missing and the directory is ours.

use crate::mounts::{self, Depth};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens the target of a mount, and makes the directories (or the file) on the way where the root is ours.
pub fn ensure_place(root: &OwnedFd, path: &Path, is_dir: bool) -> io::Result<OwnedFd> {
    match mounts::place(root, path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        found => return found,
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        ensure_place(root, parent, true)?;
    }
    let (parent, name) = split(root, path)?;
    if is_dir {
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    }
    mounts::place(root, path)
}

fn split<'p>(root: &OwnedFd, path: &'p Path) -> io::Result<(OwnedFd, &'p [u8])> {
    let name = path.file_name().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?.as_bytes();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => mounts::place(root, parent)?,
        _ => root.try_clone()?,
    };
    Ok((parent, name))
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
    let mount = mounts::open_tree_fd(mounts::open_canonical(path)?, Depth::Recursive)?;
    mounts::set_attributes(&mount, attributes, Depth::Recursive)?;
    Ok(mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_path_is_its_top() {
        assert_eq!(top(below_root(Path::new("/srv/a/b"))), Path::new("srv"));
        assert_eq!(top(below_root(Path::new("/srv"))), Path::new("srv"));
        assert_eq!(top(below_root(Path::new("/"))), Path::new(""));
    }
}
