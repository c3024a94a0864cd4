//! Brings the changes of a run that has ended to their end.

use crate::causes::chain;
use crate::change_text;
use crate::live::disk;
use crate::notices::{Notice, Notify, tell_leftovers};
use crate::plan::protect;
use crate::plan::resolve::ResolvedRun;
use crate::recover::recovery::Recovery;
use crate::request::ChangeMode;
use crate::settle::frontend::Frontend;
use crate::settle::parking::{Parking, keep_note};
use crate::settle::problem::SettleProblem;
use crate::settle::settled::{ChangesState, Settled};
use crate::settle::{cut_short, interrupted, lingers, open_files};
use crate::state::record::Record;
use crate::state::{commit_lock, note};
use nexus_driver::SandboxProcess;
use nexus_layer::store::layer::CommitError;
use nexus_layer::{CommitState, Committed, Conflict, Layer, Outside, Rules};
use nexus_model::{ByteText, ExitReason};
use rustix::fd::OwnedFd;
use std::time::Duration;

/// Everything about a run that is over.
pub struct Over<'a> {
    /// The run that is over.
    pub run: &'a ResolvedRun,
    /// The record of the run, which has to be on the disk before a commit is decided.
    pub record: &'a Record,
    /// The reason why the run ended.
    pub reason: ExitReason,
    /// True if the command could not do all that it wanted: then the user has to decide about the changes.
    pub cut_short: bool,
    /// True if the sandbox was killed and the kernel still holds it.
    pub kernel_holds_it: bool,
    /// Talks to the user.
    pub frontend: &'a dyn Frontend,
    /// Finishes the commits of other runs.
    pub recovery: &'a dyn Recovery,
}

/// Time that the kernel has to take an overlay apart after the last process of its sandbox is dead. If it takes
/// longer, another process has something of the overlay.
const GONE_WITHIN: Duration = Duration::from_millis(100);

/// Settles the changes of a run that has ended. `process` tells whether another process has something of its overlay.
pub fn settle(
    layer: Option<Layer>,
    in_memory: Option<OwnedFd>,
    process: &dyn SandboxProcess,
    over: &Over<'_>,
) -> Result<Settled, SettleProblem> {
    let Over { run, reason, frontend, .. } = over;
    let frontend = *frontend;
    let tell: Notify<'_> = &|notice| frontend.tell(notice);
    let Some(mut layer) = layer else {
        return Ok(if over.kernel_holds_it {
            lingers::leave(None, run.plan.run_id, false)
        } else {
            Settled::default()
        });
    };
    debug_assert!(run.direct.is_none(), "a direct run has no layer");
    let source = run.plan.workspace.source.as_path();
    let from_memory = in_memory.is_some();
    let keep = *reason != ExitReason::DiskQuota;
    let commit = keep && run.changes != ChangeMode::Discard;
    if over.kernel_holds_it {
        return Ok(lingers::leave(Some(&layer), run.plan.run_id, !commit));
    }
    // Needs no lock, since it has no part in any commit. An error comes again on the long way, which tells it.
    if keep
        && in_memory.is_none()
        && let Ok((true, left)) = layer.end_if_empty()
    {
        tell_leftovers(tell, left.iter());
        return Ok(Settled::default());
    }
    // What is in memory would be gone with this process, and a person who is asked is heard.
    let is_left = in_memory.is_none() && run.changes != ChangeMode::Ask;
    let watched = || frontend.watch_end(run.plan.run_id, layer.root(), !commit);
    let _watched = is_left.then(watched).flatten();
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
        return Parking { run, layer, from_memory, rules: &rules, frontend }.instead(&chain(&error));
    }
    let rules = match protect::rules(&frontend.host(), &run.protect, &layer, &run.site.directory, source) {
        Ok(rules) => rules,
        Err(error) => {
            let rules = Rules::default();
            return Parking { run, layer, from_memory, rules: &rules, frontend }.instead(&error.to_string());
        }
    };
    let asked = cut_short::wanted(run.changes, over.cut_short, *reason);
    let parking = Parking { run, layer, from_memory, rules: &rules, frontend };
    let inspected = if keep {
        parking.inspected(commit && !matches!(asked, ChangeMode::Review | ChangeMode::Discard))
    } else {
        Ok(())
    };
    if let Err(why) = inspected
        && commit
    {
        return parking.instead(&why);
    }
    let wanted = if commit { parking.decide(asked) } else { Ok(ChangeMode::Discard) };
    match wanted {
        Ok(ChangeMode::Discard) => return parking.discard(keep),
        Ok(ChangeMode::Review) => return parking.review(),
        Ok(ChangeMode::Commit | ChangeMode::Ask) => {}
        Err(why) => return parking.instead(&why),
    }
    let _alone = match commit_lock::lock(&run.site.places, run.site.identity) {
        Ok(lock) => lock,
        Err(error) => return parking.instead(&format!("no lock: {error}")),
    };
    if let Some(why) = no_room {
        return parking.instead(&why);
    }
    if let Err(why) = may_commit(over) {
        return parking.instead(&why);
    }
    commit_now(parking, over)
}

fn commit_now(parking: Parking<'_>, over: &Over<'_>) -> Result<Settled, SettleProblem> {
    let Over { run, frontend, .. } = over;
    let (directory, rules) = (&run.site.directory, parking.rules);
    let readers = if run.names_readers { open_files::readers(&parking.layer, directory, rules) } else { Vec::new() };
    match parking.layer.commit(directory, rules) {
        Ok(committed) => as_settled(committed, &parking.layer, readers, &|notice| frontend.tell(notice)),
        Err(CommitError::Interrupted { source, .. }) => {
            let why = chain(&source);
            let Parking { layer, .. } = parking;
            let origin = layer.origin();
            drop(layer);
            interrupted::finish(run, rules, &origin, &why, *frontend)
        }
        Err(error) => parking.instead(&chain(&error)),
    }
}

/// Checks the conditions of a commit: the workspace is still where its user sees it, no other commit to it stands
/// half-way, and after a power cut the next command finds what was decided.
fn may_commit(over: &Over<'_>) -> Result<(), String> {
    let Over { run, record, recovery, .. } = over;
    let path = run.plan.workspace.source.as_path();
    let id = run.plan.run_id.to_string();
    let is_there = run.site.identity.is_at(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !is_there {
        return Err(format!("{} was moved or replaced while the command ran", path.display()));
    }
    recovery.finish_others(&run.site.places, &id, path, &run.site.directory)?;
    record.sync().map_err(|error| format!("the run's record cannot be brought to the disk: {error}"))?;
    let layer = run.site.places.layers.join(&id);
    note::sync(&layer).map_err(|error| format!("the run's note cannot be brought to the disk: {error}"))
}

fn happened(conflict: &Conflict, partly: bool) -> String {
    let what = change_text::happened(conflict);
    match conflict.outside {
        // No event: it was so before.
        Outside::Blocked => what,
        _ if partly => format!("{what} during the commit"),
        _ => format!("{what} while the command ran"),
    }
}

fn as_settled(
    committed: Committed,
    layer: &Layer,
    mut readers: Vec<ByteText>,
    tell: Notify<'_>,
) -> Result<Settled, SettleProblem> {
    tell_leftovers(tell, &committed.left);
    committed.stashes.iter().for_each(|stash| tell(&Notice::Stash(stash.clone())));
    let state = match committed.state {
        CommitState::Nothing => ChangesState::None,
        CommitState::Committed => ChangesState::Committed,
        CommitState::Parked => ChangesState::Parked,
    };
    if !committed.parked.is_empty() {
        keep_note(layer)?;
    }
    let problem = committed.conflicts.first().map(|first| SettleProblem::Conflict {
        run: layer.run().to_string(),
        path: first.path.as_path().to_owned(),
        happened: happened(first, !committed.changes.is_empty()),
        partly: !committed.changes.is_empty(),
        more: committed.conflicts.len() - 1,
        waits: !committed.parked.is_empty(),
    });
    readers.retain(|path| committed.changes.changes.iter().any(|change| change.path == *path));
    let Committed { changes, parked, conflicts, unwatched, .. } = committed;
    Ok(Settled { state, changes, parked, conflicts, unwatched, readers, problem })
}
