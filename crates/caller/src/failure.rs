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
    /// The advice for the user, as sentences; may be empty.
    pub hint: String,
}

impl Failure {
    /// Wrong use of the command line.
    pub fn usage(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: nexus_model::exit::USAGE, code, message: message.into(), hint: sentence(&hint.into()) }
    }

    /// Nexus refused, or failed before the command started.
    pub fn refused(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: nexus_model::exit::REFUSED, code, message: message.into(), hint: sentence(&hint.into()) }
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
        if self.hint.is_empty() {
            self.message.clone()
        } else {
            format!("{}{end} {}", self.message, sentence(&self.hint))
        }
    }
}

/// Words in lower case that begin a sentence: names of programs and of arguments.
const NAMES: [&str; 9] = ["nexus", "chmod", "chown", "git", "kill", "regex", "setpriv", "sysctl", "ulimit"];

fn first_word(text: &str) -> &str {
    text.split([' ', ',', ':', ';']).next().unwrap_or_default()
}

/// Gives advice the form of a sentence: a capital letter, unless a name begins it, and a period, unless it ends with a command to copy.
fn sentence(advice: &str) -> String {
    let word = first_word(advice);
    let is_word = !word.is_empty() && word.bytes().all(|letter| letter.is_ascii_lowercase());
    let mut text = advice.to_owned();
    if let Some(first) = text.get_mut(..1).filter(|_| is_word && !NAMES.contains(&word)) {
        first.make_ascii_uppercase();
    }
    let is_command =
        advice.rsplit_once(": ").is_some_and(|(_, end)| NAMES.contains(&first_word(end)) && !end.contains(". "));
    if advice.ends_with(|letter: char| letter.is_alphanumeric() || ")]>'`".contains(letter)) && !is_command {
        text.push('.');
    }
    text
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
        let failure = Failure::usage("x", "no such directory: a\nb\u{1b}[2J", "make it");
        assert_eq!(failure.to_string(), "nexus: no such directory: a\\nb\\u{1b}[2J. Make it.");
        let question = Failure::usage("x", "no such profile; did you mean git?", "list them");
        assert_eq!(question.text(), "no such profile; did you mean git? List them.");
    }

    #[test]
    fn advice_is_printed_as_sentences() {
        for (advice, printed) in [
            ("", ""),
            ("name a directory", "Name a directory."),
            ("look there, or wait (a minute)", "Look there, or wait (a minute)."),
            ("Leave it out.", "Leave it out."),
            ("is it still there?", "Is it still there?"),
            ("nexus ps lists them", "nexus ps lists them."),
            ("chmod 700 it. wait", "chmod 700 it. wait."),
            ("show_changes lists them.", "show_changes lists them."),
            ("--net none closes it", "--net none closes it."),
            ("/etc/nexus has it", "/etc/nexus has it."),
            ("As root: sysctl -w kernel.core_pattern=core", "As root: sysctl -w kernel.core_pattern=core"),
            ("nothing was run: look at its rights", "Nothing was run: look at its rights."),
            ("as root: chmod 700 x. then run it", "As root: chmod 700 x. then run it."),
            ("für alle", "für alle."),
        ] {
            assert_eq!(sentence(advice), printed);
            assert_eq!(sentence(printed), printed, "a second time");
            assert_eq!(Failure::usage("x", "m", advice).hint, printed);
        }
    }
}
