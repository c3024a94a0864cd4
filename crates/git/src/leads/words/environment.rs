//! Finds what a script puts into the environment: directories of programs and libraries, start files, and the files
//! whose lines become variables. Pure.

use super::super::variables::{is_variable, plain};
use super::super::word_lists::{
    INTO_PATH, LAYOUTS, OF_MODULES, OF_PROGRAMS, OF_PROGRAMS_ENDS, OF_START, PATHS, SETTERS, USED,
};
use super::found::{Found, base, is_reader, join, variable};

impl Found {
    /// The value of a variable.
    pub(super) fn assigned(&mut self, name: &[u8], value: &[u8], only_files: bool) {
        if PATHS.contains(&name) {
            let known = self.words.len();
            for part in value.split(|byte| *byte == b':') {
                self.add_directory(part, only_files);
            }
            for word in &mut self.words[known..] {
                word.of_modules = OF_MODULES.contains(&name);
            }
            return;
        }
        self.push(value, true);
        if name == b"VIRTUAL_ENV" {
            self.add_directory(&join(value, b"bin"), only_files);
        } else if OF_START.contains(&name) {
            for part in value.split(|byte| *byte == b':') {
                self.push_all(part, only_files);
            }
        } else if OF_PROGRAMS.contains(&name) || OF_PROGRAMS_ENDS.iter().any(|end| name.ends_with(end)) {
            self.with_options(value, only_files);
        }
        self.remember(name, value);
    }

    /// A directory of programs or libraries. In a `.envrc` it counts also among packages.
    pub(super) fn add_directory(&mut self, word: &[u8], only_files: bool) {
        let known = self.words.len();
        self.push_all(word, only_files);
        for word in &mut self.words[known..] {
            word.in_packages = true;
        }
    }

    pub(super) fn push_all(&mut self, word: &[u8], only_files: bool) {
        for text in self.expanded(word) {
            self.push(&text, only_files);
        }
    }

    /// The paths of a command with its options: `ssh -F conf/ssh`, `--require=./x.js`, `-r./x.js`.
    fn with_options(&mut self, value: &[u8], only_files: bool) {
        for word in value.split(|byte| byte.is_ascii_whitespace() || matches!(byte, b':' | b',' | b'"' | b'\'')) {
            let from = match word.iter().position(|byte| *byte == b'=') {
                Some(at) => at + 1,
                None if word.starts_with(b"-") => {
                    word.iter().position(|byte| matches!(byte, b'.' | b'/' | b'$')).unwrap_or(word.len())
                }
                None => 0,
            };
            let path = &word[from..];
            let has_end = base(path).iter().skip(1).any(|byte| *byte == b'.');
            if path.contains(&b'/') || (!word.starts_with(b"-") && has_end) {
                self.push_all(path, only_files);
            }
        }
    }

    /// The commands of direnv and of programs that print an environment.
    pub(super) fn of_direnv(&mut self, first: &[u8], rest: &[&[u8]], only_files: bool) {
        if INTO_PATH.contains(&first) {
            for word in rest {
                self.add_directory(word, only_files);
            }
            return;
        }
        let joined = |verb: &[u8]| first.strip_prefix(verb).and_then(|name| name.strip_prefix(b"_"));
        let after = rest.get(1..).unwrap_or_default();
        let (is_layout, name, words) = match (first, joined(b"use"), joined(b"layout")) {
            (b"use" | b"layout", ..) => (first == b"layout", rest.first().copied().unwrap_or_default(), after),
            (_, Some(name), _) => (false, name, rest),
            (_, _, Some(name)) => (true, name, rest),
            _ => match (base(first), rest.first().copied().unwrap_or_default()) {
                (b"nix-shell", _) => (false, &b"nix"[..], rest),
                (b"nix", b"develop" | b"print-dev-env" | b"run" | b"shell") => (false, &b"flake"[..], after),
                (tool @ (b"devbox" | b"devenv" | b"flox" | b"guix" | b"lorri" | b"pixi"), _) => (false, tool, &[][..]),
                _ => return,
            },
        };
        if is_layout {
            let version = name.iter().position(u8::is_ascii_digit).unwrap_or(name.len());
            let (_, found) = LAYOUTS.iter().find(|(one, _)| *one == &name[..version]).copied().unwrap_or_default();
            for path in found {
                self.add_directory(path, only_files);
            }
            return;
        }
        let (_, files) = USED.iter().find(|(one, _)| *one == name).copied().unwrap_or_default();
        for file in files {
            self.push(file, only_files);
        }
        for word in words.iter().filter(|word| !word.starts_with(b"-")) {
            let word = word.split(|byte| *byte == b'#').next().unwrap_or(word);
            let word = word.strip_prefix(b"path:").unwrap_or(word);
            self.push(word, true);
            let is_place = name == b"flake" && !word.is_empty() && !word.contains(&b':');
            for file in files.iter().filter(|_| is_place) {
                self.push(&join(word, file), only_files);
            }
            if name != b"flake" && is_file_name(word) {
                self.push(word, only_files);
            }
        }
    }

    /// The directory of programs that `source X/bin/activate` puts into `PATH`.
    pub(super) fn activated(&mut self, word: &[u8], only_files: bool) {
        for text in self.expanded(word) {
            let Some(at) = text.iter().rposition(|byte| *byte == b'/') else { continue };
            let directory = &text[..at];
            if text[at + 1..].starts_with(b"activate") && matches!(base(directory), b"bin" | b"Scripts") {
                self.add_directory(directory, only_files);
            }
        }
    }

    /// The files that a command prints for a program which runs them, or for a shell that makes variables of them.
    pub(super) fn printed(&mut self, words: &[Vec<u8>]) {
        let Some((first, rest)) = words.split_first() else { return };
        // `$(<.env)` has no command.
        if rest.is_empty() && is_file_name(first) {
            self.started(first, false);
        }
        let is_cat = base(first) == b"cat";
        for word in rest.iter().filter(|word| is_cat || is_file_name(word) || word.contains(&b'/')) {
            self.started(word, !is_cat && !is_file_name(word));
        }
    }

    /// Notes the input of a loop, and a variable whose text becomes the name and value of another one.
    pub(super) fn loops(&mut self, words: &[Vec<u8>]) {
        if words.first().is_some_and(|first| first == b"done") {
            self.inputs.extend(words.iter().filter(|word| is_file_name(word)).cloned());
        }
        let set = words.iter().skip_while(|word| !SETTERS.contains(&word.as_slice())).skip(1);
        self.sets_unknown |= set.into_iter().any(|word| is_variable(word) && word != b"$");
    }

    /// Adds the inputs of loops where these may set variables.
    pub(super) fn inputs_of_loops(&mut self) {
        if self.sets_unknown {
            for word in std::mem::take(&mut self.inputs) {
                self.started(&word, false);
            }
        }
    }
}

/// Tells whether a word looks like the path of a file, and like nothing else: `.env`, `conf/x.env`.
fn is_file_name(word: &[u8]) -> bool {
    let own = plain(word);
    let is_plain = own.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-+@/".contains(byte) || *byte >= 0x80);
    let has_letter = base(own).iter().any(u8::is_ascii_alphabetic);
    is_plain && has_letter && !own.starts_with(b"-") && base(own).contains(&b'.')
}

/// Reports whether the output of the next command becomes variables: `export $(cat .env)`.
pub(super) fn sets(words: &[Vec<u8>]) -> bool {
    let is_other = |word: &&Vec<u8>| variable(word).is_some() || word.starts_with(b"-");
    let first = words.first().is_some_and(|word| SETTERS.contains(&word.as_slice()));
    first && words[1..].iter().find(|word| !is_other(word)).is_some_and(|word| word == b"$")
}

/// Reports whether the output of the commands inside `word`, which is one of `words`, is run or becomes variables.
pub(super) fn feeds(words: &[Vec<u8>], word: &[u8]) -> bool {
    let is_run = words.iter().any(|word| matches!(word.as_slice(), b"eval" | b"-c"));
    let is_set = words.first().is_some_and(|first| SETTERS.contains(&first.as_slice())) && is_variable(word);
    is_run || is_set || (words.first().is_some_and(|first| is_reader(first)) && words.iter().any(|word| word == b"<<<"))
}
