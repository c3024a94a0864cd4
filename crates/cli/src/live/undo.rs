//! `nexus changes undo`.

use super::opened::Opened;
use super::run::most;
use super::{failed, short};
use crate::failure::{Failure, one_line};
use nexus_changes::args::UndoArgs;
use nexus_changes::paths;
use nexus_facility::checkpoints::{UndoRequest, Undone};
use nexus_model::{ByteText, RunId};
use nexus_runner::state::{commit_lock, record};
use serde_json::json;

/// Brings a workspace back. Returns the answer, and whether all of it is back.
pub fn undo(opened: Opened, args: &UndoArgs) -> Result<(String, bool), Failure> {
    let Opened { places, checkpoints, record: of, directory, id } = opened;
    let only = paths::read(&args.paths, of.workspace.as_path())?.unwrap_or_default();
    // A run whose nexus was killed is ended first.
    crate::recovery::inspect(&places)?;
    let going = record::inspect(&places.runs, of.run).map_err(|error| unknown(&error.to_string()))?;
    if going.is_some() {
        let message = format!("the live run {} has not ended", of.run);
        return Err(Failure::refused("running", message, "Wait for it, or stop it with nexus stop."));
    }
    let checkpoints = match directory.leases() {
        Some(call) => checkpoints.with_leases(call),
        None => checkpoints,
    };
    let _alone = commit_lock::lock(&places, id).map_err(|error| unknown(&error.to_string()))?;
    if args.abandon {
        let given_up = checkpoints.abandon(&id.name(), directory.fd()).map_err(|error| failed(&error))?;
        return Ok((abandoned(given_up, args.json)?, true));
    }
    let ask = UndoRequest { only, to: args.to.clone(), overwrites: args.overwrite, most: Some(most(args.live_size)) };
    let done = checkpoints.undo(of.run, directory.fd(), &ask, &mut || Ok(())).map_err(|error| failed(&error))?;
    let is_whole = done.applied.left.is_empty() && done.applied.aside.is_empty() && done.lost.is_empty();
    Ok((if args.json { document(&done) } else { text(&done) }, is_whole))
}

/// Returns the answer about an undo that was given up.
fn abandoned(given_up: Option<(RunId, Option<String>)>, json: bool) -> Result<String, Failure> {
    let Some((run, rest)) = given_up else {
        return Err(Failure::refused("no_undo", "no undo of this directory was cut off", "Nothing was changed."));
    };
    if json {
        return Ok(format!("{}\n", json!({ "abandoned": run, "rest": rest })));
    }
    let stays = rest.map(|rest| {
        format!(
            "{rest} stays in the workspace, with what the undo had displaced: remove it when you need none of it.\n"
        )
    });
    Ok(format!(
        "The undo of the run {run} is given up. Everything stays as it left it; nexus changes show --json names the states that are kept.\n{}",
        stays.unwrap_or_default()
    ))
}

fn unknown(why: &str) -> Failure {
    Failure::refused("undo", format!("it cannot be undone now: {why}"), "Nothing was changed.")
}

fn path(bytes: &[u8]) -> ByteText {
    if bytes.is_empty() { ".".into() } else { ByteText(bytes.to_vec()) }
}

fn document(done: &Undone) -> String {
    let left: Vec<_> = done.applied.left.iter().map(|one| json!({"path": path(&one.path), "why": one.why})).collect();
    let aside: Vec<_> =
        done.applied.aside.iter().map(|one| json!({"path": path(&one.path), "beside": path(&one.beside)})).collect();
    let document = json!({
        "went_on": done.went_on,
        "kept": done.kept,
        "done": done.applied.done,
        "left": left,
        "beside": aside,
        "theirs": done.theirs,
        "lost": done.lost,
    });
    format!("{document}\n")
}

fn text(done: &Undone) -> String {
    let mut lines = Vec::new();
    if let Some(run) = done.went_on {
        lines.push(format!(
            "An undo of the run {run} was cut off, and is finished now. For another one call this again."
        ));
    }
    match &done.kept {
        Some(kept) => {
            lines.push(match done.applied.done {
                1 => "One entry is as it was.".to_owned(),
                count => format!("{count} entries are as they were."),
            });
            let short = kept.short();
            lines.push(format!(
                "The state before this undo is kept as {short}: nexus changes undo --to {short} brings it back."
            ));
        }
        None => lines.push("Nothing was to be undone.".to_owned()),
    }
    for left in &done.applied.left {
        let path = path(&left.path).as_path().display().to_string();
        lines.push(format!("{} is left as it is: {}", short(&path), left.why));
    }
    for aside in &done.applied.aside {
        let (path, beside) = (path(&aside.path), path(&aside.beside));
        let (path, beside) = (path.as_path().display(), beside.as_path().display());
        lines.push(if aside.path == aside.beside {
            format!("{path} was written during the undo, and stays")
        } else {
            format!("{path} was written during the undo, or is open for writing: that version is now {beside}")
        });
    }
    for lost in &done.lost {
        lines.push(format!(
            "{} is neither a file, a directory nor a link, and cannot be brought back",
            lost.as_path().display()
        ));
    }
    if done.theirs > 0 {
        lines.push(format!(
            "{} that only others changed since the run stay; --overwrite takes them back too.",
            paths_text(done.theirs)
        ));
    }
    lines.iter().map(|line| one_line(line) + "\n").collect()
}

fn paths_text(count: u64) -> String {
    if count == 1 { "One path".to_owned() } else { format!("{count} paths") }
}
