//! Rules about commands, by their first words. They decide about questions to a person and are never a boundary.

use crate::command::{Commands, plain_words};
use std::fmt;

/// Rule about a command: all of its words, or its first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRule {
    words: Vec<String>,
    is_prefix: bool,
}

impl CommandRule {
    /// Reads `git status` (exactly that) or `npm run *` (these words and any that follow).
    pub fn parse(text: &str) -> Result<Self, String> {
        let (plain, is_prefix) = match text.strip_suffix(" *") {
            Some(before) => (before, true),
            None => (text, false),
        };
        match plain_words(plain) {
            Some(words) => Ok(Self { words, is_prefix }),
            None => Err(format!("{text:?} is not a rule about a command: write plain words, and * alone at the end")),
        }
    }

    /// Reports whether the rule is about a command with these words.
    #[must_use]
    pub fn matches(&self, words: &[String]) -> bool {
        if self.is_prefix { words.starts_with(&self.words) } else { words == self.words }
    }

    /// Reports whether some command is one that the rule is about, whatever directory its program is in unless the rule says it.
    #[must_use]
    pub fn matches_some(&self, commands: &Commands) -> bool {
        let Some((program, rest)) = self.words.split_first() else { return false };
        commands.of_program(program).any(|words| {
            let Some((first, others)) = words.split_first() else { return false };
            let is_program = !program.contains('/') || first == program;
            is_program && if self.is_prefix { others.starts_with(rest) } else { others == rest }
        })
    }

    /// Reports whether there is nothing but one plain command, and the rule is about it.
    #[must_use]
    pub fn matches_all(&self, commands: &Commands) -> bool {
        commands.plain.as_ref().is_some_and(|words| self.matches(words))
    }
}

impl fmt::Display for CommandRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.words.join(" "), if self.is_prefix { " *" } else { "" })
    }
}
