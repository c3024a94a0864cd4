//! The tree that layers are unpacked into: each change is made below its descriptor, over no symbolic link.
//!
//! A layer may have a link where a later entry has a directory (CVE-2018-15664 and its like). Nothing follows it: a directory is
//! reached by openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, an entry by its single name below that.

use crate::entry;
use crate::error::{At as _, ImageError};
use nexus_beneath::{join, names, open_dir, split};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

/// A tree while layers are unpacked into it.
pub struct Tree {
    root: OwnedFd,
    /// The paths that the layer at hand made, and those above them: its whiteouts leave them alone.
    made: HashSet<Vec<u8>>,
    path_bytes: usize,
    max_path_bytes: usize,
}

impl Tree {
    /// Opens an empty directory as a tree.
    pub fn open(path: &Path, max_path_bytes: usize) -> Result<Self, ImageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).at("open", path)?;
        Ok(Self { root, made: HashSet::new(), path_bytes: 0, max_path_bytes })
    }

    /// Begins the next layer.
    pub fn next_layer(&mut self) {
        self.made.clear();
        self.path_bytes = 0;
    }

    /// Writes everything to the disk.
    pub fn sync(&self) -> Result<(), ImageError> {
        rustix::fs::syncfs(&self.root).on("write to the disk", b"")
    }

    /// Makes a directory, or keeps the one that is there.
    pub fn directory(&mut self, path: &[u8], mode: u32) -> Result<(), ImageError> {
        let (parent, name) = self.place(path)?;
        // Its owner, who is this user, can always clear it up.
        let mode = Mode::from_raw_mode(mode & 0o777 | 0o700);
        match open_dir(parent.as_fd(), name, OFlags::RDONLY) {
            Ok(there) => return rustix::fs::fchmod(there, mode).on("change the mode of", path),
            Err(error) if is_absent(&error) => {}
            Err(error) if is_no_directory(&error) => remove(parent.as_fd(), name, path)?,
            Err(error) => return Err(error).on("open", path),
        }
        rustix::fs::mkdirat(&parent, name, mode).on("make the directory", path)?;
        // mkdir(2) applies the umask.
        let made = open_dir(parent.as_fd(), name, OFlags::RDONLY).on("open", path)?;
        rustix::fs::fchmod(made, mode).on("change the mode of", path)
    }

    /// Makes a new file in place of what is there, for its content.
    pub fn file(&mut self, path: &[u8]) -> Result<File, ImageError> {
        let (parent, name) = self.place(path)?;
        remove(parent.as_fd(), name, path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        Ok(File::from(rustix::fs::openat(&parent, name, flags, mode).on("make the file", path)?))
    }

    /// Makes a symbolic link in place of what is there. Nothing here follows it.
    pub fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), ImageError> {
        let (parent, name) = self.place(path)?;
        remove(parent.as_fd(), name, path)?;
        rustix::fs::symlinkat(target, &parent, name).on("make the symbolic link", path)
    }

    /// Makes a hard link to a file of the tree in place of what is there.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ImageError> {
        let (dir, target_name) = split(target);
        let from = match open_dir(self.root.as_fd(), dir, OFlags::PATH) {
            Err(error) if is_no_directory(&error) => return Err(no_way(path)),
            other => other.on("open the directory of the target of", path)?,
        };
        if path == target {
            return Err(entry::refused(path, "it is a hard link to itself"));
        }
        let (parent, name) = self.place(path)?;
        remove(parent.as_fd(), name, path)?;
        // Without AT_SYMLINK_FOLLOW the link itself is meant, if it is one.
        rustix::fs::linkat(&from, target_name, &parent, name, AtFlags::empty()).on("make the hard link", path)
    }

    /// Removes what lower layers have at a place.
    pub fn whiteout(&mut self, path: &[u8]) -> Result<(), ImageError> {
        let (dir, name) = split(path);
        match open_dir(self.root.as_fd(), dir, OFlags::RDONLY) {
            Ok(parent) => self.remove_lower(parent.as_fd(), name, path),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) if is_no_directory(&error) => Err(no_way(path)),
            Err(error) => Err(error).on("open the directory of", path),
        }
    }

    /// Removes what lower layers have in a directory.
    pub fn opaque(&mut self, path: &[u8]) -> Result<(), ImageError> {
        match open_dir(self.root.as_fd(), path, OFlags::RDONLY) {
            Ok(dir) => self.clear_lower(dir.as_fd(), path),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) if is_no_directory(&error) => Err(no_way(path)),
            Err(error) => Err(error).on("open", path),
        }
    }

    fn clear_lower(&self, dir: BorrowedFd<'_>, path: &[u8]) -> Result<(), ImageError> {
        for name in names(dir).on("list", path)? {
            self.remove_lower(dir, &name, &join(path, &name))?;
        }
        Ok(())
    }

    /// Removes an entry unless this layer made it; of a directory above such an entry only the rest of its content.
    fn remove_lower(&self, parent: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<(), ImageError> {
        if !self.made.contains(path) {
            return remove(parent, name, path);
        }
        match open_dir(parent, name, OFlags::RDONLY) {
            Ok(dir) => self.clear_lower(dir.as_fd(), path),
            Err(error) if is_no_directory(&error) || is_absent(&error) => Ok(()),
            Err(error) => Err(error).on("open", path),
        }
    }

    /// Opens the directory of an entry that this layer makes, and makes it where it is missing.
    fn place<'p>(&mut self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), ImageError> {
        self.note(path)?;
        let (dir, name) = split(path);
        Ok((self.parent(dir)?, name))
    }

    fn parent(&self, dir: &[u8]) -> Result<OwnedFd, ImageError> {
        match open_dir(self.root.as_fd(), dir, OFlags::RDONLY) {
            Err(error) if is_absent(&error) && !dir.is_empty() => {
                let (above, name) = split(dir);
                let above = self.parent(above)?;
                let mode = Mode::from_raw_mode(0o755);
                rustix::fs::mkdirat(&above, name, mode).on("make the directory", dir)?;
                let made = open_dir(above.as_fd(), name, OFlags::RDONLY).on("open", dir)?;
                rustix::fs::fchmod(&made, mode).on("change the mode of", dir)?;
                Ok(made)
            }
            Err(error) if is_no_directory(&error) => Err(no_way(dir)),
            other => other.on("open", dir),
        }
    }

    fn note(&mut self, path: &[u8]) -> Result<(), ImageError> {
        let mut rest = path;
        while !rest.is_empty() && self.made.insert(rest.to_vec()) {
            self.path_bytes += rest.len();
            rest = split(rest).0;
        }
        if self.path_bytes > self.max_path_bytes {
            let most = self.max_path_bytes as u64;
            return Err(ImageError::TooMuch { what: "bytes of the paths of one layer".to_owned(), most });
        }
        Ok(())
    }
}

/// Gives a new file its mode, without setuid, setgid and sticky bits, and its time.
pub fn finish_file(file: &File, path: &[u8], mode: u32, seconds: u64) -> Result<(), ImageError> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o777)).on("change the mode of", path)?;
    let time = Timespec { tv_sec: i64::try_from(seconds).unwrap_or(0), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(file, &times).on("set the time of", path)
}

/// Removes an entry, a directory with all that is in it; a missing one is fine.
fn remove(parent: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<(), ImageError> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error).on("remove", path),
    }
    let dir = open_dir(parent, name, OFlags::RDONLY).on("open", path)?;
    for inner in names(dir.as_fd()).on("list", path)? {
        remove(dir.as_fd(), &inner, &join(path, &inner))?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).on("remove the directory", path)
}

fn no_way(path: &[u8]) -> ImageError {
    entry::refused(path, "on its way lies a symbolic link or a file")
}

fn is_absent(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

fn is_no_directory(error: &std::io::Error) -> bool {
    [Errno::NOTDIR, Errno::LOOP].iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}
