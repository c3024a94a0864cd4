//! Keeps the values of secrets out of output, also where they are split over several writes or encoded.
//!
//! ```text
//!  values ──forms──▶ byte strings ──automaton──▶ Patterns (shared) ──▶ Redactor (one for each stream): bytes ─▶ bytes
//! ```
//! This is against accidents: a command that has a secret can write it in a form that is not looked for.

mod automaton;
mod forms;
mod patterns;
mod stream;

use crate::value::SecretValue;
use patterns::Patterns;
use std::sync::Arc;

pub use stream::Redactor;

/// Makes the redactors of a run.
#[derive(Clone)]
pub struct Redaction(Arc<Patterns>);

impl Redaction {
    /// Looks for the values of these secrets, which are at most [`crate::MAX_SECRETS`].
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a SecretValue)>) -> Self {
        Self(Arc::new(Patterns::new(secrets)))
    }

    /// Makes the redactor of one stream that is read by a program.
    #[must_use]
    pub fn stream(&self) -> Redactor {
        Redactor::new(Arc::clone(&self.0), 0)
    }

    /// Makes the redactor of a terminal. So that typing is seen at once, it shows up to two bytes that may begin a value and
    /// come alone.
    #[must_use]
    pub fn terminal(&self) -> Redactor {
        Redactor::new(Arc::clone(&self.0), 2)
    }
}
