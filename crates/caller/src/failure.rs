//! The error type that all commands print: one line that says what happened and what to do.

use serde::Serialize;
use std::fmt;

/// A failure with its exit code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The exit code of `nexus`.
    #[serde(skip)]
    pub exit: u8,
    /// A stable word for programs.
    pub code: &'static str,
    /// The problem, as a sentence without its period.
    pub message: String,
    /// The advice for the user; may be empty.
    pub hint: String,
}

impl Failure {
    /// Wrong use of the command line.
    pub fn usage(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: nexus_model::exit::USAGE, code, message: message.into(), hint: hint.into() }
    }

    /// Nexus refused, or failed before the command started.
    pub fn refused(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: nexus_model::exit::REFUSED, code, message: message.into(), hint: hint.into() }
    }
}

impl Failure {
    /// Adds a failure that came while clearing up.
    #[must_use]
    pub fn and_then(mut self, second: &Self) -> Self {
        self.message = format!("{}; and then: {}", self.message, second.message);
        self
    }

    /// Returns the message, followed by the hint if there is one.
    pub fn text(&self) -> String {
        let end = if self.message.ends_with('?') { "" } else { "." };
        if self.hint.is_empty() { self.message.clone() } else { format!("{}{end} {}", self.message, self.hint) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nexus: {}", one_line(&self.text()))
    }
}

/// Paths may hold newlines and escape sequences; a terminal must see neither (vector N04).
pub fn one_line(text: &str) -> String {
    nexus_terminal::visible::escaped(text, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_without_control_characters() {
        let failure = Failure::usage("x", "no such folder: a\nb\u{1b}[2J", "make it");
        assert_eq!(failure.to_string(), "nexus: no such folder: a\\nb\\u{1b}[2J. make it");
        let question = Failure::usage("x", "no such profile; did you mean git?", "list them");
        assert_eq!(question.text(), "no such profile; did you mean git? list them");
    }
}
