//! The commands of a line as lists of words, for rules about them.

use super::line::{Line, Stage};
use super::parse::parse;
use super::programs::{base, is_shell, is_wrapper};
use std::collections::HashMap;

/// The commands that a line or a list of words runs, as far as they can be seen.
///
/// A wrapper may run each of its words with those behind it. These are not copied, and they are found by the name of their
/// program: the work of a rule is that of the commands with its program, however many words a line has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commands {
    /// Words of each command.
    lists: Vec<Vec<String>>,
    /// List and first word of each command, also of those that a wrapper may run, by the name of its program.
    by_name: HashMap<String, Vec<(usize, usize)>>,
    /// Words of the one plain command that all of it is; `None` where there is more, or something that is not known.
    pub plain: Option<Vec<String>>,
}

impl Commands {
    /// Reads a command line.
    #[must_use]
    pub fn of_line(text: &str) -> Self {
        let line = parse(text);
        let mut commands = Self { plain: plain_of(&line), ..Self::default() };
        line.each_stage(&mut |stage| {
            commands.add(stage.words.iter().map(|word| word.text.clone()).collect(), true);
        });
        commands
    }

    /// Reads the words of a command. Those of a shell with `-c` are a command line.
    #[must_use]
    pub fn of_words(words: &[String]) -> Self {
        if let [shell, flag, text, ..] = words
            && is_shell(base(shell))
            && flag.starts_with('-')
            && flag.ends_with('c')
        {
            let mut commands = Self::of_line(text);
            commands.add(words.to_vec(), false);
            if words.len() > 3 {
                commands.plain = None;
            }
            return commands;
        }
        let mut commands = Self { plain: (!words.is_empty()).then(|| words.to_vec()), ..Self::default() };
        commands.add(words.to_vec(), true);
        commands
    }

    /// Returns the words of each command whose program has this name, in whatever directory it is.
    pub fn of_program(&self, name: &str) -> impl Iterator<Item = &[String]> {
        let found = self.by_name.get(base(name)).into_iter().flatten();
        found.filter_map(|(list, first)| self.lists.get(*list)?.get(*first..))
    }

    fn add(&mut self, words: Vec<String>, looks_through: bool) {
        let Some(first) = words.first() else { return };
        let count = if looks_through && is_wrapper(base(first)) { words.len() } else { 1 };
        for (at, word) in words.iter().enumerate().take(count) {
            let places = self.by_name.entry(base(word).to_owned()).or_default();
            places.push((self.lists.len(), at));
        }
        self.lists.push(words);
    }
}

/// Returns the words of a text that is one plain command.
#[must_use]
pub fn plain_words(text: &str) -> Option<Vec<String>> {
    plain_of(&parse(text))
}

fn plain_of(line: &Line) -> Option<Vec<String>> {
    let [pipeline] = line.pipelines.as_slice() else { return None };
    let [Stage { assignments, words, redirects, inner }] = pipeline.as_slice() else { return None };
    let is_plain = line.unknown.is_empty() && assignments.is_empty() && redirects.is_empty() && inner.is_empty();
    let is_known = is_plain && !words.is_empty() && words.iter().all(|word| !word.is_open);
    is_known.then(|| words.iter().map(|word| word.text.clone()).collect())
}
