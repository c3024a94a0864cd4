//! PID 1 inside every sandbox: starts commands, reaps, kills, and proves the confinement before each command.
//!
//! In the namespace driver the launcher's child becomes the guest without an exec: it calls [`run`] with its end of
//! the channel. Frames and the socket that carries them are those of `nexus-channel`, which the host uses too.

mod forward;
mod late;
pub mod leave_out;
mod moves;
mod outbox;
mod proof;
mod signals;
mod spawn;
mod supervise;
mod terminal;

pub use supervise::run;

#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
