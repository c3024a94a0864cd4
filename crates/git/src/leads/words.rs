//! The words of scripts and configurations that name a file which is started or read. Pure.
//!
//! Of a script, words at the place of a command count, those behind a word that reads or runs a file, directories that
//! come into `PATH`, and files that are the value of a variable. Of a configuration, every text that is or begins with
//! the path of a file counts.

mod environment;
mod files;
mod found;

pub(super) use self::found::Word;

use self::found::{Found, base, is_reader, join, variable};
use super::settings::segments;
use super::variables::{is_variable, plain, substitutions};
use super::word_lists::{BEFORE, CARRIERS, MODULE, RUNNERS};

/// Directories that a script changes to, which are remembered.
const MAX_DIRECTORIES: usize = 8;
/// Words of a script that are remembered.
const MAX_SEEN: usize = 4096;
/// Commands in words are searched this deep.
const DEPTH: usize = 3;

/// Returns the paths that a shell script names where it starts or reads something.
pub(super) fn of_script(script: &[u8]) -> Vec<Word> {
    let mut found = Found::default();
    if let Some(line) = script.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        found.interpreter(line);
    }
    // A backslash at its end continues a line.
    let mut text = Vec::with_capacity(script.len());
    for line in script.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii_start().starts_with(b"#")) {
        match line.strip_suffix(b"\\") {
            Some(line) => text.extend_from_slice(&[line, b" "].concat()),
            None => text.extend_from_slice(&[line, b"\n"].concat()),
        }
    }
    found.commands(&text, DEPTH, false);
    found.inputs_of_loops();
    if found.is_open {
        found.programs();
    }
    found.words
}

/// Returns the files that a configuration in JSON, YAML or TOML may name as commands or their arguments.
pub(super) fn of_configuration(text: &[u8]) -> Vec<Word> {
    let mut found = Found::default();
    for line in text.split(|byte| *byte == b'\n') {
        let mut rest = line;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\'')) {
            let (text, behind) = quoted(rest[at], &rest[at + 1..]);
            let Some(behind) = behind else { break };
            found.commands(&text, DEPTH, true);
            found.file(&text);
            rest = behind;
        }
        // The value of a line of YAML, or of NAME=VALUE.
        for separator in [b':', b'='] {
            let value = line.iter().position(|byte| *byte == separator).map_or(line, |at| &line[at + 1..]).trim_ascii();
            let value = value.strip_prefix(b"- ").unwrap_or(value);
            found.commands(value, DEPTH, true);
            found.file(value);
        }
    }
    found.words
}

/// Takes a text up to its closing quote, and what is behind that. In double quotes a backslash quotes a byte.
fn quoted(quote: u8, inside: &[u8]) -> (Vec<u8>, Option<&[u8]>) {
    let mut text = Vec::new();
    let mut bytes = inside.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            byte if *byte == quote => return (text, Some(&inside[at + 1..])),
            b'\\' if quote == b'"' => text.extend(bytes.next().map(|(_, byte)| *byte)),
            byte => text.push(*byte),
        }
    }
    (text, None)
}

impl Found {
    /// The first line of a script.
    fn interpreter(&mut self, line: &[u8]) {
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        if let Some(first) = words.first() {
            self.push(first, false);
        }
        for word in words.iter().skip(1).filter(|word| word.contains(&b'/')) {
            self.push(word, true);
        }
    }

    /// The simple commands of a text. With `only_files` the text may be no script at all.
    fn commands(&mut self, text: &[u8], depth: usize, only_files: bool) {
        let mut before: Vec<Vec<u8>> = Vec::new();
        for words in segments(text) {
            for (name, value) in files::of_loop(&before, &words) {
                self.remember(&name, &value);
            }
            self.command(&words, only_files);
            self.found_files(&words, only_files);
            self.loops(&words);
            // `cat x | sh`, and `sh <(cat x)`, whose brackets begin a command of their own.
            for (from, to) in [(&before, &words), (&words, &before)] {
                if is_shell(to) {
                    self.printed(from);
                }
            }
            if environment::sets(&before) {
                self.printed(&words);
            }
            let room = MAX_SEEN.saturating_sub(self.seen.len());
            self.seen.extend(words.iter().take(room).cloned());
            for word in words.iter().filter(|_| depth > 0) {
                for inside in substitutions(word) {
                    self.commands(inside, depth - 1, only_files);
                    if environment::feeds(&words, word) {
                        for words in segments(inside) {
                            self.printed(&words);
                        }
                    }
                }
            }
            let nested = words.iter().filter(|word| {
                word.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, b'`' | b'(' | b';' | b'&' | b'|'))
            });
            for word in nested.filter(|_| depth > 0) {
                self.commands(word, depth - 1, true);
            }
            before = words;
        }
    }

    /// The files that a command finds, or gets by an option.
    fn found_files(&mut self, words: &[Vec<u8>], only_files: bool) {
        let started = files::of_find(words, &is_reader);
        for place in started.places {
            self.started(place, only_files);
        }
        for name in started.names {
            self.named(name, only_files);
        }
        for file in files::behind_option(words) {
            self.push_all(file, only_files);
        }
    }

    fn command(&mut self, words: &[Vec<u8>], only_files: bool) {
        for (name, value) in words.iter().filter_map(|word| variable(word)) {
            self.assigned(name, value, only_files);
        }
        let is_before = |word: &&Vec<u8>| BEFORE.contains(&word.as_slice()) || variable(word).is_some();
        let has_name = |at: usize| {
            let is_named = matches!(words[at].as_slice(), b"function" | b"coproc");
            is_named && words.get(at + 2).is_some_and(|word| word == b"{")
        };
        // `function NAME {` and `coproc NAME {`.
        let skipped = (0..words.len().min(2)).find(|at| has_name(*at)).map_or(0, |at| at + 3);
        let rest: Vec<&[u8]> = words[skipped..].iter().skip_while(is_before).map(Vec::as_slice).collect();
        let Some((first, rest)) = rest.split_first() else { return };
        let name = base(first);
        if is_python(name) {
            self.module(rest, only_files);
        }
        if matches!(*first, b"cd" | b"pushd") {
            if let Some(to) = rest.iter().find(|word| !word.starts_with(b"-")) {
                for to in self.expanded(to) {
                    self.change_to(&to);
                }
            }
        } else if name == b"run-parts" {
            for word in rest.iter().filter(|word| !word.starts_with(b"-")) {
                self.started(word, only_files);
            }
        } else if matches!(*first, b"for" | b"select") && rest.get(1).is_some_and(|word| *word == b"in") {
            for word in &rest[2..] {
                self.remember(rest[0], word);
            }
        } else if RUNNERS.contains(&name) {
            let from = rest.iter().position(|word| matches!(*word, b"run" | b"exec")).map_or(0, |at| at + 1);
            let words: Vec<Vec<u8>> =
                rest[from..].iter().skip_while(|word| word.starts_with(b"-")).map(|word| word.to_vec()).collect();
            self.command(&words, only_files);
        } else if CARRIERS.contains(&name) {
            for (at, word) in rest.iter().enumerate() {
                if is_reader(word) {
                    self.read(&rest[at + 1..], base(word), only_files);
                }
                if is_python(base(word)) {
                    self.module(&rest[at + 1..], only_files);
                }
                if word.contains(&b'/') {
                    self.push(word, only_files || *first == b"find");
                }
            }
        } else if is_reader(first) {
            self.read(rest, name, only_files);
        } else {
            self.of_direnv(first, rest, only_files);
        }
        let is_test = words.iter().any(|word| matches!(word.as_slice(), b"[" | b"[[" | b"test"));
        if first.contains(&b'/') || (is_variable(first) && !is_test) {
            self.started(first, only_files);
        }
    }

    /// The module behind `-m`, which Python looks for where it is started before anywhere else.
    fn module(&mut self, rest: &[&[u8]], only_files: bool) {
        for (at, word) in rest.iter().enumerate().take_while(|(_, word)| word.starts_with(b"-")) {
            if word.starts_with(b"--") {
                continue;
            }
            let Some(end) = word.iter().position(|byte| *byte == b'm') else { continue };
            let module = if end + 1 < word.len() { &word[end + 1..] } else { rest.get(at + 1).copied().unwrap_or(b"") };
            let first = module.split(|byte| *byte == b'.').next().unwrap_or_default();
            if !first.is_empty() && first.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
                for end in MODULE {
                    self.push(&[first, end].concat(), only_files);
                }
            }
            return;
        }
    }

    /// The words behind a program that reads a file.
    fn read(&mut self, rest: &[&[u8]], name: &[u8], only_files: bool) {
        match rest.iter().find(|word| !word.starts_with(b"-")) {
            Some(word) => {
                self.started(word, only_files);
                self.activated(word, only_files);
            }
            None if name.starts_with(b"dotenv") => self.push(b".env", only_files),
            None => {}
        }
        // The file may follow options with values of their own, or a word such as `run`.
        for word in rest.iter().skip(1).filter(|word| word.contains(&b'/')) {
            self.push(word, true);
        }
    }

    /// Remembers a directory that the script changes to, which may be that of the script itself.
    fn change_to(&mut self, word: &[u8]) {
        let (to, beside) = (plain(word), is_variable(word));
        if to == b"/" || (!beside && matches!(to, b"" | b".")) {
            return;
        }
        let mut more = vec![(to.to_vec(), beside)];
        if !to.starts_with(b"/") {
            more.extend(self.directories.iter().map(|(at, is)| (join(at, to), *is || beside)));
        }
        more.retain(|one| !self.directories.contains(one));
        more.truncate(MAX_DIRECTORIES.saturating_sub(self.directories.len()));
        self.directories.extend(more);
    }

    /// Adds all words of the script that may be programs, for a word that does not tell what it starts.
    fn programs(&mut self) {
        for word in std::mem::take(&mut self.seen) {
            let word = variable(&word).map_or(word.as_slice(), |(_, value)| value);
            if word.iter().any(|byte| matches!(byte, b'/' | b'.')) {
                let known = self.words.len();
                self.push(word, true);
                for word in &mut self.words[known..] {
                    word.only_programs = true;
                }
            }
        }
    }
}

/// Reports whether a command runs what it reads from another command.
fn is_shell(words: &[Vec<u8>]) -> bool {
    let runs = |word: &Vec<u8>| is_reader(word) || word == b"eval";
    let mut words = words.iter().skip_while(|word| !runs(word) && BEFORE.contains(&word.as_slice()));
    words.next().is_some_and(runs) && words.all(|word| word.starts_with(b"-") || word == b"$")
}

/// Reports whether a command is Python, or a variable with its path.
fn is_python(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let is_variable = name.starts_with(b"$");
    let has = |word: &[u8]| name.windows(word.len()).position(|part| part == word);
    [b"python".as_slice(), b"pypy"].into_iter().filter_map(has).any(|at| at == 0 || is_variable)
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
