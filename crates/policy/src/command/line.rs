//! A command line, taken apart.

/// A word as far as it is known before the command runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word {
    /// The word without its quotes; an expansion stays as it is written.
    pub text: String,
    /// The value depends on what happens at run time: an expansion, a pattern, a tilde, braces.
    pub is_open: bool,
    /// Some of it was quoted, so that it is not a reserved word.
    pub is_quoted: bool,
    /// Commands whose output becomes part of the word, or that it is connected to.
    pub inner: Vec<Line>,
}

/// Direction of a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// A file is read.
    In,
    /// A file is written.
    Out,
    /// Text of the line itself is read.
    Text,
    /// Another descriptor is used.
    Descriptor,
}

/// A redirection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    pub direction: Direction,
    /// The file, or the text.
    pub target: Word,
}

/// One command of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stage {
    /// Variables that are set, `NAME=VALUE`.
    pub assignments: Vec<Word>,
    pub words: Vec<Word>,
    pub redirects: Vec<Redirect>,
    /// Commands in parentheses.
    pub inner: Vec<Line>,
}

impl Stage {
    pub fn is_empty(&self) -> bool {
        self.assignments.is_empty() && self.words.is_empty() && self.redirects.is_empty() && self.inner.is_empty()
    }

    /// Returns all commands that are written inside of this one.
    pub fn nested(&self) -> impl Iterator<Item = &Line> {
        let words = self.assignments.iter().chain(&self.words);
        let words = words.chain(self.redirects.iter().map(|redirect| &redirect.target));
        self.inner.iter().chain(words.flat_map(|word| &word.inner))
    }
}

/// Commands that are connected by pipes.
pub(super) type Pipeline = Vec<Stage>;

/// Everything in one line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Line {
    pub pipelines: Vec<Pipeline>,
    /// Functions that it defines.
    pub functions: Vec<String>,
    /// Constructs that are not known, or that only a person can assess.
    pub unknown: Vec<String>,
}

impl Line {
    /// Marks a construct, once.
    pub fn mark(&mut self, what: &str) {
        if !self.unknown.iter().any(|known| known == what) {
            self.unknown.push(what.to_owned());
        }
    }

    /// Calls `see` for every stage of it, also of those in substitutions and parentheses.
    pub fn each_stage(&self, see: &mut dyn FnMut(&Stage)) {
        for stage in self.pipelines.iter().flatten() {
            see(stage);
            for line in stage.nested() {
                line.each_stage(see);
            }
        }
    }
}
