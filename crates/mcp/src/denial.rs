//! Says what was denied to a command, by which rule, and what would allow it. Pure: all of it comes from the report of the run.

use crate::names;
use serde_json::{Value, json};

/// Reads the denials of a report of `nexus run --json`, or of the document about a run that was refused.
pub fn of(report: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    found.extend(of_error(&report["error"]));
    found.extend(of_reason(report["reason"].as_str().unwrap_or_default()));
    for denied in report["egress"]["denied"].as_array().into_iter().flatten() {
        let place = format!("{}:{}", text(&denied["host"]), denied["port"]);
        let remedy = match text(&denied["allow_with"]) {
            "" => "No rule of the command line allows it.".to_owned(),
            allow => format!("The person who starts the server may allow it: nexus mcp {allow}"),
        };
        found.push(one(
            text(&denied["code"]),
            &format!("The connection to {place} was denied."),
            text(&denied["explanation"]),
            &remedy,
        ));
    }
    for hint in report["hints"].as_array().into_iter().flatten() {
        let (code, message) = (text(&hint["code"]), text(&hint["message"]));
        found.push(one(code, message, rule_of(code), &format!("{message} Flags go to nexus mcp.")));
    }
    if let Some(parked) = report["changes"]["parked"].as_array().filter(|parked| !parked.is_empty()) {
        let paths: Vec<String> = parked.iter().take(20).map(|change| names::text(&change["path"])).collect();
        let why = parked.iter().find_map(|change| change["protected"].as_str());
        let run = text(&report["run_id"]);
        found.push(one(
            "changes_wait",
            &format!("{} changes wait and are not in the workspace: {}", parked.len(), paths.join(", ")),
            why.unwrap_or("changes: review"),
            &format!("A person looks at them and decides: nexus changes show --run {run}; nexus changes accept --run {run} PATH"),
        ));
    }
    found
}

fn one(code: &str, cause: &str, rule: &str, remedy: &str) -> Value {
    json!({ "code": code, "cause": cause, "rule": rule, "remedy": remedy })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn of_error(error: &Value) -> Option<Value> {
    let (code, message, hint) = (text(&error["code"]), text(&error["message"]), text(&error["hint"]));
    let remedy = match (hint, code) {
        ("", "not_started") => "Name a program of the system or of the workspace; nexus mcp --ro PATH shows others.",
        ("", _) => "The same call will be refused again; ask the person who started the server.",
        (hint, _) => hint,
    };
    (!message.is_empty()).then(|| one(code, message, code, remedy))
}

/// Returns the denial of a limit.
fn of_reason(reason: &str) -> Option<Value> {
    let (cause, rule, remedy) = match reason {
        "timeout" => (
            "The time limit ended the command.",
            "--timeout",
            "Ask for more time with timeout_ms, or start it with start_process.",
        ),
        "oom" => (
            "The memory limit killed the command.",
            "--memory",
            "Use less memory, or ask the person who starts the server for more: nexus mcp --memory SIZE",
        ),
        "disk_quota" => (
            "The command used more disk than it may, and nothing was committed.",
            "--disk",
            "Write less, or ask the person who starts the server for more: nexus mcp --disk SIZE",
        ),
        "guest_lost" => ("The sandbox was lost, and nothing was committed.", "guest_lost", "Run it again."),
        "protection_lost" => {
            ("A protected file was replaced outside while the command ran.", "protection_lost", "Run it again.")
        }
        _ => return None,
    };
    Some(one(reason, cause, rule, remedy))
}

/// Returns the rule behind a piece of advice of a run.
fn rule_of(code: &str) -> &str {
    match code {
        "no_network" => "no network, unless a rule allows it",
        "not_found" | "not_shown" | "another_program" => "only the system and named paths are shown",
        "pids" => "--pids",
        "read_only" => "the system and what is outside the workspace are read-only",
        "hidden" => "--hide",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_denial_names_cause_rule_and_remedy() {
        let report = json!({
            "run_id": "ID", "reason": "timeout",
            "error": { "code": "not_started", "message": "x: no such program", "hint": "" },
            "egress": { "denied": [{ "host": "example.com", "port": 443, "code": "not_allowed",
                "allow_with": "--allow example.com", "explanation": "no rule allows it", "count": 2 }] },
            "hints": [{ "code": "no_network", "message": "the command asked for example.com. --allow example.com allows that host." }],
            "changes": { "parked": [{ "path": { "text": ".git/hooks/x" }, "protected": "a git hook" }] },
        });
        let found = of(&report);
        let codes: Vec<&str> = found.iter().map(|one| text(&one["code"])).collect();
        assert_eq!(codes, ["not_started", "timeout", "not_allowed", "no_network", "changes_wait"]);
        for one in &found {
            for part in ["cause", "rule", "remedy"] {
                assert!(!text(&one[part]).is_empty(), "{part} of {one}");
            }
        }
        assert!(text(&found[2]["remedy"]).ends_with("nexus mcp --allow example.com"));
        assert!(text(&found[4]["remedy"]).contains("nexus changes accept --run ID"));
    }

    #[test]
    fn a_run_to_which_nothing_was_denied_has_none() {
        assert!(of(&json!({ "exit_code": 1, "reason": "exit", "egress": { "denied": [] }, "hints": [] })).is_empty());
        assert!(of(&Value::Null).is_empty());
    }
}
