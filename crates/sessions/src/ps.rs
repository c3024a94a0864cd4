//! The command `nexus ps`.

use super::args::PsArgs;
use crate::failure::{Failure, one_line};
use crate::failures::not_written;
use crate::terminal::out::write_unless_closed;
use nexus_runner::session::outside::Outside;
use nexus_runner::session::store::{Condition, Entry, now_ms};
use serde_json::json;
use std::io;

/// Longest command in a line.
const MAX_COMMAND: usize = 40;

/// Lists sandboxes: those that live, or all.
pub fn command(args: &PsArgs) -> Result<u8, Failure> {
    let mut entries = super::find::store()?.list()?;
    entries.retain(|entry| args.all || entry.condition.is_live());
    let text = if args.json { document(&entries) } else { table(&entries) };
    write_unless_closed(&mut io::stdout(), text.as_bytes()).map_err(|error| not_written("the list", &error))?;
    if !args.json {
        for (entry, outside) in entries.iter().filter_map(|entry| Some((entry, outside(entry)?))) {
            let name = entry.about.name.as_ref().map_or_else(|| entry.about.id.to_string(), ToString::to_string);
            if let Some(line) = outside_line(&outside, &name) {
                crate::notices::tell(&one_line(&line));
            }
        }
    }
    Ok(0)
}

/// Looks for what changed outside of a sandbox that lives and has a layer.
fn outside(entry: &Entry) -> Option<Outside> {
    let about = &entry.about;
    let started = about.started_ms.filter(|_| about.layered && entry.condition.is_live())?;
    Some(Outside::find(about.workspace.as_path(), started))
}

/// Returns the sentence for a person about what changed outside; `None` when nothing did.
fn outside_line(outside: &Outside, sandbox: &str) -> Option<String> {
    let named: Vec<String> = outside.named.iter().map(|path| path.display().to_string()).collect();
    let more = match outside.count.saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (outside.count > 0).then(|| {
        format!(
            "{sandbox}: replaced or made outside since it started: {}{more}. What its command had read before stays as it \
             was; a sandbox with --direct sees edits at once.",
            named.join(", ")
        )
    })
}

fn document(entries: &[Entry]) -> String {
    let sessions: Vec<_> = entries
        .iter()
        .map(|entry| {
            let about = &entry.about;
            let ending = match &entry.condition {
                Condition::Ended(ending) => Some(ending),
                _ => None,
            };
            json!({
                "id": about.id,
                "name": about.name,
                "state": entry.condition.word(),
                "command": about.command,
                "workspace": about.workspace,
                "terminal": about.terminal,
                "published": about.published.iter().map(|(host, inside)| json!({"host": host, "inside": inside})).collect::<Vec<_>>(),
                "pid": entry.condition.is_live().then_some(about.pid),
                "created_ms": about.created_ms,
                "started_ms": about.started_ms,
                "made_outside": outside(entry).map(|outside| outside.count),
                "ended_ms": ending.map(|ending| ending.ended_ms),
                "exit_code": ending.map(|ending| ending.exit),
                "reason": ending.and_then(|ending| ending.reason),
                "run": ending.map(|ending| &ending.report),
            })
        })
        .collect();
    json!({ "schema": "nexus.ps/1", "sessions": sessions }).to_string() + "\n"
}

fn table(entries: &[Entry]) -> String {
    let mut rows = vec![["ID", "NAME", "STATE", "AGE", "PORTS", "COMMAND"].map(str::to_owned)];
    rows.extend(entries.iter().map(row));
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(entry: &Entry) -> [String; 6] {
    let about = &entry.about;
    let state = match &entry.condition {
        Condition::Ended(ending) => format!("ended ({})", ending.exit),
        other => other.word().to_owned(),
    };
    let ports: Vec<_> = about.published.iter().map(|(host, inside)| format!("{host}:{inside}")).collect();
    let words: Vec<_> = about.command.iter().map(|word| word.as_os_str().to_string_lossy()).collect();
    let mut command = one_line(&words.join(" "));
    if command.chars().count() > MAX_COMMAND {
        command = command.chars().take(MAX_COMMAND - 1).chain(['…']).collect();
    }
    [
        about.id.to_string(),
        about.name.as_ref().map(ToString::to_string).unwrap_or_default(),
        state,
        age(now_ms().saturating_sub(about.created_ms)),
        ports.join(","),
        command,
    ]
}

/// Renders an age in the largest unit of which there is at least one.
fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_changes_outside_names_the_first_and_counts_the_rest() {
        assert_eq!(outside_line(&Outside::default(), "dev"), None);
        let found = Outside { named: vec!["src/a".into()], count: 1 };
        let line = outside_line(&found, "dev").unwrap();
        assert!(line.starts_with("dev: replaced or made outside since it started: src/a. "), "{line}");
        let more = outside_line(&Outside { count: 3, ..found }, "dev").unwrap();
        assert!(more.contains(": src/a and 2 more. "), "{more}");
    }
}
