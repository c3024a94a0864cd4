//! The launcher's side: answers requests, reaps, and uses idle time for what later requests need.

use super::deadlines::{Deadlines, boot_time};
use super::leased::Leased;
use super::wire::{Answer, Request, Started, handle_from_json, handle_to_json};
use crate::closer::Closer;
use crate::driver::Namespace;
use crate::guarantees;
use crate::name::NAME;
use nexus_driver::{Channel, ChannelError, Driver, Handle, PrepareError, SetupError, StartError};
use nexus_jail::{PoolConfig, Step};
use nexus_model::Plan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// Idle time before work is done in advance, so that a sandbox that has just started gets the processor first.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };
/// Time to wait for a request between two pieces of idle work: none.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

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
    tracing::debug!(networks = pools.networks, "the launcher serves its user");
    let channel = Channel::new(socket);
    let mut leased = Leased::default();
    let mut deadlines = Deadlines::default();
    let mut is_quiet = false;
    loop {
        if leased.closing.len() >= Leased::MANY {
            closer.close_later(&mut leased.closing);
        }
        let has_work = !leased.closing.is_empty() || driver.launcher().has_work();
        let mut wait = [PollFd::new(&channel, PollFlags::IN), PollFd::new(&child_ends, PollFlags::IN)];
        let next_deadline = deadlines.next(boot_time());
        let within = if has_work { Some(if is_quiet { NOW } else { QUIET }) } else { next_deadline };
        let found = poll(&mut wait, within.as_ref());
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
        deadlines.enforce(boot_time())?;
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
            leased.reap(driver, |pid| deadlines.ended(pid))?;
        }
        if asked {
            match channel.receive::<Request>() {
                Ok((request, _)) => {
                    tracing::debug!(request = request.name(), "the launcher has a request");
                    answer(driver, &channel, request, (&mut leased, &mut deadlines)).map_err(io::Error::other)?;
                }
                Err(ChannelError::Closed) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

fn answer(
    driver: &Namespace,
    channel: &Channel,
    request: Request,
    (leased, deadlines): (&mut Leased, &mut Deadlines),
) -> Result<(), ChannelError> {
    match request {
        Request::Prepare(plan) => channel.send(&prepared(driver, &plan), &[]),
        Request::Start { plan, handle } => match handle_from_json(&handle) {
            Ok(handle) => start(driver, channel, (&plan, &handle), leased, deadlines),
            Err(reason) => channel.send(&Answer::NotStarted(StartError::Handle { reason }), &[]),
        },
        Request::KeepUntil { run, until } => {
            deadlines.keep(run, until, boot_time());
            channel.send(&Answer::Noted, &[])
        }
    }
}

fn prepared(driver: &Namespace, plan: &Plan) -> Answer {
    let prepared = driver.prepare(plan).and_then(|handle| {
        let json = handle_to_json(&handle);
        json.map_err(|reason| PrepareError::Launcher { reason })
    });
    prepared.map_or_else(Answer::NotPrepared, Answer::Prepared)
}

fn start(
    driver: &Namespace,
    channel: &Channel,
    (plan, handle): (&Plan, &Handle),
    leased: &mut Leased,
    deadlines: &mut Deadlines,
) -> Result<(), ChannelError> {
    if !deadlines.allows(plan.run_id, boot_time()) {
        let reason = "the lease of the run had ended before its sandbox was started".to_owned();
        return channel.send(&Answer::NotStarted(StartError::Launcher { reason }), &[]);
    }
    let (launched, expect) = match driver.launch(plan, handle) {
        Ok(launched) => launched,
        Err(error) => return channel.send(&Answer::NotStarted(error), &[]),
    };
    let pid = launched.child.pid.as_raw_nonzero().get();
    if let Err(error) = deadlines.started(plan.run_id, pid, launched.child.pidfd.as_fd()) {
        // A sandbox whose end nothing enforces must not run. It dies with its channel, which is dropped here.
        let reason = format!("the deadline of the sandbox cannot be enforced: {error}");
        return channel.send(&Answer::NotStarted(StartError::Launcher { reason }), &[]);
    }
    let mut descriptors = vec![launched.channel.as_fd(), launched.child.pidfd.as_fd()];
    descriptors.extend(launched.upper.as_ref().map(AsFd::as_fd));
    let started = Started { pid, guarantees: guarantees::of(plan), expect };
    let sent = channel.send(&Answer::Started(started), &descriptors);
    leased.hold(pid, launched.network, launched.deferred);
    match sent {
        // Too many descriptors of this user are under way (unix(7)), which other sandboxes of the same user may
        // bring about. Nothing was sent yet: this one ends, and the others stay.
        Err(ChannelError::Io(Errno::TOOMANYREFS)) => {
            match pidfd_send_signal(&launched.child.pidfd, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
            let detail = "too many descriptors of this user are under way".to_owned();
            let (step, errno) = (Step::MakeChannel.name().to_owned(), Errno::TOOMANYREFS.raw_os_error());
            channel.send(&Answer::NotStarted(SetupError { step, errno, detail }.into()), &[])
        }
        sent => sent,
    }
}

/// For a program that was started by [`crate::launcher::Launcher::start`].
pub fn serve_stdin(driver: &Namespace, pools: PoolConfig) -> io::Result<()> {
    let socket = rustix::io::dup(rustix::stdio::stdin())?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    debug_assert_eq!(driver.name(), NAME, "the launcher is the namespace driver's");
    serve(driver, socket, pools)
}
