//! `nexus changes diff`: one diff that `git apply` accepts.

use super::choose::to_look_at;
use super::paths;
use super::run_name::resolve;
use crate::args::DiffArgs;
use crate::failure::Failure;
use nexus_layer::review::diff::{DiffOptions, RenderOptions};
use nexus_layer::{Layer, Rules, Workspace};
use nexus_runner::review::paths::must_match;
use nexus_terminal::visible::escaped;
use std::io::IsTerminal;

/// Renders the diff of a run.
pub fn command(args: &DiffArgs) -> Result<Vec<u8>, Failure> {
    let pending = to_look_at(resolve(args.run.as_ref())?)?;
    let only = paths::read(&args.paths, &pending.one.workspace)?;
    if let Some(only) = &only {
        must_match(only, &pending.changes()?)?;
    }
    let rules = Rules { only, ..pending.rules.clone() };
    let diff = pending
        .layer
        .diff(&pending.workspace, &rules, &DiffOptions::default())
        .map_err(|error| Failure::refused("diff", nexus_runner::causes::chain(&error), ""))?;
    if args.json {
        let document = serde_json::json!({"run_id": pending.one.run, "diff": diff});
        return Ok(format!("{document}\n").into_bytes());
    }
    let options = RenderOptions { max_bytes: args.max_bytes.unwrap_or(DEFAULT_MAX), ..RenderOptions::default() };
    let rendered = diff.render(&options);
    if rendered.truncated {
        eprintln!("nexus: the diff was cut and does not apply; --max-bytes makes room for more");
    }
    Ok(for_reader(rendered.bytes))
}

/// Default limit of a diff, in bytes; the same as for directives.
pub const DEFAULT_MAX: usize = 1 << 20;

/// Makes control characters visible if stdout is a terminal, which must not act on what a command wrote into a file
/// (CVE-2021-25743); a pipe gets the bytes.
pub fn for_reader(bytes: Vec<u8>) -> Vec<u8> {
    if std::io::stdout().is_terminal() { visible(&bytes) } else { bytes }
}

/// Returns the text with every control character in a visible form, except line ends and tabs.
pub fn visible(bytes: &[u8]) -> Vec<u8> {
    escaped(&String::from_utf8_lossy(bytes), &['\n', '\t']).into_bytes()
}

/// Renders the diff of a layer that has just been settled, for the user.
pub fn of_layer(layer: &Layer, workspace: &Workspace, rules: &Rules) -> Result<Vec<u8>, String> {
    let diff =
        layer.diff(workspace, rules, &DiffOptions::default()).map_err(|error| nexus_runner::causes::chain(&error))?;
    Ok(visible(&diff.render(&RenderOptions::default()).bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_escape_sequences_and_does_not_obey_them() {
        assert_eq!(visible("name \u{202e}gpj\n".as_bytes()), b"name \\u{202e}gpj\n");
        assert_eq!(visible(b"a\x1b[2J\tb\n\xff"), "a\\u{1b}[2J\tb\n\u{fffd}".as_bytes());
    }
}
