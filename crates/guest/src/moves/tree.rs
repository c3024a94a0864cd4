//! The content of a directory that moves: made again by links, and taken from the old place.

use super::entries::{MAX_DEPTH, directory, entry, facts, hash, is_directory, join, names};
use super::filter;
use super::names::{File, Names};
use super::place::Place;
use super::same;
use nexus_model::moving::Numbers;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Gid, Mode, RawMode, Statx, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Everything that was carried, and how each old entry looked right afterwards.
pub(super) struct Carried {
    mount: u64,
    numbers: Numbers,
    /// Hashes of paths and of [`facts`].
    entries: HashMap<u64, u64>,
    /// Names of files with several; read when the first one is met.
    names: Option<Names>,
    /// First paths at the new place of such files.
    twins: HashMap<File, Vec<u8>>,
    /// Set where `entries` has all of it.
    is_known: bool,
}

impl Carried {
    /// Stands for entries that another process carried: no facts of them are known but those at both places.
    pub(super) fn unknown() -> Self {
        let (entries, twins) = (HashMap::new(), HashMap::new());
        Self { mount: 0, numbers: Numbers::Unknown, entries, names: None, twins, is_known: false }
    }

    /// Fills `to`, which is empty, with what `from` holds, and makes it look like it.
    pub(super) fn make(from: &OwnedFd, to: &OwnedFd, mount: u64, numbers: Numbers) -> Result<Self, Errno> {
        let (entries, twins) = (HashMap::new(), HashMap::new());
        let mut carried = Self { mount, numbers, entries, names: None, twins, is_known: true };
        carried.fill(from, to, (from, to), &[], 0)?;
        Ok(carried)
    }

    fn fill(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        tops: (&OwnedFd, &OwnedFd),
        path: &[u8],
        depth: usize,
    ) -> Result<(), Errno> {
        if depth > MAX_DEPTH {
            return Err(Errno::XDEV);
        }
        for name in names(from)? {
            let found = entry(from, &name)?;
            if found.stx_mnt_id != self.mount {
                return Err(Errno::XDEV);
            }
            let path = join(path, &name);
            if is_directory(&found) {
                rustix::fs::mkdirat(to, OsStr::from_bytes(&name), Mode::RWXU)?;
                self.fill(&directory(from, &name)?, &directory(to, &name)?, tops, &path, depth + 1)?;
            } else {
                let is_first = self.link((from, &name), to, tops, &path, &found)?;
                // What is written to a further name now is parted from the file, and a file that comes to the old name now is
                // another one: neither has been carried.
                let carried = if is_first { entry(to, &name)? } else { found };
                self.entries.insert(hash(&path), facts(&carried));
            }
        }
        copy_metadata(from, to)
    }

    /// Files with several names keep them, also where the overlay would part them. Returns `false` for a further name.
    fn link(
        &mut self,
        (from, name): (&OwnedFd, &[u8]),
        to: &OwnedFd,
        (top_from, top_to): (&OwnedFd, &OwnedFd),
        path: &[u8],
        found: &Statx,
    ) -> Result<bool, Errno> {
        if found.stx_nlink > 1 && self.names.is_none() {
            self.names = Some(Names::of(top_from, self.numbers)?);
        }
        let file = self.names.as_ref().and_then(|names| names.file(path, found)).cloned();
        let Some(first) = file.as_ref().and_then(|file| self.twins.get(file)) else {
            link(from, name, to, name)?;
            self.twins.extend(file.map(|file| (file, path.to_vec())));
            return Ok(true);
        };
        // Opened part by part: a path may be longer than the kernel takes.
        let (above, first) = first.split_at(first.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
        let above = above.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let above = above.into_iter().try_fold(copy(top_to)?, |at, part| directory(&at, part))?;
        link(&above, first, to, name).map(|()| false)
    }

    /// Removes from the old place what is at the new one. What came to the old place meanwhile goes to the new one as well.
    pub(super) fn empty(&self, from: &OwnedFd, to: &OwnedFd) {
        self.empty_below(from, to, &[], 0);
    }

    fn empty_below(&self, from: &OwnedFd, to: &OwnedFd, path: &[u8], depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        open_up(from);
        for name in names(from).unwrap_or_default() {
            let Ok(found) = entry(from, &name) else { continue };
            let (path, text) = (join(path, &name), OsStr::from_bytes(&name));
            let at_new = entry(to, &name).ok();
            let is_other = !self.is_known && at_new.is_some();
            if is_directory(&found) {
                match (directory(from, &name), directory(to, &name)) {
                    (Ok(from_here), Ok(to_here)) => {
                        self.empty_below(&from_here, &to_here, &path, depth + 1);
                        // One that is not empty is looked at again.
                        rustix::fs::unlinkat(from, text, AtFlags::REMOVEDIR).ok();
                    }
                    _ => rename(from, to, &name),
                }
            } else if self.entries.get(&hash(&path)) == Some(&facts(&found))
                || at_new.is_some_and(|at_new| {
                    is_same_file(&found, &at_new)
                        || (!self.is_known && same::is_same((from, &found), (to, &at_new), &name))
                })
            {
                // Whatever hinders it, the file is at its new place.
                rustix::fs::unlinkat(from, text, AtFlags::empty()).ok();
            } else if !is_other {
                rename(from, to, &name);
            }
            // Else no process knows which of the two is the newer one: both stay.
        }
    }
}

/// Removes a directory that this process made, with all that is in it.
pub(super) fn remove(above: &OwnedFd, name: &OsStr) {
    if let Ok(inside) = directory(above, name.as_bytes()) {
        for one in names(&inside).unwrap_or_default() {
            let text = OsStr::from_bytes(&one);
            if rustix::fs::unlinkat(&inside, text, AtFlags::empty()) == Err(Errno::ISDIR) {
                remove(&inside, text);
            }
        }
    }
    // What stays is left out of the changes by its name.
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR).ok();
}

/// Two names of one file, whatever the overlay says about their inodes: the time of the last change is that of the file.
fn is_same_file(one: &Statx, other: &Statx) -> bool {
    let all = |found: &Statx| {
        let time = (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec);
        (time, found.stx_size, found.stx_nlink, found.stx_mode)
    };
    all(one) == all(other) && one.stx_nlink > 1
}

fn copy(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 3)
}

fn place(directory: &OwnedFd, name: &[u8]) -> Result<Place, Errno> {
    Ok(Place { directory: copy(directory)?, name: name.to_vec() })
}

fn link(from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> Result<(), Errno> {
    filter::link(&place(from, name)?, &place(to, new)?, 0)
}

/// Takes what came meanwhile along. What cannot go stays where it is.
fn rename(from: &OwnedFd, to: &OwnedFd, name: &[u8]) {
    if let (Ok(from), Ok(to)) = (place(from, name), place(to, name)) {
        filter::rename(&from, &to, 0).ok();
    }
}

/// A directory of its owner's that cannot be written to is emptied as well: rename(2) does not ask either.
fn open_up(directory: &OwnedFd) {
    if let Ok(found) = rustix::fs::fstat(directory)
        && found.st_mode & 0o300 != 0o300
    {
        rustix::fs::fchmod(directory, Mode::from_raw_mode((found.st_mode & 0o7777) | 0o300)).ok();
    }
}

/// Gives a new directory the owner, attributes, mode and times of the old one.
fn copy_metadata(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let (old, new) = (rustix::fs::fstat(from)?, rustix::fs::fstat(to)?);
    if old.st_uid != new.st_uid {
        return Err(Errno::XDEV);
    }
    if old.st_gid != new.st_gid {
        rustix::fs::fchown(to, None, Some(Gid::from_raw(old.st_gid)))?;
    }
    attributes(from, to)?;
    rustix::fs::fchmod(to, Mode::from_raw_mode((old.st_mode as RawMode) & 0o7777))?;
    let time = |seconds, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as i64 };
    let (last_access, last_modification) =
        (time(old.st_atime, old.st_atime_nsec), time(old.st_mtime, old.st_mtime_nsec));
    rustix::fs::futimens(to, &Timestamps { last_access, last_modification })
}

/// Attributes that move along. Those of the kernel's other parts come without help.
fn attribute_names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = vec![0u8; 64 * 1024];
    let length = match rustix::fs::flistxattr(directory, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    let moves = |name: &&[u8]| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
    Ok(list[..length].split(|byte| *byte == 0).filter(moves).map(<[u8]>::to_vec).collect())
}

fn attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let wanted = attribute_names(from)?;
    // The new directory may have inherited an access list.
    for name in attribute_names(to)?.iter().filter(|name| !wanted.contains(name)) {
        rustix::fs::fremovexattr(to, OsStr::from_bytes(name))?;
    }
    for name in wanted.iter().map(|name| OsStr::from_bytes(name)) {
        let mut value = vec![0u8; 64 * 1024];
        let length = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{StatxFlags, statx};
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    /// Two directories of a test, the first one with things in it.
    fn places(name: &str) -> (PathBuf, PathBuf) {
        let base = std::env::temp_dir().join(format!("nexus-carry-{name}-{}", std::process::id()));
        let (old, new) = (base.join("old"), base.join("new"));
        fs::create_dir_all(old.join("sub/closed")).unwrap();
        fs::create_dir_all(&new).unwrap();
        fs::write(old.join("a"), "a").unwrap();
        fs::hard_link(old.join("a"), old.join("sub/twin")).unwrap();
        fs::write(old.join("sub/closed/b"), "b").unwrap();
        symlink("nowhere", old.join("link")).unwrap();
        fs::set_permissions(old.join("sub/closed"), fs::Permissions::from_mode(0o555)).unwrap();
        (old, new)
    }

    /// Removes both directories, closed ones too.
    fn discard(new: &Path) {
        let removed = std::process::Command::new("rm").arg("-rf").arg(new.parent().unwrap()).status();
        assert!(removed.unwrap().success());
    }

    fn open(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    fn mount_of(path: &OwnedFd) -> u64 {
        statx(path, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).unwrap().stx_mnt_id
    }

    #[test]
    fn a_tree_is_carried_with_its_modes_times_links_and_twins() {
        let (old, new) = places("whole");
        let before = fs::metadata(old.join("sub")).unwrap();
        let (from, to) = (open(&old), open(&new));
        let carried = Carried::make(&from, &to, mount_of(&from), Numbers::OfFileSystem).unwrap();
        assert_eq!(fs::read(new.join("sub/closed/b")).unwrap(), b"b");
        assert_eq!(fs::metadata(new.join("a")).unwrap().ino(), fs::metadata(new.join("sub/twin")).unwrap().ino());
        assert_eq!(fs::read_link(new.join("link")).unwrap(), Path::new("nowhere"));
        assert_eq!(fs::metadata(new.join("sub/closed")).unwrap().mode() & 0o7777, 0o555);
        assert_eq!(fs::metadata(new.join("sub")).unwrap().modified().unwrap(), before.modified().unwrap());
        carried.empty(&from, &to);
        assert!(fs::read_dir(&old).unwrap().next().is_none());
        assert_eq!(fs::metadata(new.join("a")).unwrap().nlink(), 2);
        remove(&open(new.parent().unwrap()), OsStr::new("old"));
        discard(&new);
    }

    #[test]
    fn what_came_to_the_old_place_meanwhile_comes_along() {
        let (old, new) = places("meanwhile");
        let (from, to) = (open(&old), open(&new));
        let carried = Carried::make(&from, &to, mount_of(&from), Numbers::OfFileSystem).unwrap();
        fs::write(old.join("late"), "late").unwrap();
        fs::create_dir(old.join("sub/later")).unwrap();
        fs::write(old.join("other"), "other").unwrap();
        fs::rename(old.join("other"), old.join("a")).unwrap();
        carried.empty(&from, &to);
        assert!(fs::read_dir(&old).unwrap().next().is_none());
        assert_eq!(fs::read(new.join("late")).unwrap(), b"late");
        assert!(new.join("sub/later").is_dir());
        assert_eq!(fs::read(new.join("a")).unwrap(), b"other");
        assert_eq!(fs::read(new.join("sub/twin")).unwrap(), b"a");
        discard(&new);
    }

    #[test]
    fn a_tree_with_another_mount_in_it_is_not_carried() {
        let (old, new) = places("mount");
        let (from, to) = (open(&old), open(&new));
        assert_eq!(Carried::make(&from, &to, mount_of(&from) + 1, Numbers::OfFileSystem).err(), Some(Errno::XDEV));
        discard(&new);
    }
}
