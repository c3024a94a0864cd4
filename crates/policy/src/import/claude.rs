//! Permission rules of Claude Code (`settings.json`): `Bash(npm run *)`, `Read(~/.ssh/**)`, `WebFetch(domain:x)`.

use super::draft::{Draft, Paths};
use super::paths::pattern;
use super::{ImportError, Wanted};
use crate::document::Answer;
use serde_json::Value;

pub(super) fn read(text: &str, wanted: Wanted<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let root: Value = serde_json::from_str(text).map_err(|error| ImportError::Unreadable { why: error.to_string() })?;
    let Some(root) = root.as_object() else {
        return Err(ImportError::Unreadable { why: "it is not a JSON object".to_owned() });
    };
    for key in root.keys().filter(|key| !matches!(key.as_str(), "permissions" | "$schema")) {
        draft.leave_out(key, "it is not a permission");
    }
    let Some(permissions) = root.get("permissions") else { return Ok(()) };
    let Some(permissions) = permissions.as_object() else {
        return Err(ImportError::Unreadable { why: "permissions is not an object".to_owned() });
    };
    for (key, value) in permissions {
        let answer = match key.as_str() {
            "allow" => Answer::Skip,
            "ask" => Answer::NeedsApproval,
            "deny" => Answer::Forbidden,
            _ => {
                draft.leave_out(&format!("permissions.{key}"), "a policy document has nothing like it");
                continue;
            }
        };
        let Some(list) = value.as_array() else {
            return Err(ImportError::Unreadable { why: format!("permissions.{key} is not a list") });
        };
        for entry in list {
            match entry.as_str() {
                Some(text) => rule(text, answer, wanted, draft),
                None => draft.leave_out(&entry.to_string(), "it is not text"),
            }
        }
    }
    // The directory that it works in may be read and written there, whatever else is listed.
    for list in [&mut draft.read, &mut draft.write].into_iter().flatten() {
        if !list.iter().any(|path| path == "workspace:**") {
            list.insert(0, "workspace:**".to_owned());
        }
    }
    Ok(())
}

fn rule(text: &str, answer: Answer, wanted: Wanted<'_>, draft: &mut Draft) {
    let (tool, inner) = match text.split_once('(') {
        Some((tool, rest)) => (tool, rest.strip_suffix(')')),
        None => (text, Some("")),
    };
    let Some(inner) = inner else { return draft.leave_out(text, "it has no closing parenthesis") };
    match (tool, inner) {
        ("Bash", "" | "*" | ":*") => match answer {
            Answer::Skip => draft.leave_out(text, "a rule that lets every command go is not carried over"),
            strict => draft.exec(strict),
        },
        ("Bash", inner) => bash(text, inner, answer, draft),
        ("WebFetch", inner) => match (inner.strip_prefix("domain:"), answer) {
            (Some(host), Answer::Skip) => draft.allow(text, format!("{host}:80,443")),
            (Some(host), Answer::Forbidden) => draft.deny(text, host.to_owned()),
            (Some(_), Answer::NeedsApproval) => draft.leave_out(text, "nexus run --ask asks about destinations"),
            (None, _) => draft.leave_out(text, "only a domain can be carried over"),
        },
        ("Read" | "Edit" | "Write" | "MultiEdit", inner) => path(text, tool, inner, answer, wanted, draft),
        _ => draft.leave_out(text, "it is about a tool of another program"),
    }
}

fn bash(text: &str, inner: &str, answer: Answer, draft: &mut Draft) {
    let rule = match inner.strip_suffix(":*").or_else(|| inner.strip_suffix(" *")) {
        Some(before) => format!("{before} *"),
        None => inner.to_owned(),
    };
    draft.command(text, answer, &rule, [&[], &[]]);
}

fn path(text: &str, tool: &str, inner: &str, answer: Answer, wanted: Wanted<'_>, draft: &mut Draft) {
    let path = match inner.strip_prefix('/') {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => return draft.leave_out(text, "it is relative to a file of settings, which is not known here"),
        None if !inner.contains('/') && inner != "**" && inner != "." => {
            return draft.leave_out(text, "it is a name at any depth: hide it with --hide, or in a profile");
        }
        None => inner,
    };
    match (answer, tool) {
        (Answer::NeedsApproval, _) => draft.leave_out(text, "there is no question about a path"),
        (Answer::Forbidden, "Read") => draft.path(text, pattern(path, wanted.home, true), Paths::Deny),
        (Answer::Forbidden, _) => {
            draft.path(text, pattern(path, wanted.home, true), Paths::Deny);
            draft.leave_out(text, "carried over more strictly: it cannot be read either");
        }
        (Answer::Skip, "Read") => draft.path(text, pattern(path, wanted.home, false), Paths::Read),
        (Answer::Skip, _) => {
            draft.path(text, pattern(path, wanted.home, false), Paths::Write);
            if draft.read.is_some() {
                draft.path(text, pattern(path, wanted.home, false), Paths::Read);
            }
        }
    }
}
