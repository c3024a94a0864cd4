//! The commands of a line as lists of words, for rules about them.

use super::line::{Line, Stage};
use super::parse::parse;
use super::programs::{base, is_shell, is_wrapper};

/// The commands that a line or a list of words runs, as far as they can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commands {
    /// Words of each command, also of those that a wrapper may run.
    pub all: Vec<Vec<String>>,
    /// Words of the one plain command that all of it is; `None` where there is more, or something that is not known.
    pub plain: Option<Vec<String>>,
}

/// Largest number of words of a wrapper that are looked at as commands.
const MAX_SUFFIXES: usize = 64;

impl Commands {
    /// Reads a command line.
    #[must_use]
    pub fn of_line(text: &str) -> Self {
        let line = parse(text);
        let mut all = Vec::new();
        line.each_stage(&mut |stage| {
            let words: Vec<String> = stage.words.iter().map(|word| word.text.clone()).collect();
            with_wrapped(words, &mut all);
        });
        Self { all, plain: plain_of(&line) }
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
            commands.all.push(words.to_vec());
            if words.len() > 3 {
                commands.plain = None;
            }
            return commands;
        }
        let mut all = Vec::new();
        with_wrapped(words.to_vec(), &mut all);
        Self { all, plain: (!words.is_empty()).then(|| words.to_vec()) }
    }
}

fn with_wrapped(words: Vec<String>, all: &mut Vec<Vec<String>>) {
    let Some(first) = words.first() else { return };
    if is_wrapper(base(first)) {
        all.extend((1..words.len().min(MAX_SUFFIXES)).map(|at| words[at..].to_vec()));
    }
    all.push(words);
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
