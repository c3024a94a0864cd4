//! Gives a command its streams and its bounds, and runs it to its end.

use crate::live::attendant::{Attendant, NetworkServer};
use crate::live::bounds::{Bounds, Broken, Ends, Look, Outcome, set_up_within};
use crate::live::covers::Covers;
use crate::live::disk::Measured;
use crate::live::input::Feed;
use crate::live::{pipes, pump};
use crate::plan::resolve::ResolvedRun;
use crate::run::surroundings::Surroundings;
use crate::secrets::Secrets;
use crate::state::commit_lock::Mounting;
use nexus_driver::{Sandbox, Session, Stdio};
use nexus_layer::BaseSurvey;
use nexus_model::plan::Writes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::io;
use std::sync::Arc;

/// The workspace and the network of a sandbox that was started.
pub struct RunParts<'a> {
    /// Serves the network.
    pub network: Option<&'a mut dyn NetworkServer>,
    /// Looks at the files that git had when the run began.
    pub survey: Option<BaseSurvey>,
    /// The workspace, until the sandbox has mounted it.
    pub mounting: Mounting,
    /// Paths whose covers a process of the host can take away.
    pub covers: Option<Covers>,
}

/// Starts the command and moves its bytes until nothing of it lives. `meanwhile` runs while the sandbox comes up.
pub fn pumped<A: Attendant>(
    run: &ResolvedRun,
    sandbox: &Sandbox,
    secrets: &Secrets,
    attendant: &mut A,
    around: &Surroundings<'_>,
    stage: RunParts<'_>,
    meanwhile: impl FnOnce(),
) -> Result<Outcome, Broken> {
    let bounds = Bounds {
        set_up: set_up_within(),
        timeout: run.timeout,
        grace: run.grace,
        watch_memory: run.plan.limits.memory_bytes.is_some(),
        over_disk: measured_layer(run).map(|(mut layer, limit)| -> Box<dyn FnMut(Look) -> io::Result<bool>> {
            Box::new(move |depth| match depth {
                Look::On => layer.measure_some(limit),
                Look::AtAll => layer.look_at_all(limit),
            })
        }),
        survey: stage.survey,
        mounting: Some(stage.mounting),
        covers: stage.covers,
        was_ended: Arc::clone(&around.was_ended),
        redactors: secrets.redaction().map(|redaction| match run.streams.terminal {
            Some(_) => [redaction.terminal(), redaction.terminal()],
            None => [redaction.stream(), redaction.stream()],
        }),
    };
    if let Some(redaction) = secrets.redaction() {
        attendant.redact_commands(redaction);
    }
    let values = secrets.values();
    let (mut session, ends) = if let Some(size) = run.streams.terminal {
        let session =
            Session::start_with(sandbox, &run.plan, &values, Stdio::Terminal(size)).map_err(io::Error::other)?;
        (session, Ends { out: None, err: None, input: None, feed: None, terminal: true })
    } else {
        let (out, out_there) = pipes::pipe()?;
        let (err, err_there) = pipes::pipe()?;
        let source = attendant.input_source()?;
        let (input, stdin_there) = pipes::stdin_pair(source.is_some() || run.streams.input)?;
        let stdio = Stdio::Pipes([stdin_there.as_fd(), out_there.as_fd(), err_there.as_fd()]);
        // The command's ends are its own: held here, the pipes would never end.
        let session = Session::start_with(sandbox, &run.plan, &values, stdio).map_err(io::Error::other)?;
        let (feed, input) = match (source, input) {
            (Some(source), Some(to)) => (Some(Feed::new(source, to, stdin_there)), None),
            (_, input) => (None, input),
        };
        (session, Ends { out: Some(out), err: Some(err), input, feed, terminal: false })
    };
    if let Some(timeout) = run.timeout {
        session.end_within(timeout, run.grace).map_err(io::Error::other)?;
    }
    // The sandbox needs some time to come up.
    meanwhile();
    pump::run(sandbox, session, ends, attendant, around.interrupts, bounds, stage.network)
}

/// Returns the directory to measure and its limit, when the disk limit is held by measuring. Called before the
/// command starts, since the run may take from the room that there is then.
fn measured_layer(run: &ResolvedRun) -> Option<(Measured, u64)> {
    match (&run.plan.workspace.writes, run.plan.limits.disk_bytes) {
        (Writes::Layer { root }, Some(limit)) => Some((Measured::new(root.as_path().join("upper")), limit)),
        _ => None,
    }
}

/// Reports whether the guest has sent something: then other work of this process stops.
pub fn has_spoken(sandbox: &Sandbox) -> bool {
    let mut channel = [PollFd::new(&sandbox.channel, PollFlags::IN)];
    poll(&mut channel, Some(&Timespec::default())) != Ok(0)
}
