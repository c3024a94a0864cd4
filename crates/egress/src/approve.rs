//! Asks a person about attempts that the policy does not list.

use nexus_policy::net::{AnyRule, Attempt, Denial};
use std::pin::Pin;

/// Answer of a person or of the time limit.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Denies the attempt: the person refused, or did not answer in time.
    Deny,
    /// Allows this one attempt by this rule; its connection ends when the policy without the rule would end it
    /// otherwise.
    Once(AnyRule),
    /// Asks for a new decision, since the policy was replaced meanwhile (`Egress::reload`).
    Again,
}

/// Future of an answer.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Asks a person. One attempt waits for its answer while others go on; each attempt is asked once.
pub trait Approver: Send + Sync {
    /// Asks about `attempt`. Must end on its own: no answer within the approver's own time is [`Answer::Deny`].
    fn ask<'a>(&'a self, attempt: &'a Attempt, denial: &'a Denial) -> Asked<'a>;
}
