//! The launcher process behind the door: starts one sandbox for each connection, and kills it when the connection ends.
//!
//! ```text
//!  door ── connection ──▶ waits for Start ─▶ clone ─▶ Started ─┬─ sandbox ended: connection closed
//!                                                              └─ caller gone: sandbox killed
//!  door gone ─▶ no new connection; ends with the last caller
//! ```
//! One thread, and no caller is waited for: what it sends comes in pieces as it comes, and an answer that it does not take at
//! once ends it.

use super::claim::Claim;
use super::wire::{Answer, Start};
use crate::closer::Closer;
use crate::driver::Namespace;
use crate::guarantees;
use crate::launcher::deadlines::boot_time;
use crate::launcher::leased::Leased;
use crate::launcher::wire::{Started, handle_from_json};
use nexus_channel::{Partial, codec, descriptors};
use nexus_driver::{Channel, Handle, StartError};
use nexus_jail::PoolConfig;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Signal, pidfd_send_signal};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// Idle time before work is done in advance, so that a sandbox that has just started gets the processor first.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };

/// A caller that the door found to be like itself.
struct RunConnection {
    channel: Channel,
    partial: Partial,
    /// The first process of its sandbox, with its number.
    sandbox: Option<(i32, OwnedFd)>,
}

/// The caller is gone, or breaks the protocol: its connection ends.
struct Gone;

/// Serves the callers that the door sends over the standard input of this process, which does nothing else any more.
pub fn serve_warm(driver: &Namespace, pools: PoolConfig) -> io::Result<()> {
    let intake = rustix::io::dup(rustix::stdio::stdin())?;
    rustix::io::fcntl_setfd(&intake, rustix::io::FdFlags::CLOEXEC)?;
    let (mut child_ends, to) = UnixStream::pair()?;
    child_ends.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, to)?;
    let closer = Closer::start()?;
    driver.enter_launcher_mode(pools).map_err(io::Error::other)?;
    let mut intake = Some(intake);
    let mut callers: Vec<RunConnection> = Vec::new();
    let mut leased = Leased::default();
    while intake.is_some() || !callers.is_empty() {
        let has_work = intake.is_some() && driver.launcher().has_work();
        let mut wait = vec![PollFd::new(&child_ends, PollFlags::IN)];
        wait.extend(callers.iter().map(|caller| PollFd::new(&caller.channel, PollFlags::IN)));
        wait.extend(intake.as_ref().map(|intake| PollFd::new(intake, PollFlags::IN)));
        match poll(&mut wait, has_work.then_some(&QUIET)) {
            Ok(0) => {
                driver.work_ahead();
                continue;
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = wait.iter().map(|one| !one.revents().is_empty()).collect();
        let called = intake.is_some() && ready.last() == Some(&true);
        // Before the callers are looked at: the index of each is that of this round.
        let mut ready = ready.into_iter().skip(1);
        callers.retain_mut(|caller| {
            ready.next() != Some(true) || advance(driver, caller, (&mut leased, intake.as_ref())).is_ok()
        });
        if called {
            match arrived(intake.as_ref()) {
                Arrival::Connection(socket) => callers.push(RunConnection::new(socket)),
                Arrival::Nothing => {}
                Arrival::DoorIsGone => intake = None,
            }
        }
        drain(&mut child_ends)?;
        leased.reap(driver, |ended| {
            callers.retain(|caller| caller.sandbox.as_ref().is_none_or(|(pid, _)| *pid != ended));
        })?;
        // At once, and not when nothing has come for a while: a caller may wait until the overlay of its sandbox is gone.
        closer.close_later(&mut leased.closing);
    }
    Ok(())
}

/// A message of the door.
enum Arrival {
    Connection(OwnedFd),
    Nothing,
    DoorIsGone,
}

/// Takes a connection from the door.
fn arrived(intake: Option<&OwnedFd>) -> Arrival {
    let Some(intake) = intake else { return Arrival::DoorIsGone };
    match descriptors::receive(intake, &mut [0; 8], RecvFlags::DONTWAIT) {
        Ok(received) if received.bytes == 0 => Arrival::DoorIsGone,
        Ok(received) => received.descriptors.into_iter().next().map_or(Arrival::Nothing, Arrival::Connection),
        Err(Errno::AGAIN | Errno::INTR) => Arrival::Nothing,
        Err(_) => Arrival::DoorIsGone,
    }
}

fn drain(child_ends: &mut UnixStream) -> io::Result<()> {
    match child_ends.read(&mut [0; 64]) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

impl RunConnection {
    fn new(socket: OwnedFd) -> Self {
        Self { channel: Channel::new(socket), partial: Partial::default(), sandbox: None }
    }
}

impl Drop for RunConnection {
    /// Whatever ended the connection: a sandbox does not outlive its caller. One that has ended is not there to be killed, and
    /// one that cannot be killed finds the end of its guest channel.
    fn drop(&mut self) {
        if let Some((_, process)) = &self.sandbox {
            pidfd_send_signal(process, Signal::KILL).ok();
        }
    }
}

fn advance(
    driver: &Namespace,
    caller: &mut RunConnection,
    (leased, door): (&mut Leased, Option<&OwnedFd>),
) -> Result<(), Gone> {
    if caller.sandbox.is_some() {
        // There is nothing more to say.
        return Err(Gone);
    }
    match caller.channel.receive_ready::<Start>(&mut caller.partial) {
        Ok(None) => Ok(()),
        Ok(Some((request, beside))) => {
            let claim = beside.into_iter().next().and_then(|pipe| Claim::received(pipe).ok()).ok_or(Gone)?;
            let started = start(driver, caller, (&request, &claim), leased);
            if let (Some(door), true) = (door, caller.sandbox.is_some()) {
                // The door counts them; one that it does not hear of changes nothing else.
                descriptors::send(door, b"s", &[], SendFlags::DONTWAIT).ok();
            }
            started
        }
        Err(_) => Err(Gone),
    }
}

fn start(
    driver: &Namespace,
    caller: &mut RunConnection,
    (request, claim): (&Start, &Claim),
    leased: &mut Leased,
) -> Result<(), Gone> {
    let handle = match handle_from_json(&request.handle) {
        Ok(handle) if handle.run_id == request.plan.run_id => handle,
        Ok(_) => return refuse(caller, StartError::Handle { reason: "it is of another run".to_owned() }),
        Err(reason) => return refuse(caller, StartError::Handle { reason }),
    };
    if boot_time() >= request.until {
        let reason = "the caller does not wait for its sandbox any more".to_owned();
        return refuse(caller, StartError::Launcher { reason });
    }
    // From here on the caller waits for an answer, or it has started its sandbox itself.
    if is_gone(caller) || !claim.take() {
        return Err(Gone);
    }
    clone_for(driver, caller, (request, &handle), leased)
}

fn clone_for(
    driver: &Namespace,
    caller: &mut RunConnection,
    (request, handle): (&Start, &Handle),
    leased: &mut Leased,
) -> Result<(), Gone> {
    let plan = &request.plan;
    match driver.launcher().is_ready_for(plan) {
        Ok(true) => {}
        // The caller is as fast, and a launcher that is building a template makes no other caller wait.
        Ok(false) | Err(_) => return send(caller, &Answer::Declined, &[]),
    }
    let (launched, expect) = match driver.launch(plan, handle) {
        Ok(launched) => launched,
        Err(error) => return refuse(caller, error),
    };
    let pid = launched.child.pid.as_raw_nonzero().get();
    let mut beside = vec![launched.channel.as_fd(), launched.child.pidfd.as_fd()];
    beside.extend(launched.upper.as_ref().map(AsFd::as_fd));
    beside.extend(launched.watch.as_ref().map(AsFd::as_fd));
    let answer = Answer::Started {
        started: Started { pid, guarantees: guarantees::of(plan), expect },
        has_upper: launched.upper.is_some(),
        has_watch: launched.watch.is_some(),
    };
    let sent = send(caller, &answer, &beside);
    leased.hold(pid, launched.network, launched.deferred);
    // From here on the sandbox ends with the connection, also where the answer did not go.
    caller.sandbox = Some((pid, launched.child.pidfd));
    sent
}

fn refuse(caller: &RunConnection, error: StartError) -> Result<(), Gone> {
    tracing::debug!(code = error.code(), "the warm launcher starts no sandbox");
    send(caller, &Answer::NotStarted(error), &[])
}

/// Sends an answer whole and without waiting.
fn send(caller: &RunConnection, answer: &Answer, beside: &[rustix::fd::BorrowedFd<'_>]) -> Result<(), Gone> {
    let bytes = codec::encode(answer).map_err(|_| Gone)?;
    match caller.channel.send_ready(&bytes, beside) {
        Ok(count) if count == bytes.len() => Ok(()),
        _ => Err(Gone),
    }
}

/// Reports whether the caller closed its end after its request.
fn is_gone(caller: &RunConnection) -> bool {
    let mut wait = [PollFd::new(&caller.channel, PollFlags::RDHUP)];
    !matches!(poll(&mut wait, Some(&Timespec::default())), Ok(0))
}
