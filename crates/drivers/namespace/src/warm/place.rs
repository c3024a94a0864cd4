//! The directory with the sockets of the warm launchers of one user, in the state directory.
//!
//! ```text
//!  STATE/warm/      0700, of this user; no sandbox can be shown it, like all of the state directory
//!    NAME.lock      held (flock) by the door as long as it lives
//!    NAME           its socket, 0600
//! ```
//! Everything is opened below a descriptor of the directory, looked at, and used by that descriptor: what has another owner,
//! mode or kind is not used.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Most callers that wait for the door. A caller more starts its sandbox itself.
const BACKLOG: i32 = 128;

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The directory, or an entry of it.
        path: PathBuf,
        /// The answer of the kernel.
        source: Errno,
    },
    /// Another user owns it or may use it, or it is of another kind.
    #[error("{} is not closed to other users", path.display())]
    Open {
        /// The directory, or an entry of it.
        path: PathBuf,
    },
}

/// The directory, opened and looked at.
#[derive(Debug)]
pub struct Place {
    directory: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// Opens the directory; `None` where there is none, so that no launcher was ever started.
    pub fn open(path: &Path) -> Result<Option<Self>, PlaceError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(source) => return Err(PlaceError::Io { path: path.to_owned(), source }),
            Ok(directory) => directory,
        };
        let place = Self { directory, path: path.to_owned() };
        Self::check(place.directory.as_fd(), FileType::Directory, path)?;
        Ok(Some(place))
    }

    /// Opens the directory, and makes it where it is missing.
    pub fn make(path: &Path) -> Result<Self, PlaceError> {
        let failed = |source| PlaceError::Io { path: path.to_owned(), source };
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(source) => return Err(failed(source)),
        }
        Self::open(path)?.ok_or_else(|| failed(Errno::NOENT))
    }

    /// Returns the names of all sockets in it.
    pub fn names(&self) -> Result<Vec<String>, PlaceError> {
        let entries = rustix::fs::Dir::read_from(&self.directory).map_err(|source| self.failed("", source))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| self.failed("", source))?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if entry.file_type() == FileType::Socket && !name.is_empty() {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Takes the lock of a launcher; `None` while another process has it.
    pub fn lock(&self, name: &str) -> Result<Option<OwnedFd>, PlaceError> {
        let name = format!("{name}.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, &name, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(|source| self.failed(&name, source))?;
        Self::check(file.as_fd(), FileType::RegularFile, &self.path.join(&name))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(source) => Err(self.failed(&name, source)),
        }
    }

    /// Listens under this name, in the place of what was there. The lock of the name must be held.
    pub fn listen(&self, name: &str) -> Result<UnixListener, PlaceError> {
        let failed = |source| self.failed(name, source);
        self.remove(name)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
        let address = SocketAddrUnix::new(below(&self.directory, name)).map_err(failed)?;
        rustix::net::bind(&socket, &address).map_err(failed)?;
        // No process connects before it listens.
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::chmodat(&self.directory, name, mode, AtFlags::empty()).map_err(failed)?;
        rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
        Ok(socket.into())
    }

    /// Removes a socket; it may be gone already.
    pub fn remove(&self, name: &str) -> Result<(), PlaceError> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(self.failed(name, source)),
        }
    }

    /// Connects to the socket of this name without waiting; `None` where no process listens, or too many callers wait.
    pub fn connect(&self, name: &str) -> Result<Option<OwnedFd>, PlaceError> {
        let failed = |source| self.failed(name, source);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed)?,
        };
        Self::check(entry.as_fd(), FileType::Socket, &self.path.join(name))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
        // The very socket that was looked at, whatever has its name by now.
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", entry.as_raw_fd())).map_err(failed)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(Some(socket)),
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::NOENT) => Ok(None),
            Err(source) => Err(failed(source)),
        }
    }

    /// Refuses what this user does not own alone.
    fn check(entry: impl AsFd, kind: FileType, path: &Path) -> Result<(), PlaceError> {
        let stat = rustix::fs::fstat(entry).map_err(|source| PlaceError::Io { path: path.to_owned(), source })?;
        let is_own =
            stat.st_uid == rustix::process::geteuid().as_raw() && Mode::from_raw_mode(stat.st_mode & 0o077).is_empty();
        if is_own && FileType::from_raw_mode(stat.st_mode) == kind {
            Ok(())
        } else {
            Err(PlaceError::Open { path: path.to_owned() })
        }
    }

    fn failed(&self, name: &str, source: Errno) -> PlaceError {
        PlaceError::Io { path: self.path.join(name), source }
    }
}

/// A path of any length does not fit into the address of a socket (unix(7)).
fn below(directory: &OwnedFd, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_socket_is_used_only_where_its_owner_alone_may_use_it() {
        let bench = tempfile::tempdir().unwrap();
        let path = bench.path().join("warm");
        assert!(Place::open(&path).unwrap().is_none());
        let place = Place::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(place.connect("a").unwrap().is_none(), "nothing listens yet");
        let listener = place.listen("a").unwrap();
        assert_eq!(fs::metadata(path.join("a")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(place.connect("a").unwrap().is_some());
        assert_eq!(place.names().unwrap(), ["a"]);

        mode(&path.join("a"), 0o620);
        assert!(matches!(place.connect("a"), Err(PlaceError::Open { .. })));
        mode(&path.join("a"), 0o600);
        // Not the socket itself, and not a socket.
        symlink("a", path.join("link")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        mode(&path.join("file"), 0o600);
        for name in ["link", "file"] {
            assert!(matches!(place.connect(name), Err(PlaceError::Open { .. })), "{name}");
        }
        drop(listener);
        // A test beside this one may be between its fork and its exec, with a copy of the listener.
        let is_dead = || place.connect("a").unwrap().is_none();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !is_dead() {
            assert!(std::time::Instant::now() < end, "the socket of a process that is gone leads somewhere");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }

        mode(&path, 0o750);
        assert!(matches!(Place::open(&path), Err(PlaceError::Open { .. })));
        mode(&path, 0o700);
        symlink(&path, bench.path().join("other")).unwrap();
        assert!(Place::open(&bench.path().join("other")).is_err());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path.join("a"), Some(12345), None).unwrap();
            assert!(matches!(place.connect("a"), Err(PlaceError::Open { .. })));
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(matches!(Place::open(&path), Err(PlaceError::Open { .. })));
        }
    }

    #[test]
    fn one_process_has_a_name_and_a_crowd_is_not_waited_for() {
        let bench = tempfile::tempdir().unwrap();
        let place = Place::make(&bench.path().join("warm")).unwrap();
        let held = place.lock("a").unwrap();
        assert!(held.is_some() && place.lock("a").unwrap().is_none() && place.lock("b").unwrap().is_some());
        let _listener = place.listen("a").unwrap();
        let mut waiting = Vec::new();
        let refused = (0..BACKLOG * 2).any(|_| match place.connect("a").unwrap() {
            Some(socket) => {
                waiting.push(socket);
                false
            }
            None => true,
        });
        assert!(refused, "{} callers wait", waiting.len());
    }
}
