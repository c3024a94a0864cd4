//! Collects the paths that a script or a configuration names. Pure.

use super::super::variables::{is_variable, plain, split_variable};
use super::super::word_lists::{OF_GIT, READERS};

/// A path as a script writes it, absolute or relative to where the script begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::leads) struct Word {
    /// The path, absolute or relative.
    pub text: Vec<u8>,
    /// It counts only if a file is there.
    pub only_files: bool,
    /// A variable stood before it, which may be the place of the script itself.
    pub beside: bool,
    /// It lies in the git directory.
    pub in_git: bool,
    /// It counts only if a file is there that can be executed.
    pub only_programs: bool,
    /// In a `.envrc` it counts also among packages.
    pub in_packages: bool,
    /// A directory of modules for an interpreter, which runs on its own only the modules of its start.
    pub of_modules: bool,
}

/// Values of variables that are remembered.
const MAX_VALUES: usize = 64;
/// Bytes of patterns and variables.
const PATTERN: &[u8] = b"*?[{$`";
/// Readings of one word by the values of its variables, and their length.
const MAX_EXPANDED: usize = 32;
const MAX_WORD: usize = 4096;
/// Paths that were found, and what is known of the script so far.
#[derive(Default)]
pub(super) struct Found {
    pub(super) words: Vec<Word>,
    /// Directories in which the script may be, besides the one where it begins; `true` if a variable stands before it.
    pub(super) directories: Vec<(Vec<u8>, bool)>,
    /// Names and values of variables, also those of a loop.
    pub(super) values: Vec<(Vec<u8>, Vec<u8>)>,
    /// Words of the script.
    pub(super) seen: Vec<Vec<u8>>,
    /// It starts something by a variable whose value is not in the script.
    pub(super) is_open: bool,
    /// Files that loops read.
    pub(super) inputs: Vec<Vec<u8>>,
    /// It sets a variable whose name is not in the script.
    pub(super) sets_unknown: bool,
}

impl Found {
    /// A word that is started or read.
    pub(super) fn started(&mut self, word: &[u8], only_files: bool) {
        let all = self.expanded(word);
        // Only other words of the script can then be meant, besides what it learns while it runs.
        self.is_open |= !only_files && all.iter().all(|text| is_variable(text) && plain(text).is_empty());
        for (number, text) in all.into_iter().enumerate() {
            // A bare word is a program in PATH.
            if number == 0 || text.iter().any(|byte| matches!(byte, b'/' | b'.')) {
                self.named(&text, only_files);
            }
        }
    }

    /// Puts the values of variables, which may have variables in them, into a word. The first is the word itself.
    pub(super) fn expanded(&self, word: &[u8]) -> Vec<Vec<u8>> {
        let mut all = vec![word.to_vec()];
        let mut next = 0;
        while let Some(text) = all.get(next).cloned() {
            next += 1;
            for place in (0..text.len()).filter(|at| text[*at] == b'$') {
                let Some((name, rest)) = split_variable(&text[place..]) else { continue };
                for (_, value) in self.values.iter().filter(|(one, _)| one == name) {
                    let new = [&text[..place], value, rest].concat();
                    if all.len() < MAX_EXPANDED && new.len() < MAX_WORD && !all.contains(&new) {
                        all.push(new);
                    }
                }
            }
        }
        all
    }

    /// A path. Of a pattern, or with a variable in it, the directory counts, in which a new file would match.
    pub(super) fn named(&mut self, text: &[u8], only_files: bool) {
        let own = plain(text);
        let Some(at) = own.iter().position(|byte| PATTERN.contains(byte)) else {
            return self.push(text, only_files);
        };
        let end = own[..at].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        // The git directory has rules of its own, and a `hooks` of the working tree is another one.
        if end > 0 && !only_files && !is_in_git(text, own) {
            self.push(&text[..text.len() - own.len() + end], false);
        }
    }

    pub(super) fn remember(&mut self, name: &[u8], value: &[u8]) {
        let is_command = value.windows(2).any(|two| two == b"$(") || value.contains(&b'`');
        for value in value.split(|byte| !is_command && byte.is_ascii_whitespace()).filter(|one| !one.is_empty()) {
            if self.values.len() < MAX_VALUES {
                self.values.push((name.to_vec(), value.to_vec()));
            }
        }
    }

    pub(super) fn push(&mut self, text: &[u8], only_files: bool) {
        let beside = is_variable(text);
        let whole = text;
        let text = plain(text);
        let in_git = is_in_git(whole, text);
        if text.is_empty() || text.starts_with(b"-") {
            return;
        }
        // `"$(git rev-parse --git-dir)/../x"` lies beside the git directory.
        let out = text.strip_prefix(b"../").filter(|out| in_git && !out.is_empty()).map(<[u8]>::to_vec);
        self.words.extend(out.map(|text| Word {
            text,
            only_files,
            beside: false,
            in_git: false,
            only_programs: false,
            in_packages: false,
            of_modules: false,
        }));
        if !text.starts_with(b"/") {
            for (at, is) in &self.directories {
                let (text, beside) = (without_pattern(join(at, text)), beside || *is);
                self.words.push(Word {
                    text,
                    only_files,
                    beside,
                    in_git,
                    only_programs: false,
                    in_packages: false,
                    of_modules: false,
                });
            }
        }
        self.words.push(Word {
            text: text.to_vec(),
            only_files,
            beside,
            in_git,
            only_programs: false,
            in_packages: false,
            of_modules: false,
        });
    }

    /// A text that is a path as a whole.
    pub(super) fn file(&mut self, text: &[u8]) {
        let is_word = !text.iter().any(|byte| byte.is_ascii_whitespace() || b"*{}[]\",".contains(byte) || *byte == 0);
        if is_word && text.len() < 1024 && text.iter().any(|byte| matches!(byte, b'/' | b'.')) {
            self.push(text, true);
        }
    }
}

/// Tells whether a word whose own part is `own` begins with the git directory.
fn is_in_git(word: &[u8], own: &[u8]) -> bool {
    let before = word[..word.len() - own.len()].to_ascii_lowercase();
    OF_GIT.iter().any(|name| before.windows(name.len()).any(|part| part == *name))
}

/// The directory of a path in which a new file would match, and any other path as it is.
fn without_pattern(mut path: Vec<u8>) -> Vec<u8> {
    if let Some(at) = path.iter().position(|byte| PATTERN.contains(byte)) {
        path.truncate(path[..at].iter().rposition(|byte| *byte == b'/').unwrap_or(0));
    }
    path
}

/// Joins the names of a path.
pub(super) fn join(at: &[u8], name: &[u8]) -> Vec<u8> {
    if at.is_empty() || name.is_empty() { [at, name].concat() } else { [at, b"/", name].concat() }
}

/// The last name of a path.
pub(super) fn base(word: &[u8]) -> &[u8] {
    word.rsplit(|byte| *byte == b'/').next().unwrap_or(word)
}

/// Reports whether a command reads or runs the file behind it.
pub(super) fn is_reader(word: &[u8]) -> bool {
    let name = base(word).to_ascii_lowercase();
    let end = name.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'.').map_or(0, |at| at + 1);
    READERS.contains(&name.as_slice()) || READERS.contains(&&name[..end])
}

/// Name and value of `NAME=VALUE`.
pub(super) fn variable(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    let is_name = at > 0 && word[..at].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    is_name.then_some((&word[..at], &word[at + 1..]))
}
