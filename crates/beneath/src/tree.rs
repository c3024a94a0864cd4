//! Every access to a hostile tree: below a directory descriptor, one mount, no link on the way.
//!
//! A path that was checked and then used can be swapped for a link in between (Go `filepath` and `EvalSymlinks` users,
//! runc CVE-2021-30465, OpenClaw #105430). So a directory is reached by `openat2(2)` with RESOLVE_BENEATH,
//! RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV, and its entries only by a single name relative to that descriptor.

use crate::meta::{Meta, stat};
use nexus_model::ByteText;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A call on one entry failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path:?}")]
pub struct IoFailure {
    /// Operation that was tried.
    pub doing: &'static str,
    /// On which entry, relative to its tree.
    pub path: ByteText,
    /// Error with which the operation failed.
    #[source]
    pub source: io::Error,
}

/// Adds what was tried to an error.
pub trait Doing<T> {
    /// Names the attempt and its entry.
    fn doing(self, doing: &'static str, path: &[u8]) -> Result<T, IoFailure>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str, path: &[u8]) -> Result<T, IoFailure> {
        self.map_err(|source| IoFailure { doing, path: ByteText(path.to_vec()), source: source.into() })
    }
}

/// Longest path of a directory that is copied, in bytes; [`MAX_LEVELS`] limits its names. The work for a chain of
/// directories grows with the square of its depth.
const MAX_PATH: usize = 16 << 10;
const MAX_LEVELS: usize = 256;

/// Refuses a directory that lies too deep.
pub fn check_depth(path: &[u8]) -> io::Result<()> {
    if path.len() <= MAX_PATH && path.split(|byte| *byte == b'/').count() <= MAX_LEVELS {
        return Ok(());
    }
    let begin = String::from_utf8_lossy(path.get(..40).unwrap_or(path)).into_owned();
    Err(io::Error::other(format!(
        "below {begin:?} lie directories whose paths have more than {MAX_PATH} bytes or {MAX_LEVELS} names"
    )))
}

/// The longest path, from the root, that programs of the host reach by its name: PATH_MAX without the byte that ends
/// it.
pub const MAX_NAMED: usize = 4095;

/// Refuses an entry of the tree at `top` that no program of the host could reach by its path.
pub fn check_named(top: &Path, path: &[u8]) -> io::Result<()> {
    if top.as_os_str().len() + 1 + path.len() <= MAX_NAMED {
        return Ok(());
    }
    let begin = String::from_utf8_lossy(path.get(..40).unwrap_or(path)).into_owned();
    Err(io::Error::other(format!(
        "below {begin:?} lie files or directories whose paths have more than {MAX_NAMED} bytes"
    )))
}

/// The longest piece of a path that is given to the kernel at once; PATH_MAX is 4096 and a tree may be deeper.
const PIECE: usize = 3500;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Takes (`true`) or releases a read lease on an open file (`F_SETLEASE`, fcntl(2)). Taking it fails with EAGAIN while
/// any process has the file open for writing.
pub type LeaseCall = fn(BorrowedFd<'_>, bool) -> io::Result<()>;

/// Records the modes of directories that are opened up, before they are.
pub trait Noting: std::fmt::Debug + Send + Sync {
    /// Records the mode of the directory at `path`, which is then opened up.
    fn add(&self, path: &[u8], mode: u32) -> io::Result<()>;
}

/// A directory tree and the descriptor that everything in it is reached through.
#[derive(Debug)]
pub struct Workspace {
    fd: OwnedFd,
    /// The path it was opened by, for people.
    path: std::path::PathBuf,
    leases: Option<LeaseCall>,
    /// Notes of the modes of directories that are opened up.
    forced: Option<Box<dyn Noting>>,
}

impl Workspace {
    /// Opens the root of a tree. The path is the caller's own choice, not the tenant's, so links in it are followed.
    pub fn open(path: &Path) -> Result<Self, IoFailure> {
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .doing("open the directory", path.as_os_str().as_encoded_bytes())?;
        Ok(Self { path: path.to_owned(), ..Self::from_fd(fd) })
    }

    /// Lets a commit find out with this call which files a process has open for writing.
    #[must_use]
    pub fn with_leases(self, call: LeaseCall) -> Self {
        Self { leases: Some(call), ..self }
    }

    /// Notes the mode of each directory before it is opened up, so that it can be set again, also after a kill.
    #[must_use]
    pub fn noting(self, notes: impl Noting + 'static) -> Self {
        Self { forced: Some(Box::new(notes)), ..self }
    }

    /// Returns the call that takes leases, if there is one.
    pub fn leases(&self) -> Option<LeaseCall> {
        self.leases
    }

    /// Returns the path that it was opened by; another directory may have this name by now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the attributes of the open directory itself, whatever its path means by now.
    pub fn root_meta(&self) -> Result<Meta, IoFailure> {
        stat(self.fd(), b"").doing("look at", b"")
    }

    /// Takes a directory that is already open (not `O_PATH`).
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd, path: std::path::PathBuf::new(), leases: None, forced: None }
    }

    /// Returns the descriptor of the top directory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens the directory at `path`, usable as the start of calls on its entries (`O_PATH`).
    pub fn dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        open_dir(self.fd(), path, OFlags::PATH)
    }

    /// Opens the directory at `path` for reading.
    pub fn readable_dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        open_dir(self.fd(), path, OFlags::RDONLY)
    }

    /// Opens a directory as [`Self::dir`] does; directories on the way that keep their owner out are opened up first.
    /// Only for a tree whose modes are set again afterwards or that is going away.
    pub fn dir_by_force(&self, path: &[u8]) -> io::Result<OwnedFd> {
        match self.dir(path) {
            Ok(dir) if may_enter(dir.as_fd())? => return Ok(dir),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
        let mut at = open_dir(self.fd(), b"", OFlags::PATH)?;
        let mut reached = Vec::new();
        self.force(at.as_fd(), &reached)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = open_dir(at.as_fd(), name, OFlags::PATH)?;
            reached = join(&reached, name);
            self.force(at.as_fd(), &reached)?;
        }
        Ok(at)
    }

    /// Opens a directory as [`Self::dir_by_force`] does; `None` where the directory is gone.
    pub fn dir_by_force_if_there(&self, path: &[u8]) -> io::Result<Option<OwnedFd>> {
        match self.dir_by_force(path) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn force(&self, dir: BorrowedFd<'_>, path: &[u8]) -> io::Result<()> {
        if let Some(notes) = &self.forced
            && !may_enter(dir)?
        {
            notes.add(path, stat(dir, b"")?.mode)?;
        }
        widen(dir)
    }

    /// Returns the attributes of the entry at `path`; `None` if there is none.
    pub fn stat(&self, path: &[u8]) -> io::Result<Option<Meta>> {
        let (parent, name) = split(path);
        let dir = match self.dir(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        crate::meta::stat_if_there(dir.as_fd(), name)
    }
}

/// Reports whether a path leads nowhere: a part of it is missing, or is not a directory (any more).
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reports whether a path leads over another mount, which RESOLVE_NO_XDEV refuses.
pub fn is_other_mount(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

/// Reports whether an error means that this user can reach nothing at a place.
pub fn is_no_way(error: &io::Error) -> bool {
    is_gone(error)
        || is_other_mount(error)
        || error.kind() == io::ErrorKind::PermissionDenied
        || [Errno::LOOP, Errno::NAMETOOLONG].iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

/// Opens the directory at `path` below `root`, over no link and on the same mount.
pub fn open_dir(root: BorrowedFd<'_>, path: &[u8], access: OFlags) -> io::Result<OwnedFd> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let open = |at: BorrowedFd<'_>, piece: &[u8], access: OFlags| -> io::Result<OwnedFd> {
        let piece: &[u8] = if piece.is_empty() { b"." } else { piece };
        Ok(rustix::fs::openat2(at, piece, DIRECTORY | access, Mode::empty(), resolve)?)
    };
    let mut rest = path;
    let mut at: Option<OwnedFd> = None;
    while rest.len() > PIECE {
        let cut = rest[..PIECE].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let next = open(at.as_ref().map_or(root, AsFd::as_fd), &rest[..cut], OFlags::PATH)?;
        at = Some(next);
        rest = &rest[cut + 1..];
    }
    open(at.as_ref().map_or(root, AsFd::as_fd), rest, access)
}

/// Reports whether the owner's bits let this process work in a directory; root does not need them.
pub fn may_enter(dir: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::process::geteuid().is_root() || stat(dir, b"")?.mode & 0o700 == 0o700)
}

/// Opens a directory up for its owner.
pub fn widen(dir: BorrowedFd<'_>) -> io::Result<()> {
    if !may_enter(dir)? {
        let mode = stat(dir, b"")?.mode;
        chmod(dir, mode | 0o700)?;
    }
    Ok(())
}

/// Changes the mode of an open entry, also one opened with `O_PATH` (which fchmod(2) refuses).
pub fn chmod(entry: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::chmod(proc_path(entry), Mode::from_raw_mode(mode))?)
}

/// Returns the name of an open descriptor in /proc: a magic link to the very inode, so nothing can be swapped under it.
pub fn proc_path(entry: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", entry.as_raw_fd())
}

/// Opens one entry without following a link, for changes of its attributes.
pub fn pin(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a regular file. `O_NONBLOCK`, or a FIFO put in its place would stop us for ever; the type is checked after the
/// open, on the descriptor.
pub fn open_file(dir: BorrowedFd<'_>, name: &[u8], access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    if stat(file.as_fd(), b"")?.kind != crate::meta::EntryType::File {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Lists the names in an open directory, without `.` and `..`.
pub fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    names_of(dir, |_| true)
}

/// Lists the names in an open directory that may be directories: those of another type are left out where the file system tells it.
pub fn directory_names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    names_of(dir, |file_type| matches!(file_type, FileType::Directory | FileType::Unknown))
}

fn names_of(dir: BorrowedFd<'_>, is_wanted: impl Fn(FileType) -> bool) -> io::Result<Vec<Vec<u8>>> {
    let mut buffer: Vec<u8> = Vec::with_capacity(32 * 1024);
    let mut names = Vec::new();
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && is_wanted(entry.file_type()) {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Reports whether a directory has no entry; reads one buffer only.
pub fn is_empty(dir: BorrowedFd<'_>) -> io::Result<bool> {
    let mut buffer: Vec<u8> = Vec::with_capacity(1024);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Unlinks an entry that is not a directory; a missing entry is fine.
pub fn unlink_if_there(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Splits a path into (directory, name).
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Returns the path of `name` in the directory `path`.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return name.to_vec();
    }
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    joined.push(b'/');
    joined.extend_from_slice(name);
    joined
}

/// Reports whether `path` is `ancestor` or lies below it.
pub fn is_beneath(path: &[u8], ancestor: &[u8]) -> bool {
    ancestor.is_empty() || path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_a_fifo_as_a_file_fails_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = Workspace::open(folder.path()).unwrap();
        rustix::fs::mkfifoat(root.fd(), "fifo", Mode::from_raw_mode(0o600)).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(open_file(root.fd(), b"fifo", OFlags::RDONLY).is_err()));
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(10)), Ok(true));
    }

    #[test]
    fn no_link_on_the_way_is_followed() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(outside.path().join("d")).unwrap();
        std::fs::create_dir_all(inside.path().join("real/d")).unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("link")).unwrap();
        std::os::unix::fs::symlink("real", inside.path().join("own")).unwrap();
        let root = Workspace::open(inside.path()).unwrap();
        assert!(root.dir(b"real/d").is_ok());
        for path in ["link", "link/d", "own", "own/d", "..", "real/../..", "/"] {
            assert!(root.dir(path.as_bytes()).is_err(), "{path}");
            assert!(root.dir_by_force(path.as_bytes()).is_err() || path == "/", "{path}");
        }
    }
}
