//! Messages of the guest, and its end.

use super::{LAST_WAIT, Pump};
use crate::live::attendant::{Attendant, SandboxEvent};
use crate::state::commit_lock::Mounting;
use nexus_driver::{ChannelError, Event, MAIN_COMMAND};
use nexus_model::ExitReason;
use std::io;
use std::time::Instant;

impl<A: Attendant> Pump<'_, A> {
    /// Reads what a guest that is dead had sent, and ends the session. The channel has no end as long as another process
    /// holds the guest's side of it, and that one may go on sending.
    pub(super) fn recv_rest(&mut self) -> io::Result<()> {
        let until = Instant::now() + LAST_WAIT;
        while self.receive()? && Instant::now() < until {}
        if self.inside.session.is_some() {
            self.note_lost_guest(ChannelError::Closed)?;
        }
        Ok(())
    }

    /// Finds out after an error whether the command had started. Its output can be read before the message of its start, and
    /// the work of a command that ran must not be removed.
    pub(super) fn recv_start(&mut self) {
        let until = Instant::now() + LAST_WAIT;
        // The first error is the one that ends the run.
        while self.outcome.spawned.is_none() && matches!(self.receive(), Ok(true)) && Instant::now() < until {}
        if self.outcome.spawned.is_none() {
            self.outcome.spawned = self.outcome.first_output;
        }
    }

    /// Handles one message of the guest, and reports whether there was one.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.inside.session else { return Ok(false) };
        let Some(event) = session.recv_ready().transpose() else { return Ok(false) };
        match event {
            Ok(Event::Up) => self.sandbox.process.on_ready(),
            Ok(Event::Terminal { exec: MAIN_COMMAND, master }) => {
                self.inside.input = Some(rustix::io::fcntl_dupfd_cloexec(&master, 0)?);
                self.out = Some(master);
            }
            Ok(
                event @ (Event::Terminal { .. }
                | Event::Command { .. }
                | Event::Forwarded { .. }
                | Event::ForwardFailed { .. }),
            ) => self.attendant.event(SandboxEvent::Other(event), &mut self.inside)?,
            Ok(Event::Listeners(listeners)) => {
                // Without a network they are closed here.
                if let Some(network) = &mut self.network {
                    network.serve(listeners)?;
                }
            }
            Ok(Event::Names(socket)) => self.outcome.names.serve(socket),
            Ok(Event::Layer(upper)) => self.outcome.layer = Some(upper),
            Ok(Event::Started(proof)) => {
                self.outcome.proof = proof;
                let now = Instant::now();
                self.outcome.spawned = Some(now);
                self.started = now;
                self.bounds.mounting.take().map_or(Ok(()), Mounting::done)?;
                self.attendant.event(SandboxEvent::Started, &mut self.inside)?;
            }
            Ok(Event::Ended(ended)) => {
                self.outcome.ended = Some(ended);
                self.inside.session = None;
                self.end.note_ended();
                // What still lives is killed by the kernel, and dies at the share of the processor otherwise.
                self.sandbox.process.hurry();
            }
            // This process was stopped meanwhile.
            Ok(Event::OutOfTime) => self.note_out_of_time(),
            Ok(Event::NotStarted(reason)) => {
                if self.outcome.reason == ExitReason::Exit {
                    self.outcome.reason = ExitReason::DriverFailed;
                }
                self.outcome.not_started = Some(reason);
                self.end_now()?;
            }
            Err(error) => self.note_lost_guest(error)?,
        }
        Ok(true)
    }

    /// Notes that nothing more is heard of the guest.
    fn note_lost_guest(&mut self, error: ChannelError) -> io::Result<()> {
        // Killed by us for a reason that is known already, or lost.
        if self.outcome.reason == ExitReason::Exit {
            self.outcome.reason = ExitReason::GuestLost;
            if self.outcome.spawned.is_none() {
                self.outcome.reason = ExitReason::DriverFailed;
                self.outcome.not_started = Some(error.into());
            }
        }
        self.end_now()
    }
}
