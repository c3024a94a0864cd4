//! The door of a warm launcher: the process that listens, looks at each caller, and hands the connection on.
//!
//! ```text
//!  accept ─▶ pidfd of the caller ─▶ its facts ─┬─ stranger: closed without a word, and nothing of it was read
//!                                              ├─ the launcher process is stopped: closed without a word
//!                                              ├─ unlike: the differences, closed
//!                                              └─ alike: to the launcher process, then Ready
//! ```
//! It reads no byte of a caller. A mount that comes or goes makes it start another launcher process: that of an ordinary user
//! sees the mounts of its own start. The old one ends with the last of its sandboxes.

use super::likeness::{Likeness, OwnFacts, is_stopped};
use super::peer::{self, Peer};
use super::place::{Place, PlaceError};
use super::wire::Greeting;
use nexus_channel::{codec, descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No launcher can be kept here.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// Another process has the name.
    #[error("a launcher for processes like this one is up already")]
    Taken,
    /// This process is confined itself, and its callers might be confined otherwise.
    #[error("this process runs confined (no_new_privs), and a launcher could not tell how its callers are")]
    Confined,
    /// The kernel is too old.
    #[error("this kernel does not say which process is at the other end of a socket (Linux 6.5): {0}")]
    NoPeer(io::Error),
    /// The directory of the socket cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A call failed.
    #[error("{what}: {source}")]
    Io {
        /// Name of the call that failed.
        what: &'static str,
        /// The answer of the kernel.
        source: io::Error,
    },
}

impl DoorError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// A launcher's socket, and what its callers have to be like.
#[derive(Debug)]
pub struct LauncherDoor {
    own: Likeness,
    place: Place,
    name: String,
    listener: UnixListener,
    idle: Duration,
    /// Number of sandboxes that were started.
    started: u64,
    /// The time of the last start.
    last: Instant,
    /// The mounts changed after the launcher process was started.
    is_outdated: bool,
    /// Held as long as this lives.
    _lock: OwnedFd,
}

/// The launcher process behind the door.
#[derive(Debug)]
struct Behind {
    process: Child,
    ended: OwnedFd,
    intake: OwnedFd,
}

/// Classes of callers.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Stranger,
    Unlike(Vec<String>),
    Alike,
}

impl LauncherDoor {
    /// Listens for processes like this one. The launcher ends when it has started no sandbox for `idle`.
    pub fn open(place: Place, own: OwnFacts, idle: Duration) -> Result<Self, DoorError> {
        if own.likeness.is_confined() {
            return Err(DoorError::Confined);
        }
        if let Some(error) = peer::missing() {
            return Err(DoorError::NoPeer(error));
        }
        let name = own.name().ok_or_else(|| DoorError::io("the name")(io::ErrorKind::InvalidData.into()))?;
        let lock = place.lock(&name)?.ok_or(DoorError::Taken)?;
        let listener = place.listen(&name)?;
        Ok(Self {
            own: own.likeness,
            place,
            name,
            listener,
            idle,
            started: 0,
            last: Instant::now(),
            is_outdated: false,
            _lock: lock,
        })
    }

    /// Serves until `stop` has something to read, the idle time is over, or the launcher process has ended.
    /// `program` is a program that calls [`super::serve_warm`]. Runs that live go on.
    pub fn keep(mut self, stop: BorrowedFd<'_>, program: &dyn Fn() -> Command) -> Result<(), DoorError> {
        let served = self.serve(stop, program);
        // First the name: the next caller finds none, and one that is in the queue finds the end of its connection.
        self.place.remove(&self.name)?;
        served
    }

    fn serve(&mut self, stop: BorrowedFd<'_>, program: &dyn Fn() -> Command) -> Result<(), DoorError> {
        let mounts = File::open("/proc/self/mountinfo").map_err(DoorError::io("/proc/self/mountinfo"))?;
        let mut behind = Behind::start(program).map_err(DoorError::io("the launcher process"))?;
        let mut old: Vec<Child> = Vec::new();
        loop {
            let left = self.idle.saturating_sub(self.last.elapsed());
            if left.is_zero() {
                tracing::debug!("the warm launcher ends: no process wanted a sandbox");
                return Ok(());
            }
            let wait = [
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
                PollFd::new(&behind.ended, PollFlags::IN),
                PollFd::new(&mounts, PollFlags::PRI),
                PollFd::new(&behind.intake, PollFlags::IN),
            ];
            let [called, stopped, ended, changed, reported] = ready(wait, left).map_err(DoorError::io("poll"))?;
            if stopped {
                return Ok(());
            }
            if ended {
                // It was killed, or gave up: callers start their sandboxes themselves.
                return Ok(());
            }
            if reported {
                self.count(&behind);
            }
            if changed || std::mem::take(&mut self.is_outdated) {
                let next = Behind::start(program).map_err(DoorError::io("the launcher process"))?;
                old.push(std::mem::replace(&mut behind, next).process);
            }
            // Each is collected once it has ended; none is waited for.
            old.retain_mut(|process| matches!(process.try_wait(), Ok(None)));
            if called {
                match self.listener.accept() {
                    Ok((socket, _)) => self.admit(&socket.into(), &mounts, &behind),
                    Err(error) if is_passing(&error) => {}
                    Err(error) => return Err(DoorError::io("accept")(error)),
                }
            }
        }
    }

    /// Counts the sandboxes that the launcher process reports.
    fn count(&mut self, behind: &Behind) {
        while let Ok(received) = descriptors::receive(&behind.intake, &mut [0; 8], RecvFlags::DONTWAIT)
            && received.bytes > 0
        {
            self.started += 1;
            self.last = Instant::now();
        }
    }

    /// Answers one caller. What fails here ends its connection, and the caller starts its sandbox itself.
    fn admit(&mut self, socket: &OwnedFd, mounts: &File, behind: &Behind) {
        let verdict = self.classify(socket, behind).unwrap_or(Verdict::Stranger);
        let greeting = match verdict {
            Verdict::Stranger => return,
            // It would take the request when it goes on, and the caller would have waited in vain.
            Verdict::Alike if is_stopped(behind.pid()).unwrap_or(true) => return,
            Verdict::Unlike(what) => Greeting::Unlike { what, started: self.started },
            Verdict::Alike => {
                // A mount that came just now: the launcher process does not know it, and is replaced before the next caller.
                let changed = ready([PollFd::new(mounts, PollFlags::PRI)], Duration::ZERO);
                self.is_outdated = changed.map_or(true, |[changed]| changed);
                if self.is_outdated
                    || descriptors::send(&behind.intake, b"c", &[socket.as_fd()], SendFlags::DONTWAIT).is_err()
                {
                    return;
                }
                let left = self.idle.saturating_sub(self.last.elapsed());
                Greeting::Ready { started: self.started, idle_s: left.as_secs() }
            }
        };
        if let Ok(bytes) = codec::encode(&greeting) {
            // A new connection takes that much at once. A caller that gets no greeting starts its sandbox itself.
            descriptors::send(socket, &bytes, &[], SendFlags::DONTWAIT).ok();
        }
    }

    fn classify(&self, socket: &OwnedFd, behind: &Behind) -> io::Result<Verdict> {
        let peer = Peer::of(socket)?;
        if self.own.is_elsewhere(&peer.read(Likeness::place_of)?) {
            return Ok(Verdict::Stranger);
        }
        let theirs = peer.read(Likeness::of)?;
        if !self.own.strangeness(&theirs).is_empty() {
            return Ok(Verdict::Stranger);
        }
        let mut what = self.own.differences(&theirs);
        // Another process may have given the launcher another place than its callers have.
        what.extend(self.own.changes(&Likeness::changeable_of(behind.pid())?));
        what.sort();
        what.dedup();
        Ok(if what.is_empty() { Verdict::Alike } else { Verdict::Unlike(what) })
    }
}

impl Behind {
    fn start(program: &dyn Fn() -> Command) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (intake, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let process = program().stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let ended = pidfd_open(Pid::from_child(&process), PidfdFlags::empty())?;
        tracing::debug!(pid = process.id(), "a warm launcher process was started");
        Ok(Self { process, ended, intake })
    }

    fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }
}

/// Waits for one of these, at most `within`, and reports which are ready.
fn ready<const N: usize>(mut wait: [PollFd<'_>; N], within: Duration) -> io::Result<[bool; N]> {
    let within = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: within.subsec_nanos().into() };
    match poll(&mut wait, Some(&within)) {
        Ok(_) | Err(Errno::INTR) => Ok(wait.map(|one| !one.revents().is_empty())),
        Err(error) => Err(error.into()),
    }
}

/// Reports whether a caller just went away.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::AGAIN, Errno::INTR, Errno::CONNABORTED];
    error.raw_os_error().is_some_and(|number| passing.iter().any(|errno| errno.raw_os_error() == number))
}
