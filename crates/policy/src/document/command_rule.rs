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

    /// The same, whatever directory the program is in.
    fn matches_anywhere(&self, words: &[String]) -> bool {
        let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
        let mut plain = words.to_vec();
        if let (Some(first), false) = (plain.first_mut(), self.words.first().is_some_and(|word| word.contains('/'))) {
            *first = name(first);
        }
        self.matches(&plain)
    }

    /// Reports whether some command is one that the rule is about.
    #[must_use]
    pub fn matches_some(&self, commands: &Commands) -> bool {
        commands.all.iter().any(|words| self.matches_anywhere(words))
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
