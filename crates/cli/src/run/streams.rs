//! Gives a command its streams and its bounds, and runs it to its end.

use super::order::Order;
use super::signals::Signals;
use crate::args::RunArgs;
use crate::terminal::raw::{self, USUAL_SIZE};
use nexus_driver::{Sandbox, Session, Stdio};
use nexus_runner::live::attendant::{Attendant, NetworkServer};
use nexus_runner::live::bounds::{Bounds, Broken, Ends, Look, Outcome};
use nexus_runner::live::covers::Covers;
use nexus_runner::live::{pipes, pump};
use nexus_runner::state::commit_lock::Mounting;
use rustix::fd::AsFd;
use std::io;

/// Starts the command and moves its bytes until nothing of it lives. `meanwhile` runs while the sandbox comes up.
#[allow(clippy::too_many_arguments, reason = "each is another side of the run")]
pub fn pumped<C: Attendant>(
    args: &RunArgs,
    order: &Order,
    sandbox: &Sandbox,
    caller: &mut C,
    signals: &Signals,
    network: Option<&mut dyn NetworkServer>,
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
        was_ended: crate::terminal::out::ended_flag(),
    };
    let (session, ends) = if args.tty {
        let size = if args.detach { USUAL_SIZE } else { raw::size() };
        let session = Session::start(sandbox, &order.plan, Stdio::Terminal(size)).map_err(io::Error::other)?;
        (session, Ends { out: None, err: None, input: None, terminal: true })
    } else {
        let (out, out_there) = pipes::pipe()?;
        let (err, err_there) = pipes::pipe()?;
        let (input, stdin_there) = pipes::stdin_pair(args.stdin)?;
        let stdio = Stdio::Pipes([stdin_there.as_fd(), out_there.as_fd(), err_there.as_fd()]);
        // The command's ends are its own: held here, the pipes would never end.
        let session = Session::start(sandbox, &order.plan, stdio).map_err(io::Error::other)?;
        (session, Ends { out: Some(out), err: Some(err), input, terminal: false })
    };
    // The sandbox needs some time to come up.
    meanwhile();
    pump::run(sandbox, session, ends, caller, signals, bounds, network)
}

/// Reports whether the guest has sent something: then other work of this process stops.
pub fn has_spoken(sandbox: &Sandbox) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut channel = [PollFd::new(&sandbox.channel, PollFlags::IN)];
    poll(&mut channel, Some(&Timespec::default())) != Ok(0)
}
