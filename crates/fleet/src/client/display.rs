//! Lines about directives, facilities and territories for a person.

use crate::failure::one_line;
use nexus_api::mothership::Directive;

/// Longest command in a line.
const SHOWN: usize = 80;

/// One directive on one line. What a user chose is escaped.
pub fn directive(one: &Directive) -> String {
    let reason = one.reason.as_deref().filter(|reason| *reason != "exit").map(|reason| format!(" ({reason})"));
    let exit = one.exit_code.map(|code| format!(" exit {code}"));
    let command: String = one.command.chars().take(SHOWN).collect();
    let text = format!(
        "{}  {}{}{}  {}",
        one.directive_id,
        one.state,
        exit.unwrap_or_default(),
        reason.unwrap_or_default(),
        command
    );
    one_line(&text)
}

/// The details of one directive, one on each line.
pub fn details(one: &Directive) -> String {
    let mut rows = vec![
        ("directive", one.directive_id.to_string()),
        ("facility", one.facility_id.to_string()),
        ("state", one.state.to_string()),
        ("command", one.command.clone()),
        ("attempt", one.attempt.to_string()),
    ];
    rows.extend(one.exit_code.map(|code| ("exit code", code.to_string())));
    rows.extend(one.reason.clone().map(|reason| ("reason", reason)));
    rows.extend(one.queued_because.clone().map(|why| ("waits because", why)));
    rows.extend(one.territory_id.map(|id| ("territory", id.to_string())));
    rows.extend(one.cancel_requested.then(|| ("cancel", "requested".to_owned())));
    rows.push(("created", one.created_at.to_string()));
    rows.extend(one.started_at.map(|at| ("started", at.to_string())));
    rows.extend(one.ended_at.map(|at| ("ended", at.to_string())));
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:14} {}", one_line(value))).collect();
    lines.join("\n") + "\n"
}
