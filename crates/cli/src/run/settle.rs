//! What becomes of a run's changes.
//!
//! ```text
//!  layer ─┬─ commit ──▶ committed (and perhaps a rest parked) | conflicts or no room: parked, exit 125
//!         └─ discard, or the run broke its disk limit or was lost ──▶ discarded
//! ```
//! The note about a layer's run is written together with the layer: later the disk may be full, and a layer without
//! one would be in no list.

use super::ask;
use super::disk;
use super::folder::FolderId;
use super::order::Order;
use super::signals::Signals;
use crate::args::{Changes, RunArgs};
use crate::failure::Failure;
use nexus_facility::layer::{CommitError, OpenLayerError};
use nexus_facility::{
    Change, ChangeSet, CommitState, Committed, Conflict, Faults, Layer, LayerMode, Rules, Spares, Workspace,
};
use nexus_model::{ByteText, ExitReason};
use rustix::fd::{AsFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io;
use std::path::Path;

/// `changes.state` of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing changed, or there was no layer.
    #[default]
    None,
    /// In the workspace.
    Committed,
    /// In the layer, waiting.
    Parked,
    /// Gone.
    Discarded,
    /// Neither: only a receipt says this, the run itself ends with the failure.
    Failed,
}

/// How it was settled.
#[derive(Debug, Default)]
pub struct Settled {
    /// In one word.
    pub state: State,
    /// What reached the workspace, or would have.
    pub changes: ChangeSet,
    /// What waits for an accept.
    pub parked: Vec<Change>,
    /// What changed outside meanwhile.
    pub conflicts: Vec<Conflict>,
    /// Why changes that should have been committed were not.
    pub problem: Option<Failure>,
}

impl Settled {
    /// What is known after a failure.
    pub fn failed(why: Failure) -> Self {
        Self { state: State::Failed, problem: Some(why), ..Self::default() }
    }
}

/// The code of a failure after which the run's record must stay: the next command finishes the commit by it.
pub const INTERRUPTED: &str = "commit_interrupted";

/// What is known of the run of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedRun {
    /// The workspace that the layer is for.
    pub workspace: ByteText,
    /// Which folder that was.
    pub folder: FolderId,
    /// The command.
    pub argv: Vec<ByteText>,
}

/// Name of the file with [`ParkedRun`] in a layer's folder.
const RUN_FILE: &str = "run.json";

/// The faults that a test asked for.
pub fn faults() -> Faults {
    #[cfg(feature = "inject")]
    if let Some(name) = std::env::var_os("NEXUS_INJECT")
        && let Some(step) = name.to_str().and_then(nexus_facility::Step::by_name)
    {
        return Faults::failing(step);
    }
    Faults::default()
}

/// An error with everything that caused it, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Makes the layer of a run, with the note about it. On an error nothing of it is left, or the error says so.
pub fn create(order: &Order, mode: LayerMode) -> Result<Layer, String> {
    let run = order.plan.run_id.to_string();
    let layers = &order.places.layers;
    let workspace = Workspace::open(order.plan.workspace.source.as_path()).map_err(|error| chain(&error))?;
    let cleared = |why: String, cleared: Result<(), String>| match cleared {
        Ok(()) => why,
        Err(second) => format!("{why}; and then: {second}"),
    };
    let spares = Spares::open(&order.places.spare).map_err(|error| chain(&error))?;
    let layer = Layer::create_with(Some(spares), layers, &run, &workspace, mode, faults()).map_err(|error| {
        // On a full disk some of its folders may be there.
        let gone = nexus_facility::recover(layers, &run, &workspace).map(drop).map_err(|error| chain(&error));
        let spares = Spares::open(&order.places.spare).and_then(|spares| spares.clear());
        cleared(chain(&error), gone.and(spares.map_err(|error| chain(&error))))
    })?;
    match note_run(&layer, order) {
        Ok(()) => Ok(layer),
        Err(error) => Err(cleared(error.to_string(), layer.discard().map_err(|error| chain(&error)))),
    }
}

/// Whether a layer in memory has no room left.
pub fn is_full(upper: &OwnedFd, limit: u64) -> bool {
    let almost_nothing = (limit / 64).clamp(4096, 1 << 20);
    rustix::fs::fstatvfs(upper.as_fd())
        .is_ok_and(|stat| stat.f_bavail * stat.f_bsize < almost_nothing || stat.f_favail == 0)
}

/// Settles the changes of a run that has ended.
pub fn settle(
    layer: Option<Layer>,
    in_memory: Option<OwnedFd>,
    order: &Order,
    args: &RunArgs,
    signals: &Signals,
    reason: ExitReason,
) -> Result<Settled, Failure> {
    let Some(mut layer) = layer else { return Ok(Settled::default()) };
    let source = order.plan.workspace.source.as_path();
    let from_memory = in_memory.is_some();
    let keep = matches!(reason, ExitReason::Exit | ExitReason::Timeout | ExitReason::Canceled | ExitReason::Oom);
    let commit = keep && order.changes != Changes::Discard;
    let workspace = match Workspace::open(source) {
        Ok(workspace) => workspace,
        Err(error) => return Err(lost(layer, from_memory, &chain(&error))),
    };
    // Needs no lock, since it has no part in any commit. An error comes again on the long way, which tells it.
    if commit && in_memory.is_none() && layer.end_if_empty().unwrap_or(false) {
        return Ok(Settled::default());
    }
    let no_room = if commit { disk::no_room(&layer.root().join("upper"), in_memory.as_ref(), source) } else { None };
    if let Some(upper) = in_memory {
        layer = layer.with_upper(upper);
    }
    let rules = Rules::default();
    // A run that the memory limit cut short has half of what it wanted to write: somebody has to look.
    let wish = if reason == ExitReason::Oom { Changes::Review } else { order.changes };
    let wanted = if commit { decide(&layer, &workspace, &rules, wish, signals) } else { Ok(Changes::Discard) };
    match wanted {
        Ok(Changes::Discard) => return discard(layer, &workspace, &rules, keep),
        Ok(Changes::Review) => return review(layer, from_memory, &workspace, &rules),
        Ok(Changes::Commit | Changes::Ask) => {}
        Err(why) => return park_instead(layer, from_memory, &workspace, &rules, &why),
    }
    let _alone = match super::alone::lock(&order.places, order.folder) {
        Ok(lock) => lock,
        Err(error) => return park_instead(layer, from_memory, &workspace, &rules, &format!("no lock: {error}")),
    };
    if let Some(why) = no_room {
        return park_instead(layer, from_memory, &workspace, &rules, &why);
    }
    match layer.commit(&workspace, &rules) {
        Ok(committed) => concluded(committed, &layer),
        Err(CommitError::Interrupted { source, .. }) => {
            let why = chain(&source);
            drop(layer);
            finish_interrupted(order, &workspace, &rules, &why)
        }
        Err(error) => park_instead(layer, from_memory, &workspace, &rules, &chain(&error)),
    }
    .inspect(|_| debug_assert!(!args.direct, "a direct run has no layer"))
}

/// What is to become of the changes of a run that may keep them. A run that changed nothing is not asked about.
fn decide(
    layer: &Layer,
    workspace: &Workspace,
    rules: &Rules,
    wish: Changes,
    signals: &Signals,
) -> Result<Changes, String> {
    if matches!(wish, Changes::Commit | Changes::Discard) {
        return Ok(wish);
    }
    let changes = layer.changes(workspace, rules).map_err(|error| chain(&error))?;
    match wish {
        // Ends as "nothing", and takes the layer along.
        _ if changes.is_empty() => Ok(Changes::Commit),
        Changes::Ask => ask::ask(layer, workspace, rules, &changes, signals),
        other => Ok(other),
    }
}

/// Parks by choice, which is no problem.
fn review(layer: Layer, from_memory: bool, workspace: &Workspace, rules: &Rules) -> Result<Settled, Failure> {
    match layer.park(workspace, rules) {
        Ok(changes) => {
            keep_note(&layer)?;
            Ok(Settled { state: State::Parked, parked: changes.changes, ..Settled::default() })
        }
        Err(error) => Err(lost(layer, from_memory, &chain(&error))),
    }
}

fn discard(layer: Layer, workspace: &Workspace, rules: &Rules, report: bool) -> Result<Settled, Failure> {
    // What was thrown away is worth a look, but not being able to look must not keep it.
    let changes = if report { layer.changes(workspace, rules).unwrap_or_default() } else { ChangeSet::default() };
    let again = format!("nexus changes reject --run {} tries again", layer.run());
    layer.discard().map_err(|error| Failure::refused("discard", chain(&error), again))?;
    Ok(Settled { state: State::Discarded, changes, ..Settled::default() })
}

fn concluded(committed: Committed, layer: &Layer) -> Result<Settled, Failure> {
    let state = match committed.state {
        CommitState::Nothing => State::None,
        CommitState::Committed => State::Committed,
        CommitState::Parked => State::Parked,
    };
    if !committed.parked.is_empty() || !committed.conflicts.is_empty() {
        keep_note(layer)?;
    }
    let problem = committed.conflicts.first().map(|first| {
        let more = committed.conflicts.len() - 1;
        let message = format!(
            "nothing was committed: {} changed outside while the command ran{}",
            first.path.as_path().display(),
            if more == 0 { String::new() } else { format!(", and {more} more") }
        );
        let hint = format!("the changes of the run are parked: nexus changes show --run {}", layer.run());
        Failure::refused("conflict", message, hint)
    });
    Ok(Settled { state, changes: committed.changes, parked: committed.parked, conflicts: committed.conflicts, problem })
}

/// The commit was decided and stopped half-way: the same steps once more, since they may be repeated.
fn finish_interrupted(order: &Order, workspace: &Workspace, rules: &Rules, why: &str) -> Result<Settled, Failure> {
    let run = order.plan.run_id.to_string();
    if let Err(error) = nexus_facility::recover(&order.places.layers, &run, workspace) {
        let message = format!("the commit stopped half-way: {why}; and again: {}", chain(&error));
        let hint = "mend that (is the disk full?) and run any nexus command: it finishes the commit";
        return Err(Failure::refused(INTERRUPTED, message, hint));
    }
    let parked = match Layer::open(&order.places.layers, &run) {
        Ok(layer) => layer.changes(workspace, rules).map_err(|error| chain(&error)),
        Err(OpenLayerError::NotParked { .. }) => Ok(ChangeSet::default()),
        Err(error) => Err(chain(&error)),
    };
    let parked = parked.map_err(|why| {
        let message = format!("the changes are committed, but what waits for a decision cannot be read: {why}");
        Failure::refused("parked", message, format!("nexus changes show --run {run} tries again"))
    })?;
    Ok(Settled { state: State::Committed, parked: parked.changes, ..Settled::default() })
}

fn park_instead(
    layer: Layer,
    from_memory: bool,
    workspace: &Workspace,
    rules: &Rules,
    why: &str,
) -> Result<Settled, Failure> {
    let changes = match layer.park(workspace, rules) {
        Ok(changes) => changes,
        Err(error) => return Err(lost(layer, from_memory, &format!("{why}; {}", chain(&error)))),
    };
    keep_note(&layer)?;
    let hint = format!("they are parked: nexus changes show --run {}", layer.run());
    let problem = Failure::refused("commit", format!("the changes could not be committed: {why}"), hint);
    Ok(Settled { state: State::Parked, parked: changes.changes, problem: Some(problem), ..Settled::default() })
}

/// Neither committed nor parked. What the disk has of the changes stays, and is listed by its note; nothing applies it.
fn lost(layer: Layer, from_memory: bool, why: &str) -> Failure {
    let upper = layer.upper();
    let empty = std::fs::read_dir(&upper).is_ok_and(|mut entries| entries.next().is_none());
    if from_memory && empty {
        let left = layer.discard().err().map(|error| format!("; and then: {}", chain(&error))).unwrap_or_default();
        let message =
            format!("the changes are gone: they were in memory and could not be copied to the disk: {why}{left}");
        return Failure::refused("commit", message, "make room in the state directory and run the command again");
    }
    let message = format!("the changes could neither be committed nor parked: {why}");
    let kept = if from_memory { "what could be saved of them is" } else { "they are" };
    let hint = format!("{kept} in {}; nexus changes reject --run {} throws them away", upper.display(), layer.run());
    Failure::refused("commit", message, hint)
}

fn note_run(layer: &Layer, order: &Order) -> io::Result<()> {
    let note = ParkedRun {
        workspace: order.plan.workspace.source.clone(),
        folder: order.folder,
        argv: order.plan.argv.clone(),
    };
    let bytes = serde_json::to_vec(&note).map_err(io::Error::other)?;
    std::fs::write(layer.root().join(RUN_FILE), bytes)
}

/// From here on the note has to outlive a power cut; most layers end without it.
fn keep_note(layer: &Layer) -> Result<(), Failure> {
    let path = layer.root().join(RUN_FILE);
    std::fs::File::open(&path).and_then(|file| file.sync_all()).map_err(|error| {
        let message = format!("the changes are parked, but {} may be lost in a power cut: {error}", path.display());
        Failure::refused("commit", message, format!("nexus changes show --run {} shows them", layer.run()))
    })
}

/// Reads what is known of a layer's run.
pub fn read_note(layer: &Path) -> Option<ParkedRun> {
    serde_json::from_slice(&std::fs::read(layer.join(RUN_FILE)).ok()?).ok()
}
