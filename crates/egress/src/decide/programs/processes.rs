//! Finds the processes of a `/proc` that hold a socket.
//!
//! All processes that are seen to hold it must run the same program, otherwise no program is named. Not seen are a
//! socket that is on its way in a message (SCM_RIGHTS), and, where nexus is an ordinary user, the descriptors of a
//! process that made itself unreadable (PR_SET_DUMPABLE). A program can hide a second holder there on purpose, as it
//! can load code into an allowed program.

use super::diag::SockDiag;
use crate::seams::{Connection, Programs};
use nexus_policy::net::Program;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Processor time for the search of one connection. A sandbox with more open descriptors is not searched further. Time
/// in which other processes had the processor does not count: a busy host must not cut the search short.
const TIMEOUT: Duration = Duration::from_millis(250);
/// Number of searches: a process that was forked meanwhile is missing in a list of earlier processes, and a forked
/// process holds everything until it executes another program.
const LOOKS: usize = 3;
/// Pause between two searches.
const PAUSE: Duration = Duration::from_millis(2);

/// Processes of one `/proc`, and the sockets of their network.
#[derive(Debug)]
pub struct Processes {
    proc: OwnedFd,
    sockets: SockDiag,
    of: Whose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Processes of one sandbox. The first one belongs to Nexus; none of them can make a mount, so that a path is one
    /// file.
    Sandbox,
    /// Processes of this host, as far as they can be read. A path in another mount namespace may be another file.
    Host,
}

/// Reason why one search names no program.
enum Look {
    /// No process holds the socket, or two programs do: one may have been forked, and start the other, at this moment.
    Again,
    /// The processor time was used up.
    Never,
}

impl Processes {
    /// Takes the `/proc` and the `NETLINK_SOCK_DIAG` socket of a sandbox.
    pub fn of_sandbox(proc: OwnedFd, sockets: OwnedFd) -> io::Result<Self> {
        Ok(Self { proc, sockets: SockDiag::with(sockets)?, of: Whose::Sandbox })
    }

    /// Opens the processes of this host, as far as this process may read them.
    pub fn of_this_host() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
        Ok(Self { proc, sockets: SockDiag::here()?, of: Whose::Host })
    }

    /// Checks that the kernel answers, so that a missing answer is an error before anything runs. `listener` is one of
    /// the network's listeners.
    pub fn check(&self, listener: SocketAddr) -> io::Result<()> {
        // No client is connected to port 0, and the kernel reports that unless it does not support such questions.
        let absent = SocketAddr::new(listener.ip(), 0);
        match self.sockets.inode(Connection { local: listener, remote: absent })? {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Searches the table of each process; then those of its threads, which can have one of their own (CLONE_FILES,
    /// unshare(2)) or outlive the first one. Threads times descriptors can be too many to search: the program that was
    /// found by then is taken.
    fn inspect(&self, socket: &str, until: Duration) -> Result<Program, Look> {
        let pids = self.numbers(".").map_err(|_| Look::Again)?;
        let pids: Vec<u32> = pids.into_iter().filter(|pid| self.of == Whose::Host || *pid != 1).collect();
        let found = self.holder(pids.iter().map(ToString::to_string), socket, None, until)?;
        if self.of == Whose::Host {
            // A host has too many threads for a search.
            return found.ok_or(Look::Again);
        }
        let threads = pids.iter().flat_map(|pid| self.threads(*pid));
        match (self.holder(threads, socket, found.clone(), until), found) {
            (Ok(found), _) => found.ok_or(Look::Again),
            (Err(Look::Never), Some(found)) => Ok(found),
            (Err(other), _) => Err(other),
        }
    }

    /// Returns the one program of all of `tasks` that hold the socket, and of `found` from an earlier search.
    fn holder(
        &self,
        tasks: impl Iterator<Item = String>,
        socket: &str,
        mut found: Option<Program>,
        until: Duration,
    ) -> Result<Option<Program>, Look> {
        for task in tasks {
            // A process that has ended meanwhile, is a zombie, or cannot be read shows no descriptors.
            let holds = self.holds(&task, socket, until).unwrap_or(false);
            if processor_time() >= until {
                return Err(Look::Never);
            }
            if holds {
                let program = self.program(&task).ok_or(Look::Again)?;
                if found.replace(program.clone()).is_some_and(|other| other != program) {
                    return Err(Look::Again);
                }
            }
        }
        Ok(found)
    }

    /// Returns the directories of a process's further threads.
    fn threads(&self, pid: u32) -> Vec<String> {
        let tasks = self.numbers(&format!("{pid}/task")).unwrap_or_default();
        tasks.into_iter().filter(|task| *task != pid).map(|task| format!("{pid}/task/{task}")).collect()
    }

    /// Opens a directory of `/proc` for reading; the descriptor with which a mount is made cannot be read.
    fn directory(&self, path: &str) -> Result<OwnedFd, Errno> {
        openat(&self.proc, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Returns the entries of a directory that are numbers.
    fn numbers(&self, path: &str) -> Result<Vec<u32>, Errno> {
        let mut all = Vec::new();
        for entry in Dir::new(self.directory(path)?)? {
            let entry = entry?;
            all.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
        }
        Ok(all)
    }

    /// Reports whether a task has the socket open; false if the time is used up first.
    fn holds(&self, task: &str, socket: &str, until: Duration) -> Result<bool, Errno> {
        let open = self.directory(&format!("{task}/fd"))?;
        let mut link = Vec::with_capacity(64);
        for (count, entry) in Dir::read_from(&open)?.enumerate() {
            if count % 256 == 255 && processor_time() >= until {
                return Ok(false);
            }
            let entry = entry?;
            link.clear();
            match readlinkat(&open, entry.file_name(), link) {
                Ok(text) if text.to_bytes() == socket.as_bytes() => return Ok(true),
                Ok(text) => link = text.into_bytes(),
                // These are `.` and `..`, and descriptors that were closed meanwhile.
                Err(Errno::INVAL | Errno::NOENT) => link = Vec::with_capacity(64),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Returns the path of the executable in the task's own mount namespace; `None` if the path cannot stand in a rule.
    fn program(&self, task: &str) -> Option<Program> {
        let exe = format!("{task}/exe");
        let path = readlinkat(&self.proc, exe.as_str(), Vec::new()).ok()?;
        let path = path.to_str().ok()?;
        if self.of == Whose::Host {
            let (runs, here) = (statat(&self.proc, exe.as_str(), AtFlags::empty()).ok()?, rustix::fs::stat(path).ok()?);
            if (runs.st_dev, runs.st_ino) != (here.st_dev, here.st_ino) {
                return None;
            }
        }
        Program::parse(path).ok()
    }
}

/// Returns the processor time that this thread has used.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or_default())
}

impl Programs for Processes {
    fn who(&self, connection: Connection) -> Option<Program> {
        let until = processor_time() + TIMEOUT;
        for inspect in 0..LOOKS {
            if inspect > 0 {
                std::thread::sleep(PAUSE);
            }
            // A client that has closed its end has no inode, and costs no search.
            let inode = self.sockets.inode(connection).ok().flatten()?;
            match self.inspect(&format!("socket:[{inode}]"), until) {
                Ok(program) => return Some(program),
                Err(Look::Never) => return None,
                Err(Look::Again) => {}
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test is its own client")]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};
    use std::time::Instant;

    fn connected() -> (TcpStream, TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, local) = listener.accept().unwrap();
        let remote = server.local_addr().unwrap();
        (client, server, Connection { local, remote })
    }

    #[test]
    fn a_connection_is_identified_by_its_holders_executable() {
        let here = Processes::of_this_host().unwrap();
        let (client, _server, connection) = connected();
        let own = std::env::current_exe().unwrap().canonicalize().unwrap();
        assert_eq!(here.who(connection).unwrap().0, own.to_str().unwrap());
        drop(client);
        // Another test may be starting a program: until that executes, it holds a copy of each descriptor.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Some(holder) = here.who(connection) {
            assert!(Instant::now() < deadline, "{holder:?} still holds the connection");
        }
    }

    #[test]
    fn a_socket_that_two_programs_hold_belongs_to_none() {
        let here = Processes::of_this_host().unwrap();
        let (client, _server, connection) = connected();
        let shared = Stdio::from(OwnedFd::from(client.try_clone().unwrap()));
        let mut other = Command::new("sleep").arg("60").stdin(shared).spawn().unwrap();
        assert_eq!(here.who(connection), None);
        drop(client);
        let alone = here.who(connection);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(alone.unwrap().0.starts_with("/usr/bin/"), "the one that is left");
    }

    #[test]
    fn without_time_left_no_program_is_named() {
        let here = Processes::of_this_host().unwrap();
        let (_client, _server, connection) = connected();
        let socket = format!("socket:[{}]", here.sockets.inode(connection).unwrap().unwrap());
        assert!(matches!(here.inspect(&socket, processor_time()), Err(Look::Never)));
        assert!(here.inspect(&socket, processor_time() + Duration::from_secs(20)).is_ok());
    }

    #[test]
    fn time_without_the_processor_is_not_counted() {
        let until = processor_time() + TIMEOUT;
        std::thread::sleep(Duration::from_millis(300));
        assert!(processor_time() < until);
        let began = Instant::now();
        while processor_time() < until {
            assert!(began.elapsed() < Duration::from_secs(20), "work is not counted");
        }
    }

    #[test]
    fn whether_the_kernel_answers_is_known_before_it_matters() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = Processes::of_this_host().unwrap();
        here.check(listener.local_addr().unwrap()).unwrap();
        let gone = listener.local_addr().unwrap();
        drop(listener);
        here.check(gone).unwrap_err();
    }
}
