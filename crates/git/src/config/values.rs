//! The settings that are inert wherever they stand, and the values with which they are. Pure.

/// The values with which a setting is inert.
pub(super) enum Value {
    /// A truth value.
    Bool,
    /// A truth value that says no.
    No,
    /// A truth value that says yes, or one of these words.
    Yes(&'static [&'static str]),
    /// A truth value or one of these words.
    Words(&'static [&'static str]),
    /// A number of at most nine digits, or a truth value.
    Number,
    /// A line of text.
    Text,
    /// One of these words.
    Only(&'static [&'static str]),
}

use Value::{Bool, No, Number, Only, Text, Words, Yes};

/// Settings without a subsection that are inert with such a value. `*` stands for every name.
pub(super) const INERT: &[(&str, &str, Value)] = &[
    ("user", "name", Text),
    ("user", "email", Text),
    ("user", "useconfigonly", Bool),
    ("author", "name", Text),
    ("author", "email", Text),
    ("committer", "name", Text),
    ("committer", "email", Text),
    ("core", "repositoryformatversion", Words(&["0", "1"])),
    ("core", "logallrefupdates", Yes(&["always"])),
    ("core", "abbrev", Words(&["auto", "4", "7", "8", "10", "12", "16", "40"])),
    ("core", "untrackedcache", Words(&["keep"])),
    ("core", "preloadindex", Bool),
    ("core", "hidedotfiles", Words(&["dotgitonly"])),
    ("init", "defaultbranch", Text),
    // Not `always`: hooks read the output too, which has no colours and columns for them.
    ("color", "*", Words(&["auto", "never"])),
    ("column", "*", Only(&["auto", "never"])),
    ("advice", "*", Bool),
    ("pull", "rebase", Words(&["merges", "interactive"])),
    ("pull", "ff", Words(&["only"])),
    ("merge", "conflictstyle", Words(&["merge", "diff3", "zdiff3"])),
    ("merge", "ff", Words(&["only"])),
    ("merge", "stat", Words(&["compact"])),
    ("merge", "log", Number),
    ("merge", "renames", Bool),
    ("diff", "algorithm", Words(&["default", "myers", "minimal", "patience", "histogram"])),
    ("diff", "colormoved", Words(&["default", "plain", "blocks", "zebra"])),
    ("diff", "context", Number),
    ("rebase", "abbreviatecommands", Bool),
    ("rebase", "autosquash", Bool),
    ("rebase", "autostash", Bool),
    ("rebase", "stat", Bool),
    ("rebase", "updaterefs", No),
    ("fetch", "parallel", Number),
    ("commit", "verbose", Yes(&["2"])),
    ("commit", "status", Yes(&[])),
    ("gc", "auto", Number),
    ("commit", "cleanup", Words(&["strip", "whitespace", "verbatim", "scissors", "default"])),
    ("branch", "autosetupmerge", Words(&["simple"])),
    ("branch", "autosetuprebase", Words(&["never", "local", "remote", "always"])),
    ("log", "abbrevcommit", Bool),
    (
        "log",
        "date",
        Only(&["relative", "local", "default", "iso", "iso-strict", "rfc", "short", "raw", "human", "unix"]),
    ),
    ("log", "decorate", Words(&["short", "full", "auto"])),
    ("log", "follow", Bool),
    ("lfs", "repositoryformatversion", Number),
    // On or off; anything else would be a program.
    ("pager", "*", Bool),
];

/// Settings that are inert in a new repository alone, with what `git init` writes on a file system of Linux. With other values
/// `git status` would miss changes of later runs: a file whose name differs in case from that of another one, a changed
/// mode, a file in the place of a link, other ends of lines.
pub(super) const INERT_WHEN_NEW: &[(&str, &str, Value)] = &[
    ("core", "filemode", Yes(&[])),
    ("core", "ignorecase", No),
    ("core", "symlinks", Yes(&[])),
    ("core", "precomposeunicode", Bool),
    ("core", "autocrlf", No),
    ("core", "safecrlf", Words(&["warn"])),
    ("core", "eol", Only(&["lf", "native"])),
];

impl Value {
    /// Reports whether a value is among these. `None` is the value of a setting without `=`.
    pub(super) fn fits(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return matches!(self, Bool | Words(_) | Yes(_)) };
        let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
        let is_bool = is(&["true", "false", "yes", "no", "on", "off", "0", "1", ""]);
        match self {
            Bool => is_bool,
            Yes(words) => is(&["true", "yes", "on", "1"]) || is(words),
            No => is(&["false", "no", "off", "0"]),
            Words(words) => is_bool || is(words),
            Number => is_bool || (value.len() < 10 && value.iter().all(u8::is_ascii_digit)),
            Text => value.len() < 1024 && !value.iter().any(u8::is_ascii_control),
            Only(words) => is(words),
        }
    }
}
