//! `nexus changes`: layers that wait for a decision.
//!
//! ```text
//!  list ─▶ which runs wait        show, diff ─▶ what is in one
//!  undo [PATHS] ─▶ the way back of a run that wrote straight into the workspace
//!  accept [PATHS | --patch] ─▶ into the workspace, journaled
//!  reject [PATHS] ─▶ never offered again, or the whole layer gone
//!  recover ─▶ finishes commits that were interrupted
//! ```
//! Only accept, reject, undo and recover change a workspace. Without `--run` they decide about the only run that waits for
//! the directory that the caller stands in.

#![forbid(unsafe_code)]

mod accept;
mod accepted_text;
mod answer;
pub mod args;
mod back;
mod choose;
pub mod diff;
pub mod live;
mod patch;
pub mod paths;
mod recover;
mod reject;
pub mod run_name;
mod show;

use args::{ChangesAction, ChangesArgs};
use failure::{Failure, one_line};
use live::LiveRuns;
use nexus_caller::{failure, failures, host, notices, recovery, signals, terminal, utc};
use nexus_model::ByteText;
use nexus_runner::change_text;
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::unsaid::kept_files;
use nexus_runner::review::waiting::{self, State};
use nexus_runner::state::directory::StateDir;
use notices::print;
use std::path::Path;
use terminal::out;

/// Runs it and returns the exit code. `live` has the runs that wrote straight into their workspace.
pub fn command(args: &ChangesArgs, live: &dyn LiveRuns) -> u8 {
    let mut code = 0;
    let result = match &args.action {
        ChangesAction::List { json } => list(*json, live).map(String::into_bytes),
        ChangesAction::Show { run, json } => {
            let shown = live.show(run.as_ref(), *json).transpose();
            let shown =
                shown.unwrap_or_else(|| run_name::resolve(run.as_ref()).and_then(|run| show::command(run, *json)));
            shown.map(String::into_bytes)
        }
        ChangesAction::Diff(args) => live.diff(args).transpose().unwrap_or_else(|| diff::command(args)),
        ChangesAction::Undo(args) => live.undo(args).map(|(text, is_whole)| {
            code = u8::from(!is_whole);
            text.into_bytes()
        }),
        ChangesAction::Forget { run } => live.forget(run).map(String::into_bytes),
        ChangesAction::Accept(args) => accept::command(args).map(String::into_bytes),
        ChangesAction::Reject { run, set_aside, paths } => run_name::resolve(run.as_ref())
            .and_then(|run| reject::command(run, *set_aside, paths))
            .map(String::into_bytes),
        ChangesAction::Recover { run } => {
            run_name::resolve(run.as_ref()).and_then(recover::command).map(String::into_bytes)
        }
    };
    match result {
        Ok(text) => match out::write_unless_closed(&mut std::io::stdout(), &text) {
            Ok(()) => code,
            Err(error) => failures::print_failure(&failures::not_written("the answer", &error), false),
        },
        Err(failure) => failures::print_failure(&failure, false),
    }
}

/// Clears up after killed commands, and returns the state directory and the commits that were interrupted.
fn places() -> Result<(StateDir, Vec<Interrupted>), Failure> {
    let places = crate::host::ready_state_dir()?;
    let interrupted = crate::recovery::inspect(&places)?;
    Ok((places, interrupted))
}

fn list(json: bool, live: &dyn LiveRuns) -> Result<String, Failure> {
    let (places, interrupted) = places()?;
    let all = waiting::all(&places, &interrupted, &print)?;
    let others = live.list()?;
    if json {
        let of_live = others.iter().map(|one| {
            serde_json::json!({
                "run_id": one.run,
                "workspace": one.workspace,
                "command": one.command,
                "state": "live",
                "checkpoint": one.checkpoint,
            })
        });
        let rows: Vec<_> = all
            .iter()
            .map(|one| {
                let workspace = ByteText::from(one.workspace.as_path());
                serde_json::json!({
                    "run_id": one.run,
                    "workspace": workspace,
                    "command": one.command,
                    "state": one.state.word(),
                    "cut_short": one.note.cut_short,
                })
            })
            .chain(of_live)
            .collect();
        return Ok(format!("{}\n", serde_json::Value::Array(rows)));
    }
    let kept = kept_files(&places)
        .map_err(|error| Failure::refused("state_dir", format!("{}: {error}", places.state.display()), ""))?;
    let kept: String = kept.iter().map(|path| kept_line(path) + "\n").collect();
    if all.is_empty() && others.is_empty() {
        return Ok("No changes wait for a decision.\n".to_owned() + &kept);
    }
    let rows = all.iter().map(|one| {
        let state = match one.state {
            State::Waiting if one.note.cut_short.is_some() => "  [incomplete]",
            State::Waiting => "",
            State::Interrupted => "  [commit interrupted]",
            State::Going => "  [being thrown away]",
            State::Unparked => "  [not parked: no room]",
            State::Busy => "  [another command is at work on it]",
        };
        one_line(&format!("{}  {}  {}{state}", one.run, one.workspace.display(), one.command.as_os_str().display()))
    });
    let of_live = others.iter().map(|one| {
        let (workspace, command) = (one.workspace.as_path(), one.command.as_path());
        one_line(&format!("{}  {}  {}  [live: nexus changes undo]", one.run, workspace.display(), command.display()))
    });
    Ok(rows.chain(of_live).collect::<Vec<_>>().join("\n") + "\n" + &kept)
}

fn kept_line(path: &Path) -> String {
    let path = path.display();
    one_line(&format!("Files that an earlier command kept are in {path}. Remove them when they are no longer needed."))
}
