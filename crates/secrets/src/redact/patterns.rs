//! Everything that is looked for in the output of a run.

use super::automaton::Automaton;
use super::forms;
use crate::value::SecretValue;

/// The forms of all values, and the texts that stand for them.
pub struct Patterns {
    pub automaton: Automaton,
    /// In the order of the secrets.
    pub marks: Vec<String>,
}

impl Patterns {
    /// Collects the forms of the values of these secrets, which are at most [`crate::MAX_SECRETS`].
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a SecretValue)>) -> Self {
        let (mut automaton, mut marks) = (Automaton::default(), Vec::new());
        for (number, (name, value)) in (0u16..).zip(secrets) {
            for form in forms::of(value.expose()) {
                automaton.add(&form, number);
            }
            marks.push(format!("[secret {name}]"));
        }
        automaton.finish();
        Self { automaton, marks }
    }
}
