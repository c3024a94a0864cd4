//! The launcher as a process of its own: small, single-threaded, started before its user has threads.
//!
//! ```text
//!  daemon ──Request(plan, handle)──▶ launcher ──clone──▶ sandbox
//!         ◀── Started + channel, pidfd (, upper) | Refused(step) ──┘     (one request at a time; ended children are reaped)
//! ```
//! A fork from a daemon would copy its page tables (5.5 ms for 256 MiB) and its locked locks. When the launcher dies,
//! its sandboxes die (PDEATHSIG); when its user dies, their channels end, and they die too.

use crate::closer::Closer;
use crate::driver::{Namespace, changes_of};
use crate::guarantees;
use crate::name::NAME;
use crate::process::NamespaceProcess;
use crate::state::State;
use nexus_driver::{Channel, ChannelError, Driver, Handle, Sandbox, SetupError, StartError};
use nexus_jail::clone::Child;
use nexus_jail::{Network, Step};
use nexus_model::Plan;
use nexus_model::proof::Expectation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    plan: Plan,
    /// As JSON: a handle is made for being saved, and its form there is the one that is versioned.
    handle: String,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// Comes with the guest channel, the pidfd and perhaps the upper directory.
    Started {
        pid: i32,
        expect: Vec<Expectation>,
    },
    Refused(StartError),
}

pub use nexus_jail::PoolConfig;

/// Idle time before work is done in advance, so that a sandbox that has just started gets the processor first.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };
/// Time to wait for a request between two pieces of idle work: none.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Resources that are held for running sandboxes.
#[derive(Default)]
struct Leased {
    /// Pooled networks, by the first process of the sandbox that has them.
    networks: BTreeMap<i32, Network>,
    /// Mount namespaces of running sandboxes, held so that the kernel takes them apart while no request waits, and not
    /// before the end of the sandbox is reported.
    mounts: BTreeMap<i32, File>,
    /// Mount namespaces of ended sandboxes, and other mounts that are no longer needed.
    closing: Vec<OwnedFd>,
}

impl Leased {
    /// Maximum number of mount namespaces that are held, one descriptor for each. Beyond it a sandbox takes its own
    /// mounts apart when it ends.
    const MAX: usize = 256;
    /// Number of mount namespaces that are handed to the closer even while there is other work.
    const MANY: usize = 16;

    fn hold(&mut self, pid: i32, network: Option<Network>, deferred: Vec<OwnedFd>) {
        self.networks.extend(network.map(|network| (pid, network)));
        if self.mounts.len() + self.closing.len() < Self::MAX {
            self.closing.extend(deferred);
            // Where it cannot be opened the end is only slower.
            self.mounts.extend(File::open(format!("/proc/{pid}/ns/mnt")).ok().map(|mounts| (pid, mounts)));
        }
    }
}

/// Serves one user over a connected socket until that user is gone. This process does nothing else any more: to launch
/// faster it moves between namespaces of its own.
pub fn serve(driver: &Namespace, socket: OwnedFd, pools: PoolConfig) -> io::Result<()> {
    let user = rustix::net::sockopt::socket_peercred(&socket)?;
    if user.uid != rustix::process::geteuid() && !user.uid.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the launcher serves only its own user"));
    }
    let (mut child_ends, to) = UnixStream::pair()?;
    child_ends.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, to)?;
    let closer = Closer::start()?;
    driver.enter_launcher_mode(pools).map_err(io::Error::other)?;
    let channel = Channel::new(socket);
    let mut leased = Leased::default();
    let mut is_quiet = false;
    loop {
        if leased.closing.len() >= Leased::MANY {
            closer.close_later(&mut leased.closing);
        }
        let has_work = !leased.closing.is_empty() || driver.launcher().has_work();
        let mut wait = [PollFd::new(&channel, PollFlags::IN), PollFd::new(&child_ends, PollFlags::IN)];
        let found = poll(&mut wait, has_work.then_some(if is_quiet { &NOW } else { &QUIET }));
        is_quiet = found == Ok(0);
        match found {
            // No request for a while: time for work that the next one would otherwise wait for.
            Ok(0) if has_work => {
                closer.close_later(&mut leased.closing);
                driver.work_ahead();
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (asked, ended) = (!wait[0].revents().is_empty(), !wait[1].revents().is_empty());
        if ended {
            let mut bytes = [0u8; 64];
            match child_ends.read(&mut bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if asked || ended {
            // First, so that a network that has just become free is there for the request. The host may have seen
            // the end before the signal came.
            reap(driver, &mut leased)?;
        }
        if asked {
            match channel.receive::<Request>() {
                Ok((request, _)) => answer(driver, &channel, &request, &mut leased).map_err(io::Error::other)?,
                Err(ChannelError::Closed) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Collects every ended sandbox, so that none stays as a zombie, and takes its network back: when its first process can
/// be waited for, every other one is dead.
fn reap(driver: &Namespace, leased: &mut Leased) -> io::Result<()> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => {
                let pid = pid.as_raw_nonzero().get();
                leased.closing.extend(leased.mounts.remove(&pid).map(OwnedFd::from));
                if let Some(network) = leased.networks.remove(&pid) {
                    // If the namespace cannot be shown to be clean, it is dropped instead of used again.
                    driver.launcher().give_back(network).unwrap_or_default();
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn answer(driver: &Namespace, channel: &Channel, request: &Request, leased: &mut Leased) -> Result<(), ChannelError> {
    let started = match serde_json::from_str::<Handle>(&request.handle) {
        Ok(handle) => driver.launch(&request.plan, &handle),
        Err(error) => Err(StartError::Handle { reason: error.to_string() }),
    };
    match started {
        Ok((launched, expect)) => {
            let pid = launched.child.pid.as_raw_nonzero().get();
            let mut descriptors = vec![launched.channel.as_fd(), launched.child.pidfd.as_fd()];
            descriptors.extend(launched.upper.as_ref().map(AsFd::as_fd));
            let sent = channel.send(&Answer::Started { pid, expect }, &descriptors);
            leased.hold(pid, launched.network, launched.deferred);
            match sent {
                // Too many descriptors of this user are under way (unix(7)), which other sandboxes of the same user may
                // bring about. Nothing was said yet: this one ends, and the others stay.
                Err(ChannelError::Io(Errno::TOOMANYREFS)) => {
                    match pidfd_send_signal(&launched.child.pidfd, Signal::KILL) {
                        Ok(()) | Err(Errno::SRCH) => {}
                        Err(error) => return Err(error.into()),
                    }
                    let detail = "too many descriptors of this user are under way".to_owned();
                    let (step, errno) = (Step::MakeChannel.name().to_owned(), Errno::TOOMANYREFS.raw_os_error());
                    channel.send(&Answer::Refused(SetupError { step, errno, detail }.into()), &[])
                }
                sent => sent,
            }
        }
        Err(error) => channel.send(&Answer::Refused(error), &[]),
    }
}

/// The user's side of a launcher.
#[derive(Debug)]
pub struct Launcher {
    channel: Channel,
    process: std::process::Child,
}

impl Launcher {
    /// Starts a program that calls [`serve`] on its standard input.
    pub fn start(mut program: Command) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let process = program.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        Ok(Self { channel: Channel::new(ours.into()), process })
    }

    /// Asks it for a sandbox.
    pub fn launch(&self, plan: &Plan, handle: &Handle) -> Result<Sandbox, StartError> {
        let failed = |detail: String| {
            StartError::Setup(SetupError { step: Step::MakeChannel.name().to_owned(), errno: 0, detail })
        };
        let state = State::read(handle)?;
        let json = serde_json::to_string(handle).map_err(|error| failed(error.to_string()))?;
        let request = Request { plan: plan.clone(), handle: json };
        self.channel.send(&request, &[]).map_err(|error| failed(format!("the launcher: {error}")))?;
        let (answer, descriptors) =
            self.channel.receive::<Answer>().map_err(|error| failed(format!("the launcher: {error}")))?;
        match answer {
            Answer::Refused(error) => Err(error),
            Answer::Started { pid, expect } => {
                let mut descriptors = descriptors.into_iter();
                let pid = Pid::from_raw(pid);
                let (Some(channel), Some(pidfd), Some(pid)) = (descriptors.next(), descriptors.next(), pid) else {
                    return Err(failed("the launcher sent no descriptors".to_owned()));
                };
                // The launcher holds mounts of dead sandboxes for a while: nobody can tell when an overlay is gone.
                let process = NamespaceProcess::new(Child { pid, pidfd }, state.group, None, Vec::new());
                Ok(Sandbox {
                    channel: Channel::new(channel),
                    guarantees: guarantees::of(plan),
                    expect,
                    changes: changes_of(plan, descriptors.next()),
                    process: Box::new(process),
                })
            }
        }
    }

    /// The launcher's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends the launcher and waits for it.
    pub fn stop(self) -> io::Result<()> {
        let Self { channel, mut process } = self;
        drop(channel);
        process.wait().map(drop)
    }
}

/// For a program that was started by [`Launcher::start`].
pub fn serve_stdin(driver: &Namespace, pools: PoolConfig) -> io::Result<()> {
    let socket = rustix::io::dup(rustix::stdio::stdin())?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    debug_assert_eq!(driver.name(), NAME, "the launcher is the namespace driver's");
    serve(driver, socket, pools)
}
