//! `nexus changes` for live runs.

use super::differences::{diff, word};
use super::opened::{find, meant};
use super::{failed, undo};
use crate::failure::{Failure, one_line};
use nexus_changes::args::{DiffArgs, UndoArgs};
use nexus_changes::diff::{DEFAULT_MAX, for_reader};
use nexus_changes::live::{LiveRow, LiveRuns};
use nexus_changes::paths;
use nexus_changes::run_name::RunName;
use nexus_facility::checkpoints::{Checkpoints, LiveRun, Present};
use nexus_facility::snapshots::Change;
use nexus_layer::review::diff::RenderOptions;
use nexus_model::ByteText;
use serde_json::json;

/// The live runs whose states are kept in the state directory.
pub struct OfCheckpoints;

impl LiveRuns for OfCheckpoints {
    fn list(&self) -> Result<Vec<LiveRow>, Failure> {
        let places = crate::host::ready_state_dir()?;
        let Some(checkpoints) = Checkpoints::open(&places.state).map_err(|error| failed(&error))? else {
            return Ok(Vec::new());
        };
        let (all, damaged) = checkpoints.runs().map_err(|error| failed(&error))?;
        for error in damaged {
            crate::notices::tell(&one_line(&error.to_string()));
        }
        let row = |one: LiveRun| LiveRow {
            run: one.run.to_string(),
            command: words(&one.command),
            checkpoint: one.checkpoint.tree,
            workspace: one.workspace,
        };
        Ok(all.into_iter().map(row).collect())
    }

    fn show(&self, run: Option<&RunName>, json: bool) -> Result<Option<String>, Failure> {
        let Some(mut opened) = meant(run, true)? else { return Ok(None) };
        let present = opened.present()?;
        let record = &opened.record;
        if json {
            let rows: Vec<_> = present.changes.iter().map(|change| row(change, &present)).collect();
            let document = json!({
                "run_id": record.run,
                "command": words(&record.command),
                "live": true,
                "checkpoint": record.checkpoint,
                "end": record.end,
                "kept": record.kept,
                "changes": rows,
            });
            return Ok(Some(format!("{document}\n")));
        }
        let mut text = one_line(&format!(
            "live run {} of {}, against the state before it ({})",
            record.run,
            words(&record.command).as_path().display(),
            record.checkpoint.short()
        )) + "\n";
        for change in &present.changes {
            let path = if change.path.is_empty() { ".".into() } else { ByteText(change.path.clone()) };
            let since = if present.since.contains(&change.path) { "  [changed since the run]" } else { "" };
            let slash = if change.is_directory && !change.path.is_empty() { "/" } else { "" };
            let line = format!("{:<10} {}{slash}{since}", word(change.kind), path.as_path().display());
            text.push_str(&one_line(&line));
            text.push('\n');
        }
        if present.changes.is_empty() {
            text.push_str("The workspace is as it was before the run.\n");
        }
        Ok(Some(text))
    }

    fn diff(&self, args: &DiffArgs) -> Result<Option<Vec<u8>>, Failure> {
        let Some(mut opened) = meant(args.run.as_ref(), true)? else { return Ok(None) };
        let only = paths::read(&args.paths, opened.record.workspace.as_path())?;
        let mut present = opened.present()?;
        let mut changes = present.changes.clone();
        if let Some(only) = &only {
            changes.retain(|change| only.iter().any(|one| is_beneath(&change.path, &one.0)));
        }
        let found = diff(&mut present, &changes)?;
        if args.json {
            let document = json!({"run_id": opened.record.run, "diff": found});
            return Ok(Some(format!("{document}\n").into_bytes()));
        }
        let options = RenderOptions { max_bytes: args.max_bytes.unwrap_or(DEFAULT_MAX), ..RenderOptions::default() };
        let rendered = found.render(&options);
        if rendered.truncated {
            eprintln!("nexus: the diff was cut and does not apply; --max-bytes makes room for more");
        }
        Ok(Some(for_reader(rendered.bytes)))
    }

    fn undo(&self, args: &UndoArgs) -> Result<(String, bool), Failure> {
        let Some(opened) = meant(args.run.as_ref(), false)? else {
            let message = "no live run of this directory is kept";
            let hint = "nexus changes list shows all; changes of other runs are accepted or rejected.";
            return Err(Failure::refused("no_changes", message, hint));
        };
        undo::undo(opened, args)
    }

    fn forget(&self, run: &RunName) -> Result<String, Failure> {
        let Some((checkpoints, record)) = find(&crate::host::ready_state_dir()?, Some(run), false)? else {
            return Err(Failure::refused(
                "no_changes",
                "no live run of this name is kept",
                "nexus changes list shows all.",
            ));
        };
        let unfinished = checkpoints.unfinished(&record.directory).map_err(|error| failed(&error))?;
        if unfinished.is_some_and(|undo| undo.run == record.run) {
            let message = format!("an undo of the live run {} was cut off", record.run);
            return Err(Failure::refused(
                "undo_unfinished",
                message,
                "nexus changes undo goes on with it, and nexus changes undo --abandon gives it up.",
            ));
        }
        checkpoints.forget(record.run).map_err(|error| failed(&error))?;
        let cleaned = checkpoints.clean(&mut |_, _| {}).map_err(|error| failed(&error))?;
        let freed = cleaned.bytes_before.saturating_sub(cleaned.bytes_after);
        Ok(format!("The states of the run {} are removed ({freed} bytes).\n", record.run))
    }
}

/// Returns the command as one text.
pub fn words(command: &[ByteText]) -> ByteText {
    ByteText(command.iter().map(|word| word.0.as_slice()).collect::<Vec<_>>().join(&b' '))
}

fn is_beneath(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn row(change: &Change, present: &Present) -> serde_json::Value {
    json!({
        "path": ByteText(change.path.clone()),
        "kind": word(change.kind),
        "directory": change.is_directory,
        "old_size": change.old_size,
        "new_size": change.new_size,
        "changed_since": present.since.contains(&change.path),
    })
}
