//! Finds the paths that a git setting names. Pure.
//!
//! No list says which settings run a program: there are too many, and programs beside git add their own. So every
//! setting that is not known to be inert, or to name no file that git obeys, is searched for paths.

use crate::config::{Setting, held, parse};

/// A path as a setting writes it: absolute, below `~`, or relative to a place that depends on the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The path as the setting writes it.
    pub text: Vec<u8>,
    /// The use that git makes of it.
    pub kind: Kind,
}

/// The use that git makes of a path in a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A further configuration file.
    Include,
    /// The value as a whole: a file or a directory whose content git obeys.
    Whole {
        /// git starts or copies what lies in the directory.
        of_hooks: bool,
    },
    /// A word of a command.
    Word {
        /// The first word of a command. Without a slash the shell looks it up in PATH.
        first: bool,
        /// The command is one of git itself, to which a directory is only a place to look at.
        of_git: bool,
    },
}

/// The paths that one setting names, and the setting's name for people.
pub(super) struct Names {
    /// For example `core.hooksPath`, in lower case.
    pub setting: String,
    /// The paths that the setting names.
    pub paths: Vec<Named>,
}

/// Settings whose files git reads as text, lists of places, and addresses. `*` stands for any name, also in the part in
/// quotes.
const QUIET: &[(&str, &str)] = &[
    ("blame", "ignorerevsfile"),
    ("branch", "*"),
    ("color", "*"),
    ("column", "*"),
    ("commit", "template"),
    ("core", "excludesfile"),
    ("core", "whitespace"),
    ("core", "worktree"),
    ("extensions", "*"),
    ("ghq", "*"),
    ("gui", "recentrepo"),
    ("log", "date"),
    ("mailmap", "file"),
    ("maintenance", "repo"),
    ("remote", "fetch"),
    ("remote", "push"),
    ("remote", "pushurl"),
    ("remote", "url"),
    ("safe", "directory"),
    ("scalar", "repo"),
    ("submodule", "active"),
    ("submodule", "branch"),
    ("submodule", "path"),
    ("submodule", "url"),
    ("url", "*"),
];

/// Commands in commands are searched this deep.
const DEPTH: usize = 4;

/// Reads a configuration and returns what its settings name. What the parser does not understand is searched line by
/// line.
pub(super) fn of_text(text: &[u8]) -> Vec<Names> {
    let Ok(settings) = parse(text) else { return of_lines(text) };
    held(&settings, &[], b"").into_iter().filter_map(of_setting).collect()
}

/// Returns the values of `core.worktree`, which say where a repository has its files.
pub(super) fn worktrees(text: &[u8]) -> Vec<Vec<u8>> {
    let is_one = |one: &Setting| one.section == "core" && one.subsection.is_none() && one.name == "worktree";
    parse(text).unwrap_or_default().into_iter().filter(is_one).filter_map(|one| one.value).collect()
}

/// Tells whether a configuration has `git push` go to the upstream of a branch, whatever its name.
pub(super) fn pushes_to_upstream(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 2] = [b"upstream", b"tracking"];
    match parse(text) {
        Ok(settings) => settings.iter().any(|one| {
            let value = one.value.as_deref().unwrap_or_default();
            one.section == "push" && one.name == "default" && WORDS.iter().any(|word| value.eq_ignore_ascii_case(word))
        }),
        // git may understand more than this parser.
        Err(_) => WORDS.iter().any(|word| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))),
    }
}

fn of_setting(setting: &Setting) -> Option<Names> {
    let value = setting.value.as_deref().filter(|value| !value.is_empty())?;
    let (section, name) = (setting.section.split('.').next().unwrap_or_default(), setting.name.as_str());
    // `ext::COMMAND` is an address that is a command.
    let is_command = value.starts_with(b"!") || value.windows(2).any(|two| two == b"::");
    let is_prefix = section == "gitflow" && matches!(setting.subsection.as_deref(), Some(b"prefix" | b"branch"));
    let is_quiet = is_prefix || QUIET.iter().any(|(s, n)| *s == section && (*n == name || *n == "*"));
    if is_quiet && !is_command {
        return None;
    }
    let paths = match (section, name) {
        ("include" | "includeif", "path") => vec![Named { text: value.to_vec(), kind: Kind::Include }],
        ("alias", _) => words(value.strip_prefix(b"!").unwrap_or(value), !value.starts_with(b"!")),
        _ => {
            let whole = value.strip_prefix(b":(optional)").unwrap_or(value);
            let of_hooks = matches!((section, name), ("core", "hookspath") | ("init", "templatedir"));
            let mut paths = vec![Named { text: whole.to_vec(), kind: Kind::Whole { of_hooks } }];
            // One word is its own whole.
            paths.extend(words(value.strip_prefix(b"!").unwrap_or(value), false));
            // A bare word is a program in PATH or a choice, but for the settings of git that name a file.
            if !is_path(section, name) {
                paths.retain(|one| !matches!(one.kind, Kind::Whole { .. }) || one.text.contains(&b'/'));
            }
            paths
        }
    };
    let setting = match &setting.subsection {
        None => format!("{}.{name}", setting.section),
        Some(sub) => format!("{}.{}.{name}", setting.section, sub.escape_ascii()),
    };
    Some(Names { setting, paths })
}

/// Reports whether a setting holds a path, so that even a bare word is one. A tool's `path` is looked up in PATH.
fn is_path(section: &str, name: &str) -> bool {
    let is_tool = ["browser", "difftool", "guitool", "man", "mergetool"].contains(&section);
    !is_tool && ["path", "file", "dir", "cert", "key", "cainfo"].iter().any(|end| name.ends_with(end))
}

/// For a file that is beyond the parser: the part behind the first `=` of each line may be anything.
fn of_lines(text: &[u8]) -> Vec<Names> {
    let mut all = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (line[..at].trim_ascii(), line[at + 1..].trim_ascii());
        let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        let mut paths = words(value, false);
        if bare.contains(&b'/') {
            paths.push(Named { text: bare.to_vec(), kind: Kind::Whole { of_hooks: true } });
        }
        if name.to_ascii_lowercase().ends_with(b"path") {
            paths.push(Named { text: bare.to_vec(), kind: Kind::Include });
            paths.push(Named { text: bare.to_vec(), kind: Kind::Whole { of_hooks: true } });
        }
        all.push(Names { setting: String::from_utf8_lossy(name).to_ascii_lowercase(), paths });
    }
    all
}

/// The words of a shell command that may be paths, those of commands in its words too.
fn words(command: &[u8], of_git: bool) -> Vec<Named> {
    let mut found = Vec::new();
    search(command, of_git, DEPTH, &mut found);
    found
}

fn search(command: &[u8], of_git: bool, depth: usize, found: &mut Vec<Named>) {
    let has_variables = command.iter().any(|byte| matches!(byte, b'$' | b'`'));
    for words in segments(command) {
        let by_git = of_git || words.first().is_some_and(|word| word == b"git");
        for (at, word) in words.iter().enumerate() {
            if by_git && at > 0 && words[at - 1] == b"-c" {
                of_option(word, found);
                continue;
            }
            let kind = Kind::Word { first: at == 0 && !of_git, of_git: by_git };
            let mut push = |text: &[u8]| {
                if !text.is_empty() && !text.starts_with(b"-") {
                    found.push(Named { text: text.to_vec(), kind });
                }
            };
            push(word);
            // NAME=PATH, --option=PATH, PATH:PATH.
            let parts: Vec<&[u8]> = word.split(|byte| matches!(byte, b'=' | b':' | b',')).collect();
            if parts.len() > 1 {
                parts.iter().copied().for_each(&mut push);
            }
            for part in parts {
                if let Some(rest) = behind_variable(part) {
                    push(&[b"~", rest].concat());
                    push(rest.trim_ascii_start().strip_prefix(b"/").unwrap_or(rest));
                } else if has_variables && part.starts_with(b"/") {
                    // The end of a path whose beginning has one of the marks at which the word was split.
                    push(&part[1..]);
                }
            }
            let is_command = word.iter().any(|byte| byte.is_ascii_whitespace() || b";&|()<>`'\"".contains(byte));
            if is_command && depth > 0 {
                search(word, false, depth - 1, found);
            }
        }
    }
}

/// Searches the setting that `git -c NAME=VALUE` makes.
fn of_option(word: &[u8], found: &mut Vec<Named>) {
    let value = word.iter().position(|byte| *byte == b'=').map_or(&b""[..], |at| &word[at + 1..]);
    found.push(Named { text: value.to_vec(), kind: Kind::Include });
    found.push(Named { text: value.to_vec(), kind: Kind::Whole { of_hooks: true } });
    found.extend(words(value, false));
}

/// The rest of a word that begins with a variable or a command, with its slash: `$HOME/x`, `${PWD}/x`, `$(pwd)/x`.
fn behind_variable(word: &[u8]) -> Option<&[u8]> {
    if word.starts_with(b"$(") || word.starts_with(b"`") {
        let end = word.windows(2).rposition(|pair| matches!(pair, [b')' | b'`', b'/']))?;
        return Some(&word[end + 1..]);
    }
    let rest = word.strip_prefix(b"$")?;
    let at = rest.iter().position(|byte| *byte == b'/')?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_{}:-?#%@*".contains(byte);
    rest[..at].iter().all(plain).then_some(&rest[at..])
}

/// Commands in commands that are followed.
const MAX_OPEN: usize = 16;
/// Words before a command in a command that are remembered.
const MAX_BEFORE: usize = 64;

/// A command in a command, not in quotes, that has not ended yet.
struct Open {
    /// The byte that ends it.
    end: u8,
    /// The words before it.
    words: Vec<Vec<u8>>,
    /// The part of a word that stands right before it.
    begin: Vec<u8>,
    /// Position of the byte that opens it.
    from: usize,
}

/// Splits a command into its simple commands, and these into words without their quotes. A word that goes on behind an
/// unquoted `$(…)` has its text, as one in quotes has.
pub(super) fn segments(command: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut all: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
    let mut word: Option<Vec<u8>> = None;
    let mut quote: Option<u8> = None;
    let mut bytes = command.iter().copied().enumerate();
    let mut open: Vec<Open> = Vec::new();
    let mut closed: Option<(Vec<Vec<u8>>, Vec<u8>)> = None;
    fn end(word: &mut Option<Vec<u8>>, all: &mut [Vec<Vec<u8>>]) {
        if let (Some(word), Some(last)) = (word.take(), all.last_mut()) {
            last.push(word);
        }
    }
    while let Some((at, byte)) = bytes.next() {
        // `$(pwd)/bin` is one word, as it is in quotes.
        if let (Some((words, begin)), b'/') = (closed.take(), byte) {
            word = Some(begin);
            if let Some(last) = all.last_mut() {
                *last = words;
            }
        }
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None | Some(b'"'), b'\\') => word.get_or_insert_default().extend(bytes.next().map(|(_, byte)| byte)),
            (Some(_), _) => word.get_or_insert_default().push(byte),
            (None, b';' | b'&' | b'|' | b'\n' | b'(' | b')' | b'`') => {
                let is_end = open.last().is_some_and(|one| one.end == byte);
                if is_end {
                    closed = open.pop().map(|one| (one.words, [&one.begin, &command[one.from..=at]].concat()));
                } else if byte == b'`' || (byte == b'(' && open.len() < MAX_OPEN) {
                    let begin = word.clone().unwrap_or_default();
                    let end = if byte == b'(' { b')' } else { b'`' };
                    // Of a long command only what the word itself says is known.
                    let words = all.last().filter(|words| words.len() <= MAX_BEFORE).cloned().unwrap_or_default();
                    open.push(Open { end, words, begin, from: at });
                }
                end(&mut word, &mut all);
                all.push(Vec::new());
            }
            (None, b'<' | b'>') => end(&mut word, &mut all),
            (None, byte) if byte.is_ascii_whitespace() => end(&mut word, &mut all),
            (None, byte) => word.get_or_insert_default().push(byte),
        }
    }
    end(&mut word, &mut all);
    all.retain(|words| !words.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let mut all: Vec<String> = of_text(text.as_bytes())
            .iter()
            .flat_map(|names| &names.paths)
            .map(|one| String::from_utf8_lossy(&one.text).into_owned())
            .collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn a_push_to_the_upstream_of_any_name_is_reported() {
        for (text, wanted) in [
            ("[push]\ndefault = upstream", true),
            ("[PUSH]\nDefault = \"tracking\"", true),
            ("[push]\ndefault = simple\ndefault = upstream\ndefault = simple", true),
            ("[push]\ndefault = simple", false),
            ("[push]\nx = upstream\n[remote \"upstream\"]\nurl = h:x", false),
            ("", false),
            // More than the parser reads.
            ("[push]\ndefault = upstream\n[x", true),
            ("[push]\ndefault = simple\n[x", false),
        ] {
            assert_eq!(pushes_to_upstream(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn settings_that_run_or_read_a_file_name_it() {
        for (text, wanted) in [
            ("[core]\nfsmonitor = ./tools/watch", "./tools/watch"),
            ("[core]\nhooksPath = hk", "hk"),
            ("[core]\nattributesFile = conf/attributes", "conf/attributes"),
            ("[core]\nsshCommand = ssh -F conf/ssh", "conf/ssh"),
            ("[core]\npager = \"\\\"tools/my pager\\\" -x\"", "tools/my pager"),
            ("[core]\neditor = tools/my\\\\ editor", "tools/my editor"),
            ("[filter \"x\"]\nclean = python3 tools/clean.py %f", "tools/clean.py"),
            ("[filter \"x\"]\nprocess = sh -c 'exec ./tools/p \"$@\"'", "./tools/p"),
            ("[diff \"x\"]\ntextconv = ~/ws/x.sh", "~/ws/x.sh"),
            ("[merge \"x\"]\ndriver = tools/m %O", "tools/m"),
            ("[credential]\nhelper = !./tools/cred", "./tools/cred"),
            ("[credential]\nhelper = /ws/cred", "/ws/cred"),
            ("[gpg \"ssh\"]\nallowedSignersFile = signers", "signers"),
            ("[alias]\nx = !cd tools && ./go", "./go"),
            ("[alias]\nx = !cd tools && ./go", "tools"),
            ("[alias]\nx = rebase --exec ./evil", "./evil"),
            ("[alias]\nx = rebase --exec=./evil", "./evil"),
            ("[alias]\nx = -c core.hooksPath=hk commit", "hk"),
            ("[alias]\nx = -c core.editor='sh -c tools/e' commit", "tools/e"),
            ("[gitflow \"path\"]\nhooks = tools/flow", "tools/flow"),
            ("[alias]\nx = !$(git rev-parse --show-toplevel)/tools/x", "tools/x"),
            ("[alias]\nx = !\"$HOME/ws/x\"", "~/ws/x"),
            ("[alias]\nx = !\"${PWD}/tools/x\"", "tools/x"),
            ("[alias]\nx = \"!f() { ./tools/x; }; f\"", "./tools/x"),
            ("[remote \"o\"]\nurl = ext::./tools/x", "./tools/x"),
            ("[submodule \"m\"]\nupdate = !./tools/up", "./tools/up"),
            ("[hook \"x\"]\ncommand = tools/x", "tools/x"),
            ("[init]\ntemplateDir = tpl", "tpl"),
            ("[other]\nthing = FOO=a/b:c/d x", "c/d"),
            ("[include]\npath = more", "more"),
            ("[includeIf \"gitdir:/x/\"]\npath = more", "more"),
            // A value that the parser does not understand.
            ("[core]\nhooksPath = a\\qb/hk", "a\\qb/hk"),
        ] {
            assert!(paths(text).contains(&wanted.to_owned()), "{text}: {:?}", paths(text));
        }
    }

    #[test]
    fn inert_settings_and_addresses_name_nothing() {
        for text in [
            "[user]\nname = a/b",
            "[core]\nbare = false",
            "[core]\nexcludesFile = conf/ignore",
            "[core]\nworktree = ../x/y",
            "[commit]\ntemplate = conf/message",
            "[remote \"o\"]\nurl = ../other/repository\nfetch = +refs/heads/*:refs/remotes/o/*",
            "[branch \"m\"]\nremote = o\nmerge = refs/heads/m",
            "[safe]\ndirectory = /ws/sub",
            "[ghq]\nroot = ~/src",
            "[maintenance]\nrepo = /ws/sub",
            "[alias]\nst =",
            "[gitflow \"prefix\"]\nfeature = feature/",
        ] {
            assert_eq!(paths(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn any_bytes_are_searched_without_a_panic() {
        for text in ["", "'", "\\", "$", "$(", "${", "a\\", "\"\\", "`", "((((((((((((", "'\"'\"'"] {
            words(text.as_bytes(), false);
            of_text(format!("[a]\nb = {text}").as_bytes());
            of_lines(text.as_bytes());
        }
    }
}
