//! Advice for a command that wanted the caller's terminal and got an empty standard input.
//!
//! The kernel does not tell that a command read `/dev/null`, so this is a guess from its name or its last words, and begins
//! with `perhaps`.

use nexus_model::ByteText;
use nexus_runner::live::last_words::LastWords;

/// Programs that talk to a person when they are called without a file to read.
const INTERACTIVE: &[&str] = &[
    "bash",
    "bc",
    "dash",
    "fish",
    "gdb",
    "ghci",
    "htop",
    "ipython",
    "irb",
    "julia",
    "ksh",
    "less",
    "lua",
    "mysql",
    "nano",
    "node",
    "psql",
    "python",
    "python3",
    "redis-cli",
    "sh",
    "sqlite3",
    "top",
    "vi",
    "vim",
    "zsh",
    "R",
];

/// Options with which they still do.
const STILL: &[&[u8]] = &[b"-i", b"-q", b"-l"];

/// Printed by programs that wanted a line of a person, or a terminal.
const WANTED: &[&str] = &[
    "EOFError: EOF when reading a line",
    "input device is not a TTY",
    "Input is not from a terminal",
    "must be run from a terminal",
    "stdin is not a terminal",
    "standard input is not a terminal",
    "stdin: is not a tty",
];

/// Returns the advice, if the command wanted a terminal.
pub fn advice(argv: &[ByteText], words: &LastWords) -> Option<String> {
    let (first, rest) = argv.split_first()?;
    let name = first.as_path().file_name()?.to_str()?;
    let talks = INTERACTIVE.contains(&name) && rest.iter().all(|word| STILL.contains(&word.0.as_slice()));
    (talks || words.has(WANTED)).then(|| {
        let name = nexus_caller::failure::one_line(name);
        format!(
            "perhaps: {name} wants a terminal, and its standard input is empty. nexus run -t gives it one of its own."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_runner::live::output::Stream;

    fn advised(argv: &[&str], said: &str) -> bool {
        let argv: Vec<ByteText> = argv.iter().map(|word| (*word).into()).collect();
        let mut words = LastWords::default();
        words.take(Stream::Err, said.as_bytes());
        advice(&argv, &words).is_some()
    }

    #[test]
    fn a_program_that_talks_is_known_by_its_name() {
        for argv in [&["python3"][..], &["/usr/bin/bash", "-i"], &["node"]] {
            assert!(advised(argv, ""), "{argv:?}");
        }
        for argv in [&["python3", "x.py"][..], &["bash", "-c", "true"], &["cargo"], &[]] {
            assert!(!advised(argv, ""), "{argv:?}");
        }
        assert!(advised(&["make", "ask"], "EOFError: EOF when reading a line\n"));
    }
}
