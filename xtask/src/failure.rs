//! What went wrong, and what to do about it: the second half is what a newcomer needs.

use std::fmt;

/// A check or a step that failed.
#[derive(Debug)]
pub struct Failure {
    /// What was seen. May have several lines.
    pub what: String,
    /// What to do now.
    pub advice: String,
    /// Whether the reader has seen it already, so that it is not printed twice.
    pub told: bool,
}

impl Failure {
    /// A failure with advice.
    pub fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: advice.into(), told: false }
    }

    /// The same, after it was printed.
    pub fn told(mut self) -> Self {
        self.told = true;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  what to do: {}", self.what, self.advice)
    }
}
