//! The words of scripts and configurations that name a file which is started or read. Pure.
//!
//! Of a script, words at the place of a command count, those behind a word that reads or runs a file, directories that come
//! into `PATH`, and files that are the value of a variable. Of a configuration, every text that is or begins with the path of
//! a file counts.

use super::settings::segments;

/// A path as a script writes it, absolute or relative to where the script begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The path.
    pub text: Vec<u8>,
    /// It counts only if a file is there.
    pub only_files: bool,
}

/// Words whose next word is a file that is read as commands or run. A number at their end is a version.
const READERS: &[&[u8]] = &[
    b".",
    b"bash",
    b"bun",
    b"dash",
    b"deno",
    b"dotenv",
    b"dotenv_if_exists",
    b"fish",
    b"guile",
    b"ksh",
    b"lua",
    b"node",
    b"nu",
    b"perl",
    b"php",
    b"pwsh",
    b"pypy",
    b"python",
    b"rscript",
    b"ruby",
    b"sh",
    b"source",
    b"source_env",
    b"source_env_if_exists",
    b"tclsh",
    b"tsx",
    b"zsh",
];
/// Words before a command.
const BEFORE: &[&[u8]] = &[
    b"!",
    b"{",
    b"[",
    b"[[",
    b"builtin",
    b"command",
    b"do",
    b"elif",
    b"else",
    b"eval",
    b"exec",
    b"export",
    b"if",
    b"local",
    b"readonly",
    b"declare",
    b"test",
    b"then",
    b"time",
    b"until",
    b"while",
];
/// Commands with a command among their words.
const CARRIERS: &[&[u8]] = &[
    b"chronic",
    b"direnv_load",
    b"doas",
    b"env",
    b"find",
    b"fd",
    b"flock",
    b"ionice",
    b"nice",
    b"nohup",
    b"parallel",
    b"run0",
    b"setsid",
    b"stdbuf",
    b"strict_env",
    b"sudo",
    b"time",
    b"timeout",
    b"trap",
    b"watch",
    b"xargs",
];
/// Commands of direnv whose words are directories that come into `PATH`.
const INTO_PATH: &[&[u8]] = &[b"path_add", b"PATH_add", b"load_prefix", b"PATH_prepend"];
/// Variables with directories or libraries that every started program uses.
const PATHS: &[&[u8]] = &[b"PATH", b"LD_LIBRARY_PATH", b"LD_PRELOAD", b"BASH_ENV", b"ENV"];
/// What `use NAME` of direnv reads.
const USED: &[(&[u8], &[&[u8]])] = &[
    (b"flake", &[b"flake.nix", b"flake.lock"]),
    (b"nix", &[b"shell.nix", b"default.nix"]),
    (b"guix", &[b"guix.scm", b"manifest.scm"]),
];

/// Directories that a script changes to, which are remembered.
const MAX_DIRECTORIES: usize = 8;
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
    found.words
}

/// Returns the files that a configuration in JSON, YAML or TOML may name as commands or their arguments.
pub(super) fn of_configuration(text: &[u8]) -> Vec<Word> {
    let mut found = Found::default();
    for line in text.split(|byte| *byte == b'\n') {
        let mut rest = line;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\'')) {
            let (quote, inside) = (rest[at], &rest[at + 1..]);
            let Some(end) = inside.iter().position(|byte| *byte == quote) else { break };
            found.commands(&inside[..end], DEPTH, true);
            found.file(&inside[..end]);
            rest = &inside[end + 1..];
        }
        // The value of a line of YAML.
        let value = line.iter().position(|byte| *byte == b':').map_or(line, |at| &line[at + 1..]).trim_ascii();
        let value = value.strip_prefix(b"- ").unwrap_or(value);
        found.commands(value, DEPTH, true);
        found.file(value);
    }
    found.words
}

#[derive(Default)]
struct Found {
    words: Vec<Word>,
    /// Where the script may be, besides where it begins.
    directories: Vec<Vec<u8>>,
}

impl Found {
    fn push(&mut self, text: &[u8], only_files: bool) {
        let text = plain(text);
        if text.is_empty() || text.starts_with(b"-") {
            return;
        }
        if !text.starts_with(b"/") {
            for at in &self.directories {
                self.words.push(Word { text: [at, &b"/"[..], text].concat(), only_files });
            }
        }
        self.words.push(Word { text: text.to_vec(), only_files });
    }

    /// A text that is a path as a whole.
    fn file(&mut self, text: &[u8]) {
        let is_word = !text.iter().any(|byte| byte.is_ascii_whitespace() || b"*{}[]\",".contains(byte) || *byte == 0);
        if is_word && text.len() < 1024 && text.iter().any(|byte| matches!(byte, b'/' | b'.')) {
            self.push(text, true);
        }
    }

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
        for words in segments(text) {
            self.command(&words, only_files);
            let nested = words.iter().filter(|word| {
                word.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, b'`' | b'(' | b';' | b'&' | b'|'))
            });
            for word in nested.filter(|_| depth > 0) {
                self.commands(word, depth - 1, true);
            }
        }
    }

    fn command(&mut self, words: &[Vec<u8>], only_files: bool) {
        for (name, value) in words.iter().filter_map(|word| variable(word)) {
            if PATHS.contains(&name) {
                value.split(|byte| *byte == b':').for_each(|part| self.push(part, only_files));
            } else {
                self.push(value, true);
            }
        }
        let is_before = |word: &&Vec<u8>| BEFORE.contains(&word.as_slice()) || variable(word).is_some();
        let rest: Vec<&[u8]> = words.iter().skip_while(is_before).map(Vec::as_slice).collect();
        let Some((first, rest)) = rest.split_first() else { return };
        let name = base(first);
        if matches!(*first, b"cd" | b"pushd") {
            if let Some(to) = rest.iter().find(|word| !word.starts_with(b"-")) {
                self.change_to(plain(to));
            }
        } else if INTO_PATH.contains(first) {
            for word in rest {
                self.push(word, only_files);
            }
        } else if *first == b"use" {
            let used = USED.iter().find(|(name, _)| rest.first() == Some(name)).map(|(_, files)| *files);
            for file in used.unwrap_or_default() {
                self.push(file, only_files);
            }
            rest.iter()
                .skip(1)
                .for_each(|word| self.push(word.split(|byte| *byte == b'#').next().unwrap_or(word), true));
        } else if CARRIERS.contains(&name) {
            for (at, word) in rest.iter().enumerate() {
                if is_reader(word) {
                    self.read(&rest[at + 1..], base(word), only_files);
                }
                if word.contains(&b'/') {
                    self.push(word, only_files || *first == b"find");
                }
            }
        } else if is_reader(first) {
            self.read(rest, name, only_files);
        }
        if first.contains(&b'/') {
            self.push(first, only_files);
        }
    }

    /// The words behind a program that reads a file.
    fn read(&mut self, rest: &[&[u8]], name: &[u8], only_files: bool) {
        match rest.iter().find(|word| !word.starts_with(b"-")) {
            Some(word) => self.push(word, only_files),
            None if name.starts_with(b"dotenv") => self.push(b".env", only_files),
            None => {}
        }
        // The file may follow options with values of their own, or a word such as `run`.
        for word in rest.iter().skip(1).filter(|word| word.contains(&b'/')) {
            self.push(word, true);
        }
    }

    fn change_to(&mut self, to: &[u8]) {
        if to.is_empty() || matches!(to, b"." | b"/") {
            return;
        }
        let mut more: Vec<Vec<u8>> = vec![to.to_vec()];
        if !to.starts_with(b"/") {
            more.extend(self.directories.iter().map(|at| [at, &b"/"[..], to].concat()));
        }
        more.retain(|one| !self.directories.contains(one));
        more.truncate(MAX_DIRECTORIES.saturating_sub(self.directories.len()));
        self.directories.extend(more);
    }
}

/// The last name of a path.
fn base(word: &[u8]) -> &[u8] {
    word.rsplit(|byte| *byte == b'/').next().unwrap_or(word)
}

fn is_reader(word: &[u8]) -> bool {
    let name = base(word).to_ascii_lowercase();
    let end = name.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'.').map_or(0, |at| at + 1);
    READERS.contains(&name.as_slice()) || READERS.contains(&&name[..end])
}

/// Name and value of `NAME=VALUE`.
fn variable(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    let is_name = at > 0 && word[..at].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    is_name.then_some((&word[..at], &word[at + 1..]))
}

/// A word without a variable at its beginning, which stands for the top of the working tree more often than not.
fn plain(word: &[u8]) -> &[u8] {
    let rest = word.iter().position(|byte| *byte == b'/').filter(|_| word.starts_with(b"$"));
    match rest {
        Some(at) => &word[at + 1..],
        // A variable as a whole says nothing.
        None if word.starts_with(b"$") => b"",
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: Vec<Word>) -> Vec<String> {
        found.into_iter().map(|word| String::from_utf8_lossy(&word.text).into_owned()).collect()
    }

    #[test]
    fn words_at_the_place_of_a_command_are_paths() {
        let names = |text: &str| texts(of_script(text.as_bytes()));
        for (text, wanted) in [
            ("#!/bin/sh\nexec ./tools/lint.sh \"$@\"\n", &["./tools/lint.sh"][..]),
            ("if scripts/check; then exit 1; fi", &["scripts/check"]),
            ("FOO=1 python3 -u ci/check.py x", &["ci/check.py"]),
            (". \"$(dirname \"$0\")/_/husky.sh\"\nnpm test", &[]),
            ("source \"$PWD/lib/env\"; PATH_add bin", &["lib/env"]),
            ("INSTALL_PYTHON=/ws/.venv/bin/python\nexec \"$INSTALL_PYTHON\" -m x", &["/ws/.venv/bin/python"]),
            ("dotenv\nuse flake", &[".env"]),
            ("dotenv_if_exists .env.local", &[".env.local"]),
            ("test -f package.json && npm run lint -- src/x", &[]),
            ("# ./old\necho a/b", &[]),
            ("#!.venv/bin/python -u\n", &[".venv/bin/python"]),
            ("#!/usr/bin/env -S ./tools/run x\n", &["./tools/run"]),
            ("/usr/bin/python3 ci/check.py", &["ci/check.py"]),
            ("python3.11 ci/check.py", &["ci/check.py"]),
            ("git ls-files | xargs -r ./lint", &["./lint"]),
            ("xargs -n1 python3 ci/one.py", &["ci/one.py"]),
            ("find . -name '*.c' -exec tools/fmt {} +", &["tools/fmt"]),
            ("timeout 10 ./slow", &["./slow"]),
            ("sudo -u x env A=b ./x", &["./x"]),
            ("cd scripts && ./f.sh", &["scripts/./f.sh", "./f.sh"]),
            ("cd a\ncd b\nsh go", &["a/b/go", "a/go", "b/go", "go"]),
            ("(cd \"$TOP/x\"; . ./y)", &["x/./y"]),
            ("PATH_add bin", &["bin"]),
            ("path_add PATH tools/bin", &["tools/bin"]),
            ("export PATH=\"$PWD/bin:$PATH\"", &["bin"]),
            ("use flake", &["flake.nix", "flake.lock"]),
            ("use flake ./nix#dev", &["./nix"]),
            ("use nix", &["shell.nix", "default.nix"]),
            ("A=\"$(./tools/version)\"", &["./tools/version"]),
            ("sh -c './one; tools/two'", &["./one", "tools/two"]),
            ("exec ./a \\\n  b\n", &["./a"]),
        ] {
            let found = names(text);
            for name in wanted {
                assert!(found.contains(&(*name).to_owned()), "{text}: {found:?}");
            }
            assert!(!found.iter().any(|name| name == "package.json" || name == "src/x" || name == "a/b"), "{found:?}");
        }
    }

    #[test]
    fn a_configuration_names_files_as_commands_and_arguments() {
        for (text, wanted) in [
            ("{\"command\": \"python3\", \"args\": [\"tools/mcp.py\", \"-x\"]}", "tools/mcp.py"),
            ("  \"initializeCommand\": \"sh .ci/setup.sh\",", ".ci/setup.sh"),
            ("\"dockerfile\": \"Dockerfile.dev\"", "Dockerfile.dev"),
            ("    entry: python ci/check.py --fix", "ci/check.py"),
            ("    entry: ./lint.sh", "./lint.sh"),
            ("      run: cd web && ./check", "web/./check"),
            ("\"path\": \"${workspaceFolder}/.venv/bin/python\"", ".venv/bin/python"),
            ("command = [\"./x\", \"y\"]", "./x"),
        ] {
            let found = of_configuration(text.as_bytes());
            assert!(found.iter().all(|word| word.only_files), "{text}: {found:?}");
            assert!(texts(found.clone()).contains(&wanted.to_owned()), "{text}: {found:?}");
        }
    }

    #[test]
    fn any_bytes_are_searched_without_a_panic() {
        for text in
            ["", "#!", "'", "\"", "cd", "use", "env", "=", "$", "$(", "`", "x=\"$(", "((((", "\\", "sh", "- ", ":"]
        {
            of_script(text.as_bytes());
            of_configuration(text.as_bytes());
        }
    }
}
