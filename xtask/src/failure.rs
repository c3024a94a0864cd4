//! A failure and advice: the advice is what a newcomer needs.

use std::fmt;

/// A check or a step that failed.
#[derive(Debug)]
pub struct Failure {
    /// Description of the failure. May have several lines.
    pub what: String,
    /// Action to take now.
    pub advice: String,
    /// Set when the failure was printed already, so that it is not printed twice.
    pub printed: bool,
}

impl Failure {
    /// A failure with advice.
    pub fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: advice.into(), printed: false }
    }

    /// The same, after it was printed.
    pub fn printed(mut self) -> Self {
        self.printed = true;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  what to do: {}", self.what, self.advice)
    }
}
