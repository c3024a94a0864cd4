//! `nexus changes`: layers that wait for a decision.
//!
//! ```text
//!  list ─▶ which runs wait        show, diff ─▶ what is in one
//!  accept [PATHS | --patch] ─▶ into the workspace, journaled
//!  reject [PATHS] ─▶ never offered again, or the whole layer gone
//!  recover ─▶ finishes commits that were interrupted
//! ```
//! Only accept, reject and recover change a workspace. Without `--run` they decide about the only run that waits for
//! the directory that the caller stands in.

mod accept;
mod diff;
mod patch;
mod paths;
mod recover;
mod reject;
mod rejected;
mod show;
mod take_back;
mod waiting;

use crate::args::{ChangesAction, ChangesArgs};
use crate::failure::{Failure, one_line};
use crate::run;
use nexus_driver::Handle;
use nexus_layer::{Layer, OpenLayerError, Rules, Workspace};
use nexus_model::{ByteText, RunId};
use nexus_runner::plan::protect;
use nexus_runner::recover::finish::finish_others;
use nexus_runner::recover::interrupted::{Direction, Interrupted};
use nexus_runner::recover::sandboxes::refuse_left;
use nexus_runner::recover::unsaid::kept_files;
use nexus_runner::state::commit_lock::{self, CommitLock};
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::note;
use nexus_runner::state::record::{Content, Record};
use std::path::Path;
use waiting::{State, Waiting};

pub use diff::of_layer as diff_of_layer;

/// Runs it and returns the exit code.
pub fn command(args: &ChangesArgs) -> u8 {
    let result = match &args.action {
        ChangesAction::List { json } => list(*json).map(String::into_bytes),
        ChangesAction::Show { run, json } => show::command(*run, *json).map(String::into_bytes),
        ChangesAction::Diff(args) => diff::command(args),
        ChangesAction::Accept(args) => accept::command(args).map(String::into_bytes),
        ChangesAction::Reject { run, set_aside, paths } => {
            reject::command(*run, *set_aside, paths).map(String::into_bytes)
        }
        ChangesAction::Recover { run } => recover::command(*run).map(String::into_bytes),
    };
    match result {
        Ok(text) => match run::write_unless_closed(&mut std::io::stdout(), &text) {
            Ok(()) => 0,
            Err(error) => run::print_failure(&run::not_written("the answer", &error), false),
        },
        Err(failure) => run::print_failure(&failure, false),
    }
}

/// Clears up after killed commands, and returns the state directory and the commits that were interrupted.
fn places() -> Result<(StateDir, Vec<Interrupted>), Failure> {
    let places = crate::host::ready_state_dir()?;
    let interrupted = crate::recovery::look(&places)?;
    Ok((places, interrupted))
}

fn list(json: bool) -> Result<String, Failure> {
    let (places, interrupted) = places()?;
    let all = waiting::all(&places, &interrupted)?;
    if json {
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
            .collect();
        return Ok(format!("{}\n", serde_json::Value::Array(rows)));
    }
    let kept = kept_files(&places)
        .map_err(|error| Failure::refused("state_dir", format!("{}: {error}", places.state.display()), ""))?;
    let kept: String = kept.iter().map(|path| kept_line(path) + "\n").collect();
    if all.is_empty() {
        return Ok("No changes wait for a decision.\n".to_owned() + &kept);
    }
    let rows = all.iter().map(|one| {
        let state = match one.state {
            State::Waiting if one.note.cut_short.is_some() => "  [incomplete]",
            State::Waiting => "",
            State::Interrupted => "  [commit interrupted]",
            State::Going => "  [being thrown away]",
            State::Unparked => "  [not parked: no room]",
        };
        one_line(&format!("{}  {}  {}{state}", one.run, one.workspace.display(), one.command.as_os_str().display()))
    });
    Ok(rows.collect::<Vec<_>>().join("\n") + "\n" + &kept)
}

fn kept_line(path: &Path) -> String {
    let path = path.display();
    one_line(&format!("Files that an earlier command kept are in {path}. Remove them when nobody needs them."))
}

/// One waiting run, opened for reading or deciding. No other process works with it meanwhile.
struct Pending {
    places: StateDir,
    one: Waiting,
    layer: Layer,
    workspace: Workspace,
    /// Rules that choose every change that is neither rejected nor protected.
    rules: Rules,
}

impl Pending {
    /// Opens a run that waits, and the very directory that it worked on.
    fn of(places: StateDir, one: Waiting) -> Result<Self, Failure> {
        let refused = |error: &dyn std::error::Error| Failure::refused("layer", nexus_runner::causes::chain(error), "");
        match one.state {
            State::Waiting => {}
            State::Interrupted => {
                let is_back = one.interrupted(&places).ending == Direction::Back;
                let what = if is_back { "goes on with taking it back" } else { "finishes it" };
                let hint = format!("nexus changes recover --run {} {what}", one.run);
                let message = format!("the commit of the run {} was interrupted", one.run);
                return Err(Failure::refused("interrupted", message, hint));
            }
            State::Unparked => {
                let hint = format!(
                    "make room on the disk of the state directory: the next command parks them. nexus changes reject --run {} \
                     removes them, which makes room",
                    one.run
                );
                let message = format!("the changes of the run {} are not parked, because the disk is full", one.run);
                return Err(Failure::refused("no_room", message, hint));
            }
            State::Going => {
                let hint = format!("nexus changes reject --run {} removes the rest", one.run);
                let message = format!("the changes of the run {} were being thrown away", one.run);
                return Err(Failure::refused("going", message, hint));
            }
        }
        let workspace = one.folder.open_at(&one.workspace).map_err(|why| moved(&one, &why.to_string()))?;
        let layer = match Layer::open(&places.layers, &one.run) {
            // Its run could not even read it; perhaps that is over.
            Err(OpenLayerError::NotParked { .. }) => {
                let origin = one.note.origin(&places.layers.join(&one.run)).map_err(|error| refused(&error))?;
                Layer::adopt(&places.layers, &one.run, &origin)
            }
            other => other,
        };
        let mut layer = layer.map_err(|error| refused(&error))?;
        let id = workspace.identity().map_err(|error| refused(&error))?;
        if one.is_part {
            layer.set_partial();
        }
        layer.set_faults(run::faults());
        layer.set_home(one.workspace.as_path().into(), id);
        // What is shown is what an accept finds: a layer that its run could not park may still be written.
        layer.part().map_err(|error| {
            Failure::refused("layer", nexus_runner::causes::chain(&error), "make room in the state directory")
        })?;
        let rules = protect::rules(&crate::host::here(), &one.note.protect, &layer, &workspace, &one.workspace)?;
        let rules = Rules { except: rejected::read(layer.root())?, ..rules };
        Ok(Self { places, one, layer, workspace, rules })
    }

    /// Opens the run that was named, or the latest one of the directory that the caller stands in, for reading.
    fn to_look_at(run: Option<RunId>) -> Result<Self, Failure> {
        let places = crate::host::ready_state_dir()?;
        refuse_left(&places, run)?;
        let interrupted = crate::recovery::look(&places)?;
        refuse_left(&places, run)?;
        let one = waiting::latest(waiting::all(&places, &interrupted)?, run)?;
        Self::of(places, one)
    }

    /// Returns all changes of the layer, also the rejected ones.
    fn everything(&self) -> Result<Vec<nexus_layer::Change>, Failure> {
        let set = self.layer.changes(&self.workspace, &self.rules);
        set.map(|set| set.changes).map_err(|error| Failure::refused("layer", nexus_runner::causes::chain(&error), ""))
    }

    /// Returns the changes that wait, without the rejected ones.
    fn changes(&self) -> Result<Vec<nexus_layer::Change>, Failure> {
        Ok(self.everything()?.into_iter().filter(|change| self.rules.is_chosen(&change.path.0)).collect())
    }

    /// Returns the conflicts that an accept of everything would find, protected changes included.
    fn conflicts(&self) -> Result<Vec<nexus_layer::Conflict>, Failure> {
        let rules = Rules { accept_protected: true, ..self.rules.clone() };
        let found = self.layer.conflicts(&self.workspace, &rules);
        found.map_err(|error| Failure::refused("layer", nexus_runner::causes::chain(&error), ""))
    }

    /// Locks the workspace for a commit, and finishes what another commit to it left half-way. The run's note is
    /// brought to the disk, so that a commit is found after a power cut.
    fn alone(&self) -> Result<CommitLock, Failure> {
        let refused = |why: String| Failure::refused("lock", why, "nothing was changed");
        let alone = commit_lock::lock(&self.places, self.one.folder)
            .map_err(|error| refused(format!("the workspace cannot be locked: {error}")))?;
        let (run, path) = (&self.one.run, &self.one.workspace);
        finish_others(&self.places, run, path, &self.workspace, &crate::notices::print).map_err(refused)?;
        note::sync(self.layer.root()).map_err(|error| refused(format!("{}: {error}", self.layer.root().display())))?;
        Ok(alone)
    }

    /// Records that this command works on the run, so that a later command finishes the commit after a crash.
    fn record(&self) -> Result<Record, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            let message = format!("the accept cannot be recorded in {}: {error}", self.places.runs.display());
            Failure::refused("state_dir", message, "make room there")
        };
        let run: RunId = self.one.run.parse().map_err(|error| failed(&error))?;
        let content = Content {
            handle: Handle::of_nothing(run),
            workspace: self.one.workspace.clone().into(),
            directory: self.one.folder,
            layered: true,
            reviewing: true,
            rejecting: false,
        };
        let record = Record::create(&self.places.runs, &content).map_err(|error| failed(&error))?;
        record.sync().map_err(|error| failed(&error))?;
        Ok(record)
    }

    /// Returns how many changes still wait after a decision, and removes a layer in which none does.
    fn finish(self) -> Result<usize, Failure> {
        if !self.layer.root().exists() {
            return Ok(0);
        }
        let left = self.changes()?.len();
        if left == 0 {
            nexus_runner::recover::remove::remove(self.layer, &crate::notices::print)
                .map_err(|why| Failure::refused("discard", why, ""))?;
        }
        Ok(left)
    }
}

/// Writes a part of the answer at once: a command that is killed afterwards leaves nothing that could be named again.
fn say(text: &str) -> Result<(), Failure> {
    run::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
        .map_err(|error| run::not_written("the answer", &error))
}

/// Describes a directory that is not the one that the run worked on: the changes belong to that one, and to no other
/// that took its name.
fn moved(one: &Waiting, why: &str) -> Failure {
    let message =
        format!("the folder {} of the run {} cannot take its changes: {why}", one.workspace.display(), one.run);
    let hint = format!("put the folder back, or throw the changes away: nexus changes reject --run {}", one.run);
    Failure::refused("moved", message, hint)
}
