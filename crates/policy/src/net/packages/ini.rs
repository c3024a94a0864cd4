//! The INI dialect of pip (Python's configparser) and npm: sections, `key = value`, lines that go on.

use super::needs::PackagesError;

/// One setting of an INI file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The section in lower case, empty before the first one.
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
}

/// Dialect of an INI file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `=` or `:` separates, an indented line goes on with the value before it.
    Pip,
    /// Only `=` separates, since keys hold colons; a key alone is true; values may be in quotes.
    Npm,
}

pub(super) fn read(text: &str, dialect: Dialect) -> Result<Vec<Entry>, PackagesError> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut section = String::new();
    for (raw, line) in text.lines().zip(1..) {
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with(';') {
            continue;
        }
        if dialect == Dialect::Pip && raw.starts_with([' ', '\t']) {
            let before = entries.last_mut().ok_or(PackagesError::Line { line, why: "it goes on with nothing" })?;
            before.value.push('\n');
            before.value.push_str(trimmed);
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_ascii_lowercase();
            continue;
        }
        let cut = match dialect {
            Dialect::Pip => trimmed.split_once(['=', ':']),
            Dialect::Npm => Some(trimmed.split_once('=').unwrap_or((trimmed, "true"))),
        };
        let (key, value) = cut.ok_or(PackagesError::Line { line, why: "it is neither a section nor a setting" })?;
        entries.push(Entry {
            section: section.clone(),
            key: key.trim().into(),
            value: unquoted(value.trim(), dialect),
        });
    }
    Ok(entries)
}

fn unquoted(value: &str, dialect: Dialect) -> String {
    let inner = match dialect {
        Dialect::Pip => None,
        Dialect::Npm => value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')),
    };
    inner.unwrap_or(value).into()
}
