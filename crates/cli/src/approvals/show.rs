//! Formats an approval as text: command, directory, paths, network, names of secrets. All strings that a command chose are quoted.

use crate::failure::one_line;
use nexus_model::approval::{ApprovalKind, ApprovalState};
use nexus_runner::state::approvals::{Stored, now};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Returns the text of a field that may hold bytes.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // Bytes that are not text.
        Value::Object(fields) => fields.values().next().map_or_else(String::new, text_of),
        other => other.to_string(),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().map(|list| list.iter().map(text_of).collect()).unwrap_or_default()
}

fn command(stored: &Stored) -> String {
    texts(&stored.shown["argv"]).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Returns the time that is left, for people: to answer it, where something waits for that, else to use it.
pub fn time(stored: &Stored) -> String {
    let approval = &stored.approval;
    let waits = approval.answer_by.filter(|_| approval.state == ApprovalState::Pending);
    let left = waits.unwrap_or(approval.expires_at).saturating_sub(now()) / 1000;
    match left {
        0 => "now".to_owned(),
        left if left < 120 => format!("{left} s from now"),
        left => format!("{} min from now", left / 60),
    }
}

/// Returns one line about it.
pub fn line(stored: &Stored) -> String {
    const MAX_CHARS: usize = 100;
    let command = match stored.approval.kind {
        ApprovalKind::Egress => format!("{} for {}", quoted(&text_of(&stored.shown["connect"])), command(stored)),
        _ => command(stored),
    };
    let cut: String = command.chars().take(MAX_CHARS).collect();
    let more = if command.chars().count() > MAX_CHARS { "…" } else { "" };
    format!("{}  {:8}  {:>16}  {cut}{more}\n", stored.id, stored.approval.state.name(), time(stored))
}

/// Returns the rules of a network, behind its mode.
fn rules(rules: &Value) -> String {
    let items: Vec<String> = texts(&rules["items"]).iter().map(|rule| quoted(rule)).collect();
    let omitted = rules["omitted"].as_u64().unwrap_or_default();
    let more = (omitted > 0).then(|| format!("{omitted} more that are not shown"));
    let all: Vec<String> = items.into_iter().chain(more).collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join(", ")) }
}

/// Returns all of it.
pub fn text(stored: &Stored) -> String {
    let shown = &stored.shown;
    let mut out = String::new();
    let mut row = |name: &str, value: &str| {
        let _written = writeln!(out, "{name:10} {value}");
    };
    row("approval", &stored.id.to_string());
    row("state", &format!("{}, until {}", stored.approval.state.name(), time(stored)));
    let asked = &stored.approval.requester;
    row("asked by", &format!("{}, {}", quoted(&asked.user), quoted(&asked.credential)));
    for reason in &stored.reasons {
        row("because", &one_line(reason));
    }
    if stored.approval.kind == ApprovalKind::Egress {
        row("connect to", &quoted(&text_of(&shown["connect"])));
        row("command", &command(stored));
        row("workspace", &quoted(&text_of(&shown["workspace"])));
        row("run", &quoted(&text_of(&shown["run"])));
        row(
            "uses",
            &format!("{} of {} are left; one is a connection", stored.approval.uses_left(), stored.approval.max_uses),
        );
        return out;
    }
    row("command", &command(stored));
    if let Some(image) = shown["image"].as_str() {
        row("image", image);
    }
    row("directory", &quoted(&text_of(&shown["cwd"])));
    row(
        "workspace",
        &format!("{}, changes: {}", quoted(&text_of(&shown["workspace"])), quoted(&text_of(&shown["changes"]))),
    );
    if shown["direct_git"] == true {
        row("git", "the command may write objects, refs and the index itself");
    }
    let around = &shown["around"];
    row("input", &quoted(&text_of(&around["input"])));
    for (name, field) in [("output to", "full_output"), ("receipt to", "receipt")] {
        if !around[field].is_null() {
            row(name, &quoted(&text_of(&around[field])));
        }
    }
    if around["raw"] == true {
        row("screen", "control sequences of the command come as they are");
    }
    for port in around["publish"].as_array().into_iter().flatten() {
        row("publish", &quoted(&text_of(port)));
    }
    for file in shown["files"].as_array().into_iter().flatten() {
        row("file", &format!("{} {}", quoted(&text_of(&file["path"])), quoted(&text_of(&file["hash"]))));
    }
    for bind in shown["binds"].as_array().into_iter().flatten() {
        let from = match &bind["source"] {
            Value::Null => ", made by Nexus".to_owned(),
            source if *source == bind["target"] => String::new(),
            source => format!(" from {}", quoted(&text_of(source))),
        };
        let verb = match bind["access"].as_str() {
            Some("ReadOnly") => "read".to_owned(),
            Some("ReadWrite") => "write".to_owned(),
            _ => quoted(&text_of(&bind["access"])),
        };
        row("path", &format!("{verb} {}{from}", quoted(&text_of(&bind["target"]))));
    }
    match &shown["network"] {
        Value::Null => row("network", "none"),
        network => {
            row("network", &one_line(&format!("{}{}", text_of(&network["mode"]), rules(&network["rules"]))));
            if network["upstream"] == true {
                row("proxy", "connections go through the upstream proxy of the settings");
            }
            if network["ask"] == true {
                row("questions", "further destinations may be allowed while it runs");
            }
            row("methods", &one_line(&network["methods"].to_string()));
            row("budget", &one_line(&network["budget"].to_string()));
        }
    }
    let names = |value: &Value| match texts(value) {
        names if names.is_empty() => "none".to_owned(),
        names => names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "),
    };
    row("secrets", &names(&shown["secrets"]));
    row("variables", &names(&shown["variables"]));
    row("protected", &names(&shown["protect"]));
    row("limits", &one_line(&shown["limits"].to_string()));
    out
}

/// Returns it for programs, without its salt.
pub fn json(stored: &Stored) -> Value {
    json!({
        "id": stored.id, "state": stored.approval.state, "kind": stored.approval.kind, "asked_at_ms": stored.asked_at,
        "expires_at_ms": stored.approval.expires_at, "uses_left": stored.approval.uses_left(),
        "requester": stored.approval.requester, "approvers": stored.approval.approvers,
        "denied_by": stored.approval.denied_by, "reasons": stored.reasons, "subject": stored.shown,
    })
}

/// Returns a value for people: quoted where it holds more than plain characters.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { one_line(&format!("{text:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_network_are_shown_in_words() {
        assert_eq!(rules(&json!({"items": [], "omitted": 0})), "");
        let some = json!({"items": ["allow a.test:443", "deny \u{202e}b"], "omitted": 2});
        let told = rules(&some);
        assert!(
            told.starts_with(": \"allow a.test:443\", ") && told.ends_with(", 2 more that are not shown"),
            "{told}"
        );
        assert!(!told.contains('\u{202e}') && !told.contains('['), "{told}");
    }
}
