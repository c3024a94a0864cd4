//! What becomes of a run's changes.
//!
//! ```text
//!  layer ─┬─ commit ──▶ committed (and perhaps a rest parked) | conflicts or no room: parked, exit 125
//!         └─ discard, or the run broke its disk limit or was lost ──▶ discarded
//! ```

use super::order::Order;
use crate::args::{Changes, RunArgs};
use crate::failure::Failure;
use nexus_facility::layer::CommitError;
use nexus_facility::{Change, ChangeSet, CommitState, Committed, Conflict, Faults, Layer, LayerMode, Rules, Workspace};
use nexus_model::{ByteText, ExitReason};
use rustix::fd::{AsFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::error::Error;
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

/// What is known of the run of a parked layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedRun {
    /// The workspace that the layer is for.
    pub workspace: ByteText,
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

/// Makes the layer of a run.
pub fn create(layers: &Path, run: &str, mode: LayerMode, workspace: &Path) -> Result<Layer, String> {
    let workspace = Workspace::open(workspace).map_err(|error| chain(&error))?;
    Layer::create_with(layers, run, &workspace, mode, faults()).map_err(|error| chain(&error))
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
    reason: ExitReason,
) -> Result<Settled, Failure> {
    let Some(mut layer) = layer else { return Ok(Settled::default()) };
    if let Some(upper) = in_memory {
        layer = layer.with_upper(upper);
    }
    let source = order.plan.workspace.source.as_path();
    let workspace = Workspace::open(source).map_err(|error| lost(&layer, &chain(&error)))?;
    let rules = Rules::default();
    let keep = matches!(reason, ExitReason::Exit | ExitReason::Timeout | ExitReason::Canceled | ExitReason::Oom);
    if !keep || order.changes == Changes::Discard {
        return discard(layer, &workspace, &rules, keep);
    }
    match layer.commit(&workspace, &rules) {
        Ok(committed) => concluded(committed, &layer, order),
        Err(CommitError::Interrupted { source, .. }) => {
            let why = chain(&source);
            drop(layer);
            finish_interrupted(order, &workspace, &why)
        }
        Err(error) => park_instead(&layer, &workspace, &rules, order, &chain(&error)),
    }
    .inspect(|_| debug_assert!(!args.direct, "a direct run has no layer"))
}

fn discard(layer: Layer, workspace: &Workspace, rules: &Rules, report: bool) -> Result<Settled, Failure> {
    // What was thrown away is worth a look, but not being able to look must not keep it.
    let changes = if report { layer.changes(workspace, rules).unwrap_or_default() } else { ChangeSet::default() };
    let path = layer.root().to_owned();
    layer
        .discard()
        .map_err(|error| Failure::refused("discard", chain(&error), format!("remove {} by hand", path.display())))?;
    Ok(Settled { state: State::Discarded, changes, ..Settled::default() })
}

fn concluded(committed: Committed, layer: &Layer, order: &Order) -> Result<Settled, Failure> {
    let state = match committed.state {
        CommitState::Nothing => State::None,
        CommitState::Committed => State::Committed,
        CommitState::Parked => State::Parked,
    };
    if !committed.parked.is_empty() || !committed.conflicts.is_empty() {
        note_run(layer, order)?;
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
fn finish_interrupted(order: &Order, workspace: &Workspace, why: &str) -> Result<Settled, Failure> {
    let run = order.plan.run_id.to_string();
    match nexus_facility::recover(&order.places.layers, &run, workspace) {
        Ok(_) => Ok(Settled { state: State::Committed, ..Settled::default() }),
        Err(error) => {
            let message = format!("the commit stopped half-way: {why}; and again: {}", chain(&error));
            let hint = "mend that (is the disk full?) and run any nexus command: it finishes the commit";
            Err(Failure::refused("commit_interrupted", message, hint))
        }
    }
}

fn park_instead(
    layer: &Layer,
    workspace: &Workspace,
    rules: &Rules,
    order: &Order,
    why: &str,
) -> Result<Settled, Failure> {
    let changes = layer.park(workspace, rules).map_err(|error| lost(layer, &format!("{why}; {}", chain(&error))))?;
    note_run(layer, order)?;
    let hint = format!("they are parked: nexus changes show --run {}", layer.run());
    let problem = Failure::refused("commit", format!("the changes could not be committed: {why}"), hint);
    Ok(Settled { state: State::Parked, parked: changes.changes, problem: Some(problem), ..Settled::default() })
}

fn lost(layer: &Layer, why: &str) -> Failure {
    let message = format!("the changes could neither be committed nor parked: {why}");
    Failure::refused("commit", message, format!("they are in {}", layer.upper().display()))
}

fn note_run(layer: &Layer, order: &Order) -> Result<(), Failure> {
    let note = ParkedRun { workspace: order.plan.workspace.source.clone(), argv: order.plan.argv.clone() };
    let written = serde_json::to_vec(&note)
        .map_err(std::io::Error::other)
        .and_then(|bytes| std::fs::write(layer.root().join(RUN_FILE), bytes));
    written.map_err(|error| lost(layer, &error.to_string()))
}

/// Reads what is known of a parked layer's run.
pub fn read_note(layer: &Path) -> Option<ParkedRun> {
    serde_json::from_slice(&std::fs::read(layer.join(RUN_FILE)).ok()?).ok()
}
