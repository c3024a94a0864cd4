//! Finds the lengths of object ids that a configuration of git allows. Pure.

use super::format::{LONG, SHORT};
use crate::config::{Setting, parse};

/// Larger configurations say nothing about the format.
pub const MAX_CONFIG: u64 = 1 << 20;

/// The lengths of object ids that a configuration allows, as git reads it (`read_repository_format`): without a
/// `core.repositoryformatversion` git leaves the extensions out, and with 0 it refuses this one. What is neither plain
/// SHA-1 nor plain SHA-256 may be both.
pub fn lengths_by(text: &[u8]) -> Vec<usize> {
    const EXTENSION: &[u8] = b"objectformat";
    let Ok(settings) = parse(text) else {
        let says = text.to_ascii_lowercase().windows(EXTENSION.len()).any(|part| part == EXTENSION);
        return if says { vec![SHORT, LONG] } else { vec![SHORT] };
    };
    let values = |section: &str, name: &str| -> Vec<Option<&[u8]>> {
        let is_it = |one: &&Setting| one.section == section && one.subsection.is_none() && one.name == name;
        settings.iter().filter(is_it).map(|one| one.value.as_deref()).collect()
    };
    let formats = values("extensions", "objectformat");
    if formats.iter().all(|format| *format == Some(b"sha1")) {
        return vec![SHORT];
    }
    match (&formats[..], &values("core", "repositoryformatversion")[..]) {
        ([Some(b"sha256")], [Some(b"1")]) => vec![LONG],
        _ => vec![SHORT, LONG],
    }
}
