//! `nexus changes`: layers that wait for a decision.
//!
//! ```text
//!  list ─▶ which runs wait        show, diff ─▶ what is in one
//!  accept [PATHS | --patch] ─▶ into the workspace, journaled     reject [PATHS] ─▶ never offered again, or the whole layer gone
//! ```
//! Without `--run` it is the latest run of the workspace that the caller stands in.

mod accept;
mod diff;
mod patch;
mod paths;
mod reject;
mod rejected;
mod show;

use crate::args::{ChangesAction, ChangesArgs};
use crate::failure::{Failure, one_line};
use crate::places::Places;
use crate::run;
use crate::run::{Content, FolderId, Record};
use nexus_driver::Handle;
use nexus_facility::{Layer, OpenLayerError, Rules, Workspace};
use nexus_model::{ByteText, RunId};
use std::path::PathBuf;

pub use diff::of_layer as diff_of_layer;
pub use show::line;

/// Runs it and returns the exit code.
pub fn command(args: &ChangesArgs) -> u8 {
    let result = match &args.action {
        ChangesAction::List { json } => list(*json).map(String::into_bytes),
        ChangesAction::Show { run, json } => show::command(*run, *json).map(String::into_bytes),
        ChangesAction::Diff(args) => diff::command(args),
        ChangesAction::Accept(args) => accept::command(args).map(String::into_bytes),
        ChangesAction::Reject { run, paths } => reject::command(*run, paths).map(String::into_bytes),
    };
    match result {
        Ok(text) => match run::write_unless_closed(&mut std::io::stdout(), &text) {
            Ok(()) => 0,
            Err(error) => run::print_failure(&run::not_written("the answer", &error), false),
        },
        Err(failure) => run::print_failure(&failure, false),
    }
}

/// A run whose layer waits.
struct Waiting {
    run: String,
    workspace: PathBuf,
    folder: FolderId,
    command: ByteText,
}

fn places() -> Result<Places, Failure> {
    let places = Places::find()?.ensure()?;
    run::recover::all(&places, &run::driver(), None)?;
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
        let words: Vec<&[u8]> = note.argv.iter().map(|word| word.0.as_slice()).collect();
        found.push(Waiting {
            run,
            workspace: note.workspace.as_path().to_owned(),
            folder: note.folder,
            command: words.join(&b" "[..]).into(),
        });
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
            .map(|one| {
                let workspace = ByteText::from(one.workspace.as_path());
                serde_json::json!({"run_id": one.run, "workspace": workspace, "command": one.command})
            })
            .collect();
        return Ok(format!("{}\n", serde_json::Value::Array(rows)));
    }
    if all.is_empty() {
        return Ok("No changes wait for a decision.\n".to_owned());
    }
    let rows = all.iter().map(|one| {
        one_line(&format!("{}  {}  {}", one.run, one.workspace.display(), one.command.as_os_str().display()))
    });
    Ok(rows.collect::<Vec<_>>().join("\n") + "\n")
}

/// One waiting run, opened for reading or deciding. Nobody else works with it meanwhile.
struct Pending {
    places: Places,
    one: Waiting,
    layer: Layer,
    workspace: Workspace,
    /// What was not rejected, and nothing protected.
    rules: Rules,
}

impl Pending {
    /// The run that was named, or the latest one of the workspace that the caller stands in.
    fn open(run: Option<RunId>) -> Result<Self, Failure> {
        let places = places()?;
        let one = choose(&places, run)?;
        let refused = |error: &dyn std::error::Error| Failure::refused("layer", run::chain(error), "");
        in_place(&one)?;
        let layer = Layer::open(&places.layers, &one.run).map_err(|error| match error {
            OpenLayerError::Unfinished { .. } => finish_interrupted(&places, &one),
            OpenLayerError::NotParked { .. } => {
                let message = "the changes of this run could be neither committed nor parked";
                let upper = places.layers.join(&one.run).join("upper");
                let throw = format!("nexus changes reject --run {} throws them away", one.run);
                Failure::refused("layer", message, format!("they are in {}; {throw}", upper.display()))
            }
            error => refused(&error),
        })?;
        let workspace = Workspace::open(&one.workspace).map_err(|error| refused(&error))?;
        let rules = Rules { except: rejected::read(layer.root())?, ..Rules::default() };
        Ok(Self { places, one, layer, workspace, rules })
    }

    /// What waits, without what was rejected.
    fn changes(&self) -> Result<Vec<nexus_facility::Change>, Failure> {
        let set = self
            .layer
            .changes(&self.workspace, &self.rules)
            .map_err(|error| Failure::refused("layer", run::chain(&error), ""))?;
        Ok(set.changes.into_iter().filter(|change| self.rules.is_chosen(&change.path.0)).collect())
    }

    /// Names this run as being worked on, so that whoever comes after a crash finishes the commit.
    fn record(&self) -> Result<Record, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            let message = format!("the accept cannot be recorded in {}: {error}", self.places.runs.display());
            Failure::refused("state_dir", message, "make room there")
        };
        let run: RunId = self.one.run.parse().map_err(|error| failed(&error))?;
        let content = Content {
            handle: Handle::of_nothing(run),
            workspace: self.one.workspace.clone().into(),
            folder: self.one.folder,
            layered: true,
        };
        Record::create(&self.places.runs, &content).map_err(|error| failed(&error))
    }

    /// How many changes wait when something was decided; a layer in which none does is removed.
    fn finish(self) -> Result<usize, Failure> {
        if !self.layer.root().exists() {
            return Ok(0);
        }
        let left = self.changes()?.len();
        if left == 0 {
            self.layer.discard().map_err(|error| Failure::refused("discard", run::chain(&error), ""))?;
        }
        Ok(left)
    }
}

/// The changes belong to the folder that the run worked on, and to no other that took its name.
fn in_place(one: &Waiting) -> Result<(), Failure> {
    let here = one.folder.is_at(&one.workspace);
    let why = match here {
        Ok(true) => return Ok(()),
        Ok(false) => "it was moved or replaced since the run".to_owned(),
        Err(error) => error.to_string(),
    };
    let message =
        format!("the folder {} of the run {} cannot take its changes: {why}", one.workspace.display(), one.run);
    let hint = format!("put the folder back, or throw the changes away: nexus changes reject --run {}", one.run);
    Err(Failure::refused("moved", message, hint))
}

/// A commit that was decided before a crash, whose folder is back now.
fn finish_interrupted(places: &Places, one: &Waiting) -> Failure {
    let finish = || -> Result<(), String> {
        let _alone = run::lock(places, one.folder).map_err(|error| error.to_string())?;
        let workspace = Workspace::open(&one.workspace).map_err(|error| run::chain(&error))?;
        nexus_facility::recover(&places.layers, &one.run, &workspace).map(drop).map_err(|error| run::chain(&error))
    };
    match finish() {
        Ok(()) => {
            let message = format!("an interrupted commit of the run {} was finished just now", one.run);
            Failure::refused("finished", message, "nexus changes list shows what still waits")
        }
        Err(why) => Failure::refused("recover", format!("an interrupted commit cannot be finished: {why}"), ""),
    }
}

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
