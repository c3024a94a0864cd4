//! A failure and advice: the advice is what a newcomer needs.

/// A measurement or a machine that could not be made, or a case that failed in it.
#[derive(Debug, thiserror::Error)]
#[error("{what}\n  what to do: {advice}")]
pub struct Failure {
    /// Description of the failure. May have several lines.
    pub what: String,
    /// Action to take now.
    pub advice: String,
}

impl Failure {
    /// A failure with advice.
    pub fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: advice.into() }
    }
}
