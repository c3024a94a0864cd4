//! A question to a person about what the policy does not list.

use nexus_policy::net::{AnyRule, Attempt, Denial};
use std::pin::Pin;

/// What was answered.
#[derive(Debug, Clone)]
pub enum Answer {
    /// No, or nobody answered in time.
    Deny,
    /// This one attempt, by this rule; its connection ends when the policy without the rule would end it otherwise.
    Once(AnyRule),
    /// The policy was replaced meanwhile (`Egress::reload`): decide anew.
    Again,
}

/// An answer that is being waited for.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Asks. One attempt waits for its answer while others go on; it is asked once.
pub trait Approver: Send + Sync {
    /// Asks about `attempt`. Must end by itself: no answer within the approver's own time is [`Answer::Deny`].
    fn ask<'a>(&'a self, attempt: &'a Attempt, denial: &'a Denial) -> Asked<'a>;
}
