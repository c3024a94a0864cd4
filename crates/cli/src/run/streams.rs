//! Gives a command its streams and its bounds, and runs it to its end.

use super::caller::Caller;
use super::covers::Covers;
use super::order::Order;
use super::pump::{self, Bounds, Broken, Ends, Look, Outcome};
use super::signals::Signals;
use crate::args::RunArgs;
use crate::net::Service;
use crate::terminal::raw::{self, USUAL_SIZE};
use nexus_driver::{Sandbox, Session, Stdio};
use nexus_runner::state::commit_lock::Mounting;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use std::fs::File;
use std::io;

/// Starts the command and moves its bytes until nothing of it lives. `meanwhile` runs while the sandbox comes up.
#[allow(clippy::too_many_arguments, reason = "each is another side of the run")]
pub fn pumped<C: Caller>(
    args: &RunArgs,
    order: &Order,
    sandbox: &Sandbox,
    caller: &mut C,
    signals: &Signals,
    network: Option<&mut Service>,
    mounting: Mounting,
    covers: Option<Covers>,
    meanwhile: impl FnOnce(),
) -> Result<Outcome, Broken> {
    let bounds = Bounds {
        timeout: order.timeout,
        grace: order.grace,
        watch_memory: order.plan.limits.memory_bytes.is_some(),
        over_disk: order.measured_layer().map(|(mut layer, limit)| -> Box<dyn FnMut(Look) -> io::Result<bool>> {
            Box::new(move |look| match look {
                Look::On => layer.look_on(limit),
                Look::AtAll => layer.look_at_all(limit),
            })
        }),
        mounting: Some(mounting),
        covers,
    };
    let (session, ends) = if args.tty {
        let size = if args.detach { USUAL_SIZE } else { raw::size() };
        let session = Session::start(sandbox, &order.plan, Stdio::Terminal(size)).map_err(io::Error::other)?;
        (session, Ends { out: None, err: None, input: None, terminal: true })
    } else {
        let (out, out_there) = pump::pipe()?;
        let (err, err_there) = pump::pipe()?;
        let (input, stdin_there) = stdin_pair(args.stdin)?;
        let stdio = Stdio::Pipes([stdin_there.as_fd(), out_there.as_fd(), err_there.as_fd()]);
        // The command's ends are its own: held here, the pipes would never end.
        let session = Session::start(sandbox, &order.plan, stdio).map_err(io::Error::other)?;
        (session, Ends { out: Some(out), err: Some(err), input, terminal: false })
    };
    // The sandbox needs some time to come up.
    meanwhile();
    pump::run(sandbox, session, ends, caller, signals, bounds, network)
}

/// Whether the guest has something to say: then whoever does something else stops.
pub fn has_spoken(sandbox: &Sandbox) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut channel = [PollFd::new(&sandbox.channel, PollFlags::IN)];
    poll(&mut channel, Some(&Timespec::default())) != Ok(0)
}

/// Our end and the command's end of its stdin: a pipe that we fill, or `/dev/null`.
pub fn stdin_pair(pass: bool) -> io::Result<(Option<OwnedFd>, OwnedFd)> {
    if !pass {
        return Ok((None, File::open("/dev/null")?.into()));
    }
    let (there, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    open_to_the_command(&there)?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
    Ok((Some(ours), there))
}

/// Lets the command open its end of a pipe by name (`/dev/stdout`, `/dev/stdin`), which root makes and the sandbox's own user
/// opens. Who can reach the name, a link in `/proc` of a process that has it open, is decided there.
pub fn open_to_the_command(end: &OwnedFd) -> io::Result<()> {
    let all = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    Ok(rustix::fs::fchmod(end, all)?)
}
