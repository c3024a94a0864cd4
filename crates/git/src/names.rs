//! The list of protected names: programs on the host act on them unasked. Pure.
//!
//! A name counts at any depth, whether it exists or not (Claude Code CVE-2026-25725: a settings file was protected only
//! if it was there), and in every spelling that a file system may take for it (`fold`). A directory counts with all
//! that is below it. `.git` has rules of its own (`git_names`).

mod list;
mod table;

use self::table::{Agreement, Standard};
use nexus_beneath::fold::fold;
use std::borrow::Cow;
use std::collections::HashMap;

pub use self::list::{DEFAULT_PROTECTED, DEFAULT_PROTECTED_OF_REPOSITORIES};

/// Directories with packages of others. git would read a `.gitattributes` there too, but only of files that it tracks
/// or adds, and it can only choose among the filters that the user's own configuration has.
pub const PACKAGES: &[&[u8]] = &[b"node_modules", b"vendor", b".venv", b"site-packages"];

/// A text that is not a pattern for protected names.
pub use nexus_model::name_pattern::{PatternError, check};

/// One protected name or chain of names; `*` in a name stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    names: Vec<NamePattern>,
    /// From the top of the workspace on, and nowhere else.
    anchored: bool,
    /// It says nothing in directories of packages.
    not_in_packages: bool,
}

/// One name of a chain, split at its stars and folded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamePattern {
    pieces: Vec<Vec<u8>>,
}

impl NamePattern {
    fn read(text: &[u8]) -> Self {
        let pieces: Vec<&[u8]> = text.split(|byte| *byte == b'*').collect();
        if let [whole] = pieces[..] {
            return Self { pieces: vec![fold(whole).into_owned()] };
        }
        // A piece of a name keeps its dots and blanks: `lefthook.*`.
        let folded =
            |piece: &&[u8]| if piece.is_ascii() { piece.to_ascii_lowercase() } else { fold(piece).into_owned() };
        Self { pieces: pieces.iter().map(folded).collect() }
    }

    fn literal(&self) -> Option<&[u8]> {
        if let [whole] = self.pieces.as_slice() { Some(whole) } else { None }
    }

    /// Reports whether a folded name matches.
    fn matches(&self, name: &[u8]) -> bool {
        let [first, middle @ .., last] = self.pieces.as_slice() else { return self.literal() == Some(name) };
        let Some(mut rest) = name.strip_prefix(first.as_slice()).and_then(|rest| rest.strip_suffix(last.as_slice()))
        else {
            return false;
        };
        for piece in middle.iter().filter(|piece| !piece.is_empty()) {
            match rest.windows(piece.len()).position(|part| part == piece.as_slice()) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

impl Pattern {
    /// Reads a name or a chain `name/name`, where `*` in a name stands for any characters.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        check(text)?;
        let names = text.split('/').map(|name| NamePattern::read(name.as_bytes())).collect();
        Ok(Self { text: text.to_owned(), names, anchored: false, not_in_packages: false })
    }

    /// Returns the pattern for the directory `path` of the workspace and all below it. `why` is the reason that reports
    /// give.
    pub fn of_directory(path: &[u8], why: &str) -> Self {
        let exact = |name: &[u8]| NamePattern { pieces: vec![fold(name).into_owned()] };
        let names = path.split(|byte| *byte == b'/').map(exact).collect();
        Self { text: why.to_owned(), names, anchored: true, not_in_packages: false }
    }

    /// The path `path` wherever it is, taken literally.
    pub fn anywhere(path: &[u8], why: &str) -> Self {
        Self { anchored: false, ..Self::of_directory(path, why) }
    }

    /// The path `path` wherever it is. A single name does not count in directories of packages, where it means
    /// something else.
    pub fn of_any_repository(path: &[u8], why: &str) -> Self {
        Self { not_in_packages: !path.contains(&b'/'), ..Self::anywhere(path, why) }
    }

    fn agreement(&self, names: &[Cow<'_, [u8]>]) -> Agreement {
        let agree = self.names.iter().zip(names).take_while(|(wanted, name)| wanted.matches(name)).count();
        if agree == self.names.len() {
            Agreement::Whole
        } else if agree == names.len() {
            Agreement::Begins
        } else {
            Agreement::No
        }
    }
}

/// A pattern that may begin with a name.
#[derive(Clone, Copy)]
enum Candidate<'a> {
    Standard(Standard),
    Added(&'a Pattern),
}

impl<'a> Candidate<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Standard(one) => one.text(),
            Self::Added(one) => &one.text,
        }
    }

    fn agreement(self, names: &[Cow<'_, [u8]>]) -> Agreement {
        match self {
            Self::Standard(one) => one.agreement(names),
            Self::Added(one) => one.agreement(names),
        }
    }

    fn counts(self, is_at_top: bool, is_in_packages: bool) -> bool {
        match self {
            Self::Standard(one) => !is_in_packages || !one.is_of_repository(),
            Self::Added(one) => (is_at_top || !one.anchored) && !(is_in_packages && one.not_in_packages),
        }
    }
}

/// The relation of a path to the protected names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match<'a> {
    /// It has nothing to do with them.
    None,
    /// It is the beginning of a chain: what the directory leads to is protected.
    Leads,
    /// It is a protected name or lies below one.
    Protected(&'a str),
}

/// A set of protected names.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// The standard names belong to it. They are a table of the program.
    has_standard: bool,
    patterns: Vec<Pattern>,
    /// Patterns whose first name has no star, by that name.
    by_first: HashMap<Vec<u8>, Vec<usize>>,
    /// The others, by the first byte of their first name.
    by_byte: HashMap<u8, Vec<usize>>,
    /// Those that begin with a star.
    by_star: Vec<usize>,
    /// The folded names of the directory that the paths begin in, as far as they matter.
    place: Vec<Vec<u8>>,
    /// The reason why everything is protected, if it is.
    everything: Option<String>,
}

impl Names {
    /// No names. Only for what was decided elsewhere.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The names that are protected in every workspace.
    #[must_use]
    pub fn standard() -> Self {
        Self { has_standard: true, ..Self::default() }
    }

    /// Every pattern as it was written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.standard_texts().chain(self.patterns.iter().map(|pattern| pattern.text.as_str()))
    }

    fn standard_texts(&self) -> impl Iterator<Item = &str> {
        self.has_standard.then(Standard::all).into_iter().flatten().map(|one| -> &str { one.text() })
    }

    /// Chains of names without a star, as they were written, that count anywhere.
    pub fn literal(&self) -> impl Iterator<Item = &str> {
        let written = |one: &&Pattern| Pattern::parse(&one.text).is_ok_and(|again| again.names == one.names);
        let literal = self.patterns.iter().filter(|one| !one.anchored && !one.text.contains('*')).filter(written);
        let standard = self.standard_texts().filter(|text| !text.contains('*'));
        standard.chain(literal.map(|one| one.text.as_str()))
    }

    /// Matches paths from now on together with the names of the directory that they begin in.
    pub fn stand_at(&mut self, place: Vec<Vec<u8>>) {
        self.place = place;
    }

    /// Returns the names of the directory that paths begin in.
    pub fn place(&self) -> &[Vec<u8>] {
        &self.place
    }

    /// Forgets the place where no path in it matches differently because of it.
    pub fn trim_place(&mut self) {
        let names: Vec<Cow<'_, [u8]>> = self.place.iter().map(|name| Cow::Borrowed(name.as_slice())).collect();
        let is_in_git = self.place.iter().any(|name| name == b".git");
        if self.find(&names) == Match::None && !is_in_git {
            self.place.clear();
        }
    }

    /// Protects every path.
    pub fn protect_everything(&mut self, why: String) {
        self.everything = Some(why);
    }

    /// Looks a path up by its folded names, which begin with those of [`Self::place`].
    pub fn find(&self, names: &[Cow<'_, [u8]>]) -> Match<'_> {
        let top = self.place.len();
        if let Some(why) = &self.everything {
            return Match::Protected(why);
        }
        let mut found = Match::None;
        let mut in_packages = false;
        for start in 0..names.len() {
            let name = names[start].as_ref();
            let rest = &names[start..];
            for one in self.candidates(name).filter(|one| one.counts(start == top, in_packages)) {
                match one.agreement(rest) {
                    Agreement::Whole => return Match::Protected(one.text()),
                    Agreement::Begins => found = Match::Leads,
                    Agreement::No => {}
                }
            }
            in_packages |= start >= top && PACKAGES.contains(&name);
        }
        found
    }

    /// Tells whether a pattern may begin with a folded name.
    pub fn may_begin(&self, name: &[u8]) -> bool {
        let names = [Cow::Borrowed(name)];
        self.everything.is_some() || self.candidates(name).any(|one| one.agreement(&names) != Agreement::No)
    }

    /// Returns the patterns whose first name may be `name`.
    fn candidates<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = Candidate<'a>> + use<'a> {
        let is = self.has_standard;
        let own = |found: Option<&'a Vec<usize>>| {
            found.into_iter().flatten().map(move |at| Candidate::Added(&self.patterns[*at]))
        };
        let first_byte = name.first();
        let listed = is.then(|| Standard::listed(name)).into_iter().flatten().map(Candidate::Standard);
        let starting = is.then(|| Standard::starting(name)).into_iter().flatten().map(Candidate::Standard);
        let starred = is.then(Standard::starred).into_iter().flatten().map(Candidate::Standard);
        // A set without own patterns does not hash the name.
        let own_listed = (!self.by_first.is_empty()).then(|| self.by_first.get(name)).flatten();
        let own_starting =
            (!self.by_byte.is_empty()).then(|| first_byte.and_then(|byte| self.by_byte.get(byte))).flatten();
        let listed = listed.chain(own(own_listed));
        let starting = starting.chain(own(own_starting));
        listed.chain(starting).chain(starred).chain(own(Some(&self.by_star)))
    }
}

impl Extend<Pattern> for Names {
    fn extend<I: IntoIterator<Item = Pattern>>(&mut self, patterns: I) {
        for pattern in patterns {
            let at = self.patterns.len();
            let first = pattern.names.first();
            let literal = first.and_then(NamePattern::literal);
            let begin = first.and_then(|name| name.pieces.first()).and_then(|piece| piece.first());
            match (literal, begin) {
                (Some(name), _) => self.by_first.entry(name.to_vec()).or_default().push(at),
                (None, Some(byte)) => self.by_byte.entry(*byte).or_default().push(at),
                (None, None) => self.by_star.push(at),
            }
            self.patterns.push(pattern);
        }
    }
}

#[cfg(test)]
mod tests;
