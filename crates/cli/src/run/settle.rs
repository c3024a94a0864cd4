//! Settles a run's changes: commits, parks or discards them.
//!
//! ```text
//!  layer ─┬─ commit ──▶ committed (and perhaps a rest parked) | conflicts or no room: parked, exit 125
//!         ├─ the run was cut short: parked
//!         ├─ review, or nothing was written: parked, removed
//!         ├─ the sandbox is not gone yet: left to a later command
//!         └─ discard, or the run broke its disk limit ──▶ discarded
//! ```
//! The note about a layer's run is written together with the layer: later the disk may be full, and a layer without
//! one would be in no list.

use super::cut_short;
use super::order::Order;
use super::signals::Signals;
use super::unsaid::go_on;
use super::{ask, open_files, recover, tell};
use crate::args::{Changes, RunArgs};
use crate::failure::Failure;
use nexus_driver::SandboxProcess;
use nexus_facility::layer::CommitError;
use nexus_facility::{
    Abandoned, Change, ChangeSet, CommitState, Committed, Conflict, Faults, Layer, LayerMode, LayerOrigin, Leftover,
    OpenLayerError, Recovered, Rules, Spares, Stash, is_whole_copy,
};
use nexus_model::plan::Writes;
use nexus_model::{ByteText, ExitReason, RunId};
use nexus_runner::causes::chain;
use nexus_runner::live::disk;
use nexus_runner::plan::protect;
use nexus_runner::state::commit_lock;
use nexus_runner::state::note::{self, RunNote};
use nexus_runner::state::record::Record;
use rustix::fd::OwnedFd;
use serde::Serialize;
use std::io;
use std::time::Duration;

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
    /// The changes were thrown away.
    Discarded,
    /// Neither: only a receipt says this, the run itself ends with the failure.
    Failed,
}

/// Result of settling a run's changes.
#[derive(Debug, Default)]
pub struct Settled {
    /// In one word.
    pub state: State,
    /// The changes that reached the workspace, or would have.
    pub changes: ChangeSet,
    /// The changes that wait for an accept.
    pub parked: Vec<Change>,
    /// The paths that changed outside meanwhile.
    pub conflicts: Vec<Conflict>,
    /// Number of files that were replaced or deleted though the kernel could not tell whether a process was writing
    /// to them.
    pub unwatched: u64,
    /// Replaced or deleted files that programs had open for reading. Looked for only with `--verbose`.
    pub readers: Vec<ByteText>,
    /// The reason why changes that should have been committed were not.
    pub problem: Option<Failure>,
}

impl Settled {
    /// Builds the result of a run whose changes could not be settled.
    pub fn failed(why: Failure) -> Self {
        Self { state: State::Failed, problem: Some(why), ..Self::default() }
    }

    /// Returns the failure that cut the run short, with what became of the changes.
    pub fn beside(&self, failure: Failure, run: RunId) -> Failure {
        let (what, look) = match self.state {
            State::None => ("it had changed nothing", None),
            State::Committed => ("its changes are committed", None),
            State::Discarded => ("its changes were discarded", None),
            State::Parked | State::Failed => {
                ("its changes are parked", Some(format!("nexus changes show --run {run} shows them")))
            }
        };
        let why = self.problem.as_ref().map(|problem| format!("; {}", problem.message)).unwrap_or_default();
        let message = format!("{}; {what}{why}", failure.message);
        let hint = match look {
            Some(look) if failure.hint.is_empty() => look,
            Some(look) => format!("{look}. {}", failure.hint),
            None => failure.hint,
        };
        Failure { message, hint, ..failure }
    }
}

/// Everything about a run that is over.
pub struct Over<'a> {
    /// The resolved flags of the run.
    pub order: &'a Order,
    /// The command line.
    pub args: &'a RunArgs,
    /// Signals to this process.
    pub signals: &'a Signals,
    /// The record of the run, which has to be on the disk before a commit is decided.
    pub record: &'a Record,
    /// The reason why the run ended.
    pub reason: ExitReason,
    /// True if the command could not do all that it wanted: then the user has to decide about the changes.
    pub cut_short: bool,
    /// Reports that its sandbox was killed and is not gone.
    pub lingers: bool,
}

/// The code of a failure after which the run's record must stay: the next command finishes the commit by it.
pub const INTERRUPTED: &str = "commit_interrupted";

/// Returns the faults that a test asked for.
pub fn faults() -> Faults {
    #[cfg(feature = "inject")]
    if let Some(name) = std::env::var_os("NEXUS_INJECT").and_then(|name| name.into_string().ok()) {
        if let Some(step) = nexus_facility::Step::by_name(&name) {
            return Faults::failing(step);
        }
        if let Some(nth) = name.strip_prefix("abort:").and_then(|nth| nth.parse().ok()) {
            return Faults::aborting_at(nth);
        }
    }
    Faults::default()
}

/// Makes the layer of a run, with the note about it. On an error nothing of it is left, or the error says so.
pub fn create(order: &Order, mode: LayerMode) -> Result<Layer, String> {
    let run = order.plan.run_id.to_string();
    let layers = &order.places.layers;
    let cleared = |why: String, cleared: Result<(), String>| match cleared {
        Ok(()) => why,
        Err(second) => format!("{why}; and then: {second}"),
    };
    let spares = Spares::open(&order.places.pool).map_err(|error| chain(&error))?;
    let made = Layer::create_with(Some(spares), layers, &run, &order.directory, mode, faults());
    let mut layer = made.map_err(|error| {
        // On a full disk some of its folders may be there.
        let gone = match nexus_facility::abandon(layers, &run, || Ok(())) {
            Ok(Abandoned::Removed(left)) => {
                tell_leftovers(left.iter());
                Ok(())
            }
            Ok(Abandoned::Nothing) => Ok(()),
            Err(error) => Err(chain(&error)),
        };
        let spares = Spares::open(&order.places.pool).and_then(|spares| spares.clear());
        cleared(chain(&error), gone.and(spares.map_err(|error| chain(&error))))
    })?;
    layer.set_home(order.plan.workspace.source.clone(), order.id);
    match note_run(&layer, order) {
        Ok(()) => Ok(layer),
        Err(error) => Err(cleared(error.to_string(), recover::remove(layer))),
    }
}

/// Time that the kernel has to take an overlay apart after the last process of its sandbox is dead. If it takes
/// longer, another process has something of the overlay.
const GONE_WITHIN: Duration = Duration::from_millis(100);

/// Settles the changes of a run that has ended. `watch` tells whether another process has something of its overlay.
pub fn settle(
    layer: Option<Layer>,
    in_memory: Option<OwnedFd>,
    process: &dyn SandboxProcess,
    over: &Over<'_>,
) -> Result<Settled, Failure> {
    let Over { order, args, signals, reason, .. } = over;
    let Some(mut layer) = layer else {
        return if over.lingers {
            super::lingers::leave(None, order.plan.run_id, false)
        } else {
            Ok(Settled::default())
        };
    };
    debug_assert!(!args.direct, "a direct run has no layer");
    let source = order.plan.workspace.source.as_path();
    let from_memory = in_memory.is_some();
    let keep = *reason != ExitReason::DiskQuota;
    let commit = keep && order.changes != Changes::Discard;
    if over.lingers {
        return super::lingers::leave(Some(&layer), order.plan.run_id, !commit);
    }
    // Needs no lock, since it has no part in any commit. An error comes again on the long way, which tells it.
    if keep
        && in_memory.is_none()
        && let Ok((true, left)) = layer.end_if_empty()
    {
        tell_leftovers(left.iter());
        return Ok(Settled::default());
    }
    // What is in memory would be gone with this process, and a person who is asked is heard.
    let is_left = in_memory.is_none() && order.changes != Changes::Ask;
    let watched = || super::slow_end::SlowEnd::watch(signals, order.plan.run_id, layer.root()).ok();
    let _slow_end = is_left.then(watched).flatten();
    let no_room = if commit { disk::no_room(&layer.root().join("upper"), in_memory.as_ref(), source) } else { None };
    if let Some(upper) = in_memory {
        layer = layer.with_upper(upper);
    }
    let parted = match () {
        () if !commit => Ok(()),
        () if process.has_released_layer(GONE_WITHIN) => {
            layer.set_unreached();
            Ok(())
        }
        () => layer.part(),
    };
    if let Err(error) = parted {
        let rules = Rules::default();
        return Parking { order, layer, from_memory, rules: &rules }.instead(&chain(&error));
    }
    let rules = match protect::rules(&crate::host::here(), &order.protect, &layer, &order.directory, source) {
        Ok(rules) => rules,
        Err(error) => {
            let rules = Rules::default();
            let parking = Parking { order, layer, from_memory, rules: &rules };
            return parking.instead(&error.to_string());
        }
    };
    let wish = cut_short::wish(order.changes, over.cut_short, *reason);
    let parking = Parking { order, layer, from_memory, rules: &rules };
    let wanted = if commit { parking.decide(wish, signals) } else { Ok(Changes::Discard) };
    match wanted {
        Ok(Changes::Discard) => return parking.discard(keep),
        Ok(Changes::Review) => return parking.review(),
        Ok(Changes::Commit | Changes::Ask) => {}
        Err(why) => return parking.instead(&why),
    }
    let _alone = match commit_lock::lock(&order.places, order.folder) {
        Ok(lock) => lock,
        Err(error) => return parking.instead(&format!("no lock: {error}")),
    };
    if let Some(why) = no_room {
        return parking.instead(&why);
    }
    if let Err(why) = may_commit(over) {
        return parking.instead(&why);
    }
    let readers = if args.verbose { open_files::readers(&parking.layer, &order.directory, &rules) } else { Vec::new() };
    match parking.layer.commit(&order.directory, &rules) {
        Ok(committed) => concluded(committed, &parking.layer, readers),
        Err(CommitError::Interrupted { source, .. }) => {
            let why = chain(&source);
            let Parking { layer, .. } = parking;
            let origin = layer.origin();
            drop(layer);
            finish_interrupted(order, &rules, &origin, &why)
        }
        Err(error) => parking.instead(&chain(&error)),
    }
}

/// Checks the conditions of a commit: the workspace is still where its user sees it, no other commit to it stands
/// half-way, and after a power cut the next command finds what was decided.
fn may_commit(over: &Over<'_>) -> Result<(), String> {
    let Over { order, record, .. } = over;
    let path = order.plan.workspace.source.as_path();
    let run = order.plan.run_id.to_string();
    let is_there = order.folder.is_at(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !is_there {
        return Err(format!("{} was moved or replaced while the command ran", path.display()));
    }
    recover::finish_others(&order.places, &run, path, &order.directory)?;
    record.sync().map_err(|error| format!("the run's record cannot be brought to the disk: {error}"))?;
    let layer = order.places.layers.join(&run);
    note::sync(&layer).map_err(|error| format!("the run's note cannot be brought to the disk: {error}"))
}

/// A layer that may have to wait.
struct Parking<'a> {
    order: &'a Order,
    layer: Layer,
    from_memory: bool,
    rules: &'a Rules,
}

impl Parking<'_> {
    /// Decides what becomes of the changes of a run that may keep them, and asks the user if that is wanted. A run
    /// that changed nothing is not asked about.
    fn decide(&self, wish: Changes, signals: &Signals) -> Result<Changes, String> {
        if wish != Changes::Ask {
            return Ok(wish);
        }
        let workspace = &self.order.directory;
        let changes = self.layer.changes(workspace, self.rules).map_err(|error| chain(&error))?;
        // Ends as "nothing", and takes the layer along.
        if changes.is_empty() {
            Ok(Changes::Commit)
        } else {
            ask::ask(&self.layer, workspace, self.rules, &changes, signals)
        }
    }

    /// Parks the changes by choice, which does not count as a problem.
    fn review(self) -> Result<Settled, Failure> {
        match self.layer.park(&self.order.directory, self.rules) {
            Ok(changes) if changes.is_empty() => {
                let again = format!("nexus changes reject --run {} tries again", self.layer.run());
                recover::remove(self.layer).map_err(|why| Failure::refused("discard", why, again))?;
                Ok(Settled::default())
            }
            Ok(changes) => {
                keep_note(&self.layer)?;
                Ok(Settled { state: State::Parked, parked: changes.changes, ..Settled::default() })
            }
            Err(error) => Err(self.lost(&chain(&error))),
        }
    }

    fn discard(self, report: bool) -> Result<Settled, Failure> {
        // What was thrown away is worth a look, but not being able to look must not keep it.
        let changes = || self.layer.changes(&self.order.directory, self.rules).unwrap_or_default();
        let changes = if report { changes() } else { ChangeSet::default() };
        let again = format!("nexus changes reject --run {} tries again", self.layer.run());
        recover::remove(self.layer).map_err(|why| Failure::refused("discard", why, again))?;
        Ok(Settled { state: State::Discarded, changes, ..Settled::default() })
    }

    /// Parks because a commit is not possible.
    fn instead(self, why: &str) -> Result<Settled, Failure> {
        let changes = match self.layer.park(&self.order.directory, self.rules) {
            Ok(changes) => changes,
            Err(error) => return Err(self.lost(&format!("{why}; {}", chain(&error)))),
        };
        keep_note(&self.layer)?;
        let hint = format!("they are parked: nexus changes show --run {}", self.layer.run());
        let problem = Failure::refused("commit", format!("the changes could not be committed: {why}"), hint);
        Ok(Settled { state: State::Parked, parked: changes.changes, problem: Some(problem), ..Settled::default() })
    }

    /// Neither committed nor parked. What the disk has of the changes stays and is listed by its note; a review reads
    /// it again.
    fn lost(self, why: &str) -> Failure {
        let (mut layer, run) = (self.layer, self.order.plan.run_id);
        if self.from_memory && !is_whole_copy(layer.root()).unwrap_or(false) {
            layer.set_partial();
        }
        if self.from_memory && layer.is_bare().unwrap_or(false) {
            let left = recover::remove(layer).err().map(|why| format!("; and then: {why}")).unwrap_or_default();
            let message =
                format!("the changes are gone: they were in memory and could not be copied to the disk: {why}{left}");
            return Failure::refused("commit", message, "make room in the state directory and run the command again");
        }
        let mut message = format!("the changes could neither be committed nor parked: {why}");
        let synced = note::sync(layer.root()).err();
        message += &synced.map(|error| format!("; a power cut may lose them: {error}")).unwrap_or_default();
        let kept = if self.from_memory { "what could be saved of them is" } else { "they are" };
        let hint = format!(
            "{kept} kept: nexus changes show --run {run} tries to read them again, nexus changes reject --run {run} \
             throws them away, and the files are in {}",
            layer.upper().display()
        );
        Failure::refused("commit", message, hint)
    }
}

fn concluded(committed: Committed, layer: &Layer, mut readers: Vec<ByteText>) -> Result<Settled, Failure> {
    tell_leftovers(&committed.left);
    tell_stashes(&committed.stashes);
    let state = match committed.state {
        CommitState::Nothing => State::None,
        CommitState::Committed => State::Committed,
        CommitState::Parked => State::Parked,
    };
    if !committed.parked.is_empty() {
        keep_note(layer)?;
    }
    let problem = committed.conflicts.first().map(|first| {
        let more = committed.conflicts.len() - 1;
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        let (path, happened) = (first.path.as_path().display(), crate::changes::happened(first));
        let message = if committed.changes.is_empty() {
            format!("nothing was committed: {path} {happened} while the command ran{more}")
        } else {
            format!("not everything was committed: {path} {happened} during the commit{more}")
        };
        if committed.parked.is_empty() {
            return Failure::refused("conflict", message, "both versions are there: compare them");
        }
        let hint = format!("the changes of the run are parked: nexus changes show --run {}", layer.run());
        Failure::refused("conflict", message, hint)
    });
    readers.retain(|path| committed.changes.changes.iter().any(|change| change.path == *path));
    let Committed { changes, parked, conflicts, unwatched, .. } = committed;
    Ok(Settled { state, changes, parked, conflicts, unwatched, readers, problem })
}

/// Repeats the steps of a commit that was decided and stopped half-way; they may be repeated. If that does not help,
/// takes the commit back, and the changes wait.
fn finish_interrupted(order: &Order, rules: &Rules, origin: &LayerOrigin, why: &str) -> Result<Settled, Failure> {
    let run = order.plan.run_id.to_string();
    let path = order.plan.workspace.source.as_path();
    let mut unwatched = 0;
    let told = match nexus_facility::recover(&order.places.layers, &run, &order.directory) {
        Ok(Recovered::TakenBack(_)) => {
            let message = format!("the commit stopped half-way: {why}");
            return take_back(order, rules, origin, &message)
                .unwrap_or_else(|| Err(Failure::refused(INTERRUPTED, message, go_on(&order.places, &run))));
        }
        Ok(recovered) => {
            if let Recovered::RolledForward(done) = &recovered {
                unwatched = done.unwatched;
                tell_leftovers(&done.left);
            }
            recover::left_out(&run, path, &recovered)
        }
        Err(error) => {
            let message = format!("the commit stopped half-way: {why}; and again: {}", chain(&error));
            return take_back(order, rules, origin, &message)
                .unwrap_or_else(|| Err(Failure::refused(INTERRUPTED, message, go_on(&order.places, &run))));
        }
    };
    let parked = match Layer::open(&order.places.layers, &run) {
        Ok(layer) => layer.changes(&order.directory, rules).map_err(|error| chain(&error)),
        Err(OpenLayerError::NotParked { .. }) => Ok(ChangeSet::default()),
        Err(error) => Err(chain(&error)),
    };
    let parked = parked.map_err(|why| {
        let message = format!("the changes are committed, but what waits for a decision cannot be read: {why}");
        Failure::refused("parked", message, format!("nexus changes show --run {run} tries again"))
    })?;
    let problem = told.map(|message| Failure::refused("conflict", message, ""));
    Ok(Settled { state: State::Committed, parked: parked.changes, unwatched, problem, ..Settled::default() })
}

/// Takes a commit back that can neither go on. `None` when that is not possible either.
fn take_back(order: &Order, rules: &Rules, origin: &LayerOrigin, why: &str) -> Option<Result<Settled, Failure>> {
    let run = order.plan.run_id.to_string();
    let layers = &order.places.layers;
    let conflicts = nexus_facility::roll_back(layers, &run, &order.directory).ok()?;
    let layer = Layer::adopt(layers, &run, origin).ok()?;
    let kept = recover::kept_back(&run, order.plan.workspace.source.as_path(), &conflicts);
    let kept = kept.map(|text| format!(" ({text})")).unwrap_or_default();
    let parking = Parking { order, layer, from_memory: false, rules };
    Some(parking.instead(&format!("{why}; it was taken back{kept}")))
}

/// Names what a commit or a reject could not remove. It stays, and no later command waits for it.
pub fn tell_leftovers<'a>(left: impl IntoIterator<Item = &'a Leftover>) {
    for one in left {
        tell(&format!("{one} Nexus is done with it; remove it when you do not need it any more."));
    }
}

/// Names the commits with uncommitted changes that git took out of the working tree.
pub fn tell_stashes(stashes: &[Stash]) {
    for one in stashes {
        tell(&one.to_string());
    }
}

fn note_run(layer: &Layer, order: &Order) -> io::Result<()> {
    let note = RunNote {
        workspace: order.plan.workspace.source.clone(),
        directory: order.folder,
        argv: order.plan.argv.clone(),
        origin: Some(layer.origin()),
        boot: note::boot_id(),
        in_memory: matches!(order.plan.workspace.writes, Writes::MemoryLayer { .. }),
        cut_short: None,
        protect: order.protect.clone(),
    };
    note.write_first(layer.root())
}

/// Brings the note to the disk: from here on it has to outlive a power cut, and most layers end without that.
fn keep_note(layer: &Layer) -> Result<(), Failure> {
    note::sync(layer.root()).map_err(|error| {
        let path = layer.root().display();
        let message = format!("the changes are parked, but {path} may be lost in a power cut: {error}");
        Failure::refused("commit", message, format!("nexus changes show --run {} shows them", layer.run()))
    })
}
