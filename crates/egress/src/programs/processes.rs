//! The processes behind a `/proc`, asked for who holds a socket.
//!
//! All that hold it must run the same program, else nobody is named: a socket that two programs share is used by either.
//! Only what a process has open in its own table counts; a socket that is on its way in a message, or in a ring of
//! io_uring alone, has no holder. All of that errs to "not known", which allows nothing.

use super::{Programs, table};
use nexus_policy::net::Program;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

/// Descriptors that are looked at for one connection. Beyond, nobody is named: a sandbox that has so many open would
/// keep a processor of the host busy with every connection that it makes.
const MOST_DESCRIPTORS: usize = 200_000;
/// How often it is looked again. Between fork and exec a process cannot be read, and one that was forked meanwhile is not
/// in a list that was begun before.
const LOOKS: usize = 5;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Processes as one `/proc` shows them.
#[derive(Debug)]
pub struct Processes {
    proc: OwnedFd,
    of: Whose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Those of one sandbox: its first process is ours, and all others must be readable.
    Sandbox,
    /// Those of this host, of which other users' cannot be read.
    Host,
}

/// Why nobody is named by one look.
enum Look {
    /// Nobody holds it, or somebody who cannot be read may. It may be another thing in a moment.
    Again,
    /// More than one program, or too much to look at.
    Never,
}

impl Processes {
    /// Those of the sandbox whose `/proc` this is.
    pub fn of_sandbox(proc: OwnedFd) -> Self {
        Self { proc, of: Whose::Sandbox }
    }

    /// Those of this host, as far as this process may read them.
    pub fn of_this_host() -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { proc: rustix::fs::open("/proc", flags, Mode::empty())?, of: Whose::Host })
    }

    fn look(&self, peer: SocketAddr) -> Result<Program, Look> {
        let sockets = self.sockets(peer).map_err(|_| Look::Again)?;
        let mut found: Option<Program> = None;
        let mut left = MOST_DESCRIPTORS;
        for pid in self.folder(".").and_then(names).map_err(|_| Look::Again)? {
            let is_process = pid.bytes().all(|byte| byte.is_ascii_digit());
            if !is_process || (self.of == Whose::Sandbox && pid == "1") {
                continue;
            }
            let holds = match self.holds(&pid, &sockets, &mut left) {
                Ok(holds) => holds,
                // Ended meanwhile.
                Err(Errno::NOENT | Errno::SRCH) => false,
                Err(Errno::ACCESS | Errno::PERM) if self.of == Whose::Host => false,
                Err(_) => return Err(Look::Again),
            };
            if left == 0 {
                return Err(Look::Never);
            }
            if holds {
                let program = self.program(&pid).ok_or(Look::Again)?;
                if found.replace(program.clone()).is_some_and(|other| other != program) {
                    return Err(Look::Never);
                }
            }
        }
        found.ok_or(Look::Again)
    }

    /// The sockets inside with this address.
    fn sockets(&self, peer: SocketAddr) -> std::io::Result<BTreeSet<String>> {
        let whose = match self.of {
            Whose::Sandbox => "1",
            Whose::Host => "self",
        };
        let mut found = BTreeSet::new();
        for file in ["tcp", "tcp6"] {
            let path = format!("{whose}/net/{file}");
            let opened = openat(&self.proc, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let opened = match opened {
                // A kernel without IPv6 has no such table.
                Err(Errno::NOENT) if file == "tcp6" => continue,
                opened => opened?,
            };
            let mut text = String::new();
            std::fs::File::from(opened).read_to_string(&mut text)?;
            found.extend(table::inodes(&text, peer).map(|inode| format!("socket:[{inode}]")));
        }
        Ok(found)
    }

    /// To be read: what a mount is made as cannot.
    fn folder(&self, path: &str) -> Result<OwnedFd, Errno> {
        openat(&self.proc, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Whether the process has one of `sockets` open.
    fn holds(&self, pid: &str, sockets: &BTreeSet<String>, left: &mut usize) -> Result<bool, Errno> {
        let open = self.folder(&format!("{pid}/fd"))?;
        for name in names(&open)? {
            *left = left.saturating_sub(1);
            match readlinkat(&open, name.as_str(), Vec::new()) {
                Ok(link) if link.to_str().is_ok_and(|link| sockets.contains(link)) => return Ok(true),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The path of its executable, as it is in its own mount namespace. A path that cannot stand in a rule is none.
    fn program(&self, pid: &str) -> Option<Program> {
        let path = readlinkat(&self.proc, format!("{pid}/exe"), Vec::new()).ok()?;
        Program::parse(path.to_str().ok()?).ok()
    }
}

impl Programs for Processes {
    fn who(&self, peer: SocketAddr) -> Option<Program> {
        for look in 0..LOOKS {
            if look > 0 {
                std::thread::sleep(PAUSE);
            }
            match self.look(peer) {
                Ok(program) => return Some(program),
                Err(Look::Never) => return None,
                Err(Look::Again) => {}
            }
        }
        None
    }
}

/// The entries of a folder without `.` and `..`.
fn names(folder: impl AsFd) -> Result<Vec<String>, Errno> {
    let mut all = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            all.push(name);
        }
    }
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test is its own client")]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    fn here() -> Processes {
        Processes::of_this_host().unwrap()
    }

    #[test]
    fn a_connection_is_told_by_its_holders_executable() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().1;
        let own = std::env::current_exe().unwrap().canonicalize().unwrap();
        assert_eq!(here().who(peer).unwrap().0, own.to_str().unwrap());
        drop(client);
        assert_eq!(here().who(peer), None, "nobody holds it any more");
        assert_eq!(here().who("127.0.0.1:1".parse().unwrap()), None, "nobody ever did");
    }

    #[test]
    fn a_socket_that_two_programs_hold_belongs_to_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().1;
        let shared = Stdio::from(OwnedFd::from(client.try_clone().unwrap()));
        let mut other = Command::new("sleep").arg("60").stdin(shared).spawn().unwrap();
        assert_eq!(here().who(peer), None);
        drop(client);
        let alone = here().who(peer);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(alone.unwrap().0.starts_with("/usr/bin/"), "the one that is left");
    }
}
