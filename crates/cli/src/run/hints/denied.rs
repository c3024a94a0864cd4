//! Advice for a command that failed at a path that its sandbox shows read-only or hides.
//!
//! The kernel reports these refusals to the command alone. So the last output is searched for the error and for a path that is
//! known to be read-only or hidden, and the advice begins with `perhaps`. The words are hostile: a path of them is compared
//! with the plan, and nothing is opened.

use crate::failure::one_line;
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
/// Bytes that end a path in a message.
const ENDS: &[u8] = b" \t'\"`:,;()[]<>=";
/// The longest path that is compared.
const MAX_PATH: usize = 512;
/// Lines that are searched, from the last one back.
const MAX_LINES: usize = 64;

/// Returns the code and the text of the advice.
pub fn advice(plan: &Plan, words: &LastWords) -> Option<(&'static str, String)> {
    words.last_lines().take(MAX_LINES).find_map(|line| of_line(plan, line))
}

fn of_line(plan: &Plan, line: &[u8]) -> Option<(&'static str, String)> {
    if let Some(path) = REFUSED.iter().find_map(|error| at(line, error)).and_then(|_| hidden_in(plan, line)) {
        let name = one_line(&path.display().to_string());
        let message = format!(
            "perhaps: {name} is hidden from the command. Leave the pattern that hides it out (--hide, --hide-secrets, a profile)."
        );
        return Some(("hidden", message));
    }
    let (place, is_erofs) = READ_ONLY
        .iter()
        .find_map(|error| Some((at(line, error)?, true)))
        .or_else(|| REFUSED.iter().find_map(|error| Some((at(line, error)?, false))))?;
    // "cannot create PATH: ERROR" or "ERROR: PATH".
    let path = paths(&line[..place]).last().or_else(|| paths(&line[place..]).next())?;
    let is_shown = is_read_only_bind(plan, path);
    let is_elsewhere = !path.starts_with(plan.workspace.source.as_path());
    (is_elsewhere && (is_erofs || is_shown)).then(|| {
        let name = one_line(&path.display().to_string());
        let message = format!(
            "perhaps: {name} is read-only, as all that is outside of the workspace. Write to the workspace, /tmp or $HOME, or let the \
             command write a directory of yours with --rw DIR."
        );
        ("read_only", message)
    })
}

fn at(line: &[u8], text: &[u8]) -> Option<usize> {
    line.windows(text.len()).position(|window| window == text)
}

/// Lists what may be a path in a message, in order.
fn tokens(text: &[u8]) -> impl Iterator<Item = &Path> {
    let is_end = |byte: &u8| ENDS.contains(byte) || !byte.is_ascii() || byte.is_ascii_control();
    let pieces = text.split(move |byte| is_end(byte));
    pieces.filter(|piece| (1..=MAX_PATH).contains(&piece.len())).map(|piece| Path::new(OsStr::from_bytes(piece)))
}

/// Lists the absolute paths in a message, in order.
fn paths(text: &[u8]) -> impl Iterator<Item = &Path> {
    let is_plain = |path: &&Path| !path.components().any(|part| matches!(part, Component::ParentDir));
    tokens(text).filter(|path| path.is_absolute() && path.components().count() > 1).filter(is_plain)
}

/// Returns a path of the message that the sandbox hides.
fn hidden_in<'a>(plan: &Plan, line: &'a [u8]) -> Option<&'a Path> {
    if plan.hidden.is_empty() {
        return None;
    }
    let workspace = plan.workspace.source.as_path();
    let is_hidden = |path: &&Path| {
        let from_cwd = plan.cwd.as_path().join(path);
        let relative = from_cwd.strip_prefix(workspace).ok();
        relative.is_some_and(|relative| plan.hidden.iter().any(|hidden| relative.starts_with(hidden.as_path())))
    };
    tokens(line).find(is_hidden)
}

/// Reports whether the innermost bind that shows a path is read-only.
fn is_read_only_bind(plan: &Plan, path: &Path) -> bool {
    let shows = plan.binds.iter().filter(|bind| path.starts_with(bind.target.as_path()));
    let innermost = shows.max_by_key(|bind| bind.target.0.len());
    innermost.is_some_and(|bind| bind.access == Access::ReadOnly)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<String> {
        let line = line.as_bytes();
        let place = READ_ONLY.iter().find_map(|error| at(line, error))?;
        let path = paths(&line[..place]).last().or_else(|| paths(&line[place..]).next())?;
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
        ] {
            assert_eq!(found(line).as_deref(), Some("/etc/hosts"), "{line}");
        }
    }

    #[test]
    fn a_message_without_a_plain_path_names_none() {
        let long = format!("cannot create /{}: Read-only file system", "x".repeat(MAX_PATH));
        for line in ["Read-only file system (os error 30)", "/a/../b: Read-only file system", "/: EROFS", &long, ""] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
