//! The sides of the caller that every stage of a run needs.

use crate::live::attendant::Interrupts;
use crate::recover::recovery::Recovery;
use crate::settle::frontend::Frontend;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The sides of the caller.
#[derive(Clone)]
pub struct Surroundings<'a> {
    /// Talks to the user.
    pub frontend: &'a dyn Frontend,
    /// Recovers what other runs left.
    pub recovery: &'a dyn Recovery,
    /// Signals to the process.
    pub interrupts: &'a dyn Interrupts,
    /// Is set when the run was ended from outside or by its time limit.
    pub was_ended: Arc<AtomicBool>,
}
