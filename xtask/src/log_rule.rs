//! `check-log`: an event of `tracing` has a fixed text and the fields of a list, so that no value of a caller reaches a log.
//!
//! ```text
//!  tracing::debug!(run = %run.plan.run_id, code = error.code(), "the run failed")
//!                  └ a field of FIELDS ┘   └ another one ┘      └ a text without {…} ┘
//! ```
//! Values of variables, arguments, content of files, query strings and paths that a command chose have no field. The check
//! reads text and no types: what stands behind a field's name is for the reviewer, and for the test that looks for a secret
//! in the log of a whole run (S-1093).

use std::path::Path;

use crate::failure::Failure;
use crate::rust_text::code_only;
use crate::sources::{self, Source};
use crate::workspace::Workspace;

/// Fields that an event may have. The second column is the form that has to be written before the value: `%` and `?` print a
/// value by its own code, which is left to types that hold nothing of a caller.
const FIELDS: &[(&str, &str)] = &[
    ("code", ""),
    ("errno", ""),
    ("group", ""),
    ("layered", ""),
    ("lingers", ""),
    ("ms", ""),
    ("network", ""),
    ("networks", ""),
    ("pid", ""),
    ("reason", "?"),
    ("request", ""),
    ("run", "%"),
    ("started", ""),
    ("step", ""),
];

/// The macros that report.
const MACROS: &[&str] = &["error", "warn", "info", "debug", "trace"];

/// The file that installs the reporter. It reports nothing of its own.
const REPORTER: &str = "crates/cli/src/diagnostics.rs";

/// Looks through all sources that ship.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let sources = sources::below(&workspace.root, Path::new("crates"))?;
    let (mut events, mut found) = (0, Vec::new());
    for source in sources.iter().filter(|source| source.path != Path::new(REPORTER)) {
        let (count, wrong) = violations(source);
        events += count;
        found.extend(wrong);
    }
    if found.is_empty() {
        println!("check-log: {events} events have only fields of the list");
        return Ok(());
    }
    let advice =
        "leave the value out, or add the field to FIELDS in xtask/src/log_rule.rs if it never holds a caller's value";
    Err(Failure::new(format!("events that may hold values:\n  {}", found.join("\n  ")), advice))
}

/// Counts the events of a source, and says what is wrong with them, one sentence each.
fn violations(source: &Source) -> (usize, Vec<String>) {
    let text: Vec<char> = source.text.chars().collect();
    let code: Vec<char> = code_only(&source.text).chars().collect();
    let (mut events, mut found) = (0, Vec::new());
    let name: Vec<char> = "tracing".chars().collect();
    for at in 0..code.len() {
        if !code[at..].starts_with(&name) || code[..at].last().is_some_and(|letter| is_word(*letter)) {
            continue;
        }
        let line = 1 + code[..at].iter().filter(|letter| **letter == '\n').count();
        let mut wrong = |what: &str| found.push(format!("{}:{line}: {what}", source.path.display()));
        let rest: String = code[at + name.len()..].iter().collect();
        let Some(rest) = rest.strip_prefix("::") else {
            // Another name that begins so is something else.
            if !rest.starts_with(is_word) && !rest.starts_with(';') {
                wrong("it is written in another form than tracing::LEVEL!(…)");
            }
            continue;
        };
        let word: String = rest.chars().take_while(|letter| is_word(*letter)).collect();
        if !MACROS.contains(&word.as_str()) || !rest[word.len()..].starts_with("!(") {
            wrong("it is written in another form than tracing::LEVEL!(…)");
            continue;
        }
        events += 1;
        let start = at + name.len() + 2 + word.len() + 2;
        let end = start + closing(&code[start..]);
        for what in wrong_parts(&code[start..end], &text[start..end]) {
            wrong(&what);
        }
    }
    (events, found)
}

/// Reads the arguments of one event; `text` is the same with its literals.
fn wrong_parts(code: &[char], text: &[char]) -> Vec<String> {
    let mut found = Vec::new();
    if text.contains(&'{') {
        found.push("its text holds a value, or a field is a block".to_owned());
    }
    for part in split(code) {
        let part = part.trim();
        if part.is_empty() {
            // The fixed text, or what stands behind the last comma.
            continue;
        }
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (name.trim(), value.trim());
        match FIELDS.iter().find(|(field, _)| *field == name) {
            None => found.push(format!("{name} is not a field of the list")),
            Some((_, form)) => {
                let written = value.chars().next().filter(|letter| matches!(letter, '%' | '?'));
                if written.map(String::from).unwrap_or_default() != *form {
                    found.push(format!("{name} is written as `{name} = {form}VALUE`"));
                }
            }
        }
    }
    found
}

/// Splits at the commas that stand in no parentheses.
fn split(code: &[char]) -> Vec<String> {
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for letter in code {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(*letter);
        }
    }
    parts
}

/// The place of the parenthesis that closes one that stands before `code`; the end where there is none.
fn closing(code: &[char]) -> usize {
    let mut depth = 1_usize;
    for (at, letter) in code.iter().enumerate() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn of(text: &str) -> (usize, Vec<String>) {
        violations(&Source { path: PathBuf::from("x.rs"), text: text.to_owned() })
    }

    #[test]
    fn an_event_with_fields_of_the_list_passes() {
        let text = "tracing::debug!(run = %run.plan.run_id, code = error.code(), \"it failed\");\n\
                    tracing::info!(pid, ms = since(a, b) as u64, reason = ?end.reason, \"an end, with a comma\",);\n\
                    tracing::warn!(\"only a text\");";
        assert_eq!(of(text), (3, Vec::new()));
    }

    #[test]
    fn an_event_with_a_value_of_the_caller_is_named() {
        for (text, what) in [
            ("tracing::debug!(argv = ?plan.argv, \"x\")", "argv is not a field"),
            ("\n tracing::debug!(?plan, \"x\")", "?plan is not a field"),
            ("tracing::debug!(%path, \"x\")", "%path is not a field"),
            ("tracing::debug!(\"it is {plan}\")", "its text holds a value"),
            ("tracing::debug!(\"it is {}\", text)", "its text holds a value"),
            ("tracing::debug!(code = %error, \"x\")", "code is written as"),
            ("tracing::debug!(run, \"x\")", "run is written as"),
            ("tracing::debug!(error, \"x\")", "error is not a field"),
        ] {
            let (events, found) = of(text);
            assert_eq!(events, 1, "{text}");
            assert!(found.iter().any(|line| line.contains(what)), "{text}: {found:?}");
        }
        assert!(of("\ntracing::debug!(error)").1[0].starts_with("x.rs:2: "));
    }

    #[test]
    fn another_form_of_event_is_named() {
        for text in
            ["use tracing::debug;", "tracing::event!(Level::INFO, x)", "#[tracing::instrument]", "use tracing as t;"]
        {
            assert_eq!(of(text).1.len(), 1, "{text}");
        }
        for text in [
            "mod tracing;",
            "tracing_subscriber::registry()",
            "my_tracing::debug!(x)",
            "// tracing::debug!(x)",
            "\"tracing\"",
        ] {
            assert_eq!(of(text), (0, Vec::new()), "{text}");
        }
    }
}
