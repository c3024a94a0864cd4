//! `nexus changes`: layers that wait for a decision.

use crate::args::{ChangesAction, ChangesArgs};
use crate::failure::{Failure, one_line};
use crate::places::Places;
use crate::run;
use nexus_facility::layer::OpenLayerError;
use nexus_facility::{Change, ChangeKind, Layer, Rules, Workspace};
use nexus_model::RunId;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Runs it and returns the exit code.
pub fn command(args: &ChangesArgs) -> u8 {
    let result = match &args.action {
        ChangesAction::List { json } => list(*json),
        ChangesAction::Show { run, json } => show(*run, *json),
        ChangesAction::Reject { run } => reject(*run),
    };
    match result {
        Ok(text) => {
            match run::write_unless_closed(&mut std::io::stdout(), text.as_bytes()) {
                Ok(()) => 0,
                Err(error) => run::print_failure(&run::not_written("the answer", &error), false),
            }
        }
        Err(failure) => run::print_failure(&failure, false),
    }
}

struct Waiting {
    run: String,
    workspace: PathBuf,
    command: String,
}

fn places() -> Result<Places, Failure> {
    let places = Places::find()?.ensure()?;
    run::recover::all(&places, &run::driver())?;
    Ok(places)
}

fn waiting(places: &Places) -> Result<Vec<Waiting>, Failure> {
    let failed =
        |error: std::io::Error| Failure::refused("state_dir", format!("{}: {error}", places.layers.display()), "");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&places.layers).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(note) = run::read_note(&entry.path()) else { continue };
        let Some(run) = entry.file_name().to_str().map(str::to_owned) else { continue };
        // A run that still goes has a record (what had none alive was cleared just now) and decides by itself. One that
        // ended between the two looks has taken its layer with it, or has left it to wait.
        let goes_on = places.runs.join(&run).try_exists().map_err(failed)?;
        if goes_on || !entry.path().try_exists().map_err(failed)? {
            continue;
        }
        let words: Vec<String> = note.argv.iter().map(|word| word.as_os_str().display().to_string()).collect();
        found.push(Waiting { run, workspace: note.workspace.as_path().to_owned(), command: words.join(" ") });
    }
    // Ids are ordered by time.
    found.sort_by(|a, b| b.run.cmp(&a.run));
    Ok(found)
}

fn list(json: bool) -> Result<String, Failure> {
    let all = waiting(&places()?)?;
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|one| serde_json::json!({"run_id": one.run, "workspace": one.workspace.to_string_lossy(), "command": one.command}))
            .collect();
        return Ok(format!("{}\n", serde_json::Value::Array(rows)));
    }
    if all.is_empty() {
        return Ok("No changes wait for a decision.\n".to_owned());
    }
    let rows = all.iter().map(|one| one_line(&format!("{}  {}  {}", one.run, one.workspace.display(), one.command)));
    Ok(rows.collect::<Vec<_>>().join("\n") + "\n")
}

/// The run that was named, or the latest one of the workspace that the caller stands in.
fn choose(places: &Places, run: Option<RunId>) -> Result<Waiting, Failure> {
    let all = waiting(places)?;
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    let found = match run {
        Some(run) => all.into_iter().find(|one| one.run == run.to_string()),
        None => all.into_iter().find(|one| here.starts_with(&one.workspace)),
    };
    found.ok_or_else(|| {
        let message = match run {
            Some(run) => format!("no changes of the run {run} wait for a decision"),
            None => format!("no changes of {} wait for a decision", here.display()),
        };
        Failure::refused("no_changes", message, "nexus changes list shows all that wait")
    })
}

fn open(places: &Places, one: &Waiting) -> Result<Layer, Failure> {
    Layer::open(&places.layers, &one.run).map_err(|error| match error {
        OpenLayerError::NotParked { .. } => {
            let message = "the changes of this run could be neither committed nor parked";
            let upper = places.layers.join(&one.run).join("upper");
            let hint = format!("they are in {}; nexus changes reject --run {} throws them away", upper.display(), one.run);
            Failure::refused("layer", message, hint)
        }
        error => Failure::refused("layer", run::chain(&error), ""),
    })
}

fn show(run: Option<RunId>, json: bool) -> Result<String, Failure> {
    let places = places()?;
    let one = choose(&places, run)?;
    let layer = open(&places, &one)?;
    let workspace =
        Workspace::open(&one.workspace).map_err(|error| Failure::refused("workspace", run::chain(&error), ""))?;
    let changes = layer
        .changes(&workspace, &Rules::default())
        .map_err(|error| Failure::refused("layer", run::chain(&error), ""))?;
    if json {
        let document = serde_json::json!({"run_id": one.run, "command": one.command, "changes": changes.changes});
        return Ok(format!("{document}\n"));
    }
    let mut text = one_line(&format!("run {} of {}", one.run, one.command)) + "\n";
    for change in &changes.changes {
        text.push_str(&one_line(&line(change)));
        text.push('\n');
    }
    Ok(text)
}

fn reject(run: Option<RunId>) -> Result<String, Failure> {
    let places = places()?;
    let one = choose(&places, run)?;
    let gone = match Layer::open(&places.layers, &one.run) {
        Ok(layer) => layer.discard().map_err(|error| run::chain(&error)),
        // Neither committed nor parked, because it could not be read: to throw it away is the same as after a crash.
        Err(OpenLayerError::NotParked { .. }) => Workspace::open(&places.layers)
            .map_err(|error| run::chain(&error))
            .and_then(|any| nexus_facility::recover(&places.layers, &one.run, &any).map_err(|error| run::chain(&error)))
            .map(drop),
        Err(error) => Err(run::chain(&error)),
    };
    gone.map_err(|why| Failure::refused("discard", why, ""))?;
    Ok(format!("The changes of the run {} are gone.\n", one.run))
}

/// One change in one line: what, where, how large, and what to look at.
pub fn line(change: &Change) -> String {
    let mark = match change.kind {
        ChangeKind::Added => "A",
        ChangeKind::Modified => "M",
        ChangeKind::Deleted => "D",
        ChangeKind::Mode => "P",
        ChangeKind::Type { .. } => "T",
        ChangeKind::Renamed { .. } => "R",
    };
    let mut text = format!("{mark} {}", change.path.as_path().display());
    let mut add = |part: std::fmt::Arguments<'_>| {
        // Writing into a String cannot fail.
        text.write_fmt(part).unwrap_or_default();
    };
    if let ChangeKind::Renamed { from } = &change.kind {
        add(format_args!(" (was {})", from.as_path().display()));
    }
    if change.size > 0 {
        add(format_args!("  {}", nexus_model::units::format_size(change.size)));
    }
    if let Some(why) = &change.protected {
        add(format_args!("  [parked: {why}]"));
    }
    if change.setuid {
        add(format_args!("  [setuid]"));
    }
    if change.new_executable {
        add(format_args!("  [executable]"));
    }
    if change.skipped {
        add(format_args!("  [left out]"));
    }
    text
}
