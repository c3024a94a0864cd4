//! Shows changes of this server's runs that wait, and decides about them.
//!
//! A decision is a process of its own, `nexus changes`: it holds off the signals of its whole process until the decision is complete.

use crate::names;
use nexus_caller::failure::Failure;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Calls `nexus changes` with these words, and returns what it printed.
fn call(workspace: &Path, words: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new("/proc/self/exe");
    // Paths are read from there on.
    command.arg0("nexus").arg("changes").args(words).current_dir(workspace).stdin(Stdio::null());
    let done = command.output();
    let done =
        done.map_err(|error| Failure::refused("changes", format!("nexus changes could not be started: {error}"), ""))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let text = text.trim().strip_prefix("nexus: ").unwrap_or(text.trim());
    Err(Failure::refused("changes", text, "nexus changes show and nexus changes list tell more to a person."))
}

/// Lists the changes of a run that wait, with plain names.
pub fn show(workspace: &Path, run: &str) -> Result<Value, Failure> {
    let text = call(workspace, &["show", "--run", run, "--json"])?;
    let read = serde_json::from_str::<Value>(&text);
    let mut shown = read.map_err(|error| Failure::refused("changes", format!("nexus changes show: {error}"), ""))?;
    for name in ["changes", "conflicts"] {
        shown[name] = names::plain(&shown[name]).into();
    }
    Ok(shown)
}

/// Returns the difference as git writes it.
pub fn diff(workspace: &Path, run: &str) -> Result<String, Failure> {
    call(workspace, &["diff", "--run", run])
}

/// Accepts changes of a run, but none that is protected: the agent that asks has made them.
pub fn accept(workspace: &Path, run: &str, paths: Option<&[String]>) -> Result<String, Failure> {
    let listed = show(workspace, run)?;
    let chosen = chosen(&listed, paths)?;
    let mut words = vec!["accept", "--run", run, "--"];
    words.extend(chosen.iter().map(String::as_str));
    call(workspace, &words)
}

/// Throws changes of a run away.
pub fn reject(workspace: &Path, run: &str, paths: Option<&[String]>) -> Result<String, Failure> {
    let mut words = vec!["reject", "--run", run, "--"];
    words.extend(paths.into_iter().flatten().map(String::as_str));
    call(workspace, &words)
}

/// Chooses what may be accepted: each path by its whole name. A name that is only nearly that of a listed change could mean a protected
/// one.
fn chosen(listed: &Value, paths: Option<&[String]>) -> Result<Vec<String>, Failure> {
    let changes = listed["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_free = |change: &&Value| change["protected"].is_null();
    let name = |change: &Value| change["path"].as_str().map(str::to_owned);
    let free: Vec<String> = changes.iter().filter(is_free).filter_map(name).collect();
    let Some(paths) = paths else {
        return if free.is_empty() { Err(protected("everything that waits")) } else { Ok(free) };
    };
    for path in paths {
        if !free.contains(path) {
            let is_listed = changes.iter().any(|change| change["path"].as_str() == Some(path));
            return Err(if is_listed { protected(path) } else { not_listed(path) });
        }
    }
    Ok(paths.to_vec())
}

fn protected(what: &str) -> Failure {
    let hint = "A person decides about it: nexus changes show, nexus changes accept.";
    Failure::refused(
        "protected",
        format!("Nothing was accepted: {what} is protected, and an agent may not accept that"),
        hint,
    )
}

fn not_listed(path: &str) -> Failure {
    let message = format!("Nothing was accepted: no change that waits is named {path:?}");
    Failure::refused("no_changes", message, "show_changes lists the names; each has to be given as it is there.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_agent_accepts_by_whole_names_and_nothing_protected() {
        let listed = json!({ "changes": [
            { "path": "a" }, { "path": "d/b" }, { "path": ".git/hooks/x", "protected": "a git hook" }, { "path": "held", "protected": "x" },
        ] });
        let of = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            chosen(&listed, Some(&paths)).map_err(|failure| failure.code)
        };
        assert_eq!(chosen(&listed, None).unwrap(), ["a", "d/b"]);
        assert_eq!(of(&["d/b"]), Ok(vec!["d/b".to_owned()]));
        assert_eq!(of(&[".git/hooks/x"]), Err("protected"));
        assert_eq!(of(&["a", "held"]), Err("protected"));
        for nearly in [".git/hooks/../hooks/x", "./held", "/abs/held", "d", "", "--protected"] {
            assert_eq!(of(&[nearly]), Err("no_changes"), "{nearly}");
        }
        let held = json!({ "changes": [{ "path": "held", "protected": "x" }] });
        assert_eq!(chosen(&held, None).unwrap_err().code, "protected");
    }
}
