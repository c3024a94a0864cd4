//! Holds back sockets and named pipes of the workspace that go or move with a directory. A program of the host may be at the other end:
//! it would be reached where no run covers the name, or no more.
//!
//! ```text
//!  their directory goes or moves as a whole      `scan` asks `why`
//!  their directory is replaced by a new one      `hold_back`: no command named them
//!  a command removes them by name                they go unasked
//! ```
//! A socket to which nothing is bound any more holds nothing back: no program ever listens on it again, because bind(2) makes another
//! file.

use crate::beneath::{Workspace, is_no_way, split};
use crate::entries::tree::{LayerTree, Role, Verdict};
use crate::meta::EntryType;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

const SOCKET_MOVES: &str = "a socket of this machine that moves with its directory";
const SOCKET_GOES: &str = "a socket of this machine that goes with its directory";
const PIPE_MOVES: &str = "a named pipe of this machine that moves with its directory";
const PIPE_GOES: &str = "a named pipe of this machine that goes with its directory";

/// Returns why an entry may not go or move with its directory unasked.
pub(crate) fn why(dir: BorrowedFd<'_>, name: &[u8], kind: EntryType, moves: bool) -> Option<&'static str> {
    match kind {
        EntryType::Socket if is_dead(dir, name) => None,
        EntryType::Socket => Some(if moves { SOCKET_MOVES } else { SOCKET_GOES }),
        EntryType::Fifo => Some(if moves { PIPE_MOVES } else { PIPE_GOES }),
        EntryType::File | EntryType::Directory | EntryType::Symlink | EntryType::Device => None,
    }
}

/// Parks what goes because a new directory came in the place of its own one.
pub(crate) fn hold_back(base: &Workspace, tree: &mut LayerTree) {
    for at in 1..tree.nodes.len() {
        let node = &tree.nodes[at];
        let goes = node.role == Role::Implied || (tree.nodes[node.parent].rare.replaced && node.role == Role::Entry);
        let Some(found) = node.covers.as_ref().filter(|_| goes && !node.claimed) else { continue };
        if !matches!(found.meta.kind, EntryType::Socket | EntryType::Fifo) {
            continue;
        }
        let (above, name) = split(&found.at.0);
        let why = match base.dir(above) {
            Ok(dir) => why(dir.as_fd(), name, found.meta.kind, false),
            // The commit finds that it is gone.
            Err(error) if is_no_way(&error) => None,
            Err(_) => Some(SOCKET_GOES),
        };
        if let Some(why) = why {
            tree.nodes[at].rare.verdict = Some(Verdict::Park(why.to_owned()));
        }
    }
}

/// Reports whether no process has a socket bound to this name. A connection of the kind for datagrams tells it and disturbs no service: a
/// service for connections answers `EPROTOTYPE` and hears nothing, and to one for datagrams nothing is sent.
fn is_dead(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    let connected = || {
        let place = rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        // The answer about another kind of file would be the same.
        if FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        // A name may be longer than an address of a socket.
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
        rustix::net::connect(&socket, &address)
    };
    connected() == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn a_socket_is_dead_when_its_service_has_ended() {
        let top = tempfile::tempdir().unwrap();
        let long = "s".repeat(70);
        let path = |name: &str| top.path().join(name);
        let dir = std::fs::File::open(top.path()).unwrap();
        let is_dead = |name: &str| super::is_dead(dir.as_fd(), name.as_bytes());
        let stream = UnixListener::bind(path("stream")).unwrap();
        let datagram = UnixDatagram::bind(path("datagram")).unwrap();
        let cwd = rustix::fs::CWD;
        let kept = UnixListener::bind(path("short")).unwrap();
        std::fs::rename(path("short"), path(&long)).unwrap();
        stream.set_nonblocking(true).unwrap();
        for name in ["stream", "datagram", &long] {
            assert!(!is_dead(name), "{name}");
        }
        assert!(stream.accept().is_err(), "the service heard of it");
        drop((stream, datagram, kept));
        for name in ["stream", "datagram", &long] {
            assert!(is_dead(name), "{name}");
        }
        // What cannot be asked counts as alive.
        assert!(!is_dead("missing"));
        std::fs::write(path("file"), "").unwrap();
        assert!(!is_dead("file"));
        rustix::fs::mkfifoat(cwd, path("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let why = |name: &str, kind, moves| super::why(dir.as_fd(), name.as_bytes(), kind, moves);
        assert_eq!(why("pipe", EntryType::Fifo, true), Some(PIPE_MOVES));
        assert_eq!(why("pipe", EntryType::Fifo, false), Some(PIPE_GOES));
        assert_eq!(why("stream", EntryType::Socket, true), None);
        assert_eq!(why("missing", EntryType::Socket, true), Some(SOCKET_MOVES));
    }
}
