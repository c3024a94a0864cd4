//! Advice for a command that failed at a path that its sandbox shows read-only or hides.
//!
//! The kernel reports these refusals to the command alone. So the last output is searched for the error and for a path that is
//! known to be read-only or hidden, and the advice begins with `perhaps`. The words are hostile: a path of them is compared
//! with the plan, and nothing is opened.

use crate::known_paths::{KnownPaths, innermost, whole};
use crate::until::Until;
use nexus_caller::failure::one_line;
use nexus_model::Plan;
use nexus_model::plan::Access;
use nexus_runner::live::last_words::LastWords;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Written by programs for EROFS.
const READ_ONLY: &[&[u8]] = &[b"Read-only file system", b"read-only file system", b"EROFS"];
/// Written by programs for EACCES.
const REFUSED: &[&[u8]] = &[b"Permission denied", b"permission denied", b"EACCES"];
/// Written by programs for EBUSY: a file that is hidden is covered, and cannot be removed.
const BUSY: &[&[u8]] = &[b"Device or resource busy", b"device or resource busy", b"EBUSY"];
/// Bytes that end a path in a message.
const ENDS: &[u8] = b" \t'\"`:,;()[]<>=";
/// The longest path that is compared.
const MAX_PATH: usize = 512;
/// Lines that are searched, from the last one back.
const MAX_LINES: usize = 64;

/// Returns the code and the text of the advice.
pub fn advice(plan: &Plan, words: &LastWords, until: Until) -> Option<(&'static str, String)> {
    let known = KnownPaths::of(plan, until);
    let mut lines = words.last_lines().take(MAX_LINES).take_while(|_| !until.is_over());
    lines.find_map(|line| of_line(plan, &known, line))
}

fn of_line(plan: &Plan, known: &KnownPaths<'_>, line: &[u8]) -> Option<(&'static str, String)> {
    let (place, error) = error_in(line)?;
    let start = after_program(line, place);
    if let Some(path) = known.hidden_of(tokens(&line[start..])) {
        let name = one_line(&path.display().to_string());
        let message = format!(
            "perhaps: {name} is hidden from the command. Leave the pattern that hides it out (--hide, --hide-secrets, a profile)."
        );
        return Some(("hidden", message));
    }
    let kept = matches!(error, Error::Busy).then(|| known.kept_of(tokens(&line[start..]))).flatten();
    if let Some(path) = kept {
        let name = one_line(&path.display().to_string());
        let message = format!(
            "perhaps: {name} keeps its place, because a socket or closed directory of the host in it is covered and another bind could \
             show it without a cover. Leave it there, or name a directory without sockets with --rw."
        );
        return Some(("kept", message));
    }
    let path = path_of(line, start, place)?;
    let whole = whole(&plan.cwd.as_path().join(path))?;
    let is_elsewhere = !whole.starts_with(plan.workspace.source.as_path());
    let is_refused = match error {
        Error::ReadOnly => true,
        Error::Refused => is_read_only_bind(plan, &whole),
        Error::Busy => false,
    };
    (is_elsewhere && is_refused).then(|| {
        let name = one_line(&path.display().to_string());
        let message = format!(
            "perhaps: {name} is read-only, as all that is outside of the workspace. Write to the workspace, /tmp or $HOME (private, \
             gone afterwards), or let the command write a directory of yours with --rw DIR."
        );
        ("read_only", message)
    })
}

/// An error that a refusal of the sandbox can have.
#[derive(Clone, Copy)]
enum Error {
    ReadOnly,
    Refused,
    Busy,
}

/// Returns the place of the error in a message.
fn error_in(line: &[u8]) -> Option<(usize, Error)> {
    let all = [(READ_ONLY, Error::ReadOnly), (REFUSED, Error::Refused), (BUSY, Error::Busy)];
    all.into_iter().find_map(|(texts, error)| Some((texts.iter().find_map(|text| at(line, text))?, error)))
}

/// Returns where a message goes on behind the name of the program that complains: "PROGRAM: cannot create PATH: ERROR". A
/// message that has only the error behind its first colon names no program: "open PATH: ERROR".
pub fn after_program(line: &[u8], error: usize) -> usize {
    at(line, b": ").map(|colon| colon + 2).filter(|start| *start < error).unwrap_or(0)
}

/// Returns the path of "cannot create PATH: ERROR" or of "ERROR: PATH".
pub fn path_of(line: &[u8], start: usize, error: usize) -> Option<&Path> {
    paths(&line[start..error]).last().or_else(|| paths(&line[error..]).next())
}

pub fn at(line: &[u8], text: &[u8]) -> Option<usize> {
    line.windows(text.len()).position(|window| window == text)
}

/// Lists what may be a path in a message, in order.
fn tokens(text: &[u8]) -> impl Iterator<Item = &Path> {
    let is_end = |byte: &u8| ENDS.contains(byte) || !byte.is_ascii() || byte.is_ascii_control();
    let pieces = text.split(move |byte| is_end(byte));
    pieces.filter(|piece| (1..=MAX_PATH).contains(&piece.len())).map(|piece| Path::new(OsStr::from_bytes(piece)))
}

/// Lists the paths in a message that can lead out of the workspace, in order: absolute ones, and those that begin with `..`.
fn paths(text: &[u8]) -> impl Iterator<Item = &Path> {
    let is_up = |part: &Component<'_>| matches!(part, Component::ParentDir);
    let leads_out = move |path: &&Path| {
        let ups = path.components().filter(is_up).count();
        let first = path.components().take_while(is_up).count();
        path.components().count() > 1 && ups == first && (path.is_absolute() || first > 0)
    };
    tokens(text).filter(leads_out)
}

/// Reports whether the innermost bind that shows a path is read-only.
fn is_read_only_bind(plan: &Plan, path: &Path) -> bool {
    innermost(&plan.binds, path).is_some_and(|bind| bind.access == Access::ReadOnly)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<String> {
        let line = line.as_bytes();
        let (place, _) = error_in(line)?;
        let path = path_of(line, after_program(line, place), place)?;
        Some(path.display().to_string())
    }

    #[test]
    fn the_path_of_a_message_is_found() {
        for line in [
            "/bin/sh: 1: cannot create /etc/hosts: Read-only file system",
            "touch: cannot touch '/etc/hosts': Read-only file system",
            "touch: cannot touch \u{2018}/etc/hosts\u{2019}: Read-only file system",
            "OSError: [Errno 30] Read-only file system: '/etc/hosts'",
            "Error: EROFS: read-only file system, open '/etc/hosts'",
            "open /etc/hosts: read-only file system",
            "/etc/hosts: Read-only file system",
        ] {
            assert_eq!(found(line).as_deref(), Some("/etc/hosts"), "{line}");
        }
        assert_eq!(found("touch: cannot touch '../lost': Read-only file system").as_deref(), Some("../lost"));
        assert_eq!(whole(Path::new("/home/me/app/../lost")).as_deref(), Some(Path::new("/home/me/lost")));
        assert_eq!(whole(Path::new("/a/../..")), None);
    }

    #[test]
    fn a_message_without_a_plain_path_names_none() {
        let long = format!("cannot create /{}: Read-only file system", "x".repeat(MAX_PATH));
        for line in [
            "Read-only file system (os error 30)",
            "/a/../b: Read-only file system",
            "/: EROFS",
            &long,
            "",
            "/bin/sh: 1: cannot create .env: Read-only file system",
            "/bin/sh: 1: cannot create a/../../b: EROFS",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
