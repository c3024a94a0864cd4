//! Settings of sandbox-runtime (`srt-settings.json`): what may be reached, written and not read.

use super::draft::{Draft, Paths};
use super::form::{ImportError, Wanted};
use super::paths::pattern;
use serde_json::Value;

pub(super) fn read(text: &str, wanted: Wanted<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let root: Value = serde_json::from_str(text).map_err(|error| ImportError::Unreadable { why: error.to_string() })?;
    let Value::Object(root) = root else {
        return Err(ImportError::Unreadable { why: "it is not a JSON object".to_owned() });
    };
    // Without a list nothing may be reached.
    draft.allow = Some(Vec::new());
    for (key, value) in &root {
        match (key.as_str(), value) {
            ("network", Value::Object(part)) => network(part, draft),
            ("filesystem", Value::Object(part)) => files(part, wanted, draft),
            _ => draft.leave_out(key, "a policy document has nothing like it"),
        }
    }
    Ok(())
}

/// Returns the texts of a list, and reports what is not one.
fn texts<'v>(key: &str, value: &'v Value, draft: &mut Draft) -> Vec<&'v str> {
    let Some(list) = value.as_array() else {
        draft.leave_out(key, "it is not a list");
        return Vec::new();
    };
    let texts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    if texts.len() != list.len() {
        draft.leave_out(key, "an entry is not text");
    }
    texts
}

fn network(part: &serde_json::Map<String, Value>, draft: &mut Draft) {
    for (key, value) in part {
        match key.as_str() {
            "allowedDomains" => {
                for host in texts(key, value, draft) {
                    if host.contains(':') {
                        draft.allow(host, host.to_owned());
                    } else {
                        draft.allow(host, format!("{host}:80,443"));
                    }
                }
                draft.leave_out(key, "names are carried over with the ports 80 and 443 alone");
            }
            "deniedDomains" => {
                for host in texts(key, value, draft) {
                    draft.deny(host, host.to_owned());
                }
            }
            _ if value == &Value::Bool(false) || value.as_array().is_some_and(Vec::is_empty) => {}
            _ => {
                draft
                    .leave_out(&format!("network.{key}"), "a policy only takes away: give it with a flag of nexus run");
            }
        }
    }
}

fn files(part: &serde_json::Map<String, Value>, wanted: Wanted<'_>, draft: &mut Draft) {
    for (key, value) in part {
        let (list, note) = match key.as_str() {
            "allowWrite" => (Paths::Write, None),
            "denyRead" => (Paths::Deny, None),
            "denyWrite" => (Paths::Deny, Some("carried over more strictly: it cannot be read either")),
            _ => {
                draft.leave_out(&format!("filesystem.{key}"), "a policy document has nothing like it");
                continue;
            }
        };
        if key == "allowWrite" {
            draft.write.get_or_insert_default();
        }
        for path in texts(key, value, draft) {
            draft.path(path, pattern(path, wanted.home, true), list);
            if let Some(note) = note {
                draft.leave_out(path, note);
            }
        }
    }
}
